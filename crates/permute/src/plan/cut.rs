//! Passes from extents: how much of each axis acts.
//!
//! The acting digits are a component-wise suffix, so that a load is a box: of each axis, all
//! digits below one of them, and of that one all, none, or a lower part that a cut makes.

use crate::pass::Pass;
use crate::space::{Digit, Space};

/// How much of one axis acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Extent {
    /// Digits below this one act.
    pub leaf: usize,
    /// Of this digit, a lower part of this radix acts; 1 for nothing.
    pub low: u64,
}

impl Extent {
    /// Nothing acts.
    pub const NONE: Self = Self { leaf: 0, low: 1 };
}

/// What is to be done in one or more passes: the same records in another order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The axes, cut where the orders need it.
    pub space: Space,
    /// The order of the file that is there.
    pub input: Vec<Digit>,
    /// The order of the file that is wanted.
    pub output: Vec<Digit>,
    /// For each axis, whether the file that is there counts it from the far end.
    pub flips: Vec<bool>,
}

impl Task {
    /// Cuts digit `leaf` of an axis; the parts stand where it stood in both orders. Nothing
    /// happens where the cut would not part anything.
    pub fn cut(&mut self, tree: usize, leaf: usize, low: u64) -> bool {
        if !self.space.trees[tree].cut(leaf, low) {
            return false;
        }
        for order in [&mut self.input, &mut self.output] {
            let mut longer = Vec::with_capacity(order.len() + 1);
            for digit in order.drain(..) {
                match digit {
                    Digit { tree: t, leaf: l } if t == tree && l == leaf => {
                        longer.extend([digit, Digit { tree, leaf: leaf + 1 }]);
                    }
                    Digit { tree: t, leaf: l } if t == tree && l > leaf => {
                        longer.push(Digit { tree, leaf: l + 1 });
                    }
                    other => longer.push(other),
                }
            }
            *order = longer;
        }
        true
    }

    /// The pass in which these extents act; its segments are the runs of acting digits.
    #[must_use]
    pub fn pass(&self, extents: &[Extent]) -> Pass {
        let mut task = self.clone();
        let mut acts = Vec::with_capacity(extents.len());
        for (tree, extent) in extents.iter().enumerate() {
            let cut = task.cut(tree, extent.leaf, extent.low);
            let full = extent.low > 1 && !cut;
            let upto = extent.leaf + usize::from(cut || full);
            let leaves = task.space.trees[tree].leaves().len();
            acts.push((0..leaves).map(|leaf| leaf < upto).collect::<Vec<bool>>());
        }
        let Self { space, input, output, flips } = task;
        let is_action = |digit: &&Digit| acts[digit.tree][digit.leaf];
        let beta = input.iter().take_while(is_action).count();
        Pass { space, input, output, flips, acts, beta }
    }

    /// The lower parts worth cutting from a digit, ascending: for each number of parts the
    /// smallest, so that about 2√r of r are tried; then the digit itself.
    #[must_use]
    pub fn lows(&self, digit: Digit) -> Vec<u64> {
        lows(self.space.leaf(digit).radix)
    }
}

/// As [`Task::lows`], of a radix.
#[must_use]
pub fn lows(radix: u64) -> Vec<u64> {
    let mut all = Vec::new();
    let mut low = 2;
    while low < radix {
        all.push(low);
        // The next number that leaves fewer parts.
        let parts = radix.div_ceil(low);
        low = radix.div_ceil(parts - 1).max(low + 1);
    }
    if radix > 1 {
        all.push(radix);
    }
    all
}

/// The greatest extent of each.
#[must_use]
pub fn union(first: &[Extent], second: &[Extent]) -> Vec<Extent> {
    first.iter().zip(second).map(|(one, other)| *one.max(other)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_parts_is_tried_once_by_its_smallest_part() {
        for radix in 1..400_u64 {
            let found = lows(radix);
            let mut expected: Vec<u64> = (2..=radix)
                .filter(|low| radix.div_ceil(*low) < radix.div_ceil(low - 1) || *low == 2)
                .collect();
            expected.dedup();
            assert_eq!(found, expected, "{radix}");
        }
    }
}
