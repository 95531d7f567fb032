//! Block preservation: the blocks of the bottom that a full merge takes over as they are.
//!
//! Where nothing above the bottom has a key within a run of its blocks, a full merge would write
//! the same entries again. Keys that grow with time leave most of the bottom untouched in this way.
//! Such a run stays in its place, and only its fences are rewritten. Random keys leave no run that
//! is long enough. This is beyond the papers, and off with their sizes.
//!
//! A run may stay when
//! - all its versions have the number [`Seq::RESET`] and none is a tombstone: then the merge
//!   would write what is there (this must hold for the whole level, because fences do not show it);
//! - no user key is on both sides of its borders, and no other key of the merge is within them:
//!   what came before is in front of its first fence, and what comes next is at or behind the fence
//!   that follows, or behind the level's last key;
//! - it shares no unit of the data file with blocks that do not stay: a unit has one owner;
//! - the saving is large enough: the waste of short blocks and unused ends of extents in front of
//!   it and within it is at most a tenth of what stays.
//!
//! Invariant: a run is kept whole or not at all, and begins and ends between two groups: a merge
//! publishes and records only behind its last block, whose last key is its wavefront then.
//! Invariant: a kept unit belongs to the old level until a record names it as part of the new one;
//! it is never freed (see [`delete::without`](crate::merge::delete::without)).

use esker_format::ids::Seq;
use esker_format::meta::LevelMeta;
use esker_format::ptr::{BlockPtr, SECTOR_BYTES, UNIT_BYTES};

use crate::run::fence_index::{FenceIndex, KeyedFence, Place};
use esker_substrate::blocks::PIECES;

use crate::build::writer;

/// Most blocks of a run: after them the merge publishes its progress.
const RUN_BLOCKS_MAX: usize = 1024;
/// Fewer blocks than this never pay; of a large level, fewer than its shortest extents have: each
/// run is an extent or more in the manifest.
const RUN_BLOCKS_MIN: usize = 8;
/// The least bytes that stay for each byte wasted.
const KEPT_FOR_WASTED: u64 = 10;
/// The most that a run may waste in front of it: a block that is closed early, and the end of an
/// extent.
const BORDER_BYTES: u64 = 2 * UNIT_BYTES;

/// A block that stays.
#[derive(Clone, Copy, Debug)]
pub struct Kept<'a> {
    /// Its fence in the old level.
    pub fence: KeyedFence<'a>,
    /// Its data, in bytes: its share of the old level's.
    pub data_bytes: u64,
    /// The last key of the run, if this is its last block.
    pub run_end: Option<&'a [u8]>,
}

/// A run of blocks being kept.
#[derive(Clone, Debug)]
pub struct Run {
    /// The place behind its last block.
    pub end: Place,
    /// First and last user key of its last block.
    pub last_block: (Vec<u8>, Vec<u8>),
}

/// A run that could be kept.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// The place behind its last block.
    pub end: Place,
    size: Size,
}

/// Finds the runs of one level.
#[derive(Debug)]
pub struct Keeper {
    /// Data bytes and sectors of the level.
    density: (u64, u64),
    /// Fewest blocks of a run.
    blocks_min: usize,
    /// The mean size of the level's blocks, at most a unit: compressed ones are shorter.
    usual_bytes: u64,
    /// Kept and wasted so far.
    size: Size,
    /// The run being kept.
    pub run: Option<Run>,
    /// Up to here no end of a run was found.
    refused_until: Option<Place>,
}

/// Bytes that stay, and what of them or because of them is unused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Size {
    kept_bytes: u64,
    wasted_bytes: u64,
}

impl Size {
    const fn is_worth_it(self) -> bool {
        self.wasted_bytes.saturating_mul(KEPT_FOR_WASTED) <= self.kept_bytes
    }

    const fn plus(self, other: Self) -> Self {
        Self {
            kept_bytes: self.kept_bytes + other.kept_bytes,
            wasted_bytes: self.wasted_bytes + other.wasted_bytes,
        }
    }
}

/// Whether all versions of a level have the number [`Seq::RESET`]: a full merge has nothing to
/// change in it.
#[must_use]
pub fn is_reset(level: &LevelMeta) -> bool {
    let counts = &level.counts;
    level.seqs == (Seq::RESET, Seq::RESET) && counts.puts > 0 && counts.tombstones == 0
}

/// A unit of the data file.
const fn unit(offset: u64) -> u64 {
    offset / UNIT_BYTES
}

/// Whether no unit is shared by a block and the one behind it in their level.
const fn ends_unit(block: &BlockPtr, next: &BlockPtr) -> bool {
    unit(block.offset() + block.bytes() as u64 - 1) != unit(next.offset())
}

