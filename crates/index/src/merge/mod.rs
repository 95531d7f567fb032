//! The merge loop: (stage → insert → publish)* → record.
//!
//! One loop serves all schemes and also flushes: a flush merges a frozen memtable with no other
//! source. It runs in steps. A step moves whole groups (all versions of a user key and the fences
//! at it) and ends at a publish point, with a view whose wavefront is the last group's key. What
//! was written is recorded at the end: new blocks written → data synced → log synced up to what the
//! new side holds → record synced → old space reusable. The `Outcome` decides what the result
//! becomes.
//!
//! Invariant: a step that fails (an unreadable block, no space) leaves the merge as it was and may
//! be repeated; readers see the last publish point. Only a failed write ends the merge, and
//! poisons.
//! Invariant: between steps the merge is between two groups or is complete.

pub mod delete;
pub mod erase;
pub(crate) mod flush;
pub(crate) mod freeze;
pub(crate) mod group;
pub(crate) mod head;
mod held;
pub mod scheme;
pub mod stage;
pub mod window;
use std::sync::Arc;

use esker_format::entry::Payload;
use esker_format::ids::Seq;
use esker_format::meta::{IndexMeta, LevelMeta, MergeScope, PastIndex, Shape, TreeMeta};
use esker_format::ptr::{Extent, UNIT_BYTES};
use esker_substrate::blocks::{Pot, Reservation};
use esker_substrate::error::{Error, Result};
use esker_substrate::planted::{self, Bug, Race};

use crate::build::insert::{Insert, Plan};
use crate::job::BackgroundJob;
use crate::kind::context::KindContext;
use crate::merge::scheme::{Pace, Scheme};
use crate::merge::stage::{Next, Stage};
use crate::read::moving::Moving;
use crate::read::range_tombstones::RangeTombstones;
use crate::record::Change;
use crate::run::consumed::Consumed;
use crate::run::fence_index::FenceIndex;
use crate::run::tree::{LevelFences, Tree};
use crate::upkeep::values::Moved;
use crate::{Commit, Index, fault};
use group::{Group, out_of_order};

/// A publish point leaves at most this share of what it publishes empty, in addition to what blocks
/// leave empty in any case. Where no group ends in such a place, it comes anywhere when this many
/// times as much has been written as otherwise.
const WASTE_SHARE: u64 = 16;
const LATE_TIMES: u64 = 4;

/// A flush or merge under way.
pub struct Merge {
    pub(crate) which: BackgroundJob,
    pub(crate) scheme: Scheme,
    pub(crate) pace: Pace,
    pub(crate) stage: Stage,
    pub(crate) insert: Insert,
    pub(crate) plan: Plan,
    /// The merge's inputs, for the records.
    pub(crate) inputs: Inputs,
    /// The merge's state for readers.
    pub(crate) moving: Moving,
    pub(crate) group: Group,
    /// The merge is between two groups: the versions that must be kept are determined again.
    pub(crate) between_groups: bool,
    pub(crate) phase: Phase,
    /// References to values since the last record.
    pub(crate) values: Moved,
    /// Extents that only views of the unfinished merge lead to.
    pub(crate) leftover: Vec<Extent>,
    /// The range tombstones at the merge's begin.
    removed: RangeTombstones,
    /// The space owed for its frozen memtable.
    pot: Option<Arc<Pot>>,
    /// Space reserved for this merge alone.
    pub(crate) reservation: Option<Reservation>,
}

/// The levels and runs that a merge replaces.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inputs {
    /// Levels of the main tree, from the top.
    pub levels: usize,
    /// Sorted runs, the oldest ones.
    pub sorted_runs: usize,
    /// What becomes of them.
    pub scope: MergeScope,
    /// Numbers of the frozen memtable's operations: after the first, up to the second.
    pub frozen: (Seq, Seq),
    /// Level sizes in force when it is done.
    pub shape: Shape,
    /// The levels below the merge, and their fences as far as they are in memory. Readers of both
    /// sides need all of them.
    pub below: Vec<LevelMeta>,
    pub below_fences: Vec<Option<Arc<FenceIndex>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Groups are moved.
    Moving,
    /// All groups have been moved; the last blocks are written.
    Closing,
    /// Everything is written; the record is not durable.
    Committing,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There was nothing to do.
    Idle,
    /// There is more to do.
    More,
    /// The flush or merge is complete and durable.
    Done,
}

