//! Ordered maps of `u64` to `u64` on NAND flash, each in a small memory that is counted: what the
//! LA-tree is compared with.
//!
//! Reading order: [`mod@error`]; [`tree`] (the trait [`FlashTree`]); [`page`] and [`cache`] (nodes
//! as pages, in memory); [`space`] (pages that can be overwritten: the log, its garbage collection
//! and wear levelling are the page-mapped layer of `esker-flash`), and
//! [`erase_units`]
//! and [`blocks`] (what a tree erases itself), [`block_mapped`] (a layer as memory cards have it);
//! [`bplus`] (the B+tree that most trees share, over a [`Backing`]); [`units`] and
//! [`lists`] (changes of nodes in pages, and where they are); then one file for each of them:
//!
//! | module | how nodes are stored |
//! |---|---|
//! | [`btree`] | a page each, written out of place when a changed one leaves the cache |
//! | [`bftl`] | as units of change, packed in sectors with those of other nodes |
//! | [`flashdb`] | as a page, or as a page and a log of changes, each node for itself |
//! | [`ipl`] | as a page, and changes in the same block |
//! | [`inplace`] | in a fixed place, whose block is written anew |
//! | [`ekv`] | the LSM of the crate of this name, over [`nor`] |
//! | [`sequential`] | the log of the crate `sequential-storage`, over [`nor`] |
//! | [`latree`] | the LA-tree of `esker-latree`, which is compared with them |
//!
//! Then [`rivals`] (all of them by name), [`values`] (of the last three, longer ones, too),
//! [`workload`] and [`mod@run`].
//!
//! **What is the same for all.** Keys have 8 bytes, and so have values where nothing else is
//! said. Every byte is written to simulated flash and read from it. A tree has a budget of memory:
//! what its tables and buffers leave of it caches nodes. An operation on flash begins when the one
//! before it has ended, so the device time of a run is what the chip's clock says at its end.
//!
//! Device time is that of requests: a collection of garbage in the background delays the next
//! request of its die, and what is left of it after the last one is not counted.
//!
//! Not here: recovery after a power cut, several threads, variable lengths.

pub mod bftl;
pub mod block_mapped;
mod block_on;
pub mod blocks;
pub mod bplus;
pub mod btree;
pub mod cache;
pub mod ekv;
pub mod erase_units;
pub mod error;
pub mod flashdb;
pub mod inplace;
pub mod ipl;
pub mod latree;
pub mod lists;
pub mod nor;
pub mod page;
pub mod rivals;
pub mod run;
pub mod sequential;
pub mod space;
pub mod tree;
pub mod units;
pub mod values;
pub mod workload;

pub use bplus::{Backing, Tree};
pub use error::{Error, Result};
pub use tree::{Chip, FlashTree, KeyRange, Memory, Order, Visit};
pub use values::Values;
