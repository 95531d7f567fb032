//! Scans, from both ends.
//!
//! A range fetches batches under a short shared use of the tree. Between batches it holds only a
//! registered sequence number, and copies of at most 256 KiB of blocks for each end, so a loop body
//! may write to the same keyspace, or wait for an hour.
//!
//! Invariant: every key of the interval is in exactly one of: handed out, `front`, `rest`, `back`,
//! `damaged`; and those of `front` are less than those of `rest`, which are less than those of
//! `back`. The ends therefore meet without a gap or a repeat.
//! Invariant: `front` ascends and `back` descends, and each is fetched only when it is empty.

use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use esker_format::KEY_BYTES_MAX;
use esker_format::action::KeyRangeBuf;
use esker_format::data::Value;
use esker_format::ids::Seq;
use esker_index::{EntriesIter, HeldBlocks, Index, ScanBatch, ScanRequest};

use crate::error::{Error, Result};
use crate::follow;
use crate::large;
use crate::maintenance;
use crate::read::Entry;
use crate::read_point::ReadPoint;
use crate::shared::Shared;
use crate::slot::Slot;

/// The first batch holds a scan of a hundred entries, because each further batch enters every run
/// again. Later batches grow up to the maximum.
const BATCH_ENTRIES_FIRST: usize = 128;
const BATCH_ENTRIES_MAX: usize = 1024;
const BATCH_BYTES_MAX: usize = 256 << 10;
/// Damage beyond this many ranges is folded into the last one.
const DAMAGED_RANGES_MAX: usize = 1024;

/// The entries of a keyspace, or of a part of it, as of one moment: an iterator from both ends over
/// `Result<(key, value)>`. While it is kept, its versions are not dropped; it blocks no other
/// operation. After an error it is finished; with [`skip_damaged`](Self::skip_damaged) damage is no
/// error.
pub struct Range {
    shared: Arc<Shared>,
    slot: Arc<Slot>,
    point: ReadPoint,
    /// Only keys that were changed after this version, with empty values; a pin keeps it. With
    /// `true`, all keys.
    changed_since: Option<(Seq, bool)>,
    rest: Option<Interval>,
    front: End,
    back: End,
    batch_entries: usize,
    /// The number of entries requested so far. The next batch is as large as all before it, so that
    /// at most half of what is read is not used.
    fetched_entries: usize,
    /// Entries that may still be handed out.
    left_entries: usize,
    /// The entry that `next_entry` has handed out, where it is not in a batch.
    lent: Entry,
    skip_damaged: bool,
    damaged: Vec<DamagedRange>,
}

/// What was fetched from one end.
#[derive(Default)]
struct End {
    /// The entries that are left of it.
    entries: EntriesIter,
    /// Blocks in memory that the next batch begins with.
    held: HeldBlocks,
}

/// A part of the key space that could not be read.
#[derive(Clone)]
#[non_exhaustive]
pub struct DamagedRange {
    /// The first key that may be missing.
    pub from: Vec<u8>,
    /// The first key after `from` that is not affected; `None` if all later keys may be.
    pub to: Option<Vec<u8>>,
    /// The damage found there.
    pub error: Error,
}

/// Keys between two bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interval {
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
}

impl Interval {
    pub const fn all() -> Self {
        Self { lower: Bound::Unbounded, upper: Bound::Unbounded }
    }

    pub const fn none() -> Self {
        Self { lower: Bound::Unbounded, upper: Bound::Excluded(Vec::new()) }
    }

    pub fn new<K: AsRef<[u8]>>(bounds: &impl RangeBounds<K>) -> Self {
        Self {
            lower: shortened(bounds.start_bound(), true),
            upper: shortened(bounds.end_bound(), false),
        }
    }

    pub fn prefix(prefix: &[u8]) -> Self {
        let all = Self { lower: Bound::Included(prefix.to_vec()), upper: after_prefix(prefix) };
        Self::new(&(all.lower, all.upper))
    }

    pub fn lower(&self) -> Bound<&[u8]> {
        as_slice(&self.lower)
    }

    pub fn upper(&self) -> Bound<&[u8]> {
        as_slice(&self.upper)
    }

