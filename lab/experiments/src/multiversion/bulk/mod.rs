//! The bulk-split multiversion tree (BSMVBT) of Choi et al.
//!
//! A head tree ([`head`]) collects writes in memory, behind a log. When it has more leaves than it
//! may, at a commit, its entries are merged into the first level, and a level that has outgrown its
//! size into the next one (Algorithms 1 and 2; [`group`] merges the entries of a key). Levels are
//! sorted runs of pages ([`run`]), each `ratio` times as large as the one above; then fences lead
//! from every level to the pages of the next, and a few pages of fences alone from the head to
//! level 1. Merged levels take the places of those before them. When the dead entries are as many
//! as `dead_share` of all, a sequential version split (Algorithm 3) leaves the levels as they are
//! to readers of old versions, and writes what lives as one run under a new root, further behind.
//!
//! Invariants:
//! - for one key, a level has nothing newer than the oldest entry in the levels above it;
//! - the entries of a page are sorted by key, then by begin; if the next level has pages, every
//!   page begins with a fence; the first fence of a level is before all keys;
//! - what is not committed is in the head alone;
//! - the pages of a former root are never written again.
//!
//! What the paper leaves open, and what is done here:
//! - Algorithm 2 advances in both levels where two entries have one key, and ends with the shorter
//!   level. By the letter, entries are lost; here keys are merged group by group, up to the end of
//!   both levels.
//! - The head tree is a B+-tree of (key, version) of which the upper levels are an array, or a
//!   transactional multiversion B+-tree ([`Head::Transactional`]); both give the same levels.
//! - Fences to level 1 are in pages of their own and not among the entries of the head: both are
//!   read first, and the head keeps its size.
//! - "Overwritten at a previous location": a level has two places and takes them alternately, so
//!   that a merge does not write over what it reads; [`Overwrite::InPlace`] has one.
//! - Dead entries are those that ended and the tombstones, of all levels. The split is between two
//!   transactions, and copies keep the versions in which they began.
//! - An entry that ended is never dropped by a merge: it is history. A tombstone is dropped where
//!   it met what it ends, and in the last level.

mod flush;
pub mod group;
pub mod head;
mod read;
pub mod run;

use super::node::KEY_END;
use super::pages::log::Log;
use super::pages::pool::Pool;
use super::pages::{Counters, PageId};
use super::{Key, Multiversion, OPEN, Value, Version};
use crate::{Error, Result};
pub use head::Head;
use run::{Run, RunCodec};

/// How merged levels take the places of those before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overwrite {
    /// Two places a level.
    Alternate,
    /// One place a level.
    InPlace,
}

/// The sizes and rules of a tree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The size of a page.
    pub page_bytes: usize,
    /// Leaves of the head from which on it is merged.
    pub head_leaves: usize,
    /// The size of a level over that of the one above.
    pub ratio: u64,
    /// The share of dead entries at which versions are split.
    pub dead_share: f64,
    /// Whether the head is a transactional multiversion B+-tree.
    pub is_head_transactional: bool,
    /// How levels are overwritten.
    pub overwrite: Overwrite,
    /// Pages in memory for lookups below the head.
    pub pool_pages: usize,
}

impl Options {
    /// Pages of 4 KiB, a head of 64 leaves, levels that grow eightfold.
    pub const USUAL: Self = Self {
        page_bytes: 4096,
        head_leaves: 64,
        ratio: 8,
        dead_share: 0.5,
        is_head_transactional: false,
        overwrite: Overwrite::Alternate,
        pool_pages: 64,
    };

    /// The pages of a level, as the options have them.
    #[must_use]
    pub fn level_pages(&self, level: usize) -> u64 {
        let head = self.head_leaves as u64;
        (0..level).fold(head, |pages, _| pages.saturating_mul(self.ratio))
    }
}

/// A root that was: its versions, and where they are.
#[derive(Clone, Debug)]
struct Former {
    from: Version,
    top: Option<PageId>,
    levels: Vec<Run>,
}

/// What was done, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Merges of two levels.
    pub merges: u64,
    /// Sequential version splits.
    pub splits: u64,
    /// Pages written by merges and splits, fences excepted.
    pub merged_pages: u64,
    /// Pages of fences alone, written behind merges.
    pub fence_pages: u64,
}

