//! The times of versions: a keyspace of Esker's own, which keeps history itself.
//!
//! A commit to a keyspace with history also writes the moment at which it is made, unless the last
//! moment that was written is as late. Its key is the newest number before the commit. So the last
//! entry that a version sees has the version's time, and it is found by one lookup: of the entries
//! with keys up to the version, only the last one may belong to a later commit.
//!
//! Invariant: moments grow with the numbers of the commits that write them. A commit that writes
//! one has the lock of [`Times`] from before it reads the clock until it is ordered, and a commit
//! that writes none comes after a moment that is at least its own. Where the clock of a later
//! opening is behind, no moment is written until it has caught up.

use std::borrow::Cow;
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use esker_format::action::WriteOp;
use esker_format::data::{Data, Value};
use esker_format::ids::{Moment, Seq};
use esker_index::ScanRequest;
use esker_substrate::snapshots::{At, Snapshots};
use esker_substrate::sync::atomic::{AtomicU64, Ordering};
use esker_substrate::sync::{Mutex, MutexGuard};

use crate::error::{Error, Result};
use crate::slot::Slot;
use crate::write_request::Write;

/// The keyspace's name. Names of users do not begin as it does.
pub(crate) const NAME: &str = "esker.times";
/// The beginning of the names of Esker's own keyspaces.
pub(crate) const RESERVED: &str = "esker.";

/// The times of a store's versions.
#[derive(Debug)]
pub(crate) struct Times {
    slot: Arc<Slot>,
    /// One more than the last moment that was written, 0 before the first.
    next: AtomicU64,
    /// Held by the commit that writes a moment.
    writing: Mutex<()>,
}

/// The entry of a moment that a commit is about to write.
#[derive(Debug)]
pub(crate) struct Stamp<'a> {
    slot: &'a Arc<Slot>,
    key: [u8; 8],
    value: [u8; 8],
}

/// Keeps other commits from writing a moment.
#[derive(Debug)]
pub(crate) struct Writing<'a> {
    times: &'a Times,
    now: Moment,
    _lock: MutexGuard<'a, ()>,
}

impl Times {
    /// The times that are in `slot`, as of `visible`. Where they cannot be read, the clock alone
    /// keeps moments from falling.
    pub fn open(slot: Arc<Slot>, visible: Seq) -> Self {
        let times = Self { slot, next: 0.into(), writing: Mutex::new(()) };
        match times.of(visible) {
            Ok(newest) => newest.into_iter().for_each(|newest| times.note(newest)),
            Err(error) => tracing::warn!(%error, "the newest version's time cannot be read"),
        }
        times
    }

    fn note(&self, moment: Moment) {
        self.next.fetch_max(moment.0.saturating_add(1), Ordering::Release);
    }

    fn is_due(&self, now: Moment) -> bool {
        now.0 >= self.next.load(Ordering::Acquire)
    }

    /// The moment that a commit of `writes` has to write, if it does.
    pub fn due(
        &self,
        snapshots: &Snapshots,
        writes: &[Write<'_>],
    ) -> Option<(Stamp<'_>, Writing<'_>)> {
        let keeps_history =
            |write: &Write<'_>| write.slot.tree().is_ok_and(|tree| tree.keeps_history());
        if !writes.iter().any(keeps_history) || !self.is_due(snapshots.now()) {
            return None;
        }
        let lock = self.writing.lock();
        let (now, visible) = (snapshots.now(), snapshots.visible());
        if !self.is_due(now) {
            return None;
        }
        let (key, value) = (visible.0.to_be_bytes(), now.0.to_be_bytes());
        let stamp = Stamp { slot: &self.slot, key, value };
        Some((stamp, Writing { times: self, now, _lock: lock }))
    }

    /// The time of a version; `None` before the first one. A lookup.
    pub fn of(&self, version: Seq) -> Result<Option<Moment>> {
        let upper = version.0.to_be_bytes();
        let request = ScanRequest {
            at: At { seq: version, now: Moment(0) },
            lower: Bound::Unbounded,
            upper: Bound::Included(&upper),
            reverse: true,
            entries_max: 1,
            bytes_max: usize::MAX,
            skip_damaged: false,
        };
        let batch = self.slot.read(|tree| tree.scan(&request))??;
        let Some((_, value)) = batch.entries.into_iter().next() else { return Ok(None) };
        let moment = match value {
            Value::Inline(value) => value.try_into().map(u64::from_be_bytes).ok(),
            Value::Blob(_) | Value::Operand(_) => None,
        };
        let foreign = || Error::invalid(format!("keyspace {NAME} has an entry that is no time"));
        moment.map(Moment).map(Some).ok_or_else(foreign)
    }

    /// The last version up to `visible` that was committed at `moment` or before. As many lookups
    /// as a version has bits, at most.
    pub fn version(&self, moment: Moment, visible: Seq) -> Result<Seq> {
        // Versions up to `low` are early enough, and those from `high` on are not.
        let (mut low, mut high) = (0, visible.0.saturating_add(1));
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            match self.of(Seq(middle))?.is_none_or(|time| time <= moment) {
                true => low = middle,
                false => high = middle,
            }
        }
        Ok(Seq(low))
    }
}

impl Stamp<'_> {
    /// The writes of a commit with that of the moment.
    pub fn with<'a>(&'a self, writes: &[Write<'a>]) -> Cow<'a, [Write<'a>]> {
        let slot = self.slot;
        let place = writes.partition_point(|write| write.slot.id < slot.id);
        let (before, behind) = writes.split_at_checked(place).unwrap_or((writes, &[]));
        let action = WriteOp::Point(&self.key, Data::Put(&self.value));
        Cow::Owned([before, &[Write { slot, action }], behind].concat())
    }
}

impl Writing<'_> {
    /// The commit is ordered. Without this, its moment stays due.
    pub fn end(self) {
        self.times.note(self.now);
    }
}

/// Whether a keyspace is the one of times.
pub(crate) fn is_of_times(slot: &Slot) -> bool {
    slot.name == NAME
}

/// A moment as users know it.
pub(crate) fn system_time(moment: Moment) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(moment.0))
}

/// The moment of a time; the first one for times before 1970.
pub(crate) fn moment(time: SystemTime) -> Moment {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Moment(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
