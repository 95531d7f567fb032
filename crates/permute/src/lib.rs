//! Rearranging arrays larger than memory: transposes, axis orders, tiles, in very few passes.
//!
//! After R. Thonangi's thesis, chapter 3 (address-digit permutations). Reading order: [`pattern`]
//! (what is asked for, in words) and [`resolve`] (in digits), [`tree`] (one axis cut into digits,
//! counted where they do not divide), [`space`] (several axes in an order, their records packed),
//! [`coalesce`] (fewer digits); [`pass`] (one pass over the data) and [`plan`] (which passes);
//! [`runs`] (which ranges of a file hold some records), [`scatter`] and [`copy`] (where they go in
//! memory), [`budget`] (how memory is divided), [`file`](mod@file) (direct I/O), [`exec`] (a pass
//! carried out by threads); [`layout`] (dimensions as digits, of files in chunks too), `steps`
//! (from two files to passes); [`npy`], [`zarr`] and [`target`] (files as people have them),
//! [`units`] (sizes as people write them), [`device_profile`] (what a device was measured to take),
//! [`job`] (all of it); [`message`] (texts that name options);
//! [`planted`] (bugs that the tests must find).
//!
//! With the feature `_baselines` there are also what people do instead (`baselines`), to measure
//! against. Nothing here knows the store; memory for direct I/O comes from `esker-device`.

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
