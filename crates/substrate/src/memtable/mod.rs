//! The memtable: the newest versions, ordered, in memory.
//!
//! Reading order: `position` (the order), `version` (what is stored), `order` and `page` (a few
//! versions, ordered by one word), `leaf` and `cursor` (some hundred versions, and a cursor over
//! them), `cut` and `grow` (what replaces a full leaf), `directory` and `list` (the leaves in
//! order), `place` (the position of a version), and here the memtable that combines them.
//!
//! A memtable is a list of leaves, each with its own memory, so that a merge can free a frozen
//! memtable piece by piece: [`Leaves::behind`] returns the list without what was merged, and a leaf
//! is freed when the last list that holds it is.
//!
//! # Thread safety
//!
//! One writer at a time, which the caller ensures. Any number of concurrent readers, which never
//! wait.
//!
//! * versions are never removed or changed. A leaf only grows, until it is left out of a list.
//! * no two entries share a key and a number, so that an insert never replaces.
//! * the leaves of a list cover all positions without overlap: a leaf holds the positions at or
//!   behind its own lower boundary and before the next leaf's.
//! * what is in a leaf of one list of a memtable is in every later list of it: a full leaf is
//!   replaced by leaves with all its versions, and nothing is inserted into it again.
//!
//! *A reader misses nothing it may see*, provided that it takes its number first and loads the list
//! after. Let n be the visible number that it took. Every version with a number of at most n was
//! inserted before n became visible, into a leaf of the list that was current then, or together
//! with a new list. The list loaded afterwards is that one or a later one, and every later list
//! holds the version; its leaves are in order, so that a search finds it. A list loaded *before*
//! the number may lack it: a version with a number of at most n may be in a leaf that has since
//! replaced one of the list's.

mod cursor;
mod cut;
mod directory;
mod grow;
mod leaf;
mod list;
mod order;
mod page;
mod place;
mod position;
mod version;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use esker_format::data::Data;
use esker_format::entry::PUT_OVERHEAD_BYTES;
use esker_format::ids::Seq;

use crate::sync::{Loaded, Swap};

use cut::Limits;
pub use leaf::Leaf;
pub use list::Leaves;
pub use place::Place;
pub use version::Version;

/// An ordered set of versions that one thread at a time adds to.
pub struct Memtable {
    leaves: Swap<Leaves>,
    limits: Limits,
    puts: AtomicU64,
    tombstones: AtomicU64,
    put_bytes: AtomicU64,
    tombstone_bytes: AtomicU64,
    memory_bytes: AtomicU64,
    /// Whether an insert runs: only to catch a second writer in a debug build.
    writing: AtomicBool,
}

/// The counts of a memtable. Byte counts are the bytes that its entries will take in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemtableCounts {
    /// Puts.
    pub puts: u64,
    /// Tombstones.
    pub tombstones: u64,
    /// Bytes of puts.
    pub put_bytes: u64,
    /// Bytes of tombstones.
    pub tombstone_bytes: u64,
}

impl MemtableCounts {
    /// Bytes of all entries.
    #[must_use]
    pub const fn data_bytes(&self) -> u64 {
        self.put_bytes + self.tombstone_bytes
    }
}

impl Memtable {
    /// A memtable whose leaves hold at most `entries` versions: for tests that want many leaves
    /// of few versions.
    #[must_use]
    pub fn with_leaf_entries(entries: usize) -> Self {
        Self::with_limits(Limits { entries: entries.max(1), ..Limits::default() })
    }

    fn with_limits(limits: Limits) -> Self {
        Self {
            leaves: Swap::new(Arc::default()),
            limits,
            puts: AtomicU64::new(0),
            tombstones: AtomicU64::new(0),
            put_bytes: AtomicU64::new(0),
            tombstone_bytes: AtomicU64::new(0),
            memory_bytes: AtomicU64::new(0),
            writing: AtomicBool::new(false),
        }
    }

    /// Adds a version. Only one thread at a time may do so.
    ///
    /// Costs a search of the list and of a few versions; once in about a hundred times a leaf is
    /// full, and its versions are spread over new ones; for an operand, one more search.
    ///
    /// For a merge operand, returns how many operands of the key are then stacked in the memtable.
    pub fn insert(&self, key: &[u8], seq: Seq, data: Data<'_>) -> u16 {
        debug_assert!(!self.writing.swap(true, Ordering::Acquire), "two writers in one memtable");
        let mut depth = 0;
        if data.is_operand() {
            let below = self.get(key, Seq::MAX);
            depth = below.map_or(0, |below| below.depth()).saturating_add(1);
        }
        let version = Version::new(key, seq, data).at_depth(depth);
        self.count(&version);
        let leaves = self.leaves.load();
        let inserted = match leaves.locate(version.position()) {
            Some((_, leaf)) => leaf.insert(version, &self.limits),
            None => Err(version),
        };
        let added_bytes = inserted.unwrap_or_else(|version| {
            let (next, added_bytes) = leaves.with(version, &self.limits);
            self.leaves.swap(Arc::new(next));
            added_bytes
        });
        add(&self.memory_bytes, added_bytes);
        debug_assert!(self.writing.swap(false, Ordering::Release), "two writers in one memtable");
        depth
    }

    fn count(&self, version: &Version) {
        let (count, bytes) = if version.data().is_delete() {
            (&self.tombstones, &self.tombstone_bytes)
        } else {
            (&self.puts, &self.put_bytes)
        };
        add(count, 1);
        add(bytes, version.payload_bytes() + PUT_OVERHEAD_BYTES as u64);
    }

    /// The current list of leaves. The list does not change, but its leaves continue to grow.
    pub fn leaves(&self) -> Loaded<Leaves> {
        self.leaves.load()
    }

    /// As [`Memtable::leaves`], for keeping.
    pub fn leaves_arc(&self) -> Arc<Leaves> {
        Arc::clone(&self.leaves.load())
    }

    /// The newest version of `key` with a number of at most `seq`.
    pub fn get(&self, key: &[u8], seq: Seq) -> Option<Version> {
        self.leaves.load().get(key, seq)
    }

    /// Whether nothing was inserted.
    pub fn is_empty(&self) -> bool {
        let counts = self.counts();
        counts.puts == 0 && counts.tombstones == 0
    }

    /// Counts of the inserted versions.
    pub fn counts(&self) -> MemtableCounts {
        MemtableCounts {
            puts: self.puts.load(Ordering::Relaxed),
            tombstones: self.tombstones.load(Ordering::Relaxed),
            put_bytes: self.put_bytes.load(Ordering::Relaxed),
            tombstone_bytes: self.tombstone_bytes.load(Ordering::Relaxed),
        }
    }

    /// Estimated memory, in bytes: that of the current list's leaves. At once, regardless of its
    /// size.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes.load(Ordering::Relaxed)
    }
}

/// Adds to a counter that only the one writer changes, without an atomic addition.
fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed) + count, Ordering::Relaxed);
}

impl Default for Memtable {
    fn default() -> Self {
        Self::with_limits(Limits::default())
    }
}

impl fmt::Debug for Memtable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memtable")
            .field("leaves", &self.leaves.load().len())
            .field("counts", &self.counts())
            .field("memory_bytes", &self.memory_bytes())
            .finish_non_exhaustive()
    }
}
