//! The points at which a leaf that outgrew its limits is split.
//!
//! Pure functions over the memory of its versions.

/// The limits of one leaf. A single version may be larger.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) entries: usize,
    pub(super) memory_bytes: u64,
}

/// Parts of a full leaf of small versions. While a memtable fills with random keys, each version
/// is copied 0.6 times with four parts, and 1.4 times with two.
const PARTS: usize = 4;

impl Default for Limits {
    fn default() -> Self {
        Self { entries: 512, memory_bytes: 64 << 10 }
    }
}

impl Limits {
    /// The limits of a part of a leaf that outgrew these.
    pub(super) const fn of_a_part(&self) -> Self {
        Self {
            entries: self.entries.div_ceil(PARTS),
            memory_bytes: self.memory_bytes / PARTS as u64,
        }
    }

    /// Whether a leaf may hold this many entries and bytes.
    pub(super) const fn hold(&self, entries: usize, memory_bytes: u64) -> bool {
        entries <= self.entries && memory_bytes <= self.memory_bytes
    }
}

/// Parts versions of these weights, in bytes of memory, until each part may be a leaf: returns
/// the lengths of the parts. A version too large for any leaf ends up alone, or the parts around
/// it would be cut again by each further insert.
pub(super) fn cut(weights: &[u64], limits: &Limits) -> Vec<usize> {
    let mut lengths = Vec::new();
    let mut pending = vec![weights];
    while let Some(weights) = pending.pop() {
        let middle = middle(weights);
        if middle == 0 || limits.hold(weights.len(), weights.iter().sum()) {
            lengths.push(weights.len());
        } else {
            let (left, right) = weights.split_at(middle);
            pending.extend([right, left]);
        }
    }
    lengths
}

/// The cut that makes the heavier side lightest; 0 when there is nothing to cut.
fn middle(weights: &[u64]) -> usize {
    let total: u64 = weights.iter().sum();
    let mut left = 0;
    let cuts = weights.iter().enumerate().skip(1).zip(weights).map(|((index, _), before)| {
        left += before;
        (left.max(total - left), index)
    });
    cuts.min().map_or(0, |(_, index)| index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits { entries: 8, memory_bytes: 1000 };

    #[test]
    fn equal_weights_are_halved() {
        assert_eq!(cut(&[10; 9], &LIMITS), [4, 5]);
        assert_eq!(cut(&[10; 8], &LIMITS), [8]);
        assert_eq!(cut(&[300; 4], &LIMITS), [2, 2]);
    }

    #[test]
    fn what_is_too_large_for_any_leaf_ends_up_alone() {
        assert_eq!(cut(&[10, 10, 5000, 10], &LIMITS), [2, 1, 1]);
        assert_eq!(cut(&[5000, 10, 10], &LIMITS), [1, 2]);
        assert_eq!(cut(&[10, 5000], &LIMITS), [1, 1]);
        assert_eq!(cut(&[5000], &LIMITS), [1]);
    }

    proptest! {
        #[test]
        fn parts_hold_everything_and_fit(
            weights in proptest::collection::vec(1u64..1500, 1..40),
        ) {
            let lengths = cut(&weights, &LIMITS);
            prop_assert_eq!(lengths.iter().sum::<usize>(), weights.len());
            let mut rest = weights.as_slice();
            for length in lengths {
                let (part, behind) = rest.split_at(length);
                rest = behind;
                prop_assert!(length == 1 || LIMITS.hold(length, part.iter().sum()));
            }
        }
    }
}
