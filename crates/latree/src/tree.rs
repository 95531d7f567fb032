//! The tree: its state, descents, and the operations of its users.
//!
//! Levels are counted from the leaves, which have level 1. The nodes whose level is a multiple of K
//! and the root of the tree are roots of subtrees: they have an id and a buffer. Inside of a
//! subtree parents have addresses, so that a node that is written anew changes its ancestors up to
//! the root of its subtree and nothing above.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::buffer::SubtreeId;
use crate::chip::{Chip, PageNo};
use crate::error::{Error, Result};
use crate::flash::Flash;
use crate::options::{Buffering, Options, Plan, entry_limit};
use crate::page::{self, Entry, Kind};
use crate::stats::Stats;
use crate::table::Table;

/// A lazy-adaptive tree on a chip: an ordered map from bytes to bytes.
///
/// Nothing is shared: a tree is used by one thread at a time. After an error of the chip every
/// operation answers [`Error::Poisoned`] until the tree is opened again.
#[derive(Clone, Debug)]
pub struct LaTree<C> {
    pub(crate) flash: Flash<C>,
    pub(crate) table: Table,
    pub(crate) root: SubtreeId,
    /// That of the last checkpoint.
    pub(crate) last_root: SubtreeId,
    pub(crate) options: Options,
    pub(crate) plan: Plan,
    pub(crate) log: Log,
    /// Buffers that are to be emptied for their size.
    pub(crate) due: VecDeque<SubtreeId>,
    pub(crate) pool_max: usize,
    /// The pool has one of so many parts of what it shares with the cache.
    pub(crate) pool_parts: usize,
    /// Whether new fragments get filters.
    pub(crate) has_filters: bool,
    pub(crate) is_collecting: bool,
    pub(crate) is_emptying: bool,
    /// Subtrees that lost their last leaf, and a key of their range.
    pub(crate) vanished: Vec<(SubtreeId, Vec<u8>)>,
    pub(crate) is_poisoned: bool,
    pub(crate) stats: Stats,
    /// Lookups and updates since the pool was last flushed.
    pub(crate) mix: (u64, u64),
}

/// The last checkpoint, and the log of operations since.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    /// The number of the checkpoint.
    pub number: u32,
    /// Its pages, then those of the log.
    pub pages: Vec<PageNo>,
    /// How many of them are of the log.
    pub programmed: u32,
    /// Operations that are not yet programmed, as entries.
    pub pending: Vec<u8>,
    /// Whether all of its pages are durable.
    pub is_synced: bool,
}

/// A node on the way down.
#[derive(Clone, Debug)]
pub(crate) struct Spot {
    pub id: SubtreeId,
    pub at: PageNo,
    pub level: u8,
    /// Which child was taken; 0 in the last spot.
    pub index: usize,
    /// The keys below it are at least this.
    pub low: Vec<u8>,
}

/// The way from the root to a node, and the keys below it: from `low` to before `high`.
#[derive(Clone, Debug)]
pub(crate) struct Descent {
    pub spots: Vec<Spot>,
    pub low: Vec<u8>,
    pub high: Option<Vec<u8>>,
}

impl Descent {
    pub(crate) fn last(&self) -> Result<&Spot> {
        self.spots.last().ok_or(Error::Invariant("a descent has a node"))
    }
}

/// A page, in the unit of what scans cost.
pub(crate) const PAGE: u64 = 64;

/// Buffers that a lookup scanned, and what their scans cost, in 64ths of a page.
pub(crate) type Scanned = Vec<(SubtreeId, u64)>;

/// The lowest level of the subtree that has `level`.
pub(crate) fn bottom(level: u8, k: u8) -> u8 {
    (level.max(1) - 1) / k * k + 1
}

/// Whether the children of a node of this level are subtrees.
pub(crate) fn has_subtrees(level: u8, k: u8) -> bool {
    level > 1 && (level - 1).is_multiple_of(k)
}

impl<C: Chip> LaTree<C> {
    /// The greatest size of a key and its value together, in bytes.
    pub fn entry_bytes_max(&self) -> usize {
        entry_limit(self.flash.page_bytes)
    }

    /// What was done since the tree was opened.
    pub fn stats(&self) -> Stats {
        let mut stats = self.stats;
        stats.flash = self.flash.counts;
        stats.subtrees = self.table.len();
        stats.buffer_pages = self.table.pages();
        stats.live_pages = self.flash.space.live_pages();
        stats.free_blocks = self.flash.space.free_blocks();
        (stats.erases_least, stats.erases_greatest) = self.flash.space.wear();
        stats.cache_pages = self.flash.cache_pages();
        stats
    }

    /// The chip.
    pub fn chip(&self) -> &C {
        &self.flash.chip
    }

    /// The chip, for what concerns it alone, such as its clock. Pages must not be changed.
    pub fn chip_mut(&mut self) -> &mut C {
        &mut self.flash.chip
    }

    /// Gives the chip back. What was not synced is lost.
    pub fn into_chip(self) -> C {
        self.flash.chip
    }

    pub(crate) fn k(&self) -> u8 {
        self.options.subtree_levels
    }

