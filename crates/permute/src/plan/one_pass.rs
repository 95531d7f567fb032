//! The best single pass (after Algorithm 7).
//!
//! A plan is a segment, which is a low prefix of the input with its top digit perhaps cut; what
//! of the segment is kept, which is all of it unless reads are filtered; and the gaps of the
//! output that are filled from the low end while memory lasts, the last one perhaps in part.
//! Small tasks are searched whole instead: every extent of every axis, every segment.

use super::cut::{Extent, Task, union};
use super::price::{Figures, Mode, Terms};
use crate::pass::Pass;
use crate::space::Digit;

/// The number of prefixes that are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Every number of parts of every digit near the best; filtered reads too.
    Full,
    /// The same without filtered reads.
    Fine,
    /// Sizes that differ by a factor of about two, to compare what comes before and after.
    Coarse,
}

/// Tasks with at most this many plans are searched exhaustively.
const WHOLE_MAX: usize = 10_000;
/// The number of neighbours of the best segment that are tried on each side.
const NEIGHBOURS: usize = 12;
/// For up to this many axes in a segment, keeping and leaving out each axis are both tried.
const FILTERED_AXES_MAX: usize = 5;

/// The cheapest pass found so far.
struct Best<'a> {
    task: &'a Task,
    terms: &'a Terms,
    found: Option<(Pass, f64)>,
}

impl Best<'_> {
    /// Looks at the pass with these segments and acting digits; whether it fits the memory.
    fn look(&mut self, segment: &[Extent], acting: &[Extent]) -> bool {
        let pass = self.task.pass(segment, acting);
        let figures = Figures::of(&pass);
        if !figures.meets(self.terms) || !filter_fits(&figures, self.terms) {
            return figures.fits(self.terms);
        }
        let price = figures.price(self.terms);
        if self.found.as_ref().is_none_or(|(_, least)| price < *least) {
            self.found = Some((pass, price));
        }
        true
    }

    /// Fills the gaps of the output as far as memory goes.
    fn fill(&mut self, segment: &[Extent], kept: &[Extent], flushes: &[Vec<Extent>]) {
        let task = self.task;
        let fits = |flush: &Vec<Extent>| {
            Figures::of(&task.pass(segment, &union(kept, flush))).fits(self.terms)
        };
        // What fits is a head of them, nearly: the blocks of partitions may shrink.
        let count = flushes.partition_point(fits);
        for flush in flushes[..count].iter().rev().take(3) {
            self.look(segment, &union(kept, flush));
        }
    }
}

/// A filtered segment is read whole, into the buffer of one reader.
fn filter_fits(figures: &Figures, terms: &Terms) -> bool {
    figures.waste <= 1 || figures.segment.saturating_mul(terms.record) <= terms.filtered
}

/// The cheapest pass, with its price; `None` when none meets the requirements.
#[must_use]
pub fn best(task: &Task, terms: &Terms, effort: Effort) -> Option<(Pass, f64)> {
    let mut best = Best { task, terms, found: None };
    if task.space.records() <= terms.memory {
        // Everything is one load.
        let all: Vec<Extent> = (0..task.space.trees.len()).map(|tree| task.all_of(tree)).collect();
        best.look(&all, &all);
        if best.found.is_some() {
            return best.found;
        }
    }
    if effort == Effort::Full && plans(task) <= WHOLE_MAX {
        whole(&mut best);
        return best.found;
    }
    let segments = prefixes(task, &task.input, terms.memory, Effort::Coarse);
    let flushes = prefixes(task, &task.output, terms.memory, effort);
    let mut nearest: (usize, f64) = (0, f64::INFINITY);
    for (index, segment) in segments.iter().enumerate() {
        best.fill(segment, segment, &flushes);
        if let Some((_, price)) = &best.found
            && *price < nearest.1
        {
            nearest = (index, *price);
        }
    }
    if effort != Effort::Coarse {
        let all = prefixes(task, &task.input, terms.memory, Effort::Full);
        let middle = segments
            .get(nearest.0)
            .map_or(0, |near| all.iter().position(|segment| segment == near).unwrap_or(0));
        let first = middle.saturating_sub(NEIGHBOURS);
        for segment in all.iter().skip(first).take(2 * NEIGHBOURS + 1) {
            best.fill(segment, segment, &flushes);
        }
    }
    if effort == Effort::Full {
        filtered(&mut best, &flushes);
    }
    best.found
}

