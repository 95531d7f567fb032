//! Rearranging arrays larger than memory.

pub mod runs;
pub mod space;
pub mod tree;
