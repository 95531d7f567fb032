//! The moment as of which a reader reads, and what keeps its versions.

use esker_substrate::snapshots::{At, SnapshotGuard};

/// A moment whose versions stay while this is kept.
#[derive(Clone, Debug)]
pub(crate) enum ReadPoint {
    /// The number is registered.
    Registered(SnapshotGuard),
    /// The keyspace keeps history, and the number is part of it.
    Retained(At),
}

impl ReadPoint {
    /// The number and the moment.
    pub const fn at(&self) -> At {
        match self {
            Self::Registered(snapshot) => snapshot.at(),
            Self::Retained(at) => *at,
        }
    }
}

impl From<SnapshotGuard> for ReadPoint {
    fn from(snapshot: SnapshotGuard) -> Self {
        Self::Registered(snapshot)
    }
}
