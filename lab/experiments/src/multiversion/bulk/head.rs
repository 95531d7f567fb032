//! The head tree: writes that no level has yet.
//!
//! By default a B+-tree of (key, version) that is divided by key alone; its leaves, in their order,
//! are level 0. Its upper levels are an array. Or a transactional multiversion B+-tree, of which
//! the live and the dead pages are read when it is merged, and copies are joined again. In that one
//! a deletion is an item with a tombstone as its value, so that a copy of it stays where lookups of
//! the current version find it. `normalised` makes both give the same entries.

use super::super::node::{Item, Layout};
use super::super::tree::Tree;
use super::super::{Key, OPEN, Value, Version};
use super::Options;
use super::run::{Entry, Kind, PAYLOAD_MAX, capacity};
use crate::Result;

/// The value of an item that is a tombstone.
const TOMB: Value = PAYLOAD_MAX + 1;

/// The head.
#[derive(Debug)]
pub enum Head {
    /// A B+-tree of (key, version).
    Plain(Leaves),
    /// A transactional multiversion B+-tree.
    Transactional(Box<Tree>),
}

/// Leaves, in order.
#[derive(Debug)]
pub struct Leaves {
    capacity: usize,
    leaves: Vec<Leaf>,
}

#[derive(Debug, Default)]
struct Leaf {
    entries: Vec<Entry>,
    is_changed: bool,
}

impl Head {
    /// An empty head behind a version.
    ///
    /// # Errors
    /// When pages are too small.
    pub fn new(options: &Options, version: Version) -> Result<Self> {
        if options.is_head_transactional {
            let layout = Layout { page_bytes: options.page_bytes, ..Layout::WIDE };
            let pool_pages = 4 * options.head_leaves + 64;
            let tree = Tree::behind(layout, pool_pages, version)?;
            return Ok(Self::Transactional(Box::new(tree)));
        }
        let capacity = capacity(options.page_bytes);
        Ok(Self::Plain(Leaves { capacity, leaves: Vec::new() }))
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// When versions have run out.
    pub fn begin(&mut self, version: Version) -> Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Transactional(tree) => tree.begin_at(version),
        }
    }

    /// Ends it; the answer is the number of pages that it changed.
    pub fn commit(&mut self) -> u64 {
        match self {
            Self::Plain(leaves) => leaves.commit(),
            Self::Transactional(tree) => {
                let before = tree.forced();
                tree.commit();
                tree.forced() - before
            }
        }
    }

    /// The number of leaves, dead ones with them.
    #[must_use]
    pub fn leaves(&self) -> usize {
        match self {
            Self::Plain(leaves) => leaves.leaves.len(),
            Self::Transactional(tree) => tree.leaf_pages() as usize,
        }
    }

    /// Writes a key.
    ///
    /// # Errors
    /// When a page cannot be read or written.
    pub fn insert(&mut self, key: Key, version: Version, value: Value) -> Result<()> {
        match self {
            Self::Plain(leaves) => leaves.insert(Entry::data(key, version, value)),
            Self::Transactional(tree) => tree.insert(key, value)?,
        }
        Ok(())
    }

    /// Deletes a key, whether or not a level has it.
    ///
    /// # Errors
    /// When a page cannot be read or written.
    pub fn delete(&mut self, key: Key, version: Version) -> Result<()> {
        match self {
            Self::Plain(leaves) => leaves.delete(key, version),
            Self::Transactional(tree) => {
                if tree.get(key, version)? != Some(TOMB) {
                    tree.insert(key, TOMB)?;
                }
            }
        }
        Ok(())
    }

    /// The newest entry of a key that a version knows.
    ///
    /// # Errors
    /// When a page cannot be read.
    pub fn newest(&mut self, key: Key, version: Version) -> Result<Option<Entry>> {
        match self {
            Self::Plain(leaves) => Ok(leaves.newest(key, version)),
            Self::Transactional(tree) => Ok(tree.get(key, version)?.map(|value| match value {
                TOMB => Entry::tomb(key, version),
                value => Entry::data(key, version, value),
            })),
        }
    }

    /// The entries of each leaf, as they are written when a tree is closed.
    ///
    /// # Errors
    /// When a page cannot be read.
    pub fn pages(&mut self, page_bytes: usize) -> Result<Vec<Vec<Entry>>> {
        match self {
            Self::Plain(leaves) => {
                Ok(leaves.leaves.iter().map(|leaf| leaf.entries.clone()).collect())
            }
            Self::Transactional(_) => {
                let entries = self.entries()?;
                Ok(entries.chunks(capacity(page_bytes)).map(<[_]>::to_vec).collect())
            }
        }
    }

    /// All entries, in order.
    ///
    /// # Errors
    /// When a page cannot be read.
    pub fn entries(&mut self) -> Result<Vec<Entry>> {
        let found = match self {
            Self::Plain(leaves) => {
                leaves.leaves.iter().flat_map(|leaf| leaf.entries.iter().copied()).collect()
            }
            Self::Transactional(tree) => joined(tree.items()?),
        };
        Ok(normalised(found))
    }
}