/// The bytes that stay when `block` does, with the unused part of its last unit unless `next`
/// begins there, in a level whose blocks have `usual_bytes`.
const fn size_of(block: &BlockPtr, next: Option<&BlockPtr>, usual_bytes: u64) -> Size {
    let bytes = block.bytes() as u64;
    let end = block.offset() + bytes;
    let gap = match next {
        Some(next) if !ends_unit(block, next) => 0,
        _ => end.next_multiple_of(UNIT_BYTES) - end,
    };
    // A block of large entries is not full and yet not short.
    let short = if bytes * 2 < usual_bytes { usual_bytes - bytes } else { 0 };
    Size { kept_bytes: bytes + gap, wasted_bytes: gap + short }
}

/// Whether a run may begin with a block.
const fn may_begin(seq: Seq, block: &BlockPtr) -> bool {
    seq.0 == Seq::MAX.0 && block.offset().is_multiple_of(UNIT_BYTES)
}

/// The longest run from the first of `blocks` on (numbers of their fences, and their places): the
/// number of blocks, and the bytes kept and wasted with them. The last block may be part of it only
/// where the level ends with it.
fn longest_run(
    blocks: &[(Seq, BlockPtr)],
    ends_level: bool,
    blocks_min: usize,
    usual_bytes: u64,
    before: Size,
) -> Option<(usize, Size)> {
    let border = Size { kept_bytes: 0, wasted_bytes: BORDER_BYTES };
    let (mut size, mut longest) = (before.plus(border), None);
    for (index, (_, block)) in blocks.iter().enumerate() {
        let next = blocks.get(index + 1);
        size = size.plus(size_of(block, next.map(|(_, next)| next), usual_bytes));
        // A fence with a number is within a user key.
        let may_end = match next {
            Some((seq, next)) => *seq == Seq::MAX && ends_unit(block, next),
            None => ends_level,
        };
        if may_end && index + 1 >= blocks_min && size.is_worth_it() {
            longest = Some((index + 1, size));
        }
    }
    longest
}

impl Keeper {
    /// For a level whose versions all have the number [`Seq::RESET`].
    #[must_use]
    pub fn new(level: &LevelMeta) -> Self {
        let extent_units = writer::extent_units(level.counts.sectors * SECTOR_BYTES);
        let shortest_bytes = extent_units / PIECES * UNIT_BYTES;
        let mean_bytes = level.counts.sectors * SECTOR_BYTES / level.counts.blocks.max(1);
        let usual_bytes = mean_bytes.clamp(SECTOR_BYTES, UNIT_BYTES);
        let blocks_min = usize::try_from(shortest_bytes / usual_bytes).unwrap_or(usize::MAX);
        Self {
            density: (level.counts.data_bytes(), level.counts.sectors),
            blocks_min: blocks_min.max(RUN_BLOCKS_MIN),
            usual_bytes,
            size: Size::default(),
            run: None,
            refused_until: None,
        }
    }

