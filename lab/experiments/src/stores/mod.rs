//! The comparison: each row of the table, for each system, in a process of its own.
//!
//! ```text
//!   bench        which rows and systems, alternated; copies of loaded stores     (parent)
//!     │  task (JSON) ▼                  ▲ messages (JSON lines)
//!   child        opens the store in its control group, runs one row, counts      (child)
//!     │
//!   rows         load · overwrite · mix · merge · lookups · …, one file each
//!     │
//!   arrivals · latency · background · process · space · cgroup        the instruments
//! ```
//!
//! Reading order: the instruments [`arrivals`] (requests that come when they come),
//! [`latency`], [`background`] (what runs during a measurement: the clock that persists, the idle
//! control thread), [`process`], [`space`], [`cgroup`]; then [`scale`] (how much of everything),
//! [`task`] (one run), [`rows`], [`child`], [`mod@bench`]; then what is made of the numbers:
//! [`bars`] (what must hold), and findings, which are written and read by `esker-lab-result`.
//!
//! A metric is a number with a name that ends in its unit. Whatever a run measures is a flat map
//! of metrics, so that rows, bars and reports agree by name and by nothing else.

pub mod arrivals;
pub mod background;
pub mod bars;
pub mod bench;
pub mod cgroup;
pub mod child;
pub mod latency;
pub mod process;
pub mod rows;
pub mod scale;
pub mod space;
pub mod task;

pub use esker_lab_result::Metrics;

/// The least unit of space in `st_blocks`, in bytes.
const SECTOR_BYTES: u64 = 512;
