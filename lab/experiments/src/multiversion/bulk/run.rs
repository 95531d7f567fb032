//! Sorted runs of pages, and the entries in them.
//!
//! ```text
//! 0   magic u32 | 4 level u16 | 6 count u16 | 8 zero u64
//! 16  entries of 24 bytes: key u64 | begin u32 | end u32, 0 while open | kind and payload u64
//! ```
//!
//! The kind is in the two upper bits of the payload, which is a value, or of a fence a page.

use super::super::node::unlike;
use super::super::pages::PageId;
use super::super::pages::pool::{Codec, Pool};
use super::super::{Key, OPEN, Value, Version};
use crate::{Error, Result};

/// The greatest payload.
pub const PAYLOAD_MAX: u64 = (1 << 62) - 1;
/// An entry.
pub const ENTRY_BYTES: usize = 24;
/// The level that stands for the head where places are computed.
pub const HEAD_LEVEL: usize = 127;
const HEADER_BYTES: usize = 16;
const MAGIC: u32 = 0x4253_4d56;

/// The kind of an entry. Of equal keys and versions, fences come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The way to a page of the next level: the key and the version of its first entry.
    Fence,
    /// A value.
    Data,
    /// Whatever is open of the key ends.
    Tomb,
}

/// An entry of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Key,
    /// The first version.
    pub begin: Version,
    /// The version behind the last.
    pub end: Version,
    /// What it is.
    pub kind: Kind,
    /// A value, or a page.
    pub payload: Value,
}

impl Entry {
    /// A value that is open.
    #[must_use]
    pub const fn data(key: Key, begin: Version, value: Value) -> Self {
        Self { key, begin, end: OPEN, kind: Kind::Data, payload: value }
    }

    /// A tombstone.
    #[must_use]
    pub const fn tomb(key: Key, begin: Version) -> Self {
        Self { key, begin, end: begin, kind: Kind::Tomb, payload: 0 }
    }

    const fn fence(key: Key, begin: Version, page: PageId) -> Self {
        Self { key, begin, end: begin, kind: Kind::Fence, payload: page }
    }

    /// Whether it is a value that has not ended.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.kind == Kind::Data && self.end == OPEN
    }

    /// Where it stands among others.
    #[must_use]
    pub const fn order(&self) -> (Key, Version) {
        (self.key, self.begin)
    }

    /// The value that a version sees, if this is the newest entry that the version knows.
    #[must_use]
    pub fn seen(&self, version: Version) -> Option<Value> {
        (self.kind == Kind::Data && version < self.end).then_some(self.payload)
    }
}

/// Entries that fit a page.
#[must_use]
pub const fn capacity(page_bytes: usize) -> usize {
    page_bytes.saturating_sub(HEADER_BYTES) / ENTRY_BYTES
}

/// How pages of runs are written.
#[derive(Clone, Copy, Debug)]
pub struct RunCodec;

impl Codec for RunCodec {
    type Page = Vec<Entry>;

    fn encode(&self, page: &Self::Page, bytes: &mut [u8]) -> Result<()> {
        if page.len() > capacity(bytes.len()) {
            return Err(Error::Invalid(format!("{} entries do not fit a page", page.len())));
        }
        bytes.fill(0);
        let (header, rest) = bytes.split_at_mut(HEADER_BYTES);
        let head = [u64::from(MAGIC) | (page.len() as u64) << 48, 0];
        put(header, &head);
        for (entry, bytes) in page.iter().zip(rest.chunks_exact_mut(ENTRY_BYTES)) {
            let end = if entry.end == OPEN { 0 } else { entry.end };
            let span = u64::from(entry.begin) | u64::from(end) << 32;
            let kind = match entry.kind {
                Kind::Fence => 1,
                Kind::Data => 2,
                Kind::Tomb => 3,
            };
            put(bytes, &[entry.key, span, entry.payload | kind << 62]);
        }
        Ok(())
    }

