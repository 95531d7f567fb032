//! FD-tree, the older baseline: a merge goes down level by level, two levels at a time.
//!
//! The memtable is merged with level 1. If the result is larger than level 1 may be, it is merged
//! with level 2 at once, and so on down; each pass rewrites its level, and all levels above that as
//! fence-only levels (thesis, section 4.1.4, "FD-tree merges"). A bottom that is too large is
//! merged with nothing into a level below it.
//!
//! An FD-tree keeps I1 to I3 alone: no level is numbered down again (I4), none is left out (I5),
//! and no merge is due because of tombstones (I6). Forcing a full merge is an addition to the
//! paper: the passes continue to the bottom.
//!
//! Invariant: a pass replaces a prefix of the levels, of which all but two are fence-only: the
//! result of the pass before it, and one level below.
//! Invariant: only the last pass's result is recorded. I3 holds in every manifest, and a crash
//! between two passes leaves the state before the merge.

use esker_format::block::Codec;
use esker_format::meta::{LevelMeta, Shape};

use super::prepare::{Incoming, Prepared};
use super::shape::{self, Sizes};
use crate::build::insert::Plan;
use crate::upkeep::fence_room::FenceRoom;

/// γ of an FD-tree for which no sizes were chosen: small, so that small trees have several levels.
const GROWTH_DEFAULT: u16 = 4;

/// An FD-tree has fixed sizes: nothing re-evaluates them.
#[must_use]
pub const fn sizes(asked: Sizes) -> Sizes {
    match asked {
        Sizes::Cost => Sizes::Fixed { growth: GROWTH_DEFAULT },
        Sizes::Fixed { .. } => asked,
    }
}

/// The first pass: of the memtable and level 1; where nothing comes in, of the uppermost level
/// with data and the next one.
#[must_use]
pub fn first(shape: &Shape, levels: &[LevelMeta], incoming: Incoming) -> Prepared {
    let bottom = levels.last().map_or(1, |level| level.rank);
    let data = levels.iter().find(|level| level.counts.data_entries() > 0);
    let rank = match data {
        Some(data) if incoming.entries == 0 => data.rank.saturating_add(1).min(bottom),
        _ => 1,
    };
    pass(shape, levels, incoming, rank)
}

/// The pass that writes level `rank`, of `incoming` and all of `levels` down to there.
#[must_use]
pub fn pass(shape: &Shape, levels: &[LevelMeta], incoming: Incoming, rank: u8) -> Prepared {
    let count = levels.iter().take_while(|level| level.rank <= rank).count();
    let (merged, below) = levels.split_at_checked(count).unwrap_or_default();
    let data_bytes = merged.iter().map(|level| level.counts.data_bytes()).sum::<u64>();
    let plan = Plan {
        fence_ranks: (1..rank).collect(),
        data_rank: rank,
        data_bytes: data_bytes + incoming.data_bytes,
        below: !below.is_empty(),
        // No level is left out for top fences.
        top_bytes_max: 0,
        codec: Codec::None,
        ..Plan::default()
    };
    Prepared { levels: count, full: below.is_empty(), shape: *shape, plan }
}

/// The level that the next pass writes, when one has left `data_bytes` in level `rank` above
/// `below`; `None` when the merge is done. `to_bottom`: all levels are to be merged.
#[must_use]
pub fn next(
    shape: &Shape,
    rank: u8,
    data_bytes: u64,
    below: &[LevelMeta],
    to_bottom: bool,
) -> Option<u8> {
    let overflows = data_bytes > shape::capacity_bytes(shape, rank);
    let goes_on = to_bottom && !below.is_empty();
    (overflows || goes_on).then(|| rank.saturating_add(1))
}

