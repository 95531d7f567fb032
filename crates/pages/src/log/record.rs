//! The records of the log.
//!
//! ```text
//! u8 kind
//! commit (1):   u64 version, u8 flags (1: new map, 2: pages are durable), u32 page size,
//!               u32 pages, u32 pages kept of the version before,
//!               varint count, then of each page, ascending:
//!                 varint page, from the page after the one before
//!                 varint length of the delta, plus 1; or 0 for a slot:
//!                 bytes of the delta; or u32 slot, u32 CRC-32C of its contents
//! prepare (2):  byte string name, then as a commit
//! decide (3):   u8 1 for commit, 0 for abort
//! pin (4):      u64 version, byte string name
//! unpin (5):    byte string name
//! held (6):     varint count, then of each range of versions, ascending:
//!                 varint first, from the version after the range before
//!                 varint length, minus 1
//! kept (7):     varint count, then u32 of each segment of the log before;
//!               varint count, then of each version, ascending:
//!                 varint version, from the one after the version before
//!                 u32 page size, u32 pages
//!                 varint count, then of each page, ascending:
//!                   varint page, from the page after the one before
//!                   u32 slot that it has in the version before;
//!               varint version, u32 segments: what is not listed
//! ```
//!
//! The slots of a transaction are in its record, and a record is in frames with checksums and
//! consecutive numbers: bytes of an unfinished record are never taken for a part of another.

use std::sync::Arc;

use esker_format::DecodeError;
use esker_format::bytes::{Reader, put_byte_string, put_varint};

use crate::options::{PAGE_BYTES_MAX, check_page_size};
use crate::place::Sector;
use crate::planted::{self, Bug};
use crate::version::delta;
use crate::version::map::Root;
use crate::version::mapping::{Delta, Entry, Mapping};
use crate::version::node::{NUMBER_MAX, read_name};
use crate::version::versions::{KeptVersion, Replaced};

/// The longest name of a prepared transaction, in bytes.
pub(crate) const PREPARE_BYTES_MAX: usize = 64 * 1024;

/// The largest number of ranges of versions in a record.
pub(crate) const HELD_MAX: usize = 8192;

/// The largest number of segments, and of slots, in a record of what is kept.
const KEPT_MAX: usize = 1 << 20;

/// The most bytes that a page written whole takes in a record.
pub(crate) const ITEM_BYTES: u64 = 20;

const NEW_MAP: u8 = 1;
const PAGES_DURABLE: u8 = 2;

/// The change of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It was written whole to this slot, or is zeros where there is none.
    Whole(Entry),
    /// It differs by this from its slot; an empty one says that it does not.
    Delta(Arc<[u8]>),
}

/// The changes of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Changes {
    /// The version that it makes.
    pub(crate) version: u64,
    pub(crate) page_size: u32,
    /// Pages of the database after it.
    pub(crate) pages: u32,
    /// Pages from here on are zeros unless they are among the changed ones.
    pub(crate) kept_pages: u32,
    /// Whether nothing is kept of the version before.
    pub(crate) is_new_map: bool,
    /// Whether its pages were durable before the record was written.
    pub(crate) are_pages_durable: bool,
    /// By page, ascending.
    pub(crate) items: Vec<(u32, Change)>,
}

/// Versions from the first to the last; ordered by the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Held {
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// What is in use beside a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    /// The segments of the log before, which is kept for processes that are late.
    pub(crate) log_before: Vec<u32>,
    /// All versions up to that of the checkpoint, the oldest first; none if it has all of them.
    /// Those before [`Unlisted::before`] are left out.
    pub(crate) versions: Vec<KeptVersion>,
    pub(crate) unlisted: Unlisted,
}

/// Versions that are in use and in no list, because that would be too long. All slots that only
/// they have are in the first segments: who does not know them may use the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unlisted {
    /// They are below this; 0 if there are none.
    pub(crate) before: u64,
    /// The number of segments that may have slots of them.
    pub(crate) segments: u32,
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Commit(Changes),
    Prepare(Arc<[u8]>, Changes),
    Decide(bool),
    Pin(u64, Arc<str>),
    Unpin(Arc<str>),
    /// Ranges that have all versions, except the newest and those with names, which processes
    /// read: all others are purged. Written before a checkpoint where several processes have the
    /// store open.
    Held(Vec<Held>),
    /// What was in use beside the checkpoint: who loads it knows all slots in use. The first record
    /// of a log where several processes have the store open.
    Kept(Kept),
}

