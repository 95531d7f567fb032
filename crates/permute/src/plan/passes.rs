//! One pass or several, whichever costs least (after Algorithms 8 to 10).
//!
//! A file between two passes begins with a tile: low parts of the digits that are low in the
//! file before (they leave) and of those that are low in the file after (they enter). With k
//! passes and m records of memory the tile before and after each pass is about as large as a
//! request, b records; pass i holds b records of one side and brings in m / b of the other, so
//! that after it the entering part is (m / b)^i and the leaving part what remains of b. That
//! leaves b to be searched, instead of one size a file; the sizes found are then moved one by one
//! while that helps.

use super::cut::{Extent, Task};
use super::one_pass::{Effort, best, prefixes};
use super::price::{Mode, Terms};
use crate::pass::Pass;
use crate::space::Digit;

/// The most passes that are tried.
pub const PASSES_MAX: usize = 6;

/// Seconds that it takes to give back a byte of a file.
const FREE_BYTE: f64 = 0.3e-9;

/// The orders of the digits outside the tile.
const ARRANGEMENTS: [Arrangement; 3] =
    [Arrangement::Output, Arrangement::Input, Arrangement::LeavingFirst];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrangement {
    /// As in the file that is wanted.
    Output,
    /// As in the file before.
    Input,
    /// The rest of the digits that leave, then the others, each as in the file that is wanted: the
    /// pass before writes longer runs.
    LeavingFirst,
}

/// The file between two passes: indices into the prefixes of input and output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Middle {
    leaving: usize,
    entering: usize,
}

/// The cheapest passes, and their price; empty when nothing fits the memory.
///
/// Where memory is so small that no pass has segments and partitions of a block, smaller ones are
/// taken.
#[must_use]
pub fn plan(task: &Task, terms: &Terms) -> (Vec<Pass>, f64) {
    let found = strict(task, terms);
    if !found.0.is_empty() || terms.block == 1 {
        return found;
    }
    strict(task, &Terms { block: 1, ..*terms })
}

/// The cheapest plan of exactly this many passes, and its price; `None` when none fits the memory
/// with segments and partitions of a block.
#[must_use]
pub fn plan_in(count: usize, task: &Task, terms: &Terms) -> Option<(Vec<Pass>, f64)> {
    if count == 1 {
        return best(task, terms, Effort::Full).map(|(pass, price)| (vec![pass], price));
    }
    Search::new(task, terms).passes(count)
}

fn strict(task: &Task, terms: &Terms) -> (Vec<Pass>, f64) {
    let mut cheapest = match best(task, terms, Effort::Full) {
        Some((pass, price)) => (vec![pass], price),
        None => (Vec::new(), f64::INFINITY),
    };
    let fits = task.space.records() <= terms.memory;
    if fits || task.input == task.output || task.input.len() < 2 {
        return cheapest;
    }
    let search = Search::new(task, terms);
    let mut worse = 0;
    let least = terms.least(task.space.records());
    for count in 2..=PASSES_MAX {
        if count as f64 * least >= cheapest.1 {
            break;
        }
        match search.passes(count) {
            Some(found) if found.1 < cheapest.1 => {
                cheapest = found;
                worse = 0;
            }
            Some(_) => worse += 1,
            // So few passes do not fit the memory; more may.
            None => {}
        }
        if worse == 2 && !cheapest.0.is_empty() {
            break;
        }
    }
    cheapest
}

struct Search<'a> {
    task: &'a Task,
    terms: &'a Terms,
    /// The extents that may leave and enter, with the records of each.
    leaving: Vec<(Vec<Extent>, u64)>,
    entering: Vec<(Vec<Extent>, u64)>,
}

impl<'a> Search<'a> {
    fn new(task: &'a Task, terms: &'a Terms) -> Self {
        let sized = |order: &[Digit]| {
            let all = prefixes(task, order, terms.memory, Effort::Coarse);
            let size = |extents: Vec<Extent>| {
                let records = task.pass(&extents, &extents).load_records();
                (extents, records)
            };
            all.into_iter().map(size).collect()
        };
        Self { task, terms, leaving: sized(&task.input), entering: sized(&task.output) }
    }

    /// The best plan of this many passes.
    fn passes(&self, count: usize) -> Option<(Vec<Pass>, f64)> {
        let mut found: Option<(Vec<Middle>, Arrangement, f64)> = None;
        let mut tile = 4.0;
        while tile < self.terms.memory as f64 {
            let middles = self.middles(count, tile);
            for arrangement in ARRANGEMENTS {
                let price = self.price(&middles, arrangement, Effort::Coarse);
                if found.as_ref().is_none_or(|(.., least)| price < *least) {
                    found = Some((middles.clone(), arrangement, price));
                }
            }
            tile *= 2.0;
        }
        let (mut middles, arrangement, mut price) = found?;
        self.improve(&mut middles, arrangement, &mut price);
        self.build(&middles, arrangement, Effort::Fine)
    }

