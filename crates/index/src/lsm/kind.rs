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
use crate::kind::{Kind, PauseGuard};
use crate::merge::Step;
use crate::read::view::Part;
use crate::run::tree::BlockReader;
use crate::upkeep::forecast::ForecastMerge;
use crate::{Commit, Gate, Index, Work};

/// An index that is an LSM index.
#[derive(Clone, Copy, Debug)]
pub(super) struct LsmIndex<'a> {
    pub index: &'a Index,
    pub lsm: &'a Lsm,
}

impl Deref for LsmIndex<'_> {
    type Target = Index;

    fn deref(&self) -> &Index {
        self.index
    }
}

impl Lsm {
    const fn of<'a>(&'a self, index: &'a Index) -> LsmIndex<'a> {
        LsmIndex { index, lsm: self }
    }
}

impl Kind for Lsm {
    fn open_parts(&self, reader: &BlockReader, meta: &IndexMeta) -> Vec<Part> {
        meta.lsm.as_deref().map_or_else(Vec::new, |lsm| open_parts(reader, meta, lsm))
    }

    fn consumes_runs_partially(&self) -> bool {
        true
    }

    fn note_run(&self, meta: &IndexMeta) {
        self.note_new_run(meta);
    }

    fn due(&self, index: &Index, durable: &Arc<IndexMeta>) -> Option<Work> {
        self.of(index).lsm_due(durable)
    }

    fn flush_work(&self, index: &Index, durable: &IndexMeta) -> Option<Work> {
        self.of(index).lsm_flush_work(durable)
    }

    fn flushes_first(&self, _: &Index, _: &IndexMeta) -> bool {
        true
    }

    fn is_due_behind(&self, index: &Index, durable: &Arc<IndexMeta>, _: u64) -> bool {
        self.of(index).lsm_due(durable).is_some()
    }

    fn forecast_merge(
        &self,
        index: &Index,
        durable: &IndexMeta,
        full: bool,
        new_bytes: u64,
    ) -> ForecastMerge {
        self.of(index).merge_to_come(durable, full, new_bytes)
    }

    fn is_fully_compacted(&self, index: &Index, durable: &IndexMeta, may_change: bool) -> bool {
        let is_done =
            |lsm| is_empty(durable, lsm) || (!may_change && is_fully_compacted(durable, lsm));
        index.removals() == 0 && durable.lsm.as_deref().is_none_or(is_done)
    }

    /// Memtables are flushed first: slices take no memtable.
    fn begin(&self, index: &Index, full: bool, _: bool, _: &Gate<'_>) -> Result<bool> {
        Ok(self.of(index).begin_slices(full))
    }

    fn step(&self, index: &Index, commit: &mut Commit<'_>) -> Result<Step> {
        self.of(index).step_slices(commit)
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