    fn decode(&self, bytes: &[u8]) -> Result<Self::Page> {
        let (header, rest) = bytes.split_at_checked(HEADER_BYTES).ok_or_else(|| unlike("run"))?;
        let [head] = get(header)?;
        if head as u32 != MAGIC {
            return Err(unlike("run"));
        }
        let entries = rest.chunks_exact(ENTRY_BYTES).take((head >> 48) as usize);
        entries.map(decode_entry).collect()
    }
}

fn decode_entry(bytes: &[u8]) -> Result<Entry> {
    let [key, span, payload] = get(bytes)?;
    let kind = match payload >> 62 {
        1 => Kind::Fence,
        2 => Kind::Data,
        3 => Kind::Tomb,
        _ => return Err(unlike("run with entries of these kinds")),
    };
    let end = (span >> 32) as Version;
    let end = if end == 0 { OPEN } else { end };
    let end = if kind == Kind::Data { end } else { span as Version };
    Ok(Entry { key, begin: span as Version, end, kind, payload: payload & PAYLOAD_MAX })
}

fn put(bytes: &mut [u8], numbers: &[u64]) {
    for (to, number) in bytes.chunks_exact_mut(8).zip(numbers) {
        to.copy_from_slice(&number.to_le_bytes());
    }
}

fn get<const N: usize>(bytes: &[u8]) -> Result<[u64; N]> {
    let mut numbers = [0; N];
    for (at, number) in numbers.iter_mut().enumerate() {
        let from = bytes.get(at * 8..).and_then(|rest| rest.first_chunk());
        *number = u64::from_le_bytes(*from.ok_or_else(|| unlike("whole page"))?);
    }
    Ok(numbers)
}

/// A run: neighbouring pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// The first page.
    pub first: PageId,
    /// How many.
    pub pages: u64,
    /// Values and tombstones.
    pub entries: u64,
    /// Those of them that are dead.
    pub dead: u64,
}

/// What a run holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Values and tombstones, in order.
    pub entries: Vec<Entry>,
    /// A fence for each page of the next level, in order.
    pub fences: Vec<Entry>,
}

impl Run {
    /// Writes a run from `place` on, one page behind the other; the fences of the answer lead to
    /// its pages.
    ///
    /// # Errors
    /// When a page cannot be written.
    pub fn write(
        pool: &mut Pool<RunCodec>,
        place: PageId,
        contents: &Contents,
    ) -> Result<(Self, Vec<Entry>)> {
        let Contents { entries, fences } = contents;
        let mut bytes = vec![0; pool.file().page_bytes()];
        let pages = packed(entries, fences, capacity(bytes.len()));
        for (id, page) in (place..).zip(&pages) {
            RunCodec.encode(page, &mut bytes)?;
            pool.forget(id);
            pool.file().write(id, &bytes)?;
        }
        let run = Self {
            first: place,
            pages: pages.len() as u64,
            entries: entries.len() as u64,
            dead: entries.iter().filter(|entry| !entry.is_open()).count() as u64,
        };
        Ok((run, fences_to(place, &pages)))
    }

    /// Reads it, page by page.
    ///
    /// # Errors
    /// When a page cannot be read.
    pub fn read(&self, pool: &mut Pool<RunCodec>) -> Result<Contents> {
        let mut contents = Contents::default();
        for id in self.first..self.first + self.pages {
            for entry in RunCodec.decode(pool.file().read(id)?)? {
                if entry.kind != Kind::Fence {
                    contents.entries.push(entry);
                } else if contents.fences.last().is_none_or(|of| of.payload != entry.payload) {
                    contents.fences.push(entry);
                }
            }
        }
        Ok(contents)
    }

    /// Gives its pages back.
    pub fn free(&self, pool: &mut Pool<RunCodec>) {
        (self.first..self.first + self.pages).for_each(|id| pool.free(id));
    }
}

/// The fences to pages that [`packed`] made; the first one is before all keys.
fn fences_to(place: PageId, pages: &[Vec<Entry>]) -> Vec<Entry> {
    let numbered = (place..).zip(pages);
    let fence = |(id, page): (PageId, &Vec<Entry>)| {
        let (key, begin) = if id == place { (0, 0) } else { page.first()?.order() };
        Some(Entry::fence(key, begin, id))
    };
    numbered.filter_map(fence).collect()
}

