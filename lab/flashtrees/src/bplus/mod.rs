//! The B+tree: what all trees with nodes do alike, over a [`Backing`] that stores nodes.
//!
//! `split` and `shrink` change the shape, `walk` reads ranges and checks.
//!
//! **Invariants.** T1: keys of a node ascend, and lie between its own entry in the parent and the
//! next one. T2: all leaves have level 0, and the root has level `height`. T3: a node that is not
//! the root of its level and whose entries fell below a quarter of a page is merged with a
//! neighbour of the same parent where both fit in four fifths of a page; an empty leaf may stay
//! where its neighbours are too full. T4: between operations the cache holds at most what the
//! budget leaves beside the backing's tables. T5: after an operation on flash failed, the tree
//! refuses all others.

mod shrink;
mod split;
mod walk;

use esker_flash::Nand;

use crate::cache::{Cache, FRAME_BYTES, Frame};
use crate::error::{Error, Result, broken};
use crate::page::{Change, Layout, Page};
use crate::tree::{Chip, FlashTree, KeyRange, Memory, Visit};

/// The least number of cached nodes with which a tree works.
pub const FRAMES_MIN: usize = 4;
/// Pages that are in memory beside the cache: one that is read or written, one that is split.
const SCRATCH_PAGES: usize = 2;
/// The most levels above the leaves.
const HEIGHT_MAX: u8 = 24;

/// How nodes are stored. The tree changes the cached image of a node, and tells the backing.
pub trait Backing {
    /// The name of the tree in reports.
    fn name(&self) -> &'static str;

    /// The sizes of nodes.
    fn layout(&self) -> Layout;

    /// The most nodes that are cached, whatever the budget.
    fn frames_max(&self) -> usize {
        usize::MAX
    }

    /// Refuses an operation for which there might not be room: `nodes` new nodes, or none.
    ///
    /// # Errors
    /// [`Error::Full`].
    fn admit(&self, nodes: usize) -> Result<()>;

    /// Takes the number of a new node.
    ///
    /// # Errors
    /// [`Error::Full`].
    fn allocate(&mut self) -> Result<u32>;

    /// Reads the newest image of a node into a page that is empty. The caller checks it.
    ///
    /// # Errors
    /// Those of the flash.
    fn fetch(&mut self, node: u32, level: u8, page: &mut Page) -> Result<()>;

    /// A new node is in the cache, with its entries.
    ///
    /// # Errors
    /// Those of the flash.
    fn created(&mut self, node: u32, cache: &mut Cache) -> Result<()>;

    /// The cached image of a node has this change, which the backing now stores or notes.
    ///
    /// # Errors
    /// Those of the flash.
    fn changed(&mut self, node: u32, change: &Change, cache: &mut Cache) -> Result<()>;

    /// A node leaves the cache, or a flush writes it.
    ///
    /// # Errors
    /// Those of the flash.
    fn evict(&mut self, frame: &mut Frame, cache: &mut Cache) -> Result<()>;

    /// A node is not in the tree any more, nor in the cache.
    ///
    /// # Errors
    /// Those of the flash.
    fn free(&mut self, node: u32) -> Result<()>;

    /// Writes the buffers.
    ///
    /// # Errors
    /// Those of the flash.
    fn flush(&mut self, cache: &mut Cache) -> Result<()>;

    /// Memory of tables and buffers in bytes.
    fn table_bytes(&self) -> usize;

    /// The flash below.
    fn nand(&self) -> &dyn Nand;

    /// Checks what is below the nodes, of which there are `nodes`.
    ///
    /// # Errors
    /// [`Error::Invariant`].
    fn check(&self, nodes: usize) -> Result<()>;
}

/// A node on the way from the root to a leaf: its number, and the index of the child taken.
#[derive(Clone, Copy, Debug)]
struct Step {
    node: u32,
    at: usize,
}

/// A B+tree over a backing, with a cache of nodes in the memory that its tables leave.
#[derive(Debug)]
pub struct Tree<B> {
    backing: B,
    layout: Layout,
    cache: Cache,
    budget: usize,
    root: u32,
    /// The level of the root.
    height: u8,
    /// An operation failed after it may have changed something.
    is_failed: bool,
}

impl<B: Backing> Tree<B> {
    /// An empty tree in `budget` bytes of memory.
    ///
    /// # Errors
    /// Pages that are too small, a budget that is.
    pub fn new(mut backing: B, budget: usize) -> Result<Self> {
        let layout = backing.layout();
        layout.require()?;
        let root = backing.allocate()?;
        let cache = Cache::default();
        let mut tree = Self { backing, layout, cache, budget, root, height: 0, is_failed: false };
        tree.fit()?;
        tree.create(root, 0, &[])?;
        Ok(tree)
    }

    /// What stores its nodes.
    pub const fn backing(&self) -> &B {
        &self.backing
    }

    /// The level of the root.
    pub const fn height(&self) -> u8 {
        self.height
    }

    const fn frame_bytes(&self) -> usize {
        self.layout.page_bytes + FRAME_BYTES
    }

    fn table_bytes(&self) -> usize {
        self.backing.table_bytes() + SCRATCH_PAGES * self.layout.page_bytes
    }

    /// The nodes that may be cached now.
    fn frames(&self) -> Result<usize> {
        let left = self.budget.saturating_sub(self.table_bytes());
        let frames = left / self.frame_bytes();
        if frames >= FRAMES_MIN {
            return Ok(frames.min(self.backing.frames_max()));
        }
        Err(Error::Memory {
            tree: self.backing.name(),
            needed_bytes: self.table_bytes() + FRAMES_MIN * self.frame_bytes(),
            budget_bytes: self.budget,
        })
    }

