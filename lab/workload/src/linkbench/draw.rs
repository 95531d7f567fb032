//! The distributions of LinkBench: skewed choices of ids, out-degrees and sizes.
//!
//! All of them are computed by additions, multiplications and square roots, which every machine
//! rounds the same; a logarithm would not be.

use crate::law::deviate;
use crate::random::{Random, mixed};

/// 1 / ln 2.
const LOG2_E: f64 = std::f64::consts::LOG2_E;
/// Bits of a fraction that powers are computed to.
const FRACTION_BITS: u32 = 20;
/// One, as the unit of [`DEGREES`].
const BILLION: u64 = 1_000_000_000;

/// Quantiles of the out-degree: of a billion ids this many have the degree or more, between two
/// lines by a straight line. It follows the published marks of the file that LinkBench ships (no
/// link 45.3 %, at most one 77.5 %, at most three 92.0 %, 99 % 15, 99.9 % 264, 99.99 % 6,051,
/// longest 961,963, mean 4.10); between the marks, and beyond them, it is a power law.
const DEGREES: [(u64, u64); 31] = [
    (547_000_000, 1),
    (225_000_000, 1),
    (224_000_000, 2),
    (140_000_000, 2),
    (139_000_000, 3),
    (80_000_000, 3),
    (79_000_000, 4),
    (47_568_285, 5),
    (28_284_271, 7),
    (16_817_928, 10),
    (10_000_000, 15),
    (6_812_921, 24),
    (4_641_589, 39),
    (3_162_278, 63),
    (2_154_435, 101),
    (1_467_799, 164),
    (1_000_000, 264),
    (681_292, 445),
    (464_159, 750),
    (316_228, 1_264),
    (215_443, 2_130),
    (146_780, 3_590),
    (100_000, 6_051),
    (36_278, 11_421),
    (13_161, 21_557),
    (4_774, 40_690),
    (1_732, 76_801),
    (628, 144_962),
    (228, 273_615),
    (83, 516_446),
    (30, 961_963),
];

/// The out-degree of an id whose place, of a billion places from the highest degree down, is
/// `place`.
#[must_use]
pub fn degree_at(place: u64) -> u64 {
    let mut pairs = DEGREES.iter().zip(DEGREES.iter().skip(1));
    if place >= DEGREES[0].0 {
        return 0;
    }
    let Some((above, below)) = pairs.find(|(_, below)| place >= below.0) else {
        return DEGREES[DEGREES.len() - 1].1;
    };
    above.1 + (below.1 - above.1) * (above.0 - place) / (above.0 - below.0)
}

/// 2 to a power.
fn power_of_two(exponent: f64) -> f64 {
    let whole = exponent.floor();
    let bits = ((exponent - whole) * f64::from(1u32 << FRACTION_BITS)) as u32;
    let (mut root, mut product) = (2.0f64, 1.0);
    for bit in (0..FRACTION_BITS).rev() {
        root = root.sqrt();
        if bits >> bit & 1 == 1 {
            product *= root;
        }
    }
    let scale = f64::powi(2.0, whole.clamp(-1000.0, 1000.0) as i32);
    product * scale
}

/// A number of at most one to a power that is not negative.
pub(crate) fn power(base: f64, exponent: f64) -> f64 {
    let whole = exponent.floor();
    let bits = ((exponent - whole) * f64::from(1u32 << FRACTION_BITS)) as u32;
    let (mut root, mut product) = (base, base.powi(whole as i32));
    for bit in (0..FRACTION_BITS).rev() {
        root = root.sqrt();
        if bits >> bit & 1 == 1 {
            product *= root;
        }
    }
    product
}

/// A number in [0, 1).
pub(crate) fn unit(random: &mut Random) -> f64 {
    (random.bits() >> 11) as f64 / (1u64 << 53) as f64
}

/// A length by a log-normal law with σ = 1, at most `most`.
pub fn length(random: &mut Random, median: f64, most: usize) -> usize {
    let drawn = median * power_of_two(deviate(random) * LOG2_E);
    (drawn.round() as usize).min(most)
}

/// A number from 1 on, geometric with this chance to end at each, at most `most`.
pub fn geometric(random: &mut Random, ends: f64, most: u32) -> u32 {
    let mut number = 1;
    while number < most && unit(random) >= ends {
        number += 1;
    }
    number
}

/// Whether a chance came true.
pub fn chance(random: &mut Random, share: f64) -> bool {
    unit(random) < share
}

/// A bijection of the numbers below `count` that scatters neighbours: `(a n + b) mod count`.
#[derive(Clone, Copy, Debug)]
pub struct Scatter {
    count: u64,
    factor: u64,
    shift: u64,
}

