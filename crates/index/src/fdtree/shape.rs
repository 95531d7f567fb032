//! Level sizes that follow the data.
//!
//! The thesis fixes κi = γ^i κ0. Here the sizes come from a cost function over R = data / κ0,
//! evaluated at each full merge: `k` upper levels of capacity (b-1) b^(i-1) (t+1) κ0 above the
//! bottom, and `t` standing spill runs (memtables written once and merged t+1 at a time). The
//! bytes written per user byte beside the log are about
//! 1 + k (b-1)/2 + R/((t+1) b^k) + fences (the 1 because a memtable is written as a run before a
//! large merge takes it), the garbage at most ((t+1) b^k - 1)/R of the data, and a lookup asks
//! t + k + 1 runs, all but one of them in memory by their filters.

use esker_format::meta::Shape;

/// Most garbage, as a share of the data.
const GARBAGE_MAX: f64 = 0.5;
/// Most runs that a lookup may have to ask.
const RUNS_MAX: u8 = 9;
/// Most upper levels of fixed sizes.
const LEVELS_MAX: u8 = 16;
/// The data, in full memtables, up to which a memtable is merged without being spilled before.
pub const DIRECT_RATIO_MAX: f64 = 4.0;
/// What fences and filters add to a level's bytes.
const FENCE_SHARE: f64 = 0.02;
/// Growth factors considered. Whole numbers: a level takes b - 1 merges from above before the
/// b-th takes it down, so a fraction would only stand empty.
const GROWTH_FACTORS: std::ops::RangeInclusive<u16> = 2..=24;

fn growth(b_quarters: u16) -> f64 {
    f64::from(b_quarters) / 4.0
}

/// How many memtables are merged before everything is: (t+1) b^k.
fn period(b_quarters: u16, k: u8, t: u8) -> f64 {
    f64::from(t + 1) * growth(b_quarters).powi(i32::from(k))
}

fn cost(ratio: f64, b_quarters: u16, k: u8, t: u8) -> f64 {
    // Without standing runs the memtable takes part in the merge, unless that is a large one.
    let standing = if t == 0 && ratio <= DIRECT_RATIO_MAX { 0.0 } else { 1.0 };
    let upper = f64::from(k) * (growth(b_quarters) - 1.0) / 2.0;
    let bottom = ratio / period(b_quarters, k, t);
    standing + (upper + bottom) * (1.0 + FENCE_SHARE) + f64::from(k) * FENCE_SHARE
}

/// The shape that writes least among those within the bounds on garbage and runs.
#[must_use]
pub fn choose(data_bytes: u64, kappa0_bytes: u64) -> Shape {
    let ratio = data_bytes as f64 / kappa0_bytes.max(1) as f64;
    let mut best = Shape { b_quarters: 8, k: 0, t: 0, kappa0_bytes };
    let mut best_cost = cost(ratio, 8, 0, 0);
    for t in 0..RUNS_MAX {
        for k in 0..RUNS_MAX - t {
            for b_quarters in GROWTH_FACTORS.map(|b| b * 4) {
                let garbage = (period(b_quarters, k, t) - 1.0) / ratio;
                let this = cost(ratio, b_quarters, k, t);
                // Shapes are tried from few runs to many: a tie goes to fewer.
                if garbage <= GARBAGE_MAX && this < best_cost - 1e-9 {
                    best = Shape { b_quarters, k, t, kappa0_bytes };
                    best_cost = this;
                }
            }
        }
    }
    best
}

/// Where level sizes come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sizes {
    /// From the cost function, at each full merge.
    #[default]
    Cost,
    /// From the papers: κi = γ^i κ0, as many levels as the data needs, and no spill runs.
    Fixed {
        /// γ.
        growth: u16,
    },
}

impl Sizes {
    /// The shape for so much data.
    #[must_use]
    pub fn choose(self, data_bytes: u64, kappa0_bytes: u64) -> Shape {
        let Self::Fixed { growth } = self else { return choose(data_bytes, kappa0_bytes) };
        let b_quarters = growth.clamp(2, 1000) * 4;
        let shape = |k| Shape { b_quarters, k, t: 0, kappa0_bytes };
        let fits = |k: &u8| data_bytes <= capacity_bytes(&shape(*k + 2), *k + 1);
        shape((0..LEVELS_MAX).find(fits).unwrap_or(LEVELS_MAX))
    }
}

/// The number of the bottom level.
#[must_use]
pub const fn bottom_rank(shape: &Shape) -> u8 {
    shape.k + 1
}

/// κ of a level in bytes of data; the bottom has no limit.
#[must_use]
pub fn capacity_bytes(shape: &Shape, rank: u8) -> u64 {
    if rank == 0 {
        return shape.kappa0_bytes;
    }
    if rank >= bottom_rank(shape) {
        return u64::MAX;
    }
    let b = growth(shape.b_quarters);
    let units = (b - 1.0) * b.powi(i32::from(rank) - 1) * f64::from(shape.t + 1);
    // A few percent of slack: a level that receives exactly its share must not overflow because
    // the last memtable was a little longer than κ0.
    (units * shape.kappa0_bytes as f64 * 1.05) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn small_stores_have_one_level() {
        for data in [0, 1, 1000, 1900] {
            let shape = choose(data, 1000);
            assert_eq!((shape.k, shape.t), (0, 0), "{data}");
        }
    }

    /// Worked by hand for R = 23: garbage allows (t+1) b^k <= 12.5. With t = 5, k = 1 and b = 2
    /// (12): 1 + 0.5 + 1.92 and fences. With fewer runs, t = 2, k = 2 and b = 2 (12): 1 + 1 + 1.92.
    #[test]
    fn a_middle_sized_store_uses_many_runs() {
        let shape = choose(23_000, 1000);
        assert_eq!((shape.t, shape.k, shape.b_quarters), (5, 1, 8));
        let found = cost(23.0, shape.b_quarters, shape.k, shape.t);
        assert!(found < cost(23.0, 8, 2, 2), "{found}");
        assert!(found < 3.6, "{found}");
    }

    /// By hand: γ = 24 and κ0 = 1000 hold 23,000 (and 5 % slack) in level 1, 552,000 in level 2.
    #[test]
    fn fixed_sizes_take_as_many_levels_as_the_data_needs() {
        let k = |data| Sizes::Fixed { growth: 24 }.choose(data, 1000).k;
        assert_eq!([k(0), k(24_000), k(25_000), k(579_000), k(581_000)], [0, 0, 1, 1, 2]);
    }

    proptest! {
        #[test]
        fn every_choice_keeps_its_bounds(data in 0u64..1 << 50, kappa0 in 1u64..1 << 40) {
            let shape = choose(data, kappa0);
            let ratio = data as f64 / kappa0 as f64;
            prop_assert!(shape.t + shape.k < RUNS_MAX);
            if shape.k > 0 || shape.t > 0 {
                let period = period(shape.b_quarters, shape.k, shape.t);
                prop_assert!((period - 1.0) / ratio <= GARBAGE_MAX);
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
