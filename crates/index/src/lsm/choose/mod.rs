//! The choice of the level and the keys that are merged next: [`pull`], or, with the policies of
//! the thesis, [`by_policy`], which chooses among the blocks in [`fences`]; [`scanned`],
//! whatever the policy, what scans have paid for.

pub(in crate::lsm) mod by_policy;
mod fences;
pub(in crate::lsm) mod pull;
mod scanned;
pub(in crate::lsm) mod slice;
