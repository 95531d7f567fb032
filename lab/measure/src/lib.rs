//! The instruments of the laboratory: what every measurement uses, whatever it measures.
//!
//! Reading order: [`scale`] (how much of everything), [`arrivals`] (requests that come when they
//! come), [`latency`], [`background`] (what runs during a measurement: the clock that persists, the
//! idle control thread), [`process`] and [`space`] (what the system counts), [`cgroup`] (the limit
//! of memory), [`error`].
//!
//! What is not here: what is measured (`esker-experiments`), and what is made of the numbers
//! (`esker-lab-result`).

pub mod arrivals;
pub mod background;
pub mod cgroup;
pub mod error;
pub mod latency;
pub mod process;
pub mod scale;
pub mod space;

pub use error::{Error, Result};
