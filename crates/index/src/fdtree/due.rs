//! The work that is due, from the sizes of memtable, sorted runs and levels and from the work under
//! way; and a forecast of it.

use esker_format::meta::{IndexMeta, LevelMeta};
use esker_substrate::sync::atomic::Ordering;

use super::FdTreeIndex;
use super::prepare::{Incoming, prepare};
use super::shape::{self, Sizes};
use crate::Work;
use crate::upkeep::balance::{self, Balance};
use crate::upkeep::due::{data_bytes, sorted_run_bytes};
use crate::upkeep::forecast::ForecastMerge;

/// Full memtables that may be written out while a merge runs, if t is less.
const FLUSHES_WHILE_MERGING: u64 = 8;
/// Sorted runs beyond t that are allowed if they are so small that all of them together are within
/// its size.
const SMALL_RUNS: usize = 4;

impl FdTreeIndex<'_> {
    /// The work that should begin when the memtable is not full, and nothing is under way.
    pub(super) fn work_due(&self, durable: &IndexMeta) -> Option<Work> {
        if durable.history.splits_next && self.may_split() {
            return Some(Work::Merge { full: true, with_memtable: false });
        }
        if flushes_are_due(durable) {
            return Some(Work::Merge { full: false, with_memtable: false });
        }
        if let Some(work) = self.removal_work(durable) {
            return Some(work);
        }
        if !self.scheme().tightens() || self.keeps_history() {
            // I6 is not kept.
            return None;
        }
        let underflows =
            |balance| balance::underflows(&balance, self.kappa0_bytes(), self.still_kept().count);
        // The memtable's tombstones count where it takes part; else they wait until it is flushed.
        let with_memtable = self.memtable_entries() > 0 && !self.flushes_first();
        let balance = if with_memtable { self.balance() } else { self.flushed_balance() };
        underflows(balance).then_some(Work::Merge { full: true, with_memtable })
    }

    /// The work that writes the memtable out best when no flush is under way; `None` when it has to
    /// wait.
    pub(super) fn work_of_flush(&self, durable: &IndexMeta) -> Option<Work> {
        if self.is_merging() {
            return (self.flush_room(durable) > 0).then_some(Work::Flush);
        }
        if durable.sorted_runs.len() < usize::from(durable.shape.t) {
            return Some(Work::Flush);
        }
        if durable.sorted_runs.len() as u64 > FLUSHES_WHILE_MERGING + u64::from(durable.shape.t) {
            // Crash upon crash has kept merges from being done: no more runs before one is.
            return Some(Work::Merge { full: false, with_memtable: false });
        }
        let direct = Work::Merge { full: false, with_memtable: true };
        Some(if self.merges_directly(durable) { direct } else { Work::Flush })
    }

    /// Whether the memtable takes part in the next merge.
    pub(super) fn merges_directly(&self, durable: &IndexMeta) -> bool {
        if self.may_split() {
            // A split takes no memtable: readers as of before it need all of it.
            return false;
        }
        if self.tree.sizes != Sizes::Cost {
            return true;
        }
        let bytes = data_bytes(&durable.main.levels) + sorted_run_bytes(durable);
        // A larger merge takes long enough that the log would pile up behind a frozen memtable.
        bytes as f64 <= shape::DIRECT_RATIO_MAX * self.kappa0_bytes() as f64
    }

    /// The number of sorted runs that may still be written while the merge runs.
    fn flush_room(&self, durable: &IndexMeta) -> u64 {
        if self.tree.sizes != Sizes::Cost || self.tree.moves_unrecorded.load(Ordering::Acquire) {
            return 0;
        }
        let consumed = self.tree.consumed_runs.load(Ordering::Relaxed);
        let made = (durable.sorted_runs.len() as u64).saturating_sub(consumed);
        // Runs of memtables that were frozen early are smaller: the lead bounds their bytes.
        (2 * flushes_while_merging(durable)).saturating_sub(made)
    }

    /// Whether writers have used as large a share of the space next to the merge as it has done of
    /// its work.
    pub(super) fn is_lead_used_up(&self) -> bool {
        self.tree.lead.is_used_up(self.memtable_counts().data_bytes())
    }

    /// Notes how many of its data entries the merge under way has merged.
    pub(super) fn advance_lead(&self, (done, total): (u64, u64)) {
        if self.tree.sizes != Sizes::Cost || !self.scheme().reclaims() {
            return;
        }
        let kappa0 = self.kappa0_bytes();
        let room_bytes = flushes_while_merging(&self.meta()) * kappa0;
        self.tree.lead.advance(room_bytes, kappa0, done, total);
    }

    /// A merge of all sorted runs and this much of new data.
    pub(super) fn forecast_merge(
        &self,
        durable: &IndexMeta,
        full: bool,
        new_bytes: u64,
    ) -> ForecastMerge {
        let (shape, levels) = (&durable.shape, &durable.main.levels);
        if let Some(merge) = self.history_merge(durable, full) {
            let prepared = self.prepare_history(durable, merge);
            let (levels, full) = (prepared.levels, prepared.full);
            return ForecastMerge { levels, full, input_bytes: prepared.plan.data_bytes };
        }
        let new = Incoming { data_bytes: new_bytes, entries: 0 };
        let incoming = Incoming::of(&durable.sorted_runs).and(new);
        let room = self.fence_room();
        let prepared = prepare(shape, levels, incoming, full, room, self.tree.sizes, self.codec());
        let merged = levels.get(..prepared.levels).unwrap_or_default();
        ForecastMerge {
            levels: prepared.levels,
            full: prepared.full,
            input_bytes: data_bytes(merged).saturating_add(incoming.data_bytes),
        }
    }

    /// N∆ and N∇ of the whole tree.
    fn balance(&self) -> Balance {
        let counts = self.memtable_counts();
        let flushed = self.flushed_balance();
        Balance {
            puts: flushed.puts + counts.puts,
            tombstones: flushed.tombstones + counts.tombstones,
            tombstone_bytes: flushed.tombstone_bytes + counts.tombstone_bytes,
        }
    }
}

/// Memtables that may be written out while a merge runs.
fn flushes_while_merging(durable: &IndexMeta) -> u64 {
    FLUSHES_WHILE_MERGING.max(u64::from(durable.shape.t) + 1)
}

/// Whether the sorted runs should be merged: they, or everything above the bottom, hold what the
/// shape allows.
fn flushes_are_due(durable: &IndexMeta) -> bool {
    are_due(durable, durable.sorted_runs.len(), sorted_run_bytes(durable))
}

/// Whether a merge is due after one more run of `bytes` bytes.
pub(super) fn is_due_behind(durable: &IndexMeta, bytes: u64) -> bool {
    are_due(durable, durable.sorted_runs.len() + 1, sorted_run_bytes(durable).saturating_add(bytes))
}

/// The same with `runs` sorted runs of `flushed` bytes together.
fn are_due(durable: &IndexMeta, runs: usize, flushed: u64) -> bool {
    let IndexMeta { shape, main, .. } = durable;
    if runs == 0 {
        return false;
    }
    let is_upper = |level: &&LevelMeta| level.rank < shape::bottom_rank(shape);
    let upper = data_bytes(main.levels.iter().filter(is_upper));
    shape.t == 0
        || flushed >= shape::standing_bytes_max(shape)
        || runs > usize::from(shape.t) + SMALL_RUNS
        || shape::upper_bytes_max(shape).is_some_and(|max| upper + flushed > max)
}
