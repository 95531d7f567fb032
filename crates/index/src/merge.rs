//! The merge loop: prepare → (stage → insert → publish → record → delete)* → finalize.
//!
//! One loop serves all schemes and spills too: a spill merges a frozen memtable with nothing. It
//! runs in steps. A step moves whole groups (all versions of a user key and the fences at it) and
//! ends at a publish point, with a view whose wavefront is the last group's key. At some of these
//! a record of the progress is made durable: new blocks written → data synced → log synced up to
//! what the new side holds → record synced → old space reusable. A crash resumes from the record.
//!
//! Invariant L1: a step that fails (an unreadable block, no room) leaves the merge as it was and
//! may be repeated; readers see the last publish point. Only a failed write ends it, and poisons.
//! Invariant L2: between steps the merge stands between two groups or is complete.

mod descend;
pub(super) mod group;
mod held;

use std::sync::Arc;

use esker_format::entry::Payload;
use esker_format::ids::Seq;
use esker_format::meta::{IndexMeta, LevelMeta, MergeProgress, Shape, TreeMeta};
use esker_format::ptr::Extent;
use esker_substrate::blocks::Reservation;
use esker_substrate::error::{Error, Result};
use esker_substrate::planted::{self, Bug, Race};
use esker_substrate::sync::atomic::Ordering;

use super::fence_index::FenceIndex;
use super::gone::Gone;
use super::insert::{Insert, Plan};
use super::removed::Removed;
use super::scheme::{Pace, Scheme};
use super::stage::{Next, Stage};
use super::tree::{LevelFences, Tree};
use super::values::Moved;
use super::versions::Keep;
use super::view::{Moving, Which};
use super::{Commit, Index, delete, fault};
use crate::fdtree::finalize;
use crate::fdtree::shape::{self, Sizes};
use group::{Group, out_of_order};

/// A spill or merge under way.
pub struct Merge {
    which: Which,
    scheme: Scheme,
    pace: Pace,
    stage: Stage,
    insert: Insert,
    plan: Plan,
    /// What is merged, for the records.
    inputs: Inputs,
    /// All levels are to be merged, in a scheme that does not take them at once.
    to_bottom: bool,
    /// What readers see of it.
    moving: Moving,
    group: Group,
    /// The merge stands between two groups: which versions must stay is asked anew.
    between_groups: bool,
    phase: Phase,
    /// References to values since the last record.
    values: Moved,
    /// Bytes of data blocks at the last record.
    recorded_bytes: u64,
    /// Extents that only views of the unfinished merge lead to.
    leftover: Vec<Extent>,
    /// The oldest snapshot when it began: the tombstones that stay are kept for it.
    oldest_snapshot: Option<Seq>,
    /// Ranges of keys that were removed by then.
    removed: Removed,
    /// Removals up to this number hide nothing any more when it is done.
    retired: Seq,
    /// Room that nobody else may take.
    _reservation: Option<Reservation>,
}

/// What a merge replaces.
#[derive(Clone, Debug, Default)]
pub(super) struct Inputs {
    /// Levels of the main tree, from the top.
    pub levels: usize,
    /// Spill runs, the oldest ones.
    pub spills: usize,
    /// Everything is merged: tombstones go.
    pub full: bool,
    /// Numbers of the frozen memtable's operations: after the first, up to the second.
    pub frozen: (Seq, Seq),
    /// Level sizes in force when it is done.
    pub shape: Shape,
    /// The levels below the merge, and their fences as far as they are in memory. Readers of both
    /// sides need all of them.
    pub below: Vec<LevelMeta>,
    pub below_fences: Vec<Option<Arc<FenceIndex>>>,
    /// Keys that a run of an LSM index does not reach to: they are gone of it from the beginning.
    pub outside: Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Groups are moved.
    Moving,
    /// All groups have been moved; the last blocks are written.
    Closing,
    /// Everything is written; the record is not durable.
    Committing,
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There was nothing to do.
    Idle,
    /// There is more to do.
    More,
    /// The spill or merge is complete and durable.
    Done,
}