    /// Does an operation in the memory that there is, before and after it.
    fn guarded<T>(&mut self, operation: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.is_failed {
            let what = format!("an operation on {} failed: make it anew", self.backing.name());
            return Err(Error::Refused(what));
        }
        let done = self.fit().and_then(|()| operation(self)).and_then(|done| {
            self.fit()?;
            Ok(done)
        });
        self.is_failed = !matches!(done, Ok(_) | Err(Error::Memory { .. }));
        done
    }

    /// Evicts what the budget has no room for any more.
    fn fit(&mut self) -> Result<()> {
        let frames = self.frames()?;
        while self.cache.len() > frames {
            self.evict_oldest()?;
        }
        Ok(())
    }

    fn evict_oldest(&mut self) -> Result<()> {
        match self.cache.remove_oldest() {
            Some(mut frame) => self.backing.evict(&mut frame, &mut self.cache),
            None => Ok(()),
        }
    }

    fn make_room(&mut self) -> Result<()> {
        // Within an operation tables may grow by a few entries: that is settled after it.
        let frames = self.frames().unwrap_or(FRAMES_MIN);
        while self.cache.len() >= frames {
            self.evict_oldest()?;
        }
        Ok(())
    }

    /// A node in the cache, read if it is not there.
    fn load(&mut self, node: u32, level: u8) -> Result<&mut Frame> {
        if self.cache.touch(node).is_none() {
            self.make_room()?;
            let mut page = Page::new(self.layout, node, level);
            self.backing.fetch(node, level, &mut page)?;
            page.require(node, level)?;
            self.cache.insert(Frame { node, page, is_dirty: false, changes: 0 });
        }
        match self.cache.touch(node) {
            Some(frame) => Ok(frame),
            None => broken(format!("node {node} is not cached")),
        }
    }

    fn create(&mut self, node: u32, level: u8, entries: &[(u64, u64)]) -> Result<()> {
        self.make_room()?;
        let mut page = Page::new(self.layout, node, level);
        for (key, value) in entries.iter().copied() {
            page.apply(&Change::Put { key, value })?;
        }
        self.cache.insert(Frame { node, page, is_dirty: false, changes: 0 });
        self.backing.created(node, &mut self.cache)
    }

    fn change(&mut self, node: u32, level: u8, change: &Change) -> Result<()> {
        let frame = self.load(node, level)?;
        frame.page.apply(change)?;
        frame.changes = frame.changes.saturating_add(1);
        self.backing.changed(node, change, &mut self.cache)
    }

    /// The way to the leaf of a key: the nodes above it, root first, and the leaf.
    fn descend(&mut self, key: u64) -> Result<(Vec<Step>, u32)> {
        let mut path = Vec::with_capacity(usize::from(self.height));
        let mut node = self.root;
        for level in (1..=self.height).rev() {
            let page = &self.load(node, level)?.page;
            if page.is_empty() {
                return broken(format!("inner node {node} has no child"));
            }
            let at = page.child_of(key);
            let child = page.value(at) as u32;
            path.push(Step { node, at });
            node = child;
        }
        Ok((path, node))
    }
}

impl<B: Backing> FlashTree for Tree<B> {
    fn name(&self) -> &'static str {
        self.backing.name()
    }

    fn put(&mut self, key: u64, value: u64) -> Result<()> {
        self.backing.admit(usize::from(self.height) + 2)?;
        self.guarded(|tree| {
            let (mut path, leaf) = tree.descend(key)?;
            let page = &tree.load(leaf, 0)?.page;
            if page.is_full() && page.search(key).is_err() {
                return tree.split_and_insert(&mut path, leaf, key, value);
            }
            tree.change(leaf, 0, &Change::Put { key, value })
        })
    }

    fn remove(&mut self, key: u64) -> Result<()> {
        self.backing.admit(0)?;
        self.guarded(|tree| {
            let (path, leaf) = tree.descend(key)?;
            if tree.load(leaf, 0)?.page.search(key).is_err() {
                return Ok(());
            }
            tree.change(leaf, 0, &Change::Remove { key })?;
            tree.shrink(&path, leaf)
        })
    }

    fn get(&mut self, key: u64) -> Result<Option<u64>> {
        self.guarded(|tree| {
            let (_, leaf) = tree.descend(key)?;
            let page = &tree.load(leaf, 0)?.page;
            Ok(page.search(key).ok().map(|at| page.value(at)))
        })
    }

    fn range(&mut self, range: KeyRange, visit: &mut Visit<'_>) -> Result<()> {
        self.guarded(|tree| tree.walk(range, visit))
    }

    fn flush(&mut self) -> Result<()> {
        self.guarded(|tree| {
            for node in tree.cache.nodes() {
                if let Some(mut frame) = tree.cache.remove(node) {
                    tree.backing.evict(&mut frame, &mut tree.cache)?;
                    frame.is_dirty = false;
                    tree.cache.insert(frame);
                }
            }
            tree.backing.flush(&mut tree.cache)
        })
    }

    fn check(&mut self) -> Result<u64> {
        self.guarded(|tree| {
            let (entries, nodes) = tree.check_nodes()?;
            tree.backing.check(nodes)?;
            Ok(entries)
        })
    }

    fn memory(&self) -> Memory {
        Memory {
            budget: self.budget,
            tables: self.table_bytes(),
            cache: self.cache.len() * self.frame_bytes(),
        }
    }

    fn chip(&self) -> Chip {
        Chip::of(self.backing.nand())
    }
}
