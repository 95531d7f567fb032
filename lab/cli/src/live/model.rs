//! The data shown, computed from successive samples, without a clock or a terminal.
//!
//! Invariant: no series is longer than [`WINDOWS_MAX`], however long a run is.
//! Invariant: every share is within 0 to 1.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::time::Duration;

use esker::{KeyspaceStats, Stats};

use super::meter::Window;

/// Half a minute of windows of 100 ms; more than a line of any terminal can show.
const WINDOWS_MAX: usize = 300;
/// The rate is that of the last second.
const RATE_WINDOWS: usize = 10;
/// Sorted runs with a bar of their own; the older ones share one, or two, where a merge reads some.
const RUNS_SHOWN: u64 = 4;

/// Figures of one moment, and what ended since the moment before.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    pub(super) stats: Stats,
    pub(super) writes: Window,
    pub(super) reads: Window,
    pub(super) live_bytes: u64,
    pub(super) elapsed: Duration,
}

/// Everything that the view shows of the store.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) ruler: Ruler,
    pub(super) tree: Tree,
    pub(super) writes: Series,
    pub(super) reads: Series,
    pub(super) figures: Figures,
    /// The most bytes that a bar has ever shown: a scale that does not jump.
    pub(super) scale_bytes: u64,
    merge: Option<Begun>,
    /// The largest memtable that was seen.
    memtable_max_bytes: u64,
}

/// The tree, top down.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tree {
    pub(super) bars: Vec<Bar>,
    pub(super) merging: Option<Compaction>,
    pub(super) flushing: bool,
}

/// One component of the tree.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) part: Part,
    /// The sorted runs that it represents. The store does not report their sizes: each is assumed
    /// to be a full memtable.
    pub(super) runs: Option<RangeInclusive<u64>>,
}

/// The role of a component in a merge under way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Part {
    /// Nothing.
    Unchanged,
    /// It reads it; this share, from the smallest key on, is no longer needed.
    Input(f64),
    /// It writes it; this share is there.
    Output(f64),
}

/// A merge under way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Compaction {
    pub(super) full: bool,
    /// The share of the key space that is read from the new levels.
    pub(super) wavefront: f64,
    /// Bytes written over bytes to merge.
    pub(super) done: f64,
}

/// The state of a merge when it was first seen: sorted runs that came later are not part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Begun {
    merges: u64,
    sorted_runs: u64,
}

/// The last windows, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Series {
    pub(super) windows: VecDeque<Window>,
}

/// Single numbers; none where there is nothing to divide by.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Figures {
    pub(super) elapsed: Duration,
    pub(super) growth: f64,
    pub(super) merges: u64,
    pub(super) written_per_byte: Option<f64>,
    pub(super) space_over_live: Option<f64>,
    pub(super) memory_bytes: u64,
    pub(super) budget_bytes: u64,
    /// The reason for which no merge or no write continues, if so.
    pub(super) trouble: Option<String>,
}

/// The position of a key among all keys.
#[derive(Debug)]
pub(crate) enum Ruler {
    /// Keys are spread evenly over all that eight bytes can say.
    Even,
    /// Some of the keys, sorted, with equally many between each two.
    Sampled(Vec<Vec<u8>>),
}

impl Ruler {
    /// The share of keys at or before this one.
    pub(super) fn share(&self, key: &[u8]) -> f64 {
        match self {
            Self::Even => {
                let mut first = [0; 8];
                first.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
                u64::from_be_bytes(first) as f64 / u64::MAX as f64
            }
            Self::Sampled(keys) => {
                let passed = keys.partition_point(|sampled| sampled.as_slice() <= key);
                share(passed as u64, keys.len() as u64)
            }
        }
    }
}

impl Model {
    pub(super) fn new(ruler: Ruler) -> Self {
        Self {
            ruler,
            tree: Tree::default(),
            writes: Series::default(),
            reads: Series::default(),
            figures: Figures::default(),
            scale_bytes: 0,
            merge: None,
            memtable_max_bytes: 0,
        }
    }

    /// Takes in the next sample. The first keyspace is the one that is shown.
    pub(super) fn observe(&mut self, sample: &Sample) {
        self.writes.push(sample.writes);
        self.reads.push(sample.reads);
        self.figures = Figures::of(sample);
        if let Some(keyspace) = sample.stats.keyspaces.first() {
            self.note_merge(keyspace);
            self.memtable_max_bytes = self.memtable_max_bytes.max(keyspace.memtable_bytes);
            self.tree = self.tree_of(keyspace);
        }
        let bytes = self.tree.bars.iter().map(|bar| bar.bytes);
        self.scale_bytes = bytes.fold(self.scale_bytes, u64::max);
    }

    fn note_merge(&mut self, keyspace: &KeyspaceStats) {
        let (merges, sorted_runs) = (keyspace.merges, keyspace.sorted_runs);
        let known = self.merge.is_some_and(|begun| begun.merges == merges);
        if keyspace.merge.is_none() {
            self.merge = None;
        } else if !known {
            self.merge = Some(Begun { merges, sorted_runs });
        }
    }

