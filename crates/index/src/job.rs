//! The background jobs of an index.

use esker_device::Purpose;

/// The background job that moves a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackgroundJob {
    /// A frozen memtable becomes a sorted run.
    Flush,
    /// Frozen memtable, sorted runs and levels become new levels.
    Merge,
}

impl BackgroundJob {
    /// The purpose under which its operations are counted.
    pub(crate) const fn purpose(self) -> Purpose {
        match self {
            Self::Flush => Purpose::Flush,
            Self::Merge => Purpose::Merge,
        }
    }
}
