//! The read set and the write set of a transaction.
//!
//! Invariant: every key whose value (or absence) came from the snapshot and not from the
//! transaction's own writes is a point, or within a span that was made when the key was not yet
//! written by the transaction.
//! Invariant: the whole interval of a range that is still open is a span: a caller that forgets to
//! drop the range has read too much rather than too little.

use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::ops::Bound;
use std::sync::Arc;

use esker_format::action::{KeyRange, KeyRangeBuf, WriteOp};
use esker_format::data::{Data, DataBuf};
use esker_format::ids::KeyspaceId;
use esker_substrate::planted::{self, Race};

use crate::conflict_window::{Footprint, Written};
use crate::range::Interval;
use crate::removal;
use crate::slot::Slot;
use crate::write_request::Write;

/// The approximate overhead of an entry of the sets below, in addition to its bytes.
const ENTRY_BYTES: usize = 64;

/// Writes collected so far.
#[derive(Debug, Default)]
pub(super) struct Writes {
    of: BTreeMap<KeyspaceId, WritesOf>,
    /// The number of writes, repeats included.
    count: u64,
    bytes: u64,
}

/// The writes to one keyspace.
#[derive(Debug)]
pub(super) struct WritesOf {
    pub slot: Arc<Slot>,
    keys: BTreeMap<Vec<u8>, Own>,
    /// Removed ranges: the snapshot's entries in them are removed; those in `keys` were written
    /// later.
    ranges: Vec<OwnRange>,
}

/// The last write to a key.
#[derive(Debug)]
pub(super) struct Own {
    /// An operand applies to the snapshot's value.
    data: DataBuf,
    /// The operand that is merged onto a value that will expire.
    operand: Option<Vec<u8>>,
    /// The number of the transaction's writes before the first one to this key that is no operand.
    /// Not used as long as all of them are operands.
    since: u64,
}

/// The effect of a transaction's writes on a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnEffect<'a> {
    /// Its value, or an operand, which applies to the snapshot's value.
    pub data: Data<'a>,
    /// The operand that is merged onto the value.
    pub operand: Option<&'a [u8]>,
}

/// A removed range.
#[derive(Debug)]
struct OwnRange {
    keys: KeyRangeBuf,
    /// The number of writes before this removal.
    since: u64,
}

/// Reads of the snapshot.
#[derive(Debug, Default)]
pub(super) struct Reads {
    of: BTreeMap<KeyspaceId, ReadsOf>,
    bytes: u64,
}

#[derive(Debug)]
struct ReadsOf {
    slot: Arc<Slot>,
    points: BTreeSet<Vec<u8>>,
    spans: Vec<Span>,
}

/// Keys from `lower` up to, and without, `upper`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    lower: Vec<u8>,
    /// `None`: there is no end.
    upper: Option<Vec<u8>>,
    /// The number of the transaction's writes before it was read. Keys that these have written were
    /// not read from the snapshot.
    at: u64,
}

/// Reads and writes of a transaction that is about to commit.
pub(super) struct CheckedReads<'a> {
    of: BTreeMap<KeyspaceId, CheckedReadsOf<'a>>,
}

struct CheckedReadsOf<'a> {
    reads: &'a ReadsOf,
    own: Option<&'a WritesOf>,
    /// The spans' keys, ascending, without overlaps.
    covered: Vec<(&'a [u8], Option<&'a [u8]>)>,
}

/// The key right after `key`.
fn successor(key: &[u8]) -> Vec<u8> {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next
}

impl Span {
    /// All of an interval, read after `at` writes.
    pub fn new(interval: &Interval, at: u64) -> Self {
        let lower = match interval.lower() {
            Bound::Unbounded => Vec::new(),
            Bound::Included(key) => key.to_vec(),
            Bound::Excluded(key) => successor(key),
        };
        let upper = match interval.upper() {
            Bound::Unbounded => None,
            Bound::Included(key) => Some(successor(key)),
            Bound::Excluded(key) => Some(key.to_vec()),
        };
        Self { lower, upper, at }
    }

    /// The span without keys.
    const fn nothing(at: u64) -> Self {
        Self { lower: Vec::new(), upper: Some(Vec::new()), at }
    }

    fn has(&self, key: &[u8]) -> bool {
        is_within((&self.lower, self.upper.as_deref()), key)
    }

    pub fn bytes(&self) -> u64 {
        let upper = self.upper.as_ref().map_or(0, Vec::len);
        (self.lower.len() + upper + ENTRY_BYTES) as u64
    }
}

fn is_within((lower, upper): (&[u8], Option<&[u8]>), key: &[u8]) -> bool {
    lower <= key && upper.is_none_or(|upper| key < upper)
}

impl Own {
    /// The write's content. A value has not expired for the transaction, whose moment is before the
    /// write.
    pub fn effect(&self) -> OwnEffect<'_> {
        OwnEffect { data: self.data.as_data(), operand: self.operand.as_deref() }
    }

    /// The bytes that the write is counted with.
    fn cost(&self, key: &[u8]) -> u64 {
        Writes::cost(key, &self.data.as_data(), self.operand.as_deref())
    }
}

