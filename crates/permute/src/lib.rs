//! Rearranging arrays larger than memory: transposes, axis orders, tiles, in very few passes.
//!
//! After R. Thonangi's thesis, chapter 3 (address-digit permutations). Reading order: [`pattern`]
//! (the pattern as text) and [`resolve`] (in digits), [`tree`] (one axis cut into digits, counted
//! where they do not divide), [`space`] (several axes in an order, their records packed),
//! [`coalesce`] (fewer digits); [`pass`] (one pass over the data) and [`plan`] (the choice of
//! passes); [`runs`] (the ranges of a file that hold a set of records), [`scatter`] and [`copy`]
//! (their places in memory), [`budget`] (the division of memory), [`file`](mod@file) (direct I/O),
//! [`exec`] (execution of a pass by threads); [`layout`] (dimensions as digits, also of chunked
//! files), `steps` (from two files to passes); [`npy`], [`zarr`] and [`target`] (file formats and
//! the output file), [`units`] (sizes with units), [`device_profile`] (the measured speed of a
//! device), [`job`] (the whole operation); [`message`] (texts that name options); [`planted`] (bugs
//! that the tests must find).
//!
//! The feature `_baselines` adds common alternatives (`baselines`), to compare with. This crate
//! does not depend on the store; memory for direct I/O comes from `esker-device`.

#[cfg(feature = "_baselines")]
pub mod baselines;
mod batches;
pub mod budget;
pub mod coalesce;
pub mod copy;
mod describe;
pub mod device_profile;
mod edges;
mod endpoints;
pub mod error;
pub mod exec;
pub mod file;
pub mod job;
pub mod layout;
mod literal;
pub mod message;
pub mod npy;
pub mod pass;
pub mod pattern;
pub mod plan;
pub mod planted;
pub mod probe;
pub mod resolve;
pub mod runs;
pub mod scatter;
pub mod space;
mod steps;
pub mod target;
pub mod tree;
pub mod units;
pub mod zarr;