impl Leaves {
    /// The leaf and the place in it behind all entries that are not after (key, version).
    fn behind(&self, key: Key, version: Version) -> (usize, usize) {
        let is_before =
            |leaf: &Leaf| leaf.entries.first().is_some_and(|first| first.order() <= (key, version));
        let at = self.leaves.partition_point(is_before).saturating_sub(1);
        let within = self.leaves.get(at).map_or(0, |leaf| {
            leaf.entries.partition_point(|entry| entry.order() <= (key, version))
        });
        (at, within)
    }

    fn newest_mut(&mut self, key: Key, version: Version) -> Option<&mut Entry> {
        let (at, within) = self.behind(key, version);
        let leaf = self.leaves.get_mut(at)?;
        let entry = leaf.entries.get_mut(within.checked_sub(1)?)?;
        leaf.is_changed |= entry.key == key;
        (entry.key == key).then_some(entry)
    }

    fn newest(&self, key: Key, version: Version) -> Option<Entry> {
        let (at, within) = self.behind(key, version);
        let entry = *self.leaves.get(at)?.entries.get(within.checked_sub(1)?)?;
        (entry.key == key).then_some(entry)
    }

    fn insert(&mut self, entry: Entry) {
        if let Some(newest) = self.newest_mut(entry.key, entry.begin) {
            if newest.begin == entry.begin {
                *newest = entry;
                return;
            }
            if newest.is_open() {
                newest.end = entry.begin;
            }
        }
        self.add(entry);
    }

    fn delete(&mut self, key: Key, version: Version) {
        let tomb = Entry::tomb(key, version);
        match self.newest_mut(key, version) {
            Some(newest) if newest.begin == version => *newest = tomb,
            Some(newest) if newest.is_open() => newest.end = version,
            Some(_) => {}
            None => self.add(tomb),
        }
    }

    fn add(&mut self, entry: Entry) {
        if self.leaves.is_empty() {
            self.leaves.push(Leaf::default());
        }
        let (mut at, mut within) = self.behind(entry.key, entry.begin);
        let capacity = self.capacity;
        let Some(leaf) = self.leaves.get_mut(at) else { return };
        if leaf.entries.len() >= capacity {
            let half = leaf.entries.len() / 2;
            let entries = leaf.entries.split_off(half);
            leaf.is_changed = true;
            self.leaves.insert(at + 1, Leaf { entries, is_changed: true });
            if within > half {
                (at, within) = (at + 1, within - half);
            }
        }
        if let Some(leaf) = self.leaves.get_mut(at) {
            leaf.entries.insert(within, entry);
            leaf.is_changed = true;
        }
    }

    fn commit(&mut self) -> u64 {
        let changed = self.leaves.iter_mut().filter(|leaf| leaf.is_changed);
        changed.map(|leaf| leaf.is_changed = false).count() as u64
    }
}

/// Items of all pages, copies joined: of one value, and one begins where another ends.
fn joined(mut items: Vec<Item>) -> Vec<Entry> {
    items.sort_unstable_by_key(|item| (item.key, item.begin));
    let mut entries: Vec<Entry> = Vec::with_capacity(items.len());
    for item in items {
        let is_tomb = item.value == TOMB;
        let before = entries.last_mut().filter(|of| of.key == item.key && of.end == item.begin);
        let kind = if is_tomb { Kind::Tomb } else { Kind::Data };
        match before.filter(|of| of.kind == kind && of.payload == item.value) {
            Some(before) => before.end = item.end,
            None => {
                let (key, begin, end) = (item.key, item.begin, item.end);
                entries.push(Entry { key, begin, end, kind, payload: item.value });
            }
        }
    }
    for tomb in entries.iter_mut().filter(|of| of.kind == Kind::Tomb) {
        *tomb = Entry::tomb(tomb.key, tomb.begin);
    }
    entries
}

/// Entries without the tombstones behind what already ended.
fn normalised(entries: Vec<Entry>) -> Vec<Entry> {
    let mut kept: Vec<Entry> = Vec::with_capacity(entries.len());
    for entry in entries {
        let is_behind = kept.last().is_some_and(|of| of.key == entry.key && of.end != OPEN);
        if entry.kind != Kind::Tomb || !is_behind {
            kept.push(entry);
        }
    }
    kept
}
