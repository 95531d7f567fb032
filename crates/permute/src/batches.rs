//! The order of reading: loads, each in batches that fit a buffer.
//!
//! A load is a setting of the digits that do not act, in the order of the output, so that every
//! partition is written from its beginning to its end (the two outer loops of Algorithm 5). A
//! batch is a stretch of a load in the order of the input: one digit, the turning digit, runs
//! over a range, those below it are free, those above it fixed. Where a batch holds several
//! segments, these are neighbours in the output rather than in the input: the turning digit is
//! the lowest of the output outside of the segment, and those between are fixed as well.

use crate::pass::Pass;
use crate::runs::{Placement, Runs};
use crate::scatter::{Packing, Piece, Window, pieces};
use crate::space::{Allowed, Choice, Digit, Settings};

/// Records that fill a cache line, of eight bytes.
const LINE: u64 = 8;

/// The properties that all batches of a pass share.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) pass: &'a Pass,
    /// The turning digit and how many of its values one batch has at most.
    turn: Option<(Digit, u64)>,
    /// Digits other than the turning one that are not free, in the order of the input, and that a
    /// read can span.
    above: Vec<Digit>,
    /// Digits that all records of a batch share.
    shared: Vec<Vec<bool>>,
    /// Digits that all records of a load share.
    passive: Vec<Vec<bool>>,
    /// The highest digit of the output that acts, and how many of its values a part of a load has.
    top: Option<(Digit, u64)>,
    no_flips: Vec<bool>,
}

/// The digit along which a batch of several segments holds records that are neighbours in the
/// output, if it has values enough for them, or to fill a cache line: then they are copied in
/// lines, not one by one. Answers its position in the input, which is not below β.
fn along_output(pass: &Pass, positions: &[Vec<usize>], segments: u64) -> Option<usize> {
    let position = |digit: &Digit| positions[digit.tree][digit.leaf];
    let beyond = |digit: &&Digit| pass.is_action(**digit) && position(digit) >= pass.beta;
    let digit = pass.output.iter().find(beyond)?;
    (pass.space.leaf(*digit).radix >= segments.min(LINE)).then(|| position(digit))
}

/// A stretch of a load in the order of the output: memory holds it packed, as the file will.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// The records that it holds.
    pub(crate) choice: Choice,
    /// The number of records of the load that come before it.
    pub(crate) base: u64,
    /// The number of its records, perhaps 0.
    pub(crate) records: u64,
}

/// One batch.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    /// The number of its load, from 0.
    pub(crate) load: u64,
    /// The records of it that are kept.
    kept: Choice,
}

impl<'a> Plan<'a> {
    /// Batches of at most `batch_records`, or of one record or segment where that is more; loads in
    /// at most `parts` parts.
    pub(crate) fn new(pass: &'a Pass, batch_records: u64, parts: u64) -> Self {
        let positions = pass.positions(&pass.input);
        let spans = pass.spans();
        let is_span = |digit: &Digit| spans[digit.tree][digit.leaf];
        let below = |position: usize| {
            pass.space.max_size(|d| spans[d.tree][d.leaf] && positions[d.tree][d.leaf] < position)
        };
        // Where reads are filtered, a segment is read whole.
        let least = if pass.waste() > 1 { pass.beta } else { 0 };
        let is_whole =
            |position: &usize| *position < least || below(*position + 1) <= batch_records;
        let candidates = (0..pass.input.len()).filter(|position| is_span(&pass.input[*position]));
        let count = candidates.clone().take_while(is_whole).count();
        let in_order = candidates.clone().nth(count);
        let segments = batch_records / below(pass.beta).max(1);
        let beyond = in_order.filter(|position| *position >= pass.beta);
        let along = beyond.and_then(|_| along_output(pass, &positions, segments));
        let turn = along.or(in_order);
        let free_below = along.map(|_| pass.beta).or(in_order).unwrap_or(pass.input.len());
        let at_once = (batch_records / below(free_below).max(1)).max(1);
        let above = candidates.filter(|p| *p >= free_below && Some(*p) != turn);
        let above = above.map(|p| pass.input[p]).collect();
        let mut shared = spans.clone();
        for (position, digit) in pass.input.iter().enumerate() {
            let fixed = position >= free_below && Some(position) != turn || !is_span(digit);
            shared[digit.tree][digit.leaf] = fixed;
        }
        let top = pass.output.iter().rev().find(|digit| pass.is_action(**digit)).map(|digit| {
            let radix = pass.space.leaf(*digit).radix;
            (*digit, radix.div_ceil(parts.max(1)))
        });
        let invert = |leaves: &Vec<bool>| leaves.iter().map(|acts| !acts).collect();
        Self {
            pass,
            turn: turn.map(|position| (pass.input[position], at_once)),
            above,
            shared,
            passive: pass.acts.iter().map(invert).collect(),
            top,
            no_flips: vec![false; pass.space.trees.len()],
        }
    }