    fn tree_of(&self, keyspace: &KeyspaceStats) -> Tree {
        let merging = keyspace.merge.as_ref().map(|merge| Compaction {
            full: merge.full,
            wavefront: merge.wavefront.as_deref().map_or(0.0, |key| self.ruler.share(key)),
            done: share(merge.written_bytes, merge.input_bytes),
        });
        let leaves = merging.map_or(Part::Unchanged, |merging| Part::Input(merging.wavefront));
        let memtable = Bar::new("memtable".to_owned(), keyspace.memtable_bytes, Part::Unchanged);
        let mut bars = vec![memtable];
        self.add_runs(&mut bars, keyspace, leaves);
        let replaced = keyspace.merge.as_ref().map_or(0, |merge| merge.levels);
        let level = |(number, level): (usize, &esker::LevelStats)| {
            let part = if number < replaced { leaves } else { Part::Unchanged };
            Bar::new(level_name(level), level.bytes, part)
        };
        let mut levels = keyspace.levels.iter().enumerate().map(level);
        bars.extend(levels.by_ref().take(replaced));
        if let (Some(merge), Some(merging)) = (&keyspace.merge, merging) {
            let bytes = merge.input_bytes.max(merge.written_bytes);
            bars.push(Bar::new("new".to_owned(), bytes, Part::Output(merging.done)));
        }
        bars.extend(levels);
        Tree { bars, merging, flushing: keyspace.flushing }
    }

    /// Sorted runs, newest first.
    fn add_runs(&self, bars: &mut Vec<Bar>, keyspace: &KeyspaceStats, leaves: Part) {
        let runs = keyspace.sorted_runs;
        let run_bytes = match keyspace.shape.memtable_bytes {
            // The shape is that of the last merge, and there was none.
            0 => self.memtable_max_bytes,
            full => full,
        };
        let merged = self.merge.map_or(0, |begun| begun.sorted_runs.min(runs));
        let part = |run: u64| if run <= merged { leaves } else { Part::Unchanged };
        let bar = |first: u64, last| Bar::of_runs(first..=last, run_bytes, part(first));
        let old = runs.saturating_sub(RUNS_SHOWN);
        bars.extend((old..runs).rev().map(|before| bar(before + 1, before + 1)));
        if merged < old {
            bars.push(bar(merged + 1, old));
        }
        if merged.min(old) > 0 {
            bars.push(bar(1, merged.min(old)));
        }
    }
}

impl Tree {
    /// The bars for a number of rows. If there are fewer rows than bars, adjacent runs that a merge
    /// treats alike share one bar. There may still be more bars than rows.
    pub(super) fn bars_for(&self, rows: usize) -> Vec<Bar> {
        let mut bars = self.bars.clone();
        if bars.len() > rows {
            bars.dedup_by(|older, newer| newer.joined(older));
        }
        bars
    }
}

impl Bar {
    const fn new(name: String, bytes: u64, part: Part) -> Self {
        Self { name, bytes, part, runs: None }
    }

    fn of_runs(runs: RangeInclusive<u64>, run_bytes: u64, part: Part) -> Self {
        let (first, last) = (*runs.start(), *runs.end());
        let name =
            if first == last { format!("run {last}") } else { format!("runs {first}-{last}") };
        let bytes = run_bytes.saturating_mul((last - first).saturating_add(1));
        Self { name, bytes, part, runs: Some(runs) }
    }

    /// Takes in the next older runs, if both are runs and alike.
    fn joined(&mut self, older: &Self) -> bool {
        let (Some(mine), Some(theirs)) = (&self.runs, &older.runs) else { return false };
        if self.part != older.part {
            return false;
        }
        let bytes = self.bytes.saturating_add(older.bytes);
        *self = Self { bytes, ..Self::of_runs(*theirs.start()..=*mine.end(), 0, self.part) };
        true
    }
}

impl Series {
    fn push(&mut self, window: Window) {
        self.windows.push_back(window);
        if self.windows.len() > WINDOWS_MAX {
            self.windows.pop_front();
        }
    }

    /// Operations a second, of the last second.
    pub(super) fn rate(&self) -> f64 {
        let last = || self.windows.iter().rev().take(RATE_WINDOWS);
        let seconds: f64 = last().map(|window| window.seconds).sum();
        let count: u64 = last().map(|window| window.count).sum();
        if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
    }
}

impl Figures {
    fn of(sample: &Sample) -> Self {
        let stats = &sample.stats;
        let keyspace = stats.keyspaces.first();
        let (space, memory) = (&stats.space, &stats.memory);
        let occupied = space.data_file_bytes + space.log_bytes + space.manifest_bytes;
        let stalled = keyspace.and_then(|keyspace| keyspace.stalled.clone());
        Self {
            elapsed: sample.elapsed,
            growth: keyspace.map_or(0.0, |keyspace| keyspace.shape.growth),
            merges: keyspace.map_or(0, |keyspace| keyspace.merges),
            written_per_byte: stats.write_amplification(),
            space_over_live: ratio(occupied, sample.live_bytes),
            memory_bytes: memory.memtable_bytes + memory.fence_bytes + memory.cache_bytes,
            budget_bytes: memory.budget_bytes,
            trouble: stats.poisoned.clone().or(stalled),
        }
    }
}

/// Levels of fences alone share the number of the level that they lead to.
fn level_name(level: &esker::LevelStats) -> String {
    if level.puts + level.tombstones == 0 {
        "fences".to_owned()
    } else {
        format!("level {}", level.rank)
    }
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

fn share(part: u64, whole: u64) -> f64 {
    ratio(part, whole).unwrap_or(0.0).min(1.0)
}
