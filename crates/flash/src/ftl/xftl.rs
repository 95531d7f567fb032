//! X-FTL: atomic transactions without versions.
//!
//! After W.-H. Kang, S.-W. Lee, B. Moon, G.-H. Oh, C. Min, "X-FTL: Transactional FTL for SQLite
//! Databases" (SIGMOD 2013), as the paper of MV-FTL describes and rebuilds it. A transaction writes
//! pages anywhere; its mappings are in a table of their own (X-L2P) until it commits. The commit
//! writes the table to new flash pages, and then the mappings are those of the main map.
//!
//! Reading order: `table` (X-L2P), `layer` (what is programmed when), `interface` (the traits),
//! `recover` (a restart).
//!
//! **No isolation.** A transaction reads its own writes, and otherwise what is committed at that
//! time: a reader can see one page before and another page after a commit. The host must keep
//! readers and a writer apart, which is why SQLite over X-FTL waits where SQLite over MV-FTL does
//! not.

mod interface;
pub(crate) mod layer;
mod recover;
pub(crate) mod table;

pub use crate::ftl::transactional::Collection;
pub use layer::{Activity, Options, XFtl};
