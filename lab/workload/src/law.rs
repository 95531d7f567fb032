//! Distributions of keys: evenly over all numbers of 32 bits, or around a mean that moves.

use crate::random::Random;

/// Numbers that there are.
pub const DOMAIN: u64 = 1 << 32;

/// The law by which the numbers of new entries are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Law {
    /// Evenly over the domain.
    Uniform,
    /// Normally around a mean, which is drawn evenly and moves after every group.
    Normal {
        /// σ, as a share of the domain.
        sigma: f64,
        /// Draws around one mean; `u64::MAX`: the first one stays.
        group: u64,
    },
}

/// Numbers by a law.
#[derive(Clone, Debug)]
pub struct Draws {
    random: Random,
    law: Law,
    mean: u64,
    left: u64,
}

impl Draws {
    /// The draws of a seed.
    #[must_use]
    pub const fn new(seed: u64, law: Law) -> Self {
        Self { random: Random::new(seed), law, mean: 0, left: 0 }
    }

    /// The next number. What would lie outside the domain is drawn again, so that no number at an
    /// end of it gathers the tails.
    pub fn draw(&mut self) -> u64 {
        let Law::Normal { sigma, group } = self.law else { return self.random.below(DOMAIN) };
        if self.left == 0 {
            self.mean = self.random.below(DOMAIN);
            self.left = group.max(1);
        }
        self.left -= 1;
        loop {
            let number = self.mean as f64 + sigma * DOMAIN as f64 * deviate(&mut self.random);
            if (0.0..DOMAIN as f64).contains(&number) {
                return number as u64;
            }
        }
    }
}

/// A number with mean 0 and variance 1, nearly normal: the sum of twelve even ones. It is exact in
/// binary fractions and so the same on every machine, as a logarithm is not; there is nothing
/// beyond 6 σ.
pub(crate) fn deviate(random: &mut Random) -> f64 {
    let sum: u64 = (0..12).map(|_| random.below(DOMAIN)).sum();
    sum as f64 / DOMAIN as f64 - 6.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(law: Law, count: usize) -> Vec<f64> {
        let mut draws = Draws::new(7, law);
        (0..count).map(|_| draws.draw() as f64 / DOMAIN as f64).collect()
    }

    fn mean_and_deviation(numbers: &[f64]) -> (f64, f64) {
        let count = numbers.len() as f64;
        let mean = numbers.iter().sum::<f64>() / count;
        let square = |number: &f64| (number - mean) * (number - mean);
        (mean, (numbers.iter().map(square).sum::<f64>() / count).sqrt())
    }

    #[test]
    fn even_draws_fill_the_domain_evenly() {
        let mut buckets = [0u32; 16];
        for number in draws(Law::Uniform, 16_000) {
            buckets[(number * 16.0) as usize] += 1;
        }
        assert!(buckets.iter().all(|count| (850..=1150).contains(count)), "{buckets:?}");
    }

    #[test]
    fn deviates_are_normal() {
        let mut random = Random::new(3);
        let numbers: Vec<_> = (0..100_000).map(|_| deviate(&mut random)).collect();
        let (mean, deviation) = mean_and_deviation(&numbers);
        assert!(mean.abs() < 0.02 && (deviation - 1.0).abs() < 0.02, "{mean} {deviation}");
        // 68.3, 95.4 and 99.7 % lie within one, two and three σ.
        for (within, share) in [(1.0, 0.683), (2.0, 0.954), (3.0, 0.997)] {
            let inside = numbers.iter().filter(|number| number.abs() <= within).count();
            assert!((inside as f64 / 1e5 - share).abs() < 0.01, "{within}: {inside}");
        }
    }

    #[test]
    fn a_group_lies_around_its_mean_and_means_lie_anywhere() {
        let law = Law::Normal { sigma: 0.001, group: 500 };
        let numbers = draws(law, 400 * 500);
        let groups: Vec<_> = numbers.chunks(500).map(mean_and_deviation).collect();
        let inner = groups.iter().filter(|(mean, _)| (0.01..0.99).contains(mean));
        assert!(inner.clone().count() > 350);
        for (mean, deviation) in inner {
            assert!((deviation - 0.001).abs() < 0.0002, "{mean} {deviation}");
        }
        let means: Vec<_> = groups.iter().map(|group| group.0).collect();
        let (mean, deviation) = mean_and_deviation(&means);
        // Of even draws: 1/2 and the root of 1/12.
        assert!((mean - 0.5).abs() < 0.05 && (deviation - 0.289).abs() < 0.03);
        assert!(numbers.iter().all(|number| (0.0..1.0).contains(number)));
    }

    #[test]
    fn a_group_without_end_keeps_its_mean() {
        let numbers = draws(Law::Normal { sigma: 0.01, group: u64::MAX }, 10_000);
        let (_, deviation) = mean_and_deviation(&numbers);
        assert!((deviation - 0.01).abs() < 0.001, "{deviation}");
    }

    #[test]
    fn the_draws_follow_from_the_seed() {
        let law = Law::Normal { sigma: 0.01, group: 9 };
        assert_eq!(draws(law, 100), draws(law, 100));
        let mut others = Draws::new(8, law);
        assert_ne!(draws(law, 1), [others.draw() as f64 / DOMAIN as f64]);
    }
}
