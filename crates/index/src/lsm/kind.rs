//! The LSM index as a kind of index.

use std::ops::Deref;
use std::sync::Arc;

use esker_format::meta::IndexMeta;
use esker_format::ptr::Extent;
use esker_substrate::error::Result;
use esker_substrate::sync::MutexGuard;

use super::compaction::Lsm;
use super::invariants;
use super::{Job, is_empty, is_fully_compacted, open_parts};
use crate::check::{CheckSink, Units};
use crate::kind::context::KindContext;
use crate::kind::{Kind, PauseGuard};
use crate::merge::Step;
use crate::read::source::Part;
use crate::run::opener::TreeOpener;
use crate::upkeep::forecast::ForecastMerge;
use crate::{Commit, Gate, Work};

/// An index that is an LSM index.
#[derive(Clone, Copy, Debug)]
pub(super) struct LsmIndex<'a> {
    context: KindContext<'a>,
    pub lsm: &'a Lsm,
}

impl<'a> Deref for LsmIndex<'a> {
    type Target = KindContext<'a>;

    fn deref(&self) -> &KindContext<'a> {
        &self.context
    }
}

impl Lsm {
    pub(super) const fn of<'a>(&'a self, context: KindContext<'a>) -> LsmIndex<'a> {
        LsmIndex { context, lsm: self }
    }
}

impl Kind for Lsm {
    fn open_parts(&self, opener: &TreeOpener<'_>, meta: &IndexMeta) -> Vec<Part> {
        meta.lsm().map_or_else(Vec::new, |lsm| open_parts(opener, meta, lsm))
    }

    fn consumes_runs_partially(&self) -> bool {
        true
    }

    fn note_run(&self, meta: &IndexMeta) {
        self.note_new_run(meta);
    }

    fn due(&self, context: KindContext<'_>, durable: &Arc<IndexMeta>) -> Option<Work> {
        self.of(context).lsm_due(durable)
    }

    fn flush_work(&self, context: KindContext<'_>, durable: &IndexMeta) -> Option<Work> {
        self.of(context).lsm_flush_work(durable)
    }

    fn flushes_first(&self, _: KindContext<'_>, _: &IndexMeta) -> bool {
        true
    }

    fn is_due_behind(&self, context: KindContext<'_>, durable: &Arc<IndexMeta>, _: u64) -> bool {
        self.of(context).lsm_due(durable).is_some()
    }

    fn forecast_merge(
        &self,
        context: KindContext<'_>,
        durable: &IndexMeta,
        full: bool,
        new_bytes: u64,
    ) -> ForecastMerge {
        self.of(context).merge_to_come(durable, full, new_bytes)
    }

    fn is_fully_compacted(
        &self,
        context: KindContext<'_>,
        durable: &IndexMeta,
        may_change: bool,
    ) -> bool {
        let is_done =
            |lsm| is_empty(durable, lsm) || (!may_change && is_fully_compacted(durable, lsm));
        context.removals() == 0 && durable.lsm().is_none_or(is_done)
    }

    /// Memtables are flushed first: slices take no memtable.
    fn begin(&self, context: KindContext<'_>, full: bool, _: bool, _: &Gate<'_>) -> Result<bool> {
        Ok(self.of(context).begin_slices(full))
    }

    fn step(&self, context: KindContext<'_>, commit: &mut Commit<'_>) -> Result<Step> {
        self.of(context).step_slices(commit)
    }

    fn pause(&self) -> Box<dyn PauseGuard + '_> {
        Box::new(Paused { slices: self.slices.lock() })
    }

    fn check_units(&self, meta: &IndexMeta, found: &[Option<Units>], sink: &mut CheckSink) {
        invariants::check_units(meta, found, sink);
    }
}

/// An LSM index whose slices are paused.
#[derive(Debug)]
struct Paused<'a> {
    slices: MutexGuard<'a, Option<Job>>,
}

impl PauseGuard for Paused<'_> {
    /// Between two slices everything is recorded.
    fn taken(&self) -> Option<Vec<Extent>> {
        None
    }

    fn forget(&mut self) {
        *self.slices = None;
    }
}
