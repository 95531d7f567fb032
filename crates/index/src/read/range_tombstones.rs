//! Range tombstones, which are kept outside blocks.
//!
//! A keyspace has one set of them, immutable and part of its view: a deletion of a range replaces
//! the set. Reads compare the number of the version that they find with the newest range tombstone
//! of its key that they see; merges drop what no reader sees any more because of one. The range
//! tombstones that the memtable's log contains become durable with the memtable, in the index's
//! record.
//!
//! A range deletion also writes a tombstone of its first key to the memtable. That adds no
//! information, but code that asks how far the log is needed, and what there is to flush, is then
//! correct without knowing of range tombstones.
//!
//! A range tombstone is *retired* when a full merge is done that began when no reader could see
//! anything older any more, and everything older was on the device or part of the merge: then
//! nothing is left that it hides.
//!
//! Invariant (ordered ranges): see `set`.
//! Invariant (needed tombstones): of a range's tombstones those are kept that a reader may need:
//! the newest one at or before each live snapshot and the visible number, and all newer ones.
//! Invariant: every range tombstone up to the number at which a memtable was frozen is in the set
//! of the view that freezes it. A merge uses that set to its end, regardless of later deletes:
//! later range tombstones hide what it writes by their numbers.
//! Invariant: a full merge gives the number [`Seq::RESET`] to no version of a key for which a
//! range tombstone stays in the set.

mod set;

use std::sync::Arc;

use esker_format::action::KeyRange;
use esker_format::data::Data;
use esker_format::ids::Seq;
use esker_format::meta::{IndexMeta, RemovedRange};
use esker_substrate::memtable::Memtable;
use esker_substrate::planted::{self, Bug};

use crate::read::versions::{Fate, Keep};
use crate::upkeep::balance::KeptTombstones;
use crate::{Index, Work};
use set::{Place, RangeSet, Size};

/// The number of range tombstones from which on a full merge is due because of them.
pub const MERGE_REMOVALS: usize = 1024;
/// The most range tombstones, and the most bytes of their keys: beyond these no more are accepted.
pub const REMOVALS_MAX: usize = 4096;
const BYTES_MAX: usize = 512 << 10;
/// Bytes of a range in a record in addition to its keys and numbers, and of a number.
const RANGE_BYTES: usize = 16;
const NUMBER_BYTES: usize = 10;

/// The live snapshots with the visible number, newest first, and the number above which all range
/// tombstones stay, as for [`Keep::new`].
pub type Needs<'a> = (&'a [Seq], Option<Seq>);

/// The range tombstones of a keyspace.
#[derive(Clone, Debug, Default)]
pub struct RangeTombstones {
    set: RangeSet,
}

impl RangeTombstones {
    /// A set of ranges in order, which share no key.
    #[must_use]
    pub fn new(ranges: &[RemovedRange]) -> Self {
        let ranges: Vec<_> = ranges.iter().cloned().map(Arc::new).collect();
        Self { set: RangeSet::new(&ranges) }
    }

    /// The ranges, ascending.
    pub fn ranges(&self) -> impl Iterator<Item = &RemovedRange> {
        self.set.iter()
    }

