//! What all trees are: an ordered map of `u64` to `u64` on a chip, in a memory that is counted.

use esker_flash::nand::Counters;
use esker_flash::{Geometry, Nand};

use crate::error::Result;

/// The direction of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// From the least key.
    Ascending,
    /// From the greatest key.
    Descending,
}

/// Keys of `from..=to`, and the order in which their entries are visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The least key.
    pub from: u64,
    /// The greatest key.
    pub to: u64,
    /// The direction.
    pub order: Order,
}

impl KeyRange {
    /// All keys, ascending.
    pub const ALL: Self = Self { from: 0, to: u64::MAX, order: Order::Ascending };

    /// Whether there is no key in it.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.from > self.to
    }
}

/// What is done with each entry of a range, a key and its value; false ends the range.
pub type Visit<'a> = dyn FnMut(u64, u64) -> bool + 'a;

/// Memory of a tree in bytes, as a firmware would hold it: tables at the width of their entries,
/// pages at their size and 16 bytes for the links of each. What the simulator below takes, and
/// what Rust's collections take beyond it, is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// What the tree was given.
    pub budget: usize,
    /// Tables, buffers of updates, and scratch pages.
    pub tables: usize,
    /// Cached pages.
    pub cache: usize,
}

impl Memory {
    /// All of it.
    #[must_use]
    pub const fn used(&self) -> usize {
        self.tables + self.cache
    }
}

/// What a chip did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chip {
    /// Its sizes.
    pub geometry: Geometry,
    /// Operations, by cause.
    pub counters: Counters,
    /// When the last request ended, in nanoseconds.
    pub end_ns: u64,
}

impl Chip {
    /// Of a chip now.
    pub fn of(nand: &dyn Nand) -> Self {
        Self { geometry: *nand.geometry(), counters: *nand.counters(), end_ns: nand.end_ns() }
    }
}

/// An ordered map on flash. Every operation reads and programs the chip below, whose clock and
/// counters say what it costs. Single-threaded; not recovered after a power cut.
///
/// After [`Error::Full`](crate::Error::Full) the tree is as it was before the operation. After any
/// other error it must not be used any more.
pub trait FlashTree {
    /// The name of the tree in reports.
    fn name(&self) -> &'static str;

    /// Sets the value of a key.
    ///
    /// # Errors
    /// A full chip, too little memory, those of the flash.
    fn put(&mut self, key: u64, value: u64) -> Result<()>;

    /// Removes a key, if it is there.
    ///
    /// # Errors
    /// Those of [`FlashTree::put`].
    fn remove(&mut self, key: u64) -> Result<()>;

    /// The value of a key.
    ///
    /// # Errors
    /// Those of the flash, damaged pages.
    fn get(&mut self, key: u64) -> Result<Option<u64>>;

    /// Hands the entries of a range to `visit`, in its order, until it answers false.
    ///
    /// # Errors
    /// Those of [`FlashTree::get`].
    fn range(&mut self, range: KeyRange, visit: &mut Visit<'_>) -> Result<()>;

    /// Writes what is only in memory.
    ///
    /// # Errors
    /// Those of [`FlashTree::put`].
    fn flush(&mut self) -> Result<()>;

    /// Checks all invariants, and answers the number of entries. Reads everything.
    ///
    /// # Errors
    /// [`Error::Invariant`](crate::Error::Invariant), damaged pages, those of the flash.
    fn check(&mut self) -> Result<u64>;

    /// What it holds in memory now.
    fn memory(&self) -> Memory;

    /// What the chip did so far.
    fn chip(&self) -> Chip;

    /// Pages that the tree's own garbage collection has moved, where it is not a layer below that
    /// collects: the chip counts them as the host's.
    fn moved_pages(&self) -> u64 {
        0
    }
}
