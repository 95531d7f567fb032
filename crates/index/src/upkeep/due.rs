//! The work that should begin now, from the size of the memtable and the work under way; the index
//! kind decides the rest.

use esker_format::meta::{IndexMeta, LevelMeta};
use esker_substrate::sync::atomic::Ordering;

use crate::{Index, Work};

/// The share of a memtable's memory that is payload, until a memtable has shown it.
const PAYLOAD_SHARE: (u64, u64) = (1, 2);
/// The memory that the measured share refers to.
const PAYLOAD_UNIT_BYTES: u64 = 1 << 16;
/// The memtable is frozen when this share of its memory is in use: the rest is for new writes until
/// the frozen part begins to free memory.
const FREEZE_SHARE: (u64, u64) = (7, 8);

impl Index {
    /// Whether the memtable should be frozen: most of its memory is in use, or it refers to much.
    pub fn is_full(&self) -> bool {
        if self.refers_to_much() {
            return true;
        }
        let max = self.memtable_bytes_max();
        // A memtable that waits until its memory is freed must not be frozen in small parts.
        let active = self.active_memory_bytes();
        active > max / 8 && self.memtable_memory_bytes() >= max / FREEZE_SHARE.1 * FREEZE_SHARE.0
    }

    /// Memory that may still be written before the memtable is full, in bytes.
    pub(crate) fn memtable_bytes_until_full(&self) -> u64 {
        let full = self.memtable_bytes_max() / FREEZE_SHARE.1 * FREEZE_SHARE.0;
        full.saturating_sub(self.memtable_memory_bytes())
    }

    /// The work that should begin now, unless something prevents it.
    pub fn due(&self) -> Option<Work> {
        let durable = self.meta();
        if self.is_full() && !self.is_flushing() {
            return self.flush_work();
        }
        if self.is_merging() || self.is_flushing() {
            return None;
        }
        self.kind.due(self.context(), &durable)
    }

    /// Whether scans have paid for a merge that nothing else makes due. Every batch of a scan asks.
    pub fn is_due_for_scans(&self) -> bool {
        self.heat.is_due()
    }

    /// The work that writes the memtable out best now; `None` when it has to wait.
    pub fn flush_work(&self) -> Option<Work> {
        if self.is_flushing() {
            return None;
        }
        self.kind.flush_work(self.context(), &self.meta())
    }

    /// Whether the memtable is flushed before the next merge, rather than taking part in it.
    pub fn flushes_first(&self) -> bool {
        self.kind.flushes_first(self.context(), &self.meta())
    }

    /// Whether writers should wait for the merge under way: they have used as large a share of the
    /// space for concurrent writes as the merge has done of its work.
    pub fn is_ahead(&self) -> bool {
        self.is_merging() && self.kind.is_ahead(self.context())
    }

    /// κ0: the payload of a full memtable, estimated from the last one. Before the first one, the
    /// value for which the shape was chosen, or a fixed share.
    pub(crate) fn kappa0_bytes(&self) -> u64 {
        let max = self.memtable_bytes_max();
        let full_bytes = max / FREEZE_SHARE.1 * FREEZE_SHARE.0;
        match (self.payload_share.load(Ordering::Relaxed), self.durable.load().shape.kappa0_bytes) {
            (0, 0) => max / PAYLOAD_SHARE.1 * PAYLOAD_SHARE.0,
            (0, known) => known,
            (share, _) => full_bytes.saturating_mul(share) / PAYLOAD_UNIT_BYTES,
        }
    }

    /// Notes which share of its memory a memtable's payload is; for when a flush or merge begins.
    pub(crate) fn note_payload_share(&self) {
        let view = self.views.load();
        let (memory, payload) = (view.memtable.memory_bytes(), view.memtable.counts().data_bytes());
        // A small memtable gives no good estimate.
        if memory > self.memtable_bytes_max() / 2 {
            let share = payload.saturating_mul(PAYLOAD_UNIT_BYTES) / memory.max(1);
            self.payload_share.store(share.max(1), Ordering::Relaxed);
        }
    }
}

pub(crate) fn sorted_run_bytes(durable: &IndexMeta) -> u64 {
    data_bytes(durable.sorted_runs.iter().flat_map(|flush| &flush.levels))
}

pub(crate) fn data_bytes<'a>(levels: impl IntoIterator<Item = &'a LevelMeta>) -> u64 {
    levels.into_iter().map(|level| level.counts.data_bytes()).sum()
}