    /// Data bytes of a block.
    #[must_use]
    pub fn data_bytes(&self, ptr: &BlockPtr) -> u64 {
        let (bytes, sectors) = self.density;
        let share = u128::from(bytes) * u128::from(ptr.sectors) / u128::from(sectors.max(1));
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    /// Whether the block at `place` stays.
    #[must_use]
    pub fn keeps(&self, place: Place) -> bool {
        self.run.as_ref().is_some_and(|run| place < run.end)
    }

    /// The run that begins at `place`, if there is one: the place behind it. The next key of the
    /// merge that is not in the level is `upper`; everything before is in front of the fence at
    /// `place`. With `to_end` the level's last block may be part of it, if its last key is in front
    /// of `upper`: the caller looks.
    pub fn find(
        &self,
        fences: &FenceIndex,
        place: Place,
        upper: Option<&[u8]>,
        to_end: bool,
    ) -> Option<Found> {
        let first = fences.get(place)?;
        if !may_begin(first.seq, &first.fence.ptr) {
            return None;
        }
        // Most often the next key is near: then there is no need to search.
        let enough = fences.get(place.ahead(self.blocks_min))?;
        if upper.is_some_and(|upper| upper < enough.key) {
            return None;
        }
        let last = fences.last()?;
        let limit = upper.map_or(Some(last), |upper| fences.find(upper, Seq::MAX))?;
        let limit = limit.min(place.ahead(RUN_BLOCKS_MAX));
        if self.refused_until.is_some_and(|until| limit <= until) {
            return None;
        }
        let blocks: Vec<_> = (0..=RUN_BLOCKS_MAX)
            .map(|blocks| place.ahead(blocks))
            .take_while(|place| *place <= limit)
            .filter_map(|place| fences.get(place))
            .map(|fence| (fence.seq, fence.fence.ptr))
            .collect();
        let ends = to_end && limit == last;
        let run = longest_run(&blocks, ends, self.blocks_min, self.usual_bytes, self.size);
        run.map(|(count, size)| Found { end: place.ahead(count), size })
    }

    /// Keeps a run.
    pub fn keep(&mut self, found: Found, last_block: (Vec<u8>, Vec<u8>)) {
        self.size = found.size;
        self.run = Some(Run { end: found.end, last_block });
    }

    /// There is no run from `place` on, as far as `upper` reaches.
    pub fn refuse(&mut self, fences: &FenceIndex, place: Place, upper: Option<&[u8]>) {
        let begins = fences.get(place).is_some_and(|f| may_begin(f.seq, &f.fence.ptr));
        let limit = upper.and_then(|upper| fences.find(upper, Seq::MAX)).filter(|_| begins);
        if let Some(limit) = limit {
            self.refused_until = Some(limit.min(place.ahead(RUN_BLOCKS_MAX)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_format::ids::Generation;
    use proptest::prelude::*;

    const UNIT_SECTORS: u64 = UNIT_BYTES / SECTOR_BYTES;

    fn block(sector: u64, sectors: u16) -> BlockPtr {
        BlockPtr { sector, sectors, crc: 0, generation: Generation(1) }
    }

    fn whole(count: u64) -> Vec<(Seq, BlockPtr)> {
        (0..count).map(|unit| (Seq::MAX, block(unit * UNIT_SECTORS, 8))).collect()
    }

    fn length(blocks: &[(Seq, BlockPtr)]) -> usize {
        longest_run(blocks, false, 8, UNIT_BYTES, Size::default()).map_or(0, |(count, _)| count)
    }

    /// By hand: a border of two units is a tenth of twenty.
    #[test]
    fn a_first_run_has_at_least_twenty_units() {
        assert_eq!(length(&whole(20)), 0);
        assert_eq!(length(&whole(21)), 20);
        assert_eq!(length(&whole(100)), 99);
        let to_end = longest_run(&whole(20), true, 8, UNIT_BYTES, Size::default());
        assert_eq!(to_end.map(|(count, _)| count), Some(20));
        let rich = Size { kept_bytes: 200 * UNIT_BYTES, wasted_bytes: 0 };
        let run =
            |count| longest_run(&whole(count), false, 8, UNIT_BYTES, rich).map(|(count, _)| count);
        assert_eq!((run(8), run(9)), (None, Some(8)));
    }

    #[test]
    fn a_run_ends_between_units_and_between_user_keys() {
        let mut blocks = whole(50);
        // The last ones cross unit borders, the one before begins within a user key.
        for (_, block) in &mut blocks[41..] {
            block.sector += 3;
        }
        blocks[40].1.sectors = 11;
        blocks[40].0 = Seq(7);
        assert_eq!(length(&blocks), 39);
        let begins = |at: usize| may_begin(blocks[at].0, &blocks[at].1);
        assert!(begins(39) && !begins(40), "within a user key");
        assert!(!begins(41), "in the middle of a unit");
    }

    proptest! {
        /// Blocks of any lengths in extents of any lengths: what stays is whole units that no
        /// other block has, and a tenth of it at most is unused.
        #[test]
        fn every_run_keeps_its_bounds(
            extents in proptest::collection::vec(
                proptest::collection::vec((1u16..12, 0u8..12), 1..40), 1..6),
            usual in SECTOR_BYTES..=UNIT_BYTES,
        ) {
            let (mut blocks, mut sector) = (Vec::new(), 0);
            for extent in extents {
                for (sectors, luck) in extent {
                    let seq = if luck == 0 { Seq(9) } else { Seq::MAX };
                    blocks.push((seq, block(sector, sectors)));
                    sector += u64::from(sectors);
                }
                sector = sector.next_multiple_of(UNIT_SECTORS) + UNIT_SECTORS;
            }
            let starts = |at: &usize| may_begin(blocks[*at].0, &blocks[*at].1);
            for from in (0..blocks.len()).filter(starts) {
                let ends = from % 2 == 0;
                let longest = longest_run(&blocks[from..], ends, 8, usual, Size::default());
                let Some((count, size)) = longest else { continue };
                let (run, rest) = blocks[from..].split_at(count);
                prop_assert!(rest.first().is_none_or(|(seq, _)| *seq == Seq::MAX));
                let units = |ptr: &BlockPtr| {
                    unit(ptr.offset())..=unit(ptr.offset() + ptr.bytes() as u64 - 1)
                };
                let kept: std::collections::BTreeSet<_> =
                    run.iter().flat_map(|(_, ptr)| units(ptr)).collect();
                let others = blocks[..from].iter().chain(rest);
                for (_, other) in others {
                    prop_assert!(units(other).all(|unit| !kept.contains(&unit)));
                }
                prop_assert_eq!(size.kept_bytes, kept.len() as u64 * UNIT_BYTES);
                prop_assert!(size.wasted_bytes * 10 <= size.kept_bytes);
            }
        }
    }
}