/// The result of applying changes.
pub(crate) struct Applied {
    pub(crate) root: Root,
    pub(crate) replaced: Replaced,
    /// By how much the bytes of all deltas grew.
    pub(crate) delta_bytes: i64,
    /// By how many the slots of the newest version grew.
    pub(crate) slots: i64,
}

impl Applied {
    /// A page is no more as it was; `slot` is its slot now.
    fn replace(&mut self, page: u32, old: &Mapping, slot: Sector) {
        self.delta_bytes -= old.delta.as_ref().map_or(0, |delta| delta.len() as i64);
        if old.entry.slot != slot {
            self.slots += i64::from(slot != Sector::NONE);
            self.slots -= i64::from(old.entry.slot != Sector::NONE);
            // What was cut off before is known by what it was in the version before.
            self.replaced.entry(page).or_insert(old.entry.slot);
        }
    }
}

impl Changes {
    /// The slots that they bring.
    pub(crate) fn slots(&self) -> impl Iterator<Item = Entry> {
        self.places().map(|(_, entry)| entry)
    }

    /// The slots that they bring, each with its page.
    pub(crate) fn places(&self) -> impl Iterator<Item = (u32, Entry)> {
        let entries = self.items.iter().filter_map(|(page, change)| match change {
            Change::Whole(entry) => Some((*page, *entry)),
            Change::Delta(_) => None,
        });
        entries.filter(|(_, entry)| entry.slot != Sector::NONE)
    }

    /// Their record, as a prepared transaction's where there is a name.
    pub(crate) fn record(&self, prepare: Option<Arc<[u8]>>) -> Vec<u8> {
        match prepare {
            None => Record::Commit(self.clone()).encode(),
            Some(name) => Record::Prepare(name, self.clone()).encode(),
        }
    }

    /// The version that they make of `base`.
    pub(crate) fn apply(&self, base: &Root) -> Applied {
        let root = Root { pages: self.pages, page_size: self.page_size, ..base.clone() };
        let mut applied = Applied { root, replaced: Replaced::new(), delta_bytes: 0, slots: 0 };
        let kept_pages = if self.is_new_map { 0 } else { self.kept_pages };
        let mut map = std::mem::take(&mut applied.root.map);
        // Past its pages a version has no mappings.
        if kept_pages < base.pages {
            map.cut(kept_pages, &mut |page, old| {
                if !planted::is(Bug::CutNotFreed) {
                    applied.replace(page, old, Sector::NONE);
                }
            });
        }
        for (page, change) in &self.items {
            let new = match change {
                Change::Whole(entry) => Mapping { entry: *entry, delta: None },
                Change::Delta(delta) => {
                    let Mapping { entry, delta: old } = map.get(*page);
                    let new = || Delta::after(old.as_ref(), Arc::clone(delta));
                    Mapping { entry, delta: (!delta.is_empty()).then(new) }
                }
            };
            applied.delta_bytes += new.delta.as_ref().map_or(0, |delta| delta.len() as i64);
            let slot = new.entry.slot;
            let old = map.set(*page, new);
            applied.replace(*page, &old, slot);
        }
        applied.root.map = map;
        applied
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.version.to_le_bytes());
        let flags = [(self.is_new_map, NEW_MAP), (self.are_pages_durable, PAGES_DURABLE)];
        out.push(flags.iter().filter(|(is, _)| *is).map(|(_, flag)| flag).sum());
        for field in [self.page_size, self.pages, self.kept_pages] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        put_varint(out, self.items.len() as u64);
        let mut next = 0;
        for (page, change) in &self.items {
            put_varint(out, u64::from(*page) - next);
            next = u64::from(*page) + 1;
            match change {
                Change::Whole(entry) => {
                    put_varint(out, 0);
                    out.extend_from_slice(&entry.slot.0.to_le_bytes());
                    out.extend_from_slice(&entry.crc.to_le_bytes());
                }
                Change::Delta(delta) => {
                    put_varint(out, delta.len() as u64 + 1);
                    out.extend_from_slice(delta);
                }
            }
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let version = reader.u64()?;
        let flags = reader.u8()?;
        let (page_size, pages, kept_pages) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let known = flags & !(NEW_MAP | PAGES_DURABLE) == 0;
        if !known || check_page_size(page_size).is_err() || kept_pages > pages {
            return Err(reader.error("a commit has a wrong header"));
        }
        let count = reader.varint()?;
        let mut items = Vec::new();
        let mut next = 0;
        for _ in 0..count {
            let page = reader.varint()?.saturating_add(next);
            let Some(number) = u32::try_from(page).ok().filter(|page| *page < pages) else {
                return Err(reader.error("a changed page is outside the database"));
            };
            items.push((number, Change::decode(reader, page_size)?));
            next = page + 1;
        }
        let (is_new_map, are_pages_durable) = (flags & NEW_MAP != 0, flags & PAGES_DURABLE != 0);
        Ok(Self { version, page_size, pages, kept_pages, is_new_map, are_pages_durable, items })
    }
}

