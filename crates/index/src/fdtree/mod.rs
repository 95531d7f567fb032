//! The FD+tree with full concurrency (FD+FC).
//!
//! Reading order: [`shape`] (level sizes), then a merge in the paper's steps: [`prepare`] (which
//! levels it replaces), `start` (starting a merge, and resuming it after a crash), `merge` (records
//! of its progress, and its result), [`finalize`]; `split` (full merges where history is kept);
//! [`two_level`] and `descend` (how the older FD-tree differs), `lead` (back-pressure on writers),
//! `due` (when a merge begins), `invariants` (I3 to I5).
//!
//! A level is a sorted run of immutable blocks. The fences of a level, interleaved with its data,
//! lead to the blocks of the next. The memtable is merged, together with all sorted runs and the
//! necessary number of upper levels, into one new level, whose fences then fill the levels above
//! it. While a merge runs, keys at or before its wavefront are found on the new side and all others
//! on the old one.

mod descend;
mod due;
pub mod finalize;
mod invariants;
mod lead;
mod merge;
pub mod prepare;
pub mod shape;
mod split;
mod start;
pub mod two_level;

use std::ops::Deref;
use std::sync::Arc;

use esker_format::meta::IndexMeta;
use esker_format::ptr::Extent;
use esker_substrate::error::Result;
use esker_substrate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use esker_substrate::sync::{Mutex, MutexGuard};

use crate::build::preserve;
use crate::check::CheckSink;
use crate::kind::context::KindContext;
use crate::kind::{Kind, PauseGuard};
use crate::merge::Step;
use crate::merge::scheme::Scheme;
use crate::read::source::{Part, Run};
use crate::run::opener::TreeOpener;
use crate::upkeep::forecast::ForecastMerge;
use crate::{Commit, Gate, Work};
use lead::Lead;
use merge::LevelMerge;
pub use shape::Sizes;

/// The state of an FD+tree beyond what all indexes have.
#[derive(Debug)]
pub(crate) struct FdTree {
    sizes: Sizes,
    merge: Mutex<Option<LevelMerge>>,
    /// The merge under way moves a frozen memtable and has no record yet: a flush recorded now
    /// would claim that older operations are on the device too.
    moves_unrecorded: AtomicBool,
    /// Sorted runs that the merge under way consumes.
    consumed_runs: AtomicU64,
    lead: Lead,
}

/// An index that is an FD+tree.
#[derive(Clone, Copy, Debug)]
struct FdTreeIndex<'a> {
    context: KindContext<'a>,
    tree: &'a FdTree,
}

impl<'a> Deref for FdTreeIndex<'a> {
    type Target = KindContext<'a>;

    fn deref(&self) -> &KindContext<'a> {
        &self.context
    }
}

impl FdTree {
    /// The state of an index whose record is `meta`.
    pub fn new(meta: &IndexMeta, scheme: Scheme, sizes: Sizes) -> Self {
        let consumed = meta.merge.as_ref().map_or(0, |merge| merge.sorted_runs);
        Self {
            sizes: if scheme.tightens() { sizes } else { two_level::sizes(sizes) },
            merge: Mutex::default(),
            moves_unrecorded: false.into(),
            consumed_runs: u64::from(consumed).into(),
            lead: Lead::default(),
        }
    }

    const fn of<'a>(&'a self, context: KindContext<'a>) -> FdTreeIndex<'a> {
        FdTreeIndex { context, tree: self }
    }
}

impl Kind for FdTree {
    fn open_parts(&self, opener: &TreeOpener<'_>, meta: &IndexMeta) -> Vec<Part> {
        let consumed = meta.merge.as_ref().map_or(0, |merge| usize::from(merge.sorted_runs));
        let kept = meta.sorted_runs.len().saturating_sub(consumed);
        let run = |tree| Run::whole(opener.open(tree));
        let mut parts: Vec<_> = meta.sorted_runs.iter().take(kept).map(run).collect();
        parts.push(match &meta.merge {
            Some(merge) => Arc::new(start::recorded_moving(opener, meta, merge)),
            None => run(&meta.main),
        });
        parts
    }

