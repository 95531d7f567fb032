//! The ranges of a file that hold a set of records: maximal runs, in ascending order.
//!
//! A [`Placement`] gives the addresses of records: packed, in an order of digits. An axis may be
//! flipped: the file then counts it from the far end; its digits must then be neighbours in the
//! order, and all axes below it too.

use crate::space::{Allowed, Choice, Digit, Space, product_without};
use crate::tree::Tree;

/// The addresses of the records of a space.
#[derive(Clone, Copy, Debug)]
pub struct Placement<'a> {
    /// The axes.
    pub space: &'a Space,
    /// The digits, from the lowest.
    pub order: &'a [Digit],
    /// For each axis, whether the file counts it from the far end.
    pub flips: &'a [bool],
}

impl Placement<'_> {
    fn is_flipped(&self, tree: usize) -> bool {
        self.flips.get(tree).copied().unwrap_or(false)
    }

    /// For each axis, how many records one step of its value skips, if it is flipped; else 0.
    fn flipped_steps(&self) -> Vec<u64> {
        let mut steps = vec![0; self.space.trees.len()];
        let mut below = 1_u64;
        for digit in self.order {
            let Digit { tree, leaf } = *digit;
            if self.is_flipped(tree) && leaf == 0 {
                steps[tree] = below;
            }
            if leaf + 1 == self.space.trees[tree].leaves().len() {
                below = below.saturating_mul(self.space.trees[tree].radix());
            }
        }
        steps
    }
}

/// Consecutive records of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The address of the first.
    pub address: u64,
    /// The number of records, at least 1.
    pub records: u64,
}

/// The runs of the records that a choice allows. Each step costs O(digits).
#[derive(Debug)]
pub struct Runs<'a> {
    placement: Placement<'a>,
    choice: Choice,
    flipped_steps: Vec<u64>,
    /// Digits below this position in the order are free.
    free: usize,
    /// κ of each axis, of the digits fixed so far, and the least value that they leave.
    kappas: Vec<u64>,
    lows: Vec<u64>,
    levels: Vec<Level>,
    pending: Option<Run>,
    started: bool,
}

/// A digit that is being stepped through.
#[derive(Clone, Copy, Debug)]
struct Level {
    digit: Digit,
    value: u64,
    first: u64,
    /// Past the last.
    end: u64,
    kappa_before: u64,
    low_before: u64,
    address_before: u64,
    step: u64,
}

impl<'a> Runs<'a> {
    /// Begins before the first run.
    #[must_use]
    pub fn new(placement: Placement<'a>, choice: Choice) -> Self {
        let is_free = |digit: &&Digit| choice[digit.tree][digit.leaf] == Allowed::All;
        let free = placement.order.iter().take_while(is_free).count();
        Self {
            placement,
            choice,
            flipped_steps: placement.flipped_steps(),
            free,
            kappas: placement.space.trees.iter().map(Tree::radix).collect(),
            lows: vec![0; placement.space.trees.len()],
            levels: Vec::with_capacity(placement.order.len()),
            pending: None,
            started: false,
        }
    }

    /// The next piece that one descent finds; neighbours may touch.
    fn piece(&mut self) -> Option<Run> {
        if !self.started {
            self.started = true;
            if let Some(run) = self.descend(0) {
                return Some(run);
            }
        }
        while self.step() {
            let top = self.levels.last().map_or(0, |level| {
                level.address_before
                    + if self.is_flipped(level) { 0 } else { level.step * level.value }
            });
            if let Some(run) = self.descend(top) {
                return Some(run);
            }
        }
        None
    }

    fn is_flipped(&self, level: &Level) -> bool {
        self.placement.is_flipped(level.digit.tree)
    }

    /// Fixes digits from the first free one down; `None` when one has no value that is allowed and
    /// exists.
    fn descend(&mut self, mut address: u64) -> Option<Run> {
        loop {
            let left = self.placement.order.len() - self.levels.len();
            if left <= self.free {
                return Some(self.run(address));
            }
            let digit = self.placement.order[left - 1];
            let Digit { tree, leaf } = digit;
            let axis = &self.placement.space.trees[tree];
            let kappa = self.kappas[tree];
            let values = axis.values(leaf, kappa);
            let (first, end) = match self.choice[tree][leaf] {
                Allowed::One(value) => (value, value + 1),
                Allowed::Between(first, end) => (first, end),
                Allowed::All => (0, values),
            };
            let end = end.min(values);
            if first >= end {
                return None;
            }
            let step = axis.kappa(leaf, kappa, 0) * product_without(&self.kappas, tree);
            let flipped = self.placement.is_flipped(tree);
            if left - 1 <= self.free {
                // All below is free: the values follow each other.
                return Some(self.run_of_values(address, digit, (first, end), step));
            }
            let value = if flipped { end - 1 } else { first };
            let level = Level {
                digit,
                value,
                first,
                end,
                kappa_before: kappa,
                low_before: self.lows[tree],
                address_before: address,
                step,
            };
            self.levels.push(level);
            self.normalise(&level);
            address += if flipped { 0 } else { step * value };
        }
    }

    fn run_of_values(
        &mut self,
        address: u64,
        Digit { tree, leaf }: Digit,
        (first, end): (u64, u64),
        step: u64,
    ) -> Run {
        let (kappa, low) = (self.kappas[tree], self.lows[tree]);
        let z = self.placement.space.trees[tree].leaf(leaf).z;
        let upto = end.saturating_mul(z).min(kappa);
        self.lows[tree] = low + first * z;
        self.kappas[tree] = upto - first * z;
        let flipped = self.placement.is_flipped(tree);
        let run = self.run(address + if flipped { 0 } else { step * first });
        (self.kappas[tree], self.lows[tree]) = (kappa, low);
        run
    }

