//! merge-prepare: which levels a merge replaces, and which levels it will write.
//!
//! m is the least level that the data of the memtable, the sorted runs and the levels down to it
//! fit into (Eq. 4.1 and 4.2, in bytes). Û of a full merge takes no deletes off: blind deletes of
//! absent keys would make N∆ - N∇ no upper bound; tightening corrects it afterwards.

use esker_format::block::Codec;
use esker_format::meta::{LevelCounts, LevelMeta, Shape, TreeMeta};

use super::shape::{self, Sizes};
use crate::build::insert::{Plan, top_bytes_max};
use crate::upkeep::fence_room::FenceRoom;
use crate::upkeep::stats::CompactionStats;

/// Bytes that an average fence takes in a block, filter included, where nothing is known.
pub(super) const FENCE_BYTES: u64 = 40;

/// The data to merge in addition to the levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Incoming {
    /// Data bytes of the memtable and all sorted runs.
    pub data_bytes: u64,
    /// Their entries.
    pub entries: u64,
}

impl Incoming {
    /// That of sorted runs.
    #[must_use]
    pub fn of(runs: &[TreeMeta]) -> Self {
        Self::of_levels(runs.iter().flat_map(|run| &run.levels))
    }

    /// That of levels.
    fn of_levels<'a>(levels: impl IntoIterator<Item = &'a LevelMeta>) -> Self {
        let one = |level: &LevelMeta| Self {
            data_bytes: level.counts.data_bytes(),
            entries: level.counts.data_entries(),
        };
        levels.into_iter().map(one).fold(Self::default(), Self::and)
    }

    /// The same and this.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            data_bytes: self.data_bytes.saturating_add(other.data_bytes),
            entries: self.entries.saturating_add(other.entries),
        }
    }
}

/// The outcome of merge-prepare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// The number of levels of the main tree that are replaced, from the top.
    pub levels: usize,
    /// Everything is replaced: tombstones may go.
    pub full: bool,
    /// Level sizes in force from now on.
    pub shape: Shape,
    /// The levels to write.
    pub plan: Plan,
}

impl Prepared {
    /// The same, with data blocks that `codec` compresses.
    pub(super) fn with_codec(mut self, codec: Codec) -> Self {
        self.plan.codec = codec;
        self
    }

    /// The statistics that readers get of the merge when it begins.
    pub(super) fn stats(&self) -> CompactionStats {
        CompactionStats {
            full: self.full,
            levels: self.levels,
            input_bytes: self.plan.data_bytes,
            ..CompactionStats::default()
        }
    }
}

/// Decides a merge. `full` asks for a full one; the sizes after it are chosen for the memory
/// `room`. The blocks that `codec` compresses are filled further.
#[must_use]
pub fn prepare(
    shape: &Shape,
    levels: &[LevelMeta],
    incoming: Incoming,
    full: bool,
    room: FenceRoom,
    sizes: Sizes,
    codec: Codec,
) -> Prepared {
    let rank = if full { None } else { least_rank(shape, levels, incoming.data_bytes) };
    let replaced = |rank: u8| levels.iter().take_while(|level| level.rank <= rank).count();
    let count = rank.map_or(levels.len(), replaced);
    let full = count == levels.len();
    let merged = levels.get(..count).unwrap_or_default();
    let Incoming { data_bytes, entries } = Incoming::of_levels(merged).and(incoming);
    let shape = if full { sizes.choose(data_bytes, room, 1.0) } else { *shape };
    let data_rank = match rank {
        Some(rank) if !full => rank,
        _ => shape::bottom_rank(&shape),
    };
    let below = levels.get(count).map(|level| level.counts);
    let top_bytes_max = top_bytes_max(room.kappa0_bytes);
    let plan = plan(&shape, data_rank, data_bytes, entries, below, top_bytes_max, codec);
    Prepared { levels: count, full, shape, plan }
}

/// The merge of everything above the bottom into one level, whatever its size: see
/// [`history`](crate::history).
#[must_use]
pub fn gather(
    levels: &[LevelMeta],
    incoming: Incoming,
    kappa0_bytes: u64,
    t: u8,
    codec: Codec,
) -> Prepared {
    let (bottom, merged) = levels.split_last().map_or((None, levels), |(b, m)| (Some(b), m));
    let Incoming { data_bytes, entries } = Incoming::of_levels(merged).and(incoming);
    let shape = shape::gathered(data_bytes, kappa0_bytes, t);
    let below = bottom.map(|level| level.counts);
    let top_bytes_max = top_bytes_max(kappa0_bytes);
    let plan = plan(&shape, 1, data_bytes, entries, below, top_bytes_max, codec);
    Prepared { levels: merged.len(), full: false, shape, plan }
}

