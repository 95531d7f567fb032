//! The merge of two runs of blocks, with and without block preservation (the thesis's Algorithm
//! 11), by the record.
//!
//! Of two records of a key the upper one stays. Where the next block lies as a whole before the
//! other run's next key it stays as it is, unread and unwritten, if what the level wastes then is
//! within ω: the slots that are unused so far, those of the block that is closed early for it, and
//! its own. Blocks that come out of memory are written in any case, and blocks with tombstones do
//! not stay on their way into the last level, where tombstones go.

use super::block::{Block, Record};

/// The rules by which two runs are merged.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Records of a block.
    pub slots: usize,
    /// Whether blocks may stay.
    pub preserves: bool,
    /// Whether the upper run is in memory.
    pub is_from_memory: bool,
    /// Whether what comes out is the last level's.
    pub is_last: bool,
    /// ω: the most unused slots, as a share of the level.
    pub omega: f64,
    /// Blocks and unused slots of the level that the merge leaves alone.
    pub rest: (usize, usize),
}

/// The result of a merge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Joined {
    /// The blocks, in order.
    pub blocks: Vec<Block>,
    /// The number of blocks that were written.
    pub written: u64,
    /// The number of blocks that stayed.
    pub kept: u64,
}

/// One run as it is read.
struct Source {
    blocks: std::iter::Peekable<std::vec::IntoIter<Block>>,
    open: Option<Block>,
    at: usize,
}

impl Source {
    fn new(blocks: Vec<Block>) -> Self {
        Self { blocks: blocks.into_iter().peekable(), open: None, at: 0 }
    }

    /// The next record.
    fn peek(&mut self) -> Option<Record> {
        match &self.open {
            Some(block) => block.records().get(self.at).copied(),
            None => self.blocks.peek().and_then(|block| block.records().first().copied()),
        }
    }

    /// The next block, if none of its records has been taken.
    fn whole(&mut self) -> Option<&Block> {
        if self.open.is_some() { None } else { self.blocks.peek() }
    }

    fn advance(&mut self) {
        if self.open.is_none() {
            self.open = self.blocks.next();
            self.at = 0;
        }
        self.at += 1;
        if self.open.as_ref().is_some_and(|block| self.at >= block.records().len()) {
            self.open = None;
        }
    }
}

/// The output of a merge.
struct Output {
    rules: Rules,
    joined: Joined,
    filling: Vec<Record>,
    /// Blocks and unused slots of the level so far.
    blocks: usize,
    unused: usize,
}

impl Output {
    fn push(&mut self, record: Record) {
        if self.rules.is_last && record.is_tombstone() {
            return;
        }
        self.filling.push(record);
        if self.filling.len() >= self.rules.slots {
            self.close();
        }
    }

    fn close(&mut self) {
        let records = std::mem::take(&mut self.filling);
        if let Some(block) = Block::new(records) {
            self.joined.written += 1;
            self.add(block);
        }
    }

    fn add(&mut self, block: Block) {
        self.blocks += 1;
        self.unused += self.rules.slots.saturating_sub(block.records().len());
        self.joined.blocks.push(block);
    }

    /// Whether a block may stay that nothing else has keys within.
    fn may_keep(&self, block: &Block) -> bool {
        let Rules { slots, preserves, is_last, omega, .. } = self.rules;
        if !preserves || is_last && block.has_tombstones() {
            return false;
        }
        let closed = if self.filling.is_empty() { 0 } else { slots - self.filling.len() };
        let unused = self.unused + closed + slots.saturating_sub(block.records().len());
        unused as f64 <= omega * ((self.blocks + 2) * slots) as f64
    }

    fn keep(&mut self, block: Block) {
        self.close();
        self.joined.kept += 1;
        self.add(block);
    }
}

