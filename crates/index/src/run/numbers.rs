//! The greatest sequence numbers in a level, by keys.
//!
//! A level's record has the greatest number of all. Merges of a key range (slices) bring newer
//! versions into that range alone: what was in the rest of the level before is as old as it was.
//! That is known for the last few slices, in memory only; an index that has been opened knows what
//! the record has.
//!
//! Invariant: a version whose key is in none of the parts has at most the number `all`; one whose
//! key is in some of them has at most the greatest of `all` and theirs.

use esker_format::action::KeyRangeBuf;
use esker_format::ids::Seq;

/// Most slices that are remembered.
const PARTS_MAX: usize = 64;

/// Upper bounds of sequence numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers {
    all: Seq,
    parts: Vec<(KeyRangeBuf, Seq)>,
}

impl Numbers {
    /// Those of a level that has no greater number than this one.
    pub const fn up_to(all: Seq) -> Self {
        Self { all, parts: Vec::new() }
    }

    /// The same, after versions up to `newest` have come into `keys`.
    pub fn with(&self, keys: &KeyRangeBuf, newest: Seq) -> Self {
        let mut numbers = self.clone();
        if newest <= self.all {
            return numbers;
        }
        let all_keys = keys.as_range();
        let is_within = |part: &KeyRangeBuf| {
            part.begin.as_slice() >= all_keys.begin
                && all_keys.end.is_none_or(|end| part.end.as_deref().is_some_and(|e| e <= end))
        };
        numbers.parts.retain(|(part, seq)| *seq > newest || !is_within(part));
        numbers.parts.push((keys.clone(), newest));
        if numbers.parts.len() > PARTS_MAX {
            let oldest = numbers.parts.iter().map(|(_, seq)| *seq).min().unwrap_or_default();
            numbers.parts.retain(|(_, seq)| *seq > oldest);
            numbers.all = numbers.all.max(oldest);
        }
        numbers
    }

    /// A key at or behind `from`: from there up to it no key has a version with the number `seq` or
    /// a greater one. `None`: no key from `from` on has one.
    pub fn first_from<'a>(&'a self, from: &'a [u8], seq: Seq) -> Option<&'a [u8]> {
        if self.all >= seq {
            return Some(from);
        }
        let newer = self.parts.iter().filter(|(_, newest)| *newest >= seq).map(|(keys, _)| keys);
        let behind = newer.filter(|keys| keys.end.as_deref().is_none_or(|end| from < end));
        behind.map(|keys| from.max(keys.begin.as_slice())).min()
    }

    /// A key before `until`, or before the end of all keys: from it on no key before `until` has a
    /// version with the number `seq` or a greater one. `None`: the key right before `until` may
    /// have one.
    pub fn last_until<'a>(&'a self, until: Option<&[u8]>, seq: Seq) -> Option<&'a [u8]> {
        if self.all >= seq {
            return None;
        }
        let newer = self.parts.iter().filter(|(_, newest)| *newest >= seq).map(|(keys, _)| keys);
        let before = newer.filter(|keys| until.is_none_or(|until| keys.begin.as_slice() < until));
        let mut last: &[u8] = &[];
        for keys in before {
            let end = keys.end.as_deref()?;
            if until.is_some_and(|until| end >= until) {
                return None;
            }
            last = last.max(end);
        }
        Some(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_format::action::KeyRange;
    use proptest::prelude::*;

    type Part = (u8, Option<u8>, u64);

    fn parts() -> impl Strategy<Value = Vec<Part>> {
        let part = (0..20u8, proptest::option::weighted(0.9, 1..9u8), 1..200u64);
        let part = part.prop_map(|(begin, len, seq)| (begin, len.map(|len| begin + len), seq));
        proptest::collection::vec(part, 0..100)
    }

    proptest! {
        #[test]
        fn no_newer_version_is_in_what_is_said_to_be_older(
            all in 0..100u64,
            parts in parts(),
            seq in 0..200u64,
            at in 0..30u8,
        ) {
            let mut numbers = Numbers::up_to(Seq(all));
            for (begin, end, newest) in &parts {
                let (begin, end) = ([*begin], end.map(|end| [end]));
                let keys = KeyRange { begin: &begin, end: end.as_ref().map(<[u8; 1]>::as_slice) };
                numbers = numbers.with(&keys.into(), Seq(*newest));
                prop_assert!(numbers.parts.len() <= PARTS_MAX);
            }
            let newest = |key: u8| {
                let has = |part: &&Part| part.0 <= key && part.1.is_none_or(|end| key < end);
                parts.iter().filter(has).map(|part| part.2).max().unwrap_or(0).max(all)
            };
            let is_newer = |key: &u8| newest(*key) >= seq;
            let first = (at..40).find(is_newer);
            let said = numbers.first_from(&[at], Seq(seq)).map(|key| key[0]);
            prop_assert!(said.is_none_or(|said| at <= said));
            prop_assert!(first.is_none() || said.is_some_and(|said| said <= first.unwrap()));
            let limit = [at];
            let until = (at < 25).then_some(&limit[..]);
            let last = (0..until.map_or(40, |_| at)).rfind(is_newer);
            if let (Some(said), Some(last)) = (numbers.last_until(until, Seq(seq)), last) {
                prop_assert!(!said.is_empty() && said[0] > last);
            }
        }
    }
}
