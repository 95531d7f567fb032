//! A policy's view of a level, and its choice: a run of blocks, and the keys around it.
//!
//! The keys of a level's blocks never descend: block i holds keys in [key i, key i+1) alone, the
//! last one up to infinity. Blocks of one key hold its versions and belong together.
//!
//! A choice begins at a block and is not empty; its borders are between keys, never between
//! versions of one key.

use std::ops::Range;

/// A level's blocks, in key order.
pub trait Blocks {
    /// The number of blocks.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The least key that may be in a block: its fence.
    fn key(&self, block: usize) -> &[u8];

    /// A block's bytes on the device.
    fn bytes(&self, block: usize) -> u64;
}

/// The part of a level that is merged into the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The level's blocks that the part consists of.
    pub blocks: Range<usize>,
    /// The least key of the part.
    pub from: Vec<u8>,
    /// The least key behind the part; `None` where nothing is.
    pub to: Option<Vec<u8>>,
}

impl Choice {
    /// That many blocks, with the keys around them; `None` when there are none.
    pub fn of(level: &impl Blocks, blocks: Range<usize>) -> Option<Self> {
        let blocks = blocks.start..blocks.end.min(level.len());
        (!blocks.is_empty()).then(|| Self {
            from: level.key(blocks.start).to_vec(),
            to: (blocks.end < level.len()).then(|| level.key(blocks.end).to_vec()),
            blocks,
        })
    }
}

