//! Passes from extents: how much of each axis acts.
//!
//! The acting digits are a component-wise suffix, so that a load is a box: of each axis, all
//! digits below one of them, and of that one all, none, or a lower part that a cut makes.

use crate::pass::Pass;
use crate::space::{Digit, Space};

/// The part of one axis that acts.
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

/// The work of one or more passes: the same records in another order.
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
    /// Cuts digit `leaf` of an axis; the parts take its place in both orders. Nothing happens where
    /// the cut would not part anything.
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

    /// Cuts an axis so that digits of this weight and above are parted from those below, nearly:
    /// a weight inside of a digit that it does not divide is rounded down to one that it does.
    pub fn cut_at(&mut self, tree: usize, weight: u64) {
        let leaves = self.space.trees[tree].leaves();
        if let Some(leaf) = leaves.iter().rposition(|leaf| leaf.z < weight) {
            let low = weight / leaves[leaf].z;
            self.cut(tree, leaf, low);
        }
    }

    /// The weight of the first value that an extent leaves out.
    #[must_use]
    pub fn weight(&self, tree: usize, extent: Extent) -> u64 {
        self.space.trees[tree].leaf(extent.leaf).z.saturating_mul(extent.low)
    }

    /// The extent of a whole axis.
    #[must_use]
    pub fn all_of(&self, tree: usize) -> Extent {
        let leaf = self.space.trees[tree].leaves().len() - 1;
        Extent { leaf, low: self.space.leaf(Digit { tree, leaf }).radix }
    }

    /// The pass in which `acting` acts and whose segments are the longest run of the input's low
    /// digits inside of `segment` or acting. Reads are filtered where a segment has digits that
    /// do not act.
    #[must_use]
    pub fn pass(&self, segment: &[Extent], acting: &[Extent]) -> Pass {
        let mut task = self.clone();
        let weights: Vec<(u64, u64)> = (0..acting.len())
            .map(|tree| (self.weight(tree, segment[tree]), self.weight(tree, acting[tree])))
            .collect();
        for (tree, (segment, acting)) in weights.iter().enumerate() {
            task.cut_at(tree, *segment.max(acting));
            if acting < segment {
                task.cut_at(tree, *acting);
            }
        }
        let Self { space, input, output, flips } = task;
        let below = |digit: Digit, weight: u64| space.leaf(digit).z < weight;
        let acts: Vec<Vec<bool>> = space
            .trees
            .iter()
            .enumerate()
            .map(|(tree, axis)| {
                let leaves = 0..axis.leaves().len();
                leaves.map(|leaf| below(Digit { tree, leaf }, weights[tree].1)).collect()
            })
            .collect();
        let in_segment = |digit: &&Digit| {
            let (segment, acting) = weights[digit.tree];
            below(**digit, segment.max(acting))
        };
        let beta = input.iter().take_while(in_segment).count();
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