    /// The number of parts of a load, empty ones included.
    pub(crate) fn parts(&self) -> u64 {
        self.top.map_or(1, |(digit, width)| self.pass.space.leaf(digit).radix.div_ceil(width))
    }

    /// The parts of the load of a batch.
    pub(crate) fn parts_of(&self, batch: &Batch) -> Vec<Part> {
        self.cut(&self.write_choice(batch))
    }

    /// The most records that each part has: those of the load whose fixed digits are all 0.
    pub(crate) fn largest_parts(&self) -> Vec<u64> {
        let mut choice = self.pass.open_choice();
        for (leaves, passive) in choice.iter_mut().zip(&self.passive) {
            for (allowed, _) in leaves.iter_mut().zip(passive).filter(|(_, passive)| **passive) {
                *allowed = Allowed::One(0);
            }
        }
        self.cut(&choice).into_iter().map(|part| part.records).collect()
    }

    fn cut(&self, load: &Choice) -> Vec<Part> {
        let mut base = 0;
        let part = |number: u64| {
            let mut choice = load.clone();
            if let Some((digit, width)) = self.top {
                choice[digit.tree][digit.leaf] =
                    Allowed::Between(number * width, (number + 1) * width);
            }
            let records = self.pass.records_of(&choice);
            base += records;
            Part { choice, base: base - records, records }
        };
        (0..self.parts()).map(part).collect()
    }

    fn source(&self) -> Placement<'_> {
        Placement { space: &self.pass.space, order: &self.pass.input, flips: &self.pass.flips }
    }

    fn target(&self) -> Placement<'_> {
        Placement { space: &self.pass.space, order: &self.pass.output, flips: &self.no_flips }
    }

    /// The records of the input that a batch reads.
    pub(crate) fn read_choice(&self, batch: &Batch) -> Choice {
        let mut choice = batch.kept.clone();
        for digit in &self.pass.input[..self.pass.beta] {
            if !self.pass.is_action(*digit) {
                choice[digit.tree][digit.leaf] = Allowed::All;
            }
        }
        choice
    }

    /// The runs of the input that hold it.
    pub(crate) fn reads(&self, choice: Choice) -> Runs<'_> {
        Runs::new(self.source(), choice)
    }

    /// The runs of the output that a part fills; memory holds them one after the other.
    pub(crate) fn writes(&self, choice: Choice) -> Runs<'_> {
        Runs::new(self.target(), choice)
    }

    /// The records of the output that a load fills.
    fn write_choice(&self, batch: &Batch) -> Choice {
        let mut choice = self.pass.open_choice();
        for (tree, leaves) in self.passive.iter().enumerate() {
            for (leaf, _) in leaves.iter().enumerate().filter(|(_, passive)| **passive) {
                choice[tree][leaf] = batch.kept[tree][leaf];
            }
        }
        choice
    }

    /// The copies that move the records which a batch has of a part to their places, which are
    /// counted from the beginning of the load.
    pub(crate) fn copies(&self, batch: &Batch, number: u64) -> Vec<Piece> {
        let Batch { kept, .. } = batch;
        let mut choice = kept.clone();
        if let Some((digit, width)) = self.top {
            let allowed = &mut choice[digit.tree][digit.leaf];
            let (first, end) = (number * width, (number + 1) * width);
            *allowed = match *allowed {
                Allowed::All => Allowed::Between(first, end),
                Allowed::Between(from, upto) => Allowed::Between(from.max(first), upto.min(end)),
                Allowed::One(value) if (first..end).contains(&value) => Allowed::One(value),
                Allowed::One(_) => Allowed::Between(0, 0),
            };
            if matches!(*allowed, Allowed::Between(from, upto) if from >= upto) {
                return Vec::new();
            }
        }
        let window = self.turn.and_then(|(digit, _)| match kept[digit.tree][digit.leaf] {
            Allowed::Between(first, end) => Some(Window { digit, first, end }),
            Allowed::One(_) | Allowed::All => None,
        });
        let from = Packing { placement: self.source(), shared_digits: &self.shared, window };
        let to = Packing { placement: self.target(), shared_digits: &self.passive, window: None };
        pieces(&self.pass.space, &choice, from, to)
    }

    /// Begins before the first batch.
    pub(crate) fn batches(&'a self) -> Batches<'a> {
        let pass = self.pass;
        let passive: Vec<Digit> =
            pass.output.iter().filter(|digit| !pass.is_action(**digit)).copied().collect();
        let open = pass.open_choice();
        Batches {
            plan: self,
            loads: Settings::new(&pass.space, &passive, &open),
            load: 0,
            load_choice: open,
            inner: None,
            current: Vec::new(),
            turned: 0,
        }
    }
}