/// What a merge begins with.
pub(super) struct Start {
    pub which: Which,
    pub scheme: Scheme,
    pub pace: Pace,
    pub stage: Stage,
    pub insert: Insert,
    pub plan: Plan,
    pub inputs: Inputs,
    pub to_bottom: bool,
    pub moving: Moving,
    pub oldest_snapshot: Option<Seq>,
    pub removed: Removed,
    pub retired: Seq,
    pub reservation: Option<Reservation>,
}

impl std::fmt::Debug for Merge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Merge").field("which", &self.which).finish_non_exhaustive()
    }
}

impl Merge {
    pub(super) fn new(start: Start) -> Self {
        let recorded_bytes = start.insert.data_bytes();
        Self {
            which: start.which,
            scheme: start.scheme,
            pace: start.pace,
            stage: start.stage,
            insert: start.insert,
            plan: start.plan,
            inputs: start.inputs,
            to_bottom: start.to_bottom,
            moving: start.moving,
            group: Group::none(),
            between_groups: true,
            phase: Phase::Moving,
            values: Moved::default(),
            recorded_bytes,
            leftover: Vec::new(),
            oldest_snapshot: start.oldest_snapshot,
            removed: start.removed,
            retired: start.retired,
            _reservation: start.reservation,
        }
    }

    /// All extents that the new side has taken, those that will not be part of it included.
    pub(super) fn taken(&self) -> impl Iterator<Item = Extent> {
        self.insert.taken().chain(self.leftover.iter().copied())
    }

    /// Lets go of everything without giving extents back: they are the caller's.
    pub(super) fn forget(mut self) {
        self.insert.forget();
    }

    /// Moves groups up to the next publish point, or completes the merge.
    pub(super) fn step(&mut self, tree: &Index, commit: &mut Commit<'_>) -> Result<Step> {
        loop {
            if self.move_on(tree, commit)? == Step::More {
                return Ok(Step::More);
            }
            if self.phase == Phase::Committing || !self.descend(tree) {
                break;
            }
        }
        self.phase = Phase::Committing;
        self.commit(tree, commit)?;
        Ok(Step::Done)
    }

    /// Moves groups up to the next publish point, or to the end: then everything is written.
    fn move_on(&mut self, tree: &Index, commit: &mut Commit<'_>) -> Result<Step> {
        if self.phase == Phase::Moving {
            if std::mem::take(&mut self.between_groups) {
                let mut points = tree.env.snapshots.live();
                if planted::is(Bug::SnapshotBlocksReused) {
                    points.numbers.truncate(1);
                }
                self.group.keep = Keep::new(points.numbers);
                self.group.horizon = points.horizon;
                self.group.operator = tree.operator();
            }
            if self.move_groups(tree)? {
                self.publish(tree)?;
                self.between_groups = true;
                self.record_if_due(tree, commit)?;
                return Ok(Step::More);
            }
            self.stage.verify_complete()?;
            self.phase = Phase::Closing;
        }
        if self.phase == Phase::Closing {
            tree.env.faults.hit(match self.which {
                Which::Spill => fault::SPILL_FINISH,
                Which::Merge => fault::MERGE_FINISH,
            })?;
            self.insert.finish()?;
            self.insert.conclude(&self.plan, &mut self.leftover)?;
        }
        Ok(Step::Done)
    }

    /// Moves groups until a publish point is due: true; or until none is left: false.
    fn move_groups(&mut self, tree: &Index) -> Result<bool> {
        let unit_bytes = self.scheme.publish_bytes(&self.pace);
        loop {
            match self.stage.choose()? {
                Next::Nothing => {
                    self.group.close(&mut self.insert, self.inputs.full)?;
                    return Ok(false);
                }
                Next::Block if self.keep_block()? => return Ok(true),
                Next::Block => continue,
                Next::Item => {}
            }
            let Some(item) = self.stage.item()? else { return Err(lost_place()) };
            if self.group.ends_before(item.key, item.seq)? {
                self.group.close(&mut self.insert, self.inputs.full)?;
                // Closing the open block makes the unit full.
                let full = self.insert.unpublished_bytes() + unit_bytes / 32 >= unit_bytes;
                // The item stays where it is: the next step begins with it.
                if full && self.moving.wavefront.as_deref() != self.group.key.as_deref() {
                    return Ok(true);
                }
                self.group.begin(item.key, &self.removed);
                if self.scheme == Scheme::FcTuple {
                    let moving = self.moving.clone();
                    tree.views.publish(|view| view.with_moving(moving));
                }
            }
            let full = self.inputs.full;
            let (seq, payload) = (item.seq, &item.payload);
            let stays = self.group.place(&mut self.insert, item.key, seq, payload, full)?;
            if let Payload::Reference(content) = payload {
                let (after, up_to) = self.inputs.frozen;
                self.values.note(content, stays, after < seq && seq <= up_to);
            }
            self.stage.leave();
        }
    }

