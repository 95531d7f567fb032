//! Statistics of LSM indexes, from the manifest.

use std::fmt;

use esker_format::meta::{IndexMeta, LsmLevel, TreeMeta};
use esker_format::ptr::{Extent, SECTOR_BYTES, UNIT_BYTES};
use esker_index::lsm::MergeReport;
use esker_index::lsm::counters::LevelCounters;
use esker_index::lsm::policy::Policy as CompactionPolicy;
use esker_index::lsm::policy::learn::{Learning, Phase};

/// The parts of an LSM index.
#[derive(Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct LsmStats {
    /// Sorted runs, newest first: flushed memtables without the parts that have been merged.
    pub runs: Vec<LsmRunStats>,
    /// Levels, from the first down.
    pub levels: Vec<LsmLevelStats>,
    /// The key at which the next merge of the runs begins; empty for the first key.
    pub next_key: Vec<u8>,
    /// The compaction policy while the store is open.
    pub policy: CompactionPolicy,
    /// The most bytes that runs may hold before they are merged.
    pub runs_capacity_bytes: u64,
    /// Writes of sorted runs since the store was opened.
    pub runs_written: LsmWrites,
    /// Entries that merges have taken out of runs since the store was opened.
    pub records_entered: u64,
    /// The learnt state of [`CompactionPolicy::Mixed`]; `None` if this policy has not merged the
    /// index.
    pub learnt: Option<LsmLearnt>,
}

impl fmt::Debug for LsmStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The next key is left out: keys do not belong in logs.
        f.debug_struct("LsmStats")
            .field("runs", &self.runs)
            .field("levels", &self.levels)
            .field("policy", &self.policy)
            .field("runs_capacity_bytes", &self.runs_capacity_bytes)
            .field("runs_written", &self.runs_written)
            .field("records_entered", &self.records_entered)
            .field("learnt", &self.learnt)
            .finish_non_exhaustive()
    }
}

/// The learnt state of [`CompactionPolicy::Mixed`] for an LSM index. It is kept with the index.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct LsmLearnt {
    /// τ of levels 2, 3, … up to the one above the last: a level is merged whole into one that
    /// holds less than this share of what it may.
    pub thresholds: Vec<f64>,
    /// Whether merges into the last level are of whole levels.
    pub last_is_full: bool,
    /// `settling` while a steady state is waited for, `trying` while thresholds are measured,
    /// `learnt` when they have been.
    pub phase: &'static str,
    /// Blocks written per entry that came in, as measured when the thresholds were learnt last.
    pub cost: Option<f64>,
}

/// Writes for a level of an LSM index, or for its runs, since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LsmWrites {
    /// Blocks of data that were written.
    pub blocks_written: u64,
    /// Those of them that were written because too much of the level was empty.
    pub blocks_packed: u64,
    /// Blocks of data that merges into the level left as they were: its own among those merged,
    /// and those that became its own.
    pub blocks_kept: u64,
    /// Bytes of blocks that hold fences.
    pub node_bytes_written: u64,
}

/// A run of an LSM index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LsmRunStats {
    /// Bytes of its blocks, as it was written.
    pub bytes: u64,
    /// Bytes that the run still takes: the rest has been merged and its space freed.
    pub left_bytes: u64,
}

/// A level of an LSM index.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LsmLevelStats {
    /// Blocks of data.
    pub blocks: u64,
    /// Bytes of those blocks.
    pub bytes: u64,
    /// Bytes that they take on the device: each block has its own units of 4 KiB.
    pub space_bytes: u64,
    /// Bytes that the fences to them take, in separate blocks.
    pub fence_bytes: u64,
    /// The key at which the next merge into the level below begins; empty for the first key. Not
    /// used for the last level.
    pub next_key: Vec<u8>,
    /// The most bytes of space that the level may take before it is merged into the next one;
    /// `None` if there is no bound.
    pub capacity_bytes: Option<u64>,
    /// Writes for this level.
    pub written: LsmWrites,
}

impl fmt::Debug for LsmLevelStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The next key is left out: keys do not belong in logs.
        f.debug_struct("LsmLevelStats")
            .field("blocks", &self.blocks)
            .field("bytes", &self.bytes)
            .field("space_bytes", &self.space_bytes)
            .field("fence_bytes", &self.fence_bytes)
            .field("capacity_bytes", &self.capacity_bytes)
            .field("written", &self.written)
            .finish_non_exhaustive()
    }
}

impl LsmLevelStats {
    /// Bytes of the space of the level's blocks that they leave empty.
    #[must_use]
    pub const fn waste_bytes(&self) -> u64 {
        self.space_bytes.saturating_sub(self.bytes)
    }

    /// The share of the space of the level's blocks that they fill; `None` where it has none.
    #[must_use]
    pub fn occupancy(&self) -> Option<f64> {
        super::ratio(self.bytes, self.space_bytes)
    }
}