    /// Whether there are no range tombstones.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.set.size().ranges == 0
    }

    /// The number of all range tombstones.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.set.size().numbers
    }

    /// A description of the first disorder among the ranges, if there is one.
    pub(crate) fn disorder(&self) -> Option<&'static str> {
        let falls = |range: &RemovedRange| {
            !range.seqs.is_empty() && range.seqs.is_sorted_by(|newer, older| newer > older)
        };
        if !self.set.is_in_order() {
            Some("removed ranges overlap or are out of order")
        } else if !self.ranges().all(falls) {
            Some("numbers of a removed range do not fall")
        } else {
            None
        }
    }

    /// The share of the set's capacity that is taken: 1 when it takes no more.
    fn fullness(&self) -> f64 {
        let size = self.set.size();
        let numbers = size.numbers as f64 / REMOVALS_MAX as f64;
        numbers.max(size.bytes as f64 / BYTES_MAX as f64)
    }

    /// The range that has `key`.
    #[must_use]
    pub fn at(&self, key: &[u8]) -> Option<&RemovedRange> {
        let behind = self.set.partition_point(|range| *range.begin <= *key);
        let range = self.set.get(self.set.previous(behind)?)?;
        range.keys().has(key).then_some(range)
    }

    /// The range that has `key`, and its keys; without one, the keys around `key` that are in none.
    pub(crate) fn around(&self, key: &[u8]) -> (KeyRange<'_>, Option<&RemovedRange>) {
        let behind = self.set.partition_point(|range| *range.begin <= *key);
        let before = self.set.previous(behind).and_then(|place| self.set.get(place));
        if let Some(range) = before.filter(|range| range.keys().has(key)) {
            return (range.keys(), Some(range));
        }
        let begin = before.and_then(|range| range.end.as_deref()).unwrap_or_default();
        let end = self.set.get(behind).map(|range| &*range.begin);
        (KeyRange { begin, end }, None)
    }

    /// The ranges from the first one on that ends behind `key`.
    pub(crate) fn ranges_behind(&self, key: &[u8]) -> impl Iterator<Item = &RemovedRange> {
        let ends = |range: &RemovedRange| range.end.as_deref().is_some_and(|end| end <= key);
        self.ranges_from(self.set.partition_point(ends))
    }

    /// The ranges that begin before `until`, or all, from the last one down.
    pub(crate) fn ranges_before(
        &self,
        until: Option<&[u8]>,
    ) -> impl Iterator<Item = &RemovedRange> {
        let begins = |range: &RemovedRange| until.is_none_or(|until| &*range.begin < until);
        let last = self.set.previous(self.set.partition_point(begins));
        std::iter::successors(last, |place| self.set.previous(*place))
            .map_while(|place| self.set.get(place))
    }

    /// The most bytes of the set in a record.
    pub(crate) fn recorded_bytes(&self) -> u64 {
        let Size { ranges, numbers, bytes } = self.set.size();
        (bytes + ranges * RANGE_BYTES + numbers * NUMBER_BYTES) as u64
    }

    /// The most bytes that the ranges take in a record which share a key with `keys`, when another
    /// number is added to each and the gaps between them are filled.
    pub(crate) fn met_bytes(&self, keys: KeyRange<'_>) -> u64 {
        let is_before =
            |range: &RemovedRange| range.end.as_deref().is_some_and(|end| end <= keys.begin);
        let begins_before = |range: &RemovedRange| keys.end.is_none_or(|end| &*range.begin < end);
        let met = self.ranges_from(self.set.partition_point(is_before));
        let met = met.take_while(|range| begins_before(range));
        met.map(|range| bytes_of(range.keys()) + NUMBER_BYTES as u64).sum()
    }

    /// The ranges from a place on.
    fn ranges_from(&self, place: Place) -> impl Iterator<Item = &RemovedRange> {
        let places = std::iter::successors(Some(place), |place| Some(self.set.next(*place)));
        places.map_while(|place| self.set.get(place))
    }

    /// The newest range tombstone of `key` that `seq` sees; 0 if there is none.
    #[must_use]
    pub fn newest(&self, key: &[u8], seq: Seq) -> Seq {
        self.at(key).map_or(Seq(0), |range| newest_of(range, seq))
    }

    /// Whether there are range tombstones newer than `since`, up to `seq`.
    pub(crate) fn has_between(&self, since: Seq, seq: Seq) -> bool {
        let mut numbers = self.ranges().flat_map(|range| &range.seqs);
        numbers.any(|removal| since < *removal && *removal <= seq)
    }

    /// The set with one more range tombstone, the newest of all, and without those of its keys that
    /// no reader needs.
    ///
    /// Cost: a copy of the ranges that share a key with it, of some neighbours, and of a list of
    /// one in about fifty of the others.
    #[must_use]
    pub fn with(&self, keys: KeyRange<'_>, seq: Seq, needs: Needs<'_>) -> Self {
        Self { set: self.set.changed(keys, |around| with(around, keys, seq, needs)) }
    }

    /// The range tombstones for which `stays` returns true.
    fn filtered(&self, stays: impl Fn(Seq) -> bool) -> Self {
        let mut all = Pieces::default();
        for range in self.set.shared() {
            if range.seqs.iter().all(|seq| stays(*seq)) {
                all.push_shared(range);
                continue;
            }
            let seqs: Vec<_> = range.seqs.iter().copied().filter(|seq| stays(*seq)).collect();
            if !seqs.is_empty() {
                all.push(range.keys(), seqs);
            }
        }
        Self { set: RangeSet::new(&all.ranges) }
    }

    /// Those with numbers up to `seq`.
    #[must_use]
    pub fn up_to(&self, seq: Seq) -> Self {
        self.filtered(|removal| removal <= seq)
    }

    /// The number of removals with numbers up to `seq`.
    pub(crate) fn count_up_to(&self, seq: Seq) -> usize {
        let numbers = self.ranges().flat_map(|range| &range.seqs);
        numbers.filter(|removal| **removal <= seq).count()
    }

    /// Those with greater numbers than `seq`.
    #[must_use]
    pub fn above(&self, seq: Seq) -> Self {
        self.filtered(|removal| removal > seq)
    }
}

