//! Numbers from a seed: the same seed gives the same history on every machine.

use std::ops::RangeInclusive;

use esker_device::runtime::{Runtime, SimRuntime};

/// A stream of numbers that follows from its seed alone.
#[derive(Debug)]
pub struct Random {
    source: SimRuntime,
}

impl Random {
    /// The stream of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { source: SimRuntime::new(seed) }
    }

    /// Any 64 bits.
    #[must_use]
    pub fn bits(&self) -> u64 {
        self.source.random()
    }

    /// A number below `bound`, 0 when `bound` is 0. The bias of the remainder is far below what
    /// a test can see.
    #[must_use]
    pub fn below(&self, bound: u64) -> u64 {
        self.bits().checked_rem(bound).unwrap_or(0)
    }

    /// An index into something of `len` elements.
    #[must_use]
    pub fn index(&self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// A number of the range, both ends included.
    #[must_use]
    pub fn within(&self, range: &RangeInclusive<usize>) -> usize {
        let span = range.end().saturating_sub(*range.start()).saturating_add(1);
        range.start().saturating_add(self.index(span))
    }

    /// True in `percent` of a hundred calls.
    #[must_use]
    pub fn percent(&self, percent: u32) -> bool {
        self.below(100) < u64::from(percent)
    }

    /// One of the elements.
    #[must_use]
    pub fn pick<'a, T>(&self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.index(from.len()))
    }

    /// `len` bytes.
    #[must_use]
    pub fn bytes(&self, len: usize) -> Vec<u8> {
        let words = (0..len.div_ceil(8)).flat_map(|_| self.bits().to_le_bytes());
        words.take(len).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_another_seed_differs() {
        let stream = |seed| Random::new(seed).bytes(40);
        assert_eq!(stream(7), stream(7));
        assert_ne!(stream(7), stream(8));
    }

    #[test]
    fn bounds_hold_and_both_ends_of_a_range_occur() {
        let random = Random::new(1);
        let drawn: Vec<usize> = (0..200).map(|_| random.within(&(3..=5))).collect();
        assert!(drawn.iter().all(|n| (3..=5).contains(n)));
        assert!(drawn.contains(&3) && drawn.contains(&5));
        assert_eq!(random.below(0), 0);
        assert_eq!(random.pick::<u8>(&[]), None);
    }
}
