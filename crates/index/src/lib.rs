//! Esker's index kinds, and the modules that they share.
//!
//! An [`Index`] is one keyspace's index. It has a kind: [`fdtree`], the FD+tree (Thonangi, Babu and
//! Yang, CIKM 2012), or [`lsm`], the log-structured merge tree with selective compaction
//! (Thonangi's thesis, chapter 5). No kind names another, and no module except the registry in
//! `kind` names one. All other modules are shared by both.
//!
//! Rooms, in reading order:
//!
//! | room | content |
//! |---|---|
//! | [`run`] | what is on the device: one tree of blocks and fences, and how it is read |
//! | [`read`] | what readers see: views, reads, versions, range tombstones, merge operands |
//! | [`build`] | new blocks, and blocks that stay |
//! | [`merge`] | the loop of flushes and merges, its sources, publish points |
//! | [`upkeep`] | what should begin, memory, space, blobs, statistics, pauses |
//! | [`check`] | the checker of what is on the device |
//! | `kind` | the interface of a kind, and the registry that constructs them |
//! | [`fdtree`], [`lsm`] | the kinds |
//!
//! [`index`] combines them; `record` makes their state durable.
//!
//! New entries collect in the memtable; when it is full it is flushed to a sorted run: immutable
//! blocks in key order, with levels of fences that lead to them. The kind decides when and how runs
//! are merged. While a flush or a merge writes, keys at or before its wavefront are found on the
//! new side and all others on the old one.
//!
//! The papers' terms in this crate: a *fence* is an index entry (a key and the address of a block
//! of the next level); a *level* is one sorted run of the tree; the *wavefront* is the last key
//! that a merge has published; a *head* is the current entry of a merge's source; κ0 is the payload
//! of a full memtable. The schemes FD+FC, FD+DS and FD+XM are in [`merge::scheme`].

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod build;
pub mod check;
pub mod fault;
pub mod fdtree;
pub mod history;
pub mod index;
mod job;
pub(crate) mod kind;
pub mod lsm;
pub mod merge;
pub mod read;
mod record;
pub mod run;
pub mod upkeep;

#[cfg(test)]
mod tests;

pub use check::{CheckSink, Problem};
pub use history::History;
pub use index::{Commit, Env, Gate, Index, Work};
pub use job::BackgroundJob;
pub use kind::registry::{IndexKind, Options, UnknownIndexKind, empty, kind_in};
pub use merge::Step;
pub use merge::erase::Keys as ErasedKeys;
pub use merge::scheme::Scheme;
pub use read::Version;
pub use read::scan::{DamagedRange, EntriesIter, ScanBatch, ScanRequest};
pub use record::RecordEdits;
pub use run::held_blocks::HeldBlocks;
pub use upkeep::forecast::{Forecast, ForecastMerge, Retained};
pub use upkeep::pause::Paused;
pub use upkeep::stats::{CompactionStats, LevelStats, TreeStats};
pub use upkeep::values::ValuesEdit;
