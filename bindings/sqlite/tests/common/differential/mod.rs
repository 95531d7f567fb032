//! The same script in SQLite over the VFS and in a plain SQLite, statement by statement.
//!
//! Reading order: `script` (what is done, from a seed), `pair` (both sides, and what is compared).

#![allow(unreachable_pub, reason = "the test binary uses it")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

pub mod pair;
pub mod script;
pub mod statements;
