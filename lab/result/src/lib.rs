//! The results of a measurement: every run of every system, and the verdicts on them.
//!
//! Reading order: [`median`] (many runs as one number each), [`verdict`] (a bar or a prediction,
//! judged), [`findings`] (the whole, which is written as JSON and read back). A metric is a number
//! with a name that ends in its unit; whatever a run measures is a flat map of metrics, so that
//! experiments, bars and tables agree by name and by nothing else.
//!
//! What is not here: the measurements, which of them are judged by what, and tables of text.

pub mod findings;
pub mod median;
pub mod verdict;

use std::collections::BTreeMap;

pub use findings::{Findings, Measured, Part, What};
pub use verdict::{Bound, Outcome, Sense, Times, Verdict};

/// The measurements of one run, by name.
pub type Metrics = BTreeMap<String, f64>;
