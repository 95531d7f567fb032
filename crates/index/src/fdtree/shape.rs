//! Level sizes that follow the data.
//!
//! The thesis fixes κi = γ^i κ0. Here the sizes come from a cost function over R = data / κ0,
//! evaluated at each full merge: `t` sorted runs that are kept (memtables written once and merged
//! t+1 at a time) and `k` upper levels above the bottom, κi = b^i (t+1) κ0. As in the thesis, κi
//! bounds what is merged into level i, including everything that was above it: in regular steps a
//! level receives b - 1 merges from above, and the b-th goes one level deeper. The bytes written
//! per user byte, without the log, are about 1 + k (b-1)/2 + R/((t+1) b^k) + fences (the 1 because
//! a memtable is written as a run before a large merge takes it). The garbage is at most a share
//! ((t+1) b^k - 1)/R of the data, and a lookup asks t + k + 1 runs, all but one of them in memory
//! by their filters.
//!
//! Garbage is only what replaces or deletes something. A full merge reports which share of what it
//! merged did so, and the next shape is chosen for that share: keys that are only ever inserted
//! make no garbage, and are merged less often.

use esker_format::meta::Shape;

use crate::upkeep::fence_room::FenceRoom;

/// Most garbage, as a share of the data.
const GARBAGE_MAX: f64 = 0.34;
/// The least share of new entries that is taken to replace others, regardless of what the last full
/// merge found: when inserts turn into overwrites, the garbage is a third more than [`GARBAGE_MAX`]
/// once.
pub(super) const REPLACED_MIN: f64 = 0.75;
/// Most runs that a lookup may have to ask.
const RUNS_MAX: u8 = 14;
/// Most upper levels of fixed sizes.
const LEVELS_MAX: u8 = 16;
/// The data, in full memtables, up to which a memtable is merged without being flushed before.
pub const DIRECT_RATIO_MAX: f64 = 4.0;
/// The share that fences and filters add to a level's bytes.
const FENCE_SHARE: f64 = 0.02;
/// The bytes, per byte of data that comes in, that may be written to save a lookup one read.
const READ_WORTH: f64 = 4.0;
/// Growth factors considered. Whole numbers: a level takes b - 1 merges from above before the b-th
/// takes it down, so a fraction would only leave space unused.
const GROWTH_FACTORS: std::ops::RangeInclusive<u16> = 2..=24;

fn growth(b_quarters: u16) -> f64 {
    f64::from(b_quarters) / 4.0
}

/// The number of memtables that are merged before a full merge: (t+1) b^k.
fn period(b_quarters: u16, k: u8, t: u8) -> f64 {
    f64::from(t + 1) * growth(b_quarters).powi(i32::from(k))
}

fn cost(ratio: f64, b_quarters: u16, k: u8, t: u8) -> f64 {
    // Without kept runs the memtable takes part in the merge, unless that is a large one.
    let standing = if t == 0 && ratio <= DIRECT_RATIO_MAX { 0.0 } else { 1.0 };
    let upper = f64::from(k) * (growth(b_quarters) - 1.0) / 2.0;
    let bottom = ratio / period(b_quarters, k, t);
    standing + (upper + bottom) * (1.0 + FENCE_SHARE) + f64::from(k) * FENCE_SHARE
}

/// The share of new entries, by bytes, that replaced or deleted others: in a merge of
/// `incoming_bytes` into `old_bytes` that left `result_bytes`.
#[must_use]
pub fn replaced_share(old_bytes: u64, incoming_bytes: u64, result_bytes: u64) -> f64 {
    let dropped_bytes = (old_bytes + incoming_bytes).saturating_sub(result_bytes);
    if incoming_bytes == 0 { 1.0 } else { dropped_bytes as f64 / incoming_bytes as f64 }
}

