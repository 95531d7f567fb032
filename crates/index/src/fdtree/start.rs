//! Starting a merge, and resuming one after a crash.

use std::sync::Arc;

use esker_format::ids::Seq;
use esker_format::meta::{
    IndexMeta, LevelCounts, LevelMeta, MergeProgress, MergeScope, Shape, TreeMeta,
};
use esker_format::ptr::UNIT_BYTES;
use esker_substrate::blocks::Reservation;
use esker_substrate::error::{Error, Result};
use esker_substrate::sync::atomic::Ordering;

use super::merge::LevelMerge;
use super::prepare::{self, Incoming, Prepared};
use super::shape::{self, Sizes};
use super::split::{HistoryMerge, copied_bytes_max};
use super::{FdTreeIndex, two_level};
use crate::Gate;
use crate::build::compression;
use crate::build::filter_bits::FilterBits;
use crate::build::insert::{Insert, Plan, top_bytes_max};
use crate::job::BackgroundJob;
use crate::merge::flush::nothing;
use crate::merge::freeze::Frozen;
use crate::merge::scheme::{Pace, Scheme};
use crate::merge::stage::Stage;
use crate::merge::{Inputs, Merge, Start};
use crate::read::moving::Moving;
use crate::read::source::{Part, Run};
use crate::run::fence_index::FenceIndex;
use crate::run::opener::TreeOpener;
use crate::run::tree::Tree;
use crate::upkeep::stats::CompactionStats;

/// Space for a level's last extent, in bytes; larger ones are taken in pieces where space is short.
const EXTENT_BYTES_LEAST: u64 = 16 * 1024;

/// The fences of the main tree's levels from number `levels` on.
fn below_fences(moving: &Moving, levels: usize) -> Vec<Option<Arc<FenceIndex>>> {
    let Some(main) = moving.inputs.last() else { return Vec::new() };
    (levels..main.height()).map(|level| main.held(level)).collect()
}

/// The levels below a merge, as they are numbered when it is done.
fn below(durable: &IndexMeta, levels: usize, scope: MergeScope, shape: &Shape) -> Vec<LevelMeta> {
    let mut below = durable.main.levels.get(levels..).unwrap_or_default().to_vec();
    if let (MergeScope::Gather, Some(bottom)) = (scope, below.last_mut()) {
        bottom.rank = shape::bottom_rank(shape);
    }
    below
}

/// A merge that can begin.
struct Planned {
    prepared: Prepared,
    scope: MergeScope,
    /// The most payload of the memtable for which there is space (I3).
    memtable_bytes_max: u64,
    moving: Moving,
    stage: Stage,
    room: (Pace, Reservation),
    oldest_snapshot: Option<Seq>,
}

