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
//!
//! Times of versions that no keyspace can read any more are removed, and what they leave in the
//! past of the keyspace of times is given up.

use std::borrow::Cow;
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use esker_format::action::{KeyRange, WriteOp};
use esker_format::data::{Data, Value};
use esker_format::ids::{Moment, Seq};
use esker_index::{Index, ScanRequest};
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
    /// The next commit that writes a moment removes the entries with keys below; 0 for none.
    unneeded: AtomicU64,
}

/// The entry of a moment that a commit is about to write.
#[derive(Debug)]
pub(crate) struct Stamp<'a> {
    slot: &'a Arc<Slot>,
    key: [u8; 8],
    value: [u8; 8],
    /// Entries before this key are not needed any more.
    unneeded: Option<[u8; 8]>,
}

/// Keeps other commits from writing a moment.
#[derive(Debug)]
pub(crate) struct Writing<'a> {
    times: &'a Times,
    now: Moment,
    /// The removal that its commit makes, as [`Times`] has it.
    unneeded: u64,
    _lock: MutexGuard<'a, ()>,
}

impl Times {
    /// The times that are in `slot`, as of `visible`. Where they cannot be read, the clock alone
    /// keeps moments from falling.
    pub fn open(slot: Arc<Slot>, visible: Seq) -> Self {
        let times = Self { slot, next: 0.into(), writing: Mutex::new(()), unneeded: 0.into() };
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
        if writes.iter().any(keeps_history) { self.due_now(snapshots) } else { None }
    }

    /// The moment that a commit has to write, if it has not been written.
    pub fn due_now(&self, snapshots: &Snapshots) -> Option<(Stamp<'_>, Writing<'_>)> {
        if !self.is_due(snapshots.now()) {
            return None;
        }
        let lock = self.writing.lock();
        let (now, visible) = (snapshots.now(), snapshots.visible());
        if !self.is_due(now) {
            return None;
        }
        let (key, value) = (visible.0.to_be_bytes(), now.0.to_be_bytes());
        let unneeded = self.unneeded.load(Ordering::Relaxed);
        let removed = (unneeded > 0).then(|| unneeded.to_be_bytes());
        let stamp = Stamp { slot: &self.slot, key, value, unneeded: removed };
        Some((stamp, Writing { times: self, now, unneeded, _lock: lock }))
    }

    /// The time of a version; `None` before the first one. A lookup.
    pub fn of(&self, version: Seq) -> Result<Option<Moment>> {
        time_of(&self.slot, version)
    }

    /// No version below `oldest` can be read any more: what only those need is removed by the next
    /// commit that writes a moment. A lookup.
    pub fn trim(&self, oldest: Seq) -> Result<()> {
        if let Some((key, _)) = entry_of(&self.slot, oldest)? {
            self.unneeded.fetch_max(key, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Has the merges of an index learn the times of versions.
    pub fn connect(&self, tree: &Index) {
        let slot = Arc::clone(&self.slot);
        tree.set_times(Arc::new(move |version| time_of(&slot, version).ok().flatten()));
    }

    /// The last version up to `visible` that was committed at `moment` or before. As many lookups
    /// as a version has bits, at most.
    pub fn version(&self, moment: Moment, visible: Seq) -> Result<Seq> {
        // Versions up to `low` are early enough, or given up, and those from `high` on are not.
        let (mut low, mut high) = (oldest(&self.slot)?.0, visible.0.saturating_add(1));
        low = low.saturating_sub(1);
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

/// The time of a version, as the keyspace of times in `slot` has it; `None` before the first one.
fn time_of(slot: &Slot, version: Seq) -> Result<Option<Moment>> {
    Ok(entry_of(slot, version)?.map(|(_, moment)| moment))
}

/// The first version that has a time, or had no moment before it.
fn oldest(slot: &Slot) -> Result<Seq> {
    Ok(slot.tree()?.oldest_version().unwrap_or_default())
}

/// The entry that has the time of a version; `None` where there is none, or not any more.
fn entry_of(slot: &Slot, version: Seq) -> Result<Option<(u64, Moment)>> {
    if version < oldest(slot)? {
        return Ok(None);
    }
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
    let batch = slot.read(|tree| tree.scan(&request))??;
    let Some((key, value)) = batch.entries.into_iter().next() else { return Ok(None) };
    let number = |bytes: Vec<u8>| bytes.try_into().map(u64::from_be_bytes).ok();
    let moment = match value {
        Value::Inline(value) => number(value),
        Value::Blob(_) | Value::Operand(_) => None,
    };
    let entry = number(key).zip(moment.map(Moment));
    let foreign = || Error::invalid(format!("keyspace {NAME} has an entry that is no time"));
    entry.map(Some).ok_or_else(foreign)
}

impl Stamp<'_> {
    /// The writes of a commit with that of the moment.
    pub fn with<'a>(&'a self, writes: &[Write<'a>]) -> Cow<'a, [Write<'a>]> {
        let slot = self.slot;
        let place = writes.partition_point(|write| write.slot.id < slot.id);
        let (before, behind) = writes.split_at_checked(place).unwrap_or((writes, &[]));
        let unneeded = self.unneeded.as_ref().map(|end| KeyRange { begin: &[], end: Some(end) });
        let removal = unneeded.map(WriteOp::DeleteRange);
        let put = WriteOp::Point(&self.key, Data::Put(&self.value));
        let own: Vec<_> =
            removal.into_iter().chain([put]).map(|action| Write { slot, action }).collect();
        Cow::Owned([before, &own, behind].concat())
    }
}

impl Writing<'_> {
    /// The commit is ordered. Without this, its moment and its removal stay due.
    pub fn end(self) {
        self.times.note(self.now);
        // More may have become unneeded meanwhile.
        let all = &self.times.unneeded;
        let _more = all.compare_exchange(self.unneeded, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Whether a keyspace is the one of times.
pub(crate) fn is_of_times(slot: &Slot) -> bool {
    slot.name == NAME
}

/// The keyspaces of users among `slots`.
pub(crate) fn users<'a>(
    slots: impl IntoIterator<Item = &'a Arc<Slot>>,
) -> impl Iterator<Item = &'a Arc<Slot>> {
    slots.into_iter().filter(|slot| !is_of_times(slot))
}

/// The first version that one of the keyspaces of users among `slots` can read.
pub(crate) fn oldest_of<'a>(slots: impl IntoIterator<Item = &'a Arc<Slot>>) -> Option<Seq> {
    let trees = users(slots).filter_map(|slot| slot.tree().ok());
    trees.filter_map(|tree| tree.oldest_version()).min()
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