    /// Takes a block of the bottom over as it is; true at the end of a run of such blocks.
    fn keep_block(&mut self) -> Result<bool> {
        let Some(block) = self.stage.kept() else { return Err(lost_place()) };
        if self.group.key.as_deref().is_some_and(|group| group >= block.fence.key) {
            return Err(out_of_order());
        }
        self.group.close(&mut self.insert, self.inputs.full)?;
        self.insert.keep(&block)?;
        let is_end = block.run_end.is_some();
        if let Some(last_key) = block.run_end {
            self.group.begin(last_key, &self.removed);
            self.group.last = (Seq::SETTLED, false);
        }
        self.stage.leave_kept();
        Ok(is_end)
    }

    /// Lets readers have what was written.
    fn publish(&mut self, tree: &Index) -> Result<()> {
        self.insert.close_unit()?;
        if !planted::is(Race::ViewBeforeBlocks) {
            self.insert.flush()?;
        }
        let mut wavefront: Arc<[u8]> = self.group.key.as_deref().unwrap_or_default().into();
        if planted::is(Race::WavefrontTooFar)
            && let Some(next) = self.stage.item()?
        {
            wavefront = next.key.into();
        }
        self.moving.new = Arc::new(self.growing_tree());
        if self.scheme.shares_memory()
            && let Some(frozen) = &self.moving.frozen
        {
            let rest = Arc::new(frozen.behind(&wavefront));
            if planted::is(Race::FrozenDrainedInPlace) {
                // A list for all views: those with the old wavefront lose the entries too.
                let mut drained = self.moving.clone();
                drained.set_frozen(Some(Arc::clone(&rest)));
                tree.views.publish(|view| view.with_moving(drained));
            }
            self.moving.set_frozen(Some(rest));
        }
        let main = self.moving.inputs.len().saturating_sub(1);
        for (number, input) in self.moving.inputs.iter_mut().enumerate() {
            let levels = if number == main { self.inputs.levels } else { input.height() };
            if let Some(trimmed) = input.trimmed(levels, &wavefront) {
                *input = Arc::new(trimmed);
            }
        }
        self.moving.wavefront = Some(wavefront);
        self.moving.stats.written_bytes = self.insert.level_bytes();
        let moving = self.moving.clone();
        tree.views.publish(|view| view.with_moving(moving));
        if planted::is(Race::ViewBeforeBlocks) {
            self.insert.flush()?;
        }
        tree.count_memory();
        if self.which == Which::Merge {
            tree.advance_lead(self.stage.done());
        }
        tree.views.collect(&tree.env.blocks)
    }

    /// The new side as a tree, with the levels below it.
    fn growing_tree(&self) -> Tree {
        self.insert.tree(&self.inputs.below, self.below_fences())
    }

    fn below_fences(&self) -> Vec<LevelFences> {
        self.inputs.below_fences.iter().cloned().map(LevelFences::of).collect()
    }

    /// Makes the progress durable when enough has been done.
    fn record_if_due(&mut self, tree: &Index, commit: &mut Commit<'_>) -> Result<()> {
        if self.which == Which::Spill || !self.scheme.reclaims() {
            return Ok(());
        }
        let written = self.insert.data_bytes().saturating_sub(self.recorded_bytes);
        if written < self.pace.record_bytes {
            return Ok(());
        }
        match self.record(tree, commit) {
            // No room for the record: the merge goes on without it as long as it can.
            Err(Error::Full { .. }) => Ok(()),
            result => result,
        }
    }

