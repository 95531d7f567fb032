//! Measures Esker and its peers the same way, and says whether the bars are met.
//!
//! [`measure`] is the comparison that `esker bench` runs. What is not here: the stores
//! (`esker-peers`), the requests (`esker-workload`), the terminal (`esker-cli`).

pub mod error;
pub mod measure;

pub use error::{Error, Result};
pub use esker_peers::Name;
