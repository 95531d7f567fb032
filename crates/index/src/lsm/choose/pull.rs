//! Pull, the default choice: what overflows is merged with all keys of its range in newer levels,
//! by level sizes that write least.

use esker_format::action::KeyRangeBuf;
use esker_format::meta::{IndexMeta, LsmMeta, Shape};
use esker_format::ptr::UNIT_BYTES;
use esker_substrate::error::Result;
use esker_substrate::sync::atomic::Ordering;

use super::by_policy;
use super::slice::{
    Cause, Overflow, RUNS_SMALL, Slice, end_of, first_left, level_bytes, runs_bytes,
};
use crate::lsm::LsmIndex;
use crate::lsm::layout::Layout;
use crate::lsm::policy::Policy;
use crate::lsm::policy::sizes::{self, Sizes};
use crate::lsm::state::State;
use crate::upkeep::fence_room::FenceRoom;

/// Blocks that a slice takes of one run or level: those of two full memtables, within these bounds.
/// Each slice writes the nodes that lead to its blocks, and a record.
const SLICE_BLOCKS: (u64, u64) = (4, 1024);
/// The number of full memtables that writers may be ahead of merges.
pub(in crate::lsm) const RUNS_AHEAD: u64 = 6;
/// Other sizes must write less than this share of what those in force write before they replace
/// them.
const WORTH_CHANGING: f64 = 0.95;

/// Properties of the incoming data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::lsm) struct Arrivals {
    /// κ0, what a full memtable brings, in bytes, and the memory for fences.
    pub room: FenceRoom,
    /// The share of it that replaces or deletes something.
    pub replaced: f64,
}

/// The progress of a full job: up to this key.
#[derive(Debug, Default)]
pub(in crate::lsm) struct Pass {
    done: Option<KeyRangeBuf>,
}

impl Pass {
    /// A slice is done.
    pub fn advance(&mut self, slice: &Slice) {
        self.done = Some(slice.done.clone());
    }
}

/// The sizes of levels: those in force, unless others write less by enough, or those in force allow
/// too much garbage.
pub(super) fn sizes(meta: &IndexMeta, lsm: &LsmMeta, arrivals: &Arrivals) -> Sizes {
    let Arrivals { room, replaced } = *arrivals;
    let data_bytes = lsm.levels.last().map_or(0, level_bytes);
    let best = sizes::choose_in(data_bytes, room, replaced);
    let Shape { b_quarters, k, t, .. } = meta.shape;
    let force = Sizes { runs: t, levels: k, growth: (b_quarters / 4).clamp(2, 16) as u8 };
    let ratio = data_bytes as f64 / room.kappa0_bytes.max(1) as f64;
    let cost = |sizes: &Sizes| sizes::cost_with_reads(sizes, ratio, replaced, room);
    let stays =
        t > 0 && force.is_within(ratio, replaced) && cost(&force) * WORTH_CHANGING <= cost(&best);
    if stays { force } else { best }
}

/// The sizes, as a shape.
pub(in crate::lsm) fn shape_of(sizes: Sizes, kappa0_bytes: u64) -> Shape {
    let b_quarters = u16::from(sizes.growth) * 4;
    Shape { b_quarters, k: sizes.levels, t: sizes.runs, kappa0_bytes }
}

/// The number of levels beyond those that the sizes have: the first ones. The last of them has what
/// merges for scans have taken from the runs, and counts as one of these; the others take nothing.
fn surplus(lsm: &LsmMeta, sizes: &Sizes) -> usize {
    lsm.levels.len().saturating_sub(usize::from(sizes.levels) + 1)
}

/// Bytes of all runs' blocks, and of those that merges for scans have taken from them.
fn standing_bytes(meta: &IndexMeta, lsm: &LsmMeta, sizes: &Sizes) -> u64 {
    let scanned = surplus(lsm, sizes).checked_sub(1).and_then(|number| lsm.levels.get(number));
    runs_bytes(meta).saturating_add(scanned.map_or(0, level_bytes))
}

/// The overflow to merge, when no full merge is asked for: the lowest level that overflows, or the
/// runs. Levels are numbered by their position among those that exist.
fn due(meta: &IndexMeta, arrivals: &Arrivals) -> Option<(Overflow, Sizes)> {
    let lsm = meta.lsm()?;
    let kappa0_bytes = arrivals.room.kappa0_bytes;
    let sizes = sizes(meta, lsm, arrivals);
    let inner = lsm.levels.len().saturating_sub(1);
    let scanned = surplus(lsm, &sizes).checked_sub(1);
    for (number, level) in lsm.levels.iter().take(inner).enumerate().rev() {
        let is_more = level_bytes(level) > capacity_of(lsm, &sizes, number, kappa0_bytes);
        if is_more && scanned != Some(number) {
            return Some((Overflow::Level(number), sizes));
        }
    }
    let standing = standing_bytes(meta, lsm, &sizes);
    let is_much = standing > sizes.capacity_bytes(0, kappa0_bytes);
    let is_many = meta.sorted_runs.len() > RUNS_SMALL + 3 * usize::from(sizes.runs);
    (is_much || is_many).then_some((Overflow::Runs, sizes))
}

/// The most bytes that level number `number` may hold; of one too many, nothing.
fn capacity_of(lsm: &LsmMeta, sizes: &Sizes, number: usize, kappa0_bytes: u64) -> u64 {
    let inner = lsm.levels.len().saturating_sub(1);
    if number >= inner {
        u64::MAX
    } else if number + 1 < surplus(lsm, sizes) {
        0
    } else {
        sizes.capacity_bytes(rank_of(sizes, inner, number), kappa0_bytes)
    }
}

