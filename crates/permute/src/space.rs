//! Address spaces: several axes, their digits in some order, records packed by counting.
//!
//! An order lists digits from the lowest, and is consistent: the digits of one axis occur in it
//! from low to high. The address of a record is how many records come before it when all settings
//! that exist are listed in order; nothing is padded (thesis, Theorem 11, Lemma 12).

use crate::tree::{Leaf, Tree};

/// Digit `leaf` (0 the lowest) of axis `tree`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digit {
    /// The axis.
    pub tree: usize,
    /// The index of the digit in the axis.
    pub leaf: usize,
}

/// Several axes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// The axes, in no particular order.
    pub trees: Vec<Tree>,
}

/// The values that a set of records allows for one digit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// This value alone.
    One(u64),
    /// From the first value up to, without, the second.
    Between(u64, u64),
    /// Everything that exists.
    All,
}

/// One entry a digit: `choice[tree][leaf]`.
pub type Choice = Vec<Vec<Allowed>>;

impl Space {
    /// Axes of one digit each.
    #[must_use]
    pub fn whole(radices: &[u64]) -> Self {
        Self { trees: radices.iter().map(|radix| Tree::whole(*radix)).collect() }
    }

    /// The radix and weight of a digit.
    #[must_use]
    pub fn leaf(&self, digit: Digit) -> Leaf {
        self.trees.get(digit.tree).map_or(Leaf { radix: 1, z: 1 }, |tree| tree.leaf(digit.leaf))
    }

    /// The number of records, at most `u64::MAX`.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.trees.iter().fold(1, |product, tree| product.saturating_mul(tree.radix()))
    }

    /// maxSize: the most records that share a setting of the digits that are not `inside`.
    pub fn max_size(&self, inside: impl Fn(Digit) -> bool) -> u64 {
        let trees = self.trees.iter().enumerate();
        trees.fold(1, |product, (tree, axis)| {
            let size = axis.max_size(&|leaf| inside(Digit { tree, leaf }));
            product.saturating_mul(size)
        })
    }

    /// Whether the order names every digit once, those of an axis from low to high.
    #[must_use]
    pub fn is_consistent(&self, order: &[Digit]) -> bool {
        let mut next = vec![0; self.trees.len()];
        for digit in order {
            match next.get_mut(digit.tree) {
                Some(leaf) if *leaf == digit.leaf => *leaf += 1,
                _ => return false,
            }
        }
        next.iter().zip(&self.trees).all(|(count, tree)| *count == tree.leaves().len())
    }

    /// Everything is allowed.
    #[must_use]
    pub fn everything(&self) -> Choice {
        self.trees.iter().map(|tree| vec![Allowed::All; tree.leaves().len()]).collect()
    }

    /// The address of a record given by its digits, `setting[tree][leaf]`, which must exist.
    ///
    /// Σ x_i · κ(…, x_{i+1}, 0), going down (Lemma 12).
    #[must_use]
    pub fn address(&self, order: &[Digit], setting: &[Vec<u64>]) -> u64 {
        let mut kappas: Vec<u64> = self.trees.iter().map(Tree::radix).collect();
        let mut address = 0;
        for digit in order.iter().rev() {
            let tree = &self.trees[digit.tree];
            let value = setting[digit.tree][digit.leaf];
            let others: u64 = product_without(&kappas, digit.tree);
            address += value * tree.kappa(digit.leaf, kappas[digit.tree], 0) * others;
            kappas[digit.tree] = tree.kappa(digit.leaf, kappas[digit.tree], value);
        }
        address
    }
}

/// The product of all but one.
pub(crate) fn product_without(factors: &[u64], without: usize) -> u64 {
    let others = factors.iter().enumerate().filter(|(index, _)| *index != without);
    others.map(|(_, factor)| factor).product()
}

