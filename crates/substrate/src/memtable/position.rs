//! The position of a version, and short forms of it that decide most comparisons.
//!
//! The order is that of `esker_format::key`: user key ascending, then number descending, so that a
//! search for (key, number) finds the newest version that the number may see.

use std::cmp::Ordering;

use esker_format::ids::Seq;
use esker_format::key::{compare, long_head};

/// The position of an existing or a new version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position<'a> {
    pub(super) key: &'a [u8],
    pub(super) seq: Seq,
}

impl<'a> Position<'a> {
    /// Before everything.
    pub(super) const LEAST: Self = Self { key: &[], seq: Seq::MAX };

    pub(super) const fn new(key: &'a [u8], seq: Seq) -> Self {
        Self { key, seq }
    }

    /// With the key's head behind its first `skip` bytes: compares like the position itself with
    /// others whose keys have the same first bytes.
    pub(super) fn headed(self, skip: usize) -> Headed<'a> {
        let key = self.key.get(skip..).unwrap_or_default();
        Headed { head: long_head(key), rest: Self { key, ..self } }
    }
}

impl Ord for Position<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        compare((self.key, self.seq), (other.key, other.seq))
    }
}

impl PartialOrd for Position<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A position among others with the same first key bytes, which it is without.
///
/// The head, eight key bytes, is kept where it can be read without a look at the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Headed<'a> {
    pub(super) head: u64,
    pub(super) rest: Position<'a>,
}

/// The begin of a leaf's range: between two versions, or at one.
#[derive(Clone, Debug)]
pub(super) struct Boundary {
    key: Box<[u8]>,
    seq: Seq,
}

impl Boundary {
    /// Before everything.
    pub(super) fn least() -> Self {
        Self::at(Position::LEAST)
    }

    /// At this position.
    pub(super) fn at(position: Position<'_>) -> Self {
        Self { key: position.key.into(), seq: position.seq }
    }

    /// Just behind this position: there is none between.
    pub(super) fn behind(position: Position<'_>) -> Self {
        match position.seq.0.checked_sub(1) {
            Some(lower) => Self { key: position.key.into(), seq: Seq(lower) },
            None => {
                let key = position.key.iter().copied().chain([0]).collect();
                Self { key, seq: Seq::MAX }
            }
        }
    }

    pub(super) fn position(&self) -> Position<'_> {
        Position::new(&self.key, self.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn position() -> impl Strategy<Value = (Vec<u8>, u64)> {
        (proptest::collection::vec(0u8..2, 0..12), prop_oneof![0u64..3, Just(u64::MAX)])
    }

    proptest! {
        #[test]
        fn nothing_is_between_a_position_and_just_behind_it(
            (key, seq) in position(),
            (other_key, other_seq) in position(),
        ) {
            let at = Position::new(&key, Seq(seq));
            let other = Position::new(&other_key, Seq(other_seq));
            let behind = Boundary::behind(at);
            prop_assert!(at < behind.position());
            prop_assert!(other <= at || behind.position() <= other);
            prop_assert!(Position::LEAST <= other);
        }

        #[test]
        fn headed_positions_compare_like_positions(
            prefix in proptest::collection::vec(any::<u8>(), 0..4),
            (mut key, seq) in position(),
            (mut other_key, other_seq) in position(),
        ) {
            key.splice(0..0, prefix.iter().copied());
            other_key.splice(0..0, prefix.iter().copied());
            let at = Position::new(&key, Seq(seq));
            let other = Position::new(&other_key, Seq(other_seq));
            let skip = prefix.len();
            prop_assert_eq!(at.headed(skip).cmp(&other.headed(skip)), at.cmp(&other));
        }
    }
}