impl WritesOf {
    /// The writes, by key.
    pub fn list(&self) -> Vec<Write<'_>> {
        let ranges = self.ranges.iter().map(|own| WriteOp::DeleteRange(own.keys.as_range()));
        let keys = self.keys.iter().flat_map(|(key, own)| {
            let operand = own.operand.as_deref().map(Data::Operand);
            let data = [Some(own.data.as_data()), operand].into_iter().flatten();
            data.map(move |data| WriteOp::Point(key, data))
        });
        let actions = ranges.chain(keys);
        removal::net_effect(actions.map(|action| Write { slot: &self.slot, action }))
    }

    /// Whether ranges are removed.
    pub fn has_ranges(&self) -> bool {
        !self.ranges.is_empty()
    }

    /// Whether the snapshot's `key` is in a removed range.
    pub fn has_removed(&self, key: &[u8]) -> bool {
        self.ranges.iter().any(|own| own.keys.as_range().has(key))
    }

    /// The number of writes before the first one that wrote `key` or removed a range with it. An
    /// operand does not count: a read of its key still depends on the snapshot.
    fn since(&self, key: &[u8]) -> Option<u64> {
        let own = self.keys.get(key).filter(|own| !own.data.is_operand()).map(|own| own.since);
        let ranges = self.ranges.iter().filter(|own| own.keys.as_range().has(key));
        own.into_iter().chain(ranges.map(|own| own.since)).min()
    }

    /// Those to keys of an interval that is not empty.
    pub fn within(&self, interval: &Interval) -> btree_map::Range<'_, Vec<u8>, Own> {
        self.keys.range::<[u8], _>((interval.lower(), interval.upper()))
    }
}

impl Writes {
    pub const fn count(&self) -> u64 {
        self.count
    }

    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    pub fn len(&self) -> usize {
        self.of.values().map(|of| of.keys.len() + of.ranges.len()).sum()
    }

    pub fn parts(&self) -> impl Iterator<Item = &WritesOf> {
        self.of.values()
    }

    pub fn of(&self, keyspace: KeyspaceId) -> Option<&WritesOf> {
        self.of.get(&keyspace)
    }

    /// The effect of these writes on `key`, if any.
    pub fn get(&self, keyspace: KeyspaceId, key: &[u8]) -> Option<OwnEffect<'_>> {
        let of = self.of.get(&keyspace)?;
        let own = of.keys.get(key).map(Own::effect);
        let removed = OwnEffect { data: Data::Delete, operand: None };
        own.or_else(|| of.has_removed(key).then_some(removed))
    }

    /// The bytes that a write is counted with: those of its content, and an overhead.
    pub fn cost(key: &[u8], data: &Data<'_>, operand: Option<&[u8]>) -> u64 {
        let data = data.value().map_or(0, <[u8]>::len);
        (key.len() + data + operand.map_or(0, <[u8]>::len) + ENTRY_BYTES) as u64
    }

    pub fn put(&mut self, slot: &Arc<Slot>, key: &[u8], data: Data<'_>, operand: Option<Vec<u8>>) {
        let of = Self::part(&mut self.of, slot);
        let new = Own { data: DataBuf::from(data), operand, since: self.count };
        self.bytes += new.cost(key);
        match of.keys.get_mut(key) {
            Some(own) => {
                self.bytes -= own.cost(key);
                let since = if own.data.is_operand() { self.count } else { own.since };
                *own = Own { since, ..new };
            }
            None => drop(of.keys.insert(key.to_vec(), new)),
        }
        self.count += 1;
    }

    /// The bytes that the removal of a range is counted with.
    pub fn cost_of_range(keys: KeyRange<'_>) -> u64 {
        WriteOp::DeleteRange(keys).user_bytes() + ENTRY_BYTES as u64
    }

    pub fn remove_range(&mut self, slot: &Arc<Slot>, keys: KeyRange<'_>) {
        let of = Self::part(&mut self.of, slot);
        let mut freed = 0;
        of.keys.retain(|key, own| {
            let is_gone = keys.has(key);
            freed += if is_gone { own.cost(key) } else { 0 };
            !is_gone
        });
        of.ranges.push(OwnRange { keys: keys.into(), since: self.count });
        self.bytes = self.bytes.saturating_sub(freed) + Self::cost_of_range(keys);
        self.count += 1;
    }

    fn part<'a>(of: &'a mut BTreeMap<KeyspaceId, WritesOf>, slot: &Arc<Slot>) -> &'a mut WritesOf {
        of.entry(slot.id).or_insert_with(|| WritesOf {
            slot: Arc::clone(slot),
            keys: BTreeMap::default(),
            ranges: Vec::new(),
        })
    }
}

impl Reads {
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The keyspaces that were read.
    pub fn slots(&self) -> impl Iterator<Item = &Arc<Slot>> {
        self.of.values().map(|of| &of.slot)
    }

