//! Esker's index kinds, and what they stand on.
//!
//! An [`Index`] is one keyspace's index. It has a kind: [`fdtree`], the FD+tree (Thonangi, Babu and
//! Yang, CIKM 2012), or [`lsm`], the log-structured merge tree that chooses what it merges
//! (Thonangi's thesis, chapter 5). `kind` is what a kind has to say, and `kinds` makes them: no
//! kind names another, and nothing beside `kinds` names one. All other modules are what both stand
//! on.
//!
//! Reading order: [`fence_index`] and [`tree`] (what is on the device and how it is entered),
//! [`lookup`], [`cursor`], [`data_cursor`] and [`scan`] (reading one tree), [`gone`] (keys that it
//! has lost), [`view`] (what readers see while merges run) and `read` (what they call); then how a
//! memtable is written out: `freeze`, `flush`, [`scheme`], [`stage`] (with [`window`] and
//! [`preserve`]), [`insert`] (with [`level_writer`], [`top_writer`] and [`writer`] below it),
//! [`merge`] (the loop, publish points, the record), [`delete`]; [`compression`] (codecs, and the
//! room that merges need for them), [`versions`] (what a merge keeps), [`removed`] (ranges of
//! keys), [`operands`] (what changes values), [`values`] (whose the values outside blocks are), and
//! [`invariants`] (the walker that checks what is on the device). `index` holds it together; `due`
//! says what should begin, `balance` when tombstones are too many, `forecast` what will begin,
//! `paused` makes everything stand still, [`walk`] goes through all that a durable state leads to.
//! Then `kind`, [`fdtree`] and [`lsm`].
//!
//! New entries collect in the memtable; when it is full it becomes a sorted run: a sorted run of
//! immutable blocks, with levels of fences that lead to them. What becomes of runs is the kind's to
//! say. While a flush or a merge writes, keys at or before its wavefront are found on the new side
//! and all others on the old one.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod balance;
mod buffer;
pub mod compression;
pub mod cursor;
pub mod data_cursor;
pub mod delete;
mod due;
pub mod fault;
pub mod fdtree;
pub mod fence_index;
mod flush;
mod forecast;
mod freeze;
pub mod gone;
mod head;
mod index;
pub mod insert;
pub mod invariants;
mod kind;
mod kinds;
pub mod level_writer;
pub mod lookup;
pub mod lsm;
mod memory;
pub mod merge;
pub mod operands;
pub mod owed;
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
pub mod window;
pub mod writer;

#[cfg(test)]
mod tests;

pub use forecast::{Forecast, ForecastMerge, Retained};
pub use index::{Commit, Env, Gate, Index, Work};
pub use invariants::{CheckSink, Problem};
pub use kinds::Options;
pub use merge::Step;
pub use paused::Paused;
pub use scan::{DamagedRange, ScanBatch, ScanRequest};
pub use scheme::Scheme;
pub use stats::{CompactionStats, LevelStats, TreeStats};
pub use values::ValuesEdit;
pub use view::BackgroundJob;