impl Change {
    fn decode(reader: &mut Reader<'_>, page_size: u32) -> Result<Self, DecodeError> {
        let len = reader.length(PAGE_BYTES_MAX as usize + 1)?;
        let Some(len) = len.checked_sub(1) else {
            let (slot, crc) = (Sector(reader.u32()?), reader.u32()?);
            return Ok(Self::Whole(Entry { slot, crc }));
        };
        let bytes = reader.take(len)?;
        delta::check(bytes, page_size as usize)?;
        Ok(Self::Delta(bytes.into()))
    }
}

/// Reads ranges of versions, which ascend.
fn read_held(reader: &mut Reader<'_>) -> Result<Vec<Held>, DecodeError> {
    let mut ranges = Vec::new();
    let mut next = 0_u64;
    for _ in 0..reader.length(HELD_MAX)? {
        let first = next.saturating_add(reader.varint()?);
        let last = first.saturating_add(reader.varint()?);
        if last >= NUMBER_MAX {
            return Err(reader.error("held versions are out of bounds"));
        }
        ranges.push(Held { first, last });
        next = last + 1;
    }
    Ok(ranges)
}

impl Kept {
    /// Whether it is not too long for a record.
    pub(crate) fn fits(&self) -> bool {
        let slots: usize = self.versions.iter().map(|kept| kept.replaced.len()).sum();
        let is_short = self.log_before.len() <= KEPT_MAX && self.versions.len() <= HELD_MAX;
        is_short && slots <= KEPT_MAX
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.log_before.len() as u64);
        self.log_before.iter().for_each(|at| out.extend_from_slice(&at.to_le_bytes()));
        put_varint(out, self.versions.len() as u64);
        let mut next = 0;
        for kept in &self.versions {
            put_varint(out, kept.version - next);
            next = kept.version + 1;
            out.extend_from_slice(&kept.page_size.to_le_bytes());
            out.extend_from_slice(&kept.pages.to_le_bytes());
            put_varint(out, kept.replaced.len() as u64);
            let mut next = 0;
            for (page, slot) in &kept.replaced {
                put_varint(out, u64::from(*page) - next);
                next = u64::from(*page) + 1;
                out.extend_from_slice(&slot.0.to_le_bytes());
            }
        }
        put_varint(out, self.unlisted.before);
        out.extend_from_slice(&self.unlisted.segments.to_le_bytes());
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let count = reader.length(KEPT_MAX)?;
        let log_before = (0..count).map(|_| reader.u32()).collect::<Result<_, _>>()?;
        let (mut versions, mut next) = (Vec::new(), 0_u64);
        for _ in 0..reader.length(HELD_MAX)? {
            let version = next.saturating_add(reader.varint()?);
            if version >= NUMBER_MAX {
                return Err(reader.error("a kept version is out of bounds"));
            }
            next = version + 1;
            let (page_size, pages) = (reader.u32()?, reader.u32()?);
            let replaced = read_replaced(reader)?;
            versions.push(KeptVersion { version, page_size, pages, replaced });
        }
        let (before, segments) = (reader.varint()?, reader.u32()?);
        if before >= NUMBER_MAX {
            return Err(reader.error("a version that is not listed is out of bounds"));
        }
        Ok(Self { log_before, versions, unlisted: Unlisted { before, segments } })
    }
}

