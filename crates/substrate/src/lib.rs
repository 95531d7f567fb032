//! The modules that every index is built on.
//!
//! Reading order: [`error`], [`runtime`] (clock and randomness, injected), [`sync`], [`poison`] and
//! [`fault`] (how failures spread and how tests provoke them), [`budget`], [`space`] and [`runs`]
//! (extents), [`cache`] and [`blocks`] (the data file, block by block), [`generations`] (the
//! identity of blocks and blobs), [`values`] (blobs), [`manifest`], [`log`], [`memtable`],
//! [`clock`] and [`snapshots`] (when values expire, and which versions may be seen).

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod blocks;
pub mod budget;
pub mod cache;
pub mod clock;
pub mod error;
pub mod fault;
pub mod followers;
pub mod generations;
pub mod log;
pub mod manifest;
pub mod memtable;
pub mod planted;
pub mod poison;
pub mod runs;
pub mod snapshots;
pub mod space;
pub mod sync;
pub mod values;

pub use error::{Error, Result};
pub use esker_device::runtime;
