//! The tree against a map: histories, power cuts, planted bugs, bad input, memory.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step is a failed test")]

mod adapt;
mod bad_input;
mod common;
mod cuts;
mod failing;
mod file_chip;
mod guide;
mod history;
mod model;
mod nor;
mod planted;
mod regions;
