//! The choice of the level and the keys that are merged next: [`pull`], or, with the policies of
//! the thesis, [`by_policy`], which chooses among the blocks in [`fences`].

pub(in crate::lsm) mod by_policy;
mod fences;
pub(in crate::lsm) mod pull;
pub(in crate::lsm) mod slice;
