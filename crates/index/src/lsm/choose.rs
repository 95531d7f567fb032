//! The choice of the level and the keys that are merged next.

use esker_format::action::KeyRangeBuf;
use esker_format::ids::Seq;
use esker_format::meta::{IndexMeta, LsmLevel, LsmMeta, Shape, TreeMeta};
use esker_format::ptr::{Extent, UNIT_BYTES};
use esker_substrate::error::Result;
use esker_substrate::sync::atomic::Ordering;

use std::sync::Arc;

use super::LsmIndex;
use super::by_policy;
use super::layout::Layout;
use super::policy::Policy;
use super::policy::sizes::{self, Sizes};
use super::state::{Run, State};
use crate::run::cursor::{FenceCursor, Target};
use crate::run::tree::{BlockReader, Tree};

/// Blocks that a slice takes of one run or level: those of two full memtables, within these bounds.
/// Each slice writes the nodes that lead to its blocks, and a record.
const SLICE_BLOCKS: (u64, u64) = (4, 1024);
/// The number of runs that may exist, however small, beyond three times those that the sizes have;
/// as merges go round the keys, twice that number are partially merged.
pub(super) const RUNS_SMALL: usize = 8;
/// The number of full memtables that writers may be ahead of merges.
pub(super) const RUNS_AHEAD: u64 = 6;
/// Other sizes must write less than this share of what those in force write before they replace
/// them.
const WORTH_CHANGING: f64 = 0.95;

/// Properties of the incoming data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Arrivals {
    /// κ0, what a full memtable brings, in bytes.
    pub kappa0_bytes: u64,
    /// The share of it that replaces or deletes something.
    pub replaced: f64,
}

/// The overflow, which determines where a slice begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overflow {
    /// The runs.
    Runs,
    /// This level, by its number among those that the slice leaves.
    Level(usize),
}

/// The cause of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Something overflows.
    Overflow(Overflow),
    /// Everything is merged.
    Everything,
    /// Too much of a level is empty: this many units of it are packed.
    Waste { level: usize, units: u64 },
}

/// A slice of the keys: of all runs and the first levels, merged into the next level (Pull: keys in
/// newer levels are included).
#[derive(Clone, Debug)]
pub(super) struct Slice {
    pub cause: Cause,
    /// Whether keys are taken out of the runs.
    pub runs: bool,
    /// The first of the levels that are merged into the one at `depth`, and all behind it are.
    pub from: usize,
    pub depth: usize,
    /// The keys that are merged.
    pub keys: KeyRangeBuf,
    /// The keys that are done afterwards: `keys`, and keys before them that no run has.
    pub done: KeyRangeBuf,
    /// The levels that there are then.
    pub layout: Layout,
    /// The sizes in force from then on; `None` when they stay as they are.
    pub sizes: Option<Sizes>,
    /// Whether it is the first slice of what was chosen together, and whether it is the last.
    pub is_first: bool,
    pub is_last: bool,
}

impl Slice {
    /// Nothing stays as it is, because everything is to be looked at.
    pub fn is_full(&self) -> bool {
        self.cause == Cause::Everything
    }

    /// Whether a level is packed, and nothing merged into it.
    pub fn packs(&self) -> bool {
        matches!(self.cause, Cause::Waste { .. })
    }

    /// Whether no block stays as it is.
    pub fn opens_all(&self) -> bool {
        self.packs() || (self.is_full() && self.depth + 1 >= self.layout.levels)
    }
}

/// The progress of a full job: up to this key.
#[derive(Debug, Default)]
pub(super) struct Pass {
    done: Option<KeyRangeBuf>,
}

impl Pass {
    /// A slice is done.
    pub fn advance(&mut self, slice: &Slice) {
        self.done = Some(slice.done.clone());
    }
}

/// Bytes of blocks of a run that are left.
fn run_bytes(run: &TreeMeta) -> u64 {
    run.levels.iter().flat_map(|level| &level.extents).map(Extent::bytes).sum()
}

