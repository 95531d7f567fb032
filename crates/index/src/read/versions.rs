//! The versions of a key that a merge keeps.
//!
//! A version is kept exactly when it is the newest with a number of at most s, for some s among the
//! live snapshots, the visible number and the floor of what is retained, where there is one; or
//! when its number is above that floor. So every moment from the floor on stays readable. In a full
//! merge a tombstone is dropped when no older version of its key is kept: a moment that it answered
//! finds nothing, as it did. Range tombstones know of no floor.
//!
//! An operand alone does not answer a read: a reader that sees it also needs older versions.

use esker_format::ids::Seq;
use esker_substrate::planted::{self, Bug};

/// Decides version by version for one key at a time, newest first.
///
/// Invariant: `points[..answered]` already have the version they see.
#[derive(Debug)]
pub struct Keep {
    /// The visible number and the live snapshots, newest first.
    points: Vec<Seq>,
    answered: usize,
    /// Every version above it is kept; `None`: only what readers see.
    floor: Option<Seq>,
    /// Numbers of versions stay as they are.
    keeps_numbers: bool,
}

/// The fate of a version in a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// No reader can see it.
    Drop,
    /// It is the newest version of its key that any reader can see.
    Newest,
    /// It is kept for a snapshot, or because it is retained; newer versions exist.
    Superseded,
}

impl Keep {
    /// Rules for the numbers that must stay readable, newest first, and for the number above which
    /// every version is kept.
    #[must_use]
    pub fn new(mut points: Vec<Seq>, floor: Option<Seq>) -> Self {
        if let Some(floor) = floor {
            let place = points.partition_point(|point| *point > floor);
            points.insert(place, floor);
        }
        Self { points, answered: 0, floor, keeps_numbers: floor.is_some() }
    }

    /// Rules of a split: the newest version up to `at` is kept, with its number.
    #[must_use]
    pub fn as_of(at: Seq) -> Self {
        Self {
            points: vec![at],
            answered: 0,
            floor: None,
            keeps_numbers: !planted::is(Bug::SplitResetsNumbers),
        }
    }

    /// Whether a version is kept because its number is retained.
    pub(crate) fn is_retained(&self, seq: Seq) -> bool {
        self.floor.is_some_and(|floor| seq > floor)
    }

    /// Begins another key.
    pub const fn next_key(&mut self) {
        self.answered = 0;
    }

    /// Whether all readers see the version whose fate was returned last, and nothing older: then no
    /// reader needs its number any more, unless numbers are retained.
    #[must_use]
    pub const fn all_see_the_same(&self) -> bool {
        self.answered > 0 && self.answered == self.points.len() && !self.keeps_numbers
    }

    /// The fate of the next older version of the key.
    pub fn fate(&mut self, seq: Seq) -> Fate {
        let newest_unanswered = self.points.get(self.answered);
        // Not visible to any reader yet: it will be.
        if self.answered == 0 && newest_unanswered.is_none_or(|point| seq > *point) {
            return Fate::Newest;
        }
        if newest_unanswered.is_none_or(|point| *point < seq) {
            return if self.is_retained(seq) { Fate::Superseded } else { Fate::Drop };
        }
        let fate = if self.answered == 0 { Fate::Newest } else { Fate::Superseded };
        while self.points.get(self.answered).is_some_and(|point| *point >= seq) {
            self.answered += 1;
        }
        fate
    }

    /// The same for a version that is an operand: a reader that sees it still needs an older
    /// version.
    pub fn fate_of_operand(&mut self, seq: Seq) -> Fate {
        if planted::is(Bug::OperandsAnswer) {
            return self.fate(seq);
        }
        let answered = self.answered;
        let fate = self.fate(seq);
        self.answered = answered;
        fate
    }

    /// Whether a reader may see the version with number `older` and not that with number `newer`. A
    /// reader without a registered number sees at least the visible one.
    #[must_use]
    pub fn separates(&self, newer: Seq, older: Seq) -> bool {
        if planted::is(Bug::MergedForSnapshots) {
            return false;
        }
        let visible = self.points.first().copied().unwrap_or_default();
        self.is_retained(newer)
            || visible < newer
            || self.points.iter().any(|point| older <= *point && *point < newer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_point_sees_what_it_saw_and_nothing_else_stays(
            points in proptest::collection::btree_set(1u64..40, 1..6),
            versions in proptest::collection::btree_set(1u64..40, 1..30),
        ) {
            let points: Vec<Seq> = points.into_iter().rev().map(Seq).collect();
            let mut keep = Keep::new(points.clone(), None);
            keep.next_key();
            let mut kept = Vec::new();
            for seq in versions.iter().rev().map(|seq| Seq(*seq)) {
                if keep.fate(seq) != Fate::Drop {
                    kept.push(seq);
                }
            }
            let seen = |among: &[Seq], point: Seq| among.iter().find(|seq| **seq <= point).copied();
            let all: Vec<Seq> = versions.iter().rev().map(|seq| Seq(*seq)).collect();
            for point in &points {
                prop_assert_eq!(seen(&all, *point), seen(&kept, *point));
            }
            for seq in kept {
                let needed = points.iter().any(|point| seen(&all, *point) == Some(seq));
                prop_assert!(needed || seq > points[0]);
            }
        }
    }

    /// By hand: 7 is visible, a snapshot sees 3, and everything from 5 on is retained: of those
    /// before, the one that 5 sees.
    #[test]
    fn retained_versions_stay_and_keep_their_numbers() {
        let mut keep = Keep::new(vec![Seq(7), Seq(3)], Some(Seq(5)));
        let fates = [9, 8, 7, 6, 4, 3, 2].map(|seq| keep.fate(Seq(seq)));
        use Fate::{Drop, Newest, Superseded};
        let expected = [Newest, Newest, Newest, Superseded, Superseded, Superseded, Drop];
        assert_eq!(fates, expected);
        assert!(keep.separates(Seq(6), Seq(5)) && !keep.separates(Seq(3), Seq(2)));
        assert!(!keep.all_see_the_same());
    }
}
