//! A versioned page store: every reader has a snapshot, every page is written once, and there is no
//! journal.
//!
//! A device that writes out of place still has the old version of a page. MV-FTL (D. Lee, M. Shin,
//! W. Choi, H. Roh, S. Park, IEEE TKDE) keeps those versions on purpose; this crate does the same
//! over a file. `docs/design/pages.md` explains it with pictures.
//!
//! Reading order: [`options`] and [`error`](mod@error); [`store`] (the handle), [`store_file`] (a
//! store at a path, locked), `shared_store` (one that several processes have open), [`snapshot`]
//! (reading a version), [`writer`] (an open transaction); `commit` (its pages and its record);
//! `version` (which page is where in each version, and what is freed when one is released); `alloc`
//! (the use of space, in slots or in segments, and a shorter file); `meeting` (what processes that
//! share a store tell each other); `log` (records, checkpoints, recovery); [`media`] (the device
//! below all of them); `engine` (what they share), `place` (sectors and sizes), `thread` (work
//! while commits continue); `versioned` (the store as a [`Versioned`] device); [`stats`] with
//! `counters`, and [`check`]; [`planted`] (bugs that the tests must find).
//!
//! A store is one file; one process at a time may open it for writing, or several for reading.
//! Allocation is by single slots, for devices with a translation layer of their own, or by segments
//! that are filled in order.

mod alloc;
pub mod check;
mod commit;
mod counters;
mod engine;
pub mod error;
mod log;
pub mod media;
mod meeting;
pub mod options;
mod place;
pub mod planted;
mod shared_store;
pub mod snapshot;
pub mod stats;
pub mod store;
pub mod store_file;
mod thread;
mod version;
mod versioned;
pub mod writer;

pub use alloc::compact::Compacted;
#[cfg(feature = "_planted")]
pub use alloc::compact::Squeeze;
pub use check::Report;
pub use error::{Error, Result};
pub use esker_device::DeviceFile;
#[doc(hidden)]
pub use esker_device::file::Access as FileAccess;
#[doc(hidden)]
pub use esker_device::planting;
pub use esker_device::process::{PerProcess, Process};
pub use esker_device::versioned::Versioned;
#[cfg(feature = "_planted")]
pub use log::concurrent_checkpoint::Unfinished;
pub use media::{FileMedia, Geometry, Media};
#[doc(hidden)]
pub use meeting::layout::MEETING_BYTES;
#[doc(hidden)]
pub use options::Processes;
pub use options::{Allocation, Durability, Options};
pub use snapshot::Snapshot;
pub use stats::{Stats, Version, Written};
pub use store::PageStore;
#[doc(hidden)]
pub use store_file::can_be_shared;
pub use store_file::{FileId, LockedFile, Missing, StoreFile, decide_by_file, make_missing};
pub use writer::Writer;