/// The blocks that a lookup of an absent key reads where the fences of `held` memtables fit into
/// memory, on average over a cycle: each level whose fences do not fit costs the block above it.
///
/// Fences of small levels are held first. A level has taken from 0 to b - 1 merges from above.
fn reads(ratio: f64, b_quarters: u16, k: u8, t: u8, held: f64) -> f64 {
    let growth = growth(b_quarters);
    let mut room = held - f64::from(t) / 2.0;
    let mut reads = 0.0;
    for rank in 1..=k {
        let step = period(b_quarters, rank - 1, t);
        let fit = (room / step).floor().clamp(0.0, growth - 1.0);
        reads += (growth - 1.0 - fit) / growth;
        room -= step * fit * (fit + 1.0) / 2.0 / growth;
    }
    reads + if ratio > room { 1.0 } else { 0.0 }
}

/// The shape that writes least among those within the bounds on garbage and runs, where
/// `replaced` of the new entries replace or delete others. Where memory for fences is scarce, a
/// shape with fewer reads may write more.
#[must_use]
pub fn choose(data_bytes: u64, room: FenceRoom, replaced: f64) -> Shape {
    choose_within(data_bytes, room, GARBAGE_MAX, replaced.clamp(REPLACED_MIN, 1.0))
}

/// The same with a bound on garbage, as a share of the data.
fn choose_within(data_bytes: u64, room: FenceRoom, garbage_max: f64, replaced: f64) -> Shape {
    let kappa0_bytes = room.kappa0_bytes;
    let cost = |ratio, b_quarters, k, t| {
        cost(ratio, b_quarters, k, t)
            + room.cost(READ_WORTH, |held| reads(ratio, b_quarters, k, t, held))
    };
    let ratio = data_bytes as f64 / kappa0_bytes.max(1) as f64;
    let mut best = Shape { b_quarters: 8, k: 0, t: 0, kappa0_bytes };
    let mut best_cost = cost(ratio, 8, 0, 0);
    for t in 0..RUNS_MAX {
        for k in 0..RUNS_MAX - t {
            for b_quarters in GROWTH_FACTORS.map(|b| b * 4) {
                let garbage = (period(b_quarters, k, t) - 1.0) / ratio * replaced;
                let this = cost(ratio, b_quarters, k, t);
                // I4: the bottom is larger than anything above it.
                let fits = garbage <= garbage_max && period(b_quarters, k, t) <= ratio;
                // Shapes are tried from few runs to many: a tie goes to fewer.
                if fits && this < best_cost - 1e-9 {
                    best = Shape { b_quarters, k, t, kappa0_bytes };
                    best_cost = this;
                }
            }
        }
    }
    best
}

/// The shape of a tree with one level above its bottom, of `upper_bytes` bytes, and `t` sorted runs
/// that are kept.
#[must_use]
pub fn gathered(upper_bytes: u64, kappa0_bytes: u64, t: u8) -> Shape {
    let memtables = upper_bytes as f64 / kappa0_bytes.max(1) as f64 + 1.0;
    let quarters = (memtables / f64::from(t + 1) * 4.0).ceil();
    let b_quarters = quarters.clamp(8.0, f64::from(u16::MAX)) as u16;
    Shape { b_quarters, k: 1, t, kappa0_bytes }
}

/// The source of level sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sizes {
    /// From the cost function, at each full merge.
    #[default]
    Cost,
    /// From the papers: κi = γ^i κ0, the number of levels that the data needs, and no sorted runs.
    Fixed {
        /// γ.
        growth: u16,
    },
}

impl Sizes {
    /// The shape for this amount of data, of which the newest part replaced the given share.
    #[must_use]
    pub fn choose(self, data_bytes: u64, room: FenceRoom, replaced: f64) -> Shape {
        match self {
            Self::Cost => choose(data_bytes, room, replaced),
            Self::Fixed { growth } => fixed(growth, data_bytes, room.kappa0_bytes),
        }
    }

    /// The same, where at most the share `upper_max` of the data may come until everything is
    /// merged.
    #[must_use]
    pub fn choose_within(self, data_bytes: u64, room: FenceRoom, upper_max: f64) -> Shape {
        match self {
            Self::Cost => choose_within(data_bytes, room, upper_max, 1.0),
            Self::Fixed { growth } => fixed(growth, data_bytes, room.kappa0_bytes),
        }
    }
}

