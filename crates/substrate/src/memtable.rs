//! The memtable: the newest versions, ordered, in memory.
//!
//! Thread safety: any thread may insert, look up and iterate at any time; nobody waits.
//! Invariant M1: versions are never removed or changed; the whole memtable is dropped at once.
//! Invariant M2: no two entries share a key and a number, so an insert never replaces.
//!
//! The ordered set underneath is `crossbeam-skiplist`. One allocation holds key and value; the
//! first eight key bytes stand in the node, so that most comparisons touch nothing else.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crossbeam_skiplist::SkipSet;
use esker_format::entry::{PUT_OVERHEAD_BYTES, Payload};
use esker_format::ids::Seq;
use esker_format::key::long_head;

/// Estimated memory of a node beside its key and value: node, tower, two allocation headers.
const NODE_BYTES: u64 = 88;

/// An ordered set of versions.
#[derive(Debug, Default)]
pub struct Memtable {
    entries: SkipSet<Version>,
    puts: AtomicU64,
    tombstones: AtomicU64,
    put_bytes: AtomicU64,
    tombstone_bytes: AtomicU64,
    memory_bytes: AtomicU64,
}

/// What a memtable holds. Byte counts are what the entries will take in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemtableCounts {
    /// Puts.
    pub puts: u64,
    /// Tombstones.
    pub tombstones: u64,
    /// Bytes of puts.
    pub put_bytes: u64,
    /// Bytes of tombstones.
    pub tombstone_bytes: u64,
}

impl MemtableCounts {
    /// Bytes of all entries.
    #[must_use]
    pub const fn data_bytes(&self) -> u64 {
        self.put_bytes + self.tombstone_bytes
    }
}

/// One version of one key.
#[derive(Debug)]
pub struct Version {
    head: u64,
    seq: Seq,
    key_len: u32,
    is_put: bool,
    /// Key, then value.
    bytes: Box<[u8]>,
}

impl Version {
    fn new(key: &[u8], seq: Seq, value: Option<&[u8]>) -> Self {
        let mut bytes = Vec::with_capacity(key.len() + value.map_or(0, <[u8]>::len));
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value.unwrap_or_default());
        Self {
            head: long_head(key),
            seq,
            key_len: key.len() as u32,
            is_put: value.is_some(),
            bytes: bytes.into_boxed_slice(),
        }
    }

    /// The user key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.bytes.get(..self.key_len as usize).unwrap_or_default()
    }

    /// The number.
    #[must_use]
    pub const fn seq(&self) -> Seq {
        self.seq
    }

    /// The value that was put; `None` for a tombstone.
    #[must_use]
    pub fn put(&self) -> Option<&[u8]> {
        if self.is_put { self.bytes.get(self.key_len as usize..) } else { None }
    }

    /// The value as the payload of a block entry.
    #[must_use]
    pub fn payload(&self) -> Payload<'_> {
        Payload::of(self.put())
    }
}

/// What versions are compared by. A trait, so that a search need not build a [`Version`].
trait Position {
    fn head(&self) -> u64;
    fn key(&self) -> &[u8];
    fn seq(&self) -> Seq;
}

impl Position for Version {
    fn head(&self) -> u64 {
        self.head
    }
    fn key(&self) -> &[u8] {
        Self::key(self)
    }
    fn seq(&self) -> Seq {
        self.seq
    }
}

struct Probe<'a> {
    head: u64,
    key: &'a [u8],
    seq: Seq,
}

impl<'a> Probe<'a> {
    fn new(key: &'a [u8], seq: Seq) -> Self {
        Self { head: long_head(key), key, seq }
    }
}

impl Position for Probe<'_> {
    fn head(&self) -> u64 {
        self.head
    }
    fn key(&self) -> &[u8] {
        self.key
    }
    fn seq(&self) -> Seq {
        self.seq
    }
}

fn compare(left: &(dyn Position + '_), right: &(dyn Position + '_)) -> Ordering {
    (left.head().cmp(&right.head()))
        .then_with(|| left.key().cmp(right.key()))
        .then_with(|| right.seq().cmp(&left.seq()))
}

impl PartialEq for dyn Position + '_ {
    fn eq(&self, other: &Self) -> bool {
        compare(self, other).is_eq()
    }
}
impl Eq for dyn Position + '_ {}
impl PartialOrd for dyn Position + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for dyn Position + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(self, other)
    }
}
impl<'a> Borrow<dyn Position + 'a> for Version {
    fn borrow(&self) -> &(dyn Position + 'a) {
        self
    }
}
impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        compare(self, other).is_eq()
    }
}
impl Eq for Version {}
impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.head.cmp(&other.head))
            .then_with(|| self.key().cmp(other.key()))
            .then_with(|| other.seq.cmp(&self.seq))
    }
}

