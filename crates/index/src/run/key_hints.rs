//! Two bytes for each of many keys, which tell most of them apart where they are spread evenly.

use std::ops::Range;

use esker_format::key::{common_prefix_len, long_head};

/// Hints of keys in order: the distance of a key from the second one, in what follows their common
/// prefix, as far as two bytes hold it.
///
/// Invariant: a key with a lower hint than another one's is less than it.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyHints {
    /// What all keys but the first begin with.
    prefix: Box<[u8]>,
    /// The head of what follows the prefix in the second key.
    base: u64,
    /// Bits of a head that the hints lack.
    shift: u32,
    hints: Vec<u16>,
}

impl KeyHints {
    /// The hints of `count` keys in order. The first may be unlike all others: a level begins with
    /// the empty key.
    pub fn of<'a>(count: usize, key: impl Fn(usize) -> &'a [u8]) -> Self {
        let last = count.saturating_sub(1);
        let (second, last) = (key(1.min(last)), key(last));
        let prefix = last.get(..common_prefix_len(second, last)).unwrap_or_default().into();
        let mut hints = Self { prefix, ..Self::default() };
        hints.base = hints.head(second);
        let range = hints.head(last).saturating_sub(hints.base);
        hints.shift = (u64::BITS - range.leading_zeros()).saturating_sub(u16::BITS);
        hints.hints = (0..count).map(|index| hints.hint(key(index))).collect();
        hints
    }

    /// A number that is not greater for a lesser key.
    fn head(&self, key: &[u8]) -> u64 {
        if self.prefix.is_empty() {
            return long_head(key);
        }
        match key.strip_prefix(&*self.prefix) {
            Some(rest) => long_head(rest),
            None if key < &*self.prefix => 0,
            None => u64::MAX,
        }
    }

    fn hint(&self, key: &[u8]) -> u16 {
        let distance = self.head(key).saturating_sub(self.base) >> self.shift;
        distance.min(u64::from(u16::MAX)) as u16
    }

    /// Where the keys are that do not differ from `key` by their hints alone: all before are less,
    /// all behind are greater. `None` without hints.
    pub fn around(&self, key: &[u8]) -> Option<Range<usize>> {
        (!self.hints.is_empty()).then(|| equal_range(&self.hints, &self.hint(key)))
    }

    /// Memory of the hints, in bytes.
    pub const fn memory_bytes(&self) -> usize {
        size_of::<u16>() * self.hints.len() + self.prefix.len()
    }
}

/// The places of `item` among `items`, which are in order: none, where it would be, if it is not
/// there.
pub(super) fn equal_range<T: Ord>(items: &[T], item: &T) -> Range<usize> {
    let from = items.partition_point(|other| other < item);
    let rest = items.get(from..).unwrap_or_default();
    // Most searches end here.
    if rest.first() != Some(item) {
        return from..from;
    }
    from..from + rest.partition_point(|other| other == item)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_key() -> impl Strategy<Value = Vec<u8>> {
        let rest = prop_oneof![
            proptest::collection::vec(0u8..3, 0..4),
            proptest::collection::vec(any::<u8>(), 0..12)
        ];
        (0..3usize, rest).prop_map(|(prefix, rest)| {
            [["", "a", "a long prefix"][prefix].as_bytes(), &rest].concat()
        })
    }

    proptest! {
        #[test]
        fn keys_before_are_less_and_keys_behind_are_greater(
            mut keys in proptest::collection::vec(any_key(), 0..40),
            prefix in any_key(),
            asked in proptest::collection::vec(any_key(), 20),
            begins_empty: bool,
        ) {
            keys.iter_mut().for_each(|key| key.splice(..0, prefix.iter().copied()).for_each(drop));
            keys.extend(begins_empty.then(Vec::new));
            keys.sort();
            let hints = KeyHints::of(keys.len(), |index| keys.get(index).map_or(&[], |key| key));
            prop_assert_eq!(hints.around(b"").is_none(), keys.is_empty());
            let alike = asked.iter().map(|key| [&prefix[..], key].concat());
            for key in asked.iter().cloned().chain(alike).chain(keys.clone()) {
                let around = hints.around(&key).unwrap_or_default();
                prop_assert!(keys[..around.start].iter().all(|other| *other < key));
                prop_assert!(keys[around.end..].iter().all(|other| *other > key));
            }
        }

        #[test]
        fn random_keys_are_told_apart(
            mut keys in proptest::collection::vec(any::<[u8; 16]>(), 512),
            prefix in prop_oneof![Just(""), Just("of a table, for example: ")],
        ) {
            keys.sort();
            let keys: Vec<_> = keys.iter().map(|key| [prefix.as_bytes(), key].concat()).collect();
            let hints = KeyHints::of(keys.len(), |index| &keys[index]);
            let together: usize = keys.iter().map(|key| hints.around(key).unwrap().len()).sum();
            prop_assert!(together < 512 + 64, "{}", together);
        }
    }
}