/// All batches of a pass, load by load.
#[derive(Debug)]
pub(crate) struct Batches<'a> {
    plan: &'a Plan<'a>,
    loads: Settings<'a>,
    /// The number of loads that were begun.
    load: u64,
    load_choice: Choice,
    inner: Option<Settings<'a>>,
    current: Choice,
    /// The number of values of the turning digit that are done; 0 also when the next setting is
    /// due.
    turned: u64,
}

impl Iterator for Batches<'_> {
    type Item = Batch;

    fn next(&mut self) -> Option<Batch> {
        loop {
            if self.turned == 0 && !self.advance()? {
                continue;
            }
            let mut kept = self.current.clone();
            if let Some((digit, count)) = self.plan.turn {
                let (first, values) = (self.turned, self.values(digit));
                let end = (first + count).min(values);
                kept[digit.tree][digit.leaf] = Allowed::Between(first, end);
                self.turned = if end == values { 0 } else { end };
            }
            let load = self.load - 1;
            return Some(Batch { load, kept });
        }
    }
}

impl Batches<'_> {
    /// Moves to the next setting of the digits above the turning one, in this load or the next;
    /// false when only a load was begun.
    fn advance(&mut self) -> Option<bool> {
        if let Some(inner) = &mut self.inner
            && inner.advance()
        {
            self.current.clone_from(&self.load_choice);
            inner.apply(&mut self.current);
            return Some(true);
        }
        if !self.loads.advance() {
            return None;
        }
        self.loads.apply(&mut self.load_choice);
        self.load += 1;
        let space = &self.plan.pass.space;
        // The passive digits above come first in every axis; they are held.
        let pass = self.plan.pass;
        let wanted = |digit: &&Digit| {
            self.plan.above.contains(digit)
                || (!pass.is_action(**digit) && self.plan.shared[digit.tree][digit.leaf])
        };
        let digits: Vec<Digit> = pass.input.iter().filter(wanted).copied().collect();
        self.inner = Some(Settings::new(space, &digits, &self.load_choice));
        Some(false)
    }

    /// The number of values of the turning digit that exist here.
    fn values(&self, digit: Digit) -> u64 {
        let tree = &self.plan.pass.space.trees[digit.tree];
        let mut kappa = tree.radix();
        for leaf in (digit.leaf + 1..tree.leaves().len()).rev() {
            if let Allowed::One(value) = self.current[digit.tree][leaf] {
                kappa = tree.kappa(leaf, kappa, value);
            }
        }
        tree.values(digit.leaf, kappa)
    }
}
