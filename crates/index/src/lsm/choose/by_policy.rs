//! The thesis's levels: level 0 (the runs) may hold κ0, and level i below it κ0 γ^i. A level that
//! overflows is merged into the next level alone; the policy chooses the part that is merged.
//!
//! The chosen part is merged as consecutive slices; the job remembers its progress. After a crash
//! another part is chosen. While a part is merged nothing else is.
//!
//! When there are more than [`RUNS_SMALL`] runs they are merged whole, regardless of the policy: a
//! lookup asks each of them, and selective policies leave a little of many.

use esker_format::action::KeyRangeBuf;
use esker_format::meta::{IndexMeta, LsmMeta};
use esker_substrate::error::Result;

use super::fences::Fences;
use super::slice::{Cause, Overflow, RUNS_SMALL, Slice, earlier, end_of, level_bytes, runs_bytes};
use crate::lsm::LsmIndex;
use crate::lsm::layout::Layout;
use crate::lsm::policy::sizes::Sizes;
use crate::lsm::policy::{self, Fill, Params, Policy};
use crate::lsm::state::State;

/// The greatest number of levels, regardless of their contents.
const LEVELS_MOST: usize = 24;

/// κ of level i; level 0 are the runs.
pub(in crate::lsm) fn capacity(params: &Params, level: usize, kappa0_bytes: u64) -> u64 {
    let growth = params.gamma.powi(level.min(LEVELS_MOST) as i32);
    // A capacity too large for a u64 becomes the largest u64.
    (kappa0_bytes as f64 * growth) as u64
}

/// The most bytes that the runs, and each level, may hold.
pub(in crate::lsm) fn capacities(
    lsm: &LsmMeta,
    params: &Params,
    kappa0_bytes: u64,
) -> (u64, Vec<u64>) {
    let level = |number| capacity(params, number, kappa0_bytes);
    (level(0), (1..=lsm.levels.len()).map(level).collect())
}

/// The levels that there should be: empty ones are put in above the last until that may hold what
/// it does.
pub(in crate::lsm) fn layout(lsm: &LsmMeta, params: &Params, kappa0_bytes: u64) -> Layout {
    let last_bytes = lsm.levels.last().map_or(0, level_bytes);
    let mut levels = lsm.levels.len().max(1);
    while levels < LEVELS_MOST && last_bytes > capacity(params, levels, kappa0_bytes) {
        levels += 1;
    }
    Layout::above_last(lsm.levels.len(), levels)
}

/// The sizes of these levels.
pub(in crate::lsm) fn sizes(layout: Layout, params: &Params) -> Sizes {
    let levels = layout.levels.saturating_sub(1) as u8;
    Sizes { runs: 1, levels, growth: params.gamma.clamp(2.0, 255.0) as u8 }
}

/// The overflow to merge: the lowest level that overflows, or the runs.
fn due(meta: &IndexMeta, params: &Params, kappa0_bytes: u64) -> Option<(Overflow, Layout)> {
    let lsm = meta.lsm()?;
    let layout = layout(lsm, params, kappa0_bytes);
    for number in (0..layout.levels - 1).rev() {
        let level = layout.standing(number).and_then(|standing| lsm.levels.get(standing));
        let bytes = level.map_or(0, level_bytes);
        if bytes > capacity(params, number + 1, kappa0_bytes) {
            return Some((Overflow::Level(number), layout));
        }
    }
    let is_much = runs_bytes(meta) > capacity(params, 0, kappa0_bytes);
    (is_much || has_many_runs(meta)).then_some((Overflow::Runs, layout))
}

fn has_many_runs(meta: &IndexMeta) -> bool {
    meta.sorted_runs.len() > RUNS_SMALL
}

/// Whether something is to be merged.
pub(in crate::lsm) fn is_due(meta: &IndexMeta, params: &Params, kappa0_bytes: u64) -> bool {
    due(meta, params, kappa0_bytes).is_some()
}

/// Whether that many more full memtables in runs exceed the limit.
pub(in crate::lsm) fn is_behind(meta: &IndexMeta, kappa0_bytes: u64, memtables: u64) -> bool {
    runs_bytes(meta) > kappa0_bytes.saturating_mul(1 + memtables)
}

