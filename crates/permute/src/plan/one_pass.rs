//! The best single pass without filtered reads (after Algorithm 7).
//!
//! A plan is a segment, which is a low prefix of the input with its top digit perhaps cut, and
//! the gaps of the output that are filled from the low end while memory lasts, the last one
//! perhaps in part.

use super::cut::{Extent, Task, union};
use super::price::{Figures, Terms};
use crate::pass::Pass;
use crate::space::Digit;

/// How many prefixes are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Every number of parts of every digit.
    Full,
    /// Sizes about 3/2 apart, to compare what comes before and after.
    Coarse,
}

/// The cheapest pass, with its price; `None` when none fits the memory.
#[must_use]
pub fn best(task: &Task, terms: &Terms, effort: Effort) -> Option<(Pass, f64)> {
    let segments = prefixes(task, &task.input, terms.memory, effort);
    let flushes = prefixes(task, &task.output, terms.memory, effort);
    let mut best: Option<(Pass, f64)> = None;
    for segment in &segments {
        // What fits is a head of the flushes, nearly: the blocks of partitions may shrink.
        let fits = |flush: &Vec<Extent>| {
            let pass = task.pass(&union(segment, flush));
            Figures::of(&pass).fits(terms)
        };
        let count = flushes.partition_point(fits);
        for flush in flushes[..count].iter().rev().take(3) {
            let pass = task.pass(&union(segment, flush));
            let figures = Figures::of(&pass);
            let price = figures.price(terms);
            if figures.fits(terms) && best.as_ref().is_none_or(|(_, least)| price < *least) {
                best = Some((pass, price));
            }
        }
    }
    best
}

/// The low prefixes of an order, the top digit perhaps cut, ascending, up to a size.
#[must_use]
pub fn prefixes(task: &Task, order: &[Digit], records: u64, effort: Effort) -> Vec<Vec<Extent>> {
    let mut extents = vec![Extent::NONE; task.space.trees.len()];
    let mut all = vec![extents.clone()];
    let (mut size, mut last) = (1_u64, 1_u64);
    for digit in order {
        let radix = task.space.leaf(*digit).radix;
        for low in task.lows(*digit) {
            let here = size.saturating_mul(low);
            if here > records {
                return all;
            }
            let skipped = here < last.saturating_mul(3) / 2 && low < radix;
            if effort == Effort::Full || !skipped {
                extents[digit.tree] = Extent { leaf: digit.leaf, low };
                all.push(extents.clone());
                last = here;
            }
        }
        size = size.saturating_mul(radix);
    }
    all
}