    fn record(&mut self, tree: &Index, commit: &mut Commit<'_>) -> Result<()> {
        let wavefront = self.moving.wavefront.clone().unwrap_or_default();
        let positions = self.stage.positions(self.moving.levels(self.inputs.levels), &wavefront);
        let mut progress = MergeProgress {
            frozen: self.inputs.frozen,
            wavefront: wavefront.to_vec(),
            full: self.inputs.full,
            levels: self.inputs.levels as u8,
            spills: self.inputs.spills as u8,
            shape: self.inputs.shape,
            inputs: positions.iter().map(|position| position.done).collect(),
            ..MergeProgress::default()
        };
        self.insert.progress(&mut progress);
        let recording = tree.recording.lock();
        let mut meta = IndexMeta::clone(&tree.meta());
        meta.merge = Some(Box::new(progress));
        meta.removed = tree.removed_for_record(&meta, Seq(0));
        let needed: Vec<_> = positions.iter().map(|position| position.needed_from).collect();
        let mut passed = give_up_passed(&mut meta, &self.inputs, &needed, &self.insert.kept());
        if !planted::is(Bug::ReclaimBeforeRecord) {
            tree.make_durable(&meta, &self.values.recorded(), commit)?;
        }
        tree.durable.swap(Arc::new(meta));
        passed.extend(tree.settle_values(&mut self.values)?);
        self.insert.own_kept();
        drop(recording);
        tree.moves_unrecorded.store(false, Ordering::Release);
        self.recorded_bytes = self.insert.data_bytes();
        tree.views.quarantine(&tree.env.blocks, passed)?;
        tree.views.collect(&tree.env.blocks)
    }

    /// Makes the result durable and the current one.
    fn commit(&mut self, tree: &Index, commit: &mut Commit<'_>) -> Result<()> {
        let recording = tree.recording.lock();
        let durable = tree.meta();
        let mut meta = match self.which {
            Which::Spill => self.spilled_meta(&durable),
            Which::Merge => self.merged_meta(&durable, tree.sizes),
        };
        let retired = self.retired;
        meta.removed = tree.removed_for_record(&meta, retired);
        let mut replaced = replaced(&durable, &meta);
        if planted::is(Bug::ReclaimBeforeCommit) {
            tree.views.quarantine(&tree.env.blocks, std::mem::take(&mut replaced))?;
            tree.views.collect(&tree.env.blocks)?;
        }
        tree.make_durable(&meta, &self.values.recorded(), commit)?;
        replaced.extend(tree.settle_values(&mut self.values)?);
        if planted::is(Bug::FreedTwice) {
            replaced.extend(meta.extents().next());
        }
        let meta = Arc::new(meta);
        tree.durable.swap(Arc::clone(&meta));
        if self.which == Which::Merge {
            tree.lead.end();
        }
        if planted::is(Race::TaggedTooEarly) {
            tree.views.quarantine(&tree.env.blocks, std::mem::take(&mut replaced))?;
        }
        let (written, fences) = self.insert.take_written();
        let run = self.result(written, fences, &meta);
        let which = self.which;
        let outside = self.inputs.outside.clone();
        tree.views.publish(|view| view.with_result(which, run, outside, retired));
        tree.note_result(&meta, self.which, self.inputs.full, self.oldest_snapshot);
        drop(recording);
        let leftover = std::mem::take(&mut self.leftover);
        let given_up = tree.views.quarantine(&tree.env.blocks, [replaced, leftover].concat());
        tree.count_memory();
        if let Err(error) = given_up.and_then(|()| tree.views.collect(&tree.env.blocks)) {
            // The merge is done and durable all the same.
            tracing::error!(%error, "space could not be given back");
        }
        Ok(())
    }

    /// The tree that came of it.
    fn result(&self, written: TreeMeta, mut fences: Vec<LevelFences>, meta: &IndexMeta) -> Tree {
        if self.which == Which::Spill {
            return Tree::written(Arc::new(written), fences);
        }
        fences.extend(self.below_fences());
        Tree::written(Arc::new(meta.main.clone()), fences)
    }