/// A part of a level, or of the runs, that is being merged into the next level.
#[derive(Clone, Debug)]
pub(in crate::lsm) struct Part {
    pub overflow: Overflow,
    /// The rest of its keys.
    keys: KeyRangeBuf,
    layout: Layout,
    /// Whether something of it has been merged.
    is_begun: bool,
}

impl Part {
    /// The rest after one of its slices is done, if anything is left.
    pub fn after(self, slice: &Slice) -> Option<Self> {
        let begin = slice.keys.end.clone()?;
        let is_left = self.keys.end.as_ref().is_none_or(|end| begin < *end);
        let keys = KeyRangeBuf { begin, ..self.keys };
        is_left.then_some(Self { keys, is_begun: true, ..self })
    }
}

impl LsmIndex<'_> {
    /// The part that is merged next; `None` when nothing overflows.
    pub(in crate::lsm) fn next_part(&self, state: &State) -> Result<Option<Part>> {
        let (kappa0_bytes, params) = (self.kappa0_bytes(), &self.lsm.compaction.params);
        let Some((overflow, layout)) = due(&state.durable, params, kappa0_bytes) else {
            return Ok(None);
        };
        let number = match overflow {
            Overflow::Level(number) => number + 1,
            Overflow::Runs => 0,
        };
        let standing = |number: usize| layout.standing(number);
        let upper = match number.checked_sub(1).map(standing) {
            None => Fences::of_runs(self.reader(), &state.runs)?,
            Some(level) => self.fences_of(state, level)?,
        };
        let bytes = standing(number).and_then(|level| state.level(level)).map_or(0, level_bytes);
        let below = Fill { bytes, capacity_bytes: capacity(params, number + 1, kappa0_bytes) };
        let learnt = self.thresholds(state.lsm());
        let is_many = number == 0 && has_many_runs(&state.durable);
        let policy = self.lsm.compaction.policy;
        let policy = if is_many { Policy::Full } else { policy };
        let policy = policy.comes_to(number, layout.levels, below, &learnt);
        let lower = match policy {
            Policy::ChooseBest => self.fences_of(state, standing(number))?,
            _ => Fences::default(),
        };
        let level = number.checked_sub(1).and_then(standing).and_then(|level| state.level(level));
        let choice = policy::choose(
            policy,
            params,
            &learnt,
            &policy::Overflow {
                level: number,
                last: layout.levels,
                upper: &upper,
                capacity_bytes: capacity(params, number, kappa0_bytes),
                lower: &lower,
                below,
                cursor: Some(level.map_or(&state.lsm().cursor, |level| &level.cursor)),
            },
        );
        let part = |choice: policy::Choice| {
            let keys = KeyRangeBuf { begin: choice.from, end: choice.to };
            Part { overflow, keys, layout, is_begun: false }
        };
        Ok(choice.map(part))
    }

    /// The blocks of an existing level; none for a level that is being put in.
    fn fences_of(&self, state: &State, level: Option<usize>) -> Result<Fences> {
        match level.and_then(|level| state.levels.get(level)) {
            Some(tree) => Fences::of_level(self.reader(), tree),
            None => Ok(Fences::default()),
        }
    }

    /// The next slice of a part.
    pub(in crate::lsm) fn slice_of_part(&self, state: &State, part: &Part) -> Result<Slice> {
        let Part { overflow, keys, .. } = part;
        let layout = Layout::above_last(state.levels.len(), part.layout.levels);
        let runs = *overflow == Overflow::Runs;
        let (from, depth) = match *overflow {
            Overflow::Level(number) => (number, number + 1),
            Overflow::Runs => (0, 0),
        };
        let blocks = self.slice_blocks();
        let level = if runs { None } else { layout.standing(from) };
        let level = level.and_then(|level| state.levels.get(level));
        let trees = state.runs.iter().map(|run| &run.tree).filter(|_| runs).chain(level);
        let end = end_of(trees, self.reader(), &keys.begin, blocks)?;
        let end = earlier(end, keys.end.clone());
        let (is_first, is_last) = (!part.is_begun, end == keys.end);
        let keys = KeyRangeBuf { begin: keys.begin.clone(), end };
        let sizes = Some(sizes(layout, &self.lsm.compaction.params));
        let done = keys.clone();
        let cause = Cause::Overflow(*overflow);
        Ok(Slice { cause, runs, from, depth, keys, done, layout, sizes, is_first, is_last })
    }
}