impl FdTreeIndex<'_> {
    /// Begins a merge of all sorted runs and the necessary number of levels, or of everything. The
    /// memtable takes part if `with_memtable` is set. False when there is nothing to merge, and no
    /// range tombstones that a full merge retires, or a flush or merge is under way.
    ///
    /// Cost: reads top fences that are not in memory, and makes space for the merge.
    ///
    /// # Errors
    /// [`esker_substrate::Error::Full`] without space for the merge to begin; `Corrupt` when top
    /// fences cannot be read.
    pub(super) fn begin_merge(
        &self,
        full: bool,
        with_memtable: bool,
        gate: &Gate<'_>,
    ) -> Result<bool> {
        let _one_starts = self.start();
        let mut slot = self.tree.merge.lock();
        if slot.is_some() || self.awaits_resume() || self.has_flush() {
            return Ok(false);
        }
        self.note_payload_share();
        let durable = self.meta();
        let with_memtable = with_memtable && !self.view().memtable.is_empty();
        let is_empty = durable.sorted_runs.is_empty() && durable.main.levels.is_empty();
        let retires = full && self.removals() > 0;
        if is_empty && !with_memtable && !retires {
            return Ok(false);
        }
        let runs = self.runs();
        runs.iter().try_for_each(|tree| tree.enter(self.reader()))?;
        let (planned, frozen) = self.plan(&durable, &runs, full, with_memtable, gate)?;
        let Planned { prepared, scope, moving, mut stage, room, oldest_snapshot, .. } = planned;
        let consumed = moving.inputs.len().saturating_sub(1);
        let (pace, reservation) = room;
        let mut range = (durable.flushed_seq, durable.flushed_seq);
        let (mut pot, mut reader) = (None, self.reader().clone());
        if let Some(frozen) = frozen {
            stage.add_memtable(&frozen.leaves);
            range = frozen.numbers;
            reader = reader.with_pot(&frozen.pot);
            pot = Some(frozen.pot);
        }
        let inputs = Inputs {
            levels: prepared.levels,
            sorted_runs: consumed,
            scope,
            frozen: range,
            shape: prepared.shape,
            below: below(&durable, prepared.levels, scope, &prepared.shape),
            below_fences: below_fences(&moving, prepared.levels),
        };
        let insert = Insert::new(&prepared.plan, &reader, BackgroundJob::Merge.purpose());
        // A block that stays may contain keys that were deleted since the check that nothing was.
        let retires = prepared.full && !stage.may_keep_blocks();
        let merged = scope.splits_at().unwrap_or(range.1);
        let (removed, retired) = self.removed_for_merge(merged, retires);
        self.set_retiring(retired > Seq(0) && !removed.is_empty());
        let merge = Merge::new(Start {
            which: BackgroundJob::Merge,
            scheme: self.scheme(),
            pace,
            stage,
            insert,
            plan: prepared.plan,
            inputs,
            moving,
            removed,
            pot,
            reservation: Some(reservation),
        });
        *slot = Some(LevelMerge::new(merge, full, oldest_snapshot, retired));
        self.tree.lead.begin(self.memtable_counts().data_bytes());
        self.tree.consumed_runs.store(consumed as u64, Ordering::Relaxed);
        self.tree.moves_unrecorded.store(range.0 < range.1, Ordering::Release);
        self.set_merging(true);
        Ok(true)
    }

    /// Plans the merge that begins now, and publishes it to readers. The memtable takes part where
    /// it is asked for, and is returned.
    fn plan(
        &self,
        durable: &IndexMeta,
        runs: &[Arc<Tree>],
        full: bool,
        with_memtable: bool,
        gate: &Gate<'_>,
    ) -> Result<(Planned, Option<Frozen>)> {
        let Some(merge) = self.history_merge(durable, full) else {
            return self.plan_and_freeze(durable, runs, full, with_memtable, gate);
        };
        match self.plan_history(durable, runs, merge) {
            // Without space for a copy everything stays in one index.
            Err(Error::Full { .. }) if merge.scope.is_full() => {
                self.plan_and_freeze(durable, runs, true, with_memtable, gate)
            }
            planned => Ok((planned?, None)),
        }
    }

    /// Publishes a merge to readers, with the memtable as one of its inputs if it takes part.
    /// Writers add to the memtable while the merge is planned; their additions must fit too (I3),
    /// or all is planned once more with several times the space for them.
    fn plan_and_freeze(
        &self,
        durable: &IndexMeta,
        runs: &[Arc<Tree>],
        full: bool,
        with_memtable: bool,
        gate: &Gate<'_>,
    ) -> Result<(Planned, Option<Frozen>)> {
        let mut margin_bytes = 0_u64;
        loop {
            let incoming = with_memtable.then_some(margin_bytes);
            let mut planned = self.plan_merge(durable, runs, full, incoming)?;
            if !with_memtable {
                let part: Part = Arc::new(planned.moving.clone());
                self.publish(|view| view.with_parts(Arc::clone(&view.memtable), vec![part]));
                return Ok((planned, None));
            }
            let moving = &mut planned.moving;
            let frozen = self.freeze(gate, planned.memtable_bytes_max, &mut |frozen, parts| {
                moving.set_frozen(Some(Arc::clone(frozen)));
                *parts = vec![Arc::new(moving.clone())];
            });
            if frozen.is_some() {
                return Ok((planned, frozen));
            }
            let excess = self.active_data_bytes().saturating_sub(planned.memtable_bytes_max);
            margin_bytes = margin_bytes.saturating_add(excess).saturating_mul(4);
        }
    }

    /// Plans a merge that gathers or splits, and publishes it to readers.
    fn plan_history(
        &self,
        durable: &IndexMeta,
        runs: &[Arc<Tree>],
        merge: HistoryMerge,
    ) -> Result<Planned> {
        let prepared = self.prepare_history(durable, merge);
        let mut room = self.make_room(durable, &prepared)?;
        if merge.scope.is_full() {
            // It frees nothing before it is done.
            let bytes = copied_bytes_max(durable, merge.runs, prepared.plan.data_bytes);
            let units = room.1.units() + bytes.div_ceil(UNIT_BYTES);
            drop(room.1);
            room.1 = self.blocks().reserve(units)?;
        }
        let standing = runs.len().saturating_sub(merge.runs + 1);
        let inputs = runs.get(standing..).unwrap_or_default();
        let moving = self.begun(inputs, &prepared).splitting(merge.scope.splits_at());
        let stage = self.stage(&moving, prepared.levels, merge.scope, None)?;
        let part: Part = Arc::new(moving.clone());
        self.publish(|view| {
            let standing = view.parts.iter().take(standing).cloned();
            view.with_parts(Arc::clone(&view.memtable), standing.chain([part]).collect())
        });
        let oldest_snapshot = self.snapshots().oldest();
        let (scope, memtable_bytes_max) = (merge.scope, 0);
        Ok(Planned { prepared, scope, memtable_bytes_max, moving, stage, room, oldest_snapshot })
    }

    /// The state for readers of a merge of `inputs` that begins.
    fn begun(&self, inputs: &[Arc<Tree>], prepared: &Prepared) -> Moving {
        Moving {
            which: BackgroundJob::Merge,
            frozen: None,
            frozen_bytes: 0,
            inputs: inputs.iter().map(|tree| Arc::new(tree.consumed())).collect(),
            whole: Vec::new(),
            new: nothing(),
            splits_at: None,
            wavefront: None,
            stats: prepared.stats(),
        }
    }

    /// All steps of planning a merge that can fail. With the memtable: with space for this many
    /// bytes more than it holds now.
    fn plan_merge(
        &self,
        durable: &IndexMeta,
        runs: &[Arc<Tree>],
        full: bool,
        margin_bytes: Option<u64>,
    ) -> Result<Planned> {
        let mut incoming = Incoming::default();
        if let Some(margin_bytes) = margin_bytes {
            let counts = self.memtable_counts();
            incoming.data_bytes = counts.data_bytes().saturating_add(margin_bytes);
            incoming.entries = counts.puts + counts.tombstones;
        }
        let memtable_bytes_max = incoming.data_bytes;
        let mut prepared = self.prepare(durable, full, incoming);
        if prepared.full {
            let runs = durable.sorted_runs.iter().flat_map(|run| &run.levels);
            self.fit_fences(&mut prepared.plan, runs.chain(&durable.main.levels));
        }
        let room = self.make_room(durable, &prepared)?;
        let oldest_snapshot = self.snapshots().oldest();
        let moving = self.begun(runs, &prepared);
        let scope = if prepared.full { MergeScope::Full } else { MergeScope::Upper };
        let stage = self.stage(&moving, prepared.levels, scope, None)?;
        Ok(Planned { prepared, scope, memtable_bytes_max, moving, stage, room, oldest_snapshot })
    }

    /// The sources of a merge, in the order of its inputs.
    fn stage(
        &self,
        moving: &Moving,
        levels: usize,
        scope: MergeScope,
        resume: Option<&MergeProgress>,
    ) -> Result<Stage> {
        let mut stage = Stage::new(self.reader().clone(), BackgroundJob::Merge.purpose());
        if let Some(frozen) = &moving.frozen {
            stage.add_memtable(frozen);
        }
        let after = resume.map(|progress| progress.wavefront.as_slice());
        let done = resume.map(|progress| (progress.wavefront.as_slice(), &progress.inputs[..]));
        let Some((main, sorted_runs)) = moving.inputs.split_last() else { return Ok(stage) };
        let mut input = 0;
        for flush in sorted_runs {
            stage.add_tree(flush, flush.height(), input, done)?;
            input += flush.height();
        }
        if levels > 0 {
            stage.add_tree(main, levels, input, done)?;
            // The papers' settings rewrite everything.
            let may_keep = scope == MergeScope::Full && self.view().removed.is_empty();
            if may_keep && self.scheme() == Scheme::Fc && self.tree.sizes == Sizes::Cost {
                main.meta.levels.last().into_iter().for_each(|bottom| stage.keep_blocks(bottom));
            }
        } else {
            stage.add_top_fences(main, after);
        }
        Ok(stage)
    }

    /// Sorted runs, newest first, then the main tree. Without a flush or merge under way.
    fn runs(&self) -> Vec<Arc<Tree>> {
        let tree = |part: &Part| Run::of(part).map(|run| Arc::clone(&run.tree));
        self.view().parts.iter().filter_map(tree).collect()
    }

    /// The plan of a merge of the incoming data, all sorted runs, and the levels that this takes.
    pub(super) fn prepare(&self, durable: &IndexMeta, full: bool, incoming: Incoming) -> Prepared {
        let incoming = incoming.and(Incoming::of(&durable.sorted_runs));
        let (shape, levels) = (&durable.shape, &durable.main.levels);
        if !self.scheme().tightens() {
            return two_level::first(shape, levels, incoming).with_codec(self.codec());
        }
        let (room, codec) = (self.fence_room(), self.codec());
        prepare::prepare(shape, levels, incoming, full, room, self.tree.sizes, codec)
    }

    /// Makes sure that there is space for a merge to begin and to continue: the space between two
    /// records, and a margin for extents that are not full. Space for what the memtable adds is
    /// already reserved for it. When little space is left, records are made more often; at the
    /// limit only twice the amount is kept that the merge writes before it makes a record for lack
    /// of space ([`Pace::short_bytes`]), and nothing for blocks that compress less well than
    /// before. A step that finds no space is repeated later.
    fn make_room(&self, durable: &IndexMeta, prepared: &Prepared) -> Result<(Pace, Reservation)> {
        let pace = Pace::of(self.kappa0_bytes(), prepared.plan.data_bytes, self.budget_bytes());
        let levels = prepared.plan.fence_ranks.len() as u64 + 2;
        let growth = compression::growth_bytes(durable, prepared.levels, prepared.plan.codec);
        let extents_bytes = levels * EXTENT_BYTES_LEAST;
        let slack = 2 * extents_bytes + prepared.plan.data_bytes / 256 + growth;
        self.reserve(pace, slack).or_else(|error| match error {
            Error::Full { .. } => {
                let least_bytes = extents_bytes + 2 * pace.short_bytes();
                let least = self.blocks().reserve(least_bytes.div_ceil(UNIT_BYTES))?;
                Ok((pace.frugal(), least))
            }
            error => Err(error),
        })
    }

    /// Reserves space for a merge that was resumed, which opening does not do. The merge continues
    /// without it, too.
    pub(super) fn find_room(&self, merge: &mut LevelMerge) {
        if !std::mem::take(&mut merge.lacks_room) {
            return;
        }
        let written_bytes = merge.merge.insert.all_bytes();
        let inputs = &merge.merge.inputs;
        let (kappa0_bytes, bytes) = (inputs.shape.kappa0_bytes, merge.merge.plan.data_bytes);
        let mut slack_bytes = bytes / 256;
        if inputs.scope.splits_at().is_some() {
            let most_bytes = copied_bytes_max(&self.meta(), inputs.sorted_runs, bytes);
            slack_bytes += most_bytes.saturating_sub(written_bytes);
        }
        let pace = Pace::of(kappa0_bytes, bytes, self.budget_bytes());
        if let Ok((pace, room)) = self.reserve(pace, slack_bytes) {
            merge.merge.pace = pace;
            merge.note_room(written_bytes, &room);
            merge.merge.reservation = Some(room);
        }
    }

    /// Reserves the space between two records, at the greatest pace for which there is space.
    fn reserve(&self, mut pace: Pace, slack_bytes: u64) -> Result<(Pace, Reservation)> {
        loop {
            let bytes = pace.record_bytes.saturating_add(slack_bytes);
            match self.blocks().reserve(bytes.div_ceil(UNIT_BYTES)) {
                Err(Error::Full { .. }) if pace != pace.frugal() => pace = pace.slower(),
                reserved => return Ok((pace, reserved?)),
            }
        }
    }

    /// Goes on with the merge that a crash cut off, if there is one: to be called when the log
    /// has been replayed. When blocks that it needs cannot be read, every later step tries again.
    ///
    /// # Errors
    /// `Corrupt` when a block cannot be read that the merge begins with.
    pub(super) fn resume_merge(&self) -> Result<()> {
        let mut slot = self.tree.merge.lock();
        let durable = self.meta();
        let Some(progress) = durable.merge.as_deref().filter(|_| slot.is_none()) else {
            return Ok(());
        };
        if !self.awaits_resume() {
            return Ok(());
        }
        let recovered = self.recovered();
        let mut moving = recorded_moving(&TreeOpener::alone(self.reader()), &durable, progress);
        moving.set_frozen(recovered.filter(|leaves| !leaves.is_empty()));
        let shown = moving.clone();
        self.publish(|view| view.with_moving(shown));
        if self.poison().is_read_only() {
            return Ok(());
        }
        let levels = usize::from(progress.levels);
        let stage = self.stage(&moving, levels, progress.scope, Some(progress))?;
        let merged = durable.main.levels.get(..levels).unwrap_or_default();
        let below = below(&durable, levels, progress.scope, &progress.shape);
        let kappa0_bytes = progress.shape.kappa0_bytes;
        let plan = self.resumed_plan(kappa0_bytes, merged, !below.is_empty());
        let pot = self.recovered_pot();
        let insert = Insert::resume(&plan, &self.reader().with_pot(&pot), progress)?;
        // What it kept for snapshots before the crash is not known: it retires no range tombstones,
        // unless it is a split.
        let splits_at = progress.scope.splits_at();
        let merged = splits_at.unwrap_or(progress.frozen.1);
        let (removed, retired) = self.removed_for_merge(merged, splits_at.is_some());
        let inputs = Inputs {
            levels,
            sorted_runs: usize::from(progress.sorted_runs),
            scope: progress.scope,
            frozen: progress.frozen,
            shape: progress.shape,
            below,
            below_fences: below_fences(&moving, levels),
        };
        let merge = Merge::new(Start {
            which: BackgroundJob::Merge,
            scheme: self.scheme(),
            pace: Pace::of(kappa0_bytes, plan.data_bytes, self.budget_bytes()).frugal(),
            stage,
            insert,
            plan,
            inputs,
            moving,
            removed,
            pot: Some(pot),
            reservation: None,
        });
        let oldest_snapshot = self.snapshots().oldest();
        let mut merge = LevelMerge::new(merge, false, oldest_snapshot, retired);
        merge.lacks_room = true;
        *slot = Some(merge);
        self.tree.lead.begin(self.memtable_counts().data_bytes());
        // The merge now holds the recovered entries.
        self.note_resumed();
        Ok(())
    }

    /// Plans fences and filters of the last level for the memory, when it is made of `levels`.
    fn fit_fences<'l>(&self, plan: &mut Plan, levels: impl Iterator<Item = &'l LevelMeta>) {
        let add = |(blocks, keys): (u64, u64), counts: &LevelCounts| {
            (blocks.saturating_add(counts.blocks), keys.saturating_add(counts.data_entries()))
        };
        let (blocks, keys) = levels.map(|level| &level.counts).fold((0, 0), add);
        let room = self.filter_room();
        plan.filter_bits = FilterBits::new(room.bits(blocks, keys));
        plan.fence_bytes_max = Some(room.largest_bytes(blocks, keys));
    }

    /// The levels that a recorded merge of `merged` goes on to write.
    fn resumed_plan(&self, kappa0_bytes: u64, merged: &[LevelMeta], below: bool) -> Plan {
        let mut plan = Plan {
            fence_ranks: Vec::new(),
            data_rank: 1,
            data_bytes: merged.iter().map(|level| level.counts.data_bytes()).sum(),
            below,
            top_bytes_max: top_bytes_max(kappa0_bytes),
            codec: self.codec(),
            ..Plan::default()
        };
        if !below {
            self.fit_fences(&mut plan, merged.iter());
        }
        plan
    }
}

/// The view of an index whose merge was recorded, before the log is replayed.
pub(super) fn recorded_moving(
    opener: &TreeOpener<'_>,
    meta: &IndexMeta,
    progress: &MergeProgress,
) -> Moving {
    let consumed = meta.oldest_runs(usize::from(progress.sorted_runs));
    let trees = consumed.iter().chain([&meta.main]);
    let open = |tree: &TreeMeta| Arc::new(opener.open(tree).consumed());
    let inputs: Vec<_> = trees.map(open).collect();
    let new = Tree::recorded(opener.reader, meta, progress);
    let moving = Moving {
        which: BackgroundJob::Merge,
        frozen: None,
        frozen_bytes: 0,
        inputs,
        whole: Vec::new(),
        new: Arc::new(new),
        splits_at: None,
        wavefront: Some(progress.wavefront.as_slice().into()),
        stats: CompactionStats {
            full: progress.scope.is_full(),
            levels: usize::from(progress.levels),
            ..CompactionStats::default()
        },
    };
    moving.splitting(progress.scope.splits_at())
}
