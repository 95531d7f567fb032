//! The LSM index: levels whose blocks may be anywhere in the data file (scattered blocks), merged
//! one key range (a *slice*) at a time (Thonangi's thesis, chapter 5).
//!
//! Reading order: [`policy`] (which part of a level is merged, and how large levels are), `choose`
//! (which keys come next), `input` and `output` (the sides of a merge), `walk` (what happens to
//! each block), `unchanged_block` (blocks that would be written again as they are),
//! `yield_to_writers` (writers go first), `slice` (the merge itself, block-preserving), `nodes`
//! (the index over a level's blocks), `state` (what a slice begins with), `layout` (where new
//! levels go), `fill_factor` (the empty share of a level, and the limit up to which a block
//! stays), `repack` (packing levels of which too much is empty), `reserve` (slices that would
//! take the reserve), `overwrite_ratio` (the share of incoming data that does not make the index
//! larger), `due_cache` (whether work is due, which every write asks);
//! [`compaction`] has the settings, [`counters`] count what merges cost, and from them `meter` and
//! `learnt` derive thresholds; `kind` is the interface to the index, `invariants` checks what is
//! recorded of levels.
//!
//! Memtables are flushed to sorted runs, as an FD+tree's are. A slice takes the keys of one range
//! out of all runs, and out of the levels that overflow, and merges them into the next level. The
//! keys that a run has lost are noted next to it, and its blocks stay as they are. Slices go round
//! the keys: each takes what has collected for its keys since the last round. A slice is a few
//! megabytes, and durable when it is done: none of it has to be resumed after a crash.
//!
//! Invariant: the versions of a key in a run or level are older than those above it, key by key;
//! only therefore may a lookup stop at the first.
//! Invariant (versions stay together): no user key has versions in two blocks of which one may be
//! moved without the other: slices begin and end between user keys.
//! Invariant: in a run, only keys that have not been consumed are searched for; the space of blocks
//! whose keys have all been consumed may have been reused.

mod choose;
pub mod compaction;
pub mod counters;
mod due_cache;
mod fill_factor;
mod input;
mod invariants;
mod kind;
mod layout;
mod learnt;
mod meter;
mod nodes;
mod output;
mod overwrite_ratio;
pub mod policy;
mod repack;
mod reserve;
mod slice;
mod state;
mod unchanged_block;
mod walk;
mod yield_to_writers;

use std::sync::Arc;

use esker_format::action::KeyRangeBuf;
use esker_format::ids::Seq;
use esker_format::meta::{IndexMeta, LevelMeta, LsmLevel, LsmMeta, SORTED_RUNS_MAX, TreeMeta};
use esker_substrate::error::{Error, Result};

use crate::merge::Step;
use crate::read::source::{Part, Run};
use crate::run::consumed::Consumed;
use crate::run::opener::TreeOpener;
use crate::upkeep::balance::underflows;
use crate::upkeep::due::sorted_run_bytes;
use crate::upkeep::forecast::ForecastMerge;
use crate::{Commit, Work};
use choose::by_policy::{self, Part as PolicyPart};
use choose::pull::{self, Arrivals, Pass, RUNS_AHEAD};
use choose::slice::{Cause, Slice};
pub(super) use compaction::Lsm;
pub use compaction::{Compaction, MergeReport};
use kind::LsmIndex;
use policy::Policy;
use slice::Merged;
use state::State;

/// A job that merges what overflows ends after this many slices, even if more has overflowed
/// meanwhile: a caller that waits for the job must not wait for writers.
const SLICES_MAX: u32 = 256;

/// Slices under way.
#[derive(Debug)]
pub struct Job {
    /// Of everything, down to the last level; how far it is.
    pass: Option<Pass>,
    /// The rest of the part that a policy has chosen.
    part: Option<PolicyPart>,
    /// Removals up to this number hide nothing any more when a full job is done.
    retired: Seq,
    /// Everything up to here was flushed when it began.
    flushed: Seq,
    /// The oldest snapshot when it began: the tombstones that stay are kept for it.
    oldest_snapshot: Option<Seq>,
    /// Why its last slice was merged.
    last: Option<Cause>,
    /// The number of slices it has merged.
    done: u32,
}