/// The number of first blocks for whose keys `is_before` holds.
fn count_before(level: &impl Blocks, is_before: impl Fn(&[u8]) -> bool) -> usize {
    let (mut low, mut high) = (0, level.len());
    while low < high {
        let middle = low + (high - low) / 2;
        if is_before(level.key(middle)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// The first block that may hold a key at or behind `from`, where `before` blocks have keys in
/// front of it: the last of these, unless the next one begins at `from`.
pub(super) fn first_holding(level: &impl Blocks, before: usize, from: &[u8]) -> usize {
    let begins_there = before < level.len() && level.key(before) == from;
    if begins_there { before } else { before.saturating_sub(1) }
}

/// The blocks that may hold keys in [from, to), `None` being infinity.
pub fn overlapping(level: &impl Blocks, from: &[u8], to: Option<&[u8]>) -> Range<usize> {
    let start = first_holding(level, count_before(level, |key| key < from), from);
    let end = to.map_or(level.len(), |to| count_before(level, |key| key < to));
    start..end.max(start)
}

/// The shortest run of at least that many bytes (and one block) that begins at a block, or what
/// there is.
pub fn run_from(level: &impl Blocks, start: usize, run_bytes: u64) -> Range<usize> {
    let (mut end, mut bytes) = (start, 0u64);
    while end < level.len()
        && (bytes < run_bytes || end == start || level.key(end) == level.key(end - 1))
    {
        bytes = bytes.saturating_add(level.bytes(end));
        end += 1;
    }
    start..end
}

/// Every run of at least that many bytes, from the first block on; when the level has fewer, the
/// level itself.
pub(super) struct Runs<'a, L> {
    level: &'a L,
    run_bytes: u64,
    next: Range<usize>,
    bytes: u64,
}

impl<'a, L: Blocks> Runs<'a, L> {
    pub(super) fn new(level: &'a L, run_bytes: u64) -> Self {
        Self { level, run_bytes, next: 0..0, bytes: 0 }
    }

    /// Lengthens the run until it is long enough and ends between two keys.
    fn grow(&mut self) {
        let level = self.level;
        while self.next.end < level.len()
            && (self.bytes < self.run_bytes
                || self.next.is_empty()
                || level.key(self.next.end) == level.key(self.next.end - 1))
        {
            self.bytes = self.bytes.saturating_add(level.bytes(self.next.end));
            self.next.end += 1;
        }
    }
}

impl<L: Blocks> Iterator for Runs<'_, L> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        self.grow();
        if self.next.is_empty() || (self.bytes < self.run_bytes && self.next.start > 0) {
            return None;
        }
        let run = self.next.clone();
        // The next run begins at the next key.
        let key = self.level.key(run.start);
        while self.next.start < run.end && self.level.key(self.next.start) == key {
            self.bytes = self.bytes.saturating_sub(self.level.bytes(self.next.start));
            self.next.start += 1;
        }
        Some(run)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Blocks as tests write them: keys and bytes.
    impl Blocks for Vec<(u16, u64)> {
        fn len(&self) -> usize {
            self.as_slice().len()
        }

        fn key(&self, block: usize) -> &[u8] {
            KEYS.get_or_init(all_keys)[usize::from(self[block].0)].as_slice()
        }

        fn bytes(&self, block: usize) -> u64 {
            self[block].1
        }
    }

    static KEYS: std::sync::OnceLock<Vec<[u8; 2]>> = std::sync::OnceLock::new();

    fn all_keys() -> Vec<[u8; 2]> {
        (0..=u16::MAX).map(u16::to_be_bytes).collect()
    }

    pub(crate) fn key(number: u16) -> Vec<u8> {
        number.to_be_bytes().to_vec()
    }

    /// A level of blocks of one size, at these keys.
    pub(crate) fn level(keys: &[u16]) -> Vec<(u16, u64)> {
        keys.iter().map(|&key| (key, 1)).collect()
    }

    /// Levels with keys that never fall and blocks between empty and full.
    pub(crate) fn levels(blocks: usize) -> impl Strategy<Value = Vec<(u16, u64)>> {
        proptest::collection::vec((0u16..400, 0u64..9), 0..blocks).prop_map(|mut level| {
            level.sort_unstable();
            level
        })
    }

    /// The blocks that have, or may have, a key in the range: from the definition.
    pub(crate) fn overlapping_by_definition(
        level: &[(u16, u64)],
        from: u16,
        to: u16,
    ) -> Vec<usize> {
        let holds = |&block: &usize| {
            let begins = level[block].0;
            let ends = level.get(block + 1).map_or(u32::MAX, |next| u32::from(next.0));
            let has_room = begins < to && ends > u32::from(from);
            // A block in front of another of the same key holds versions of that key alone.
            has_room || (u32::from(begins) == ends && (from..to).contains(&begins))
        };
        (0..level.len()).filter(holds).collect()
    }

    #[test]
    fn a_choice_is_bounded_by_the_keys_of_its_blocks() {
        let level = level(&[0, 10, 20]);
        let choice = |from, to: Option<u16>, blocks| {
            Some(Choice { blocks, from: key(from), to: to.map(key) })
        };
        assert_eq!(Choice::of(&level, 0..2), choice(0, Some(20), 0..2));
        assert_eq!(Choice::of(&level, 1..9), choice(10, None, 1..3));
        assert_eq!(Choice::of(&level, 1..1), None);
        assert_eq!(Choice::of(&Vec::new(), 0..1), None);
    }

    #[test]
    fn what_overlaps_is_what_may_hold_a_key() {
        let level = level(&[10, 20, 20, 30]);
        let blocks =
            |from, to: Option<u16>| overlapping(&level, &key(from), to.map(key).as_deref());
        assert_eq!(blocks(0, Some(10)), 0..0);
        assert_eq!(blocks(0, Some(11)), 0..1);
        assert_eq!(blocks(10, Some(20)), 0..1);
        assert_eq!(blocks(20, Some(21)), 1..3);
        assert_eq!(blocks(21, Some(30)), 2..3);
        assert_eq!(blocks(25, Some(31)), 2..4);
        assert_eq!(blocks(31, None), 3..4);
    }

    /// By hand, runs of 3 bytes: one of blocks 0 and 1; one of block 1 with block 2, in which its
    /// versions continue; 2 does not begin a key; 3 alone. Behind it there is too little.
    #[test]
    fn runs_begin_and_end_between_keys() {
        let level = vec![(0, 2), (10, 1), (10, 1), (20, 3), (30, 1)];
        let runs: Vec<_> = Runs::new(&level, 3).collect();
        assert_eq!(runs, [0..3, 1..4, 3..4]);
        assert!(Runs::new(&level, 99).eq(std::iter::once(0..5)));
        assert_eq!(Runs::new(&Vec::new(), 1).count(), 0);
        assert_eq!(run_from(&level, 0, 3), 0..3);
        assert_eq!(run_from(&level, 4, 3), 4..5);
        assert_eq!(run_from(&level, 0, 0), 0..1);
    }

    proptest! {
        #[test]
        fn overlapping_is_its_definition(level in levels(30), from in 0u16..450, span in 1u16..99) {
            let to = from + span;
            let found = overlapping(&level, &key(from), Some(&key(to)));
            prop_assert_eq!(
                found.collect::<Vec<_>>(),
                overlapping_by_definition(&level, from, to)
            );
        }

        #[test]
        fn runs_are_those_that_begin_at_each_key(level in levels(30), run_bytes in 0u64..40) {
            let begins_key = |&at: &usize| at == 0 || level[at].0 != level[at - 1].0;
            let is_long = |run: &Range<usize>| {
                run.start == 0 || level[run.clone()].iter().map(|b| b.1).sum::<u64>() >= run_bytes
            };
            let expected: Vec<_> = (0..level.len())
                .filter(begins_key)
                .map(|at| run_from(&level, at, run_bytes))
                .take_while(is_long)
                .collect();
            prop_assert_eq!(Runs::new(&level, run_bytes).collect::<Vec<_>>(), expected);
        }
    }
}