/// The least level number that can take everything above and at it, and that leads past missing
/// levels only to few blocks (I5); `None` for a full merge.
fn least_rank(shape: &Shape, levels: &[LevelMeta], incoming_bytes: u64) -> Option<u8> {
    (1..shape::bottom_rank(shape)).find(|rank| {
        let upper = levels.iter().filter(|level| level.rank <= *rank);
        let bytes = upper.map(|level| level.counts.data_bytes()).sum::<u64>() + incoming_bytes;
        let below = levels.iter().find(|level| level.rank > *rank);
        bytes <= shape::capacity_bytes(shape, *rank)
            && below.is_none_or(|below| may_lead_to(shape, *rank, below))
    })
}

/// Whether a level may be directly above `below` (I5): it is the next one, or the fences to `below`
/// would fit a level between them.
pub(super) fn may_lead_to(shape: &Shape, rank: u8, below: &LevelMeta) -> bool {
    let next = rank.saturating_add(1);
    let fences_bytes = below.counts.blocks.saturating_mul(FENCE_BYTES);
    below.rank <= next || fences_bytes <= shape::capacity_bytes(shape, next)
}

/// The levels to write: the least number of fence-only levels above the data with which the top
/// fences fit (pre-emptive level skipping).
fn plan(
    shape: &Shape,
    data_rank: u8,
    data_bytes: u64,
    entries: u64,
    below: Option<LevelCounts>,
    top_bytes_max: u64,
    codec: Codec,
) -> Plan {
    let unit = esker_format::ptr::UNIT_BYTES;
    let target = codec.target_bytes() as u64;
    let entry_bytes = data_bytes / entries.max(1);
    let entries_per_block = (target / entry_bytes.max(1)).max(1);
    let filter_bytes = entries_per_block * esker_format::filter::BITS_PER_KEY as u64 / 8;
    let below_fence_bytes = below.map_or(0, |counts| counts.blocks * (FENCE_BYTES + filter_bytes));
    let block_bytes = target.max(entry_bytes);
    let mut level_bytes = data_bytes + below_fence_bytes;
    let mut blocks = level_bytes.div_ceil(block_bytes);
    let mut fence_bytes = FENCE_BYTES + filter_bytes;
    let mut fence_ranks = Vec::new();
    let mut rank_below = data_rank;
    // Each round is a level 16 times smaller or more, so this ends after a few.
    while blocks * fence_bytes > top_bytes_max && fence_ranks.len() < 8 {
        let fences_bytes = blocks * fence_bytes;
        let rank = fence_rank(shape, fences_bytes, level_bytes, rank_below);
        fence_ranks.insert(0, rank);
        (level_bytes, rank_below) = (fences_bytes, rank);
        blocks = fences_bytes.div_ceil(unit);
        fence_bytes = FENCE_BYTES;
    }
    Plan {
        fence_ranks,
        data_rank,
        data_bytes: data_bytes + below_fence_bytes,
        below: below.is_some(),
        top_bytes_max,
        codec,
        ..Plan::default()
    }
}