/// The parts of a view of an index that has been opened.
fn open_parts(opener: &TreeOpener<'_>, meta: &IndexMeta, lsm: &LsmMeta) -> Vec<Part> {
    let run = |(tree, gone): (&TreeMeta, &Vec<KeyRangeBuf>)| {
        let tree = opener.open(tree);
        Arc::new(Run { tree, consumed: Consumed::new(gone) }) as Part
    };
    let level = |level: &LsmLevel| Run::whole(opener.open_level(&level.tree));
    let runs = meta.sorted_runs.iter().zip(&lsm.gone).map(run);
    runs.chain(lsm.levels.iter().map(level)).collect()
}

/// Whether there is nothing to merge.
fn is_empty(meta: &IndexMeta, lsm: &LsmMeta) -> bool {
    meta.sorted_runs.is_empty() && lsm.levels.iter().all(|level| level.units == 0)
}

/// Whether everything is in the last level, and nothing in it could go.
fn is_fully_compacted(meta: &IndexMeta, lsm: &LsmMeta) -> bool {
    let mut levels = lsm.levels.iter().rev().map(|level| level.tree.levels.last());
    let last = levels.next().flatten();
    let is_clean = |level: &LevelMeta| level.counts.tombstones == 0;
    meta.sorted_runs.is_empty() && last.is_none_or(is_clean) && levels.all(|level| level.is_none())
}

