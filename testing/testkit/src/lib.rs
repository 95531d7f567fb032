//! Oracles and suites that prove Esker's promises, or find where they do not hold.
//!
//! Reading order: [`violation`] (the promises, by name), [`random`], [`history`] (operations from
//! a seed), [`scenario`] (named ones), [`model`] (what a store should hold, at every commit),
//! [`verify`] (store against model), [`config`] (how it is opened), [`session`] (both side by
//! side), [`recovery`] (what may be there after a crash) with [`generations`] (numbers that must
//! not come again), [`subject`] (all of that for the harness), [`minimise`] (a failing history
//! made short); then the suites: [`crash`] (every legal state after a power cut) and
//! [`concurrent`] (with several writers), [`faults`] (every device operation failing), [`linear`]
//! (reads and writes of many threads, each at one moment), [`serializable`] (an order for
//! transactions), [`full`] (no room left), [`lies`] (a device that says what is not), [`flips`]
//! (every byte damaged, over [`image`]), [`planted`] (bugs that the suites must find), [`checks`]
//! (what `check` says at every step of merges), [`backups`] (copies of a store, under all of
//! that), [`kill`] (a real process killed), [`soak`] (everything at once, by several threads, in a
//! process that is killed), [`fuzz`] (every decoder), [`work`] (what long inputs cost),
//! [`readonly`] (what is opened for reading); and [`counts`] (what was done, for the page
//! generated from it).
//!
//! What does not depend on the store is in `esker_harness`.
//!
//! Nothing here knows how the store works: it sees public operations and a device.

mod another;
pub mod backups;
pub mod checks;
pub mod concurrent;
pub mod config;
pub mod crash;
pub mod faults;
pub mod flips;
pub mod full;
pub mod fuzz;
pub mod generations;
pub mod history;
pub mod kill;
pub mod lies;
pub mod linear;
pub mod minimise;
pub mod model;
pub mod planted;
pub mod readonly;
pub mod recovery;
pub mod scenario;
pub mod serializable;
pub mod session;
pub mod soak;
pub mod subject;
pub mod verify;
pub mod work;
mod writing;

pub use esker_harness::{counts, image, random, violation};