/// Bytes of all runs' blocks.
pub(super) fn runs_bytes(meta: &IndexMeta) -> u64 {
    meta.sorted_runs.iter().map(run_bytes).sum()
}

/// Bytes of a level's blocks.
pub(super) const fn level_bytes(level: &LsmLevel) -> u64 {
    level.units.saturating_mul(UNIT_BYTES)
}

/// The sizes of levels: those in force, unless others write less by enough, or those in force allow
/// too much garbage.
fn sizes(meta: &IndexMeta, lsm: &LsmMeta, arrivals: &Arrivals) -> Sizes {
    let Arrivals { kappa0_bytes, replaced } = *arrivals;
    let data_bytes = lsm.levels.last().map_or(0, level_bytes);
    let best = sizes::choose(data_bytes, kappa0_bytes, replaced);
    let Shape { b_quarters, k, t, .. } = meta.shape;
    let force = Sizes { runs: t, levels: k, growth: (b_quarters / 4).clamp(2, 16) as u8 };
    let ratio = data_bytes as f64 / kappa0_bytes.max(1) as f64;
    let cost = |sizes: &Sizes| sizes::cost(sizes, ratio, replaced);
    let stays =
        t > 0 && force.is_within(ratio, replaced) && cost(&force) * WORTH_CHANGING <= cost(&best);
    if stays { force } else { best }
}

/// The sizes, as a shape.
pub(super) fn shape_of(sizes: Sizes, kappa0_bytes: u64) -> Shape {
    let b_quarters = u16::from(sizes.growth) * 4;
    Shape { b_quarters, k: sizes.levels, t: sizes.runs, kappa0_bytes }
}

/// The number of levels beyond those that the sizes have: the first ones, which take nothing.
fn surplus(lsm: &LsmMeta, sizes: &Sizes) -> usize {
    lsm.levels.len().saturating_sub(usize::from(sizes.levels) + 1)
}

/// The overflow to merge, when no full merge is asked for: the lowest level that overflows, or the
/// runs. Levels are numbered by their position among those that exist.
fn due(meta: &IndexMeta, arrivals: &Arrivals) -> Option<(Overflow, Sizes)> {
    let lsm = meta.lsm.as_deref()?;
    let kappa0_bytes = arrivals.kappa0_bytes;
    let sizes = sizes(meta, lsm, arrivals);
    let inner = lsm.levels.len().saturating_sub(1);
    for (number, level) in lsm.levels.iter().take(inner).enumerate().rev() {
        if level_bytes(level) > capacity_of(lsm, &sizes, number, kappa0_bytes) {
            return Some((Overflow::Level(number), sizes));
        }
    }
    let runs = runs_bytes(meta);
    let is_much = runs > sizes.capacity_bytes(0, kappa0_bytes);
    let is_many = meta.sorted_runs.len() > RUNS_SMALL + 3 * usize::from(sizes.runs);
    (is_much || is_many).then_some((Overflow::Runs, sizes))
}

/// The most bytes that level number `number` may hold; of one too many, nothing.
fn capacity_of(lsm: &LsmMeta, sizes: &Sizes, number: usize, kappa0_bytes: u64) -> u64 {
    let inner = lsm.levels.len().saturating_sub(1);
    if number >= inner {
        u64::MAX
    } else if number < surplus(lsm, sizes) {
        0
    } else {
        sizes.capacity_bytes(rank_of(sizes, inner, number), kappa0_bytes)
    }
}

/// The most bytes that the runs, and each level, may hold.
pub(super) fn capacities(meta: &IndexMeta, lsm: &LsmMeta, arrivals: &Arrivals) -> (u64, Vec<u64>) {
    let kappa0_bytes = arrivals.kappa0_bytes;
    let sizes = sizes(meta, lsm, arrivals);
    let level = |number| capacity_of(lsm, &sizes, number, kappa0_bytes);
    (sizes.capacity_bytes(0, kappa0_bytes), (0..lsm.levels.len()).map(level).collect())
}