/// The papers' shape with a growth factor of `growth`.
fn fixed(growth: u16, data_bytes: u64, kappa0_bytes: u64) -> Shape {
    let b_quarters = growth.clamp(2, 1000) * 4;
    let shape = |k| Shape { b_quarters, k, t: 0, kappa0_bytes };
    let fits = |k: &u8| data_bytes <= capacity_bytes(&shape(*k + 2), *k + 1);
    shape((0..LEVELS_MAX).find(fits).unwrap_or(LEVELS_MAX))
}

/// The number of the bottom level.
#[must_use]
pub const fn bottom_rank(shape: &Shape) -> u8 {
    shape.k + 1
}

/// κ of a level: the most data, in bytes, that may be merged into it. The bottom has no limit.
///
/// A level that is short of κi by less than half a memtable counts as full: b merges of full
/// memtables must still count as b if one of them was not quite full.
#[must_use]
pub fn capacity_bytes(shape: &Shape, rank: u8) -> u64 {
    if rank == 0 {
        return shape.kappa0_bytes;
    }
    if rank >= bottom_rank(shape) {
        return u64::MAX;
    }
    ((period(shape.b_quarters, rank, shape.t) - 0.5) * shape.kappa0_bytes as f64) as u64
}

/// The bytes in sorted runs at which they are merged: t full runs are kept, one more is too many.
#[must_use]
pub fn standing_bytes_max(shape: &Shape) -> u64 {
    ((f64::from(shape.t) + 0.5) * shape.kappa0_bytes as f64) as u64
}

