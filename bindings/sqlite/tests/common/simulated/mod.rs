//! SQLite over the VFS over a simulated disk, next to a plain SQLite that gives the expected
//! contents.
//!
//! Reading order: `disk`, `steps` (what is done), `oracle` (what it should make), `session` (both
//! side by side), `judge` (what may be there after a crash or an error), `subject` (all this for
//! the harness).

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step is a failed test")]

pub mod disk;
pub mod judge;
pub mod oracle;
pub mod session;
pub mod steps;
pub mod subject;
