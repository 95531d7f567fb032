//! The moment as of which a reader reads, and what keeps its versions.

use std::sync::Arc;

use esker_format::ids::{Moment, Seq};
use esker_substrate::snapshots::{At, SnapshotGuard};

use crate::error::Result;
use crate::slot::Slot;

/// A moment whose versions stay while this is kept.
#[derive(Clone, Debug)]
pub(crate) enum ReadPoint {
    /// The number is registered.
    Registered(SnapshotGuard),
    /// The keyspace keeps history, and the number is part of it.
    Retained(Arc<Pin>),
}

/// A version of a keyspace with history, which stays readable while this is kept.
#[derive(Debug)]
pub(crate) struct Pin {
    slot: Arc<Slot>,
    at: At,
}

/// What a reader as of a version sees: values in it have no time to live.
pub(crate) const fn at(version: Seq) -> At {
    At { seq: version, now: Moment(0) }
}

impl Pin {
    /// That of a version; `None` where it has been given up, or is from before the history.
    pub fn new(slot: &Arc<Slot>, at: At) -> Option<Arc<Self>> {
        let is_kept = slot.tree().is_ok_and(|tree| tree.pin_version(at.seq));
        is_kept.then(|| Arc::new(Self { slot: Arc::clone(slot), at }))
    }

    /// That of the oldest version that can be read; `None` without history.
    pub fn oldest(slot: &Arc<Slot>) -> Result<Option<Arc<Self>>> {
        let oldest = slot.tree()?.pin_oldest();
        Ok(oldest.map(at).map(|at| Arc::new(Self { slot: Arc::clone(slot), at })))
    }

    /// The number and the moment.
    pub const fn at(&self) -> At {
        self.at
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.slot.unpin_version(self.at.seq);
    }
}

impl ReadPoint {
    /// The number and the moment.
    pub fn at(&self) -> At {
        match self {
            Self::Registered(snapshot) => snapshot.at(),
            Self::Retained(pin) => pin.at(),
        }
    }
}

impl From<SnapshotGuard> for ReadPoint {
    fn from(snapshot: SnapshotGuard) -> Self {
        Self::Registered(snapshot)
    }
}

impl From<&Arc<Pin>> for ReadPoint {
    fn from(pin: &Arc<Pin>) -> Self {
        Self::Retained(Arc::clone(pin))
    }
}