/// Reads the slots that pages had, by page.
fn read_replaced(reader: &mut Reader<'_>) -> Result<Vec<(u32, Sector)>, DecodeError> {
    let (mut replaced, mut next) = (Vec::new(), 0_u64);
    for _ in 0..reader.length(KEPT_MAX)? {
        let page = next.saturating_add(reader.varint()?);
        let Ok(number) = u32::try_from(page) else {
            return Err(reader.error("a kept page is out of bounds"));
        };
        next = page + 1;
        replaced.push((number, Sector(reader.u32()?)));
    }
    Ok(replaced)
}

impl Record {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Commit(changes) => {
                out.push(1);
                changes.encode(&mut out);
            }
            Self::Prepare(name, changes) => {
                out.push(2);
                put_byte_string(&mut out, name);
                changes.encode(&mut out);
            }
            Self::Decide(commit) => out.extend_from_slice(&[3, u8::from(*commit)]),
            Self::Pin(version, name) => {
                out.push(4);
                out.extend_from_slice(&version.to_le_bytes());
                put_byte_string(&mut out, name.as_bytes());
            }
            Self::Unpin(name) => {
                out.push(5);
                put_byte_string(&mut out, name.as_bytes());
            }
            Self::Held(ranges) => {
                out.push(6);
                put_varint(&mut out, ranges.len() as u64);
                let mut next = 0;
                for held in ranges {
                    put_varint(&mut out, held.first - next);
                    put_varint(&mut out, held.last - held.first);
                    next = held.last + 1;
                }
            }
            Self::Kept(kept) => {
                out.push(7);
                kept.encode(&mut out);
            }
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let record = match reader.u8()? {
            1 => Self::Commit(Changes::decode(&mut reader)?),
            2 => {
                let name = reader.byte_string(PREPARE_BYTES_MAX)?.into();
                Self::Prepare(name, Changes::decode(&mut reader)?)
            }
            3 => Self::Decide(reader.u8()? == 1),
            4 => Self::Pin(reader.u64()?, read_name(&mut reader)?),
            5 => Self::Unpin(read_name(&mut reader)?),
            6 => Self::Held(read_held(&mut reader)?),
            7 => Self::Kept(Kept::decode(&mut reader)?),
            _ => return Err(DecodeError::new(0, "a record is of an unknown kind")),
        };
        reader.finish()?;
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn changes() -> impl Strategy<Value = Changes> {
        let change = prop_oneof![
            (any::<u32>(), any::<u32>())
                .prop_map(|(slot, crc)| Change::Whole(Entry { slot: Sector(slot), crc })),
            prop::collection::vec(any::<u8>(), 1..9).prop_map(|bytes| {
                let mut delta = vec![3, bytes.len() as u8];
                delta.extend(bytes);
                Change::Delta(delta.into())
            }),
            Just(Change::Delta(Arc::from([]))),
        ];
        let items = prop::collection::btree_map(0..1000u32, change, 0..20);
        (any::<u64>(), items, any::<bool>(), any::<bool>()).prop_map(
            |(version, items, is_new_map, are_pages_durable)| Changes {
                version,
                page_size: 512,
                pages: 1000,
                kept_pages: 7,
                is_new_map,
                are_pages_durable,
                items: items.into_iter().collect(),
            },
        )
    }

