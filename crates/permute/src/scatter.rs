//! The places of records in memory: nested strided copies.
//!
//! Two buffers hold the same records, each packed in an order of its own. Where digits are short
//! the strides change, so that the records are cut into pieces inside of which every stride is
//! constant: of each axis, digit by digit, the values below the last, and the last.

use crate::runs::Placement;
use crate::space::{Allowed, Choice, Digit, Space, product_without};

/// One loop of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dim {
    /// The number of iterations.
    pub count: u64,
    /// Records from one step to the next in the buffer that is read.
    pub from: i64,
    /// Records from one step to the next in the buffer that is written.
    pub to: i64,
}

/// Records that nested loops reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The place of the first record, in records from the beginning of the buffer that is read.
    pub from: i64,
    /// Its place in the buffer that is written.
    pub to: i64,
    /// The loops, in no particular order, none with a count below 2.
    pub dims: Vec<Dim>,
}

/// The packing of a buffer: the records that agree on the fixed digits, in an order.
#[derive(Clone, Copy, Debug)]
pub struct Packing<'a> {
    /// The order, and which axes run backwards in it.
    pub placement: Placement<'a>,
    /// For each digit, whether all records of the buffer share it: `shared_digits[tree][leaf]`.
    pub shared_digits: &'a [Vec<bool>],
    /// The values of its highest digit that the buffer holds, if not all.
    pub window: Option<Window>,
}

/// The values of a digit that a buffer holds, where it holds not all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The digit, the highest in the buffer's order that its records do not share.
    pub digit: Digit,
    /// Its first value.
    pub first: u64,
    /// Past the last; perhaps more than exist.
    pub end: u64,
}

/// A stretch of one axis with constant κ: for each digit, first value, count, κ after it.
#[derive(Clone, Debug, Default)]
struct Stretch(Vec<(u64, u64, u64)>);

/// The copies that take what `choice` allows from one buffer to the other.
#[must_use]
pub fn pieces(space: &Space, choice: &Choice, from: Packing<'_>, to: Packing<'_>) -> Vec<Piece> {
    let stretches: Vec<Vec<Stretch>> =
        (0..space.trees.len()).map(|tree| stretches(space, choice, tree)).collect();
    let mut pieces = Vec::new();
    let mut indices = vec![0; stretches.len()];
    if stretches.iter().any(Vec::is_empty) {
        return pieces;
    }
    loop {
        let chosen: Vec<&Stretch> =
            indices.iter().zip(&stretches).map(|(index, all)| &all[*index]).collect();
        let (from_base, from_strides) = strides(space, &chosen, from);
        let (to_base, to_strides) = strides(space, &chosen, to);
        let mut dims = Vec::new();
        for (tree, stretch) in chosen.iter().enumerate() {
            for (leaf, (_, count, _)) in stretch.0.iter().enumerate().filter(|(_, s)| s.1 > 1) {
                let (from, to) = (from_strides[tree][leaf], to_strides[tree][leaf]);
                dims.push(Dim { count: *count, from, to });
            }
        }
        pieces.push(Piece { from: from_base, to: to_base, dims });
        if !next(&mut indices, &stretches) {
            return pieces;
        }
    }
}

fn next(indices: &mut [usize], stretches: &[Vec<Stretch>]) -> bool {
    for (index, all) in indices.iter_mut().zip(stretches) {
        *index += 1;
        if *index < all.len() {
            return true;
        }
        *index = 0;
    }
    false
}

/// Cuts what a choice allows of one axis into stretches.
fn stretches(space: &Space, choice: &Choice, tree: usize) -> Vec<Stretch> {
    let axis = &space.trees[tree];
    let count = axis.leaves().len();
    // From the highest digit; each entry has the digits fixed so far, and κ.
    let mut all = vec![(Vec::new(), axis.radix())];
    for leaf in (0..count).rev() {
        let mut longer = Vec::new();
        for (shared_digits, kappa) in all {
            let values = axis.values(leaf, kappa);
            let (first, end) = match choice[tree][leaf] {
                Allowed::One(value) => (value, value + 1),
                Allowed::Between(first, end) => (first, end),
                Allowed::All => (0, values),
            };
            let end = end.min(values);
            let last_kappa = axis.kappa(leaf, kappa, values - 1);
            // The last value is separate if fewer records share it.
            let apart = end == values && last_kappa < axis.leaf(leaf).z;
            let full = if apart { end - 1 } else { end };
            for (from, upto) in [(first, full), (first.max(full), end)] {
                if from < upto {
                    let mut with = shared_digits.clone();
                    let after = axis.kappa(leaf, kappa, from);
                    with.push((from, upto - from, after));
                    longer.push((with, after));
                }
            }
        }
        all = longer;
    }
    let reversed = all.into_iter().map(|(mut shared_digits, _): (Vec<_>, u64)| {
        shared_digits.reverse();
        Stretch(shared_digits)
    });
    reversed.collect()
}

/// The address of the first record of some stretches, and the stride of each digit.
fn strides(space: &Space, chosen: &[&Stretch], packing: Packing<'_>) -> (i64, Vec<Vec<i64>>) {
    let Packing { placement, shared_digits, window } = packing;
    // κ of each axis, of its fixed digits.
    let mut kappas: Vec<u64> = (0..chosen.len())
        .map(|tree| {
            let shared = shared_digits[tree].iter().position(|is_shared| *is_shared);
            shared.map_or(space.trees[tree].radix(), |leaf| chosen[tree].0[leaf].2)
        })
        .collect();
    let whole = kappas.clone();
    let mut base = 0_i64;
    let mut all: Vec<Vec<i64>> = chosen.iter().map(|stretch| vec![0; stretch.0.len()]).collect();
    for digit in placement.order.iter().rev() {
        let Digit { tree, leaf } = *digit;
        if shared_digits[tree][leaf] {
            continue;
        }
        let (first, _, after) = chosen[tree].0[leaf];
        let others = signed(product_without(&kappas, tree));
        let axis = &space.trees[tree];
        let begins = window.filter(|w| w.digit == *digit).map_or(0, |w| w.first);
        if placement.flips.get(tree).copied().unwrap_or(false) {
            all[tree][leaf] = -signed(axis.leaf(leaf).z) * others;
            if leaf == 0 {
                let kappa = whole[tree];
                base += others * signed(from_far_end(space, chosen, packing, tree, kappa));
            }
        } else {
            let step = signed(axis.kappa(leaf, kappas[tree], 0)) * others;
            all[tree][leaf] = step;
            base += step * (signed(first) - signed(begins));
        }
        kappas[tree] = after;
    }
    (base, all)
}

/// The number of values of a flipped axis between the first one of a stretch and the far end of the
/// buffer's part of the axis.
fn from_far_end(
    space: &Space,
    chosen: &[&Stretch],
    packing: Packing<'_>,
    tree: usize,
    kappa: u64,
) -> u64 {
    let axis = &space.trees[tree];
    let mut end = kappa;
    let mut first = 0;
    for (leaf, (value, ..)) in chosen[tree].0.iter().enumerate() {
        if packing.shared_digits[tree][leaf] {
            continue;
        }
        first += value * axis.leaf(leaf).z;
        if let Some(window) = packing.window.filter(|w| w.digit == Digit { tree, leaf }) {
            end = end.min(window.end.saturating_mul(axis.leaf(leaf).z));
        }
    }
    end.saturating_sub(1).saturating_sub(first)
}

/// Records in memory are far fewer than `i64::MAX`.
fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