/// The newest of a range's numbers that `seq` sees; 0 if there is none.
pub(crate) fn newest_of(range: &RemovedRange, seq: Seq) -> Seq {
    range.seqs.iter().copied().find(|removal| *removal <= seq).unwrap_or_default()
}

/// `ranges` with one more range tombstone.
fn with(
    ranges: &[Arc<RemovedRange>],
    keys: KeyRange<'_>,
    seq: Seq,
    needs: Needs<'_>,
) -> Vec<Arc<RemovedRange>> {
    let mut all = Pieces::default();
    // The ranges of the new tombstone that are not in the set yet.
    let mut rest = Some(keys);
    for range in ranges {
        let old = range.keys();
        if !old.meets(&keys) {
            if old.begin > keys.begin {
                all.push_new(rest.take(), seq);
            }
            all.push_shared(range);
            continue;
        }
        if old.begin < keys.begin {
            all.push(KeyRange { end: Some(keys.begin), ..old }, range.seqs.clone());
        }
        let here = rest.map_or(old.begin, |rest| rest.begin);
        all.push_new(between(here, old.begin), seq);
        let both = KeyRange { begin: keys.begin.max(old.begin), end: least(keys.end, old.end) };
        all.push(both, needed(seq, &range.seqs, needs));
        rest = both.end.and_then(|end| from(end, keys.end));
        if let Some(end) = keys.end
            && old.end.is_none_or(|old_end| end < old_end)
        {
            all.push(KeyRange { begin: end, end: old.end }, range.seqs.clone());
        }
    }
    all.push_new(rest, seq);
    all.ranges
}

/// The most bytes of a range with one number in a record.
pub(crate) fn bytes_of(keys: KeyRange<'_>) -> u64 {
    (keys.key_bytes() + RANGE_BYTES + NUMBER_BYTES) as u64
}

/// The greater of no end and any end is no end.
fn least<'a>(a: Option<&'a [u8]>, b: Option<&'a [u8]>) -> Option<&'a [u8]> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Keys from `begin` up to `end`, if there are any.
fn between<'a>(begin: &'a [u8], end: &'a [u8]) -> Option<KeyRange<'a>> {
    from(begin, Some(end))
}

fn from<'a>(begin: &'a [u8], end: Option<&'a [u8]>) -> Option<KeyRange<'a>> {
    end.is_none_or(|end| begin < end).then_some(KeyRange { begin, end })
}

/// `newest` and those of `older` that a reader may need.
fn needed(newest: Seq, older: &[Seq], (points, floor): Needs<'_>) -> Vec<Seq> {
    let mut keep = Keep::new(points.to_vec(), floor);
    let needed = |seq: &Seq| keep.fate(*seq) != Fate::Drop;
    std::iter::once(newest).chain(older.iter().copied()).filter(needed).collect()
}

