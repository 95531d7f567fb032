//! Fewer digits for the same task.
//!
//! Axes of one value go; axes that are neighbours in both orders become one; and what stays at
//! the low end of both becomes part of the record, up to a block.

use crate::file::BLOCK;
use crate::plan::cut::Task;
use crate::space::{Digit, Space};
use crate::tree::Tree;

/// The same task with as few axes as can be, and the bytes of its records.
#[must_use]
pub fn coalesce(task: &Task, item_bytes: u64) -> (Task, u64) {
    let mut task = drop_single(task);
    while let Some((low, high)) = neighbours(&task) {
        join(&mut task, low, high);
    }
    let mut record = item_bytes;
    if let (Some(first), Some(digit)) = (task.input.first().copied(), task.output.first())
        && first == *digit
        && is_simple(&task, first.tree)
        && !task.flips[first.tree]
    {
        let bytes = record.saturating_mul(task.space.trees[first.tree].radix());
        if bytes <= BLOCK as u64 {
            record = bytes;
            task.space.trees[first.tree] = Tree::whole(1);
            task = drop_single(&task);
        }
    }
    (task, record)
}

fn is_simple(task: &Task, tree: usize) -> bool {
    task.space.trees[tree].leaves().len() == 1
}

/// Without the axes of one value.
fn drop_single(task: &Task) -> Task {
    let kept: Vec<usize> =
        (0..task.space.trees.len()).filter(|tree| task.space.trees[*tree].radix() > 1).collect();
    let renumber = |order: &[Digit]| {
        let renumbered = order.iter().filter_map(|digit| {
            let tree = kept.iter().position(|tree| *tree == digit.tree)?;
            Some(Digit { tree, leaf: digit.leaf })
        });
        renumbered.collect()
    };
    Task {
        space: Space { trees: kept.iter().map(|t| task.space.trees[*t].clone()).collect() },
        input: renumber(&task.input),
        output: renumber(&task.output),
        flips: kept.iter().map(|tree| task.flips[*tree]).collect(),
    }
}

/// Two axes of one digit, the second just above the first in both orders, flipped alike.
fn neighbours(task: &Task) -> Option<(usize, usize)> {
    let follows =
        |order: &[Digit], low: Digit, high: Digit| order.windows(2).any(|pair| pair == [low, high]);
    task.input.windows(2).find_map(|pair| {
        let (low, high) = (pair[0], pair[1]);
        let fits = low.tree != high.tree
            && is_simple(task, low.tree)
            && is_simple(task, high.tree)
            && task.flips[low.tree] == task.flips[high.tree]
            && follows(&task.output, low, high);
        fits.then_some((low.tree, high.tree))
    })
}

/// Makes two axes one.
fn join(task: &mut Task, low: usize, high: usize) {
    let radix = task.space.trees[low].radix() * task.space.trees[high].radix();
    task.space.trees[low] = Tree::whole(radix);
    task.space.trees[high] = Tree::whole(1);
    *task = drop_single(task);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(radices: &[u64], output: &[usize], flips: &[bool]) -> Task {
        let digit = |tree| Digit { tree, leaf: 0 };
        Task {
            space: Space::whole(radices),
            input: (0..radices.len()).map(digit).collect(),
            output: output.iter().copied().map(digit).collect(),
            flips: flips.to_vec(),
        }
    }

    #[test]
    fn neighbours_become_one_and_the_low_end_a_record() {
        let (small, record) = coalesce(&task(&[3, 5, 1, 7, 11], &[0, 3, 4, 2, 1], &[false; 5]), 4);
        assert_eq!(record, 12);
        assert_eq!(small, task(&[5, 77], &[1, 0], &[false; 2]));
    }

    #[test]
    fn nothing_is_left_of_what_does_not_move() {
        let (small, record) = coalesce(&task(&[3, 5], &[0, 1], &[false; 2]), 4);
        assert_eq!((small.input.len(), record), (0, 60));
        let (small, record) = coalesce(&task(&[3000, 5], &[0, 1], &[false; 2]), 4);
        assert_eq!((small.space, record), (Space::whole(&[15000]), 4));
    }

    #[test]
    fn flips_are_distinct() {
        let (small, record) = coalesce(&task(&[3, 5, 2], &[0, 1, 2], &[true, true, false]), 4);
        assert_eq!((small.space, record), (Space::whole(&[15, 2]), 4));
        assert_eq!(small.flips, [true, false]);
    }
}
