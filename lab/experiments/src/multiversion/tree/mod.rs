//! The multiversion B+-tree, of one item or of many a transaction.
//!
//! The structure is a graph of pages ([`node`](super::node)) with a root for every span of versions
//! (`roots`). An update reaches the current version alone, along one path of pages. Where a page
//! has no room or too little lives in it, the structure changes (`change`): the page, and a
//! neighbour if it has to be merged, are replaced by copies of what lives in them. Only pages that
//! the running transaction created, the active ones, are changed in place.
//!
//! Invariants, at the end of every operation:
//! - the live routers of a live index page cover its keys without gaps or overlaps;
//! - every live page but the root has at least `min_live` live entries, and an index root two;
//! - a page that died is not changed any more;
//! - an active page has live entries only, that begin at its birth.
//!
//! Differences from the texts: an update looks for room from the leaf upwards and begins again
//! where a parent had none, instead of a pass that decides before one that changes, with the same
//! pages as a result. The neighbour to merge with is the one before, or the one after the first.
//! There is no rollback.

mod change;
mod read;
mod roots;
mod survey;

pub use survey::Survey;

use super::node::{Item, KEY_END, Layout, LeafForm, Node};
use super::pages::log::Log;
use super::pages::pool::Pool;
use super::pages::{Counters, PageId};
use super::{Key, OPEN, Value, Version};
use crate::{Error, Result};
use roots::Roots;

/// Changes of the structure, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Pages that were copied because they were not active.
    pub version_splits: u64,
    /// Pages divided by key.
    pub key_splits: u64,
    /// Pairs of neighbours merged, or evened out.
    pub merges: u64,
}

/// The tree.
#[derive(Clone, Debug)]
pub struct Tree {
    layout: Layout,
    pool: Pool<Layout>,
    log: Log,
    roots: Roots,
    next_page: PageId,
    /// The version of the running transaction, or of the last one.
    active: Version,
    leaf_pages: u64,
    changes: Changes,
}

impl Tree {
    /// An empty tree, with room for a number of pages in memory.
    ///
    /// # Errors
    /// When pages are too small for the bounds to leave room.
    pub fn new(layout: Layout, pool_pages: usize) -> Result<Self> {
        let least = layout.limits(0).capacity.min(layout.limits(1).capacity);
        if least < super::limits::Limits::CAPACITY_MIN {
            return Err(Error::Input(format!("pages with room for {least} entries are too small")));
        }
        Ok(Self {
            layout,
            pool: Pool::new(layout, layout.page_bytes, pool_pages),
            log: Log::new(layout.page_bytes),
            roots: Roots::new(),
            next_page: 0,
            active: 0,
            leaf_pages: 0,
            changes: Changes::default(),
        })
    }

    /// The same, of which the first version is behind a given one.
    ///
    /// # Errors
    /// When pages are too small.
    pub fn behind(layout: Layout, pool_pages: usize, version: Version) -> Result<Self> {
        Ok(Self { active: version, ..Self::new(layout, pool_pages)? })
    }

    /// Begins a transaction of a version that is behind all others.
    ///
    /// # Errors
    /// When it is not.
    pub fn begin_at(&mut self, version: Version) -> Result<()> {
        if version <= self.active || version == OPEN {
            return Err(Error::Invalid(format!("version {version} is not the next one")));
        }
        self.active = version;
        Ok(())
    }

    /// Begins a transaction, whose version is the next one.
    ///
    /// # Errors
    /// When there is none.
    pub fn begin(&mut self) -> Result<()> {
        let next = self.active.checked_add(1).filter(|next| *next < OPEN);
        self.active = next.ok_or_else(|| Error::Invalid("versions have run out".to_owned()))?;
        Ok(())
    }

    /// Ends the transaction: its log is forced.
    pub fn commit(&mut self) {
        self.log.force();
        self.pool.commit();
    }