/// The rank of level number `number` of `inner` above the last, by the sizes: the last of them has
/// the greatest.
fn rank_of(sizes: &Sizes, inner: usize, number: usize) -> u8 {
    let below = inner.saturating_sub(number + 1);
    sizes.levels.saturating_sub(below.min(255) as u8)
}

/// Whether something is to be merged.
pub(super) fn is_due(meta: &IndexMeta, arrivals: &Arrivals) -> bool {
    due(meta, arrivals).is_some()
}

/// Whether that many more full memtables in runs exceed the limit.
pub(super) fn is_behind(meta: &IndexMeta, arrivals: &Arrivals, memtables: u64) -> bool {
    let Some(lsm) = meta.lsm.as_deref() else { return false };
    let kappa0_bytes = arrivals.kappa0_bytes;
    let standing = sizes(meta, lsm, arrivals).capacity_bytes(0, kappa0_bytes);
    runs_bytes(meta) > standing.saturating_add(memtables.saturating_mul(kappa0_bytes))
}

/// Blocks that a slice takes of one run or level.
fn slice_blocks(kappa0_bytes: u64) -> u64 {
    (2 * kappa0_bytes / UNIT_BYTES).clamp(SLICE_BLOCKS.0, SLICE_BLOCKS.1)
}

impl LsmIndex<'_> {
    /// Blocks that the next slice takes of one run or level: fewer where there is little space.
    pub(super) fn slice_blocks(&self) -> u64 {
        let halvings = self.lsm.halvings.load(Ordering::Relaxed);
        (slice_blocks(self.kappa0_bytes()) >> halvings.min(u64::BITS - 1)).max(1)
    }

    /// A slice found no space: the next one is to be half as large. False when it was the smallest.
    pub(super) fn halve_slices(&self) -> bool {
        if self.slice_blocks() == 1 {
            return false;
        }
        self.lsm.halvings.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// A slice found space: the next one may be twice as large.
    pub(super) fn double_slices(&self) {
        let less = |halvings: u32| halvings.checked_sub(1);
        let _none_left = self.lsm.halvings.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// The incoming data, as far as it is known.
    pub(super) fn arrivals(&self) -> Arrivals {
        let replaced = self.lsm.replaced.lock().share();
        Arrivals { kappa0_bytes: self.kappa0_bytes(), replaced }
    }

    /// The next slice of everything; `None` when that is done.
    pub(super) fn slice_of_all(&self, state: &State, pass: &Pass) -> Result<Option<Slice>> {
        let begin = match &pass.done {
            None => Vec::new(),
            Some(KeyRangeBuf { end: Some(end), .. }) => end.clone(),
            Some(KeyRangeBuf { end: None, .. }) => return Ok(None),
        };
        let (lsm, kappa0_bytes) = (state.lsm(), self.kappa0_bytes());
        let levels = if self.lsm.compaction.policy == Policy::Pull {
            let sizes = sizes(&state.durable, lsm, &self.arrivals());
            let levels = lsm.levels.len().max(usize::from(sizes.levels) + 1);
            (Layout::above_all(lsm.levels.len(), levels), sizes)
        } else {
            let layout = by_policy::layout(lsm, &self.lsm.compaction.params, kappa0_bytes);
            (layout, by_policy::sizes(layout, &self.lsm.compaction.params))
        };
        self.slice_from(state, None, levels, &begin).map(Some)
    }

    /// The next slice of what overflows; `None` when nothing does.
    pub(super) fn slice_to_pull(&self, state: &State) -> Result<Option<Slice>> {
        let Some((overflow, sizes)) = due(&state.durable, &self.arrivals()) else {
            return Ok(None);
        };
        let cursor = match overflow {
            Overflow::Level(number) => state.level(number).map(|level| level.cursor.as_slice()),
            Overflow::Runs => None,
        };
        let cursor = cursor.unwrap_or(&state.lsm().cursor);
        let levels = state.levels.len().max(usize::from(sizes.levels) + 1);
        let layout = Layout::above_all(state.levels.len(), levels);
        let overflow = match overflow {
            Overflow::Level(number) => Overflow::Level(number + layout.missing()),
            other => other,
        };
        self.slice_from(state, Some(overflow), (layout, sizes), cursor).map(Some)
    }

    /// The keys from `cursor` on, enough for a slice of what overflows; `None`: of everything.
    fn slice_from(
        &self,
        state: &State,
        overflow: Option<Overflow>,
        (layout, sizes): (Layout, Sizes),
        cursor: &[u8],
    ) -> Result<Slice> {
        let reader = &self.reader;
        let levels = layout.levels;
        let depth = match overflow {
            Some(Overflow::Runs) => levels - usize::from(sizes.levels) - 1,
            Some(Overflow::Level(number)) => number + 1,
            None => levels - 1,
        };
        let begin = match overflow {
            Some(Overflow::Runs) if depth == 0 => first_left(&state.runs, reader, cursor)?,
            _ => Some(cursor.to_vec()),
        };
        let (begin, end) = match begin {
            // No run has any of the keys that are left.
            None => (cursor.to_vec(), None),
            Some(begin) => {
                let taken = (depth + 1).saturating_sub(layout.missing());
                let blocks = self.slice_blocks();
                let trees = state.runs.iter().map(|run| &run.tree);
                let trees = trees.chain(state.levels.iter().take(taken));
                let end = end_of(trees, reader, &begin, blocks)?;
                (begin, end)
            }
        };
        Ok(Slice {
            cause: overflow.map_or(Cause::Everything, Cause::Overflow),
            runs: true,
            from: 0,
            depth,
            done: KeyRangeBuf { begin: cursor.to_vec(), end: end.clone() },
            keys: KeyRangeBuf { begin, end },
            layout,
            sizes: Some(sizes),
            is_first: true,
            is_last: true,
        })
    }
}

/// The latest end of a slice: where one of its sources has passed a given number of blocks.
pub(super) fn end_of<'a>(
    trees: impl Iterator<Item = &'a Arc<Tree>>,
    reader: &BlockReader,
    begin: &[u8],
    blocks: u64,
) -> Result<Option<Vec<u8>>> {
    let mut end: Option<Vec<u8>> = None;
    for tree in trees {
        end = earlier(end, bound(tree, reader, begin, blocks, |_| Ok(()))?);
    }
    Ok(end)
}

