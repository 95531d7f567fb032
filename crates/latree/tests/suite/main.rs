//! The tree against a map: histories, power cuts, planted bugs, bad input, memory.
#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod adapt;
mod common;

mod history;
mod model;
