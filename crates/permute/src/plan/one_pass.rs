//! The best single pass (after Algorithm 7).
//!
//! A plan is a segment, which is a low prefix of the input with its top digit perhaps cut, and
//! the gaps of the output that are filled from the low end while memory lasts, the last one
//! perhaps in part.

use super::cut::{Extent, Task, union};
use super::price::{Figures, Terms};
use crate::pass::Pass;
use crate::space::Digit;

/// The cheapest pass, with its price; `None` when none fits the memory.
#[must_use]
pub fn best(task: &Task, terms: &Terms) -> Option<(Pass, f64)> {
    let segments = prefixes(task, &task.input, terms.memory);
    let flushes = prefixes(task, &task.output, terms.memory);
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
fn prefixes(task: &Task, order: &[Digit], records: u64) -> Vec<Vec<Extent>> {
    let mut extents = vec![Extent::NONE; task.space.trees.len()];
    let mut all = vec![extents.clone()];
    let mut size = 1_u64;
    for digit in order {
        for low in task.lows(*digit) {
            if size.saturating_mul(low) > records {
                return all;
            }
            extents[digit.tree] = Extent { leaf: digit.leaf, low };
            all.push(extents.clone());
        }
        size = size.saturating_mul(task.space.leaf(*digit).radix);
    }
    all
}
