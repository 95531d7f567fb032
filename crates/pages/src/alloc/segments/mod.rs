//! Allocation by segments that are filled in order, and emptied before they are used again.

pub(crate) mod append;
pub(crate) mod collect;