/// The shape when the bottom, level `rank`, holds `data_bytes`: deeper where they do not fit, and
/// never less deep.
#[must_use]
pub fn grown(sizes: Sizes, rank: u8, data_bytes: u64, kappa0_bytes: u64) -> Shape {
    let shape = sizes.choose(data_bytes, FenceRoom::ample(kappa0_bytes), 1.0);
    Shape { k: shape.k.max(rank.saturating_sub(1)), ..shape }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_format::meta::LevelCounts;

    const KAPPA0: u64 = 1000;
    const SIZES: Sizes = Sizes::Fixed { growth: 3 };

    fn level(rank: u8, data_bytes: u64) -> LevelMeta {
        let puts = data_bytes / 100;
        let counts = LevelCounts { puts, put_bytes: data_bytes, ..LevelCounts::default() };
        LevelMeta { rank, counts, ..LevelMeta::default() }
    }

    /// Level and bytes of each pass, and the data of each level then.
    type Step = (Vec<(u8, u64)>, Vec<u64>);

    /// The data written, pass by pass, for each memtable, and the data of each level afterwards.
    /// Every level is materialised, with data or without.
    fn insert_only(memtables: u64) -> Vec<Step> {
        let (mut shape, mut levels) =
            (Shape { kappa0_bytes: KAPPA0, ..grown(SIZES, 1, 0, 0) }, vec![]);
        let mut steps = Vec::new();
        for _ in 0..memtables {
            let incoming = Incoming { data_bytes: KAPPA0, entries: 10 };
            let (mut prepared, mut passes) = (first(&shape, &levels, incoming), Vec::new());
            loop {
                let (rank, bytes) = (prepared.plan.data_rank, prepared.plan.data_bytes);
                passes.push((rank, bytes));
                let below = levels.split_off(prepared.levels);
                if prepared.full {
                    shape = grown(SIZES, rank, bytes, KAPPA0);
                }
                levels = prepared.plan.fence_ranks.iter().map(|rank| level(*rank, 0)).collect();
                levels.push(level(rank, bytes));
                let next = next(&shape, rank, bytes, &below, false);
                levels.extend(below);
                let Some(next) = next else { break };
                prepared = pass(&shape, &levels, Incoming::default(), next);
            }
            steps.push((passes, levels.iter().map(|level| level.counts.put_bytes).collect()));
        }
        steps
    }

    /// By hand, γ = 3: κ1 is 3 memtables and κ2 9, each less a half. The third memtable is one too
    /// many for level 1: 3 are written there, and 3 again to level 2. So is the sixth: 3 and, with
    /// the 3 that are there, 6. The ninth makes 9 in level 2, which go on to level 3.
    #[test]
    fn passes_go_down_one_level_at_a_time() {
        let steps = insert_only(10);
        let k = |n: u64| n * KAPPA0;
        assert_eq!(steps[1], (vec![(1, k(2))], vec![k(2)]));
        assert_eq!(steps[2], (vec![(1, k(3)), (2, k(3))], vec![0, k(3)]));
        assert_eq!(steps[4], (vec![(1, k(2))], vec![k(2), k(3)]));
        assert_eq!(steps[5], (vec![(1, k(3)), (2, k(6))], vec![0, k(6)]));
        assert_eq!(steps[8], (vec![(1, k(3)), (2, k(9)), (3, k(9))], vec![0, 0, k(9)]));
        assert_eq!(steps[9], (vec![(1, k(1))], vec![k(1), 0, k(9)]));
    }

    #[test]
    fn a_forced_merge_begins_where_the_data_is_and_ends_at_the_bottom() {
        let shape = grown(SIZES, 3, 20 * KAPPA0, KAPPA0);
        let levels = [level(1, 0), level(2, 5 * KAPPA0), level(3, 20 * KAPPA0)];
        let begun = first(&shape, &levels, Incoming::default());
        assert_eq!((begun.levels, begun.full, begun.plan.data_rank), (3, true, 3));
        assert_eq!(next(&shape, 2, KAPPA0, &levels[2..], true), Some(3));
        assert_eq!(next(&shape, 2, KAPPA0, &levels[2..], false), None);
        assert_eq!(next(&shape, 3, 25 * KAPPA0, &[], true), None);
        let alone = [level(1, 0), level(2, 5 * KAPPA0)];
        let again = first(&shape, &alone, Incoming::default());
        assert_eq!((again.levels, again.full, again.plan.data_rank), (2, true, 2));
    }

    #[test]
    fn nothing_makes_an_fd_tree_less_deep() {
        assert_eq!(grown(SIZES, 3, 0, KAPPA0).k, 2);
        assert_eq!(grown(SIZES, 1, 10 * KAPPA0, KAPPA0).k, 2);
    }
}
