//! What is read, in which order: loads, each in batches that fit a buffer.
//!
//! A load is a setting of the digits that do not act, in the order of the output, so that every
//! partition is written from its beginning to its end (the two outer loops of Algorithm 5). A
//! batch is a stretch of a load in the order of the input: one digit, the turning digit, runs
//! over a range, those below it are free, those above it fixed.

use crate::pass::Pass;
use crate::pieces::{Packing, Piece, pieces};
use crate::runs::{Placement, Runs};
use crate::space::{Allowed, Choice, Digit, Settings};

/// What is the same for all batches of a pass.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) pass: &'a Pass,
    /// The turning digit and how many of its values one batch has at most.
    turn: Option<(Digit, u64)>,
    /// Digits above the turning one, in the order of the input, that a read can span.
    above: Vec<Digit>,
    /// Digits that all records of a batch share.
    shared: Vec<Vec<bool>>,
    /// Digits that all records of a load share.
    passive: Vec<Vec<bool>>,
    no_flips: Vec<bool>,
}

/// One batch.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    /// The number of its load, from 0.
    pub(crate) load: u64,
    /// How many records its load has.
    pub(crate) load_records: u64,
    /// What is kept of it.
    kept: Choice,
}

impl<'a> Plan<'a> {
    /// Batches of at most `batch_records`, or of one record or segment where that is more.
    pub(crate) fn new(pass: &'a Pass, batch_records: u64) -> Self {
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
        let turn = candidates.clone().nth(count).map(|position| {
            let each = below(position).max(1);
            (position, pass.input[position], (batch_records / each).max(1))
        });
        let free_below = turn.map_or(pass.input.len(), |(position, ..)| position);
        let above = candidates.filter(|p| *p > free_below).map(|p| pass.input[p]).collect();
        let mut shared = spans.clone();
        for (position, digit) in pass.input.iter().enumerate() {
            let fixed = position > free_below || !is_span(digit);
            shared[digit.tree][digit.leaf] = fixed;
        }
        let invert = |leaves: &Vec<bool>| leaves.iter().map(|acts| !acts).collect();
        Self {
            pass,
            turn: turn.map(|(_, digit, count)| (digit, count)),
            above,
            shared,
            passive: pass.acts.iter().map(invert).collect(),
            no_flips: vec![false; pass.space.trees.len()],
        }
    }

    fn source(&self) -> Placement<'_> {
        Placement { space: &self.pass.space, order: &self.pass.input, flips: &self.pass.flips }
    }

    fn target(&self) -> Placement<'_> {
        Placement { space: &self.pass.space, order: &self.pass.output, flips: &self.no_flips }
    }

    /// What of the input a batch reads.
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
    pub(crate) fn reads<'b>(&'b self, choice: &'b Choice) -> Runs<'b> {
        Runs::new(self.source(), choice)
    }

    /// The runs of the output that a load fills; memory holds them one after the other.
    pub(crate) fn writes<'b>(&'b self, choice: &'b Choice) -> Runs<'b> {
        Runs::new(self.target(), choice)
    }

    /// What a load fills.
    pub(crate) fn write_choice(&self, batch: &Batch) -> Choice {
        let mut choice = self.pass.open_choice();
        for (tree, leaves) in self.passive.iter().enumerate() {
            for (leaf, _) in leaves.iter().enumerate().filter(|(_, passive)| **passive) {
                choice[tree][leaf] = batch.kept[tree][leaf];
            }
        }
        choice
    }

    /// How a batch goes to its places.
    pub(crate) fn copies(&self, batch: &Batch) -> Vec<Piece> {
        let from = Packing { placement: self.source(), settled: &self.shared };
        let to = Packing { placement: self.target(), settled: &self.passive };
        let start = self.turn.map(|(digit, _)| digit);
        pieces(&self.pass.space, &batch.kept, from, start, to)
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
            load_records: 0,
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
    /// How many loads were begun.
    load: u64,
    load_choice: Choice,
    load_records: u64,
    inner: Option<Settings<'a>>,
    current: Choice,
    /// How many values of the turning digit are done; 0 also when the next setting is due.
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
            return Some(Batch { load, load_records: self.load_records, kept });
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
        self.load_records = self.plan.pass.records_of(&self.load_choice);
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

    /// How many values of the turning digit exist here.
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
