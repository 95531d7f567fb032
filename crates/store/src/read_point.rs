//! The moment as of which a reader reads, and what keeps its versions.

use std::sync::{Arc, OnceLock};

use esker_format::ids::{Moment, Seq};
use esker_substrate::snapshots::{At, SnapshotGuard};

use crate::error::Result;
use crate::slot::Slot;
use crate::times::Times;

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
    version: Seq,
    /// Its time, once it was needed: as of then values have expired, or have not.
    time: OnceLock<Moment>,
}

impl Pin {
    fn of_pinned(slot: &Arc<Slot>, version: Seq) -> Arc<Self> {
        Arc::new(Self { slot: Arc::clone(slot), version, time: OnceLock::new() })
    }

    /// That of a version; `None` where it has been given up, or is from before the history.
    pub fn new(slot: &Arc<Slot>, version: Seq) -> Option<Arc<Self>> {
        let is_kept = slot.tree().is_ok_and(|tree| tree.pin_version(version));
        is_kept.then(|| Self::of_pinned(slot, version))
    }

    /// That of the oldest version that can be read; `None` without history.
    pub fn oldest(slot: &Arc<Slot>) -> Result<Option<Arc<Self>>> {
        let oldest = slot.tree()?.pin_oldest();
        Ok(oldest.map(|version| Self::of_pinned(slot, version)))
    }

    /// The version.
    pub const fn version(&self) -> Seq {
        self.version
    }

    /// The version and its time. A lookup, where values of the keyspace have expiries and none was
    /// made yet.
    pub fn at(&self, times: Option<&Times>) -> Result<At> {
        let now = match self.time.get() {
            Some(time) => *time,
            None => {
                let may_expire = self.slot.may_expire()?;
                let times = times.filter(|_| may_expire);
                let time = times.map_or(Ok(None), |times| times.of(self.version))?;
                *self.time.get_or_init(|| time.unwrap_or(Moment(0)))
            }
        };
        Ok(At { seq: self.version, now })
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.slot.unpin_version(self.version);
    }
}

impl ReadPoint {
    /// The number.
    pub fn seq(&self) -> Seq {
        match self {
            Self::Registered(snapshot) => snapshot.at().seq,
            Self::Retained(pin) => pin.version(),
        }
    }

    /// The number and the moment.
    pub fn at(&self, times: Option<&Times>) -> Result<At> {
        match self {
            Self::Registered(snapshot) => Ok(snapshot.at()),
            Self::Retained(pin) => pin.at(times),
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