impl Scatter {
    /// The bijection of a salt; of at least one number.
    #[must_use]
    pub fn new(count: u64, salt: u64) -> Self {
        let count = count.max(1);
        // Near the golden ratio of the count, and without a common divisor.
        let golden = ((u128::from(count) * 0x9e37_79b9_7f4a_7c15) >> 64) as u64;
        let mut factor = (golden + mixed(salt) % (count / 16 + 1)) % count;
        while greatest_divisor(factor, count) != 1 {
            factor += 1;
        }
        Self { count, factor, shift: mixed(!salt) % count }
    }

    /// Where a number goes.
    #[must_use]
    pub fn of(&self, number: u64) -> u64 {
        let product = u128::from(number) * u128::from(self.factor) + u128::from(self.shift);
        (product % u128::from(self.count)) as u64
    }
}

fn greatest_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Choices of ids by Zipf's law: the id of rank r is drawn in proportion to r^-s, with s below 1.
#[derive(Clone, Copy, Debug)]
pub struct Zipf {
    scatter: Scatter,
    /// 1 / (1 - s): a rank is `count u^exponent`.
    exponent: f64,
}

impl Zipf {
    /// Choices among ids below `count`, whose popularity follows from the salt.
    #[must_use]
    pub fn new(count: u64, skew: f64, salt: u64) -> Self {
        Self { scatter: Scatter::new(count, salt), exponent: 1.0 / (1.0 - skew) }
    }

    /// The next id.
    pub fn draw(&self, random: &mut Random) -> u64 {
        let count = self.scatter.count;
        let rank = (count as f64 * power(unit(random), self.exponent)) as u64;
        self.scatter.of(rank.min(count - 1))
    }
}

/// The out-degrees of ids below a count.
#[derive(Clone, Copy, Debug)]
pub struct Degrees {
    /// From places, in the order of degrees from the highest down, to ids.
    to_id: Scatter,
    /// From ids to places.
    to_place: Scatter,
}

impl Degrees {
    /// The degrees that follow from a seed.
    #[must_use]
    pub fn new(count: u64, seed: u64) -> Self {
        let to_place = Scatter::new(count, seed ^ 0xdecade);
        let Scatter { count, factor, shift } = to_place;
        let back = inverse(factor, count);
        let back_shift = u128::from(back) * u128::from(count - shift) % u128::from(count);
        let to_id = Scatter { count, factor: back, shift: back_shift as u64 };
        Self { to_id, to_place }
    }

    /// The number of links that an id begins with.
    #[must_use]
    pub fn of(&self, id: u64) -> u64 {
        let count = self.to_place.count;
        // No id has more links than there are others.
        self.at(self.to_place.of(id)).min(count - 1)
    }

    fn at(&self, place: u64) -> u64 {
        let of_billion = (u128::from(place) * 2 + 1) * u128::from(BILLION);
        degree_at((of_billion / (u128::from(self.to_place.count) * 2)) as u64)
    }

    /// An id, drawn in proportion to the links that it begins with, as nearly as the lines of the
    /// table allow.
    pub fn draw_by_links(&self, random: &mut Random) -> u64 {
        let links = |pair: (&(u64, u64), &(u64, u64))| {
            let ((above, low), (below, high)) = pair;
            (above - below) * (low + high) / 2
        };
        let pairs = || DEGREES.iter().zip(DEGREES.iter().skip(1));
        let mut drawn = random.below(pairs().map(links).sum());
        let mut place = 0;
        for pair in pairs() {
            let all = links(pair);
            if drawn < all {
                let (above, below) = (pair.0.0, pair.1.0);
                place = below + random.below(above - below);
                break;
            }
            drawn -= all;
        }
        let count = self.to_id.count;
        self.to_id.of((u128::from(place) * u128::from(count) / u128::from(BILLION)) as u64)
    }
}