/// Plans with filtered reads: of the axes in a segment some are kept in part or not at all.
fn filtered(best: &mut Best<'_>, flushes: &[Vec<Extent>]) {
    let (task, terms) = (best.task, best.terms);
    // Reading twice costs at least one more read of everything.
    let readable = (terms.filtered / terms.record.max(1)).max(1);
    if let (Mode::Seconds(profile), Some((_, price))) = (terms.mode, &best.found) {
        let bytes = (task.space.records() * terms.record) as f64;
        if *price < bytes * (2.0 * profile.read_byte + profile.write_byte) {
            return;
        }
    }
    let flushes: Vec<Vec<Extent>> = thin(flushes);
    for segment in prefixes(task, &task.input, readable, Effort::Coarse) {
        let axes: Vec<usize> =
            (0..segment.len()).filter(|tree| segment[*tree] != Extent::NONE).collect();
        for set in 1..1_u32 << axes.len().min(FILTERED_AXES_MAX) {
            let mut kept = segment.clone();
            let dropped: Vec<usize> =
                (0..axes.len()).filter(|bit| set >> bit & 1 == 1).map(|bit| axes[bit]).collect();
            for tree in &dropped {
                kept[*tree] = Extent::NONE;
            }
            best.fill(&segment, &kept, &flushes);
            // Of one of them a part may be kept.
            for tree in &dropped {
                let digit = Digit { tree: *tree, leaf: segment[*tree].leaf };
                for low in task.lows(digit) {
                    if low < segment[*tree].low && low.is_power_of_two() {
                        let part = Extent { leaf: digit.leaf, low };
                        let mut kept = kept.clone();
                        kept[*tree] = part;
                        best.fill(&segment, &kept, &flushes);
                    }
                }
            }
        }
    }
}

/// About one in four.
fn thin(all: &[Vec<Extent>]) -> Vec<Vec<Extent>> {
    let every = all.len().div_ceil(64);
    all.iter().step_by(every.max(1)).cloned().collect()
}

/// The approximate number of plans that a whole search looks at.
fn plans(task: &Task) -> usize {
    let extents =
        task.space.trees.iter().enumerate().map(|(tree, _)| all_extents(task, tree).len());
    let boxes = extents.clone().fold(1_usize, usize::saturating_mul);
    boxes.saturating_mul(extents.sum::<usize>())
}

/// Nothing, and every cut of every digit of an axis.
fn all_extents(task: &Task, tree: usize) -> Vec<Extent> {
    let leaves = 0..task.space.trees[tree].leaves().len();
    let cuts = leaves.flat_map(|leaf| {
        let lows = task.lows(Digit { tree, leaf }).into_iter();
        lows.map(move |low| Extent { leaf, low })
    });
    std::iter::once(Extent::NONE).chain(cuts).collect()
}

/// Every box of acting extents, with every segment that cuts a digit at most once.
fn whole(best: &mut Best<'_>) {
    let task = best.task;
    let extents: Vec<Vec<Extent>> =
        (0..task.space.trees.len()).map(|tree| all_extents(task, tree)).collect();
    let segments = prefixes(task, &task.input, u64::MAX, Effort::Full);
    let mut indices = vec![0; extents.len()];
    loop {
        let acting: Vec<Extent> =
            indices.iter().zip(&extents).map(|(index, all)| all[*index]).collect();
        if Figures::of(&task.pass(&acting, &acting)).load <= best.terms.memory {
            for segment in &segments {
                let agree = |tree: usize| cuts_agree(task, tree, segment[tree], acting[tree]);
                if (0..acting.len()).all(agree) {
                    best.look(segment, &acting);
                }
            }
        }
        let mut moved = false;
        for (index, all) in indices.iter_mut().zip(&extents) {
            *index += 1;
            if *index < all.len() {
                moved = true;
                break;
            }
            *index = 0;
        }
        if !moved {
            return;
        }
    }
}

/// Whether two extents of an axis cut no digit at two places.
fn cuts_agree(task: &Task, tree: usize, one: Extent, other: Extent) -> bool {
    let radix = task.space.leaf(Digit { tree, leaf: one.leaf }).radix;
    let is_cut = |extent: Extent| extent.low > 1 && extent.low < radix;
    one.leaf != other.leaf || one == other || !is_cut(one) || !is_cut(other)
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
            let skipped = here < last.saturating_mul(2) && low < radix;
            if effort != Effort::Coarse || !skipped {
                extents[digit.tree] = Extent { leaf: digit.leaf, low };
                all.push(extents.clone());
                last = here;
            }
        }
        size = size.saturating_mul(radix);
    }
    all
}
