//! The compaction settings of an LSM index, which its owner chooses when it is opened.

use esker_format::meta::IndexMeta;
use esker_format::ptr::{SECTOR_BYTES, UNIT_BYTES};
use esker_substrate::sync::Mutex;
use esker_substrate::sync::atomic::AtomicU32;

use super::counters::{Counters, LevelCounters};
use super::due_cache::Asked;
use super::meter::Meter;
use super::overwrite_ratio::Replaced;
use super::policy::learn::Learning;
use super::policy::{Params, Policy};
use super::{Job, LsmIndex, learnt};
use crate::kind::context::KindContext;
use crate::lsm::choose::{by_policy, pull};
use crate::lsm::repack::packing::Packing;

/// The parameters of an LSM index's merges. Nothing of it is kept with the index.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compaction {
    /// The policy that chooses which part of a level is merged.
    pub policy: Policy,
    /// The thesis's parameters.
    pub params: Params,
    /// The bytes of writes that a read of a block is worth: scans that would have paid for a merge
    /// of the keys that they read make it due. 0: they do not.
    pub read_worth_bytes: u64,
    /// Whether a block stays as it is if no other source has keys within its keys; if not, merges
    /// are plain.
    pub preserves: bool,
}

impl Compaction {
    /// Pull.
    pub const DEFAULT: Self = Self::by(Policy::Pull);

    /// A policy with its default parameters. The thesis's policies know of no reads.
    #[must_use]
    pub const fn by(policy: Policy) -> Self {
        let read_worth_bytes = if matches!(policy, Policy::Pull) { UNIT_BYTES } else { 0 };
        Self { policy, params: Params::DEFAULT, read_worth_bytes, preserves: true }
    }
}

impl Default for Compaction {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The state of an index's merges that is not in the manifest.
#[derive(Debug, Default)]
pub(crate) struct Lsm {
    pub compaction: Compaction,
    pub counters: Mutex<Counters>,
    pub(super) meter: Mutex<Meter>,
    pub(super) replaced: Mutex<Replaced>,
    pub(super) asked: Mutex<Asked>,
    pub(super) packing: Mutex<Packing>,
    /// The number of times that the size of a slice is halved at present, for lack of space.
    pub(super) halvings: AtomicU32,
    /// The slices under way.
    pub(super) slices: Mutex<Option<Job>>,
}

/// An LSM index's merges, for users.
#[derive(Clone, Debug, PartialEq)]
pub struct MergeReport {
    /// The parameters of its merges.
    pub compaction: Compaction,
    /// The most bytes that runs may hold before they are merged.
    pub runs_capacity_bytes: u64,
    /// The capacity of each level, from the first down; `u64::MAX` where there is no bound.
    pub capacity_bytes: Vec<u64>,
    /// Counters of what has been written since the index was opened.
    pub counters: Counters,
    /// The results of the learning of Mixed about the index; `None` if Mixed has not merged it.
    pub learning: Option<Learning>,
}

impl Lsm {
    pub fn new(compaction: Compaction) -> Self {
        Self { compaction, ..Self::default() }
    }

    /// A run has been recorded.
    pub(super) fn note_new_run(&self, meta: &IndexMeta) {
        let Some((data, fences)) = meta.sorted_runs.first().and_then(|run| run.levels.split_last())
        else {
            return;
        };
        let sectors: u64 = fences.iter().map(|level| level.counts.sectors).sum();
        self.counters.lock().add_run(&LevelCounters {
            blocks_written: data.counts.blocks,
            blocks_packed: 0,
            blocks_kept: 0,
            node_bytes_written: sectors * SECTOR_BYTES,
        });
    }
}

impl Lsm {
    /// The report on the merges of an index and their costs.
    pub(crate) fn merge_report(&self, context: KindContext<'_>) -> Option<MergeReport> {
        self.of(context).report()
    }
}

impl LsmIndex<'_> {
    fn report(&self) -> Option<MergeReport> {
        let durable = self.meta();
        let lsm = durable.lsm()?;
        let (compaction, kappa0_bytes) = (self.lsm.compaction, self.kappa0_bytes());
        let (runs_capacity_bytes, capacity_bytes) = if compaction.policy == Policy::Pull {
            pull::capacities(&durable, lsm, &self.arrivals())
        } else {
            by_policy::capacities(lsm, &compaction.params, kappa0_bytes)
        };
        let mut counters = self.lsm.counters.lock().clone();
        counters.levels.resize_with(lsm.levels.len(), LevelCounters::default);
        let learning = learnt::of(lsm);
        Some(MergeReport { compaction, runs_capacity_bytes, capacity_bytes, counters, learning })
    }
}
