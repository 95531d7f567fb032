//! A directory of consecutive ranges: finds the one that contains a position.
//!
//! The common prefix of all boundaries' keys is compared once. The next eight bytes of each, its
//! head, are in the directory itself: most searches read nothing else.

use esker_format::key::{common_prefix_len, long_head};

use super::position::Position;

/// A range that begins at a position and ends where the next one begins.
pub(super) trait Begins {
    /// The position at which it begins. Does not change.
    fn lower(&self) -> Position<'_>;
}

/// Things in the order in which they begin.
pub(super) struct Directory<T> {
    /// The common prefix of the keys of all boundaries but the first. No search compares with the
    /// first: its range holds everything before the second.
    prefix: Box<[u8]>,
    entries: Vec<Entry<T>>,
}

/// One thing and its head.
#[derive(Clone)]
pub(super) struct Entry<T> {
    head: u64,
    /// Key bytes before the head.
    skip: usize,
    pub(super) item: T,
}

impl<T: Begins> Entry<T> {
    pub(super) fn new(item: T) -> Self {
        Self { head: long_head(item.lower().key), skip: 0, item }
    }

    fn behind(&mut self, skip: usize) {
        // An entry taken over from another directory mostly has the right head already.
        if self.skip != skip {
            self.head = self.item.lower().headed(skip).head;
            self.skip = skip;
        }
    }
}

impl<T> Default for Directory<T> {
    fn default() -> Self {
        Self { prefix: Box::default(), entries: Vec::new() }
    }
}

impl<T: Begins> Directory<T> {
    /// A directory of these things, which are in order.
    pub(super) fn new(mut entries: Vec<Entry<T>>) -> Self {
        let prefix: Box<[u8]> = match entries.as_slice() {
            [_, second, .., last] => {
                let (second, last) = (second.item.lower().key, last.item.lower().key);
                second.get(..common_prefix_len(second, last)).unwrap_or_default().into()
            }
            [_, second] => second.item.lower().key.into(),
            _ => Box::default(),
        };
        entries.iter_mut().skip(1).for_each(|entry| entry.behind(prefix.len()));
        Self { prefix, entries }
    }

    pub(super) fn entries(&self) -> &[Entry<T>] {
        &self.entries
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn get(&self, index: usize) -> Option<&T> {
        Some(&self.entries.get(index)?.item)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().map(|entry| &entry.item)
    }

    /// The last thing that begins at or before `position`, else the first.
    pub(super) fn find(&self, position: Position<'_>) -> usize {
        let others = self.entries.get(1..).unwrap_or_default();
        let first_bytes = position.key.get(..self.prefix.len()).unwrap_or(position.key);
        if *first_bytes != *self.prefix {
            return if *first_bytes < *self.prefix { 0 } else { others.len() };
        }
        let head = position.headed(self.prefix.len()).head;
        others.partition_point(|entry| {
            entry.head < head || entry.head == head && entry.item.lower() <= position
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_format::ids::Seq;
    use proptest::prelude::*;

    impl Begins for (Vec<u8>, u64) {
        fn lower(&self) -> Position<'_> {
            Position::new(&self.0, Seq(self.1))
        }
    }

    fn lower() -> impl Strategy<Value = (Vec<u8>, u64)> {
        let tail = proptest::collection::vec(0u8..3, 0..12);
        let prefix = prop_oneof![Just(&b""[..]), Just(&b"ab"[..]), Just(&b"a long one of all"[..])];
        (prefix, tail, 0u64..4).prop_map(|(prefix, tail, seq)| ([prefix, &tail[..]].concat(), seq))
    }

    proptest! {
        #[test]
        fn finds_what_a_walk_finds(
            mut lowers in proptest::collection::vec(lower(), 0..20),
            few in proptest::collection::vec(any::<proptest::sample::Index>(), 1..4),
            probe in lower(),
        ) {
            lowers.sort_by(|left, right| left.lower().cmp(&right.lower()));
            let walk = |lowers: &[(Vec<u8>, u64)]| {
                lowers.iter().rposition(|item| item.lower() <= probe.lower()).unwrap_or(0)
            };
            let directory = Directory::new(lowers.iter().cloned().map(Entry::new).collect());
            prop_assert_eq!(directory.find(probe.lower()), walk(&lowers));
            // Entries taken over into a directory with another prefix.
            if !lowers.is_empty() {
                let mut few: Vec<_> = few.iter().map(|index| index.index(lowers.len())).collect();
                few.sort_unstable();
                let entries = few.iter().map(|index| directory.entries()[*index].clone()).collect();
                let lowers: Vec<_> = few.iter().map(|index| lowers[*index].clone()).collect();
                prop_assert_eq!(Directory::new(entries).find(probe.lower()), walk(&lowers));
            }
        }
    }
}
