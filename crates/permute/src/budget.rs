//! How the memory of a run is divided.
//!
//! Invariant: everything that holds records or blocks is counted here, and the sum is at most
//! what the user allowed.

use crate::error::{Result, input};
use crate::file::BLOCK;

/// The least memory, in blocks.
pub const BLOCKS_MIN: u64 = 16;
/// Reads and writes in flight, each.
const DEPTH: usize = 16;
/// What a buffer holds besides a request: the parts of blocks before and after what is read, twice
/// over because the last run of a batch is read behind the others.
pub const PAD_BYTES: usize = 3 * BLOCK;
/// The largest request, in bytes: beyond it a device gains nothing.
const UNIT_MAX: usize = 1 << 20;

/// The division.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Everything, in bytes.
    pub memory: u64,
    /// The size of one record in bytes.
    pub record: usize,
    /// Threads that read, each with a buffer of `unit` and [`PAD_BYTES`].
    pub readers: usize,
    /// Threads that write, each with a buffer of `unit` and [`PAD_BYTES`].
    pub writers: usize,
    /// Bytes of one request, at most.
    pub unit: usize,
    /// Bytes left for the records of a load and the blocks that flushes share.
    pub load: u64,
}

impl Budget {
    /// Divides `memory` bytes among requests in flight and records of `record` bytes.
    pub fn new(memory: u64, record: usize) -> Result<Self> {
        let block = BLOCK as u64;
        let needed = (BLOCKS_MIN * block).max(8 * (record as u64).next_multiple_of(block));
        if memory < needed {
            return input(format!(
                "{memory} bytes of memory are too few: at least {needed} are needed \
                 (--memory {}KiB)",
                needed.div_ceil(1024)
            ));
        }
        let share = usize::try_from(memory / 128).unwrap_or(usize::MAX).min(UNIT_MAX);
        let unit = (1_usize << share.max(1).ilog2()).max(BLOCK).max(record.next_multiple_of(BLOCK));
        let buffer = (unit + PAD_BYTES) as u64;
        let depth = usize::try_from(memory / 8 / buffer).unwrap_or(DEPTH).clamp(1, DEPTH);
        let load = memory.saturating_sub(2 * buffer * depth as u64);
        Ok(Self { memory, record, readers: depth, writers: depth, unit, load })
    }

    /// Bytes of the buffers of requests in flight.
    #[must_use]
    pub const fn in_flight(&self) -> u64 {
        ((self.unit + PAD_BYTES) * (self.readers + self.writers)) as u64
    }
}