    /// The keys from a first one (included) up to an end (excluded); `None` when there are none.
    pub fn keys(&self) -> Option<KeyRangeBuf> {
        let begin = match &self.lower {
            Bound::Unbounded => Vec::new(),
            Bound::Included(key) => key.clone(),
            Bound::Excluded(key) => next_key(key)?,
        };
        let end = match &self.upper {
            Bound::Unbounded => None,
            Bound::Included(key) => next_key(key),
            Bound::Excluded(key) => Some(key.clone()),
        };
        let keys = KeyRangeBuf { begin, end };
        keys.end.as_ref().is_none_or(|end| keys.begin < *end).then_some(keys)
    }

    pub fn is_empty(&self) -> bool {
        use Bound::{Excluded, Included, Unbounded};
        match (&self.lower, &self.upper) {
            (Unbounded, Excluded(upper)) => upper.is_empty(),
            (Unbounded, _) | (_, Unbounded) => false,
            (Included(lower), Included(upper)) => lower > upper,
            (Included(lower), Excluded(upper)) | (Excluded(lower), Included(upper)) => {
                lower >= upper
            }
            (Excluded(lower), Excluded(upper)) => lower >= upper,
        }
    }
}

/// A bound that no key can reach, because it is longer than any key, is replaced by one of
/// legal length between the same keys: those above a long bound are those above its beginning.
fn shortened<K: AsRef<[u8]>>(bound: Bound<&K>, is_lower: bool) -> Bound<Vec<u8>> {
    let bound = bound.map(AsRef::as_ref);
    match bound {
        Bound::Included(key) | Bound::Excluded(key) if key.len() > KEY_BYTES_MAX => {
            let reachable = key.get(..KEY_BYTES_MAX).unwrap_or_default().to_vec();
            if is_lower { Bound::Excluded(reachable) } else { Bound::Included(reachable) }
        }
        bound => bound.map(<[u8]>::to_vec),
    }
}

/// The bound just above all keys with `prefix`.
fn after_prefix(prefix: &[u8]) -> Bound<Vec<u8>> {
    let mut next = prefix.to_vec();
    while let Some(last) = next.pop() {
        if let Some(above) = last.checked_add(1) {
            next.push(above);
            return Bound::Excluded(next);
        }
    }
    Bound::Unbounded
}