    /// The records that share the digits fixed so far.
    fn run(&self, address: u64) -> Run {
        let mut start = address;
        for (tree, step) in self.flipped_steps.iter().enumerate().filter(|(_, step)| **step > 0) {
            let radix = self.placement.space.trees[tree].radix();
            start += (radix - self.lows[tree] - self.kappas[tree]) * step;
        }
        Run { address: start, records: self.kappas.iter().product() }
    }

    fn normalise(&mut self, level: &Level) {
        let Digit { tree, leaf } = level.digit;
        let axis = &self.placement.space.trees[tree];
        self.kappas[tree] = axis.kappa(leaf, level.kappa_before, level.value);
        self.lows[tree] = level.low_before + level.value * axis.leaf(leaf).z;
    }

    /// Moves the lowest digit that can move.
    fn step(&mut self) -> bool {
        while let Some(mut level) = self.levels.pop() {
            let tree = level.digit.tree;
            let next = if self.is_flipped(&level) {
                (level.value > level.first).then(|| level.value - 1)
            } else {
                Some(level.value + 1).filter(|value| *value < level.end)
            };
            if let Some(value) = next {
                level.value = value;
                self.levels.push(level);
                self.normalise(&level);
                return true;
            }
            self.kappas[tree] = level.kappa_before;
            self.lows[tree] = level.low_before;
        }
        false
    }
}

impl Iterator for Runs<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        loop {
            match (self.pending.take(), self.piece()) {
                (None, None) => return None,
                (None, Some(first)) => self.pending = Some(first),
                (Some(last), None) => return Some(last),
                (Some(last), Some(next)) if last.address + last.records == next.address => {
                    let records = last.records + next.records;
                    self.pending = Some(Run { address: last.address, records });
                }
                (Some(last), Some(next)) => {
                    self.pending = Some(next);
                    return Some(last);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::Settings;
    use crate::space::tests::{all_orders, all_settings, small_spaces};

    fn allows(choice: &Choice, setting: &[Vec<u64>]) -> bool {
        let pairs = choice.iter().flatten().zip(setting.iter().flatten());
        pairs.into_iter().all(|(allowed, value)| match allowed {
            Allowed::One(one) => one == value,
            Allowed::Between(first, end) => (first..end).contains(&value),
            Allowed::All => true,
        })
    }

    fn expected(addresses: &mut [u64]) -> Vec<Run> {
        addresses.sort_unstable();
        let mut runs: Vec<Run> = Vec::new();
        for address in addresses {
            match runs.last_mut() {
                Some(run) if run.address + run.records == *address => run.records += 1,
                _ => runs.push(Run { address: *address, records: 1 }),
            }
        }
        runs
    }

    #[test]
    fn runs_are_the_addresses_that_the_choice_allows() {
        for space in small_spaces() {
            let all = all_settings(&space);
            for order in all_orders(&space) {
                let placement = Placement { space: &space, order: &order, flips: &[] };
                for cut in 0..=order.len() {
                    let mut settings = Settings::new(&space, &order[cut..], &space.everything());
                    let mut choice = space.everything();
                    if cut > 0 {
                        let Digit { tree, leaf } = order[cut - 1];
                        choice[tree][leaf] = Allowed::Between(1, 3);
                    }
                    while settings.advance() {
                        settings.apply(&mut choice);
                        let chosen = all.iter().filter(|setting| allows(&choice, setting));
                        let mut addresses: Vec<u64> =
                            chosen.map(|setting| space.address(&order, setting)).collect();
                        let found: Vec<Run> = Runs::new(placement, choice.clone()).collect();
                        assert_eq!(found, expected(&mut addresses), "{order:?} {choice:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn flipped_axes_count_from_the_far_end() {
        for space in small_spaces() {
            let all = all_settings(&space);
            let whole: Vec<Digit> = (0..space.trees.len())
                .flat_map(|tree| {
                    (0..space.trees[tree].leaves().len()).map(move |leaf| Digit { tree, leaf })
                })
                .collect();
            for set in 0..1_u32 << space.trees.len() {
                let flips: Vec<bool> = (0..space.trees.len()).map(|t| set >> t & 1 == 1).collect();
                let placement = Placement { space: &space, order: &whole, flips: &flips };
                let address = |setting: &Vec<Vec<u64>>| {
                    let mut address = 0;
                    for (tree, axis) in space.trees.iter().enumerate().rev() {
                        let leaves = axis.leaves().iter().zip(&setting[tree]);
                        let value: u64 = leaves.map(|(leaf, digit)| leaf.z * digit).sum();
                        let value = if flips[tree] { axis.radix() - 1 - value } else { value };
                        address = address * axis.radix() + value;
                    }
                    address
                };
                for order in all_orders(&space) {
                    for cut in 0..=order.len() {
                        let everything = space.everything();
                        let mut settings = Settings::new(&space, &order[cut..], &everything);
                        let mut choice = space.everything();
                        while settings.advance() {
                            settings.apply(&mut choice);
                            let chosen = all.iter().filter(|setting| allows(&choice, setting));
                            let mut addresses: Vec<u64> = chosen.map(address).collect();
                            let found: Vec<Run> = Runs::new(placement, choice.clone()).collect();
                            assert_eq!(found, expected(&mut addresses), "{flips:?} {choice:?}");
                        }
                    }
                }
            }
        }
    }
}