/// The tree.
#[derive(Debug)]
pub struct Bulk {
    options: Options,
    pool: Pool<RunCodec>,
    log: Log,
    head: Head,
    /// The levels of the current root, level 1 first.
    levels: Vec<Run>,
    /// The page of fences where lookups below the head begin.
    top: Option<PageId>,
    tops: Vec<Run>,
    /// The first version of the current root.
    from: Version,
    former: Vec<Former>,
    /// The version of the running transaction, or of the last one.
    active: Version,
    work: Work,
    forced: u64,
}

impl Bulk {
    /// An empty tree.
    ///
    /// # Errors
    /// When options or pages leave no room.
    pub fn new(options: Options) -> Result<Self> {
        let capacity = run::capacity(options.page_bytes);
        if capacity < 4 || options.head_leaves == 0 || options.ratio < 2 {
            let why =
                "a head of a leaf, levels that double and pages of four entries are the least";
            return Err(Error::Input(why.to_owned()));
        }
        Ok(Self {
            options,
            pool: Pool::new(RunCodec, options.page_bytes, options.pool_pages),
            log: Log::new(options.page_bytes),
            head: Head::new(&options, 0)?,
            levels: Vec::new(),
            top: None,
            tops: Vec::new(),
            from: 0,
            former: Vec::new(),
            active: 0,
            work: Work::default(),
            forced: 0,
        })
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

    /// Pages of the head that commits would have written, had they written what they changed, and
    /// all pages of levels.
    #[must_use]
    pub const fn forced(&self) -> u64 {
        self.forced + self.work.merged_pages + self.work.fence_pages
    }

    /// What was done.
    #[must_use]
    pub const fn work(&self) -> Work {
        self.work
    }

    /// Pages in the file, and those that the head would take.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.pool.parts().0.pages() + self.head.leaves() as u64
    }

    /// Entries in the levels of the current root, fences excepted.
    #[must_use]
    pub fn carried(&self) -> u64 {
        self.levels.iter().map(|run| run.entries).sum()
    }

    /// Entries in levels of all roots, fences excepted.
    #[must_use]
    pub fn entries(&self) -> u64 {
        let former = self.former.iter().flat_map(|former| &former.levels);
        former.chain(&self.levels).map(|run| run.entries).sum()
    }

    /// Writes what is in memory, as a shutdown does.
    ///
    /// # Errors
    /// When a page cannot be written.
    pub fn flush(&mut self) -> Result<()> {
        let place = self.place(run::HEAD_LEVEL);
        for (id, page) in (place..).zip(self.head.pages(self.options.page_bytes)?) {
            self.pool.create(id, page)?;
            self.pool.flush()?;
            self.pool.free(id);
        }
        Ok(())
    }
}

impl Multiversion for Bulk {
    fn begin(&mut self) -> Result<()> {
        let next = self.active.checked_add(1).filter(|next| *next < OPEN);
        self.active = next.ok_or_else(|| Error::Invalid("versions have run out".to_owned()))?;
        self.head.begin(self.active)
    }

    fn insert(&mut self, key: Key, value: Value) -> Result<()> {
        if key == KEY_END || value > run::PAYLOAD_MAX {
            return Err(Error::Input(format!("{key} or {value} is too large")));
        }
        self.log.append(run::ENTRY_BYTES);
        self.head.insert(key, self.active, value)
    }

    fn delete(&mut self, key: Key) -> Result<()> {
        self.log.append(run::ENTRY_BYTES);
        self.head.delete(key, self.active)
    }

    fn commit(&mut self) -> Result<Version> {
        self.log.force();
        self.forced += self.head.commit();
        if self.head.leaves() > self.options.head_leaves {
            self.merge_head()?;
        }
        Ok(self.active)
    }

    fn get(&mut self, key: Key, version: Version) -> Result<Option<Value>> {
        self.find(key, version)
    }

    fn range(&mut self, version: Version) -> Result<Vec<(Key, Value)>> {
        self.all_of(version)
    }
}

#[cfg(test)]
impl Bulk {
    /// The version of the running transaction.
    pub(super) const fn begun(&self) -> Version {
        self.active
    }

    /// What the head holds.
    pub(super) fn head_entries(&mut self) -> Vec<run::Entry> {
        self.head.entries().unwrap()
    }
}
