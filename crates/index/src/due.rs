//! What should begin now: from the sizes of memtable, spill runs and levels, and what is under way.

use esker_format::meta::{IndexMeta, LevelMeta};
use esker_substrate::sync::atomic::Ordering;

use super::removed;
use super::{Index, Work};
use crate::fdtree::prepare::{self, Balance};
use crate::fdtree::shape::{self, Sizes};

/// The share of a memtable's memory that is payload, until a memtable has shown it.
const PAYLOAD_SHARE: (u64, u64) = (1, 2);
/// The memory that the measured share refers to.
const PAYLOAD_UNIT_BYTES: u64 = 1 << 16;
/// The memtable is frozen when this share of its memory is in use: the rest takes what is written
/// until the frozen part begins to give memory back.
const FREEZE_SHARE: (u64, u64) = (7, 8);
/// Full memtables that may be written out while a merge runs, if t is less.
const SPILLS_WHILE_MERGING: u64 = 8;
/// Spill runs beyond t that may stand if they are so small that together they are within its size.
const SMALL_RUNS: usize = 4;

impl Index {
    /// Whether the memtable should be frozen: most of its memory is in use, or it refers to much.
    pub fn is_full(&self) -> bool {
        if self.refers_to_much() {
            return true;
        }
        let max = self.memtable_bytes_max();
        // What waits until its memory comes back must not be frozen in crumbs.
        let active = self.active_memory_bytes();
        active > max / 8 && self.memtable_memory_bytes() >= max / FREEZE_SHARE.1 * FREEZE_SHARE.0
    }

    /// Memory that may still be written before the memtable is full, in bytes.
    pub(super) fn memtable_bytes_until_full(&self) -> u64 {
        let full = self.memtable_bytes_max() / FREEZE_SHARE.1 * FREEZE_SHARE.0;
        full.saturating_sub(self.memtable_memory_bytes())
    }

    /// What should begin now, if nothing stands in its way.
    pub fn due(&self) -> Option<Work> {
        let durable = self.meta();
        if self.is_full() && !self.is_spilling() {
            return self.flush_work();
        }
        if self.is_merging() || self.is_spilling() {
            return None;
        }
        if durable.lsm.is_some() {
            return self.lsm_due(&durable);
        }
        if spills_are_due(&durable) {
            return Some(Work::Merge { full: false, with_memtable: false });
        }
        // What was kept for a snapshot can go when the snapshot has gone.
        let kept = *self.kept.lock();
        let still_kept = kept.oldest_snapshot == self.env.snapshots.oldest();
        let (kept, kept_removals) =
            if still_kept { (kept.count, kept.removals) } else { Default::default() };
        if self.removals() >= kept_removals + removed::MERGE_REMOVALS {
            let with_memtable = self.memtable_entries() > 0 && !self.spills_first();
            return Some(Work::Merge { full: true, with_memtable });
        }
        if !self.scheme.tightens() {
            // I6 is not kept.
            return None;
        }
        let underflows = |balance| prepare::underflows(&balance, self.kappa0_bytes(), kept);
        // The memtable's tombstones count where it takes part; else they wait until they are
        // written out.
        let with_memtable = self.memtable_entries() > 0 && !self.spills_first();
        let balance = if with_memtable { self.balance() } else { *self.flushed.lock() };
        underflows(balance).then_some(Work::Merge { full: true, with_memtable })
    }

    /// How the memtable is best written out now; `None` when it has to wait.
    pub fn flush_work(&self) -> Option<Work> {
        if self.is_spilling() {
            return None;
        }
        let durable = self.meta();
        if durable.lsm.is_some() {
            return self.lsm_flush_work();
        }
        if self.is_merging() {
            return (self.spill_room(&durable) > 0).then_some(Work::Spill);
        }
        if durable.spills.len() < usize::from(durable.shape.t) {
            return Some(Work::Spill);
        }
        if durable.spills.len() as u64 > SPILLS_WHILE_MERGING + u64::from(durable.shape.t) {
            // Crash upon crash has kept merges from being done: no more runs before one is.
            return Some(Work::Merge { full: false, with_memtable: false });
        }
        let direct = Work::Merge { full: false, with_memtable: true };
        Some(if self.merges_directly(&durable) { direct } else { Work::Spill })
    }

    /// Whether the memtable is spilled before the next merge, rather than taking part in it.
    pub fn spills_first(&self) -> bool {
        !self.merges_directly(&self.meta())
    }

