//! The byte format of an Esker store: no I/O, no clock, no threads, no `unsafe`.
//!
//! Reading order: [`ids`] and [`ptr`] (the numbers), [`key`], [`data`], [`action`] and [`entry`]
//! (operations, and the entries of a level), [`filter`] and [`fence`] (how a block is found),
//! [`block`] (how entries are packed), [`meta`] (a keyspace's record in the manifest), [`frame`],
//! [`log_record`], [`manifest_edit`] and [`superblock`] (what makes them durable), [`backup`] (a
//! copy of all of it), [`value_piece`] and [`value_ref`] (blobs).
//!
//! Every decoder takes untrusted bytes: it never panics, never allocates more than its input could
//! hold, and reports the offset of the first invalid input. `docs/format` gives the same layouts
//! byte by byte.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod action;
pub mod backup;
pub mod block;
pub mod bytes;
pub mod data;
pub mod entry;
pub mod error;
pub mod fence;
pub mod filter;
pub mod frame;
pub mod history;
pub mod ids;
pub mod key;
pub mod log_record;
pub mod manifest_edit;
pub mod meta;
pub mod ptr;
pub mod superblock;
pub mod value_piece;
pub mod value_ref;

pub use error::{DecodeError, Result};

/// Version of the on-disk format that this crate reads and writes.
pub const FORMAT_VERSION: u32 = 2;
/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 64 * 1024;
/// The longest value that is stored inside a block, in bytes. Longer ones are stored as blobs
/// ([`value_ref`]).
pub const VALUE_BYTES_MAX: usize = 256 * 1024;
/// The longest keyspace name, in bytes.
pub const KEYSPACE_NAME_BYTES_MAX: usize = 255;