/// The settings that exist of some digits, in ascending order (Algorithm 6).
///
/// The digits must be a component-wise prefix: with a digit, all higher ones of its axis. Digits
/// that a choice holds at [`Allowed::One`] value, which must exist, stay there. One step costs
/// what the carry touches, which is constant on average.
#[derive(Debug)]
pub struct Settings<'a> {
    space: &'a Space,
    /// From the highest.
    digits: Vec<Digit>,
    /// For each digit, the index of the next higher one of its axis.
    above: Vec<Option<usize>>,
    held: Vec<Option<u64>>,
    values: Vec<u64>,
    /// κ of the axis after each digit.
    after: Vec<u64>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Fresh,
    Running,
    Done,
}

impl<'a> Settings<'a> {
    /// Begins before the first setting. `digits` are from the lowest.
    #[must_use]
    pub fn new(space: &'a Space, digits: &[Digit], choice: &Choice) -> Self {
        let digits: Vec<Digit> = digits.iter().rev().copied().collect();
        let above = |index: usize| {
            let tree = digits[index].tree;
            (0..index).rev().find(|other| digits[*other].tree == tree)
        };
        let above = (0..digits.len()).map(above).collect();
        let held = |digit: &Digit| match choice[digit.tree][digit.leaf] {
            Allowed::One(value) => Some(value),
            Allowed::Between(..) | Allowed::All => None,
        };
        let held = digits.iter().map(held).collect();
        let count = digits.len();
        Self {
            space,
            digits,
            above,
            held,
            values: vec![0; count],
            after: vec![0; count],
            state: State::Fresh,
        }
    }

    /// Moves to the next setting; false when there is none.
    pub fn advance(&mut self) -> bool {
        match self.state {
            State::Done => return false,
            State::Fresh => {
                self.state = State::Running;
                self.reset_from(0);
                return true;
            }
            State::Running => {}
        }
        for index in (0..self.digits.len()).rev() {
            let Digit { tree, leaf } = self.digits[index];
            let before = self.before(index);
            let value = self.values[index] + 1;
            let axis = &self.space.trees[tree];
            if self.held[index].is_none() && value < axis.values(leaf, before) {
                self.values[index] = value;
                self.after[index] = axis.kappa(leaf, before, value);
                self.reset_from(index + 1);
                return true;
            }
        }
        self.state = State::Done;
        false
    }

    /// Writes the current setting into a choice.
    pub fn apply(&self, choice: &mut Choice) {
        for (digit, value) in self.digits.iter().zip(&self.values) {
            choice[digit.tree][digit.leaf] = Allowed::One(*value);
        }
    }

    fn before(&self, index: usize) -> u64 {
        let whole = || self.space.trees[self.digits[index].tree].radix();
        self.above[index].map_or_else(whole, |above| self.after[above])
    }

