//! Where the records of one file are in the other, in the order of the first.

use crate::error::{Error, Result};
use crate::plan::cut::Task;
use crate::space::{Allowed, Digit, Settings};
use crate::tree::Tree;

/// Consecutive records of the one file, evenly apart in the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    /// The address of the first.
    pub(super) address: u64,
    /// From one to the next.
    pub(super) step: i64,
    /// How many; at least one.
    pub(super) records: u64,
}

/// The stretches of a file.
pub(super) type Stretches<'a> = Box<dyn Iterator<Item = Stretch> + Send + 'a>;

/// The addresses that the records of the input go to, in the order of the input.
pub(super) fn of_output(task: &Task) -> Result<Stretches<'_>> {
    if is_exact(task) {
        return Ok(Box::new(Even::new(task, &task.input, &task.output)));
    }
    Ok(Box::new(Counted::new(task)?))
}

/// The addresses that the records of the output come from, in the order of the output.
pub(super) fn of_input(task: &Task) -> Result<Stretches<'_>> {
    if is_exact(task) {
        return Ok(Box::new(Even::new(task, &task.output, &task.input)));
    }
    let axes = axes_of(task)?;
    let mut choice = task.space.everything();
    let mut settings = Settings::new(&task.space, &task.output, &choice);
    Ok(Box::new(std::iter::from_fn(move || {
        settings.advance().then(|| {
            settings.apply(&mut choice);
            let value = |tree: usize| -> u64 {
                let leaves = choice[tree].iter().zip(task.space.trees[tree].leaves());
                let sum = leaves.map(|(allowed, leaf)| match allowed {
                    Allowed::One(digit) => digit * leaf.z,
                    Allowed::Between(..) | Allowed::All => 0,
                });
                sum.sum()
            };
            let address = axes.iter().rev().fold(0, |address, tree| {
                let radix = task.space.trees[*tree].radix();
                let value = value(*tree);
                address * radix + if task.flips[*tree] { radix - 1 - value } else { value }
            });
            Stretch { address, step: 0, records: 1 }
        })
    })))
}

fn is_exact(task: &Task) -> bool {
    task.space.trees.iter().all(Tree::is_exact)
}

/// The axes in the order of the input, from the lowest; none may be parted there.
fn axes_of(task: &Task) -> Result<Vec<usize>> {
    let mut axes: Vec<usize> = task.input.iter().map(|digit| digit.tree).collect();
    axes.dedup();
    if axes.len() == task.space.trees.len() {
        Ok(axes)
    } else {
        Err(Error::Internal("a flat file has its axes one after the other"))
    }
}

/// Where every setting of the digits exists: each digit has a step of its own.
struct Even {
    /// From the lowest: radix, value, step.
    digits: Vec<(u64, u64, i64)>,
    address: i64,
    is_done: bool,
}

impl Even {
    fn new(task: &Task, from: &[Digit], to: &[Digit]) -> Self {
        let radix = |digit: &Digit| task.space.leaf(*digit).radix;
        let mut address = 0;
        let digit = |digit: &Digit| {
            let below = to.iter().take_while(|other| *other != digit);
            let step = below.map(radix).product::<u64>().cast_signed();
            if task.flips[digit.tree] {
                address += step * (radix(digit) - 1).cast_signed();
                (radix(digit), 0, -step)
            } else {
                (radix(digit), 0, step)
            }
        };
        let digits: Vec<(u64, u64, i64)> = from.iter().map(digit).collect();
        Self { digits, address, is_done: false }
    }
}

impl Iterator for Even {
    type Item = Stretch;

    fn next(&mut self) -> Option<Stretch> {
        if self.is_done {
            return None;
        }
        let (records, _, step) = self.digits.first().copied().unwrap_or((1, 0, 0));
        let stretch = Stretch { address: self.address.cast_unsigned(), step, records };
        for (radix, value, step) in self.digits.iter_mut().skip(1) {
            *value += 1;
            self.address += *step;
            if value < radix {
                return Some(stretch);
            }
            self.address -= *step * radix.cast_signed();
            *value = 0;
        }
        self.is_done = true;
        Some(stretch)
    }
}

/// Where tiles are short: axis by axis in the order of the input, each value taken apart.
struct Counted<'a> {
    task: &'a Task,
    axes: Vec<usize>,
    /// Where each of the axes stands in the file.
    places: Vec<u64>,
    /// The digits of each axis.
    setting: Vec<Vec<u64>>,
    is_done: bool,
}

impl<'a> Counted<'a> {
    fn new(task: &'a Task) -> Result<Self> {
        let axes = axes_of(task)?;
        let places = vec![0; axes.len()];
        let setting = task.space.trees.iter().map(|tree| vec![0; tree.leaves().len()]).collect();
        let mut counted = Self { task, axes, places, setting, is_done: false };
        (0..counted.axes.len()).for_each(|index| counted.settle(index));
        Ok(counted)
    }

    /// Takes the value of an axis apart.
    fn settle(&mut self, index: usize) {
        let number = self.axes[index];
        let tree = &self.task.space.trees[number];
        let place = self.places[index];
        let mut rest = if self.task.flips[number] { tree.radix() - 1 - place } else { place };
        let mut kappa = tree.radix();
        for (leaf, digit) in self.setting[number].iter_mut().enumerate().rev() {
            let z = tree.leaf(leaf).z;
            *digit = (rest / z).min(tree.values(leaf, kappa) - 1);
            rest -= *digit * z;
            kappa = tree.kappa(leaf, kappa, *digit);
        }
    }

    fn address(&self) -> u64 {
        self.task.space.address(&self.task.output, &self.setting)
    }
}

impl Iterator for Counted<'_> {
    type Item = Stretch;

    fn next(&mut self) -> Option<Stretch> {
        if self.is_done {
            return None;
        }
        let lowest = self.axes[0];
        let tree = &self.task.space.trees[lowest];
        let digits = &self.setting[lowest];
        let kappa = (1..digits.len())
            .rev()
            .fold(tree.radix(), |kappa, leaf| tree.kappa(leaf, kappa, digits[leaf]));
        // The values that share all but the lowest digit, which begins at one end of them.
        let records = if self.task.flips[lowest] { digits[0] + 1 } else { kappa - digits[0] };
        let address = self.address();
        let mut stretch = Stretch { address, step: 0, records };
        if records > 1 {
            let next = if self.task.flips[lowest] { digits[0] - 1 } else { digits[0] + 1 };
            self.setting[lowest][0] = next;
            stretch.step = self.address().wrapping_sub(address).cast_signed();
        }
        self.places[0] += records;
        for index in 0..self.axes.len() {
            if self.places[index] < self.task.space.trees[self.axes[index]].radix() {
                self.settle(index);
                return Some(stretch);
            }
            self.places[index] = 0;
            self.settle(index);
            match self.places.get_mut(index + 1) {
                Some(place) => *place += 1,
                None => self.is_done = true,
            }
        }
        Some(stretch)
    }
}
