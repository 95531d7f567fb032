//! Bounds on what a store holds, from its memory budget and the length of its log's segments; and
//! on keys.

use esker_format::KEY_BYTES_MAX;
use esker_substrate::blocks::Reserve;
use esker_substrate::budget::SMALL_BYTES;

use crate::error::{Error, Result};

/// Bytes between two publish points of a merge that lacks space.
const PUBLISH_BYTES: (u64, u64) = (4 << 10, 256 << 10);
/// The segments that are kept for reuse with a small budget: the two that are prepared ahead, and
/// the one that is released when both are ready. The log is synced often for the records of merges
/// then, so that new segments are filled with zeros: twice the bytes.
const SPARES_OF_SMALL: usize = 3;
/// The space that a merge needs in addition, for the ends of its levels' extents.
const EXTENTS_BYTES: u64 = 32 << 10;
/// The room kept for deletes, as a share of the memory budget and within bounds: it holds the
/// deletes that are written during one merge.
const DELETES_SHARE: u64 = 32;
const DELETES_BYTES: (u64, u64) = (16 << 10, 4 << 20);

/// Bounds on what a store holds, all in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Memtables of all keyspaces together.
    pub memtables_bytes: u64,
    /// Log segments in use, before the keyspace that pins the oldest is flushed.
    pub log_bytes: u64,
    /// Most log segments kept for reuse.
    pub log_spares: usize,
    /// Keys and values of one batch, or of one transaction and what it has read.
    pub batch_bytes: u64,
    /// Keys of recent writes that are remembered for transactions.
    pub recent_bytes: u64,
    /// Free space of the data file that is kept for making room.
    pub reserve: Reserve,
}

impl Limits {
    pub fn new(memory_budget_bytes: u64, log_segment_bytes: u64) -> Self {
        let memtables_bytes = memory_budget_bytes / 2;
        Self {
            memtables_bytes,
            // Two segments are always in use or about to be; less could never be met.
            log_bytes: (2 * memtables_bytes).max(2 * log_segment_bytes),
            // The segments that a full memtable releases serve the next one, so that segments are
            // written through once and not for every memtable.
            log_spares: log_spares(memory_budget_bytes, log_segment_bytes),
            batch_bytes: memory_budget_bytes.clamp(4 << 20, 1 << 30),
            // Half of the cache's own share.
            recent_bytes: memory_budget_bytes / 16,
            reserve: reserve(memory_budget_bytes),
        }
    }
}

/// Most log segments kept for reuse: those of a full memtable and one more.
fn log_spares(memory_budget_bytes: u64, log_segment_bytes: u64) -> usize {
    let memtables_bytes = memory_budget_bytes / 2;
    let of_a_memtable = usize::try_from(memtables_bytes / log_segment_bytes).unwrap_or(0);
    let least = if memory_budget_bytes < SMALL_BYTES { SPARES_OF_SMALL } else { 1 };
    (of_a_memtable + 1).max(least)
}

/// The space that is kept free in the data file of a store with this memory budget.
fn reserve(memory_budget_bytes: u64) -> Reserve {
    let memtables_bytes = memory_budget_bytes / 2;
    let publish_bytes = (memtables_bytes / 16).clamp(PUBLISH_BYTES.0, PUBLISH_BYTES.1);
    let delete_bytes = memory_budget_bytes / DELETES_SHARE;
    Reserve {
        merge_bytes: 2 * publish_bytes + EXTENTS_BYTES,
        delete_bytes: delete_bytes.clamp(DELETES_BYTES.0, DELETES_BYTES.1),
    }
}

/// Fails for a key that no store can hold.
pub(crate) fn validate_key(key: &[u8]) -> Result<()> {
    if key.len() <= KEY_BYTES_MAX {
        return Ok(());
    }
    let len = key.len();
    Err(Error::invalid(format!("a key is at most {KEY_BYTES_MAX} bytes long, and not {len}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_budget_reuses_its_log() {
        let spares = |kib: u64| log_spares(kib << 10, 4 << 20);
        assert_eq!([128, 512, 1 << 10, 64 << 10].map(spares), [3, 3, 1, 9]);
        assert_eq!(log_spares(128 << 10, 16 << 10), 5);
    }

    #[test]
    fn the_reserve_is_in_proportion_to_the_memory_budget() {
        let kib = |budget: u64| {
            let reserve = reserve(budget << 10);
            (reserve.merge_bytes >> 10, reserve.delete_bytes >> 10)
        };
        assert_eq!(kib(128), (40, 16));
        assert_eq!(kib(256), (48, 16));
        assert_eq!(kib(16 << 10), (544, 512));
        assert_eq!(kib(64 << 10), (544, 2048));
        assert_eq!(kib(1 << 20), (544, 4096));
    }
}