pub(super) fn of(meta: &IndexMeta, report: Option<MergeReport>) -> Option<LsmStats> {
    let (lsm, report) = (meta.lsm()?, report?);
    let mut levels: Vec<_> = lsm.levels.iter().map(level).collect();
    for (level, capacity) in levels.iter_mut().zip(report.capacity_bytes) {
        level.capacity_bytes = Some(capacity).filter(|capacity| *capacity < u64::MAX);
    }
    for (level, counters) in levels.iter_mut().zip(&report.counters.levels) {
        level.written = writes(counters);
    }
    Some(LsmStats {
        runs: meta.sorted_runs.iter().map(run).collect(),
        levels,
        next_key: lsm.cursor.clone(),
        policy: report.compaction.policy,
        runs_capacity_bytes: report.runs_capacity_bytes,
        runs_written: writes(&report.counters.runs),
        records_entered: report.counters.records_entered,
        learnt: report.learning.as_ref().map(learnt),
    })
}

fn learnt(learning: &Learning) -> LsmLearnt {
    let in_force = learning.thresholds();
    LsmLearnt {
        // All that a level may hold, and more, comes to the same.
        thresholds: in_force.inner.iter().map(|tau| tau.min(1.0)).collect(),
        last_is_full: in_force.is_last_full,
        phase: match learning.phase {
            Phase::Settling { .. } => "settling",
            Phase::Inner { .. } | Phase::LastFull | Phase::LastPartial { .. } => "trying",
            Phase::Learnt => "learnt",
        },
        cost: learning.reference.map(|known| known.cost),
    }
}

fn writes(counters: &LevelCounters) -> LsmWrites {
    let LevelCounters { blocks_written, blocks_packed, blocks_kept, node_bytes_written } =
        *counters;
    LsmWrites { blocks_written, blocks_packed, blocks_kept, node_bytes_written }
}

fn run(run: &TreeMeta) -> LsmRunStats {
    let sectors: u64 = run.levels.iter().map(|level| level.counts.sectors).sum();
    let bytes = sectors.saturating_mul(SECTOR_BYTES);
    let extents = run.levels.iter().flat_map(|level| &level.extents);
    let left: u64 = extents.map(Extent::bytes).sum();
    // Space is given back in whole units: a run that is whole has a little more than its blocks.
    LsmRunStats { bytes, left_bytes: left.min(bytes) }
}

fn level(level: &LsmLevel) -> LsmLevelStats {
    let (blocks, sectors) = level.tree.levels.last().map_or((0, 0), |data| {
        let counts = &data.counts;
        (counts.blocks, counts.sectors)
    });
    LsmLevelStats {
        blocks,
        bytes: sectors.saturating_mul(SECTOR_BYTES),
        space_bytes: level.units.saturating_mul(UNIT_BYTES),
        fence_bytes: level.node_units.saturating_mul(UNIT_BYTES),
        next_key: level.cursor.clone(),
        ..LsmLevelStats::default()
    }
}

#[cfg(test)]
mod tests {
    use esker_format::meta::{KindMeta, LevelCounts, LevelMeta, LsmMeta};

    use super::*;
    use esker_index::lsm::Compaction;
    use esker_index::lsm::counters::Counters;

    fn tree(blocks: u64, sectors: u64, extents: Vec<Extent>) -> TreeMeta {
        let counts = LevelCounts { blocks, sectors, ..LevelCounts::default() };
        let levels = vec![LevelMeta { counts, extents, ..LevelMeta::default() }];
        TreeMeta { levels, ..TreeMeta::default() }
    }

    /// By hand: nine units and a half of ten are full.
    #[test]
    fn what_blocks_leave_empty_is_waste() {
        let tree = tree(10, 76, Vec::new());
        let level = LsmLevel { tree, units: 10, node_units: 1, cursor: b"k".to_vec() };
        let kind = KindMeta::Lsm(Box::new(LsmMeta { levels: vec![level], ..LsmMeta::default() }));
        let report = MergeReport {
            compaction: Compaction::DEFAULT,
            runs_capacity_bytes: 1,
            capacity_bytes: vec![u64::MAX],
            counters: Counters::default(),
            learning: None,
        };
        let stats = of(&IndexMeta { kind, ..IndexMeta::default() }, Some(report)).unwrap();
        let level = &stats.levels[0];
        assert_eq!((level.blocks, level.bytes, level.fence_bytes), (10, 76 * 512, 4096));
        assert_eq!((level.waste_bytes(), level.occupancy()), (4 * 512, Some(0.95)));
        assert_eq!(LsmLevelStats::default().occupancy(), None);
        assert_eq!(of(&IndexMeta::default(), None), None);
    }

    #[test]
    fn a_run_has_no_more_left_than_it_had() {
        let extent = |units| vec![Extent { start: 1, units }];
        let of = |run: &TreeMeta| (super::run(run).bytes, super::run(run).left_bytes);
        assert_eq!(of(&tree(3, 20, extent(3))), (20 * 512, 20 * 512));
        assert_eq!(of(&tree(3, 20, extent(1))), (20 * 512, 4096));
        assert_eq!(of(&tree(3, 20, Vec::new())), (20 * 512, 0));
    }
}
