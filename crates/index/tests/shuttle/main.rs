//! The real protocol under many schedules: readers, writers and scans during a merge that
//! publishes views, records its progress and gives space back.
//!
//! `cargo test -p esker-index --features shuttle,planted --test shuttle`
//!
//! `runner` runs schedules and counts them; `history` is what threads saw, and whether it could
//! be; `subject` is the index; `merges`, `histories`, `gaps` and `tails` are the scenarios,
//! `slices` those of an LSM index, `splits` those of keyspaces with history; `planted` proves that
//! they find mistakes.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod gaps;
mod histories;
mod history;
mod merges;
mod planted;
mod runner;
mod slices;
mod splits;
mod subject;
mod tails;
