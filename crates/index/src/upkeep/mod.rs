//! What an index keeps track of between merges.
//!
//! `due` decides what should begin, `balance` when there are too many tombstones, `forecast` what
//! would begin; `memory` counts memory, [`fence_room`] and `filter_room` say what memory there is
//! for fences and filters, [`owed`] and [`reserve`] space; [`values`] has the owners of blobs;
//! [`stats`] are for users; `pause` stops all work for a moment; `follow` takes over memtables in a
//! store that another process writes.

pub(crate) mod balance;
pub(crate) mod due;
pub mod fence_room;
pub(crate) mod filter_room;
pub(crate) mod follow;
pub(crate) mod forecast;
pub(crate) mod memory;
pub mod owed;
pub(crate) mod pause;
pub mod reserve;
pub mod stats;
pub mod values;
