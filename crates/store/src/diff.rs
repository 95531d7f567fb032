//! What changed in a keyspace with history between two of its versions.
//!
//! The index finds the keys that have an entry of such a version, or a removal. What the changes
//! are, the walk over a key's versions decides, or the comparison of its two values.

use std::fmt;
use std::iter::FusedIterator;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use crate::changes::Changes;
use crate::error::{Error, Result};
use crate::past::{Past, oldest_version, pinned};
use crate::range::{Interval, Range};
use crate::read_point::Pin;
use crate::shared::Shared;
use crate::slot::Slot;

/// A change of one key of a keyspace.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyChange {
    /// The key.
    pub key: Vec<u8>,
    /// The version that made the change: the number of the commit.
    pub version: u64,
    /// The new value, or `None` where the key was removed.
    pub value: Option<Vec<u8>>,
}

/// The changes of all keys, by key, those of a key newest first: an iterator over
/// `Result<KeyChange>`. It blocks nothing, and keeps the versions readable while it lives. After an
/// error it is finished.
pub struct KeyChanges {
    keys: ChangedKeys,
    /// The changes of the current key.
    current: Option<(Vec<u8>, Changes)>,
}

/// A key whose value is another one in the second of two versions.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Difference {
    /// The key.
    pub key: Vec<u8>,
    /// The value in the first version, or `None` where there was none.
    pub before: Option<Vec<u8>>,
    /// The value in the second version, or `None` where there is none.
    pub after: Option<Vec<u8>>,
}

/// The keys whose values differ between two versions, in their order: an iterator over
/// `Result<Difference>`. It blocks nothing, and keeps both versions readable while it lives. After
/// an error it is finished.
pub struct Diff {
    keys: ChangedKeys,
    before: Past,
    after: Past,
}

/// The keys that may have been changed after a version and up to another one.
struct ChangedKeys {
    shared: Arc<Shared>,
    slot: Arc<Slot>,
    since: Arc<Pin>,
    up_to: Arc<Pin>,
    range: Range,
}

impl ChangedKeys {
    /// With `expired`, also those whose values may have expired meanwhile.
    fn new(
        shared: &Arc<Shared>,
        slot: &Arc<Slot>,
        (since, up_to): (u64, u64),
        expired: bool,
    ) -> Result<Self> {
        let since = pinned(shared, slot, since)?;
        let up_to = pinned(shared, slot, up_to)?;
        let (shared, slot) = (Arc::clone(shared), Arc::clone(slot));
        let none = Interval::none();
        let range = Range::new(Arc::clone(&shared), Arc::clone(&slot), (&up_to).into(), none);
        let range = range.changed_since(since.version(), expired && slot.may_expire()?);
        let mut keys = Self { shared, slot, since, up_to, range };
        keys.restrict(Interval::all());
        Ok(keys)
    }

    fn restrict(&mut self, interval: Interval) {
        if self.since.version() < self.up_to.version() {
            self.range.restrict(interval);
        }
    }

    fn next(&mut self) -> Result<Option<Vec<u8>>> {
        Ok(self.range.next().transpose()?.map(|(key, _)| key))
    }

    fn finish(&mut self) {
        self.range.restrict(Interval::none());
    }

    fn print(&self, f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
        f.debug_struct(name)
            .field("keyspace", &self.slot.name)
            .field("since", &self.since.version())
            .field("up_to", &self.up_to.version())
            .finish_non_exhaustive()
    }
}

