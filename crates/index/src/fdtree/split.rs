//! Full merges of a keyspace with history: which of them split, and what a split leaves.
//!
//! A full merge that would leave too many superseded entries ([`share`]) becomes two: everything
//! above the bottom is gathered into one level, and then what is live is copied, as of the newest
//! number in the main tree. Runs that were flushed meanwhile take no part: all of their numbers are
//! newer. Where there is only one run or level above the bottom, it takes part in the split as it
//! is.

use esker_format::history::{millionths, of_millionths};
use esker_format::ids::Seq;
use esker_format::meta::{IndexHistory, IndexMeta, LevelMeta, MergeScope, PastIndex, Shape};
use esker_substrate::planted::{self, Bug};

use super::prepare::{self, Incoming, Prepared};
use super::{FdTreeIndex, shape};
use crate::history::share::{self, Load};
use crate::merge::Inputs;
use crate::upkeep::fence_room::FenceRoom;

/// A gather or a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HistoryMerge {
    pub scope: MergeScope,
    /// Sorted runs that it consumes, the oldest ones.
    pub runs: usize,
}

impl FdTreeIndex<'_> {
    /// The share of superseded entries at which full merges split; 1 where they never do.
    fn split_share(&self) -> f64 {
        let share = self.history().map_or(1.0, |history| history.share);
        if self.scheme().tightens() { share } else { 1.0 }
    }

    /// Whether full merges may split.
    pub(super) fn may_split(&self) -> bool {
        self.split_share() < 1.0
    }

    /// The gather or split that begins now, in the place of a full merge where `full` is set, and
    /// else of what is due; `None` where that merge keeps every version in one index.
    pub(super) fn history_merge(&self, durable: &IndexMeta, full: bool) -> Option<HistoryMerge> {
        if !self.may_split() || !has_bottom(durable) {
            return None;
        }
        if durable.history.splits_next {
            return self.split(durable, 0);
        }
        let merges_all = full || self.prepare(durable, false, Incoming::default()).full;
        let replaced = of_millionths(durable.history.replaced_millionths);
        let runs = durable.sorted_runs.len();
        let splits = load(durable, runs).splits(replaced, self.split_share());
        if !merges_all || !(splits || self.must_split()) {
            return None;
        }
        let upper = durable.main.levels.iter().filter(|level| !is_bottom(durable, level));
        let upper = upper.filter(|level| level.counts.data_entries() > 0).count();
        if runs + upper <= 1 {
            return self.split(durable, runs);
        }
        self.split(durable, runs).map(|_| HistoryMerge { scope: MergeScope::Gather, runs })
    }

    /// A split of the main tree and of the oldest `runs` runs, as of the newest number in them;
    /// `None` where all of it is from before the history: no version would be in the past index.
    fn split(&self, durable: &IndexMeta, runs: usize) -> Option<HistoryMerge> {
        let trees = durable.oldest_runs(runs).iter().chain([&durable.main]);
        let levels = trees.flat_map(|tree| &tree.levels);
        let newest = levels.map(|level| level.seqs.1).max().unwrap_or(Seq(0));
        let follows = newest > self.now_from(durable);
        follows.then_some(HistoryMerge { scope: MergeScope::Split(newest), runs })
    }

    /// The plan of such a merge.
    pub(super) fn prepare_history(&self, durable: &IndexMeta, merge: HistoryMerge) -> Prepared {
        let levels = &durable.main.levels;
        let incoming = Incoming::of(durable.oldest_runs(merge.runs));
        let (room, codec) = (self.fence_room(), self.codec());
        if merge.scope == MergeScope::Gather {
            return prepare::gather(levels, incoming, room.kappa0_bytes, durable.shape.t, codec);
        }
        prepare::prepare(&durable.shape, levels, incoming, true, room, self.tree.sizes, codec)
    }

    /// The state of history behind a merge with `inputs` of `durable`, which has left `levels`; and
    /// the shape that follows, where a full merge may choose one.
    pub(super) fn after(
        &self,
        inputs: &Inputs,
        durable: &IndexMeta,
        levels: &[LevelMeta],
    ) -> (IndexHistory, Option<Shape>) {
        let history = durable.history;
        let (entries, dead) = match inputs.scope {
            MergeScope::Upper => return (history, None),
            MergeScope::Gather => return (IndexHistory { splits_next: true, ..history }, None),
            MergeScope::Full | MergeScope::Split(_) => entries_of(levels),
        };
        let load = load(durable, inputs.sorted_runs);
        let splits_at = inputs.scope.splits_at();
        let found = if splits_at.is_some() { load.entries.saturating_sub(entries) } else { dead };
        let replaced = load.replaced(found);
        let assumed = replaced.max(shape::REPLACED_MIN);
        let upper_max = share::upper_max(entries, dead, assumed, self.split_share());
        let data_bytes = levels.iter().map(|level| level.counts.data_bytes()).sum();
        let kappa0_bytes = inputs.shape.kappa0_bytes;
        let room = FenceRoom { kappa0_bytes, ..self.fence_room() };
        let shape = self.tree.sizes.choose_within(data_bytes, room, upper_max);
        let history = IndexHistory {
            from: splits_at.unwrap_or(history.from),
            replaced_millionths: millionths(replaced),
            splits_next: false,
        };
        (history, Some(shape))
    }

    /// What a split with `inputs` leaves of `durable`.
    pub(super) fn past(&self, inputs: &Inputs, durable: &IndexMeta) -> Option<PastIndex> {
        let until = inputs.scope.splits_at()?;
        let removed = self.view().removed.up_to(until);
        Some(PastIndex {
            from: self.now_from(durable),
            until,
            main: durable.main.clone(),
            sorted_runs: durable.oldest_runs(inputs.sorted_runs).to_vec(),
            removed: match planted::is(Bug::PastWithoutRemovals) {
                true => Default::default(),
                false => removed.ranges().cloned().collect(),
            },
        })
    }
}

fn is_bottom(durable: &IndexMeta, level: &LevelMeta) -> bool {
    level.rank == shape::bottom_rank(&durable.shape)
}

fn has_bottom(durable: &IndexMeta) -> bool {
    let bottom = durable.main.levels.last().filter(|level| is_bottom(durable, level));
    bottom.is_some_and(|level| level.counts.data_entries() > 0)
}

/// The most bytes that a split of the main tree and the oldest `runs` runs writes, of `data_bytes`
/// bytes, where superseded entries are as long as others: those not known to be superseded.
pub(super) fn copied_bytes_max(durable: &IndexMeta, runs: usize, data_bytes: u64) -> u64 {
    let load = load(durable, runs);
    let live = load.entries.saturating_sub(load.known_dead);
    let share = live as f64 / load.entries.max(1) as f64;
    let bytes = (data_bytes as f64 * share) as u64;
    bytes.saturating_add(bytes / 64)
}

/// That of the main tree and the oldest `runs` runs.
fn load(durable: &IndexMeta, runs: usize) -> Load {
    Load::of(durable.oldest_runs(runs), &durable.main, |level| is_bottom(durable, level))
}

/// All entries of levels, and the superseded ones among them.
fn entries_of(levels: &[LevelMeta]) -> (u64, u64) {
    let counts = levels.iter().map(|level| level.counts);
    counts.fold((0, 0), |(entries, dead), counts| {
        (entries + counts.data_entries(), dead + share::known_dead(&counts))
    })
}
