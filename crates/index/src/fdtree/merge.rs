//! An FD+tree's merge: prepare → (stage → insert → publish → record → delete)* → finalize.
//!
//! At some of the loop's publish points a record of the progress is made durable: new blocks
//! written → data synced → log synced up to what the new side holds → record synced → old space
//! reusable. A crash resumes from the record.

use std::sync::Arc;

use esker_format::ids::Seq;
use esker_format::meta::{IndexMeta, LevelMeta, MergeProgress, MergeScope, PastIndex, TreeMeta};
use esker_format::ptr::{Extent, UNIT_BYTES};
use esker_substrate::blocks::Reservation;
use esker_substrate::error::{Error, Result};
use esker_substrate::planted::{self, Bug};
use esker_substrate::sync::atomic::Ordering;

use super::{FdTreeIndex, finalize, shape};
use crate::Commit;
use crate::kind::context::KindContext;
use crate::merge::delete;
use crate::merge::{Inputs, Merge, Outcome, Phase, Step};
use crate::record::Change;
use crate::run::tree::{LevelFences, Tree};
use crate::upkeep::fence_room::FenceRoom;
use crate::upkeep::values::Moved;

/// A merge of levels under way.
#[derive(Debug)]
pub(super) struct LevelMerge {
    pub merge: Merge,
    /// It was resumed and has nothing reserved yet.
    pub lacks_room: bool,
    /// All levels are to be merged, in a scheme that does not take them at once.
    pub to_bottom: bool,
    /// Bytes of data blocks at the last record.
    recorded_bytes: u64,
    /// Bytes of all blocks when it was last recorded, or could not be.
    tried_bytes: u64,
    /// The oldest snapshot when it began: the tombstones that stay are kept for it.
    oldest_snapshot: Option<Seq>,
    /// Removals up to this number hide nothing any more when it is done.
    retired: Seq,
    /// The space that was reserved when it began, in bytes.
    room_bytes: u64,
}

impl LevelMerge {
    pub fn new(merge: Merge, to_bottom: bool, oldest_snapshot: Option<Seq>, retired: Seq) -> Self {
        let recorded_bytes = merge.insert.data_bytes();
        let (lacks_room, tried_bytes) = (false, merge.insert.all_bytes());
        let room_bytes = merge.reservation.as_ref().map_or(0, |room| room.units() * UNIT_BYTES);
        Self {
            merge,
            lacks_room,
            to_bottom,
            recorded_bytes,
            tried_bytes,
            oldest_snapshot,
            retired,
            room_bytes,
        }
    }

    /// Moves groups up to the next publish point, or completes the merge.
    pub fn step(&mut self, index: &FdTreeIndex<'_>, commit: &mut Commit<'_>) -> Result<Step> {
        loop {
            if self.merge.move_on(index.index())? == Step::More {
                index.advance_lead(self.merge.stage.done());
                self.merge.go_on(index.index())?;
                self.use_room();
                self.record_if_due(index, commit)?;
                return Ok(Step::More);
            }
            if self.merge.phase == Phase::Committing || !self.descend(index) {
                break;
            }
        }
        let Self { oldest_snapshot, retired, .. } = *self;
        let scope = self.merge.inputs.scope;
        let merged = scope.splits_at().unwrap_or(self.merge.inputs.frozen.1);
        let levels = Levels { index, scope, oldest_snapshot, retired, merged };
        self.merge.commit(index.index(), commit, &levels)?;
        Ok(Step::Done)
    }

    /// Space has been reserved, when `written_bytes` were written.
    pub fn note_room(&mut self, written_bytes: u64, room: &Reservation) {
        self.room_bytes = written_bytes + room.units() * UNIT_BYTES;
    }

    /// Gives back what a split has written of the space that it reserved for all of it.
    fn use_room(&mut self) {
        let least_bytes = 2 * self.merge.pace.record_bytes;
        if self.merge.inputs.scope.splits_at().is_some()
            && let Some(room) = &mut self.merge.reservation
        {
            let left = self.room_bytes.saturating_sub(self.merge.insert.all_bytes());
            room.reduce_to(left.max(least_bytes).div_ceil(UNIT_BYTES));
        }
    }