/// Ranges in the making, ascending.
#[derive(Default)]
struct Pieces {
    ranges: Vec<Arc<RemovedRange>>,
}

impl Pieces {
    fn push_new(&mut self, keys: Option<KeyRange<'_>>, seq: Seq) {
        if let Some(keys) = keys {
            self.push(keys, vec![seq]);
        }
    }

    fn push(&mut self, keys: KeyRange<'_>, seqs: Vec<Seq>) {
        let end = keys.end.map(Arc::from);
        if !self.lengthens(keys, &seqs) {
            self.ranges.push(Arc::new(RemovedRange { begin: keys.begin.into(), end, seqs }));
        }
    }

    fn push_shared(&mut self, range: &Arc<RemovedRange>) {
        if !self.lengthens(range.keys(), &range.seqs) {
            self.ranges.push(Arc::clone(range));
        }
    }

    /// Makes the last range longer if these keys touch it and have the same numbers.
    fn lengthens(&mut self, keys: KeyRange<'_>, seqs: &[Seq]) -> bool {
        let touched = |last: &&mut Arc<RemovedRange>| {
            last.end.as_deref() == Some(keys.begin) && last.seqs == seqs
        };
        let Some(last) = self.ranges.last_mut().filter(touched) else { return false };
        let begin = Arc::clone(&last.begin);
        *last = Arc::new(RemovedRange { begin, end: keys.end.map(Arc::from), seqs: seqs.to_vec() });
        true
    }
}