/// The lesser of two keys, where `None` is behind all.
pub(super) fn earlier(a: Option<Vec<u8>>, b: Option<Vec<u8>>) -> Option<Vec<u8>> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// The least key at or behind `from` that a run may have.
fn first_left(runs: &[Run], reader: &BlockReader, from: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut first: Option<Vec<u8>> = None;
    for run in runs {
        let Some(level) = run.tree.height().checked_sub(1) else { continue };
        let mut next = FenceCursor::find(&run.tree, reader, level, Target::At(from, Seq::MAX))?;
        while let Some(at) = next {
            let fence = at.owned()?;
            next = at.next()?;
            let behind = next.as_ref().map(FenceCursor::owned).transpose()?;
            let upper = behind.as_ref().map(|behind| behind.key.as_slice());
            let begin = fence.key.as_slice().max(from);
            if first.as_ref().is_some_and(|first| first.as_slice() <= begin) {
                break;
            }
            let is_empty = upper.is_some_and(|upper| upper < begin)
                || behind.as_ref().is_some_and(|b| b.key == begin && b.seq == Seq::MAX);
            let upper = behind.as_ref().map(|behind| (behind.key.as_slice(), behind.seq));
            if !is_empty && !run.gone.has_block(begin, upper) {
                // The consumed part of the block ends within it.
                let behind = run.gone.at(begin).and_then(|gone| gone.end);
                let begin = behind.unwrap_or(begin);
                if first.as_ref().is_none_or(|first| begin < first.as_slice()) {
                    first = Some(begin.to_vec());
                }
                break;
            }
        }
    }
    Ok(first)
}

