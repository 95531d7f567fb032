//! Consumed key ranges: keys that a run no longer has, because a merge has moved them to a level
//! below.
//!
//! The run's blocks stay as they are: those that hold only consumed keys are freed, in the others
//! consumed keys are skipped. Sets are immutable: a merge that consumes more puts a new set into
//! the next view.
//!
//! Invariant: ranges ascend, and no two touch; there is a head for each.

use std::sync::Arc;

use esker_format::action::{KeyRange, KeyRangeBuf};
use esker_format::ids::Seq;
use esker_format::key::long_head;

/// A set of keys, as ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Consumed {
    ranges: Arc<[KeyRangeBuf]>,
    /// The heads of the ranges' bounds: a search touches few of the keys themselves.
    heads: Arc<[Heads]>,
}

/// The heads of a range's first key and of its end; without an end, the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Heads {
    begin: u64,
    end: u64,
}

impl Heads {
    fn of(range: &KeyRangeBuf) -> Self {
        let end = range.end.as_deref().map_or(u64::MAX, long_head);
        Self { begin: long_head(&range.begin), end }
    }
}

impl Consumed {
    /// A set of ranges that obey the invariant.
    #[must_use]
    pub fn new(ranges: &[KeyRangeBuf]) -> Self {
        Self::of(ranges.into())
    }

    fn of(ranges: Arc<[KeyRangeBuf]>) -> Self {
        let heads = ranges.iter().map(Heads::of).collect();
        Self { ranges, heads }
    }

    /// The ranges.
    #[must_use]
    pub fn ranges(&self) -> &[KeyRangeBuf] {
        &self.ranges
    }

