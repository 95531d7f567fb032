//! The versioned page store: every reader a snapshot, every page written once, no journal.
//!
//! A device that writes out of place has the old version of a page still. MV-FTL (D. Lee, M. Shin,
//! W. Choi, H. Roh, S. Park, IEEE TKDE) keeps those versions on purpose; this is the same over a
//! file. `docs/design/pages.md` explains it with pictures.
//!
//! Reading order: [`options`] and [`error`](mod@error); [`store`] (the handle), [`store_file`] (at
//! a path, locked), [`snapshot`] (reading a version), [`writer`] (a transaction in the making),
//! `spill` (its pages that do not fit in memory), `commit`; `map` (where the pages of a version
//! are), `view` (how a reader gets there), `versions` (which versions are kept, and what is freed
//! when one is let go), `space` (what of the file is in use), `delta` (pages that changed little);
//! `record`, `log`, `node`, `superblock` (the bytes); `checkpoint`, `beside` (one that commits
//! hardly notice), `recovery`, `reading` (opened to be read, and written later), `thread` (what is
//! done beside commits); [`media`], `row`, `append`, `together`, `relocate`, `collect` (allocation
//! by segments, and its garbage collection); [`compact`] (a file that becomes shorter); `engine`
//! (what all of them share); [`versioned`] (the store as a trait); [`stats`] and [`check`];
//! [`planted`] (bugs that the tests must find).
//!
//! One file; one process at a time to write it, or several to read it. The allocation is by single
//! slots, for devices with a translation layer of their own, or by segments that are filled in
//! order.

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
