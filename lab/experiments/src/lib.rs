//! What `esker bench` and `esker lab` measure, and how.
//!
//! [`experiment`] is what `esker lab` runs, and [`catalog`] names all experiments: those of the
//! FD+tree's papers in [`fdtree`], those of the LSM tree's compaction policies in [`lsm`], those of
//! the planner of arrays in [`permute`], those of indexes that keep all versions in
//! [`multiversion`], that of patched tables in [`patch`], those on simulated flash in [`flash`],
//! and [`machine`] is the machine on which SQLite runs there.
//! [`stores`] is the comparison that `esker bench` runs; [`permute::rearrange`], [`sqlite`],
//! [`operations`] and [`versions`] are what `esker bench` with such a name runs, the last one as
//! `history`. All of them answer with the `Findings` of `esker-lab-result`; [`progress`] is what
//! they say meanwhile.
//!
//! What is not here: the instruments (`esker-lab-measure`), the stores (`esker-peers`), the
//! requests (`esker-workload`), the commands (`esker-lab-cli`).

pub mod catalog;
pub mod experiment;
pub mod fdtree;
pub mod flash;
pub mod lsm;
pub mod machine;
pub mod multiversion;
pub mod operations;
pub mod patch;
pub mod permute;
pub mod progress;
pub mod sqlite;
pub mod stores;
pub mod versions;

pub use esker_lab_measure::{Error, Result};
pub use esker_peers::versions::Way;
pub use esker_peers::{Arrangement, Name};
