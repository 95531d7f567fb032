//! Space allocation: the parts of the file that are in use.
//!
//! The file is a sequence of segments of one size. A segment holds the superblocks, or commit
//! records, or slots of one size, or nothing; or it is a row, which is filled in order. A slot
//! holds one page or one node of a map. Segments are filled with zeros once, when the file grows,
//! and reused after that: rewriting written blocks is what makes a commit cheap on a file system.
//!
//! Slots are allocated from one segment after the other, from its front to its back. The next
//! segment is the one with the most free slots. Slots that are allocated together are therefore
//! adjacent, as far as there is room, and a device takes one write of eight slots in half the time
//! of eight writes. Pages that are written together and change often also die together, which
//! empties segments for later use.
//!
//! Invariants: a segment is in `free_segments` exactly when it is [`Use::Free`]; it is in `open` of
//! its class, by its number of free slots, exactly when any is free, and `free_slots` is their sum;
//! a segment of slots has at least one in use. A row that is in `rows` is open. A segment in
//! `closed` is in neither of the first two, nor counted.
//!
//! This module does no I/O, and does not know when a slot may be reused: the caller of
//! [`Space::free`] decides that.

use std::collections::{BTreeMap, BTreeSet};

use crate::alloc::space::open_segment::{Heat, Row};
use crate::place::{CLASSES, Class, SECTOR_BYTES, Sector};

mod closed;
pub(crate) mod open_segment;
mod rows;

pub(crate) use rows::Candidate;

/// The use of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Use {
    Free,
    /// The superblocks.
    Fixed,
    /// Commit records.
    Log,
    Slots {
        class: Class,
        /// One bit a slot, 1 where it is free.
        free: Vec<u64>,
        free_count: u32,
    },
    Row(Row),
}

/// The use of every segment.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    segment_sectors: u32,
    segments: Vec<Use>,
    free_segments: BTreeSet<u32>,
    /// Segments of each class that have free slots: how many, and which.
    open: [BTreeSet<(u32, u32)>; CLASSES],
    /// The slot after the one that was taken last, of each class: its segment, and its place there.
    next: [(u32, u32); CLASSES],
    /// Free slots in the segments of each class.
    free_slots: [u64; CLASSES],
    used_bytes: u64,
    /// The rows that pages are appended to.
    rows: BTreeMap<(Heat, Class), u32>,
    /// Segments that are being emptied: nothing is taken from them.
    closed: BTreeSet<u32>,
    /// The number of segments from the first on, all of them in `closed`, in which slots are in use
    /// that are not known here.
    unknown: u32,
    /// Whether slots are claimed that a checkpoint has: `open` is empty then.
    is_loading: bool,
}

impl Space {
    /// A file of `count` segments of which only the first, with the superblocks, is in use.
    pub(crate) fn new(segment_bytes: u32, count: u32) -> Self {
        let mut space = Self {
            segment_sectors: segment_bytes / SECTOR_BYTES as u32,
            segments: Vec::new(),
            free_segments: BTreeSet::new(),
            open: Default::default(),
            next: Default::default(),
            free_slots: [0; CLASSES],
            used_bytes: 0,
            rows: BTreeMap::new(),
            closed: BTreeSet::new(),
            unknown: 0,
            is_loading: false,
        };
        if count > 0 {
            space.segments.push(Use::Fixed);
            space.add_segments(count - 1);
        }
        space
    }

    /// An empty file whose slots are claimed next; until [`Space::loaded`] none is taken or given
    /// back. Claiming is cheaper then.
    pub(crate) fn loading(segment_bytes: u32, count: u32) -> Self {
        Self { is_loading: true, ..Self::new(segment_bytes, count) }
    }

    /// Lets slots be taken and given back.
    pub(crate) fn loaded(&mut self) {
        self.is_loading = false;
        for (segment, used) in (0..).zip(&self.segments) {
            if let Use::Slots { class, free_count, .. } = used
                && *free_count > 0
            {
                self.open[usize::from(class.0)].insert((*free_count, segment));
            }
        }
    }