/// The least number that a fence-only level may have (Eq. 4.3): it must fit that level, and the
/// level below it the next one. Never 0 (it did not fit there) and never below the next level's.
fn fence_rank(shape: &Shape, bytes: u64, below_bytes: u64, rank_below: u8) -> u8 {
    let fits = |rank: &u8| {
        bytes <= shape::capacity_bytes(shape, *rank)
            && below_bytes <= shape::capacity_bytes(shape, *rank + 1)
    };
    (1..rank_below).find(fits).unwrap_or(rank_below)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ROOM: FenceRoom = FenceRoom::ample(100_000);

    fn level(rank: u8, data_bytes: u64) -> LevelMeta {
        let counts = LevelCounts {
            blocks: data_bytes.div_ceil(4000),
            puts: data_bytes / 100,
            put_bytes: data_bytes,
            ..LevelCounts::default()
        };
        LevelMeta { rank, counts, ..LevelMeta::default() }
    }

    fn shape(b_quarters: u16, k: u8, t: u8) -> Shape {
        Shape { b_quarters, k, t, kappa0_bytes: 100_000 }
    }

    fn incoming(data_bytes: u64) -> Incoming {
        Incoming { data_bytes, entries: data_bytes / 100 }
    }

    /// By hand: κ0 = 100 kB, b = 3, k = 2, t = 0 give κ1 = 2 κ0 and κ2 = 6 κ0 (and 5 % slack).
    /// The second memtable still fits level 1; the third does not, and takes level 1 down to 2.
    #[test]
    fn merges_take_as_few_levels_as_fit() {
        let shape = shape(12, 2, 0);
        let bottom = level(3, 9_000_000);
        let go = |levels: &[LevelMeta]| {
            prepare(&shape, levels, incoming(100_000), false, ROOM, Sizes::Cost, Codec::None)
        };
        let first = go(std::slice::from_ref(&bottom));
        assert_eq!((first.levels, first.full, first.plan.data_rank), (0, false, 1));
        assert!(first.plan.below);
        let second = go(&[level(1, 100_000), bottom.clone()]);
        assert_eq!((second.levels, second.plan.data_rank), (1, 1));
        let third = go(&[level(1, 200_000), bottom.clone()]);
        assert_eq!((third.levels, third.full, third.plan.data_rank), (1, false, 2));
        let last = go(&[level(1, 200_000), level(2, 600_000), bottom]);
        assert_eq!((last.levels, last.full), (3, true));
        assert!(!last.plan.below);
    }

    /// By hand: κ0 = 100 kB and b = 2 give κ6 = 6.35 MB and κ7 = 12.75 MB. The bottom's 225,000
    /// blocks have 9 MB of fences, which level 7 would hold: one memtable goes to level 6, not to
    /// level 1, whose fences to the bottom would be sixty times its data.
    #[test]
    fn a_level_that_leads_past_missing_ones_is_deep_enough() {
        let (shape, bottom) = (shape(8, 7, 0), level(8, 900_000_000));
        let one = incoming(100_000);
        let levels = [bottom];
        let prepared = prepare(&shape, &levels, one, false, ROOM, Sizes::Cost, Codec::None);
        assert_eq!((prepared.full, prepared.plan.data_rank), (false, 6));
        assert!(may_lead_to(&shape, 6, &levels[0]) && !may_lead_to(&shape, 5, &levels[0]));
    }

    #[test]
    fn an_empty_tree_gets_one_level() {
        let prepared =
            prepare(&shape(8, 0, 0), &[], incoming(1000), false, ROOM, Sizes::Cost, Codec::None);
        assert!(prepared.full);
        assert_eq!(prepared.plan.data_rank, 1);
        assert!(prepared.plan.fence_ranks.is_empty());
    }

    #[test]
    fn top_fences_that_would_not_fit_become_a_level() {
        let prepared = prepare(
            &shape(8, 0, 0),
            &[],
            incoming(50_000_000),
            true,
            ROOM,
            Sizes::Cost,
            Codec::None,
        );
        assert!(!prepared.plan.fence_ranks.is_empty());
    }

    proptest! {
        #[test]
        fn the_result_fits_its_level(
            b_quarters in 6u16..40, k in 0u8..4, t in 0u8..3,
            sizes in proptest::collection::vec(0u64..2_000_000, 0..4),
            new_bytes in 1u64..200_000,
            full: bool,
        ) {
            let shape = shape(b_quarters, k, t);
            let ranked = sizes.iter().zip(1u8..);
            let mut levels: Vec<_> = ranked.map(|(size, rank)| level(rank, *size)).collect();
            levels.truncate(usize::from(k) + 1);
            let new = incoming(new_bytes);
            let prepared = prepare(&shape, &levels, new, full, ROOM, Sizes::Cost, Codec::None);
            let merged = &levels[..prepared.levels];
            let bytes = merged.iter().map(|l| l.counts.data_bytes()).sum::<u64>() + new_bytes;
            prop_assert_eq!(prepared.full, prepared.levels == levels.len());
            let rank = prepared.plan.data_rank;
            prop_assert!(bytes <= shape::capacity_bytes(&prepared.shape, rank));
            let mut ranks = prepared.plan.fence_ranks.clone();
            ranks.push(prepared.plan.data_rank);
            prop_assert!(ranks.is_sorted() && ranks[0] >= 1);
            if let Some(next) = levels.get(prepared.levels) {
                prop_assert!(prepared.plan.data_rank < next.rank);
            }
        }
    }
}
