//! Rearranging arrays larger than memory.

mod batches;
pub mod budget;
pub mod coalesce;
pub mod copy;
mod edges;
pub mod error;
pub mod exec;
pub mod file;
pub mod job;
pub mod npy;
pub mod pass;
pub mod pattern;
pub mod pieces;
pub mod plan;
pub mod resolve;
pub mod runs;
pub mod space;
pub mod target;
pub mod tree;