    pub(crate) fn segment_bytes(&self) -> u64 {
        u64::from(self.segment_sectors) * SECTOR_BYTES
    }

    /// The number of segments of the file.
    pub(crate) fn segment_count(&self) -> u32 {
        self.segments.len() as u32
    }

    /// The number of additional segments that the addresses allow.
    pub(crate) fn growable(&self) -> u32 {
        (u32::MAX / self.segment_sectors).saturating_sub(self.segment_count())
    }

    pub(crate) fn free_segments(&self) -> u32 {
        self.free_segments.len() as u32
    }

    /// Bytes of slots in use.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// The file has grown by `count` segments.
    pub(crate) fn add_segments(&mut self, count: u32) {
        for _ in 0..count {
            self.free_segments.insert(self.segment_count());
            self.segments.push(Use::Free);
        }
    }

    /// The start of a segment, in bytes.
    pub(crate) fn segment_offset(&self, segment: u32) -> u64 {
        u64::from(segment) * self.segment_bytes()
    }

    fn place(&self, sector: Sector) -> (u32, u32) {
        (sector.0 / self.segment_sectors, sector.0 % self.segment_sectors)
    }

    fn slots_of(&self, class: Class) -> u32 {
        self.segment_sectors >> class.0
    }

    /// The number of slots of a class that can be taken without growing, with `keep` segments left
    /// free.
    pub(crate) fn available(&self, class: Class, keep: u32) -> u64 {
        let partly = self.free_slots[usize::from(class.0)];
        let whole = self.free_segments().saturating_sub(keep);
        partly + u64::from(whole) * u64::from(self.slots_of(class))
    }

    /// The length of a slot in use, in bytes; 0 for what is none.
    pub(crate) fn slot_bytes(&self, sector: Sector) -> u64 {
        let (segment, within) = self.place(sector);
        let (class, free) = match self.segments.get(segment as usize) {
            Some(Use::Slots { class, free, .. }) => (class, free),
            Some(Use::Row(row)) if row.is_live(within >> row.class.0) => return row.class.bytes(),
            _ => return 0,
        };
        let slot = within >> class.0;
        let word = free.get((slot / 64) as usize).copied().unwrap_or(u64::MAX);
        if word & (1 << (slot % 64)) == 0 { class.bytes() } else { 0 }
    }

    /// The slots in use, each with its length in bytes.
    #[cfg(test)]
    pub(crate) fn used(&self) -> BTreeMap<Sector, u64> {
        let all = (0..self.segment_count() * self.segment_sectors).map(Sector);
        let sized = all.map(|sector| (sector, self.slot_bytes(sector)));
        let is_first = |(sector, bytes): &(Sector, u64)| {
            *bytes > 0 && u64::from(sector.0).is_multiple_of(bytes / SECTOR_BYTES)
        };
        sized.filter(is_first).collect()
    }

    /// Takes a free slot: the one after the last that was taken, if it can be. `None` when the file
    /// must grow.
    pub(crate) fn take(&mut self, class: Class) -> Option<Sector> {
        let (segment, from) = self.next[usize::from(class.0)];
        let next = self.free_slot(segment, class, from).map(|slot| (segment, slot));
        let (segment, slot) = match next {
            Some(place) => place,
            None => {
                let (_, segment) = match self.open[usize::from(class.0)].last() {
                    Some(most) => *most,
                    None => self.open_segment(class)?,
                };
                (segment, self.free_slot(segment, class, 0)?)
            }
        };
        self.next[usize::from(class.0)] = (segment, slot + 1);
        self.occupy(segment, slot);
        Some(Sector(segment * self.segment_sectors + slot * class.sectors()))
    }