    fn kept() -> impl Strategy<Value = Kept> {
        let replaced = prop::collection::btree_map(any::<u32>(), any::<u32>(), 0..9);
        let version = (any::<u32>(), any::<u32>(), replaced);
        let versions = prop::collection::btree_map(0..NUMBER_MAX, version, 0..5);
        let segments = prop::collection::vec(any::<u32>(), 0..9);
        let unlisted = (0..NUMBER_MAX, any::<u32>());
        (segments, versions, unlisted).prop_map(|(log_before, versions, unlisted)| {
            let versions = versions.into_iter().map(|(version, (page_size, pages, replaced))| {
                let replaced = replaced.into_iter().map(|(page, slot)| (page, Sector(slot)));
                KeptVersion { version, page_size, pages, replaced: replaced.collect() }
            });
            let unlisted = Unlisted { before: unlisted.0, segments: unlisted.1 };
            Kept { log_before, versions: versions.collect(), unlisted }
        })
    }

    fn record() -> impl Strategy<Value = Record> {
        let bytes = prop::collection::vec(any::<u8>(), 0..9);
        prop_oneof![
            changes().prop_map(Record::Commit),
            (bytes, changes()).prop_map(|(name, changes)| Record::Prepare(name.into(), changes)),
            any::<bool>().prop_map(Record::Decide),
            any::<u64>().prop_map(|version| Record::Pin(version, "a name".into())),
            Just(Record::Unpin("a name".into())),
            prop::collection::btree_set(0..NUMBER_MAX, 0..9).prop_map(|ends| {
                let ends: Vec<_> = ends.into_iter().collect();
                let ranges = ends.chunks_exact(2).map(|of| Held { first: of[0], last: of[1] });
                Record::Held(ranges.collect())
            }),
            kept().prop_map(Record::Kept),
        ]
    }

    #[test]
    fn the_bytes_are_those_of_the_format() {
        let whole = Change::Whole(Entry { slot: Sector(0x0102), crc: 0x0a0b_0c0d });
        let delta = Change::Delta([3, 2, 8, 9].as_slice().into());
        let changes = Changes {
            version: 7,
            page_size: 4096,
            pages: 300,
            kept_pages: 200,
            is_new_map: false,
            are_pages_durable: true,
            items: vec![(1, whole), (2, delta), (299, Change::Delta([].as_slice().into()))],
        };
        let expected = [
            &[1, 7, 0, 0, 0, 0, 0, 0, 0, 2, 0, 16, 0, 0, 44, 1, 0, 0, 200, 0, 0, 0, 3][..],
            &[1, 0, 2, 1, 0, 0, 13, 12, 11, 10],
            &[0, 5, 3, 2, 8, 9],
            &[0xa8, 2, 1],
        ];
        assert_eq!(Record::Commit(changes).encode(), expected.concat());
        assert_eq!(Record::Decide(true).encode(), [3, 1]);
        let pin = Record::Pin(9, "n".into()).encode();
        assert_eq!(pin, [4, 9, 0, 0, 0, 0, 0, 0, 0, 1, b'n']);
        let held = |first, last| Held { first, last };
        let ranges = Record::Held(vec![held(0, 0), held(9, 10), held(300, 300)]);
        assert_eq!(ranges.encode(), [6, 3, 0, 0, 8, 1, 0xa1, 2, 0]);
        assert_eq!(Record::Unpin("n".into()).encode(), [5, 1, b'n']);
        let replaced = vec![(3, Sector(258)), (5, Sector(0))];
        let version = KeptVersion { version: 9, page_size: 512, pages: 6, replaced };
        let unlisted = Unlisted { before: 7, segments: 4 };
        let kept = Kept { log_before: vec![5], versions: vec![version], unlisted };
        let kept = Record::Kept(kept);
        let expected = [
            &[7, 1, 5, 0, 0, 0, 1, 9, 0, 2, 0, 0, 6, 0, 0, 0][..],
            &[2, 3, 2, 1, 0, 0, 1, 0, 0, 0, 0, 7, 4, 0, 0, 0],
        ];
        assert_eq!(kept.encode(), expected.concat());
    }

    proptest! {
        #[test]
        fn records_round_trip(record in record()) {
            let bytes = record.encode();
            prop_assert_eq!(Record::decode(&bytes).unwrap(), record);
            for len in 0..bytes.len() {
                prop_assert!(Record::decode(&bytes[..len]).is_err());
            }
        }

        #[test]
        fn nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = Record::decode(&bytes);
        }
    }
}