    fn part(&mut self, slot: &Arc<Slot>) -> &mut ReadsOf {
        self.of.entry(slot.id).or_insert_with(|| ReadsOf {
            slot: Arc::clone(slot),
            points: BTreeSet::default(),
            spans: Vec::new(),
        })
    }

    pub fn has_point(&self, id: KeyspaceId, key: &[u8]) -> bool {
        self.of.get(&id).is_some_and(|of| of.points.contains(key))
    }

    /// The bytes that a point is counted with.
    pub const fn point_cost(key: &[u8]) -> u64 {
        (key.len() + ENTRY_BYTES) as u64
    }

    /// Adds a key that is not there.
    pub fn add_point(&mut self, slot: &Arc<Slot>, key: &[u8]) {
        self.bytes += Self::point_cost(key);
        self.part(slot).points.insert(key.to_vec());
    }

    /// Adds a span. Answers its place, for [`narrow`](Self::narrow).
    pub fn add_span(&mut self, slot: &Arc<Slot>, span: Span) -> usize {
        self.bytes += span.bytes();
        let spans = &mut self.part(slot).spans;
        spans.push(span);
        spans.len() - 1
    }

    /// Of a span only the keys up to `front` and those from `back` on were read.
    pub fn narrow(
        &mut self,
        id: KeyspaceId,
        place: usize,
        front: Option<&[u8]>,
        back: Option<&[u8]>,
    ) {
        let Some(of) = self.of.get_mut(&id) else { return };
        let Some(span) = of.spans.get_mut(place) else { return };
        let before = span.bytes();
        let Span { lower, upper, at } = std::mem::replace(span, Span::nothing(span.at));
        let low = front.map(|key| Span { lower, upper: Some(successor(key)), at });
        let high = back.map(|key| Span { lower: key.to_vec(), upper, at });
        let (first, second) = if low.is_some() { (low, high) } else { (high, None) };
        if let Some(first) = first {
            *span = first;
        }
        self.bytes = self.bytes.saturating_sub(before) + span.bytes();
        if let Some(second) = second {
            self.bytes += second.bytes();
            of.spans.push(second);
        }
    }

    pub fn for_check<'a>(&'a self, writes: &'a Writes) -> CheckedReads<'a> {
        let checked = |(id, reads): (&KeyspaceId, &'a ReadsOf)| {
            let covered = covered(&reads.spans);
            (*id, CheckedReadsOf { reads, own: writes.of(*id), covered })
        };
        CheckedReads { of: self.of.iter().map(checked).collect() }
    }
}

/// The keys of all spans, ascending, without overlaps.
fn covered(spans: &[Span]) -> Vec<(&[u8], Option<&[u8]>)> {
    let keys = |span: &Span| span.upper.as_ref().is_none_or(|upper| span.lower < *upper);
    let mut sorted: Vec<&Span> = spans.iter().filter(|span| keys(span)).collect();
    sorted.sort_by(|a, b| a.lower.cmp(&b.lower));
    let mut covered: Vec<(&[u8], Option<&[u8]>)> = Vec::new();
    for span in sorted {
        let upper = span.upper.as_deref();
        match covered.last_mut() {
            Some((_, None)) => break,
            Some((_, end @ Some(_))) if end.is_some_and(|end| span.lower.as_slice() <= end) => {
                *end = if upper.is_none() { None } else { (*end).max(upper) };
            }
            _ => covered.push((&span.lower, upper)),
        }
    }
    covered
}

impl CheckedReadsOf<'_> {
    fn is_covered(&self, key: &[u8]) -> bool {
        let after = self.covered.partition_point(|(lower, _)| *lower <= key);
        let last = after.checked_sub(1).and_then(|at| self.covered.get(at));
        last.is_some_and(|span| is_within(*span, key))
    }

    fn has(&self, key: &[u8]) -> bool {
        if self.reads.points.contains(key) {
            return true;
        }
        if !self.is_covered(key) || planted::is(Race::RangesUnchecked) {
            return false;
        }
        let Some(since) = self.own.and_then(|own| own.since(key)) else { return true };
        self.reads.spans.iter().any(|span| span.at <= since && span.has(key))
    }

    /// Whether a key of the range was read, or may have been: of spans it is not asked which of
    /// their keys the transaction had written before.
    fn meets(&self, keys: KeyRange<'_>) -> bool {
        if planted::is(Race::RemovalsUnchecked) {
            return false;
        }
        let end = keys.end.map_or(Bound::Unbounded, Bound::Excluded);
        let mut points = self.reads.points.range::<[u8], _>((Bound::Included(keys.begin), end));
        let span =
            |(begin, end): &(&[u8], Option<&[u8]>)| keys.meets(&KeyRange { begin, end: *end });
        points.next().is_some() || self.covered.iter().any(span)
    }
}

impl CheckedReads<'_> {
    /// Whether nothing was read.
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }
}

impl Footprint for CheckedReads<'_> {
    fn has(&self, keyspace: KeyspaceId, written: Written<'_>) -> bool {
        self.of.get(&keyspace).is_some_and(|of| match written {
            Written::Key(key) => of.has(key),
            Written::Range(keys) => of.meets(keys),
        })
    }
}
