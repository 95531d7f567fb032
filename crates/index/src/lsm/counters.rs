//! Counters of what merges have written since the index was opened.

use super::layout::Layout;

/// Counters for one level, or for all runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelCounters {
    /// Blocks of data that were written.
    pub blocks_written: u64,
    /// Those of them that were written to pack the level.
    pub blocks_packed: u64,
    /// Blocks of data that a merge met, or brought, and left as they were.
    pub blocks_kept: u64,
    /// Bytes of blocks of fences.
    pub node_bytes_written: u64,
}

/// Counters for an LSM index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Entries that merges have taken out of runs.
    pub records_entered: u64,
    /// For runs.
    pub runs: LevelCounters,
    /// For each level, from the first down.
    pub levels: Vec<LevelCounters>,
}

/// The work of a slice.
#[derive(Debug)]
pub(super) struct Work {
    pub layout: Layout,
    /// Entries that it has taken out of runs.
    pub entered: u64,
    /// By the number of the level.
    pub levels: Vec<(usize, LevelCounters)>,
}

impl LevelCounters {
    fn add(&mut self, other: &Self) {
        self.blocks_written += other.blocks_written;
        self.blocks_packed += other.blocks_packed;
        self.blocks_kept += other.blocks_kept;
        self.node_bytes_written += other.node_bytes_written;
    }
}

impl Counters {
    /// A run was written.
    pub(super) fn add_run(&mut self, run: &LevelCounters) {
        self.runs.add(run);
    }

    /// A slice is done.
    pub(super) fn add(&mut self, work: &Work) {
        // Nothing has been counted of levels that stood when the index was opened.
        self.levels.resize_with(work.layout.before, LevelCounters::default);
        work.layout.put_in(&mut self.levels, LevelCounters::default);
        self.records_entered += work.entered;
        for (number, counters) in &work.levels {
            if let Some(level) = self.levels.get_mut(*number) {
                level.add(counters);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: a level is put in above the last one, which keeps its own counters.
    #[test]
    fn what_levels_have_cost_goes_with_them() {
        let of = |blocks_written| LevelCounters { blocks_written, ..LevelCounters::default() };
        let work = |layout, number, blocks| {
            let levels = vec![(number, of(blocks))];
            Work { layout, entered: 10, levels }
        };
        let mut counters = Counters::default();
        counters.add(&work(Layout::above_last(2, 2), 1, 5));
        counters.add(&work(Layout::above_last(2, 3), 1, 7));
        counters.add(&work(Layout::above_last(3, 3), 2, 1));
        counters.add_run(&of(3));
        assert_eq!(counters.levels, [of(0), of(7), of(6)]);
        assert_eq!((counters.runs, counters.records_entered), (of(3), 30));
    }
}
