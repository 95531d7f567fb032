//! Stores on simulated flash: what a device adds to what an index writes.
//!
//! [`index_on_ssd`] runs the store's indexes on a simulated SSD of several sizes of spare space.
//! [`sqlite`] runs SQLite on a simulated machine, over translation layers with and without
//! transactions. [`trees`] are ordered maps on a raw chip, in little memory.

pub mod index_on_ssd;
pub mod sqlite;
pub mod trees;
