//! When a page of a tree is divided, copied or merged: pure functions over counts.
//!
//! A page has room for `capacity` entries. While it lives it keeps at least `min_live` of them
//! alive, a root excepted (the weak version condition); and after it took part in a change of the
//! structure it holds between `min_split` and `max_split`, so that as many updates pass before the
//! next change (the strong version condition).

/// The bounds of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Entries that fit.
    pub capacity: usize,
    /// The fewest live entries.
    pub min_live: usize,
    /// The fewest live entries after a change of the structure.
    pub min_split: usize,
    /// The most live entries after a change of the structure.
    pub max_split: usize,
}

impl Limits {
    /// The smallest capacity for which the bounds leave room.
    pub const CAPACITY_MIN: usize = 10;

    /// One, two and four fifths, as Haapasalo has them.
    #[must_use]
    pub const fn of(capacity: usize) -> Self {
        let min_split = 2 * capacity / 5;
        let four_fifths = capacity - capacity.div_ceil(5);
        let max_split = if four_fifths < 2 * min_split { 2 * min_split } else { four_fifths };
        Self { capacity, min_live: capacity / 5, min_split, max_split }
    }
}

/// The change of the structure at a page: how many pages are replaced, and by how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// One by one copy: a version split.
    Copy,
    /// One by two: a key split, after a version split unless the page is active.
    Divide,
    /// Two neighbours by one.
    Merge,
    /// Two neighbours by two.
    Redistribute,
}

impl Change {
    /// The change for a page with `live` entries, and `sibling` ones next to it if it has a
    /// neighbour.
    #[must_use]
    pub const fn decide(limits: Limits, live: usize, sibling: Option<usize>) -> Self {
        match sibling {
            _ if live > limits.max_split => Self::Divide,
            Some(sibling) if live < limits.min_split => {
                if live + sibling > limits.max_split {
                    Self::Redistribute
                } else {
                    Self::Merge
                }
            }
            _ => Self::Copy,
        }
    }

    /// Pages replaced.
    #[must_use]
    pub const fn replaced(self) -> usize {
        match self {
            Self::Copy | Self::Divide => 1,
            Self::Merge | Self::Redistribute => 2,
        }
    }

    /// Pages that replace them.
    #[must_use]
    pub const fn pieces(self) -> usize {
        match self {
            Self::Copy | Self::Merge => 1,
            Self::Divide | Self::Redistribute => 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_fifths() {
        let limits = Limits::of(338);
        assert_eq!((limits.min_live, limits.min_split, limits.max_split), (67, 135, 270));
        for capacity in Limits::CAPACITY_MIN..400 {
            let limits = Limits::of(capacity);
            assert!(limits.min_live >= 2 && limits.min_live < limits.min_split);
            assert!(2 * limits.min_split <= limits.max_split && limits.max_split < capacity);
        }
    }

    #[test]
    fn pieces_keep_the_strong_condition() {
        for capacity in [10, 13, 169, 338] {
            let limits = Limits::of(capacity);
            for live in 0..=capacity {
                for sibling in limits.min_live..=capacity {
                    let change = Change::decide(limits, live, Some(sibling));
                    let moved = if change.replaced() == 2 { live + sibling } else { live };
                    let least = moved / change.pieces();
                    let most = moved.div_ceil(change.pieces());
                    assert!(most <= limits.max_split, "{capacity} {live} {sibling}");
                    let is_poor = change == Change::Merge && moved < limits.min_split;
                    assert!(least >= limits.min_split || is_poor, "{capacity} {live} {sibling}");
                }
            }
        }
    }

    #[test]
    fn a_root_is_not_merged() {
        let limits = Limits::of(100);
        assert_eq!(Change::decide(limits, 3, None), Change::Copy);
        assert_eq!(Change::decide(limits, 81, None), Change::Divide);
    }
}