    /// Makes the progress durable when enough has been done, or when space is short.
    fn record_if_due(&mut self, index: &FdTreeIndex<'_>, commit: &mut Commit<'_>) -> Result<()> {
        if !self.merge.scheme.reclaims() {
            return Ok(());
        }
        let written = self.merge.insert.data_bytes().saturating_sub(self.recorded_bytes);
        let enough = written >= self.merge.pace.record_bytes;
        let all_bytes = self.merge.insert.all_bytes();
        let untried_bytes = all_bytes.saturating_sub(self.tried_bytes);
        if !enough && !self.merge.is_short_of_room(index.index(), untried_bytes) {
            return Ok(());
        }
        self.tried_bytes = all_bytes;
        match self.record(index, commit) {
            // No space for the record: the merge continues without it as long as it can.
            Err(Error::Full { .. }) => Ok(()),
            result => result,
        }
    }

    fn record(&mut self, index: &FdTreeIndex<'_>, commit: &mut Commit<'_>) -> Result<()> {
        let wavefront = self.merge.moving.wavefront.clone().unwrap_or_default();
        let positions = self
            .merge
            .stage
            .positions(self.merge.moving.levels(self.merge.inputs.levels), &wavefront);
        let mut progress = MergeProgress {
            frozen: self.merge.inputs.frozen,
            wavefront: wavefront.to_vec(),
            scope: self.merge.inputs.scope,
            levels: self.merge.inputs.levels as u8,
            sorted_runs: self.merge.inputs.sorted_runs as u8,
            shape: self.merge.inputs.shape,
            inputs: positions.iter().map(|position| position.done).collect(),
            ..MergeProgress::default()
        };
        self.merge.insert.progress(&mut progress);
        let needed = positions.iter().map(|position| position.needed_from).collect();
        let mut passed = Passed { merge: &mut self.merge, progress, needed };
        let skip: &mut Commit<'_> = &mut |_, _| Ok(());
        let commit = if planted::is(Bug::ReclaimBeforeRecord) { skip } else { commit };
        index.record(&mut passed, commit)?;
        index.tree.moves_unrecorded.store(false, Ordering::Release);
        self.recorded_bytes = self.merge.insert.data_bytes();
        Ok(())
    }
}

/// The part of a merge's inputs that it has passed.
struct Passed<'a> {
    merge: &'a mut Merge,
    progress: MergeProgress,
    /// Of each input, where the part begins that is still needed.
    needed: Vec<Option<u64>>,
}

impl Change for Passed<'_> {
    fn apply(&mut self, durable: &IndexMeta) -> (IndexMeta, Vec<Extent>) {
        let mut meta = durable.clone();
        meta.merge = Some(Box::new(self.progress.clone()));
        if self.progress.scope.splits_at().is_some() && !planted::is(Bug::SplitFreesInputs) {
            return (meta, Vec::new());
        }
        let kept = self.merge.insert.kept();
        let passed = free_passed(&mut meta, &self.merge.inputs, &self.needed, &kept);
        (meta, passed)
    }

    fn values(&mut self) -> &mut Moved {
        &mut self.merge.values
    }

    fn finish(&mut self, _: KindContext<'_>, _: &IndexMeta) -> Vec<Extent> {
        self.merge.insert.own_kept();
        Vec::new()
    }
}

/// The result of a merge: the main tree's upper levels.
struct Levels<'a> {
    index: &'a FdTreeIndex<'a>,
    scope: MergeScope,
    oldest_snapshot: Option<Seq>,
    retired: Seq,
    /// Everything up to here was merged.
    merged: Seq,
}