/// The destination of a merge's result: a run of its own, or the place of what was merged.
pub(crate) trait Outcome {
    /// The durable state with it, without range tombstones.
    fn meta(&self, merge: &Merge, durable: &IndexMeta) -> IndexMeta;

    /// The past index that a split leaves of `durable`.
    fn past(&self, _merge: &Merge, _durable: &IndexMeta) -> Option<PastIndex> {
        None
    }

    /// Removals up to this number hide nothing any more.
    fn retired(&self) -> Seq {
        Seq(0)
    }

    /// The tree that readers enter: the new levels, with their fences, as in `meta`.
    fn tree(
        &self,
        merge: &Merge,
        written: TreeMeta,
        fences: Vec<LevelFences>,
        meta: &IndexMeta,
    ) -> Tree;

    /// Keys that count as consumed from the beginning.
    fn outside(&self) -> Consumed {
        Consumed::default()
    }

    /// It is durable, and visible to readers. Called under the lock of the durable state.
    fn note(&self, context: KindContext<'_>, meta: &IndexMeta);
}

/// The state that a merge begins with.
pub(crate) struct Start {
    pub which: BackgroundJob,
    pub scheme: Scheme,
    pub pace: Pace,
    pub stage: Stage,
    pub insert: Insert,
    pub plan: Plan,
    pub inputs: Inputs,
    pub moving: Moving,
    pub removed: RangeTombstones,
    pub pot: Option<Arc<Pot>>,
    pub reservation: Option<Reservation>,
}

impl std::fmt::Debug for Merge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Merge").field("which", &self.which).finish_non_exhaustive()
    }
}

impl Merge {
    pub(crate) fn new(start: Start) -> Self {
        Self {
            which: start.which,
            scheme: start.scheme,
            pace: start.pace,
            stage: start.stage,
            insert: start.insert,
            plan: start.plan,
            inputs: start.inputs,
            moving: start.moving,
            group: Group::none(),
            between_groups: true,
            phase: Phase::Moving,
            values: Moved::default(),
            leftover: Vec::new(),
            removed: start.removed,
            pot: start.pot,
            reservation: start.reservation,
        }
    }

    /// All extents that the new side has taken, those that will not be part of it included.
    pub(crate) fn taken(&self) -> impl Iterator<Item = Extent> {
        self.insert.taken().chain(self.leftover.iter().copied())
    }

    /// Drops everything without freeing extents: they are the caller's.
    pub(crate) fn forget(mut self) {
        self.insert.forget();
    }

    /// Moves groups up to the next publish point: readers see what was written, and
    /// [`Merge::go_on`] is to be called; or to the end: then everything is written.
    pub(crate) fn move_on(&mut self, index: &Index) -> Result<Step> {
        if self.phase == Phase::Moving {
            if std::mem::take(&mut self.between_groups) {
                self.group.serve(index.context(), self.inputs.scope.splits_at());
            }
            if self.move_groups(index)? {
                self.publish(index)?;
                return Ok(Step::More);
            }
            self.stage.verify_complete()?;
            self.phase = Phase::Closing;
        }
        if self.phase == Phase::Closing {
            index.env.faults.hit(match self.which {
                BackgroundJob::Flush => fault::FLUSH_FINISH,
                BackgroundJob::Merge => fault::MERGE_FINISH,
            })?;
            self.insert.finish()?;
            self.insert.conclude(&self.plan, &mut self.leftover)?;
        }
        Ok(Step::Done)
    }

