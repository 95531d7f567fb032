//! The record of a slice, and what readers see after it.

use std::sync::Arc;

use esker_format::ids::Seq;
use esker_format::meta::{IndexMeta, KindMeta, LsmLevel};
use esker_format::ptr::Extent;
use esker_substrate::planted::{self, Bug};

use super::{Changed, Made, Outcome, Spent};
use crate::kind::context::KindContext;
use crate::lsm::choose::pull::shape_of;
use crate::lsm::choose::slice::{Cause, Overflow, Slice};
use crate::lsm::counters::{LevelCounters, Work};
use crate::lsm::input::joined;
use crate::lsm::kind::LsmIndex;
use crate::lsm::nodes;
use crate::lsm::output::Output;
use crate::lsm::state::State;
use crate::merge::delete;
use crate::read::source::{Part, Run};
use crate::read::view::View;
use crate::record::Change;
use crate::run::numbers::Numbers;
use crate::run::tree::Tree;
use crate::upkeep::values::Moved;

/// A slice that is merged and not recorded.
pub(super) struct Merging<'a> {
    index: LsmIndex<'a>,
    state: &'a State,
    slice: &'a Slice,
    runs: Vec<Spent>,
    made: Made,
    /// Nodes that were written and are not part of a tree after all.
    unused: Vec<Extent>,
    work: Work,
    /// Entries that were read and are not there any more.
    dropped: u64,
}

impl<'a> Merging<'a> {
    pub fn new(index: LsmIndex<'a>, state: &'a State, slice: &'a Slice, outcome: Outcome) -> Self {
        let fresh: Vec<_> = outcome.taken().collect();
        let freed: Vec<_> = outcome.freed().copied().collect();
        let Outcome { runs, mut made, entered, dropped } = outcome;
        let old = delete::without(&freed, &fresh);
        let unused = delete::without(&freed, &old);
        let kept = delete::without(&fresh, &unused);
        let moved = runs.iter().flat_map(|spent| &spent.moved).copied();
        let taken = joined(kept.into_iter().chain(moved));
        made.values.change_blocks(taken, joined(old.iter().copied()));
        let work = work_of(slice, entered, &made.changed);
        Self { index, state, slice, runs, made, unused, work, dropped }
    }
}

impl Change for Merging<'_> {
    fn apply(&mut self, durable: &IndexMeta) -> (IndexMeta, Vec<Extent>) {
        let mut meta = durable.clone();
        let newer = meta.sorted_runs.len().saturating_sub(self.runs.len());
        let rest = note_in(&mut meta, newer, self.slice, &self.runs, &self.made.changed);
        self.index.learn(&mut meta, self.slice, &self.work);
        meta.merges += 1;
        if let Some(sizes) = self.slice.sizes {
            meta.shape = shape_of(sizes, self.index.kappa0_bytes());
        }
        let freed = self.runs.iter().flat_map(|spent| &spent.freed).copied();
        let freed = joined(freed.chain(self.unused.iter().copied()).chain(rest));
        (meta, freed)
    }

    fn values(&mut self) -> &mut Moved {
        &mut self.made.values
    }

    fn keep_space(&mut self) {
        self.made.outputs.iter_mut().for_each(Output::keep);
        nodes::keep(&mut self.made.nodes);
    }

    fn note(&mut self, meta: &IndexMeta) {
        let lsm = &self.index.lsm;
        lsm.counters.lock().add(&self.work);
        let entries = run_entries(&self.state.durable);
        lsm.replaced.lock().note(self.work.entered, self.dropped, entries);
        if let Some(after) = meta.lsm() {
            // Before a caller can ask of this state whether a level is to be packed.
            lsm.packing.lock().note(self.slice, self.state.lsm(), after);
        }
    }

    fn publish(&mut self, context: KindContext<'_>, _: &IndexMeta) {
        let levels = self.state.lsm().levels.len();
        let changed = std::mem::take(&mut self.made.changed);
        context.publish(|view| with_slice(view, levels, &self.runs, changed, self.slice));
    }
}

/// Range tombstones of which nothing is left that they hide.
pub(super) struct Retiring {
    up_to: Seq,
    values: Moved,
}

impl Retiring {
    pub fn up_to(up_to: Seq) -> Self {
        Self { up_to, values: Moved::default() }
    }
}

impl Change for Retiring {
    fn apply(&mut self, durable: &IndexMeta) -> (IndexMeta, Vec<Extent>) {
        (durable.clone(), Vec::new())
    }

