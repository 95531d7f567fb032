//! The changes of a key.

use std::fmt;
use std::iter::FusedIterator;
use std::sync::Arc;

use esker_format::data::Value;
use esker_format::ids::Seq;
use esker_index::Version;

use crate::error::{Error, Result};
use crate::follow;
use crate::large;
use crate::limits::validate_key;
use crate::past::pinned_oldest;
use crate::read_point::Pin;
use crate::shared::Shared;
use crate::slot::Slot;

/// A change of a key.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The version that made it: the number of the commit.
    pub version: u64,
    /// The new value, or `None` where the key was removed.
    pub value: Option<Vec<u8>>,
}

/// The changes of one key, newest first: an iterator over `Result<Change>`. It blocks nothing, and
/// keeps all versions readable while it lives. After an error it is finished.
pub struct Changes {
    shared: Arc<Shared>,
    slot: Arc<Slot>,
    key: Vec<u8>,
    /// Keeps the oldest version that can be read.
    oldest: Arc<Pin>,
    /// Only versions from here on.
    since: Seq,
    /// The newest version that may be next.
    up_to: Option<Seq>,
    /// A version that was looked up already.
    found: Option<Version>,
}

impl Changes {
    /// The changes of `key` up to `up_to`, which is part of the history.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        slot: &Arc<Slot>,
        key: &[u8],
        up_to: Seq,
    ) -> Result<Self> {
        validate_key(key)?;
        let pin = {
            let _open = shared.enter()?;
            pinned_oldest(slot)?
        };
        // What the oldest version itself removed may be given up.
        let since = Seq(pin.version().0.saturating_add(1));
        let (shared, slot) = (Arc::clone(shared), Arc::clone(slot));
        let up_to = Some(up_to);
        Ok(Self { shared, slot, key: key.to_vec(), oldest: pin, since, up_to, found: None })
    }

    /// Only the changes that `version` and later ones made.
    #[must_use]
    pub fn since(mut self, version: u64) -> Self {
        self.since = self.since.max(Seq(version));
        self
    }

    fn step(&mut self) -> Result<Option<Change>> {
        self.shared.check_process()?;
        let shared = Arc::clone(&self.shared);
        let _open = shared.enter()?;
        let newest = self.found.take().map_or_else(|| self.older(), |found| Ok(Some(found)))?;
        let Some(Version { seq, value, .. }) = newest else { return Ok(None) };
        if let Some(value) = value {
            return self.change(seq, Some(value));
        }
        // A removal changes something where the key had a value. Of several, the first one did.
        let mut removed = seq;
        loop {
            let Some(older) = self.older()? else { return Ok(None) };
            let Some(value) = &older.value else {
                removed = older.seq;
                continue;
            };
            if self.had_expired(&older, removed)? {
                return self.change(older.seq, Some(value.clone()));
            }
            self.found = Some(older);
            return self.change(removed, None);
        }
    }

    /// Whether a value had expired when version `removed` removed it: a split may have left it
    /// behind, so that the removal is not found any more.
    fn had_expired(&self, value: &Version, removed: Seq) -> Result<bool> {
        let Some((until, times)) = value.until.zip(self.shared.times.get()) else {
            return Ok(false);
        };
        let time = follow::reading(&self.shared, || times.of(removed))?;
        Ok(time.is_some_and(|time| until <= time))
    }

    /// The next older version.
    fn older(&mut self) -> Result<Option<Version>> {
        let oldest = self.oldest.version();
        let Some(up_to) = self.up_to.filter(|up_to| *up_to >= oldest) else { return Ok(None) };
        let found = follow::reading(&self.shared, || {
            Ok(self.slot.read(|tree| tree.version(&self.key, up_to))??)
        })?;
        let older = found.as_ref().and_then(|found| found.seq.0.checked_sub(1));
        self.up_to = older.map(Seq).filter(|seq| *seq > Seq(0));
        Ok(found)
    }

    fn change(&mut self, seq: Seq, value: Option<Value>) -> Result<Option<Change>> {
        if seq < self.since {
            self.finish();
            return Ok(None);
        }
        let fetch = |value| large::fetch(&self.shared, &self.slot, &self.key, value);
        match follow::reading(&self.shared, || value.clone().map(fetch).transpose()) {
            Err(error @ (Error::Damaged { .. } | Error::Io(_))) => {
                let found = self.slot.read(|tree| tree.version(&self.key, seq))??;
                // Or it has been erased.
                let is_there = found.is_some_and(|found| found.seq == seq);
                if is_there { Err(error) } else { Ok(None) }
            }
            value => Ok(Some(Change { version: seq.0, value: value? })),
        }
    }

    fn finish(&mut self) {
        (self.up_to, self.found) = (None, None);
    }
}

impl Iterator for Changes {
    type Item = Result<Change>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step().inspect_err(|_| self.finish()).transpose()
    }
}

impl FusedIterator for Changes {}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Key and values are left out: they do not belong in logs.
        f.debug_struct("Changes").field("keyspace", &self.slot.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The value is left out: it does not belong in logs.
        f.debug_struct("Change").field("version", &self.version).finish_non_exhaustive()
    }
}