    /// Moves groups until a publish point is due: true; or until none is left: false.
    fn move_groups(&mut self, index: &Index) -> Result<bool> {
        let unit_bytes = self.scheme.publish_bytes(&self.pace);
        let full = self.inputs.scope.is_full();
        let splits = self.inputs.scope.splits_at().is_some();
        loop {
            match self.stage.choose()? {
                Next::Nothing => {
                    self.group.close(&mut self.insert, full)?;
                    return Ok(false);
                }
                Next::Block if self.keep_block()? => return Ok(true),
                Next::Block => continue,
                Next::Item => {}
            }
            let Some(item) = self.stage.item()? else { return Err(lost_place()) };
            if self.group.ends_before(item.key, item.seq)? {
                self.group.close(&mut self.insert, full)?;
                // The item stays where it is: the next step begins with it.
                let is_new = self.moving.wavefront.as_deref() != self.group.key.as_deref();
                if is_new && self.is_publish_point(index, unit_bytes) {
                    return Ok(true);
                }
                self.group.begin(item.key, &self.removed);
                if self.scheme == Scheme::FcTuple {
                    let moving = self.moving.clone();
                    index.views.publish(|view| view.with_moving(moving));
                }
            }
            let (seq, payload) = (item.seq, &item.payload);
            let stays = self.group.place(&mut self.insert, item.key, seq, payload, full)?;
            if let Payload::Reference(content) = payload {
                let (after, up_to) = self.inputs.frozen;
                match splits {
                    true => self.values.note_split(content, stays),
                    false => self.values.note(content, stays, after < seq && seq <= up_to),
                }
            }
            self.stage.leave();
        }
    }

    /// Whether readers should see now what was written. That closes the open block, and leaves the
    /// rest of the last unit empty: a merge that has little space, and publishes often, must not
    /// take more for its result than it frees. Blocks of runs that have their units to themselves
    /// are only flushed here, in space that is owed for them.
    fn is_publish_point(&self, index: &Index, unit_bytes: u64) -> bool {
        let closes_any = self.plan.own_units || planted::is(Bug::UnitsLeftEmpty);
        let open_bytes = if closes_any { 0 } else { self.insert.open_data_bytes() };
        let bytes = self.insert.unpublished_bytes() + open_bytes;
        let space_bytes = self.insert.unpublished_space_bytes();
        let distance_bytes = if bytes.saturating_add(unit_bytes / 32) >= unit_bytes {
            unit_bytes
        } else if self.is_short_of_room(index, space_bytes) {
            self.pace.short_bytes()
        } else {
            return false;
        };
        // Without space for another unit it cannot wait: what it publishes frees some.
        closes_any
            || self.insert.waste_of_closing() <= bytes / WASTE_SHARE
            || bytes / LATE_TIMES >= distance_bytes
            || !self.finds_units(index, 1)
    }

    /// Whether there are so many units for the merge, and one for each level that may need a block
    /// more.
    fn finds_units(&self, index: &Index, units: u64) -> bool {
        index.env.blocks.merge_finds(units + self.insert.open_units(), self.pot.as_deref())
    }

    /// Whether the merge may run out of space, after it has taken `bytes` bytes of it since it last
    /// freed old space: then it should free old space now.
    pub(crate) fn is_short_of_room(&self, index: &Index, bytes: u64) -> bool {
        let least_bytes = self.pace.short_bytes();
        let frees = self.inputs.scope.splits_at().is_none();
        let is_recorded = self.scheme.reclaims() && self.which == BackgroundJob::Merge && frees;
        if !is_recorded || bytes < least_bytes || planted::is(Bug::ShortMergeNotRecorded) {
            return false;
        }
        // The space until the same number of bytes is taken again.
        !self.finds_units(index, least_bytes / UNIT_BYTES)
    }

    /// Takes a block of the bottom over as it is; true at the end of a run of such blocks.
    fn keep_block(&mut self) -> Result<bool> {
        let Some(block) = self.stage.kept() else { return Err(lost_place()) };
        if self.group.key.as_deref().is_some_and(|group| group >= block.fence.key) {
            return Err(out_of_order());
        }
        self.group.close(&mut self.insert, self.inputs.scope.is_full())?;
        self.insert.keep(&block)?;
        let is_end = block.run_end.is_some();
        if let Some(last_key) = block.run_end {
            self.group.begin(last_key, &self.removed);
            self.group.last = (Seq::RESET, false);
        }
        self.stage.leave_kept();
        Ok(is_end)
    }

