//! Numbers from a seed: SplitMix64, whose whole state is a counter.
//!
//! It is written out here because a stream must stay the same for ever, and random number crates
//! reserve the right to change theirs. It is fast and even, and no secret.

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A stream of numbers that follows from its seed alone.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

/// A bijection of 64-bit numbers that leaves no pattern of its input: the finisher of SplitMix64.
#[must_use]
pub const fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(STEP);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Random {
    /// The stream of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Any 64 bits.
    pub const fn bits(&mut self) -> u64 {
        let drawn = mixed(self.state);
        self.state = self.state.wrapping_add(STEP);
        drawn
    }

    /// A number below `bound`; 0 when `bound` is 0. Its bias is `bound / 2^64`.
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.bits() as u128 * bound as u128) >> 64) as u64
    }

    /// Fills `bytes` with bytes that no compressor makes shorter.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let drawn = self.bits().to_le_bytes();
            chunk.copy_from_slice(drawn.get(..chunk.len()).unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_splitmix64() {
        // The first numbers of seed 1234567, as published with the algorithm.
        let mut random = Random::new(1_234_567);
        let drawn = [random.bits(), random.bits(), random.bits()];
        assert_eq!(
            drawn,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn numbers_stay_below_their_bound_and_reach_both_ends() {
        let mut random = Random::new(3);
        let mut seen = [0u32; 4];
        for _ in 0..400 {
            seen[random.below(4) as usize] += 1;
        }
        assert!(seen.iter().all(|count| (60..=140).contains(count)), "{seen:?}");
        assert_eq!(random.below(0), 0);
        assert_eq!(random.below(1), 0);
    }

    #[test]
    fn filling_covers_every_length() {
        for length in 0..20 {
            let mut bytes = vec![0; length];
            Random::new(5).fill(&mut bytes);
            let mut longer = vec![0; 24];
            Random::new(5).fill(&mut longer);
            assert_eq!(bytes, longer[..length]);
        }
    }
}
