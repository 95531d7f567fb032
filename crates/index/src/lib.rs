//! Esker's index kinds, and the modules that they share.
//!
//! An [`Index`] is one keyspace's index. It has a kind: [`fdtree`], the FD+tree (Thonangi, Babu and
//! Yang, CIKM 2012), or [`lsm`], the log-structured merge tree with selective compaction
//! (Thonangi's thesis, chapter 5). `kind` is the interface of a kind, and `kinds` constructs them:
//! no kind names another, and no module except `kinds` names one. All other modules are shared by
//! both.
//!
//! Reading order: [`fence_index`] and [`tree`] (what is on the device and how it is entered),
//! [`lookup`], [`cursor`], [`data_cursor`] and [`scan`] (reading one tree), [`gone`] (key ranges
//! that merges have consumed), [`view`] (what readers see while merges run) and `read` (the read
//! operations); then how a memtable is written out: `freeze`, `flush`, [`scheme`], [`stage`] (with
//! [`window`] and [`preserve`]), [`insert`] (with [`level_writer`], [`top_writer`] and [`writer`]
//! below it), [`merge`] (the loop, publish points, the record), [`delete`]; [`compression`]
//! (codecs, and the space that merges need for them), [`versions`] (which versions a merge keeps),
//! [`removed`] (range tombstones), [`operands`] (merge operands), [`values`] (the ownership of
//! blobs), and [`invariants`] (the checker of what is on the device). `index` combines them; `due`
//! decides what should begin, `balance` when there are too many tombstones, `forecast` what will
//! begin, `paused` pauses all work, [`walk`] visits everything that a durable state refers to. Then
//! `kind`, [`fdtree`] and [`lsm`].
//!
//! New entries collect in the memtable; when it is full it is flushed to a sorted run: immutable
//! blocks in key order, with levels of fences that lead to them. The kind decides when and how runs
//! are merged. While a flush or a merge writes, keys at or before its wavefront are found on the
//! new side and all others on the old one.
//!
//! The papers' terms in this crate: a *fence* is an index entry (a key and the address of a block
//! of the next level); a *level* is one sorted run of the tree; the *wavefront* is the last key
//! that a merge has published; a *head* is the current entry of a merge's source; κ0 is the payload
//! of a full memtable. The schemes FD+FC, FD+DS and FD+XM are in [`scheme`].

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
pub mod reserve;
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