    /// Runs an operation that may change the tree: an error that leaves it half done poisons it.
    pub(crate) fn guarded<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.is_poisoned {
            return Err(Error::Poisoned);
        }
        let done = work(self);
        self.is_poisoned = match &done {
            Err(
                Error::Chip(_) | Error::Damaged { .. } | Error::Exhausted | Error::Invariant(_),
            ) => true,
            Ok(_) | Err(_) => false,
        };
        done
    }

    /// Sets a key to a value.
    ///
    /// The operation is in memory, and durable after [`LaTree::sync`]. Cost: nothing, or the flash
    /// operations of emptying buffers and making room.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::Full`], [`Error::Subtrees`], errors of the chip.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.guarded(|tree| tree.update((key, Some(value))))
    }

    /// Removes a key, whether it is there or not. As [`LaTree::put`]; a chip that is full for puts
    /// still has room for removals.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::Full`], errors of the chip.
    pub fn remove(&mut self, key: &[u8]) -> Result<()> {
        self.guarded(|tree| tree.update((key, None)))
    }

    fn update(&mut self, entry: Entry<'_>) -> Result<()> {
        let found = entry.0.len() + entry.1.map_or(0, <[u8]>::len);
        let limit = self.entry_bytes_max();
        if found > limit {
            return Err(Error::TooLong { found, limit });
        }
        self.admit(entry.1.is_some())?;
        self.log_operation(entry)?;
        self.mix.1 += 1;
        self.insert_at_top(entry)?;
        if self.options.buffering == Buffering::Off { self.empty_way(entry.0) } else { Ok(()) }
    }

    /// Adds an operation to the top buffer.
    pub(crate) fn insert_at_top(&mut self, entry: Entry<'_>) -> Result<()> {
        let mut buffer = self.table.take(self.root)?;
        buffer.part.insert(entry);
        self.table.put_back(self.root, buffer)
    }

    /// The value of a key. Cost: a read for each level below the cache, and for each buffer on the
    /// way the pages that its scan reads; and now and then the emptying of a buffer.
    ///
    /// # Errors
    /// Errors of the chip.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.guarded(|tree| {
            tree.mix.0 += 1;
            tree.stats.lookups += 1;
            let (found, scanned) = tree.lookup(key)?;
            tree.after_lookup(key, &scanned)?;
            Ok(found)
        })
    }

    /// Searches buffers and nodes from the top. Answers the value, and what scanning each
    /// buffer costs.
    fn lookup(&mut self, key: &[u8]) -> Result<(Option<Vec<u8>>, Scanned)> {
        let mut scanned = Vec::new();
        let mut id = self.root;
        loop {
            let (found, cost) = self.scan_buffer(id, key)?;
            if cost > 0 {
                scanned.push((id, cost));
            }
            if let Some(value) = found {
                return Ok((value, scanned));
            }
            let subtree = self.table.get(id)?;
            let (mut at, mut level) = (subtree.root, subtree.level);
            loop {
                let node = self.flash.read(at, Kind::Node)?;
                if level == 1 {
                    let found = page::entries(page::payload(&node)).find(|entry| entry.0 == key);
                    return Ok((found.and_then(|entry| entry.1).map(<[u8]>::to_vec), scanned));
                }
                let child = child_at(&node, at, index_for(&node, key))?.child;
                if has_subtrees(level, self.k()) {
                    id = SubtreeId(child);
                    break;
                }
                (at, level) = (PageNo(child), level - 1);
            }
        }
    }

    /// The way to the node of `level` that has `key` among the keys below it.
    pub(crate) fn descend(&mut self, key: &[u8], level: u8) -> Result<Descent> {
        self.descend_by(level, |node| index_for(node, key))
    }

    /// The way to the leaf that has the keys just before `high`.
    pub(crate) fn descend_before(&mut self, high: &[u8]) -> Result<Descent> {
        self.descend_by(1, |node| {
            let bounds = page::entries(page::payload(node)).skip(1);
            bounds.take_while(|(low, _)| *low < high).count()
        })
    }

    /// The way to the last leaf.
    pub(crate) fn descend_last(&mut self) -> Result<Descent> {
        self.descend_by(1, |node| page::entries(page::payload(node)).skip(1).count())
    }

    /// The way to a node of `level`, through the children with the indexes that `pick` chooses.
    fn descend_by(&mut self, level: u8, pick: impl Fn(&[u8]) -> usize) -> Result<Descent> {
        let mut id = self.root;
        let mut descent = Descent { spots: Vec::new(), low: Vec::new(), high: None };
        loop {
            let subtree = self.table.get(id)?;
            let (mut at, mut now) = (subtree.root, subtree.level);
            loop {
                let low = descent.low.clone();
                let mut spot = Spot { id, at, level: now, index: 0, low };
                if now <= level {
                    descent.spots.push(spot);
                    return Ok(descent);
                }
                let node = self.flash.read(at, Kind::Node)?;
                spot.index = pick(&node);
                let found = child_at(&node, at, spot.index)?;
                if spot.index > 0 {
                    descent.low = found.low.to_vec();
                }
                if let Some(high) = found.high {
                    descent.high = Some(high.to_vec());
                }
                descent.spots.push(spot);
                if has_subtrees(now, self.k()) {
                    id = SubtreeId(found.child);
                    break;
                }
                (at, now) = (PageNo(found.child), now - 1);
            }
        }
    }
}

/// A child of an inner node: its number, and the bounds that the node has for its keys.
struct ChildFound<'a> {
    child: u32,
    low: &'a [u8],
    high: Option<&'a [u8]>,
}

/// The index of the child of an inner node that has `key`.
fn index_for(node: &[u8], key: &[u8]) -> usize {
    let bounds = page::entries(page::payload(node)).skip(1);
    bounds.take_while(|(low, _)| *low <= key).count()
}

fn child_at(node: &[u8], at: PageNo, index: usize) -> Result<ChildFound<'_>> {
    let mut entries = page::entries(page::payload(node)).skip(index);
    let (low, value) = entries.next().ok_or(Error::Damaged { page: at, what: "it is empty" })?;
    Ok(ChildFound { child: page::child(value), low, high: entries.next().map(|(key, _)| key) })
}