impl Outcome for Levels<'_> {
    fn meta(&self, merge: &Merge, durable: &IndexMeta) -> IndexMeta {
        let mut meta = durable.clone();
        meta.main = merge.insert.meta();
        meta.shape = merge.inputs.shape;
        let levels = &mut meta.main.levels;
        let mut tightened = None;
        if self.index.may_split() || self.scope.is_of_history() {
            (meta.history, tightened) = self.index.after(&merge.inputs, durable, levels);
        } else if self.scope.is_full() && merge.scheme.tightens() {
            let data_bytes = levels.iter().map(|level| level.counts.data_bytes()).sum();
            let replaced = replaced_share(durable, merge.inputs.sorted_runs, data_bytes);
            let kappa0_bytes = merge.inputs.shape.kappa0_bytes;
            let room = FenceRoom { kappa0_bytes, ..self.index.fence_room() };
            tightened = Some(self.index.tree.sizes.choose(data_bytes, room, replaced));
        }
        meta.history.splits_next &= !self.scope.is_full();
        if let Some(shape) = tightened {
            // Tightening (Eq. 4.3): the result may be smaller than its bound was.
            meta.shape = shape;
            finalize::renumber(levels, shape::bottom_rank(&shape));
        }
        meta.main.levels.extend_from_slice(&merge.inputs.below);
        meta.sorted_runs.truncate(meta.sorted_runs.len().saturating_sub(merge.inputs.sorted_runs));
        meta.flushed_seq = meta.flushed_seq.max(merge.inputs.frozen.1);
        meta.merges += 1;
        meta.merge = None;
        meta
    }

    fn past(&self, merge: &Merge, durable: &IndexMeta) -> Option<PastIndex> {
        self.index.past(&merge.inputs, durable)
    }

    fn retired(&self) -> Seq {
        self.retired
    }

    fn tree(
        &self,
        merge: &Merge,
        _: TreeMeta,
        mut fences: Vec<LevelFences>,
        meta: &IndexMeta,
    ) -> Tree {
        fences.extend(merge.below_fences());
        Tree::written(Arc::new(meta.main.clone()), fences)
    }

    fn note(&self, context: KindContext<'_>, meta: &IndexMeta) {
        self.index.tree.lead.end();
        if self.scope.is_full() {
            let count = meta.main.levels.iter().map(|level| level.counts.tombstones).sum();
            context.note_kept(count, self.merged, self.oldest_snapshot);
        }
    }
}

/// Takes from `meta` the extents of the merged levels that the merge has passed, and those that the
/// new side keeps; returns the former.
fn free_passed(
    meta: &mut IndexMeta,
    inputs: &Inputs,
    needed: &[Option<u64>],
    kept: &[Extent],
) -> Vec<Extent> {
    let mut passed = Vec::new();
    let first = meta.sorted_runs.len().saturating_sub(inputs.sorted_runs);
    let sorted_runs = meta.sorted_runs.get_mut(first..).unwrap_or_default();
    let flushed = sorted_runs.iter_mut().flat_map(|flush| &mut flush.levels);
    let levels = flushed.chain(meta.main.levels.iter_mut().take(inputs.levels));
    for (level, needed) in levels.zip(needed) {
        if let Some(offset) = needed {
            let (gone, rest) = delete::split(&level.extents, *offset);
            let kept_from_reuse = if planted::is(Bug::KeptFreed) { &[] } else { kept };
            passed.extend(delete::without(&gone, kept_from_reuse));
            level.extents = delete::without(&rest, kept);
        }
    }
    passed
}

/// The share of what came since the last full merge that this one, which left `result_bytes`, has
/// shown to replace or delete something.
fn replaced_share(durable: &IndexMeta, sorted_runs: usize, result_bytes: u64) -> f64 {
    let bytes = |level: &LevelMeta| level.counts.data_bytes();
    let runs = durable.oldest_runs(sorted_runs);
    let flushed: u64 = runs.iter().flat_map(|run| &run.levels).map(bytes).sum();
    let bottom_rank = shape::bottom_rank(&durable.shape);
    let (old, upper): (Vec<_>, Vec<_>) =
        durable.main.levels.iter().partition(|level| level.rank == bottom_rank);
    let old_bytes = old.into_iter().map(bytes).sum();
    let upper_bytes: u64 = upper.into_iter().map(bytes).sum();
    shape::replaced_share(old_bytes, upper_bytes + flushed, result_bytes)
}