    /// The first free slot of a segment of this class, from slot `from` on.
    fn free_slot(&self, segment: u32, class: Class, from: u32) -> Option<u32> {
        let Use::Slots { class: is, free, .. } = self.segments.get(segment as usize)? else {
            return None;
        };
        if *is != class {
            return None;
        }
        let mut mask = u64::MAX << (from % 64);
        for (index, word) in (0..).zip(free).skip((from / 64) as usize) {
            if word & mask != 0 {
                return Some(index * 64 + (word & mask).trailing_zeros());
            }
            mask = u64::MAX;
        }
        None
    }

    /// Marks a free slot as taken.
    fn occupy(&mut self, segment: u32, slot: u32) {
        let Some(Use::Slots { class, free, free_count }) = self.segments.get_mut(segment as usize)
        else {
            return;
        };
        let Some(word) = free.get_mut((slot / 64) as usize) else { return };
        *word &= !(1 << (slot % 64));
        if !self.is_loading {
            let open = &mut self.open[usize::from(class.0)];
            open.remove(&(*free_count, segment));
            if *free_count > 1 {
                open.insert((*free_count - 1, segment));
            }
        }
        *free_count -= 1;
        self.used_bytes += class.bytes();
        self.free_slots[usize::from(class.0)] -= 1;
    }

    /// Gives a free segment to a class.
    fn open_segment(&mut self, class: Class) -> Option<(u32, u32)> {
        let segment = self.free_segments.pop_first()?;
        self.make_slots(segment, class);
        Some((self.slots_of(class), segment))
    }

    fn make_slots(&mut self, segment: u32, class: Class) {
        let slots = self.slots_of(class);
        let mut free = vec![u64::MAX; (slots / 64) as usize];
        if !slots.is_multiple_of(64) {
            free.push((1 << (slots % 64)) - 1);
        }
        self.segments[segment as usize] = Use::Slots { class, free, free_count: slots };
        if !self.is_loading {
            self.open[usize::from(class.0)].insert((slots, segment));
        }
        self.free_slots[usize::from(class.0)] += u64::from(slots);
    }

    /// Gives a slot back. A slot that is not in use is left alone.
    pub(crate) fn free(&mut self, sector: Sector) {
        let (segment, within) = self.place(sector);
        let is_closed = self.closed.contains(&segment);
        let (class, free, free_count) = match self.segments.get_mut(segment as usize) {
            Some(Use::Slots { class, free, free_count }) => (class, free, free_count),
            Some(Use::Row(_)) => return self.free_in_row(segment, within),
            _ => return,
        };
        let (class, slot) = (*class, within >> class.0);
        let Some(word) = free.get_mut((slot / 64) as usize) else { return };
        if *word & (1 << (slot % 64)) != 0 {
            return;
        }
        *word |= 1 << (slot % 64);
        self.used_bytes -= class.bytes();
        let is_empty = *free_count + 1 == self.segment_sectors >> class.0;
        if !is_closed {
            let open = &mut self.open[usize::from(class.0)];
            open.remove(&(*free_count, segment));
            self.free_slots[usize::from(class.0)] += 1;
            if is_empty {
                self.free_slots[usize::from(class.0)] -= u64::from(*free_count + 1);
            } else {
                open.insert((*free_count + 1, segment));
            }
        }
        *free_count += 1;
        if is_empty {
            self.give_back(segment);
        }
    }

    fn give_back(&mut self, segment: u32) {
        self.segments[segment as usize] = Use::Free;
        if !self.closed.contains(&segment) {
            self.free_segments.insert(segment);
        }
    }

    /// Takes this very slot, while a store is opened. `false` when it cannot be one: past the end,
    /// not aligned, in use, or among slots of another size.
    pub(crate) fn claim(&mut self, sector: Sector, class: Class) -> bool {
        let (segment, within) = self.place(sector);
        if class.sectors() > self.segment_sectors || !within.is_multiple_of(class.sectors()) {
            return false;
        }
        if self.free_segments.remove(&segment) {
            self.make_slots(segment, class);
        }
        let slot = within >> class.0;
        let is_free = self.free_slot(segment, class, slot) == Some(slot);
        if is_free {
            self.occupy(segment, slot);
        }
        is_free
    }

