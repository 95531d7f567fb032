//! Common alternatives, to compare with: a sort, a cache of blocks, a loop over tiles.
//!
//! Each takes an array with its axes in one order to a file with the axes in another. Each is a
//! good implementation of its method; memory that it uses beyond its limit is documented.

pub mod cached;
pub mod sorted;
pub mod tiled;

use std::path::PathBuf;

use crate::error::{Result, input};

/// An array whose axes are put in another order.
#[derive(Clone, Debug)]
pub struct Turn {
    /// The file that holds the array, the last axis the fastest.
    pub source: PathBuf,
    /// The offset of the first record, in bytes.
    pub start: u64,
    /// Sizes of the axes, the slowest first.
    pub sizes: Vec<u64>,
    /// The axes in their order in the result, the slowest first.
    pub order: Vec<usize>,
    /// Bytes of a record.
    pub record: usize,
    /// The file that is made; it holds the records alone.
    pub target: PathBuf,
    /// Bytes of memory.
    pub memory: u64,
}

impl Turn {
    /// The number of records, where the order is one of the axes and nothing overflows.
    pub fn records(&self) -> Result<u64> {
        let mut axes = self.order.clone();
        axes.sort_unstable();
        let is_order = axes.iter().copied().eq(0..self.sizes.len());
        let product = |all: u64, size: &u64| all.checked_mul(*size);
        let records = self.sizes.iter().try_fold(1, product);
        match records.filter(|all| all.checked_mul(self.record as u64).is_some()) {
            Some(records) if is_order && self.record > 0 => Ok(records),
            _ => input("these axes are in no order, or the array is too large"),
        }
    }

    /// For each axis, how many records of the source one step along it skips.
    fn source_steps(&self) -> Vec<u64> {
        let axes: Vec<usize> = (0..self.sizes.len()).collect();
        self.steps(&axes)
    }

    /// The same in the result.
    fn target_steps(&self) -> Vec<u64> {
        self.steps(&self.order)
    }

    fn steps(&self, order: &[usize]) -> Vec<u64> {
        let mut steps = vec![0; self.sizes.len()];
        let mut below = 1;
        for axis in order.iter().rev() {
            steps[*axis] = below;
            below *= self.sizes[*axis];
        }
        steps
    }
}

/// Addresses of records, one after the other in some order of the axes. Each takes O(1), amortised.
#[derive(Clone, Debug)]
struct Walk {
    /// The fastest axis first: its size, the stride of a step along it, the current position.
    axes: Vec<(u64, u64, u64)>,
    address: u64,
}

impl Walk {
    /// Axes as size and step, the slowest first; begins with record `first` of the order.
    fn new(axes: impl DoubleEndedIterator<Item = (u64, u64)>, mut first: u64) -> Self {
        let mut address = 0;
        let begun = |(size, step): (u64, u64)| {
            let at = first % size.max(1);
            first /= size.max(1);
            address += at * step;
            (size, step, at)
        };
        let axes = axes.rev().map(begun).collect();
        Self { axes, address }
    }
}

impl Iterator for Walk {
    type Item = u64;

    /// Continues without end: the caller counts.
    fn next(&mut self) -> Option<u64> {
        let address = self.address;
        for (size, step, at) in &mut self.axes {
            *at += 1;
            self.address += *step;
            if *at < *size {
                break;
            }
            self.address -= *step * *size;
            *at = 0;
        }
        Some(address)
    }
}
