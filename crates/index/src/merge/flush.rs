//! Flushes: a memtable is written out as a sorted run, which is kept until it is merged.

use std::sync::Arc;

use esker_format::KEY_BYTES_MAX;
use esker_format::action::KeyRange;
use esker_format::meta::{IndexMeta, SORTED_RUNS_MAX, TreeMeta};
use esker_format::ptr::Extent;
use esker_substrate::error::Result;
use esker_substrate::memtable::Leaves;
use esker_substrate::sync::atomic::Ordering;

use crate::build::filter_bits::FilterBits;
use crate::build::insert::{Insert, Plan, top_bytes_max};
use crate::job::BackgroundJob;
use crate::kind::context::KindContext;
use crate::merge::scheme::Pace;
use crate::merge::stage::Stage;
use crate::merge::{Inputs, Merge, Outcome, Start, Step};
use crate::read::moving::Moving;
use crate::run::consumed::Consumed;
use crate::run::tree::{LevelFences, Tree};
use crate::upkeep::stats::CompactionStats;
use crate::{Commit, Gate, Index};

/// A flush under way.
#[derive(Debug)]
pub(crate) struct Flush {
    merge: Merge,
    /// Keys outside the run's range, which count as consumed from the beginning.
    outside: Consumed,
}

impl Flush {
    /// Writes up to the next publish point, or completes the flush.
    fn step(&mut self, index: &Index, commit: &mut Commit<'_>) -> Result<Step> {
        if self.merge.move_on(index)? == Step::More {
            self.merge.go_on(index)?;
            return Ok(Step::More);
        }
        self.merge.commit(index, commit, &Run { outside: &self.outside })?;
        Ok(Step::Done)
    }

    /// All extents that the run has taken, those that will not be part of it included.
    pub(crate) fn taken(&self) -> impl Iterator<Item = Extent> {
        self.merge.taken()
    }

    /// Drops everything without freeing extents: they are the caller's.
    pub(crate) fn forget(self) {
        self.merge.forget();
    }
}

/// The result of a flush.
struct Run<'a> {
    outside: &'a Consumed,
}

impl Outcome for Run<'_> {
    fn meta(&self, merge: &Merge, durable: &IndexMeta) -> IndexMeta {
        let mut meta = durable.clone();
        meta.flushed_seq = meta.flushed_seq.max(merge.inputs.frozen.1);
        meta.add_run(merge.insert.meta(), self.outside.ranges().to_vec());
        meta
    }

    fn tree(&self, _: &Merge, written: TreeMeta, fences: Vec<LevelFences>, _: &IndexMeta) -> Tree {
        Tree::written(Arc::new(written), fences)
    }

    fn outside(&self) -> Consumed {
        self.outside.clone()
    }

    fn note(&self, context: KindContext<'_>, meta: &IndexMeta) {
        context.index().heat.note_run();
        context.index().kind.note_run(meta);
    }
}

/// An empty new side for a view.
pub(crate) fn nothing() -> Arc<Tree> {
    Arc::new(Tree::growing(Arc::new(TreeMeta::default()), Vec::new()))
}

/// The keys before the first and behind the last of a memtable.
fn outside(leaves: &Leaves) -> Consumed {
    let (first, last) = (leaves.iter().next(), leaves.last());
    let mut outside = Consumed::default();
    if let Some(first) = first.filter(|first| !first.key().is_empty()) {
        outside = outside.with(KeyRange { begin: &[], end: Some(first.key()) });
    }
    // The least key behind the last is longer by one byte, and may be too long to be written down.
    if let Some(last) = last.filter(|last| last.key().len() < KEY_BYTES_MAX) {
        let behind = [last.key(), &[0]].concat();
        outside = outside.with(KeyRange { begin: &behind, end: None });
    }
    outside
}

impl Index {
    /// Freezes the memtable and begins to write it out as a sorted run. False when it is empty or
    /// another flush is under way. No I/O.
    pub fn begin_flush(&self, gate: &Gate<'_>) -> bool {
        let _one_starts = self.starting.lock();
        let mut slot = self.flush.lock();
        // The manifest names no more runs than this, regardless of who requests one.
        let too_many = self.durable.load().sorted_runs.len() + 1 >= SORTED_RUNS_MAX;
        let blocked = slot.is_some() || too_many || !self.kind.can_flush();
        if blocked || self.views.load().memtable.is_empty() {
            return false;
        }
        let counts = self.views.load().memtable.counts();
        self.kind.note_freeze(counts.data_bytes());
        self.note_payload_share();
        let kappa0 = self.kappa0_bytes();
        let plan = Plan {
            fence_ranks: Vec::new(),
            data_rank: 1,
            data_bytes: counts.data_bytes(),
            below: false,
            top_bytes_max: top_bytes_max(kappa0),
            codec: self.codec(),
            own_units: self.kind.consumes_runs_partially(),
            // A lookup asks all runs, and few entries are in them.
            filter_bits: FilterBits::MANY,
            fence_bytes_max: None,
        };
        let mut moving = Moving {
            which: BackgroundJob::Flush,
            frozen: None,
            frozen_bytes: 0,
            inputs: Vec::new(),
            whole: Vec::new(),
            new: nothing(),
            splits_at: None,
            wavefront: None,
            stats: CompactionStats::default(),
        };
        // A run may hold any number of bytes.
        let Some(frozen) = self.freeze(gate, u64::MAX, &mut |frozen, parts| {
            moving.set_frozen(Some(Arc::clone(frozen)));
            parts.insert(0, Arc::new(moving.clone()));
        }) else {
            return false;
        };
        let purpose = BackgroundJob::Flush.purpose();
        let mut stage = Stage::new(self.reader.clone(), purpose);
        stage.add_memtable(&frozen.leaves);
        let (removed, _) = self.removed_for_merge(frozen.numbers.1, false);
        let consumes_partially = self.kind.consumes_runs_partially();
        let outside =
            if consumes_partially { outside(&frozen.leaves) } else { Consumed::default() };
        let merge = Merge::new(Start {
            which: BackgroundJob::Flush,
            scheme: self.scheme,
            pace: Pace::of(kappa0, counts.data_bytes(), self.env.budget.total_bytes()),
            stage,
            insert: Insert::new(&plan, &self.reader.with_pot(&frozen.pot), purpose),
            pot: Some(frozen.pot),
            inputs: Inputs { frozen: frozen.numbers, ..Inputs::default() },
            plan,
            moving,
            removed,
            reservation: None,
        });
        *slot = Some(Flush { merge, outside });
        self.flushing.store(true, Ordering::Release);
        true
    }

    /// Does the next step of the flush under way.
    pub(crate) fn step_flush(&self, commit: &mut Commit<'_>) -> Result<Step> {
        let mut slot = self.flush.lock();
        let Some(flush) = slot.as_mut() else { return Ok(Step::Idle) };
        let _exclusive = self.scheme.is_exclusive().then(|| self.exclusive.write());
        let step = flush.step(self, commit).map_err(|error| self.poison_if_write_failed(error))?;
        if step == Step::Done {
            *slot = None;
            self.flushing.store(false, Ordering::Release);
        }
        Ok(step)
    }
}
