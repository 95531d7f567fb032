//! A versioned page store: every reader has a snapshot, every page is written once, and there is no
//! journal.
//!
//! A device that writes out of place still has the old version of a page. MV-FTL (D. Lee, M. Shin,
//! W. Choi, H. Roh, S. Park, IEEE TKDE) keeps those versions on purpose; this crate does the same
//! over a file. `docs/design/pages.md` explains it with pictures.
//!
//! Reading order: [`options`] and [`error`](mod@error); [`store`] (the handle), [`store_file`] (a
//! store at a path, locked), [`snapshot`] (reading a version), [`writer`] (an open transaction),
//! `spill` (its pages that do not fit in memory), `commit`; `map` (where the pages of a version
//! are), `view` (how a reader finds them), `versions` (which versions are kept, and what is freed
//! when one is released), `space` (which parts of the file are in use), `delta` (pages with few
//! changed bytes); `record`, `log`, `node`, `superblock` (the bytes); `checkpoint`,
//! `concurrent_checkpoint` (one that hardly delays commits), `recovery`, `read_only` (a store
//! opened for reading, and written later), `thread` (background work while commits continue);
//! [`media`], `open_segment`, `append`, `segment_commit`, `relocate`, `collect` (allocation by
//! segments, and its garbage collection); [`compact`] (making the file shorter); `engine` (what all
//! of them share); [`versioned`] (the store as a trait); [`stats`] and [`check`]; [`planted`] (bugs
//! that the tests must find).
//!
//! A store is one file; one process at a time may open it for writing, or several for reading.
//! Allocation is by single slots, for devices with a translation layer of their own, or by segments
//! that are filled in order.

mod append;
pub mod check;
mod checkpoint;
mod collect;
mod commit;
pub mod compact;
mod concurrent_checkpoint;
mod delta;
mod engine;
pub mod error;
mod log;
mod map;
pub mod media;
mod node;
mod open_segment;
pub mod options;
pub mod planted;
mod read_only;
mod record;
mod recovery;
mod relocate;
mod segment_commit;
pub mod snapshot;
mod space;
mod spill;
pub mod stats;
pub mod store;
pub mod store_file;
mod superblock;
mod thread;
pub mod versioned;
mod versions;
mod view;
pub mod writer;

pub use check::Report;
pub use compact::Compacted;
#[cfg(feature = "_planted")]
pub use compact::Squeeze;
#[cfg(feature = "_planted")]
pub use concurrent_checkpoint::Unfinished;
pub use error::{Error, Result};
pub use esker_device::DeviceFile;
#[doc(hidden)]
pub use esker_device::planting;
pub use esker_device::process::{PerProcess, Process};
pub use media::{FileMedia, Geometry, Media};
pub use options::{Allocation, Durability, Options};
pub use snapshot::Snapshot;
pub use stats::{Stats, Version, Written};
pub use store::PageStore;
pub use store_file::{FileId, LockedFile, Missing, StoreFile, decide_by_file, make_missing};
pub use versioned::Versioned;
pub use writer::Writer;