    fn spilled_meta(&self, durable: &IndexMeta) -> IndexMeta {
        let mut meta = durable.clone();
        meta.flushed_seq = meta.flushed_seq.max(self.inputs.frozen.1);
        meta.spills.insert(0, self.insert.meta());
        if let Some(lsm) = &mut meta.lsm {
            lsm.gone.insert(0, self.inputs.outside.ranges().to_vec());
        }
        meta
    }

    fn merged_meta(&self, durable: &IndexMeta, sizes: Sizes) -> IndexMeta {
        let mut meta = durable.clone();
        meta.main = self.insert.meta();
        meta.shape = self.inputs.shape;
        if self.inputs.full && self.scheme.tightens() {
            // Tightening (Eq. 4.3): the result may be smaller than its bound was.
            let levels = &mut meta.main.levels;
            let data_bytes = levels.iter().map(|level| level.counts.data_bytes()).sum();
            let replaced = replaced_share(durable, self.inputs.spills, data_bytes);
            meta.shape = sizes.choose(data_bytes, self.inputs.shape.kappa0_bytes, replaced);
            finalize::renumber(levels, shape::bottom_rank(&meta.shape));
        }
        meta.main.levels.extend_from_slice(&self.inputs.below);
        meta.spills.truncate(meta.spills.len().saturating_sub(self.inputs.spills));
        meta.flushed_seq = meta.flushed_seq.max(self.inputs.frozen.1);
        meta.merges += 1;
        meta.merge = None;
        meta
    }
}

/// Takes from `meta` the extents of the merged levels that the merge has passed, and those that the
/// new side keeps; answers the former.
fn give_up_passed(
    meta: &mut IndexMeta,
    inputs: &Inputs,
    needed: &[Option<u64>],
    kept: &[Extent],
) -> Vec<Extent> {
    let mut passed = Vec::new();
    let first = meta.spills.len().saturating_sub(inputs.spills);
    let spills = meta.spills.get_mut(first..).unwrap_or_default();
    let spilled = spills.iter_mut().flat_map(|spill| &mut spill.levels);
    let levels = spilled.chain(meta.main.levels.iter_mut().take(inputs.levels));
    for (level, needed) in levels.zip(needed) {
        if let Some(offset) = needed {
            let (gone, rest) = delete::split(&level.extents, *offset);
            let kept_from_reuse = if planted::is(Bug::KeptGivenUp) { &[] } else { kept };
            passed.extend(delete::without(&gone, kept_from_reuse));
            level.extents = delete::without(&rest, kept);
        }
    }
    passed
}

/// The share of what came since the last full merge that this one, which left `result_bytes`, has
/// shown to replace or delete something.
fn replaced_share(durable: &IndexMeta, spills: usize, result_bytes: u64) -> f64 {
    let bytes = |level: &LevelMeta| level.counts.data_bytes();
    let first = durable.spills.len().saturating_sub(spills);
    let runs = durable.spills.get(first..).unwrap_or_default();
    let spilled: u64 = runs.iter().flat_map(|run| &run.levels).map(bytes).sum();
    let bottom_rank = shape::bottom_rank(&durable.shape);
    let (old, upper): (Vec<_>, Vec<_>) =
        durable.main.levels.iter().partition(|level| level.rank == bottom_rank);
    let old_bytes = old.into_iter().map(bytes).sum();
    let upper_bytes: u64 = upper.into_iter().map(bytes).sum();
    shape::replaced_share(old_bytes, upper_bytes + spilled, result_bytes)
}

/// What `new` does not name of the old side that `old` named.
fn replaced(old: &IndexMeta, new: &IndexMeta) -> Vec<Extent> {
    let spills = old.spills.iter().flat_map(TreeMeta::extents);
    let old: Vec<_> = old.main.extents().chain(spills).copied().collect();
    delete::without(&old, &new.extents().copied().collect::<Vec<_>>())
}

fn lost_place() -> Error {
    Error::Invalid { what: "a merge lost its place".into() }
}
