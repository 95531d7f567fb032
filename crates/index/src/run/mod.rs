//! What is on the device, and how it is read: one tree of blocks and fences.
//!
//! Reading order: [`fence_index`] (with `fence_chunk` and `packed`) and [`tree`] (a tree
//! and how it is entered), [`lookup`] (a key),
//! [`cursor`] and [`data_cursor`] (entries in key order, both ways), [`held_blocks`] (blocks that a
//! scan reads again), `tournament` (which of several sources is first), [`consumed`] (key ranges
//! that a run no longer has), `numbers` (how new what a level has
//! may be), [`walk`] (everything that a durable state refers to), [`opener`]
//! (opening trees beside those of an older opening).

pub mod consumed;
pub mod cursor;
pub mod data_cursor;
mod fence_chunk;
pub mod fence_index;
pub mod held_blocks;
mod key_hints;
mod load_fences;
pub mod lookup;
pub(crate) mod numbers;
pub mod opener;
mod packed;
pub(crate) mod tournament;
pub mod tree;
pub mod walk;
