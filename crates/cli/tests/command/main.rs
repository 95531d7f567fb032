//! The real binary, from outside: exit codes, standard output, and one line of standard error.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod backup;
#[cfg(feature = "lab")]
mod bench;
mod damage;
#[cfg(feature = "lab")]
mod demo;
mod edges;
mod flash;
mod flash_kv;
mod history;
mod interrupted;
#[cfg(feature = "lab")]
mod lab;
#[cfg(feature = "lab")]
mod live;
mod load;
mod permute;
mod readonly;
mod roundtrip;
mod scan;
mod single;
mod sqlite;
mod support;
mod terminal;
mod time_travel;
mod top;
mod usage;