    /// Takes a free segment for commit records; `None` when the file must grow.
    pub(crate) fn take_log(&mut self) -> Option<u32> {
        let segment = self.free_segments.pop_first()?;
        self.segments[segment as usize] = Use::Log;
        Some(segment)
    }

    /// Takes this very segment for commit records, while a store is opened.
    pub(crate) fn claim_log(&mut self, segment: u32) -> bool {
        let was_free = self.free_segments.remove(&segment);
        if was_free {
            self.segments[segment as usize] = Use::Log;
        }
        was_free
    }

    /// Gives a segment of commit records back.
    pub(crate) fn free_log(&mut self, segment: u32) {
        match self.segments.get(segment as usize) {
            Some(Use::Log) => self.give_back(segment),
            Some(Use::Row(_)) => self.end_log_row(segment),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Slots never overlap, what is free can be claimed again, and empty segments serve any
        /// class.
        #[test]
        fn slots_never_overlap(ops in prop::collection::vec((0..3u8, 0..6u8, 0..64usize), 1..300)) {
            let mut space = Space::new(16 * 1024, 9);
            let mut used: BTreeMap<u32, u32> = BTreeMap::new();
            for (op, class, pick) in ops {
                let class = Class(class);
                if op < 2 {
                    let Some(sector) = space.take(class) else { continue };
                    let end = sector.0 + class.sectors();
                    let before = used.range(..end).next_back();
                    prop_assert!(before.is_none_or(|(at, len)| at + len <= sector.0));
                    prop_assert!(sector.0 >= 32 && sector.0.is_multiple_of(class.sectors()));
                    used.insert(sector.0, class.sectors());
                } else if let Some((at, _)) = used.iter().nth(pick).map(|(a, l)| (*a, *l)) {
                    space.free(Sector(at));
                    space.free(Sector(at));
                    used.remove(&at);
                }
                let total: u32 = used.values().sum();
                prop_assert_eq!(space.used_bytes(), u64::from(total) * SECTOR_BYTES);
                for class in (0..CLASSES as u8).map(Class) {
                    let mut copy = space.clone();
                    let taken = std::iter::from_fn(|| copy.take(class)).count();
                    prop_assert_eq!(space.available(class, 0), taken as u64);
                }
            }
            let mut again = Space::loading(16 * 1024, 9);
            for (at, sectors) in &used {
                let class = Class(sectors.trailing_zeros() as u8);
                prop_assert!(again.claim(Sector(*at), class));
                prop_assert!(!again.claim(Sector(*at), class));
            }
            again.loaded();
            prop_assert_eq!(again.free_segments(), space.free_segments());
            for class in (0..CLASSES as u8).map(Class) {
                let mut copy = again.clone();
                let taken = std::iter::from_fn(|| copy.take(class)).count();
                prop_assert_eq!(space.available(class, 0), taken as u64);
            }
            for (at, _) in used {
                space.free(Sector(at));
            }
            prop_assert_eq!((space.free_segments(), space.used_bytes()), (8, 0));
        }
    }

    #[test]
    fn wild_claims_are_refused() {
        let mut space = Space::new(16 * 1024, 3);
        let page = Class::holding(4096).unwrap();
        for sector in [0, 1, 8, 31, 33, 96, 1000, u32::MAX] {
            assert!(!space.claim(Sector(sector), page), "{sector}");
        }
        assert!(!space.claim(Sector(32), Class(7)));
        assert!(space.claim(Sector(32), page));
        assert!(!space.claim(Sector(33), Class(0)));
        assert!(!space.claim_log(1) && space.claim_log(2) && !space.claim_log(3));
    }
}