    /// Publishes what was written to readers.
    fn publish(&mut self, index: &Index) -> Result<()> {
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
                index.views.publish(|view| view.with_moving(drained));
            }
            self.moving.set_frozen(Some(rest));
        }
        self.trim_inputs(&wavefront);
        self.moving.wavefront = Some(wavefront);
        self.moving.stats.written_bytes = self.insert.level_bytes();
        let moving = self.moving.clone();
        index.views.publish(|view| view.with_moving(moving));
        if planted::is(Race::ViewBeforeBlocks) {
            self.insert.flush()?;
        }
        index.count_memory();
        Ok(())
    }

    /// Drops the fences in memory that no reader needs behind `wavefront`.
    fn trim_inputs(&mut self, wavefront: &[u8]) {
        let main = self.moving.inputs.len().saturating_sub(1);
        for (number, input) in self.moving.inputs.iter_mut().enumerate() {
            let levels = if number == main { self.inputs.levels } else { input.height() };
            if let Some(trimmed) = input.trimmed(levels, wavefront) {
                *input = Arc::new(trimmed);
            }
        }
    }

    /// Ends a publish point: frees what no reader uses any more.
    pub(crate) fn go_on(&mut self, index: &Index) -> Result<()> {
        index.collect()?;
        self.between_groups = true;
        Ok(())
    }

    /// The new side as a tree, with the levels below it.
    fn growing_tree(&self) -> Tree {
        self.insert.tree(&self.inputs.below, self.below_fences())
    }

    pub(crate) fn below_fences(&self) -> Vec<LevelFences> {
        self.inputs.below_fences.iter().cloned().map(LevelFences::of).collect()
    }

    /// Makes the result durable and the current one.
    pub(crate) fn commit(
        &mut self,
        index: &Index,
        commit: &mut Commit<'_>,
        outcome: &dyn Outcome,
    ) -> Result<()> {
        self.phase = Phase::Committing;
        index.record(&mut Finished { merge: self, outcome, past: None }, commit)
    }
}

/// A merge of which everything is written, in the place of what it has merged.
struct Finished<'a> {
    merge: &'a mut Merge,
    outcome: &'a dyn Outcome,
    past: Option<Arc<PastIndex>>,
}

impl Change for Finished<'_> {
    fn apply(&mut self, durable: &IndexMeta) -> (IndexMeta, Vec<Extent>) {
        let meta = self.outcome.meta(self.merge, durable);
        self.past = self.outcome.past(self.merge, durable).map(Arc::new);
        let mut replaced = replaced(durable, &meta);
        if let Some(past) = self.past.as_ref().filter(|_| !planted::is(Bug::SplitFreesInputs)) {
            replaced = delete::without(&replaced, &past.extents().copied().collect::<Vec<_>>());
        }
        (meta, replaced)
    }

    fn past(&self) -> Option<Arc<PastIndex>> {
        self.past.clone()
    }

    fn values(&mut self) -> &mut Moved {
        &mut self.merge.values
    }

    fn retired(&self) -> Seq {
        self.outcome.retired()
    }

    fn publish(&mut self, context: KindContext<'_>, meta: &IndexMeta) {
        let (written, fences) = self.merge.insert.take_written();
        self.merge.pot.iter().for_each(|pot| pot.release());
        let tree = self.outcome.tree(self.merge, written, fences, meta);
        let (which, outside) = (self.merge.which, self.outcome.outside());
        let retired = self.outcome.retired();
        let past = self.past.take();
        context.publish(|view| view.with_result(which, tree, outside, retired, past));
    }

    fn finish(&mut self, context: KindContext<'_>, meta: &IndexMeta) -> Vec<Extent> {
        self.outcome.note(context, meta);
        std::mem::take(&mut self.merge.leftover)
    }
}

/// The space that `old` named on the old side and that `new` does not name.
fn replaced(old: &IndexMeta, new: &IndexMeta) -> Vec<Extent> {
    let sorted_runs = old.sorted_runs.iter().flat_map(TreeMeta::extents);
    let old: Vec<_> = old.main.extents().chain(sorted_runs).copied().collect();
    delete::without(&old, &new.extents().copied().collect::<Vec<_>>())
}

fn lost_place() -> Error {
    Error::Invalid { what: "a merge lost its place".into() }
}
