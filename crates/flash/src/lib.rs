//! The versioned page store: every reader a snapshot, every page written once, no journal.
//!
//! A device that writes out of place has the old version of a page still. MV-FTL (D. Lee, M. Shin,
//! W. Choi, H. Roh, S. Park, IEEE TKDE) keeps those versions on purpose; this is the same over a
//! file. `docs/algorithms/mvftl.md` explains it with pictures.
//!
//! Reading order: [`options`] and [`error`](mod@error); [`store`] (the handle), [`store_file`] (at
//! a path, locked), [`snapshot`] (reading a version), [`writer`] (a transaction in the making),
//! `spill` (its pages that do not fit in memory), `commit`; `map` (where the pages of a version
//! are), `versions` (which versions are kept, and what is freed when one is let go), `space` (what
//! of the file is in use), `delta` (pages that changed little); `record`, `log`, `node`,
//! `superblock` (the bytes); `checkpoint`, `beside` (one that commits hardly notice), `recovery`,
//! `thread` (what is done beside commits); `engine` (what all of them share); [`stats`] and
//! [`check`]; [`planted`] (bugs that the tests must find).
//!
//! One file, one process at a time. The allocation is by single slots, for devices with a
//! translation layer of their own; raw flash would want whole blocks, which is not here.

mod beside;
pub mod check;
mod checkpoint;
mod commit;
mod delta;
mod engine;
pub mod error;
mod log;
mod map;
mod node;
pub mod options;
pub mod planted;
mod record;
mod recovery;
pub mod snapshot;
mod space;
mod spill;
pub mod stats;
pub mod store;
pub mod store_file;
mod superblock;
mod thread;
mod versions;
pub mod writer;

#[cfg(feature = "planted")]
pub use beside::Unfinished;
pub use check::Report;
pub use error::{Error, Result};
pub use options::{Durability, Options};
pub use snapshot::Snapshot;
pub use stats::{Stats, Version, Written};
pub use store::PageStore;
pub use store_file::{Missing, StoreFile};
pub use writer::Writer;
