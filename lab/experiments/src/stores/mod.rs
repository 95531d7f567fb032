//! `esker bench`: stores compared, each row of the table for each system in a process of its own.
//!
//! ```text
//!   bench        which rows and systems, alternated; copies of loaded stores     (parent)
//!     │  task (JSON) ▼                  ▲ messages (JSON lines)
//!   child        opens the store in its control group, runs one row, counts      (child)
//!     │
//!   rows         load · overwrite · mix · merge · lookups · …, one file each
//!     │
//!   arrivals · latency · background · process · space · cgroup        `esker-lab-measure`
//! ```
//!
//! Reading order: [`sizes`] (how much of everything), [`media`] (simulated SSDs), [`task`] (one
//! run), [`rows`], [`child`], [`mod@bench`]; then [`bars`] (what must hold of what was found).

pub mod bars;
pub mod bench;
pub mod child;
pub mod media;
mod opening;
pub mod rows;
pub mod sizes;
pub mod task;
