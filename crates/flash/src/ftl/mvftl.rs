//! MV-FTL: transactions that read the version on which they began, without a journal.
//!
//! After D. Lee, M. Shin, W. Choi, H. Roh, S. Park, "MV-FTL: An FTL That Provides Page-Level
//! Multi-Version Management" (IEEE TKDE 2017, doi 10.1109/TKDE.2017.2757016).
//! `docs/design/flash.md` has pictures.
//!
//! Reading order: `versions` (the diffs and their list; the fixes to the paper are listed there),
//! `commit_log` (the bytes of mappings in the log), `layer` (the layer: what is programmed
//! when), `interface` (the traits), `recover` (a restart).
//!
//! **Plain writes**, those outside of transactions, are one transaction that the layer has open at
//! all times. A flush commits it. It is also committed when a transaction begins, so that the
//! transaction sees it; before another transaction commits, so that commits are in the order of
//! time; and when it has a quarter of the memory for diffs. The paper is silent about them.

pub(crate) mod commit_log;
mod interface;
pub(crate) mod layer;
mod recover;
pub(crate) mod versions;

pub use crate::ftl::transactional::Collection;
pub use layer::{Activity, MvFtl, Options};