    /// The version of the running transaction, or of the last one.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.active
    }

    /// Writes a key in the current version.
    ///
    /// # Errors
    /// When the key is the greatest number, or a page cannot be read or written.
    pub fn insert(&mut self, key: Key, value: Value) -> Result<()> {
        check_key(key)?;
        let leaf = self.leaf_with_room(key)?;
        let active = self.active;
        let items = self.pool.change(leaf)?.items()?;
        let item = Item { key, begin: active, end: OPEN, value };
        write(items, item);
        self.log.append(self.layout.entry_bytes(0));
        Ok(())
    }

    /// Deletes a key in the current version; says whether it was there.
    ///
    /// # Errors
    /// When a page cannot be read or written.
    pub fn delete(&mut self, key: Key) -> Result<bool> {
        check_key(key)?;
        let Some(root) = self.roots.current() else { return Ok(false) };
        if self.value_below(root, key, self.active)?.is_none() {
            return Ok(false);
        }
        let leaf = match self.layout.form {
            LeafForm::Spans => self.path(key)?.last().copied().ok_or_else(no_path)?,
            LeafForm::Markers => self.leaf_with_room(key)?,
        };
        let active = self.active;
        let node = self.pool.change(leaf)?;
        end(node.items()?, key, active);
        let live = node.live();
        self.log.append(self.layout.entry_bytes(0));
        if live < self.layout.limits(0).min_live {
            self.repair(key)?;
        }
        Ok(true)
    }

    /// The leaf of a key in the current version, with room for one entry.
    fn leaf_with_room(&mut self, key: Key) -> Result<PageId> {
        let capacity = self.layout.limits(0).capacity;
        let mut is_changed = false;
        loop {
            let path = self.path(key)?;
            let leaf = path.last().copied().ok_or_else(no_path)?;
            if self.pool.read(leaf)?.slots(self.layout.form) < capacity {
                if is_changed {
                    self.repair(key)?;
                    return self.path(key)?.last().copied().ok_or_else(no_path);
                }
                return Ok(leaf);
            }
            self.restructure(&path, path.len() - 1)?;
            is_changed = true;
        }
    }

    /// The pages of a key in the current version, the root first. An empty tree gets a root.
    fn path(&mut self, key: Key) -> Result<Vec<PageId>> {
        let mut page = match self.roots.current() {
            Some(root) => root,
            None => {
                let root = self.create(Node::leaf(self.active))?;
                self.set_root(Some(root))?;
                root
            }
        };
        let mut path = vec![page];
        while self.pool.read(page)?.level > 0 {
            page = self.pool.read(page)?.child(key, self.active)?;
            path.push(page);
        }
        Ok(path)
    }

    fn create(&mut self, node: Node) -> Result<PageId> {
        let id = self.next_page;
        self.next_page += 1;
        self.leaf_pages += u64::from(node.level == 0);
        self.pool.create(id, node)?;
        Ok(id)
    }

    fn free(&mut self, page: PageId, level: u16) {
        self.leaf_pages -= u64::from(level == 0);
        self.pool.free(page);
    }

    /// The number of leaves, dead ones with them.
    #[must_use]
    pub const fn leaf_pages(&self) -> u64 {
        self.leaf_pages
    }

    /// What was read and written.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.pool.counters()
    }

    /// The log.
    #[must_use]
    pub const fn log(&self) -> Log {
        self.log
    }

    /// The pages that commits would have written, had they written what they changed.
    #[must_use]
    pub const fn forced(&self) -> u64 {
        self.pool.forced()
    }

    /// Changes of the structure.
    #[must_use]
    pub const fn changes(&self) -> Changes {
        self.changes
    }

    /// Writes every page that was changed.
    ///
    /// # Errors
    /// When one does not fit.
    pub fn flush(&mut self) -> Result<()> {
        self.pool.flush()
    }
}

/// Adds an item to a leaf: the live one of its key ends, or is replaced if it is of the same
/// version.
fn write(items: &mut Vec<Item>, item: Item) {
    let behind = items.partition_point(|of| of.key <= item.key);
    let last = behind.checked_sub(1).and_then(|at| items.get_mut(at));
    if let Some(last) = last.filter(|last| last.key == item.key && last.end == OPEN) {
        if last.begin == item.begin {
            *last = item;
            return;
        }
        last.end = item.begin;
    }
    items.insert(behind, item);
}

/// Ends the live item of a key: it goes, if it is of the same version.
fn end(items: &mut Vec<Item>, key: Key, version: Version) {
    let behind = items.partition_point(|of| of.key <= key);
    let Some(at) = behind.checked_sub(1) else { return };
    match items.get_mut(at) {
        Some(last) if last.key == key && last.end == OPEN && last.begin == version => {
            items.remove(at);
        }
        Some(last) if last.key == key && last.end == OPEN => last.end = version,
        _ => {}
    }
}

fn check_key(key: Key) -> Result<()> {
    if key < KEY_END { Ok(()) } else { Err(Error::Input(format!("{key} is no key"))) }
}

fn no_path() -> Error {
    Error::Invalid("a path has no leaf".to_owned())
}