impl KeyChanges {
    /// The changes that the `versions` made.
    ///
    /// # Errors
    /// `Invalid` where not all of them are in the history.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        slot: &Arc<Slot>,
        versions: &impl RangeBounds<u64>,
    ) -> Result<Self> {
        let (oldest, newest) = {
            let _open = shared.enter()?;
            (oldest_version(slot)?, shared.snapshots().visible().0)
        };
        // The version before the first one.
        let since = match versions.start_bound() {
            Bound::Unbounded => oldest,
            Bound::Included(first) if *first <= oldest => {
                return Err(not_kept(slot, *first, oldest, newest));
            }
            Bound::Included(first) => first.saturating_sub(1),
            Bound::Excluded(before) => *before,
        };
        let up_to = match versions.end_bound() {
            Bound::Unbounded => newest,
            Bound::Included(last) => *last,
            Bound::Excluded(end) => end.saturating_sub(1),
        };
        let keys = ChangedKeys::new(shared, slot, (since, up_to.max(since)), false)?;
        Ok(Self { keys, current: None })
    }

    /// Only the changes of keys within `bounds`. To be called before the first one is asked for.
    #[must_use]
    pub fn range<K: AsRef<[u8]>>(mut self, bounds: impl RangeBounds<K>) -> Self {
        self.keys.restrict(Interval::new(&bounds));
        self
    }

    /// Only the changes of keys that begin with `prefix`: as [`range`](Self::range).
    #[must_use]
    pub fn prefix(mut self, prefix: impl AsRef<[u8]>) -> Self {
        self.keys.restrict(Interval::prefix(prefix.as_ref()));
        self
    }

    fn step(&mut self) -> Result<Option<KeyChange>> {
        loop {
            if let Some((key, changes)) = &mut self.current {
                if let Some(change) = changes.next().transpose()? {
                    let (version, value) = (change.version, change.value);
                    return Ok(Some(KeyChange { key: key.clone(), version, value }));
                }
                self.current = None;
            }
            let Some(key) = self.keys.next()? else { return Ok(None) };
            let (since, up_to) = (self.keys.since.version(), self.keys.up_to.version());
            let changes = Changes::new(&self.keys.shared, &self.keys.slot, &key, up_to)?;
            self.current = Some((key, changes.since(since.0.saturating_add(1))));
        }
    }

    fn finish(&mut self) {
        self.current = None;
        self.keys.finish();
    }
}

impl Diff {
    /// The differences between two versions.
    ///
    /// # Errors
    /// `Invalid` where one is not in the history.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        slot: &Arc<Slot>,
        before: u64,
        after: u64,
    ) -> Result<Self> {
        // Values that expire do so without a commit.
        let versions = (before.min(after), before.max(after));
        let keys = ChangedKeys::new(shared, slot, versions, true)?;
        let past = |version| Past::new(shared, slot, version);
        Ok(Self { keys, before: past(before)?, after: past(after)? })
    }

    /// Only keys within `bounds`. To be called before the first one is asked for.
    #[must_use]
    pub fn range<K: AsRef<[u8]>>(mut self, bounds: impl RangeBounds<K>) -> Self {
        self.keys.restrict(Interval::new(&bounds));
        self
    }

    /// Only keys that begin with `prefix`: as [`range`](Self::range).
    #[must_use]
    pub fn prefix(mut self, prefix: impl AsRef<[u8]>) -> Self {
        self.keys.restrict(Interval::prefix(prefix.as_ref()));
        self
    }

    fn step(&mut self) -> Result<Option<Difference>> {
        while let Some(key) = self.keys.next()? {
            let (before, after) = (self.before.get(&key)?, self.after.get(&key)?);
            if before != after {
                return Ok(Some(Difference { key, before, after }));
            }
        }
        Ok(None)
    }
}

fn not_kept(slot: &Slot, version: u64, oldest: u64, newest: u64) -> Error {
    let name = &slot.name;
    Error::invalid(format!(
        "the changes of version {version} of keyspace {name} are not kept: those after version \
         {oldest} are, up to {newest}"
    ))
}

impl Iterator for KeyChanges {
    type Item = Result<KeyChange>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step().inspect_err(|_| self.finish()).transpose()
    }
}

impl FusedIterator for KeyChanges {}

impl Iterator for Diff {
    type Item = Result<Difference>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step().inspect_err(|_| self.keys.finish()).transpose()
    }
}

impl FusedIterator for Diff {}

impl fmt::Debug for KeyChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Key and value are left out: they do not belong in logs.
        f.debug_struct("KeyChange").field("version", &self.version).finish_non_exhaustive()
    }
}

impl fmt::Debug for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Key and values are left out: they do not belong in logs.
        f.debug_struct("Difference").finish_non_exhaustive()
    }
}

impl fmt::Debug for KeyChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.keys.print(f, "KeyChanges")
    }
}

impl fmt::Debug for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.keys.print(f, "Diff")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_users_is_printed() {
        let (key, value) = (b"k".to_vec(), Some(b"v".to_vec()));
        let change = KeyChange { key: key.clone(), version: 7, value: value.clone() };
        assert_eq!(format!("{change:?}"), "KeyChange { version: 7, .. }");
        let difference = Difference { key, before: value, after: None };
        assert_eq!(format!("{difference:?}"), "Difference { .. }");
    }
}
