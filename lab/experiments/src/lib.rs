//! Measures Esker and its peers the same way, and says whether the bars are met.
//!
//! [`measure`] is the comparison that `esker bench` runs; [`experiment`] is what `esker lab` runs,
//! of which [`schemes`] has those of the FD+tree's papers, [`compaction`] those of the LSM tree's
//! merge policies and [`rearranging`] those of the planner of arrays; [`permute`], [`sqlite`] and
//! [`operations`] are what `esker bench` with that name runs. What is not here: the stores
//! (`esker-peers`), the requests (`esker-workload`), the commands (`esker-lab-cli`).

pub mod compaction;
pub mod error;
pub mod experiment;
pub mod measure;
pub mod operations;
pub mod permute;
pub mod rearranging;
pub mod schemes;
pub mod sqlite;

pub use error::{Error, Result};
pub use esker_peers::{Arrangement, Name};