/// Merges two runs.
#[must_use]
pub fn join(upper: Vec<Block>, lower: Vec<Block>, rules: Rules) -> Joined {
    let (mut upper, mut lower) = (Source::new(upper), Source::new(lower));
    let (blocks, unused) = rules.rest;
    let mut output =
        Output { rules, joined: Joined::default(), filling: Vec::new(), blocks, unused };
    loop {
        let (above, below) = (upper.peek(), lower.peek());
        let is_above = match (above, below) {
            (None, None) => break,
            (Some(above), Some(below)) => above.key() <= below.key(),
            (above, _) => above.is_some(),
        };
        let (first, other) = if is_above { (&mut upper, below) } else { (&mut lower, above) };
        let is_separate = |block: &&Block| other.is_none_or(|other| block.last() < other.key());
        let is_written = is_above && rules.is_from_memory;
        let whole = first.whole().filter(is_separate).filter(|block| output.may_keep(block));
        if whole.is_some() && !is_written {
            first.blocks.next().into_iter().for_each(|block| output.keep(block));
            continue;
        }
        let record = if is_above { above } else { below };
        record.into_iter().for_each(|record| output.push(record));
        first.advance();
        let is_both = is_above && above.map(Record::key) == below.map(Record::key);
        if is_both {
            lower.advance();
        }
    }
    output.close();
    output.joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const RULES: Rules = Rules {
        slots: 4,
        preserves: true,
        is_from_memory: false,
        is_last: false,
        omega: 0.2,
        rest: (0, 0),
    };

    fn blocks(keys: &[&[u32]]) -> Vec<Block> {
        let block = |keys: &&[u32]| {
            Block::new(keys.iter().map(|key| Record::new(*key, false)).collect()).unwrap()
        };
        keys.iter().map(block).collect()
    }

    /// By hand: 1 to 4 lie apart and stay, as do 20 to 23; 10 to 13 are among others.
    #[test]
    fn disjoint_blocks_stay() {
        let upper = blocks(&[&[1, 2, 3, 4], &[11, 12]]);
        let lower = blocks(&[&[10, 13], &[20, 21, 22, 23]]);
        let joined = join(upper.clone(), lower.clone(), RULES);
        assert_eq!((joined.written, joined.kept), (1, 2));
        let expected = [&[1, 2, 3, 4], &[10, 11, 12, 13], &[20, 21, 22, 23]];
        assert_eq!(joined.blocks, blocks(&expected.map(|keys| &keys[..])));
        let plain = join(upper.clone(), lower.clone(), Rules { preserves: false, ..RULES });
        assert_eq!((plain.written, plain.kept), (3, 0));
        let memory = join(upper, lower, Rules { is_from_memory: true, ..RULES });
        assert_eq!((memory.written, memory.kept), (2, 1));
    }

    /// By hand: two blocks of one record each would leave six slots of sixteen unused, more than a
    /// fifth; next to a level of 40 full blocks they may stay.
    #[test]
    fn blocks_stay_within_omega() {
        let (upper, lower) = (blocks(&[&[1]]), blocks(&[&[5]]));
        let joined = join(upper.clone(), lower.clone(), RULES);
        assert_eq!((joined.written, joined.blocks.len()), (1, 1));
        let joined = join(upper, lower, Rules { rest: (40, 0), ..RULES });
        assert_eq!((joined.written, joined.kept), (0, 2));
    }

    #[test]
    fn tombstones_go_in_the_last_level_only() {
        let gone = || vec![Block::new(vec![Record::new(5, true), Record::new(6, true)]).unwrap()];
        let lower = || blocks(&[&[5]]);
        let joined = join(gone(), lower(), RULES);
        assert_eq!(joined.blocks, gone());
        let joined = join(gone(), lower(), Rules { is_last: true, ..RULES });
        assert_eq!(joined, Joined::default());
    }

    fn run() -> impl Strategy<Value = BTreeMap<u32, bool>> {
        proptest::collection::btree_map(0u32..200, proptest::bool::weighted(0.2), 0..60)
    }

    fn cut(run: &BTreeMap<u32, bool>, slots: usize) -> Vec<Block> {
        let records: Vec<_> = run.iter().map(|(key, gone)| Record::new(*key, *gone)).collect();
        records.chunks(slots).filter_map(|records| Block::new(records.to_vec())).collect()
    }

    proptest! {
        #[test]
        fn it_is_the_merge_of_two_maps(
            upper in run(),
            lower in run(),
            preserves: bool,
            is_last: bool,
            slots in 1usize..6,
        ) {
            let rules = Rules { slots, preserves, is_last, ..RULES };
            let joined = join(cut(&upper, slots), cut(&lower, slots), rules);
            let mut expected = lower.clone();
            expected.extend(&upper);
            expected.retain(|_, gone| !(is_last && *gone));
            let found: Vec<_> = joined.blocks.iter().flat_map(Block::records).collect();
            let found: BTreeMap<_, _> = found.iter().map(|r| (r.key(), r.is_tombstone())).collect();
            prop_assert_eq!(found, expected);
            prop_assert_eq!(joined.written + joined.kept, joined.blocks.len() as u64);
            prop_assert!(joined.blocks.windows(2).all(|pair| pair[0].last() < pair[1].first()));
            prop_assert!(joined.blocks.iter().all(|block| block.records().len() <= slots));
            prop_assert!(preserves || joined.kept == 0);
        }
    }
}