/// The least key above `key`.
fn next_key(key: &[u8]) -> Option<Vec<u8>> {
    if key.len() < KEY_BYTES_MAX {
        return Some([key, &[0]].concat());
    }
    match after_prefix(key) {
        Bound::Excluded(next) | Bound::Included(next) => Some(next),
        Bound::Unbounded => None,
    }
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

impl Range {
    pub(crate) fn new(
        shared: Arc<Shared>,
        slot: Arc<Slot>,
        point: ReadPoint,
        interval: Interval,
    ) -> Self {
        Self {
            shared,
            slot,
            point,
            changed_since: None,
            rest: Some(interval).filter(|interval| !interval.is_empty()),
            front: End::default(),
            back: End::default(),
            batch_entries: BATCH_ENTRIES_FIRST,
            fetched_entries: 0,
            left_entries: usize::MAX,
            lent: Entry::default(),
            skip_damaged: false,
            damaged: Vec::new(),
        }
    }

    /// Fails now, rather than at the first entry, when the keyspace has been dropped.
    pub(crate) fn checked(self) -> Result<Self> {
        {
            let _open = self.shared.enter()?;
            let _tree = self.slot.tree()?;
        }
        Ok(self)
    }

    /// Only the keys that may have been changed after version `since`, with empty values; with
    /// `every` all keys.
    pub(crate) const fn changed_since(mut self, since: Seq, every: bool) -> Self {
        self.changed_since = Some((since, every));
        self
    }

    /// Only the keys of an interval, before the first entry is asked for.
    pub(crate) fn restrict(&mut self, interval: Interval) {
        self.rest = Some(interval).filter(|interval| !interval.is_empty());
    }

    /// Fetches one entry first: the caller is expected to need no more.
    pub(crate) const fn for_one(mut self) -> Self {
        self.batch_entries = 1;
        self
    }

    /// At most `entries` more entries, from both ends together. Unlike [`Iterator::take`] it tells
    /// the range what will be wanted: no entries beyond them are read, and those are read at once.
    #[must_use]
    pub fn limit(mut self, entries: usize) -> Self {
        self.left_entries = self.left_entries.min(entries);
        if self.fetched_entries == 0 {
            self.batch_entries = self.left_entries.min(BATCH_ENTRIES_MAX);
        }
        self
    }

    /// The next key with its value, as the iterator gives it, without copies: they stay valid
    /// until the range is used again. Only values that are blobs are copied, and one entry in
    /// 16 KiB.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let db = esker::Db::open(folder.path())?;
    /// # let keyspace = db.keyspace("default", esker::KeyspaceOptions::default())?;
    /// keyspace.insert("a", "1")?;
    /// keyspace.insert("b", "2")?;
    /// let (mut range, mut bytes) = (keyspace.range("a"..)?, 0);
    /// while let Some((key, value)) = range.next_entry()? {
    ///     bytes += key.len() + value.len();
    /// }
    /// assert_eq!(bytes, 4);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of the iterator; after one the range is finished.
    pub fn next_entry(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if self.left_entries > 0 && self.front.entries.lends() {
            self.shared.check_process()?;
            self.left_entries -= 1;
            return Ok(self.front.entries.next_lent());
        }
        self.next_unlent()
    }

    /// The same, where the next entry may have to be fetched, or copied.
    #[cold]
    fn next_unlent(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if self.left_entries > 0 && self.front.entries.len() == 0 {
            self.fetch(false).inspect_err(|_| self.finish())?;
        }
        if self.left_entries > 0 && self.front.entries.lends() {
            self.left_entries -= 1;
            return Ok(self.front.entries.next_lent());
        }
        let Some(entry) = self.next().transpose()? else { return Ok(None) };
        self.lent = entry;
        Ok(Some((&self.lent.0, &self.lent.1)))
    }

    /// Fails in a child by `fork`.
    pub(crate) fn check_process(&self) -> Result<()> {
        self.shared.check_process()
    }

    /// Only the first or the last entry.
    pub(crate) fn one(self, last: bool) -> Result<Option<Entry>> {
        let mut range = self.for_one();
        if last { range.next_back().transpose() } else { range.next().transpose() }
    }

    /// Continues after blocks that cannot be read instead of ending with an error;
    /// [`damaged`](Self::damaged) then reports what may be missing.
    #[must_use]
    pub const fn skip_damaged(mut self) -> Self {
        self.skip_damaged = true;
        self
    }

    /// The damage skipped so far, in the order of discovery. Beyond 1024 ranges the last one is
    /// widened to cover all further damage.
    #[must_use]
    pub fn damaged(&self) -> &[DamagedRange] {
        &self.damaged
    }

    const fn end_mut(&mut self, reverse: bool) -> &mut End {
        if reverse { &mut self.back } else { &mut self.front }
    }

    /// Fetches from one end until there is an entry or nothing is left.
    fn fetch(&mut self, reverse: bool) -> Result<()> {
        while self.rest.is_some() {
            // The last batch is empty: its memory is not needed while the next one is read.
            let End { mut held, .. } = std::mem::take(self.end_mut(reverse));
            let Some(rest) = &self.rest else { break };
            let batch = self.read_batch(rest, reverse, &mut held)?;
            self.fetched_entries = self.fetched_entries.saturating_add(self.batch_entries);
            let batch_entries = self.fetched_entries.min(BATCH_ENTRIES_MAX);
            self.batch_entries = batch_entries.min(self.left_entries);
            for range in batch.damaged {
                self.note_damage(range.from, range.to, range.error.into());
            }
            self.rest = batch.resume.and_then(|bound| self.remaining(bound, reverse));
            let end = self.end_mut(reverse);
            *end = End { entries: batch.entries.into_iter(), held };
            if end.entries.len() > 0 {
                return Ok(());
            }
        }
        Ok(())
    }

    fn read_batch(
        &self,
        rest: &Interval,
        reverse: bool,
        held: &mut HeldBlocks,
    ) -> Result<ScanBatch> {
        let _open = self.shared.enter()?;
        let mut read = |skip_damaged| {
            follow::reading(&self.shared, || self.read_once(rest, reverse, skip_damaged, held))
        };
        if self.skip_damaged && self.shared.follower.is_some() {
            // Space that was used again is not damage: only what stays is passed over.
            let whole = read(false);
            if !matches!(whole, Err(Error::Damaged { .. })) {
                return whole;
            }
        }
        read(self.skip_damaged)
    }

    fn read_once(
        &self,
        rest: &Interval,
        reverse: bool,
        skip_damaged: bool,
        held: &mut HeldBlocks,
    ) -> Result<ScanBatch> {
        let request = ScanRequest {
            at: self.point.at(self.shared.times.get())?,
            lower: as_slice(&rest.lower),
            upper: as_slice(&rest.upper),
            reverse,
            entries_max: self.batch_entries,
            bytes_max: BATCH_BYTES_MAX,
            skip_damaged,
        };
        let mut read = |tree: &Index| match self.changed_since {
            None => tree.scan_on(&request, held),
            Some((since, every)) => tree.changed_keys(&request, since, every),
        };
        let (snapshots, seq) = (self.shared.snapshots(), request.at.seq);
        let (batch, is_due) =
            self.slot.read_at(snapshots, seq, |tree| (read(tree), tree.is_due_for_scans()))?;
        if is_due {
            maintenance::after_scan(&self.shared, &self.slot);
        }
        Ok(batch?)
    }

    fn remaining(&mut self, bound: Bound<Vec<u8>>, reverse: bool) -> Option<Interval> {
        let rest = self.rest.take()?;
        let rest = if reverse {
            Interval { upper: bound, ..rest }
        } else {
            Interval { lower: bound, ..rest }
        };
        Some(rest).filter(|rest| !rest.is_empty())
    }

    fn note_damage(&mut self, from: Vec<u8>, to: Option<Vec<u8>>, error: Error) {
        // Two batches that meet at the damage both find it.
        if self.damaged.iter().any(|known| known.from == from && known.to == to) {
            return;
        }
        if self.damaged.len() < DAMAGED_RANGES_MAX {
            self.damaged.push(DamagedRange { from, to, error });
        } else if let Some(last) = self.damaged.last_mut() {
            last.from = from.min(std::mem::take(&mut last.from));
            last.to = last.to.take().zip(to).map(|(a, b)| a.max(b));
        }
    }

    /// The next entry from one end, with its value, which is read now if it is a blob.
    fn step(&mut self, reverse: bool) -> Result<Option<Entry>> {
        // Also for what is in memory: a child by `fork` is answered nothing.
        self.shared.check_process()?;
        let Some(left_entries) = self.left_entries.checked_sub(1) else { return Ok(None) };
        let found = self.find(reverse)?;
        if found.is_some() {
            self.left_entries = left_entries;
        }
        Ok(found)
    }

    fn find(&mut self, reverse: bool) -> Result<Option<Entry>> {
        loop {
            if self.end_mut(reverse).entries.len() == 0 {
                self.fetch(reverse)?;
            }
            let found = self.end_mut(reverse).entries.next();
            let found = found.or_else(|| self.end_mut(!reverse).entries.next_back());
            let (key, value) = match found {
                None => return Ok(None),
                Some((key, Value::Inline(value))) => return Ok(Some((key, value))),
                Some(found) => found,
            };
            match self.fetch_value(&key, value) {
                Ok(Some(value)) => return Ok(Some((key, value))),
                // It has been erased.
                Ok(None) => {}
                Err(error @ Error::Damaged { .. }) if self.skip_damaged => {
                    let next = [key.as_slice(), &[0]].concat();
                    self.note_damage(key, Some(next), error);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn fetch_value(&self, key: &[u8], value: Value) -> Result<Option<Vec<u8>>> {
        let _open = self.shared.enter()?;
        let at = self.point.at(self.shared.times.get())?;
        let fetched = large::fetch_at(&self.shared, &self.slot, key, value, at);
        fetched.map_err(|error| follow::too_old(&self.shared, at.seq, error))
    }

    fn finish(&mut self) {
        self.rest = None;
        (self.front, self.back) = (End::default(), End::default());
    }
}

impl Iterator for Range {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(false).inspect_err(|_| self.finish()).transpose()
    }
}

impl DoubleEndedIterator for Range {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(true).inspect_err(|_| self.finish()).transpose()
    }
}

impl std::iter::FusedIterator for Range {}

impl fmt::Debug for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Entries are left out: values do not belong in logs.
        f.debug_struct("Range")
            .field("keyspace", &self.slot.name)
            .field("snapshot", &self.point.seq())
            .field("finished", &self.rest.is_none())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for DamagedRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keys are left out: they do not belong in logs.
        f.debug_struct("DamagedRange").field("error", &self.error).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(lower: Bound<&str>, upper: Bound<&str>) -> Interval {
        Interval::new::<&str>(&(lower, upper))
    }

    #[test]
    fn prefixes_end_where_the_next_one_begins() {
        let excluded = |key: &[u8]| Bound::Excluded(key.to_vec());
        assert_eq!(after_prefix(b"ab"), excluded(b"ac"));
        assert_eq!(after_prefix(b"a\xff\xff"), excluded(b"b"));
        assert_eq!(after_prefix(b"\xff"), Bound::Unbounded);
        assert_eq!(after_prefix(b""), Bound::Unbounded);
    }

    #[test]
    fn reversed_and_equal_bounds_are_empty() {
        use Bound::{Excluded, Included, Unbounded};
        assert!(interval(Included("b"), Included("a")).is_empty());
        assert!(interval(Included("a"), Excluded("a")).is_empty());
        assert!(interval(Excluded("a"), Excluded("a")).is_empty());
        assert!(interval(Unbounded, Excluded("")).is_empty());
        assert!(!interval(Included("a"), Included("a")).is_empty());
        assert!(!interval(Excluded("a"), Excluded("b")).is_empty());
        assert!(!interval(Unbounded, Unbounded).is_empty());
    }

    #[test]
    fn ranges_to_remove_begin_with_a_key_and_end_before_one() {
        let keys = |lower, upper| interval(lower, upper).keys();
        let some = |begin: &str, end: Option<&str>| {
            Some(KeyRangeBuf { begin: begin.into(), end: end.map(Into::into) })
        };
        let (included, excluded) = (Bound::Included, Bound::Excluded);
        assert_eq!(keys(included("a"), included("b")), some("a", Some("b\0")));
        assert_eq!(keys(excluded("a"), excluded("b")), some("a\0", Some("b")));
        assert_eq!(keys(Bound::Unbounded, Bound::Unbounded), some("", None));
        assert_eq!(keys(included("b"), excluded("b")), None);
        assert_eq!(keys(excluded("a"), excluded("a\0")), None);
        assert_eq!(keys(Bound::Unbounded, excluded("")), None);
        assert_eq!(keys(Bound::Unbounded, included("")), some("", Some("\0")));
        let (long, last) = ([b'x'; KEY_BYTES_MAX], [0xff; KEY_BYTES_MAX]);
        let from =
            |lower: &[u8]| Interval::new::<&[u8]>(&(Bound::Excluded(&lower), Bound::Unbounded));
        let behind = from(&long).keys().unwrap().begin;
        assert!(
            behind.as_slice() > &long && behind.len() == KEY_BYTES_MAX && behind.ends_with(b"xy")
        );
        assert_eq!(from(&last).keys(), None);
    }

    #[test]
    fn bounds_longer_than_any_key_become_reachable_ones() {
        let long = vec![b'x'; KEY_BYTES_MAX + 1];
        let reachable = long[..KEY_BYTES_MAX].to_vec();
        let from = Interval::new::<Vec<u8>>(&(Bound::Included(&long), Bound::Unbounded));
        assert_eq!(from.lower, Bound::Excluded(reachable.clone()));
        let to = Interval::new::<Vec<u8>>(&(Bound::Unbounded, Bound::Excluded(&long)));
        assert_eq!(to.upper, Bound::Included(reachable));
        assert!(Interval::prefix(&long).is_empty());
    }
}
