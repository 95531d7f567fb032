//! Dimensions as digits, and the orders in which files hold them: flat, or chunk by chunk.
//!
//! A chunk is a tile: cutting a dimension of size n into chunks of c divides its digits at the
//! weight c, and a file of chunks holds the digits below that weight first, those above it last. If
//! both files are in chunks, one axis is cut twice. Digits can express that only if one size is a
//! multiple of the other; otherwise the answer is `None`, and a flat file between them divides the
//! task in two.

use crate::plan::cut::Task;
use crate::resolve::Resolved;
use crate::space::{Digit, Space};
use crate::tree::Tree;

/// The arrangement of an array in a file.
#[derive(Clone, Copy, Debug)]
pub enum Arrangement<'a> {
    /// The last dimension fastest, or the first.
    Flat {
        /// Whether it is the first.
        is_fortran: bool,
    },
    /// Chunk after chunk, the last dimension of their grid fastest.
    Chunks {
        /// The sizes of a chunk; at least 1.
        sizes: &'a [u64],
        /// The dimensions inside of a chunk, the slowest first.
        inner: &'a [usize],
    },
}

/// The dimensions of two arrays with the same records, as digits of the same axes.
#[derive(Clone, Debug)]
pub struct Layout {
    space: Space,
    flips: Vec<bool>,
    /// For each dimension its digits, from the lowest: of the array that is there, and of the one
    /// that is wanted.
    sides: [Vec<Vec<Digit>>; 2],
}

/// A task, and the number of the lowest digits of each order that are inside a chunk.
#[derive(Clone, Debug)]
pub struct Arranged {
    /// The task.
    pub task: Task,
    /// Digits inside of a chunk of the file that is there, if it is in chunks.
    pub inner_input: Option<usize>,
    /// The same of the file that is wanted.
    pub inner_output: Option<usize>,
}

impl Layout {
    /// That of a pattern.
    #[must_use]
    pub fn of(resolved: &Resolved) -> Option<Self> {
        let task = resolved.task.as_ref()?;
        let space = task.space.clone();
        // Axes of one value have no weight in an index.
        let counts = |digit: &&Digit| space.trees[digit.tree].radix() > 1;
        let counted = |dims: &[Vec<Digit>]| -> Vec<Vec<Digit>> {
            dims.iter().map(|dim| dim.iter().filter(counts).copied().collect()).collect()
        };
        let sides = [counted(&resolved.left), counted(&resolved.right)];
        Some(Self { flips: task.flips.clone(), sides, space })
    }

    /// That of an array of a shape which stays as it is.
    #[must_use]
    pub fn identity(shape: &[u64]) -> Self {
        let dim = |(tree, size): (usize, &u64)| {
            if *size > 1 { vec![Digit { tree, leaf: 0 }] } else { Vec::new() }
        };
        let dims: Vec<Vec<Digit>> = shape.iter().enumerate().map(dim).collect();
        let sides = [dims.clone(), dims];
        Self { space: Space::whole(shape), flips: vec![false; shape.len()], sides }
    }

    /// For each dimension of the array that is wanted, the one of the array that is there which it
    /// is, flipped or not.
    #[must_use]
    pub fn origins(&self) -> Vec<Option<usize>> {
        let [left, right] = &self.sides;
        let origin = |dim: &Vec<Digit>| {
            if dim.is_empty() { None } else { left.iter().position(|other| other == dim) }
        };
        right.iter().map(origin).collect()
    }

    /// The task between a file of the one arrangement and a file of the other; `None` where no
    /// digits fit both.
    #[must_use]
    pub fn arranged(&self, input: Arrangement<'_>, output: Arrangement<'_>) -> Option<Arranged> {
        let mut layout = self.clone();
        let arrangements = [input, output];
        for (side, arrangement) in arrangements.iter().enumerate() {
            if let Arrangement::Chunks { sizes, .. } = arrangement {
                for (dim, size) in sizes.iter().enumerate() {
                    layout.cut(side, dim, *size)?;
                }
            }
        }
        let is_ragged = layout.space.trees.iter().any(|tree| tree.leaves().len() > 1);
        // An axis whose digits are not adjacent in the file has no far end.
        if matches!(input, Arrangement::Chunks { .. }) && is_ragged && layout.flips.contains(&true)
        {
            return None;
        }
        let (input, inner_input) = layout.order(0, input);
        let (output, inner_output) = layout.order(1, output);
        let fits = layout.space.is_consistent(&input) && layout.space.is_consistent(&output);
        let task = Task { space: layout.space, input, output, flips: layout.flips };
        fits.then_some(Arranged { task, inner_input, inner_output })
    }

