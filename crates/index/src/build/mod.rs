//! New blocks: what a flush or a merge writes.
//!
//! Reading order: [`insert`] (entries in key order become levels with fences), [`level_writer`] and
//! [`top_writer`] (one level), [`writer`] (blocks into extents), `buffer`, [`preserve`] (blocks
//! that stay as they are), [`compression`] (codecs, and the space that merges need for them),
//! [`filter_bits`].

pub(crate) mod buffer;
pub mod compression;
pub mod filter_bits;
pub mod insert;
pub mod level_writer;
pub mod preserve;
pub mod top_writer;
pub mod writer;