/// Entries and fences in order, page by page. Where there are fences, a page that would begin
/// with another entry begins with a copy of the fence before it.
#[must_use]
pub fn packed(entries: &[Entry], fences: &[Entry], capacity: usize) -> Vec<Vec<Entry>> {
    let (mut entries, mut fences) = (entries, fences);
    let mut pages: Vec<Vec<Entry>> = Vec::new();
    let mut leads_to = None;
    loop {
        let is_fence_next = match (fences.first(), entries.first()) {
            (Some(fence), Some(entry)) => fence.order() <= entry.order(),
            (fence, _) => fence.is_some(),
        };
        let from = if is_fence_next { &mut fences } else { &mut entries };
        let Some((next, rest)) = from.split_first() else { return pages };
        *from = rest;
        let next = *next;
        if is_fence_next {
            leads_to = Some(next.payload);
        }
        match pages.last_mut() {
            Some(page) if page.len() < capacity => page.push(next),
            _ => {
                let copy = leads_to.filter(|_| next.kind != Kind::Fence);
                let copy = copy.map(|page| Entry::fence(next.key, next.begin, page));
                pages.push(copy.into_iter().chain([next]).collect());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE_BYTES: usize = HEADER_BYTES + 4 * ENTRY_BYTES;

    fn some() -> Contents {
        let entries = (0..9).map(|key| Entry::data(10 * key, 3, key)).collect();
        let fences = vec![Entry::fence(0, 0, 70), Entry::fence(40, 3, 71)];
        Contents { entries, fences }
    }

    #[test]
    fn every_page_begins_with_a_fence() {
        let Contents { entries, fences } = some();
        let pages = packed(&entries, &fences, 4);
        let kinds: Vec<Vec<Kind>> =
            pages.iter().map(|page| page.iter().map(|entry| entry.kind).collect()).collect();
        use Kind::{Data as D, Fence as F};
        assert_eq!(kinds, [vec![F, D, D, D], vec![F, D, F, D], vec![F, D, D, D], vec![F, D]]);
        assert_eq!(pages[1][0], Entry::fence(30, 3, 70));
        let fences = fences_to(5, &pages);
        let keys: Vec<_> = fences.iter().map(|fence| (fence.order(), fence.payload)).collect();
        assert_eq!(keys, [((0, 0), 5), ((30, 3), 6), ((50, 3), 7), ((80, 3), 8)]);
    }

    #[test]
    fn runs_are_read_back_and_freed() {
        let mut pool = Pool::new(RunCodec, PAGE_BYTES, 2);
        let (run, fences) = Run::write(&mut pool, 100, &some()).unwrap();
        assert_eq!((run.pages, run.entries, run.dead, fences.len()), (4, 9, 0, 4));
        assert_eq!(run.read(&mut pool).unwrap(), some());
        assert_eq!((pool.counters().writes, pool.counters().sequential), (4, 3));
        run.free(&mut pool);
        assert!(run.read(&mut pool).is_err());
    }

    proptest! {
        #[test]
        fn entries_are_read_back(
            fields in prop::collection::vec((any::<u64>(), 1u32..9, 0u32..9, 0u8..3), 0..5),
        ) {
            let page: Vec<Entry> = fields.into_iter().map(|(key, begin, life, kind)| match kind {
                0 => Entry::fence(key, begin, key >> 2),
                1 => Entry::tomb(key, begin),
                _ if life == 0 => Entry::data(key, begin, key >> 2),
                _ => Entry { end: begin + life, ..Entry::data(key, begin, 0) },
            }).collect();
            let mut bytes = vec![0; PAGE_BYTES + ENTRY_BYTES];
            RunCodec.encode(&page, &mut bytes).unwrap();
            prop_assert_eq!(RunCodec.decode(&bytes).unwrap(), page);
        }
    }
}