impl Index {
    /// Removes ranges of keys, each with its number, which ascend and are greater than all before.
    /// No I/O. One thread at a time, the one that inserts.
    ///
    /// Cost: that of [`RangeTombstones::with`] for each, and a view.
    pub fn remove_ranges(&self, removals: &[(KeyRange<'_>, Seq)]) {
        let points = self.env.snapshots.live().numbers;
        let needs = (points.as_slice(), self.history_from());
        self.views.publish(|view| {
            let removed = RangeTombstones::clone(&view.removed);
            let with = |removed: RangeTombstones, (keys, seq): &(KeyRange<'_>, Seq)| {
                removed.with(*keys, *seq, needs)
            };
            view.with_removed(removals.iter().fold(removed, with))
        });
        self.keep_for_removals();
        for (keys, seq) in removals {
            self.mark_removal(keys.begin, *seq);
        }
    }

    /// Writes the tombstone of a removed range's first key to the memtable, unless the batch of the
    /// range has written the key itself with the same number, as where history is kept.
    fn mark_removal(&self, begin: &[u8], seq: Seq) {
        if !self.keeps_history() || !has_version(&self.views.load().memtable, begin, seq) {
            self.insert(begin, seq, Data::Delete);
        }
    }

    /// Takes a range tombstone from the log, as [`Index::replay`] does. Where history is kept, the
    /// rest of its batch is to be replayed, and then [`Index::replay_mark`] to be called with it.
    pub fn replay_removal(&self, keys: KeyRange<'_>, seq: Seq) {
        // Tombstones up to that number have been recorded, or retired.
        if seq > self.meta().log_unneeded_seq() {
            let points = self.env.snapshots.live().numbers;
            let needs = (points.as_slice(), self.history_from());
            self.views.publish(|view| view.with_removed(view.removed.with(keys, seq, needs)));
            self.keep_for_removals();
        }
        if !self.keeps_history() {
            self.replay(keys.begin, seq, Data::Delete);
        }
    }

    /// Ends the batch of a range tombstone from the log: takes the tombstone of its first key,
    /// unless the batch has written the key itself.
    pub fn replay_mark(&self, begin: &[u8], seq: Seq) {
        let is_recovered = |memtable: &Memtable| has_version(memtable, begin, seq);
        let is_there = is_recovered(&self.views.load().memtable)
            || self.recovered.lock().as_ref().is_some_and(is_recovered);
        if !is_there {
            self.replay(begin, seq, Data::Delete);
        }
    }

    /// The number of range tombstones.
    pub fn removals(&self) -> usize {
        self.views.load().removed.len()
    }

    /// Whether `more` range tombstones more would exceed the limit.
    pub fn is_full_of_removals(&self, more: usize) -> bool {
        let removed = &self.views.load().removed;
        // Each may cut two ranges into three.
        removed.fullness() >= 1.0 || removed.len().saturating_add(2 * more) > REMOVALS_MAX
    }

    /// Whether a full merge that begins now retires range tombstones.
    pub fn can_retire_removals(&self) -> bool {
        self.views.load().removed.count_up_to(self.retirable()) > 0
    }

    /// The newest number that a range tombstone may have which a full merge retires: it is older
    /// than every snapshot. Where history is kept, its keys get tombstones, which readers of all
    /// numbers see.
    fn retirable(&self) -> Seq {
        let numbers = self.env.snapshots.live().numbers;
        let needed = if self.keeps_history() { numbers.first() } else { numbers.last() };
        needed.copied().unwrap_or_default()
    }

    /// Whether the full merge under way retires range tombstones.
    pub fn is_retiring(&self) -> bool {
        self.retiring.load(esker_substrate::sync::atomic::Ordering::Acquire)
    }

    /// A full merge of what there was up to `merged` is done. It has kept `count` tombstones, and
    /// the range tombstones that are still there, for snapshots. Those written since are not kept
    /// for any.
    pub(crate) fn note_kept(&self, count: u64, merged: Seq, oldest_snapshot: Option<Seq>) {
        let removals = self.views.load().removed.count_up_to(merged);
        *self.kept.lock() = KeptTombstones { count, removals, oldest_snapshot };
    }

    /// The tombstones that the last full merge had to keep, if they must still be kept: the space
    /// can be freed when the snapshot has been dropped.
    pub(crate) fn still_kept(&self) -> KeptTombstones {
        let kept = *self.kept.lock();
        // Every write asks, and followers are asked by a call of the system.
        let keeps_any = kept.count > 0 || kept.removals > 0;
        let is_live = keeps_any && kept.oldest_snapshot == self.env.snapshots.oldest();
        if is_live { kept } else { KeptTombstones::default() }
    }

    /// The work that is due because of the number of range tombstones: a full merge, which retires
    /// those that it finds on the device. Before it those of the memtable are flushed, unless it
    /// takes the memtable.
    pub(crate) fn removal_work(&self, durable: &IndexMeta) -> Option<Work> {
        let most = self.still_kept().removals + MERGE_REMOVALS;
        if self.removals() < most {
            return None;
        }
        let has_new = self.memtable_entries() > 0;
        let flushes_first = has_new && self.flushes_first();
        if flushes_first && self.views.load().removed.count_up_to(durable.flushed_seq) < most {
            return self.flush_work();
        }
        Some(Work::Merge { full: true, with_memtable: has_new && !flushes_first })
    }

    /// The range tombstones for a merge that begins now, of a memtable frozen at `frozen` or of the
    /// data on the device up to there; and, for a full one, the number up to which it retires.
    pub(crate) fn removed_for_merge(&self, frozen: Seq, full: bool) -> (RangeTombstones, Seq) {
        let removed = self.views.load().removed.up_to(frozen);
        let retired = match planted::is(Bug::RetiredForSnapshots) {
            true => frozen,
            false => frozen.min(self.retirable()),
        };
        (removed, if full || planted::is(Bug::RetiredByHalf) { retired } else { Seq(0) })
    }

    /// The range tombstones that are to be durable with `meta`.
    pub(crate) fn removed_for_record(&self, meta: &IndexMeta, retired: Seq) -> Arc<[RemovedRange]> {
        if planted::is(Bug::RemovalsNotRecorded) {
            return Arc::clone(&meta.removed);
        }
        let removed = RangeTombstones::clone(&self.views.load().removed);
        removed.up_to(meta.log_unneeded_seq()).above(retired).ranges().cloned().collect()
    }
}

/// Whether a memtable has a version of `key` with this number.
fn has_version(memtable: &Memtable, key: &[u8], seq: Seq) -> bool {
    memtable.get(key, seq).is_some_and(|version| version.seq() == seq)
}

#[cfg(test)]
mod tests;