/// The number whose product with `factor` is 1 modulo `modulus`, which have no common divisor.
fn inverse(factor: u64, modulus: u64) -> u64 {
    let (mut r, mut next_r) = (i128::from(modulus), i128::from(factor));
    let (mut t, mut next_t) = (0i128, 1i128);
    while next_r != 0 {
        let quotient = r / next_r;
        (r, next_r) = (next_r, r - quotient * next_r);
        (t, next_t) = (next_t, t - quotient * next_t);
    }
    t.rem_euclid(i128::from(modulus)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_are_those_of_the_library() {
        for at in -40..40 {
            let exponent = f64::from(at) * 0.173;
            let (ours, theirs) = (power_of_two(exponent), exponent.exp2());
            assert!((ours / theirs - 1.0).abs() < 1e-5, "{exponent}: {ours} {theirs}");
            let base = (f64::from(at) + 41.0) / 100.0;
            let (ours, theirs) = (power(base, 3.861), base.powf(3.861));
            assert!((ours / theirs - 1.0).abs() < 1e-4, "{base}: {ours} {theirs}");
        }
    }

    #[test]
    fn a_scatter_is_a_bijection_and_degrees_know_its_inverse() {
        for count in [1, 2, 7, 1000, 4096] {
            let scatter = Scatter::new(count, 5);
            let mut seen: Vec<_> = (0..count).map(|number| scatter.of(number)).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..count));
            let degrees = Degrees::new(count, 9);
            assert!((0..count).all(|id| degrees.to_id.of(degrees.to_place.of(id)) == id));
        }
    }

    /// The published quantiles, and the mean of 4.10.
    #[test]
    fn degrees_are_those_of_the_shipped_file() {
        const COUNT: u64 = 1_000_000;
        let degrees = Degrees::new(COUNT, 1);
        let mut all: Vec<u64> = (0..COUNT).map(|id| degrees.of(id)).collect();
        all.sort_unstable();
        let most = |links| all.partition_point(|degree| *degree <= links) as f64 / COUNT as f64;
        for (links, share) in [(0, 0.453), (1, 0.775), (3, 0.920)] {
            assert!((most(links) - share).abs() < 0.002, "{links}: {}", most(links));
        }
        for (share, links) in [(0.99, 15), (0.999, 264), (0.9999, 6_051)] {
            let found = all[(share * COUNT as f64) as usize];
            assert!(found.abs_diff(links) <= links / 50, "{share}: {found}");
        }
        let mean = all.iter().sum::<u64>() as f64 / COUNT as f64;
        assert!((mean - 4.10).abs() < 0.12, "{mean}");
    }

    /// r ranks of n get (r / n)^(1 - s) of all draws.
    #[test]
    fn draws_follow_zipfs_law() {
        const COUNT: u64 = 100_000;
        for skew in [0.606, 0.625, 0.741, 0.8] {
            let (zipf, mut random) = (Zipf::new(COUNT, skew, 3), Random::new(4));
            let popular: std::collections::HashSet<_> =
                (0..COUNT / 100).map(|rank| zipf.scatter.of(rank)).collect();
            let hits = (0..50_000).filter(|_| popular.contains(&zipf.draw(&mut random))).count();
            let expected = 0.01f64.powf(1.0 - skew);
            assert!((hits as f64 / 5e4 - expected).abs() < 0.01, "{skew}: {hits} {expected}");
        }
    }

    #[test]
    fn lengths_are_log_normal() {
        let mut random = Random::new(6);
        let mut drawn: Vec<_> = (0..50_001).map(|_| length(&mut random, 128.0, 1 << 20)).collect();
        drawn.sort_unstable();
        assert!(drawn[25_000].abs_diff(128) <= 2, "{}", drawn[25_000]);
        // One σ up and down is a factor of e.
        let (low, high) = (drawn[7_933] as f64, drawn[42_067] as f64);
        assert!((high / 128.0 / std::f64::consts::E - 1.0).abs() < 0.03, "{high}");
        assert!((128.0 / low / std::f64::consts::E - 1.0).abs() < 0.03, "{low}");
        assert!((0..2000).all(|_| length(&mut random, 8.0, 10) <= 10));
    }

    #[test]
    fn links_are_drawn_by_their_owners_degrees() {
        let (degrees, mut random) = (Degrees::new(100_000, 2), Random::new(1));
        let (mut drawn, mut none) = (0, 0);
        for _ in 0..10_000 {
            let degree = degrees.of(degrees.draw_by_links(&mut random));
            drawn += usize::from(degree > 15);
            none += usize::from(degree == 0);
        }
        // The hundredth of the ids with the most links has about two thirds of them.
        assert!((5_000..8_000).contains(&drawn), "{drawn}");
        assert!(none < 10, "{none}");
    }

    #[test]
    fn a_geometric_number_has_its_mean_and_its_bounds() {
        let mut random = Random::new(8);
        let drawn: Vec<_> = (0..40_000).map(|_| geometric(&mut random, 0.382, 128)).collect();
        let mean = f64::from(drawn.iter().sum::<u32>()) / 4e4;
        assert!((mean - 1.0 / 0.382).abs() < 0.05, "{mean}");
        assert!(drawn.iter().all(|number| (1..=128).contains(number)));
    }
}
