//! The FD+tree with full concurrency (FD+FC).

pub mod finalize;
pub mod lead;
pub mod prepare;
pub mod shape;
pub mod start;
pub mod two_level;

pub use shape::Sizes;
