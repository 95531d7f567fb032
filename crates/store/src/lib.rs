//! An embedded, ordered key-value store for devices with cheap random reads and expensive writes:
//! an FD+tree, or a log-structured merge tree, behind a write-ahead log.
//!
//! ```
//! # fn main() -> esker::Result<()> {
//! # let folder = std::env::temp_dir().join(format!("esker-doc-{}", std::process::id()));
//! let db = esker::Db::open(&folder)?;
//! let users = db.keyspace("users", Default::default())?;
//! users.insert("ada", "1815")?;
//! users.insert("alan", "1912")?;
//! assert_eq!(users.get("ada")?.as_deref(), Some(b"1815".as_slice()));
//! for entry in users.prefix("a")? {
//!     let (key, value) = entry?;
//!     println!("{} {}", String::from_utf8_lossy(&key), String::from_utf8_lossy(&value));
//! }
//! db.close()?;
//! # let _ = std::fs::remove_dir_all(&folder);
//! # Ok(())
//! # }
//! ```
//!
//! # Where to begin
//!
//! | to | see |
//! |---|---|
//! | open a store, or make one | [`Db::open`], [`Db::builder`] and [`DbBuilder`] |
//! | read and write entries | [`Keyspace`], [`Range`], [`Entry`] |
//! | set options of a keyspace | [`KeyspaceOptions`]: [`IndexKind`], [`Compression`], [`Merge`] |
//! | write several entries at once, all or none | [`Batch`] |
//! | read everything as of one moment | [`Snapshot`] |
//! | run a transaction | [`Transaction`]: [`Db::transaction`], [`Db::transact`] |
//! | choose the durability of a write | [`Durability`], [`Db::persist`] |
//! | change values without reading them | [`Keyspace::merge`], [`MergeOperator`] |
//! | store values that are too long for memory | [`ValueWriter`], [`ValueReader`] |
//! | read a store that another process writes | [`DbBuilder::follow`], [`Db::refresh`], [`Lag`] |
//! | copy a store while it is used | [`Db::backup`], [`Backup`] |
//! | monitor and maintain a store | [`Db::stats`] and [`Stats`], [`Db::check`], [`Db::compact`] |
//! | handle errors | [`Error`] |
//! | test with another device, clock or seed | [`Device`], [`Runtime`] |
//!
//! # Features
//!
//! | feature | default | what it adds | what it costs |
//! |---|---|---|---|
//! | `lz4` | yes | [`Compression::Lz4`] | one crate, in Rust |
//! | `zstd` | yes | [`Compression::Zstd`] | the C library Zstandard, and so a C compiler |
//!
//! Without `zstd` no C compiler is needed, only a linker. Opening a store fails if one of its
//! keyspaces uses a codec that the build does not have. Features that begin with an underscore are
//! for this project's own tests.
//!
//! # What versions promise
//!
//! Every release opens what earlier ones have written. [`Device`], [`DeviceError`] and [`Process`]
//! are covered by semver as the rest is, except that their traits may get methods with a body, and
//! `Purpose` and `Operation` new values. [`Compaction`], [`CompactionPolicy`] and
//! [`CompactionParams`] are settings of an algorithm and are not covered. VERSIONING.md in the
//! repository contains all of it.

// A map of this crate for readers of its sources, in reading order:
//
// | module | one idea |
// |---|---|
// | `db`, `builder`, `options` | the handle, its builder, the options |
// | `keyspace`, `batch`, `snapshot`, `transaction` | the handles made from it |
// | `shared` | the state shared by all handles, the order of locks, closing |
// | `open` | creation, recovery |
// | `write`, `removal` | the write path; range tombstones |
// | `read`, `range` | the read paths |
// | `large` | blobs, and streams of values |
// | `operands`, `operators` | merge operands; the built-in merge operators |
// | `conflict_window`, `writer_lock` | recent writes, for conflict checks; the writer lock |
// | `maintenance` | the start of flushes and merges, and the handling of their failures |
// | `memory_pressure` | the choice of the keyspaces that are flushed to free memory and log |
// | `background` | the threads that run them |
// | `follow` | reading behind a writer in another process |
// | `dropping` | dropping a keyspace |
// | `backup` | backups of the whole store, and restoring them |
// | `stall_stats` | statistics of write stalls |
// | `check`, `stats`, `error` | checks, statistics and errors for the user |
//
// What is not here: a second process that writes a store at the same time, and bytes on the device,
// which are the concern of the crates below.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod background;
mod backup;
mod batch;
mod builder;
mod changes;
mod check;
mod compaction;
mod conflict_window;
mod db;
mod diff;
mod dropping;
mod erase;
mod error;
mod follow;
mod follower;
mod history;
mod index_commit;
mod keyspace;
mod large;
mod limits;
mod looked;
mod maintenance;
mod memory_pressure;
mod named;
mod new_keyspace;
mod open;
mod operands;
mod operators;
mod options;
mod past;
mod pins;
mod range;
mod read;
mod read_point;
mod reclaim;
mod record_history;
mod refreshing;
mod removal;
mod replay;
mod retention;
mod room;
mod set_history;
mod shared;
mod slot;
mod snapshot;
mod stall_stats;
mod stats;
mod times;
mod transaction;
mod trees;
mod work_queue;
mod write;
mod write_request;
mod writer_lock;

pub use backup::{Backup, BackupProgress, BackupReport};
pub use batch::Batch;
pub use builder::DbBuilder;
pub use changes::{Change, Changes};
pub use check::{CheckReport, Problem};
pub use compaction::{Compaction, CompactionParams, CompactionPolicy};
pub use db::Db;
pub use diff::{Diff, Difference, KeyChange, KeyChanges};
pub use error::{Error, Result};
pub use esker_device::process::Process;
pub use esker_device::{Device, DeviceError};
pub use esker_format::{KEY_BYTES_MAX, VALUE_BYTES_MAX as INLINE_BYTES_MAX};
#[cfg(feature = "_baselines")]
#[doc(hidden)]
pub use esker_index::Scheme;
pub use esker_index::read::operands::{BoxError, MergeOperator};
pub use esker_index::{IndexKind, UnknownIndexKind};
pub use esker_substrate::runtime::{Runtime, SimRuntime, SystemRuntime};
pub use follower::Lag;
pub use history::History;
pub use keyspace::Keyspace;
pub use large::{ValueReader, ValueWriter};
pub use named::NamedVersion;
pub use operators::Merge;
pub use options::{
    Compression, Durability, KeyspaceOptions, LOG_SEGMENT_BYTES_DEFAULT, MEMORY_BUDGET_DEFAULT,
};
pub use past::Past;
pub use range::{DamagedRange, Range};
pub use read::Entry;
pub use snapshot::Snapshot;
pub use stats::{
    CompactionStats, IoStats, KeyspaceStats, LevelStats, LsmLearnt, LsmLevelStats, LsmRunStats,
    LsmStats, LsmWrites, MemoryStats, NextStats, PastIndexStats, PinStats, ShapeStats, SpaceStats,
    Stats, TransactionStats, WaitStats,
};
pub use transaction::{Transaction, TransactionRange};

/// The longest value, in bytes: 1 GiB.
pub const VALUE_BYTES_MAX: usize = esker_format::value_ref::LARGE_VALUE_BYTES_MAX as usize;
