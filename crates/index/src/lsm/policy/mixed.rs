//! Policy Mixed (Policy 4): partial merges, but full ones into a level that holds little.
//!
//! A partial merge costs less than a full one, but never empties a level, and incoming data pays
//! for what that level already holds. So Mixed merges out of memory in parts (R1, nothing is gained
//! from an empty memtable); into the last level as has been learnt (R2); into any other level Li+1
//! fully while that one holds less than τ κ of its own (R3).

/// The part of a level that is merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// All of it.
    Full,
    /// The share δ of it.
    Partial,
}

/// The thresholds of Mixed. Until something is learnt, all merges are partial.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Thresholds {
    /// τ of levels 2, 3, … up to the one above the last; missing ones count as 0.
    pub inner: Vec<f64>,
    /// Whether merges into the last level are full: Cfull < Cpart.
    pub is_last_full: bool,
}

impl Thresholds {
    /// τ of a level.
    #[must_use]
    pub fn tau(&self, level: usize) -> f64 {
        let index = level.checked_sub(2);
        index.and_then(|index| self.inner.get(index)).copied().unwrap_or(0.0)
    }
}

/// The bytes in a level and its capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// The bytes in the level.
    pub bytes: u64,
    /// κ: the level's capacity.
    pub capacity_bytes: u64,
}

/// The part of level `level` that is merged into the level below, which is filled as `below` says;
/// `last` is the number of the last level.
#[must_use]
pub fn decide(level: usize, last: usize, below: Fill, thresholds: &Thresholds) -> Merge {
    let is_full = if level == 0 {
        false
    } else if level + 1 >= last {
        thresholds.is_last_full
    } else {
        (below.bytes as f64) < thresholds.tau(level + 1) * below.capacity_bytes as f64
    };
    if is_full { Merge::Full } else { Merge::Partial }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fill(bytes: u64) -> Fill {
        Fill { bytes, capacity_bytes: 100 }
    }

    /// By hand: levels 0 to 4, τ2 = 0.3, τ3 = 0.
    #[test]
    fn the_three_rules() {
        use Merge::{Full, Partial};
        let learnt = |is_last_full| Thresholds { inner: vec![0.3, 0.0], is_last_full };
        let into = |level: usize, bytes| decide(level - 1, 4, fill(bytes), &learnt(true));
        // R1.
        assert_eq!([into(1, 0), into(1, 99)], [Partial, Partial]);
        // R3.
        assert_eq!(
            [into(2, 0), into(2, 29), into(2, 30), into(2, 99)],
            [Full, Full, Partial, Partial]
        );
        assert_eq!([into(3, 0), into(3, 99)], [Partial, Partial]);
        // R2, regardless of what the last level holds.
        assert_eq!([into(4, 0), into(4, 1000)], [Full, Full]);
        assert_eq!(decide(3, 4, fill(0), &learnt(false)), Partial);
        // R1 comes before R2.
        assert_eq!(decide(0, 1, fill(0), &learnt(true)), Partial);
    }

    proptest! {
        #[test]
        fn unlearnt_is_partial(level in 0usize..9, last in 1usize..9, bytes: u64) {
            let below = Fill { bytes, capacity_bytes: bytes };
            prop_assert_eq!(decide(level, last, below, &Thresholds::default()), Merge::Partial);
        }
    }
}
