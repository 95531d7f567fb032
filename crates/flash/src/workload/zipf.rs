//! Zipf's law over any number of slots, by rejection-inversion (Hörmann and Derflinger, "Rejection-
//! inversion to generate variates from monotone discrete distributions", ACM TOMACS 6(3), 1996):
//! exact for every θ above 0, without a sum over all slots.

use crate::random::Random;

/// The law, and the slot of each rank.
#[derive(Clone, Debug)]
pub(super) struct Zipf {
    slots: u64,
    theta: f64,
    /// H(3/2) − 1 and H(n + 1/2), between which the inversion draws.
    low: f64,
    high: f64,
    /// Below this distance from its rank, a draw is accepted without another logarithm.
    sure: f64,
    /// Bits of the smallest power of two that holds all slots.
    bits: u32,
}

impl Zipf {
    /// `slots` is at least 1, `theta` above 0.
    pub(super) fn new(slots: u64, theta: f64) -> Self {
        let bits = (u64::BITS - (slots - 1).leading_zeros()).max(2);
        let mut zipf = Self { slots, theta, low: 0.0, high: 0.0, sure: 0.0, bits };
        zipf.low = zipf.integral(1.5) - 1.0;
        zipf.high = zipf.integral(slots as f64 + 0.5);
        zipf.sure = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    pub(super) fn draw(&self, random: &mut Random) -> u64 {
        scattered(self.rank(random) - 1, self.slots, self.bits)
    }

    /// A rank from 1.
    fn rank(&self, random: &mut Random) -> u64 {
        loop {
            let drawn = self.high + random.unit() * (self.low - self.high);
            let x = self.inverse(drawn);
            let rank = (x.round() as u64).clamp(1, self.slots);
            let k = rank as f64;
            if k - x <= self.sure || drawn >= self.integral(k + 0.5) - self.density(k) {
                return rank;
            }
        }
    }

    /// x^-θ.
    fn density(&self, x: f64) -> f64 {
        (-self.theta * x.ln()).exp()
    }

    /// H(x), an integral of the density: (x^(1-θ) − 1) / (1 − θ), or ln x.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        let t = (1.0 - self.theta) * log;
        let slope = if t.abs() > 1e-8 { t.exp_m1() / t } else { 1.0 + t / 2.0 };
        slope * log
    }

    fn inverse(&self, y: f64) -> f64 {
        let t = (y * (1.0 - self.theta)).max(-1.0);
        let slope = if t.abs() > 1e-8 { t.ln_1p() / t } else { 1.0 - t / 2.0 };
        (slope * y).exp()
    }
}

/// The slot of a rank: a bijection of 0..slots, by one of 0..2^bits that is applied until its
/// result is a slot.
fn scattered(rank: u64, slots: u64, bits: u32) -> u64 {
    let mask = if bits >= u64::BITS { u64::MAX } else { (1 << bits) - 1 };
    let shift = bits / 2;
    let mut x = rank;
    loop {
        for odd in [0x9e37_79b9_7f4a_7c15_u64, 0xbf58_476d_1ce4_e5b9] {
            x = x.wrapping_mul(odd) & mask;
            x ^= x >> shift;
        }
        if x < slots {
            return x;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_follow_the_law() {
        for theta in [0.5, 0.99, 1.0, 1.5] {
            let zipf = Zipf::new(1000, theta);
            let mut random = Random::new(1);
            let draws = 400_000;
            let mut counts = vec![0_u32; 1000];
            for _ in 0..draws {
                counts[zipf.rank(&mut random) as usize - 1] += 1;
            }
            let weight = |rank: usize| (rank as f64).powf(-theta);
            let sum: f64 = (1..=1000).map(weight).sum();
            for rank in [1, 2, 3, 10, 100] {
                let expected = draws as f64 * weight(rank) / sum;
                let found = f64::from(counts[rank - 1]);
                // Five standard deviations.
                assert!(
                    (found - expected).abs() < 5.0 * expected.sqrt(),
                    "{theta} {rank}: {found}"
                );
            }
            let tail: u32 = counts[500..].iter().sum();
            let expected = draws as f64 * (501..=1000).map(weight).sum::<f64>() / sum;
            assert!((f64::from(tail) - expected).abs() < 5.0 * expected.sqrt(), "{theta}: {tail}");
        }
    }

    #[test]
    fn every_rank_has_a_slot_of_its_own() {
        for slots in [1, 2, 3, 7, 1000, 4096, 5000] {
            let zipf = Zipf::new(slots, 0.99);
            let mut seen: Vec<_> = (0..slots).map(|r| scattered(r, slots, zipf.bits)).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..slots));
        }
    }
}