/// A set entry: keeps its version alive while held.
pub type VersionRef<'a> = crossbeam_skiplist::set::Entry<'a, Version>;

impl Memtable {
    /// Adds a version: a value, or a tombstone.
    pub fn insert(&self, key: &[u8], seq: Seq, value: Option<&[u8]>) {
        let payload_bytes = (key.len() + value.map_or(0, <[u8]>::len)) as u64;
        let entry_bytes = payload_bytes + PUT_OVERHEAD_BYTES as u64;
        let (count, bytes) = match value {
            Some(_) => (&self.puts, &self.put_bytes),
            None => (&self.tombstones, &self.tombstone_bytes),
        };
        count.fetch_add(1, Relaxed);
        bytes.fetch_add(entry_bytes, Relaxed);
        self.memory_bytes.fetch_add(payload_bytes + NODE_BYTES, Relaxed);
        self.entries.insert(Version::new(key, seq, value));
    }

    /// The newest version of `key` with a number of at most `seq`.
    pub fn get(&self, key: &[u8], seq: Seq) -> Option<VersionRef<'_>> {
        let probe = Probe::new(key, seq);
        let found = self.entries.lower_bound(Bound::Included(&probe as &dyn Position))?;
        (found.key() == key).then_some(found)
    }

    /// All versions in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = VersionRef<'_>> {
        self.entries.iter()
    }

    /// The first version at or behind (`key`, `seq`).
    pub fn lower_bound(&self, key: &[u8], seq: Seq) -> Option<VersionRef<'_>> {
        self.entries.lower_bound(Bound::Included(&Probe::new(key, seq) as &dyn Position))
    }

    /// The last version before (`key`, `seq`).
    pub fn upper_bound(&self, key: &[u8], seq: Seq) -> Option<VersionRef<'_>> {
        self.entries.upper_bound(Bound::Excluded(&Probe::new(key, seq) as &dyn Position))
    }

    /// The last version of all.
    pub fn last(&self) -> Option<VersionRef<'_>> {
        self.entries.back()
    }

    /// Whether nothing was inserted.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Counts of what was inserted.
    pub fn counts(&self) -> MemtableCounts {
        MemtableCounts {
            puts: self.puts.load(Relaxed),
            tombstones: self.tombstones.load(Relaxed),
            put_bytes: self.put_bytes.load(Relaxed),
            tombstone_bytes: self.tombstone_bytes.load(Relaxed),
        }
    }

    /// Estimated memory, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn key() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(0u8..3, 0..12)
    }

    proptest! {
        #[test]
        fn behaves_like_a_sorted_map_of_versions(
            ops in proptest::collection::vec((key(), any::<bool>()), 1..200),
            probe in key(),
            at in 0u64..220,
        ) {
            let memtable = Memtable::default();
            let mut model = BTreeMap::new();
            for (seq, (key, put)) in (1u64..).zip(&ops) {
                let value = put.then(|| seq.to_le_bytes().to_vec());
                memtable.insert(key, Seq(seq), value.as_deref());
                model.insert((key.clone(), std::cmp::Reverse(seq)), value);
            }
            let found = memtable.get(&probe, Seq(at));
            let expected = model
                .range((probe.clone(), std::cmp::Reverse(at))..)
                .next()
                .filter(|((key, _), _)| *key == probe);
            prop_assert_eq!(
                found.as_ref().map(|version| version.put().map(<[u8]>::to_vec)),
                expected.map(|(_, value)| value.clone())
            );
            let all: Vec<_> = memtable.iter().map(|v| (v.key().to_vec(), v.seq().0)).collect();
            let model_all: Vec<_> = model.keys().map(|(key, seq)| (key.clone(), seq.0)).collect();
            prop_assert_eq!(all, model_all);
            let before = memtable.upper_bound(&probe, Seq(at));
            let before = before.map(|v| (v.key().to_vec(), v.seq().0));
            let model_before = model
                .range(..(probe, std::cmp::Reverse(at)))
                .next_back()
                .map(|((key, seq), _)| (key.clone(), seq.0));
            prop_assert_eq!(before, model_before);
            let counts = memtable.counts();
            prop_assert_eq!(counts.puts + counts.tombstones, ops.len() as u64);
        }
    }
}