/// The data above the bottom, in bytes, from which everything is merged; `None` where the shape
/// has nothing above the bottom but sorted runs.
#[must_use]
pub fn upper_bytes_max(shape: &Shape) -> Option<u64> {
    (shape.k > 0).then(|| capacity_bytes(shape, shape.k))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn small_stores_have_one_level() {
        for data in [0, 1, 1000, 1900] {
            let shape = choose(data, FenceRoom::ample(1000), 1.0);
            assert_eq!((shape.k, shape.t), (0, 0), "{data}");
        }
    }

    /// Worked by hand for R = 40: garbage allows (t+1) b^k <= 14.6. With t = 13 and k = 0 (14):
    /// 1 + 2.86 and fences. With t = 6, k = 1 and b = 2 (14): 1 + 0.5 + 2.86; with fewer runs,
    /// t = 2, k = 2 and b = 2 (12): 1 + 1 + 3.33.
    #[test]
    fn a_middle_sized_store_uses_many_runs() {
        let shape = choose(40_000, FenceRoom::ample(1000), 1.0);
        assert_eq!((shape.t, shape.k), (13, 0));
        let found = cost(40.0, shape.b_quarters, shape.k, shape.t);
        assert!(found < cost(40.0, 8, 1, 6) && found < cost(40.0, 8, 2, 2), "{found}");
        assert!(found < 4.0, "{found}");
    }

    /// By hand for R = 40 without garbage, taken for three quarters: 19.1 fit. t = 8, k = 1 and
    /// b = 2 (18) cost 1 + 0.5 + 2.22; t = 13 and k = 0 (14) 1 + 2.86.
    #[test]
    fn keys_that_replace_nothing_are_merged_less_often() {
        let shape = choose(40_000, FenceRoom::ample(1000), 0.0);
        assert_eq!((shape.t, shape.k, shape.b_quarters), (8, 1, 8));
    }

    /// By hand: with t = 2 and b = 3 the levels hold 0, 3 or 6 and 0, 9 or 18 memtables, and the
    /// runs one on average. With 9 memtables in memory 3 and 6 fit, which leaves 5 on average:
    /// 9 and 18 do not fit, in two thirds of the time.
    #[test]
    fn levels_whose_fences_do_not_fit_cost_a_read_each() {
        let reads = |held| reads(100.0, 12, 2, 2, held);
        assert_eq!(reads(200.0), 0.0);
        assert!((reads(9.0) - 1.667).abs() < 0.001, "{}", reads(9.0));
        assert!((reads(0.0) - 2.333).abs() < 0.001, "{}", reads(0.0));
    }

    #[test]
    fn scarce_memory_has_fewer_levels() {
        let (data, kappa0_bytes) = (53_000_000, 35_000);
        let few = choose(data, FenceRoom { kappa0_bytes, fence_bytes: 48 << 10 }, 1.0);
        let many = choose(data, FenceRoom::ample(kappa0_bytes), 1.0);
        let ratio = data as f64 / kappa0_bytes as f64;
        let reads = |of: &Shape| reads(ratio, of.b_quarters, of.k, of.t, 56.0);
        assert!(few.k < many.k && reads(&few) + 0.3 < reads(&many), "{few:?} {many:?}");
    }

    #[test]
    fn the_share_of_what_was_replaced() {
        assert_eq!(replaced_share(1000, 400, 1400), 0.0);
        assert_eq!(replaced_share(1000, 400, 1000), 1.0);
        assert_eq!(replaced_share(1000, 400, 1100), 0.75);
        assert_eq!(replaced_share(0, 0, 0), 1.0);
    }

    /// By hand: γ = 24 and κ0 = 1000 hold 23,500 (half a memtable less than γ κ0) in level 1 and
    /// 575,500 in level 2.
    #[test]
    fn fixed_sizes_take_as_many_levels_as_the_data_needs() {
        let room = FenceRoom::ample(1000);
        let k = |data| Sizes::Fixed { growth: 24 }.choose(data, room, 1.0).k;
        assert_eq!([k(0), k(23_500), k(24_000), k(575_500), k(576_000)], [0, 0, 1, 1, 2]);
    }

    /// By hand: t = 2, b = 3 and k = 2 give κ1 = 9 and κ2 = 27 memtables, each less a half.
    #[test]
    fn capacities() {
        let shape = Shape { b_quarters: 12, k: 2, t: 2, kappa0_bytes: 1000 };
        assert_eq!(capacity_bytes(&shape, 1), 8_500);
        assert_eq!(capacity_bytes(&shape, 2), 26_500);
        assert_eq!(capacity_bytes(&shape, 3), u64::MAX);
        assert_eq!((standing_bytes_max(&shape), upper_bytes_max(&shape)), (2_500, Some(26_500)));
    }

    proptest! {
        #[test]
        fn a_gathered_level_fits(
            upper in 0u64..1 << 40, kappa0 in 1u64 << 20..1 << 40, t in 0u8..14,
        ) {
            let shape = gathered(upper, kappa0, t);
            prop_assert!(shape.b_quarters == u16::MAX || upper <= capacity_bytes(&shape, 1));
        }

        #[test]
        fn every_choice_keeps_its_bounds(
            data in 0u64..1 << 50,
            kappa0 in 1u64..1 << 40,
            fence_bytes in prop_oneof![Just(u64::MAX), 0u64..400 << 10],
            replaced in 0.0..1.0f64,
        ) {
            let shape = choose(data, FenceRoom { kappa0_bytes: kappa0, fence_bytes }, replaced);
            let ratio = data as f64 / kappa0 as f64;
            prop_assert!(shape.t + shape.k < RUNS_MAX);
            if shape.k > 0 || shape.t > 0 {
                let period = period(shape.b_quarters, shape.k, shape.t);
                prop_assert!((period - 1.0) / ratio * replaced <= GARBAGE_MAX);
                prop_assert!((period - 1.0) / ratio <= GARBAGE_MAX / REPLACED_MIN);
            }
            // I4 holds right after a full merge: the bottom is larger than any level above.
            if shape.k > 0 {
                prop_assert!(data > capacity_bytes(&shape, shape.k));
            }
            for rank in 1..shape.k {
                prop_assert!(capacity_bytes(&shape, rank) <= capacity_bytes(&shape, rank + 1));
            }
        }
    }
}
