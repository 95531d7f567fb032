//! Plans of `esker-permute` in the setting of Thonangi's thesis (section 3.4).
//!
//! Nothing is read or written: these are counts of blocks and passes, the same on every machine.

use esker_permute::coalesce::coalesce;
use esker_permute::plan::cut::Task;
use esker_permute::plan::price::{Mode, Terms};
use esker_permute::space::{Digit, Space};

/// Bytes of a record.
pub(super) const RECORD: u64 = 8;
/// Bytes of a block.
pub(super) const BLOCK: u64 = 4096;
/// The cost of a block read, where one written costs 1.
pub(super) const ALPHA: f64 = 1.0 / 16.0;

/// The data set that is derived from TPC-H: weeks of orders, keys of parts, states of suppliers,
/// states of customers, priorities of orders, the last one the fastest.
pub(super) const fn tpch(parts: u64) -> [u64; 5] {
    [574, parts, 50, 50, 2]
}

/// An array of these sizes whose dimensions, the slowest first, are brought into an order, and
/// the input of its planner where `memory` bytes are there.
pub(super) fn task(sizes: &[u64], order: &[usize], memory: u64) -> (Task, Terms) {
    let digit = |tree| Digit { tree, leaf: 0 };
    let task = Task {
        space: Space::whole(sizes),
        input: (0..sizes.len()).rev().map(digit).collect(),
        output: order.iter().rev().map(|tree| digit(*tree)).collect(),
        flips: vec![false; sizes.len()],
    };
    let (task, record) = coalesce(&task, RECORD);
    let terms = Terms {
        block: BLOCK / record,
        memory: memory / record,
        record,
        request: memory,
        filtered: memory / 2,
        is_aligned: true,
        mode: Mode::Blocks { alpha: ALPHA },
    };
    (task, terms)
}