/// The key at which a given number of blocks of a run or level have been passed, if there are as
/// many; `pass` is called for each of them.
pub(super) fn bound(
    tree: &Tree,
    reader: &BlockReader,
    begin: &[u8],
    blocks: u64,
    mut pass: impl FnMut(&FenceCursor<'_>) -> Result<()>,
) -> Result<Option<Vec<u8>>> {
    let Some(level) = tree.height().checked_sub(1) else { return Ok(None) };
    let mut next = FenceCursor::find(tree, reader, level, Target::At(begin, Seq::MAX))?;
    let mut passed = 0;
    while let Some(at) = next {
        if passed >= blocks {
            let fence = at.owned()?;
            if fence.seq == Seq::MAX && fence.key.as_slice() > begin {
                return Ok(Some(fence.key));
            }
        }
        pass(&at)?;
        passed += 1;
        next = at.next()?;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_format::meta::LevelMeta;

    fn index(levels: &[u64], runs: u64) -> IndexMeta {
        let level = |units: &u64| LsmLevel { units: *units, ..LsmLevel::default() };
        let lsm = LsmMeta { levels: levels.iter().map(level).collect(), ..LsmMeta::default() };
        let extents = vec![Extent { start: 0, units: runs }];
        let data = LevelMeta { extents, ..LevelMeta::default() };
        let sorted_runs = vec![TreeMeta { levels: vec![data], ..TreeMeta::default() }];
        IndexMeta { lsm: Some(Box::new(lsm)), sorted_runs, ..IndexMeta::default() }
    }

    const KAPPA0: u64 = 10 * UNIT_BYTES;
    const OVERWRITES: Arrivals = Arrivals { kappa0_bytes: KAPPA0, replaced: 1.0 };

    /// By hand: over 1,000 units there may be 11 runs and a level of 22 memtables.
    #[test]
    fn the_lowest_level_that_overflows_is_merged_first() {
        let overflows =
            |levels: &[u64], runs| due(&index(levels, runs), &OVERWRITES).map(|due| due.0);
        assert_eq!(overflows(&[1000], 110), None);
        assert_eq!(overflows(&[1000], 111), Some(Overflow::Runs));
        assert_eq!(overflows(&[220, 1000], 111), Some(Overflow::Runs));
        assert_eq!(overflows(&[221, 1000], 111), Some(Overflow::Level(0)));
        assert_eq!(overflows(&[0, 220, 1000], 110), None, "the first is one too many");
        assert_eq!(overflows(&[1, 220, 1000], 110), Some(Overflow::Level(0)));
        assert_eq!(overflows(&[1, 221, 1000], 110), Some(Overflow::Level(1)));
    }

    #[test]
    fn sizes_stay_while_they_are_nearly_the_best() {
        let mut index = index(&[1000], 0);
        let sizes = |index: &IndexMeta| sizes(index, index.lsm.as_deref().unwrap(), &OVERWRITES);
        assert_eq!(sizes(&index), Sizes { runs: 11, levels: 1, growth: 2 });
        let in_force = |t, b_quarters| Shape { b_quarters, k: 1, t, kappa0_bytes: KAPPA0 };
        index.shape = in_force(10, 8);
        assert_eq!(sizes(&index).runs, 10, "3.84 is near to 3.70");
        index.shape = in_force(9, 8);
        assert_eq!(sizes(&index).runs, 11, "4.02 is not");
        index.shape = in_force(11, 12);
        assert_eq!(sizes(&index).growth, 2, "44.5 memtables are too much garbage");
    }
}
