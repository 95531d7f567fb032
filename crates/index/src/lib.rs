//! Esker's index kinds.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod buffer;
pub mod compression;
pub mod cursor;
pub mod data_cursor;
pub mod delete;
mod due;
pub mod fault;
pub mod fdtree;
pub mod fence_index;
mod forecast;
pub mod gone;
mod head;
mod index;
pub mod insert;
pub mod invariants;
pub mod level_writer;
pub mod lookup;
pub mod lsm;
mod memory;
pub mod merge;
pub mod operands;
mod paused;
pub mod preserve;
mod read;
pub mod removed;
pub mod scan;
pub mod scheme;
pub mod stage;
pub mod stats;
pub mod top_writer;
pub mod tree;
pub mod values;
pub mod versions;
pub mod view;
pub mod walk;
mod window;
pub mod writer;

#[cfg(test)]
mod tests;

pub use fdtree::Sizes;
pub use forecast::{Forecast, ForecastMerge, Retained};
pub use index::{Commit, Env, Gate, Index, Options, Work};
pub use invariants::{CheckSink, Problem};
pub use merge::Step;
pub use paused::Paused;
pub use scan::{DamagedRange, ScanBatch, ScanRequest};
pub use scheme::Scheme;
pub use stats::{LevelStats, MergeStats, TreeStats};
pub use values::ValuesEdit;
pub use view::Which;

use index::{KeptTombstones, flushed_balance};
