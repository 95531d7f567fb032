//! The part of a view that a flush or a merge moves.
//!
//! Invariant: keys at or before the wavefront are on the new side, all others in the inputs; never
//! both, never neither.
//!
//! A split consumes nothing: readers as of versions before it find all keys in its inputs. They
//! find them through [`Moving::whole`], without fences in memory but the top ones, so that those of
//! the inputs make room for those of the result as the wavefront passes.

use std::any::Any;
use std::sync::Arc;

use esker_format::ids::Seq;
use esker_format::ptr::BlockPtr;
use esker_substrate::error::Result;
use esker_substrate::memtable::Leaves;
use esker_substrate::planted::{self, Bug, Race};

use crate::job::BackgroundJob;
use crate::read::scan::Sources;
use crate::read::source::{Part, Reach, ReadSource};
use crate::run::lookup::{Found, Probe};
use crate::run::tree::{BlockReader, Tree};
use crate::upkeep::stats::CompactionStats;

/// The state of a flush or merge at a publish point.
#[derive(Clone, Debug)]
pub struct Moving {
    pub(crate) which: BackgroundJob,
    /// The rest of the frozen memtable, and its memory in bytes.
    pub(crate) frozen: Option<Arc<Leaves>>,
    pub(crate) frozen_bytes: u64,
    /// Sorted runs, newest first, then the main tree.
    pub(crate) inputs: Vec<Arc<Tree>>,
    /// The inputs of a split for readers as of versions before it.
    pub(crate) whole: Vec<Arc<Tree>>,
    /// The written part of the new side.
    pub(crate) new: Arc<Tree>,
    /// The merge is a split: readers as of earlier numbers find everything in the inputs.
    pub(crate) splits_at: Option<Seq>,
    /// The last user key whose group has been written.
    pub(crate) wavefront: Option<Arc<[u8]>>,
    /// For statistics.
    pub(crate) stats: CompactionStats,
}

impl Moving {
    /// The flush or merge that moves a part; `None` for another part.
    pub(crate) fn of(part: &Part) -> Option<&Self> {
        let part: &dyn Any = &**part;
        part.downcast_ref()
    }

    /// Whether the merge has passed `key`.
    pub(crate) fn has_passed(&self, key: &[u8]) -> bool {
        self.wavefront.as_deref().is_some_and(|wavefront| key <= wavefront)
    }

    /// Whether a reader as of `seq` finds what the merge has passed in its result.
    pub(crate) fn shows_result(&self, seq: Seq) -> bool {
        self.splits_at.is_none_or(|at| at <= seq) || planted::is(Bug::SplitReadsNewSide)
    }

    /// The same for a split as of `splits_at`, if it is one.
    pub(crate) fn splitting(mut self, splits_at: Option<Seq>) -> Self {
        self.splits_at = splits_at;
        self.whole = match splits_at {
            Some(_) => self.inputs.iter().map(|input| Arc::new(input.as_past())).collect(),
            None => Vec::new(),
        };
        self
    }

    /// The inputs, for a reader that may meet keys that a split has passed, or for another one.
    fn inputs(&self, meets_passed: bool) -> &[Arc<Tree>] {
        let trimmed = meets_passed && self.splits_at.is_some();
        if trimmed && !planted::is(Bug::SplitReadsTrimmed) { &self.whole } else { &self.inputs }
    }

    /// The merge's progress.
    pub(crate) fn shown_stats(&self) -> CompactionStats {
        let wavefront = self.wavefront.as_deref().map(<[u8]>::to_vec);
        CompactionStats { wavefront, ..self.stats.clone() }
    }

    /// The number of levels that take part, when those of the main tree are `levels`.
    pub(crate) fn levels(&self, levels: usize) -> usize {
        let sorted_runs = self.inputs.split_last().map_or(&[][..], |(_, sorted_runs)| sorted_runs);
        sorted_runs.iter().map(|flush| flush.height()).sum::<usize>() + levels
    }

    /// The same with `frozen` as the rest of the memtable.
    pub(crate) fn set_frozen(&mut self, frozen: Option<Arc<Leaves>>) {
        self.frozen_bytes = frozen.as_ref().map_or(0, |frozen| frozen.memory_bytes());
        self.frozen = frozen;
    }

    /// The newest version in what a split copies from that `probe` may see.
    pub(crate) fn get_in_whole(
        &self,
        reader: &BlockReader,
        probe: &Probe<'_>,
    ) -> Result<Option<Found>> {
        self.get_in(self.inputs(self.has_passed(probe.key)), reader, probe)
    }

    fn get_in(
        &self,
        inputs: &[Arc<Tree>],
        reader: &BlockReader,
        probe: &Probe<'_>,
    ) -> Result<Option<Found>> {
        let frozen = self.frozen.as_ref();
        if planted::is(Race::RunsBeforeFrozen) {
            for run in inputs.iter().rev().skip(1) {
                if let Some(found) = run.get(reader, probe)? {
                    return Ok(Some(found));
                }
            }
        }
        if let Some(version) = frozen.and_then(|frozen| frozen.get(probe.key, probe.seq)) {
            return Ok(Some(probe.found(version.seq(), version.data())));
        }
        for input in inputs {
            if let Some(found) = input.get(reader, probe)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

impl ReadSource for Moving {
    fn get(&self, reader: &BlockReader, probe: &Probe<'_>) -> Result<Option<Found>> {
        let passed = self.has_passed(probe.key);
        if passed && self.shows_result(probe.seq) {
            return self.new.get(reader, probe);
        }
        self.get_in(self.inputs(passed), reader, probe)
    }

    fn candidates(&self, probe: &Probe<'_>, out: &mut Vec<BlockPtr>) {
        let passed = self.has_passed(probe.key);
        if passed && self.shows_result(probe.seq) {
            self.new.candidates(probe, out);
        } else {
            let inputs = self.inputs(passed);
            inputs.iter().for_each(|input| input.candidates(probe, out));
        }
    }

    fn scan<'a>(&'a self, sources: &mut Sources<'a>) {
        let is_merge = self.which == BackgroundJob::Merge;
        if is_merge && sources.passed {
            return sources.add_levels(&self.new, None);
        }
        // The output of a flush is still in its frozen memtable, and must not be taken twice.
        let mut written = None;
        if !is_merge {
            sources.add_levels(&self.new, None);
            written = self.wavefront.as_deref();
        }
        if let Some(frozen) = self.frozen.as_deref() {
            sources.add_memory(frozen, written);
        }
        // Only readers for whom keys that have been passed are in the result have a floor.
        let floor = sources.floor;
        let inputs = self.inputs(self.wavefront.is_some() && floor.is_none());
        inputs.iter().for_each(|input| sources.add_levels(input, floor));
    }

    fn trees(&self) -> Vec<(&Tree, Reach<'_>)> {
        let wavefront = self.wavefront.as_deref();
        let consumed = wavefront.filter(|_| self.splits_at.is_none());
        let left = consumed.map_or(Reach::Whole, Reach::Behind);
        let inputs = self.inputs(true).iter().map(|input| (&**input, left));
        std::iter::once((&*self.new, Reach::UpTo(wavefront))).chain(inputs).collect()
    }
}
