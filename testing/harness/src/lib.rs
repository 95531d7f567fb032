//! What the suites of everything durable share: the store, the page store, SQLite over it.
//!
//! Reading order: [`violation`] (the promises, by name), [`random`] (numbers from a seed),
//! [`minimise`] (a failing history made short), [`counts`] (what was done, for the page generated
//! from it); then [`crash`] (every legal state after a power cut, of whatever is a
//! [`crash::Subject`]), [`faults`] (every operation of the device failing), [`flips`] (every byte
//! damaged, over [`image`]) and [`fixtures`] (files of earlier versions); and [`planted`] (bugs
//! that the suites must find).
//!
//! Nothing here knows what is tested: it sees a device.

pub mod counts;
pub mod crash;
pub mod faults;
pub mod fixtures;
pub mod flips;
pub mod image;
#[cfg(test)]
mod list;
pub mod minimise;
pub mod planted;
pub mod random;
pub mod violation;
