//! Patch compaction (D. Lee, M. Shin, W. Choi, H. Roh, S. Park, *MV-FTL*, IEEE TKDE 2017, section
//! 5): an LSM tree with its tables in a versioned page store, where a compaction writes the records
//! that changed and the index of their table, and leaves the rest of the table in place.
//!
//! A patch overwrites nothing that a reader of an older version needs, and is one transaction: both
//! are the page store's. Every byte that the device is given counts.
//!
//! Reading order: [`block`] (records in pages), [`fences`] (the index, and patching it), [`pager`]
//! (pages and transactions), [`table`], [`catalogue`], [`log`]; [`cursor`] and [`build`] (reading
//! and writing in the order of keys); [`compact`] (to patch or to rewrite), [`tree`] (the levels).
//! Then the measurements: [`subject`] (a tree, or the LSM index of the product, under a workload),
//! [`written`] (Table 5) and [`gate`] (whether patches pay beside the product's policy).

pub mod block;
pub mod build;
pub mod catalogue;
pub mod compact;
pub mod cursor;
mod error;
pub mod fences;
pub mod gate;
pub mod log;
pub mod pager;
pub mod subject;
pub mod table;
pub mod tree;
pub mod written;