/// The most bytes that the runs, and each level, may hold.
pub(in crate::lsm) fn capacities(
    meta: &IndexMeta,
    lsm: &LsmMeta,
    arrivals: &Arrivals,
) -> (u64, Vec<u64>) {
    let kappa0_bytes = arrivals.room.kappa0_bytes;
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
pub(in crate::lsm) fn is_due(meta: &IndexMeta, arrivals: &Arrivals) -> bool {
    due(meta, arrivals).is_some()
}

/// Whether that many more full memtables in runs exceed the limit.
pub(in crate::lsm) fn is_behind(meta: &IndexMeta, arrivals: &Arrivals, memtables: u64) -> bool {
    let Some(lsm) = meta.lsm() else { return false };
    let kappa0_bytes = arrivals.room.kappa0_bytes;
    let sizes = sizes(meta, lsm, arrivals);
    let most = sizes.capacity_bytes(0, kappa0_bytes);
    let ahead = memtables.saturating_mul(kappa0_bytes);
    standing_bytes(meta, lsm, &sizes) > most.saturating_add(ahead)
}

/// Blocks that a slice takes of one run or level.
fn slice_blocks(kappa0_bytes: u64) -> u64 {
    (2 * kappa0_bytes / UNIT_BYTES).clamp(SLICE_BLOCKS.0, SLICE_BLOCKS.1)
}

impl LsmIndex<'_> {
    /// Blocks that the next slice takes of one run or level: fewer where there is little space.
    pub(in crate::lsm) fn slice_blocks(&self) -> u64 {
        let halvings = self.lsm.halvings.load(Ordering::Relaxed);
        (slice_blocks(self.kappa0_bytes()) >> halvings.min(u64::BITS - 1)).max(1)
    }

    /// A slice found no space: the next one is to be half as large. False when it was the smallest.
    pub(in crate::lsm) fn halve_slices(&self) -> bool {
        if self.slice_blocks() == 1 {
            return false;
        }
        self.lsm.halvings.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// A slice found space: the next one may be twice as large.
    pub(in crate::lsm) fn double_slices(&self) {
        let less = |halvings: u32| halvings.checked_sub(1);
        let _none_left = self.lsm.halvings.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// The incoming data, as far as it is known.
    pub(in crate::lsm) fn arrivals(&self) -> Arrivals {
        let replaced = self.lsm.replaced.lock().share();
        Arrivals { room: self.fence_room(), replaced }
    }

    /// The next slice of everything; `None` when that is done.
    pub(in crate::lsm) fn slice_of_all(&self, state: &State, pass: &Pass) -> Result<Option<Slice>> {
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
    pub(in crate::lsm) fn slice_to_pull(&self, state: &State) -> Result<Option<Slice>> {
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
        let reader = self.reader();
        let levels = layout.levels;
        let depth = match overflow {
            Some(Overflow::Runs) => levels - usize::from(sizes.levels) - 1,
            Some(Overflow::Level(number)) => number + 1,
            None => levels - 1,
        };
        let begin = match overflow {
            Some(Overflow::Runs) => {
                let scanned = state.levels.iter().take(depth.saturating_sub(layout.missing()));
                first_left(&state.runs, scanned, reader, cursor)?
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use esker_format::meta::{KindMeta, LevelMeta, LsmLevel, TreeMeta};
    use esker_format::ptr::Extent;

    fn index(levels: &[u64], runs: u64) -> IndexMeta {
        let level = |units: &u64| LsmLevel { units: *units, ..LsmLevel::default() };
        let lsm = LsmMeta { levels: levels.iter().map(level).collect(), ..LsmMeta::default() };
        let extents = vec![Extent { start: 0, units: runs }];
        let data = LevelMeta { extents, ..LevelMeta::default() };
        let sorted_runs = vec![TreeMeta { levels: vec![data], ..TreeMeta::default() }];
        IndexMeta { kind: KindMeta::Lsm(Box::new(lsm)), sorted_runs, ..IndexMeta::default() }
    }

    const KAPPA0: u64 = 10 * UNIT_BYTES;
    const OVERWRITES: Arrivals = Arrivals { room: FenceRoom::ample(KAPPA0), replaced: 1.0 };

    /// By hand: over 1,000 units there may be 11 runs and a level of 22 memtables.
    #[test]
    fn the_lowest_level_that_overflows_is_merged_first() {
        let overflows =
            |levels: &[u64], runs| due(&index(levels, runs), &OVERWRITES).map(|due| due.0);
        assert_eq!(overflows(&[1000], 110), None);
        assert_eq!(overflows(&[1000], 111), Some(Overflow::Runs));
        assert_eq!(overflows(&[220, 1000], 111), Some(Overflow::Runs));
        assert_eq!(overflows(&[221, 1000], 111), Some(Overflow::Level(0)));
        assert_eq!(overflows(&[10, 220, 1000], 100), None, "it has what scans had merged");
        assert_eq!(overflows(&[11, 220, 1000], 100), Some(Overflow::Runs));
        assert_eq!(overflows(&[11, 221, 1000], 100), Some(Overflow::Level(1)));
        assert_eq!(overflows(&[0, 10, 220, 1000], 100), None, "the first is one too many");
        assert_eq!(overflows(&[1, 10, 220, 1000], 100), Some(Overflow::Level(0)));
    }

    #[test]
    fn sizes_stay_while_they_are_nearly_the_best() {
        let mut index = index(&[1000], 0);
        let sizes = |index: &IndexMeta| sizes(index, index.lsm().unwrap(), &OVERWRITES);
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