    fn values(&mut self) -> &mut Moved {
        &mut self.values
    }

    fn retired(&self) -> Seq {
        self.up_to
    }

    fn publish(&mut self, context: KindContext<'_>, _: &IndexMeta) {
        context.publish(|view| view.with_removed(view.removed.above(self.up_to)));
    }
}

/// The work that a slice has done, of which its levels were packed where it packs.
fn work_of(slice: &Slice, entered: u64, changed: &[Changed]) -> Work {
    let work = |level: &Changed| {
        let packed = if slice.packs() { level.work.blocks_written } else { 0 };
        (level.number, LevelCounters { blocks_packed: packed, ..level.work })
    };
    Work { layout: slice.layout, entered, levels: changed.iter().map(work).collect() }
}

/// Entries of all runs.
fn run_entries(meta: &IndexMeta) -> u64 {
    let data = meta.sorted_runs.iter().filter_map(|run| run.levels.last());
    data.map(|data| data.counts.data_entries()).sum()
}

/// Notes a slice in the index's state; returns the space of runs that are merged whole.
fn note_in(
    meta: &mut IndexMeta,
    newer: usize,
    slice: &Slice,
    runs: &[Spent],
    changed: &[Changed],
) -> Vec<Extent> {
    let KindMeta::Lsm(lsm) = &mut meta.kind else { return Vec::new() };
    slice.layout.put_in(&mut lsm.levels, LsmLevel::default);
    for level in changed {
        if let Some(place) = lsm.levels.get_mut(level.number) {
            place.clone_from(&level.level);
        }
    }
    let cursor = match slice.cause {
        Cause::Overflow(Overflow::Runs) => Some(&mut lsm.cursor),
        Cause::Overflow(Overflow::Level(_)) => {
            let level = slice.depth.checked_sub(1).and_then(|above| lsm.levels.get_mut(above));
            level.map(|level| &mut level.cursor)
        }
        Cause::Everything | Cause::Scanned | Cause::Waste { .. } => None,
    };
    if let Some(cursor) = cursor {
        *cursor = slice.done.end.clone().unwrap_or_default();
    }
    let mut rest = Vec::new();
    for (number, Spent { run, freed, moved }) in runs.iter().enumerate().rev() {
        let at = newer + number;
        let (Some(flush), Some(gone)) = (meta.sorted_runs.get_mut(at), lsm.gone.get_mut(at)) else {
            continue;
        };
        if let Some(data) = flush.levels.last_mut() {
            data.extents = delete::without(&data.extents, &[freed.as_slice(), moved].concat());
        }
        if !planted::is(Bug::GoneNotRecorded) {
            *gone = run.consumed.ranges().to_vec();
        }
        if run.consumed.is_everything() {
            rest.extend(meta.sorted_runs.remove(at).extents().copied());
            lsm.gone.remove(at);
        }
    }
    rest
}

/// The sequence numbers in a level.
fn numbers_of(level: &Part) -> Numbers {
    let tree = Run::of(level).map(|run| &run.tree);
    let data = tree.and_then(|tree| Some((tree, tree.height().checked_sub(1)?)));
    data.map_or_else(Numbers::default, |(tree, level)| tree.numbers(level).into_owned())
}

/// A view after a slice, which began with that many levels.
fn with_slice(
    view: &View,
    old_levels: usize,
    runs: &[Spent],
    changed: Vec<Changed>,
    slice: &Slice,
) -> View {
    let newer = view.parts.len().saturating_sub(runs.len() + old_levels);
    let (newer, rest) = view.parts.split_at_checked(newer).unwrap_or_default();
    let mut levels = rest.get(runs.len()..).unwrap_or_default().to_vec();
    slice.layout.put_in(&mut levels, || Run::whole(Arc::default()));
    for Changed { number, level, top, newest, .. } in changed {
        if let Some(place) = levels.get_mut(number) {
            let numbers = numbers_of(place).with(&slice.done, newest);
            let tree = Tree::level(Arc::new(level.tree), top).with_numbers(numbers);
            *place = Run::whole(Arc::new(tree));
        }
    }
    let left = runs.iter().filter(|spent| !spent.run.consumed.is_everything());
    let runs = left.map(|spent| Arc::new(spent.run.clone()) as Part);
    let parts = newer.iter().cloned().chain(runs).chain(levels).collect();
    view.with_parts(Arc::clone(&view.memtable), parts)
}
