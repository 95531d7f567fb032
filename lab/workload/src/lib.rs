//! Streams of requests that follow from a seed: the same seed gives the same requests on every
//! machine, and nothing is stored but what drawing the next request needs.
//!
//! A request names a *number*; how a number becomes the bytes of a key is the business of
//! [`entry`], so that a generator can be counted and tested without bytes.
//!
//! | module | one idea |
//! |---|---|
//! | [`random`] | numbers from a seed |
//! | [`request`] | what a stream consists of |
//! | [`entry`] | numbers as keys, versions as values |
//! | [`uniform`] | load, overwrite and mix over random keys of 16 bytes |
//! | [`law`] | numbers drawn evenly, or around a mean that moves |
//! | [`steady`] | G_U and G_N: insertions by such a law, as many deletions as insertions |
//! | [`ratio`] | G_R: lookups, insertions and deletions in a given ratio |
//! | [`new_order`] | G_T: the primary index of TPC-C's NewOrder table |
//! | [`tpcc`] | TPC-C itself, over SQLite |
//! | [`rl`] | the thirteen steps of SQLite's speed test |
//! | [`row`] | accesses to rows of a key-value store |
//! | [`linkbench`] | LinkBench: requests to a social graph, as such accesses |
//! | [`tpcc_rows`] | TPC-C as such accesses |
//! | [`ycsb`] | YCSB's core workloads A to F |
//!
//! Clocks, threads and stores are not here. [`tpcc`] and [`rl`] speak SQL to a
//! connection that they are given.

pub mod entry;
pub mod law;
pub mod linkbench;
pub mod new_order;
pub mod random;
pub mod ratio;
pub mod request;
pub mod rl;
pub mod row;
pub mod steady;
pub mod tpcc;
pub mod tpcc_rows;
pub mod uniform;
pub mod ycsb;

pub use random::Random;
pub use request::{Kind, Request};
