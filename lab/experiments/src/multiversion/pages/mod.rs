//! Simulated pages: real bytes, and exact counts of what is read and written.
//!
//! Reading order: `file` (pages by number), [`pool`] (the pages in memory, LRU with write-back),
//! [`log`] (bytes that commits force). A page is counted when its bytes pass between the file and
//! memory, and at no other time.

pub mod file;
pub mod log;
pub mod pool;

/// The number of a page. Its place in the file: neighbours are neighbours on the device.
pub type PageId = u64;

/// What passed between memory and the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Pages read.
    pub reads: u64,
    /// Pages written.
    pub writes: u64,
    /// Pages written right behind the page that was written before.
    pub sequential: u64,
}
