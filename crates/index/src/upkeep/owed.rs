//! The most space that a memtable takes when it is flushed, which is reserved for it
//! ([`esker_substrate::blocks`] keeps the reservation).
//!
//! Blocks are filled one after the other, in key order: a block is closed when the next entry does
//! not fit. So what it leaves empty is less than that entry takes. An eighth of a block is more
//! than a short entry takes: a block before one is filled to seven eighths. What is left empty
//! before a long entry is counted with that entry. This holds for any order, so that every entry
//! can be counted when it is written.

use esker_format::action::KeyRange;
use esker_format::data::Data;
use esker_format::meta::RemovedRange;
use esker_format::ptr::UNIT_BYTES;
use esker_substrate::blocks::Pot;
use esker_substrate::manifest::KEPT_TIMES;
use esker_substrate::sync::atomic::Ordering;
use std::sync::Arc;

use crate::Index;
use crate::read::range_tombstones::{self, RangeTombstones};

/// Bytes of an entry in addition to key and value: number, lengths, its place in the block and the
/// filter, and the block's header.
const ENTRY_BYTES: u64 = 40;
/// Bytes of a fence in addition to its key.
const FENCE_BYTES: u64 = 64;
/// Entries below this length are short: an eighth of a block.
const SHORT_BYTES: u64 = UNIT_BYTES / 8;
/// Entries of this length may not fit a block of one unit.
const LONG_BYTES: u64 = UNIT_BYTES - 256;
/// Bytes of a run in addition to its entries: blocks that are not full, of the entries and of the
/// fences.
const RUN_BYTES: u64 = 3 * UNIT_BYTES;

/// What is kept for range tombstones that no record has.
#[derive(Debug, Default)]
pub(crate) struct KeptForRemovals {
    /// Bytes of space.
    bytes: u64,
    /// The range tombstones of the record, and the most bytes that they take there.
    recorded: Arc<[RemovedRange]>,
    recorded_bytes: u64,
}

/// The bytes reserved for an entry.
#[must_use]
pub fn entry_bytes(key: &[u8], data: Data<'_>) -> u64 {
    let content = match data {
        Data::Reference(content) => content.len() as u64,
        _ => data.value_bytes(),
    };
    bytes(key.len() as u64, content)
}

/// The same, for a key and a value of these lengths.
fn bytes(key_bytes: u64, value_bytes: u64) -> u64 {
    let entry = key_bytes.saturating_add(value_bytes).saturating_add(ENTRY_BYTES);
    // A long entry may be alone in its block, and so may the fence to that be.
    let fence = key_bytes + FENCE_BYTES;
    if entry < SHORT_BYTES {
        // Eight sevenths, and a fence for as many entries as fill a block.
        entry / 2 * 3 + 2
    } else if entry < LONG_BYTES {
        (entry + fence) / 2 * 5
    } else {
        let blocks = entry.saturating_add(SHORT_BYTES).next_multiple_of(UNIT_BYTES) + UNIT_BYTES;
        blocks.saturating_add(blocks / 8).saturating_add(fence.saturating_mul(4))
    }
}

impl Index {
    /// The most bytes that a range tombstone takes which is written now: the entry at its begin,
    /// and what it adds to the manifest's next file. Where snapshots are live, or history is kept,
    /// the ranges that it meets may stay, and it fills the gaps between them.
    pub fn removal_bytes(&self, keys: KeyRange<'_>) -> u64 {
        let replaces = self.env.snapshots.is_unused() && !self.keeps_history();
        let met = if replaces { 0 } else { self.views.load().removed.met_bytes(keys) };
        let added = 2 * range_tombstones::bytes_of(keys) + met;
        entry_bytes(keys.begin, Data::Delete) + added.saturating_mul(KEPT_TIMES)
    }

    /// Keeps space for what the range tombstones that no record has yet add to the manifest's next
    /// file. Call it when they, or the durable state, have changed.
    pub(crate) fn keep_for_removals(&self) {
        let mut kept = self.kept_for_removals.lock();
        let (view, durable) = (self.views.load(), self.durable.load());
        if kept.bytes == 0 && view.removed.is_empty() {
            return;
        }
        if !Arc::ptr_eq(&kept.recorded, &durable.removed) {
            kept.recorded = Arc::clone(&durable.removed);
            kept.recorded_bytes = RangeTombstones::new(&kept.recorded).recorded_bytes();
        }
        let added = view.removed.recorded_bytes().saturating_sub(kept.recorded_bytes);
        let bytes = added.saturating_mul(KEPT_TIMES);
        self.env.blocks.keep_for_tombstones(kept.bytes, bytes);
        kept.bytes = bytes;
    }

    /// An entry was inserted into the memtable that takes writes.
    pub(crate) fn owe(&self, key: &[u8], data: Data<'_>) {
        let mut bytes = entry_bytes(key, data);
        if self.owed_bytes.load(Ordering::Relaxed) == 0 {
            bytes += RUN_BYTES;
        }
        self.owed_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.env.blocks.owe(bytes);
    }

    /// The bytes owed for the memtable that takes writes.
    pub fn owed_bytes(&self) -> u64 {
        self.owed_bytes.load(Ordering::Relaxed)
    }

    /// The reservation for the memtable that is being frozen, for the flush or merge that writes it
    /// out.
    pub(crate) fn pot(&self) -> Arc<Pot> {
        let bytes = self.owed_bytes.swap(0, Ordering::Relaxed);
        Arc::new(Pot::new(Arc::clone(&self.env.blocks), bytes))
    }

    /// An entry was found in the log that the merge under way has not moved.
    pub(crate) fn owe_recovered(&self, key: &[u8], data: Data<'_>) {
        let bytes = entry_bytes(key, data);
        self.recovered_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.env.blocks.owe(bytes);
    }

    /// The bytes owed for entries found in this way.
    pub(crate) fn recovered_pot(&self) -> Arc<Pot> {
        let bytes = self.recovered_bytes.swap(0, Ordering::Relaxed);
        Arc::new(Pot::new(Arc::clone(&self.env.blocks), bytes))
    }

    /// Nothing is owed any more.
    pub(crate) fn disown_all(&self) {
        drop((self.pot(), self.recovered_pot()));
    }
}