    /// The files between the passes when requests are of about `tile` records.
    fn middles(&self, count: usize, tile: f64) -> Vec<Middle> {
        let factor = (self.terms.memory as f64 / tile).max(1.0);
        let index = |all: &[(Vec<Extent>, u64)], size: f64| {
            all.partition_point(|(_, records)| *records as f64 <= size * 1.01).saturating_sub(1)
        };
        (1..count)
            .map(|pass| {
                let enters = factor.powi(i32::try_from(pass).unwrap_or(i32::MAX)).min(tile);
                Middle {
                    leaving: index(&self.leaving, tile / enters),
                    entering: index(&self.entering, enters),
                }
            })
            .collect()
    }

    /// Moves one size at a time to a neighbour while the price falls.
    fn improve(&self, middles: &mut Vec<Middle>, arrangement: Arrangement, price: &mut f64) {
        for _ in 0..8 {
            let before = *price;
            for index in 0..middles.len() {
                for (leaving, entering) in [(1, 0), (-1, 0), (0, 1), (0, -1)] {
                    let mut other = middles.clone();
                    let moved = |at: usize, by: isize| at.checked_add_signed(by);
                    let Some(leaving) = moved(other[index].leaving, leaving) else { continue };
                    let Some(entering) = moved(other[index].entering, entering) else { continue };
                    if leaving >= self.leaving.len() || entering >= self.entering.len() {
                        continue;
                    }
                    other[index] = Middle { leaving, entering };
                    let there = self.price(&other, arrangement, Effort::Coarse);
                    if there < *price {
                        (*middles, *price) = (other, there);
                    }
                }
            }
            if *price >= before {
                return;
            }
        }
    }

    fn price(&self, middles: &[Middle], arrangement: Arrangement, effort: Effort) -> f64 {
        self.build(middles, arrangement, effort).map_or(f64::INFINITY, |(_, price)| price)
    }

    fn build(
        &self,
        middles: &[Middle],
        arrangement: Arrangement,
        effort: Effort,
    ) -> Option<(Vec<Pass>, f64)> {
        let mut passes = Vec::with_capacity(middles.len() + 1);
        let mut price = 0.0;
        // All cuts at first, so that the digits of every file are the same.
        let mut rest = self.task.clone();
        let mut weights = Vec::new();
        for middle in middles {
            let (leaving, entering) =
                (&self.leaving[middle.leaving].0, &self.entering[middle.entering].0);
            let weight = |extents: &[Extent]| -> Vec<u64> {
                let trees = extents.iter().enumerate();
                trees.map(|(tree, extent)| self.task.weight(tree, *extent)).collect()
            };
            weights.push((weight(leaving), weight(entering)));
        }
        for tree in 0..rest.space.trees.len() {
            let mut cuts: Vec<u64> = weights.iter().flat_map(|(l, e)| [l[tree], e[tree]]).collect();
            cuts.sort_unstable();
            cuts.dedup();
            for weight in cuts.into_iter().rev() {
                rest.cut_at(tree, weight);
            }
        }
        for (leaving, entering) in &weights {
            let order = arrange(&rest, leaving, entering, arrangement);
            let first = Task { output: order.clone(), ..rest.clone() };
            let (pass, cost) = best(&first, self.terms, effort)?;
            price += cost + self.scratch(&passes, &pass);
            passes.push(pass);
            rest.input = order;
            rest.flips.fill(false);
        }
        let (pass, cost) = best(&rest, self.terms, effort)?;
        price += cost + self.scratch(&passes, &pass);
        passes.push(pass);
        Some((passes, price))
    }

    /// The cost of freeing the file that a pass after others reads, if it does not write to it:
    /// discarding blocks takes a disk some time.
    fn scratch(&self, before: &[Pass], pass: &Pass) -> f64 {
        match self.terms.mode {
            Mode::Seconds(_) if !before.is_empty() && !pass.is_in_place() => {
                (self.task.space.records() * self.terms.record) as f64 * FREE_BYTE
            }
            Mode::Seconds(_) | Mode::Blocks { .. } => 0.0,
        }
    }
}

/// The order of a file between two passes: what leaves, what enters, the rest.
fn arrange(task: &Task, leaving: &[u64], entering: &[u64], rest: Arrangement) -> Vec<Digit> {
    let class = |digit: &Digit| {
        let z = task.space.leaf(*digit).z;
        if z < leaving[digit.tree] {
            0
        } else if z < entering[digit.tree] {
            1
        } else if rest == Arrangement::LeavingFirst && leaving[digit.tree] > 1 {
            2
        } else {
            3
        }
    };
    let in_class = |order: &[Digit], wanted: u32| -> Vec<Digit> {
        order.iter().filter(|digit| class(digit) == wanted).copied().collect()
    };
    let above = if rest == Arrangement::Input { &task.input } else { &task.output };
    [in_class(&task.output, 0), in_class(&task.output, 1), in_class(above, 2), in_class(above, 3)]
        .concat()
}