    /// Whether the memtable takes part in the next merge.
    fn merges_directly(&self, durable: &IndexMeta) -> bool {
        if durable.lsm.is_some() {
            return false;
        }
        if self.sizes != Sizes::Cost {
            return true;
        }
        let bytes = data_bytes(&durable.main.levels) + spilled_bytes(durable);
        // A larger merge takes long enough that the log would pile up behind a frozen memtable.
        bytes as f64 <= shape::DIRECT_RATIO_MAX * self.kappa0_bytes() as f64
    }

    /// How many more spill runs may be made while the merge runs.
    fn spill_room(&self, durable: &IndexMeta) -> u64 {
        if self.sizes != Sizes::Cost || self.moves_unrecorded.load(Ordering::Acquire) {
            return 0;
        }
        let consumed = self.consumed_spills.load(Ordering::Relaxed);
        let made = (durable.spills.len() as u64).saturating_sub(consumed);
        // Runs of memtables that were frozen early are smaller: the lead bounds their bytes.
        (2 * spills_while_merging(durable)).saturating_sub(made)
    }

    /// Whether writers should wait for the merge under way: they have used as much of the room
    /// beside it as it has done of its work.
    pub fn is_ahead(&self) -> bool {
        self.is_merging() && self.lead.is_used_up(self.views.load().memtable.counts().data_bytes())
    }

    /// Notes how many of its data entries the merge under way has merged.
    pub(super) fn advance_lead(&self, (done, total): (u64, u64)) {
        if self.sizes != Sizes::Cost || !self.scheme.reclaims() {
            return;
        }
        let kappa0 = self.kappa0_bytes();
        let room_bytes = spills_while_merging(&self.meta()) * kappa0;
        self.lead.advance(room_bytes, kappa0, done, total);
    }

    /// κ0: what a full memtable holds, by what the last one held in its memory. Until there was
    /// one, what the shape was chosen for, or a fixed share.
    pub(super) fn kappa0_bytes(&self) -> u64 {
        let max = self.memtable_bytes_max();
        let full_bytes = max / FREEZE_SHARE.1 * FREEZE_SHARE.0;
        match (self.payload_share.load(Ordering::Relaxed), self.durable.load().shape.kappa0_bytes) {
            (0, 0) => max / PAYLOAD_SHARE.1 * PAYLOAD_SHARE.0,
            (0, known) => known,
            (share, _) => full_bytes.saturating_mul(share) / PAYLOAD_UNIT_BYTES,
        }
    }

    /// Notes which share of its memory a memtable's payload is; for when a spill or merge begins.
    pub(super) fn note_payload_share(&self) {
        let view = self.views.load();
        let (memory, payload) = (view.memtable.memory_bytes(), view.memtable.counts().data_bytes());
        // A crumb tells little.
        if memory > self.memtable_bytes_max() / 2 {
            let share = payload.saturating_mul(PAYLOAD_UNIT_BYTES) / memory.max(1);
            self.payload_share.store(share.max(1), Ordering::Relaxed);
        }
    }

    /// N∆ and N∇ of the whole tree.
    fn balance(&self) -> Balance {
        let counts = self.views.load().memtable.counts();
        let flushed = *self.flushed.lock();
        Balance {
            puts: flushed.puts + counts.puts,
            tombstones: flushed.tombstones + counts.tombstones,
            tombstone_bytes: flushed.tombstone_bytes + counts.tombstone_bytes,
        }
    }
}

/// Memtables that may be written out while a merge runs.
fn spills_while_merging(durable: &IndexMeta) -> u64 {
    SPILLS_WHILE_MERGING.max(u64::from(durable.shape.t) + 1)
}

/// Whether the spill runs should be merged: they, or everything above the bottom, hold what the
/// shape allows.
fn spills_are_due(durable: &IndexMeta) -> bool {
    are_due(durable, durable.spills.len(), spilled_bytes(durable))
}

/// The same with so many spill runs, of so many bytes.
pub(super) fn are_due(durable: &IndexMeta, runs: usize, spilled: u64) -> bool {
    let IndexMeta { shape, main, .. } = durable;
    if runs == 0 {
        return false;
    }
    let is_upper = |level: &&LevelMeta| level.rank < shape::bottom_rank(shape);
    let upper = data_bytes(main.levels.iter().filter(is_upper));
    shape.t == 0
        || spilled >= shape::standing_bytes_max(shape)
        || runs > usize::from(shape.t) + SMALL_RUNS
        || shape::upper_bytes_max(shape).is_some_and(|max| upper + spilled > max)
}

pub(super) fn spilled_bytes(durable: &IndexMeta) -> u64 {
    data_bytes(durable.spills.iter().flat_map(|spill| &spill.levels))
}

pub(super) fn data_bytes<'a>(levels: impl IntoIterator<Item = &'a LevelMeta>) -> u64 {
    levels.into_iter().map(|level| level.counts.data_bytes()).sum()
}