impl LsmIndex<'_> {
    /// Begins slices: of everything, or of what is due. False when there is nothing to merge, and
    /// no range tombstones that a full merge retires.
    pub(super) fn begin_slices(&self, full: bool) -> bool {
        let _one_starts = self.start();
        let mut slot = self.lsm.slices.lock();
        let durable = self.meta();
        let Some(lsm) = durable.lsm() else { return false };
        let retires = full && self.removals() > 0;
        if slot.is_some() || (is_empty(&durable, lsm) && !retires) {
            return false;
        }
        self.note_payload_share();
        let flushed = durable.flushed_seq;
        let (_, retired) = self.removed_for_merge(flushed, full);
        self.set_retiring(retired > Seq(0) && self.removals() > 0);
        let oldest_snapshot = self.snapshots().oldest();
        let pass = full.then(Pass::default);
        *slot =
            Some(Job { pass, part: None, retired, flushed, oldest_snapshot, last: None, done: 0 });
        self.set_merging(true);
        true
    }

    /// Merges the next slice.
    pub(super) fn step_slices(&self, commit: &mut Commit<'_>) -> Result<Step> {
        let mut slot = self.lsm.slices.lock();
        let Some(job) = slot.as_mut() else { return Ok(Step::Idle) };
        let state = self.lsm_state()?;
        // A part that was begun is merged to its end.
        let is_over = job.pass.is_none() && job.part.is_none() && job.done >= SLICES_MAX;
        let next = if is_over { None } else { self.next_slice(&state, job)? };
        let Some(next) = next else {
            self.finish_slices(job, commit)?;
            self.end_job(&mut slot);
            return Ok(Step::Done);
        };
        job.done += 1;
        job.last = Some(next.cause);
        let merged = self.merge_slice(&state, &next, commit);
        if matches!(merged, Ok(Merged::Refused)) {
            if next.packs() {
                self.go_on_unpacked(&state, &next, reserve::refusal())?;
                return Ok(Step::More);
            }
            // A full pass, which is not refused, can begin.
            self.end_job(&mut slot);
            return Err(reserve::refusal());
        }
        if let Err(error) = merged {
            let is_full = matches!(error, Error::Full { .. }) && !next.packs();
            // The space that it had taken has been freed.
            if is_full && self.halve_slices() {
                return Ok(Step::More);
            }
            if is_full && job.pass.is_none() {
                // A full pass can begin: it drops what this job has to keep.
                self.end_job(&mut slot);
                return Err(error);
            }
            self.go_on_unpacked(&state, &next, error)?;
            return Ok(Step::More);
        }
        self.double_slices();
        if let Some(pass) = job.pass.as_mut() {
            pass.advance(&next);
        }
        job.part = job.part.take().and_then(|part| part.after(&next));
        Ok(Step::More)
    }

    fn end_job(&self, slot: &mut Option<Job>) {
        *slot = None;
        self.set_retiring(false);
        self.set_merging(false);
    }

    /// The next slice of a job; `None` when it is done.
    fn next_slice(&self, state: &State, job: &mut Job) -> Result<Option<Slice>> {
        if let Some(pass) = &job.pass {
            return self.slice_of_all(state, pass);
        }
        // A part is merged to its end, and writers that wait do not wait for packing or for scans.
        let waits = job.part.is_some() || self.is_behind(&state.durable, RUNS_AHEAD);
        if !waits
            && !matches!(job.last, Some(Cause::Waste { .. }))
            && let Some(slice) = self.slice_to_pack(state)
        {
            return Ok(Some(slice));
        }
        if !waits
            && job.last != Some(Cause::Scanned)
            && let Some(slice) = self.slice_for_scans(state)?
        {
            return Ok(Some(slice));
        }
        let next = self.slice_of_overflow(state, job)?;
        Ok(next.or_else(|| self.slice_to_pack(state)))
    }

    /// The next slice of what overflows; `None` when nothing does.
    fn slice_of_overflow(&self, state: &State, job: &mut Job) -> Result<Option<Slice>> {
        if self.lsm.compaction.policy == Policy::Pull {
            return self.slice_to_pull(state);
        }
        if job.part.is_none() {
            job.part = self.next_part(state)?;
        }
        job.part.as_ref().map(|part| self.slice_of_part(state, part)).transpose()
    }

    /// Whether something is to be merged.
    pub(super) fn is_slice_due(&self, durable: &Arc<IndexMeta>) -> bool {
        if self.heat().is_due() {
            return true;
        }
        let arrivals = self.arrivals();
        let wastes = || {
            let omega = self.lsm.compaction.params.omega_millionths();
            let packing = self.lsm.packing.lock();
            durable.lsm().is_some_and(|lsm| packing.due(lsm, omega).is_some())
        };
        let work_out = || {
            self.keep_ranges(durable);
            self.overflows(durable, &arrivals) || wastes()
        };
        self.lsm.asked.lock().is_due(durable, &arrivals, work_out)
    }

    /// Whether the runs, or a level, are larger than they may be.
    fn overflows(&self, durable: &IndexMeta, arrivals: &Arrivals) -> bool {
        let merging = &self.lsm.compaction;
        match merging.policy {
            Policy::Pull => pull::is_due(durable, arrivals),
            _ => by_policy::is_due(durable, &merging.params, arrivals.room.kappa0_bytes),
        }
    }

    /// The merge that would begin now. Where nothing overflows, it packs a level: how much of it is
    /// not known before it has looked.
    fn merge_to_come(&self, durable: &IndexMeta, full: bool, new_bytes: u64) -> ForecastMerge {
        let packs = !full && new_bytes == 0 && !self.overflows(durable, &self.arrivals());
        let bytes = if packs { 0 } else { sorted_run_bytes(durable) };
        ForecastMerge { levels: 1, full, input_bytes: bytes.saturating_add(new_bytes) }
    }

    /// Whether writers are that many full memtables ahead of merges.
    fn is_behind(&self, durable: &IndexMeta, memtables: u64) -> bool {
        match self.lsm.compaction.policy {
            Policy::Pull => pull::is_behind(durable, &self.arrivals(), memtables),
            _ => by_policy::is_behind(durable, self.kappa0_bytes(), memtables),
        }
    }

    /// A full job is done: the range tombstones that it applied are dropped; garbage that it has
    /// left is kept for snapshots.
    fn finish_slices(&self, job: &Job, commit: &mut Commit<'_>) -> Result<()> {
        if job.pass.is_none() {
            return Ok(());
        }
        // A snapshot may keep all of them: then there is nothing to record.
        if self.view().removed.count_up_to(job.retired) > 0 {
            self.retire_removals(job.retired, commit)?;
        }
        let count = self.meta().levels().map(|level| level.counts.tombstones).sum();
        self.note_kept(count, job.flushed, job.oldest_snapshot);
        Ok(())
    }

    /// The work that should begin in an LSM index whose memtable is not full.
    pub(super) fn lsm_due(&self, durable: &Arc<IndexMeta>) -> Option<Work> {
        if let Some(work) = self.removal_work(durable) {
            return Some(work);
        }
        let balance = self.flushed_balance();
        let full = underflows(&balance, self.kappa0_bytes(), self.still_kept().count);
        let is_due = full || self.is_slice_due(durable);
        is_due.then_some(Work::Merge { full, with_memtable: false })
    }

    /// The best work of an LSM index with a full memtable.
    pub(super) fn lsm_flush_work(&self, durable: &IndexMeta) -> Option<Work> {
        let is_full = durable.sorted_runs.len() + 2 >= SORTED_RUNS_MAX;
        if !is_full && !self.is_behind(durable, RUNS_AHEAD) {
            return Some(Work::Flush);
        }
        // No more runs until some have been consumed.
        (!self.is_merging()).then_some(Work::Merge { full: is_full, with_memtable: false })
    }
}