    fn reset_from(&mut self, first: usize) {
        for index in first..self.digits.len() {
            let Digit { tree, leaf } = self.digits[index];
            let value = self.held[index].unwrap_or(0);
            self.values[index] = value;
            self.after[index] = self.space.trees[tree].kappa(leaf, self.before(index), value);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Every record of a space as digits, in the order of the axes.
    pub(crate) fn all_settings(space: &Space) -> Vec<Vec<Vec<u64>>> {
        let mut all = vec![Vec::new()];
        for tree in &space.trees {
            let mut longer = Vec::new();
            for head in &all {
                for value in 0..tree.radix() {
                    let mut kappa = tree.radix();
                    let mut rest = value;
                    let mut digits = vec![0; tree.leaves().len()];
                    for leaf in (0..digits.len()).rev() {
                        digits[leaf] = rest / tree.leaf(leaf).z;
                        digits[leaf] = digits[leaf].min(tree.values(leaf, kappa) - 1);
                        rest -= digits[leaf] * tree.leaf(leaf).z;
                        kappa = tree.kappa(leaf, kappa, digits[leaf]);
                    }
                    let mut setting: Vec<Vec<u64>> = head.clone();
                    setting.push(digits);
                    longer.push(setting);
                }
            }
            all = longer;
        }
        all
    }

    /// Every consistent order of the digits.
    pub(crate) fn all_orders(space: &Space) -> Vec<Vec<Digit>> {
        fn extend(
            space: &Space,
            order: &mut Vec<Digit>,
            next: &mut [usize],
            all: &mut Vec<Vec<Digit>>,
        ) {
            let mut ended = true;
            for tree in 0..space.trees.len() {
                if next[tree] < space.trees[tree].leaves().len() {
                    ended = false;
                    order.push(Digit { tree, leaf: next[tree] });
                    next[tree] += 1;
                    extend(space, order, next, all);
                    next[tree] -= 1;
                    order.pop();
                }
            }
            if ended {
                all.push(order.clone());
            }
        }
        let mut all = Vec::new();
        extend(space, &mut Vec::new(), &mut vec![0; space.trees.len()], &mut all);
        all
    }

    /// Small spaces with short digits: (axis radix, cuts as (leaf, low)).
    pub(crate) fn small_spaces() -> Vec<Space> {
        let tree = |radix, cuts: &[(usize, u64)]| {
            let mut tree = Tree::whole(radix);
            for (leaf, low) in cuts {
                assert!(tree.cut(*leaf, *low));
            }
            tree
        };
        vec![
            Space::whole(&[3, 4, 2]),
            Space { trees: vec![tree(13, &[(0, 5), (0, 3)]), tree(5, &[(0, 2)])] },
            Space { trees: vec![tree(13, &[(0, 3), (1, 2)]), tree(7, &[(0, 4)])] },
            Space { trees: vec![tree(11, &[(0, 4), (0, 3)]), tree(3, &[(0, 2)]), tree(2, &[])] },
            Space { trees: vec![tree(8, &[(0, 4), (0, 2)]), tree(6, &[(0, 5)])] },
        ]
    }

    /// The records in the order of their addresses, by sorting.
    pub(crate) fn sorted(space: &Space, order: &[Digit]) -> Vec<Vec<Vec<u64>>> {
        let mut all = all_settings(space);
        all.sort_by_key(|setting| {
            let digits = order.iter().rev();
            digits.map(|digit| setting[digit.tree][digit.leaf]).collect::<Vec<_>>()
        });
        all
    }

    #[test]
    fn addresses_are_ranks() {
        for space in small_spaces() {
            for order in all_orders(&space) {
                assert!(space.is_consistent(&order));
                for (rank, setting) in (0..).zip(sorted(&space, &order)) {
                    assert_eq!(space.address(&order, &setting), rank, "{space:?} {order:?}");
                }
            }
        }
    }

    #[test]
    fn enumeration_visits_each_setting_that_exists_once_in_order() {
        for space in small_spaces() {
            for order in all_orders(&space) {
                for cut in 0..=order.len() {
                    let digits = &order[cut..];
                    let mut expected: Vec<Vec<u64>> = sorted(&space, &order)
                        .iter()
                        .map(|s| digits.iter().rev().map(|d| s[d.tree][d.leaf]).collect())
                        .collect();
                    expected.dedup();
                    let mut settings = Settings::new(&space, digits, &space.everything());
                    let mut found = Vec::new();
                    while settings.advance() {
                        found.push(settings.values.clone());
                    }
                    assert!(!settings.advance());
                    assert_eq!(found, expected);
                }
            }
        }
    }

    #[test]
    fn orders_that_do_not_fit_are_found() {
        let space = Space::whole(&[3, 4]);
        let digit = |tree, leaf| Digit { tree, leaf };
        assert!(space.is_consistent(&[digit(1, 0), digit(0, 0)]));
        assert!(!space.is_consistent(&[digit(1, 0)]));
        assert!(!space.is_consistent(&[digit(1, 0), digit(1, 0)]));
        assert!(!space.is_consistent(&[digit(1, 0), digit(0, 1)]));
        assert!(!space.is_consistent(&[digit(2, 0), digit(0, 0)]));
    }
}
