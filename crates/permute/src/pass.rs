//! One pass over the data: which digits act, and what follows from it (thesis, section 3.3.1).
//!
//! A pass reads, for each setting of the digits that do not act, the records that agree with it,
//! in segments; puts them in their places in memory; and writes them in flushes, each to the end
//! of its partition.
//!
//! Invariants: `input` and `output` are consistent orders of the same space; the acting digits
//! are a component-wise suffix (with a digit, all lower ones of its axis).

use crate::space::{Allowed, Choice, Digit, Space};

/// A pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pass {
    /// The axes and their digits.
    pub space: Space,
    /// The order in the file that is read.
    pub input: Vec<Digit>,
    /// The order in the file that is written.
    pub output: Vec<Digit>,
    /// For each axis, whether the file that is read counts it from the far end.
    pub flips: Vec<bool>,
    /// For each digit, whether it acts: `acts[tree][leaf]`.
    pub acts: Vec<Vec<bool>>,
    /// Records that share the input digits from this position on are one segment.
    pub beta: usize,
}

impl Pass {
    /// Whether a digit acts.
    #[must_use]
    pub fn is_action(&self, digit: Digit) -> bool {
        self.acts[digit.tree][digit.leaf]
    }

    /// φ: output digits below this position all act; a flush is what shares the others.
    #[must_use]
    pub fn flush_position(&self) -> usize {
        self.output.iter().take_while(|digit| self.is_action(**digit)).count()
    }

    /// ϱ: no output digit from φ up to this position acts; a partition is what shares the others,
    /// and is written from its beginning to its end.
    #[must_use]
    pub fn partition_position(&self) -> usize {
        let flush = self.flush_position();
        let gap = self.output[flush..].iter().take_while(|digit| !self.is_action(**digit));
        flush + gap.count()
    }

    /// The position of each digit in an order: `positions[tree][leaf]`.
    #[must_use]
    pub fn positions(&self, order: &[Digit]) -> Vec<Vec<usize>> {
        let mut positions: Vec<Vec<usize>> =
            self.acts.iter().map(|leaves| vec![0; leaves.len()]).collect();
        for (position, digit) in order.iter().enumerate() {
            positions[digit.tree][digit.leaf] = position;
        }
        positions
    }

    /// maxSize of the acting digits: the records of one load of memory, at most.
    #[must_use]
    pub fn load_records(&self) -> u64 {
        self.space.max_size(|digit| self.is_action(digit))
    }

    /// The largest number of partitions that are written side by side.
    #[must_use]
    pub fn partitions_at_once(&self) -> u64 {
        let positions = self.positions(&self.output);
        let partition = self.partition_position();
        self.space.max_size(|d| self.is_action(d) && positions[d.tree][d.leaf] >= partition)
    }

    /// The records of one segment, at most.
    #[must_use]
    pub fn segment_records(&self) -> u64 {
        let positions = self.positions(&self.input);
        self.space.max_size(|d| positions[d.tree][d.leaf] < self.beta)
    }

    /// The records of one flush, at most.
    #[must_use]
    pub fn flush_records(&self) -> u64 {
        let positions = self.positions(&self.output);
        let flush = self.flush_position();
        self.space.max_size(|d| positions[d.tree][d.leaf] < flush)
    }

    /// The number of times that each record is read: above 1, reads are filtered.
    #[must_use]
    pub fn waste(&self) -> u64 {
        let positions = self.positions(&self.input);
        self.space.max_size(|d| !self.is_action(d) && positions[d.tree][d.leaf] < self.beta)
    }

    /// Whether every load fills the range of the file that it was read from: then a pass may write
    /// to the file that it reads, each load after all of it was read.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        let acting = |order: &[Digit]| order.iter().take_while(|d| self.is_action(**d)).count();
        let (from, to) = (acting(&self.input), acting(&self.output));
        let is_above = |digit: &Digit| !self.is_action(*digit);
        from == to
            && self.beta <= from
            && self.input[from..] == self.output[to..]
            && self.input[from..].iter().all(is_above)
            && !self.flips.contains(&true)
    }

    /// For each digit, whether one read covers several of its values: it acts, or the read is
    /// filtered.
    pub(crate) fn spans(&self) -> Vec<Vec<bool>> {
        let mut spans = self.acts.clone();
        for digit in &self.input[..self.beta] {
            spans[digit.tree][digit.leaf] = true;
        }
        spans
    }

    /// A choice that allows everything; the settings of a load are written into it.
    pub(crate) fn open_choice(&self) -> Choice {
        self.space.everything()
    }

    /// The number of records that agree with a choice that fixes the higher digits of each axis,
    /// perhaps allows a range of the next one, and leaves those below it free.
    pub(crate) fn records_of(&self, choice: &Choice) -> u64 {
        let counts = self.space.trees.iter().zip(choice).map(|(tree, leaves)| {
            let mut kappa = tree.radix();
            for (leaf, allowed) in leaves.iter().enumerate().rev() {
                match allowed {
                    Allowed::One(value) => kappa = tree.kappa(leaf, kappa, *value),
                    Allowed::Between(first, end) => {
                        let z = tree.leaf(leaf).z;
                        let upto = end.saturating_mul(z).min(kappa);
                        kappa = upto.saturating_sub(first.saturating_mul(z));
                    }
                    Allowed::All => {}
                }
            }
            kappa
        });
        counts.product()
    }
}