    fn consumes_runs_partially(&self) -> bool {
        false
    }

    fn can_flush(&self) -> bool {
        !self.moves_unrecorded.load(Ordering::Acquire)
    }

    fn note_freeze(&self, bytes: u64) {
        self.lead.froze(bytes);
    }

    fn due(&self, context: KindContext<'_>, durable: &Arc<IndexMeta>) -> Option<Work> {
        self.of(context).work_due(durable)
    }

    fn flush_work(&self, context: KindContext<'_>, durable: &IndexMeta) -> Option<Work> {
        self.of(context).work_of_flush(durable)
    }

    fn flushes_first(&self, context: KindContext<'_>, durable: &IndexMeta) -> bool {
        !self.of(context).merges_directly(durable)
    }

    fn is_ahead(&self, context: KindContext<'_>) -> bool {
        self.of(context).is_lead_used_up()
    }

    fn is_due_behind(
        &self,
        _: KindContext<'_>,
        durable: &Arc<IndexMeta>,
        flush_bytes: u64,
    ) -> bool {
        due::is_due_behind(durable, flush_bytes)
    }

    fn forecast_merge(
        &self,
        context: KindContext<'_>,
        durable: &IndexMeta,
        full: bool,
        new_bytes: u64,
    ) -> ForecastMerge {
        self.of(context).forecast_merge(durable, full, new_bytes)
    }

    fn is_fully_compacted(
        &self,
        context: KindContext<'_>,
        durable: &IndexMeta,
        may_change: bool,
    ) -> bool {
        let data = durable.main.levels.iter().filter(|level| level.counts.data_entries() > 0);
        let counts = || data.clone().map(|level| level.counts);
        let garbage = counts().map(|counts| counts.tombstones + counts.kept_for_snapshots);
        durable.sorted_runs.is_empty()
            && context.removals() == 0
            && counts().count() <= 1
            && (context.keeps_history() || garbage.sum::<u64>() == 0)
            && (!may_change || data.clone().all(preserve::is_reset))
    }

    fn begin(
        &self,
        context: KindContext<'_>,
        full: bool,
        with_memtable: bool,
        gate: &Gate<'_>,
    ) -> Result<bool> {
        self.of(context).begin_merge(full, with_memtable, gate)
    }

    fn resume(&self, context: KindContext<'_>) -> Result<()> {
        self.of(context).resume_merge()
    }

    fn step(&self, context: KindContext<'_>, commit: &mut Commit<'_>) -> Result<Step> {
        if context.awaits_resume() {
            self.resume(context)?;
        }
        let mut slot = self.merge.lock();
        let Some(merge) = slot.as_mut() else { return Ok(Step::Idle) };
        self.of(context).find_room(merge);
        let _exclusive = context.exclude();
        let step = merge.step(&self.of(context), commit);
        let step = step.map_err(|error| context.poison_if_write_failed(error))?;
        if step == Step::Done {
            *slot = None;
            self.consumed_runs.store(0, Ordering::Relaxed);
            self.moves_unrecorded.store(false, Ordering::Release);
            context.set_retiring(false);
            context.set_merging(false);
        }
        Ok(step)
    }

    fn pause(&self) -> Box<dyn PauseGuard + '_> {
        Box::new(Paused { merge: self.merge.lock() })
    }

    fn check_levels(&self, context: KindContext<'_>, meta: &IndexMeta, sink: &mut CheckSink) {
        if meta.merge.is_none() {
            invariants::check_sizes(meta, sink);
            if context.scheme().tightens() {
                invariants::check_bottom(meta, sink);
                invariants::check_skips(meta, sink);
            }
        }
    }
}

/// An FD+tree whose merge is paused.
#[derive(Debug)]
struct Paused<'a> {
    merge: MutexGuard<'a, Option<LevelMerge>>,
}

impl PauseGuard for Paused<'_> {
    fn taken(&self) -> Option<Vec<Extent>> {
        self.merge.as_ref().map(|merge| merge.merge.taken().collect())
    }

    fn forget(&mut self) {
        if let Some(merge) = self.merge.take() {
            merge.merge.forget();
        }
    }
}