    /// Whether no key has been consumed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether every key has been consumed.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        matches!(&*self.ranges, [all] if all.begin.is_empty() && all.end.is_none())
    }

    /// The consumed range that contains `key`, if there is one.
    #[must_use]
    pub fn at(&self, key: &[u8]) -> Option<KeyRange<'_>> {
        let head = long_head(key);
        let behind = self.heads.partition_point(|other| other.begin < head);
        let begins_alike = self.heads.get(behind).is_some_and(|next| next.begin == head);
        let before = behind.checked_sub(1).and_then(|last| self.heads.get(last));
        if begins_alike || before.is_some_and(|range| range.end == head) {
            return self.at_alike(key, head, behind);
        }
        // The key differs from all bounds in its head.
        before.filter(|range| head < range.end)?;
        self.ranges.get(behind - 1).map(KeyRangeBuf::as_range)
    }

    /// The same for a key whose head is that of a bound; `from` is the number of ranges whose first
    /// keys have lesser heads.
    #[cold]
    fn at_alike(&self, key: &[u8], head: u64, from: usize) -> Option<KeyRange<'_>> {
        let behind = self.heads.iter().skip(from);
        let equal = behind.take_while(|other| other.begin == head).count();
        let equal = self.ranges.get(from..from + equal).unwrap_or_default();
        let behind = from + equal.partition_point(|range| range.begin.as_slice() <= key);
        let range = self.ranges.get(behind.checked_sub(1)?)?.as_range();
        range.has(key).then_some(range)
    }

    /// The range that has the keys right before `key`, or before the end of all keys.
    #[must_use]
    pub fn before(&self, key: Option<&[u8]>) -> Option<KeyRange<'_>> {
        let Some(key) = key else {
            return self
                .ranges
                .last()
                .map(KeyRangeBuf::as_range)
                .filter(|range| range.end.is_none());
        };
        let behind = self.ranges.partition_point(|range| range.begin.as_slice() < key);
        let range = self.ranges.get(behind.checked_sub(1)?)?.as_range();
        range.end.is_none_or(|end| key <= end).then_some(range)
    }

    /// Whether all keys from `begin` up to `end` have been consumed.
    #[must_use]
    pub fn has_all(&self, begin: &[u8], end: Option<&[u8]>) -> bool {
        self.at(begin).is_some_and(|range| match (range.end, end) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(gone), Some(end)) => end <= gone,
        })
    }

    /// Whether any of `keys` has been consumed.
    #[must_use]
    pub fn meets(&self, keys: KeyRange<'_>) -> bool {
        self.ranges.iter().any(|range| range.as_range().meets(&keys))
    }

    /// Whether a block has nothing left that may hold keys from `begin` up to the internal key
    /// `upper`: where that has a number, versions of its key are in the block too.
    #[must_use]
    pub fn has_block(&self, begin: &[u8], upper: Option<(&[u8], Seq)>) -> bool {
        match upper {
            Some((key, seq)) if seq != Seq::MAX => self.has_all(begin, Some(&[key, &[0]].concat())),
            upper => self.has_all(begin, upper.map(|(key, _)| key)),
        }
    }

    /// The set with more keys.
    #[must_use]
    pub fn with(&self, keys: KeyRange<'_>) -> Self {
        let mut begin = keys.begin;
        let mut end = keys.end;
        let mut ranges: Vec<KeyRangeBuf> = Vec::with_capacity(self.ranges.len() + 1);
        let mut behind: Vec<KeyRangeBuf> = Vec::new();
        for range in self.ranges.iter() {
            let before = range.end.as_deref().is_some_and(|gone| gone < keys.begin);
            let after = keys.end.is_some_and(|end| end < range.begin.as_slice());
            if before {
                ranges.push(range.clone());
            } else if after {
                behind.push(range.clone());
            } else {
                begin = begin.min(&range.begin);
                end = match (end, range.end.as_deref()) {
                    (Some(a), Some(b)) => Some(a.max(b)),
                    _ => None,
                };
            }
        }
        ranges.push(KeyRange { begin, end }.into());
        ranges.extend(behind);
        Self::of(ranges.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Keys that end with one byte, and the end behind them: their heads differ, or not.
        #[test]
        fn agrees_with_a_set_of_keys(
            added in proptest::collection::vec((0u8..30, 1u8..12), 0..12),
            prefix in proptest::sample::select(&["", "same", "the same"][..]),
        ) {
            let key_of = |byte: u8| [prefix.as_bytes(), &[byte]].concat();
            let mut gone = Consumed::default();
            let mut model = [false; 31];
            for (from, len) in added {
                let to = from + len;
                let (begin, end) = (key_of(from), key_of(to));
                let keys = KeyRange { begin: &begin, end: (to <= 30).then_some(&end[..]) };
                gone = gone.with(keys);
                (from..to.min(31)).for_each(|key| model[usize::from(key)] = true);
                if to > 30 {
                    model[30] = true;
                }
            }
            let touch = |pair: &[KeyRangeBuf]| pair[0].end.as_deref() >= Some(&pair[1].begin[..]);
            prop_assert!(!gone.ranges().windows(2).any(touch));
            for key in 0..30u8 {
                prop_assert_eq!(gone.at(&key_of(key)).is_some(), model[usize::from(key)]);
                let before = key > 0 && model[usize::from(key) - 1];
                let found = gone.before(Some(&key_of(key))).is_some();
                prop_assert_eq!(found, before, "before {}", key);
                for end in key + 1..30 {
                    let all = model[usize::from(key)..usize::from(end)].iter().all(|gone| *gone);
                    let found = gone.has_all(&key_of(key), Some(&key_of(end)));
                    prop_assert_eq!(found, all);
                }
                let rest = model[usize::from(key)..].iter().all(|gone| *gone);
                prop_assert_eq!(gone.has_all(&key_of(key), None), rest);
            }
        }
    }

    #[test]
    fn everything_is_everything() {
        let gone = Consumed::default().with(KeyRange { begin: b"", end: Some(b"m") });
        assert!(!gone.is_everything() && !gone.is_empty());
        assert!(gone.with(KeyRange { begin: b"m", end: None }).is_everything());
        assert!(gone.before(None).is_none());
    }
}
