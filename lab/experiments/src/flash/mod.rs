//! Stores on simulated flash: what a device adds to what an index writes.
//!
//! [`index_on_ssd`] runs the store's indexes on a simulated SSD of several sizes of spare space.

pub mod index_on_ssd;