    /// Parts the digits of a dimension at the weight `size`; `None` where they do not allow it.
    fn cut(&mut self, side: usize, dim: usize, size: u64) -> Option<()> {
        let weights = self.weights(side, dim);
        let digits = self.sides[side][dim].clone();
        let total = weights.last().copied()?;
        let index = weights.iter().rposition(|weight| *weight <= size)?;
        if size >= total || weights[index] == size {
            return Some(());
        }
        let digit = digits[index];
        let tree = &self.space.trees[digit.tree];
        let leaf = tree.leaf(digit.leaf);
        // In values of the axis, whose lowest has this weight in the dimension.
        let unit = weights[index] / leaf.z;
        let is_top_leaf = digit.leaf + 1 == tree.leaves().len();
        let is_top = index + 1 == digits.len();
        let values = size / unit;
        let above = if is_top_leaf { tree.radix() } else { tree.leaf(digit.leaf + 1).z };
        if !size.is_multiple_of(weights[index]) || !(is_top || above.is_multiple_of(values)) {
            return None;
        }
        let low = size / weights[index];
        if tree.leaves().len() == 1 && leaf.radix.is_multiple_of(low) {
            self.part(digit.tree, low);
            return Some(());
        }
        if !self.space.trees[digit.tree].cut(digit.leaf, low) {
            return None;
        }
        self.replace(digit, |found| {
            let next = Digit { leaf: found.leaf + 1, ..found };
            if found.leaf == digit.leaf { vec![found, next] } else { vec![next] }
        });
        Some(())
    }

    /// Makes an axis of one digit two axes, the lower one of radix `low`, which divides it.
    fn part(&mut self, tree: usize, low: u64) {
        let high = self.space.trees[tree].radix() / low;
        self.space.trees[tree] = Tree::whole(low);
        self.space.trees.push(Tree::whole(high));
        self.flips.push(self.flips[tree]);
        let made = Digit { tree: self.space.trees.len() - 1, leaf: 0 };
        self.replace(Digit { tree, leaf: 0 }, |found| vec![found, made]);
    }

    /// Replaces a digit and those above it of its axis, everywhere.
    fn replace(&mut self, from: Digit, by: impl Fn(Digit) -> Vec<Digit>) {
        for dim in self.sides.iter_mut().flatten() {
            let parts = dim.iter().flat_map(|digit| {
                let is_meant = digit.tree == from.tree && digit.leaf >= from.leaf;
                if is_meant { by(*digit) } else { vec![*digit] }
            });
            *dim = parts.collect();
        }
    }

    /// The number that one step of each digit of a dimension adds to its index; at last, the size
    /// of the dimension.
    fn weights(&self, side: usize, dim: usize) -> Vec<u64> {
        let mut unit = 1_u64;
        let mut weights = Vec::new();
        for digit in &self.sides[side][dim] {
            let tree = &self.space.trees[digit.tree];
            weights.push(unit.saturating_mul(tree.leaf(digit.leaf).z));
            if digit.leaf + 1 == tree.leaves().len() {
                unit = unit.saturating_mul(tree.radix());
            }
        }
        weights.push(unit);
        weights
    }

    /// The order of a file, from the lowest digit, and how many of them are inside of a chunk.
    fn order(&self, side: usize, arrangement: Arrangement<'_>) -> (Vec<Digit>, Option<usize>) {
        let (mut order, inner) = self.counted_order(side, arrangement);
        let single = |tree: &usize| self.space.trees[*tree].radix() == 1;
        let digits = (0..self.space.trees.len()).filter(single);
        order.extend(digits.map(|tree| Digit { tree, leaf: 0 }));
        (order, inner)
    }

    /// The same without axes of one value.
    fn counted_order(
        &self,
        side: usize,
        arrangement: Arrangement<'_>,
    ) -> (Vec<Digit>, Option<usize>) {
        let dims = &self.sides[side];
        let (sizes, inner) = match arrangement {
            Arrangement::Flat { is_fortran: true } => return (dims.concat(), None),
            Arrangement::Flat { is_fortran: false } => {
                return (dims.iter().rev().flatten().copied().collect(), None);
            }
            Arrangement::Chunks { sizes, inner } => (sizes, inner),
        };
        let parted = |dim: usize| {
            let weights = self.weights(side, dim);
            let below = |at: &usize| weights[*at] < sizes[dim];
            dims[dim].split_at((0..dims[dim].len()).take_while(below).count())
        };
        let mut order: Vec<Digit> =
            inner.iter().rev().flat_map(|dim| parted(*dim).0).copied().collect();
        let count = order.len();
        order.extend((0..dims.len()).rev().flat_map(|dim| parted(dim).1));
        (order, Some(count))
    }
}

#[cfg(test)]
mod tests;
