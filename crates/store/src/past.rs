//! A keyspace at an earlier version.

use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::time::SystemTime;

use esker_format::ids::Seq;
use esker_substrate::snapshots::At;

use crate::changes::Changes;
use crate::error::{Error, Result};
use crate::follow;
use crate::large::{self, ValueReader};
use crate::range::{Interval, Range};
use crate::read::{self, Entry};
use crate::read_point::{Pin, ReadPoint};
use crate::shared::Shared;
use crate::slot::Slot;
use crate::times;

/// A keyspace as it was at one version: what a reader would have found after that commit and before
/// the next one. A cheap handle, which blocks nothing. Where the keyspace keeps its history for a
/// time, the version stays readable as long as there is a handle or a range of it.
#[derive(Clone)]
pub struct Past {
    shared: Arc<Shared>,
    slot: Arc<Slot>,
    pin: Arc<Pin>,
}

impl Past {
    /// The keyspace of `slot` at `version`.
    pub(crate) fn new(shared: &Arc<Shared>, slot: &Arc<Slot>, version: u64) -> Result<Self> {
        let pin = pinned(shared, slot, version)?;
        Ok(Self { shared: Arc::clone(shared), slot: Arc::clone(slot), pin })
    }

    /// The version.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.pin.version().0
    }

    /// The time at which the version was committed: see [`Db::time_of`](crate::Db::time_of).
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn time(&self) -> Result<Option<SystemTime>> {
        let _open = self.shared.enter()?;
        let Some(times) = self.shared.times.get() else { return Ok(None) };
        let time = follow::reading(&self.shared, || times.of(self.pin.version()))?;
        Ok(time.and_then(times::system_time))
    }

    /// The value that `key` had. Costs what [`Keyspace::get`](crate::Keyspace::get) costs.
    ///
    /// # Errors
    /// Those of [`Keyspace::get`](crate::Keyspace::get).
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        read::get(&self.shared, &self.slot, key.as_ref(), Some(self.at()?))
    }

    /// Whether `key` had a value.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        read::contains(&self.shared, &self.slot, key.as_ref(), Some(self.at()?))
    }

    /// The value that `key` had, as a stream.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn reader(&self, key: impl AsRef<[u8]>) -> Result<Option<ValueReader>> {
        large::reader(&self.shared, &self.slot, key.as_ref(), self.point())
    }

    /// The values that all `keys` had, in their order.
    ///
    /// # Errors
    /// Those of [`get`](Self::get), of any of the keys.
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        read::multi_get(&self.shared, &self.slot, keys, self.at()?)
    }

    /// The entry with the smallest key.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn first(&self) -> Result<Option<Entry>> {
        self.scan(Interval::all()).one(false)
    }

    /// The entry with the largest key.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn last(&self) -> Result<Option<Entry>> {
        self.scan(Interval::all()).one(true)
    }

    /// All entries, in the order of their keys.
    ///
    /// # Errors
    /// [`NoKeyspace`](crate::Error::NoKeyspace), [`Closed`](crate::Error::Closed).
    pub fn iter(&self) -> Result<Range> {
        self.scan(Interval::all()).checked()
    }

    /// The entries whose keys are within `bounds`. Reversed or empty bounds give no entries.
    ///
    /// # Errors
    /// Those of [`iter`](Self::iter).
    pub fn range<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Result<Range> {
        self.scan(Interval::new(&bounds)).checked()
    }

    /// The entries whose keys begin with `prefix`.
    ///
    /// # Errors
    /// Those of [`iter`](Self::iter).
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Range> {
        self.scan(Interval::prefix(prefix.as_ref())).checked()
    }

    /// The changes of `key` up to this version, newest first: see
    /// [`Keyspace::history`](crate::Keyspace::history).
    ///
    /// # Errors
    /// Those of [`Keyspace::history`](crate::Keyspace::history).
    pub fn history(&self, key: impl AsRef<[u8]>) -> Result<Changes> {
        Changes::new(&self.shared, &self.slot, key.as_ref(), self.pin.version())
    }

    fn at(&self) -> Result<At> {
        let _open = self.shared.enter()?;
        follow::reading(&self.shared, || self.pin.at(self.shared.times.get()))
    }

    fn point(&self) -> ReadPoint {
        (&self.pin).into()
    }

    fn scan(&self, interval: Interval) -> Range {
        Range::new(Arc::clone(&self.shared), Arc::clone(&self.slot), self.point(), interval)
    }
}

impl fmt::Debug for Past {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Past")
            .field("keyspace", &self.slot.name)
            .field("version", &self.version())
            .finish_non_exhaustive()
    }
}

/// Keeps a version readable.
///
/// # Errors
/// [`Error::Invalid`] for a version that cannot be read: of a keyspace without history, from before
/// it began, given up, or of the future.
pub(crate) fn pinned(shared: &Shared, slot: &Arc<Slot>, version: u64) -> Result<Arc<Pin>> {
    let _open = shared.enter()?;
    let newest = shared.snapshots().visible().0;
    oldest_version(slot)?;
    if version <= newest
        && let Some(pin) = Pin::new(slot, Seq(version))
    {
        return Ok(pin);
    }
    let from = oldest_version(slot)?;
    let name = &slot.name;
    let place = if version > newest { "in the future" } else { "before its history" };
    Err(Error::invalid(format!(
        "version {version} of keyspace {name} is {place}, which has versions {from} to {newest}"
    )))
}

/// Keeps the oldest version readable that is.
///
/// # Errors
/// [`Error::Invalid`] for a keyspace without history.
pub(crate) fn pinned_oldest(slot: &Arc<Slot>) -> Result<Arc<Pin>> {
    Pin::oldest(slot)?.ok_or_else(|| no_history(slot))
}

/// The oldest version that can be read.
pub(crate) fn oldest_version(slot: &Slot) -> Result<u64> {
    let from = slot.tree()?.oldest_version().map(|from| from.0);
    from.ok_or_else(|| no_history(slot))
}

fn no_history(slot: &Slot) -> Error {
    let name = &slot.name;
    Error::invalid(format!(
        "keyspace {name} keeps no history: only snapshots see earlier versions of it"
    ))
}
