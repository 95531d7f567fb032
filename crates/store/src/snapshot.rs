//! A view of the whole store at one sequence number.

use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;

use esker_device::Device;
use esker_substrate::snapshots::SnapshotGuard;

use crate::error::Result;
use crate::keyspace::Keyspace;
use crate::large::{self, ValueReader};
use crate::range::{Interval, Range};
use crate::read::{self, Entry};
use crate::shared::Shared;

/// All keyspaces as they were at one moment. Clones see the same moment. A snapshot keeps versions
/// that merges would otherwise drop, until its last clone (and the last range made from it) is
/// dropped. It never blocks a write or a merge.
#[derive(Clone)]
pub struct Snapshot {
    shared: Arc<Shared>,
    guard: SnapshotGuard,
}

impl Snapshot {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let guard = shared.snapshots().register();
        Self { shared, guard }
    }

    /// The newest sequence number that the snapshot sees.
    #[must_use]
    pub const fn seq(&self) -> u64 {
        self.guard.seq().0
    }

    /// The value of `key` in `keyspace` at the snapshot's moment.
    ///
    /// # Errors
    /// Those of [`Keyspace::get`]; [`Invalid`](crate::Error::Invalid) for a keyspace of another
    /// store.
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        keyspace.must_be_of(&self.shared)?;
        read::get(&self.shared, &keyspace.slot, key.as_ref(), Some(self.guard.at()))
    }

    /// Whether `key` had a value in `keyspace`.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn contains(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<bool> {
        keyspace.must_be_of(&self.shared)?;
        read::contains(&self.shared, &keyspace.slot, key.as_ref(), Some(self.guard.at()))
    }

    /// The value of `key` in `keyspace` at the snapshot's moment, as a stream.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn reader(
        &self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<ValueReader>> {
        keyspace.must_be_of(&self.shared)?;
        large::reader(&self.shared, &keyspace.slot, key.as_ref(), self.guard.clone().into())
    }

    /// The values of all `keys` in `keyspace`, in their order.
    ///
    /// # Errors
    /// Those of [`get`](Self::get), of any of the keys.
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        keyspace.must_be_of(&self.shared)?;
        read::multi_get(&self.shared, &keyspace.slot, keys, self.guard.at())
    }

    /// The entry of `keyspace` with the smallest key.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn first(&self, keyspace: &Keyspace) -> Result<Option<Entry>> {
        self.scan(keyspace, Interval::all())?.one(false)
    }

    /// The entry of `keyspace` with the largest key.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn last(&self, keyspace: &Keyspace) -> Result<Option<Entry>> {
        self.scan(keyspace, Interval::all())?.one(true)
    }

    /// All entries of `keyspace`, in the order of their keys.
    ///
    /// # Errors
    /// Those of [`Keyspace::iter`]; [`Invalid`](crate::Error::Invalid) for a keyspace of another
    /// store.
    pub fn iter(&self, keyspace: &Keyspace) -> Result<Range> {
        self.scan(keyspace, Interval::all())?.checked()
    }

    /// The entries of `keyspace` whose keys are within `bounds`.
    ///
    /// # Errors
    /// Those of [`iter`](Self::iter).
    pub fn range<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        bounds: impl RangeBounds<K>,
    ) -> Result<Range> {
        self.scan(keyspace, Interval::new(&bounds))?.checked()
    }

    /// The entries of `keyspace` whose keys begin with `prefix`.
    ///
    /// # Errors
    /// Those of [`iter`](Self::iter).
    pub fn prefix(&self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> Result<Range> {
        self.scan(keyspace, Interval::prefix(prefix.as_ref()))?.checked()
    }

    fn scan(&self, keyspace: &Keyspace, interval: Interval) -> Result<Range> {
        keyspace.must_be_of(&self.shared)?;
        let (shared, slot) = (Arc::clone(&self.shared), Arc::clone(&keyspace.slot));
        Ok(Range::new(shared, slot, self.guard.clone().into(), interval))
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut printed = f.debug_struct("Snapshot");
        self.shared.print_planted(&mut printed);
        printed
            .field("seq", &self.seq())
            .field("location", &self.shared.device.location())
            .finish_non_exhaustive()
    }
}
