//! The part of a buffer that is in memory: operations sorted by key, in chunks of memory.
//!
//! P1: keys ascend and are different, within a chunk and from one chunk to the next. P2: a chunk
//! has an entry. P3: a chunk has at most `CHUNK_BYTES`, or one entry. So an operation moves at most
//! a chunk, little memory is held that has no operation in it, and a part that is moved elsewhere
//! gives its memory back chunk by chunk.

use alloc::vec::Vec;

use crate::page::{self, Entry};

/// The greatest size of a chunk with several entries, in bytes.
const CHUNK_BYTES: usize = 1024;
/// By how much a chunk grows at least.
const GROWTH_BYTES: usize = 32;

/// A place in a part: before an entry, or at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    chunk: u32,
    offset: u32,
}

/// Operations of different keys, the newest of each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    chunks: Vec<Vec<u8>>,
    /// Bytes of all entries.
    live_bytes: usize,
    /// Bytes of the chunks' memory.
    chunk_bytes: usize,
}

impl Part {
    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The number of operations. Cost: it walks over all.
    pub(crate) fn len(&self) -> usize {
        self.iter().count()
    }

    /// The sizes of all entries on flash.
    pub(crate) fn live_bytes(&self) -> usize {
        self.live_bytes
    }

    /// The memory that it holds, in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.chunk_bytes + size_of::<Vec<u8>>() * self.chunks.capacity()
    }

    /// The place before all operations.
    pub(crate) fn begin() -> Place {
        Place::default()
    }

    /// The place after all operations.
    pub(crate) fn end(&self) -> Place {
        Place { chunk: self.chunks.len() as u32, offset: 0 }
    }

    fn chunk(&self, place: Place) -> Option<&[u8]> {
        self.chunks.get(place.chunk as usize).map(Vec::as_slice)
    }

    /// A place in a chunk; its end is the beginning of the next.
    fn place(&self, chunk: usize, offset: usize) -> Place {
        if self.chunks.get(chunk).is_some_and(|bytes| offset >= bytes.len()) {
            return Place { chunk: chunk as u32 + 1, offset: 0 };
        }
        Place { chunk: chunk as u32, offset: offset as u32 }
    }

    /// The operation after a place, and the place after it.
    pub(crate) fn next(&self, place: Place) -> Option<(Entry<'_>, Place)> {
        let (entry, _) = page::first(self.chunk(place)?.get(place.offset as usize..)?)?;
        let offset = place.offset as usize + page::entry_bytes(entry);
        Some((entry, self.place(place.chunk as usize, offset)))
    }

    /// The operation before a place, and the place before it. Cost: it walks over a chunk.
    pub(crate) fn before(&self, place: Place) -> Option<(Entry<'_>, Place)> {
        let (chunk, end) = match place.offset as usize {
            0 => (place.chunk.checked_sub(1)? as usize, usize::MAX),
            offset => (place.chunk as usize, offset),
        };
        let mut offset = 0;
        let mut last = None;
        for entry in page::entries(self.chunks.get(chunk)?) {
            if offset >= end {
                break;
            }
            last = Some((entry, self.place(chunk, offset)));
            offset += page::entry_bytes(entry);
        }
        last
    }

    /// The operation after a place.
    pub(crate) fn get(&self, place: Place) -> Option<Entry<'_>> {
        self.next(place).map(|(entry, _)| entry)
    }

    /// The place before the first operation whose key is `key` or greater.
    pub(crate) fn position(&self, key: &[u8]) -> Place {
        let chunk = self.chunk_of(key);
        let Some(bytes) = self.chunks.get(chunk) else { return self.end() };
        self.place(chunk, slot(bytes, key).0)
    }

    /// The chunk whose keys are around `key`.
    fn chunk_of(&self, key: &[u8]) -> usize {
        let is_before =
            |chunk: &Vec<u8>| page::first(chunk).is_some_and(|((first, _), _)| first <= key);
        self.chunks.partition_point(is_before).saturating_sub(1)
    }

    pub(crate) fn find(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        let (found, value) = self.get(self.position(key))?;
        (found == key).then_some(value)
    }

    /// The operations between two places.
    pub(crate) fn range(&self, from: Place, to: Place) -> impl Iterator<Item = Entry<'_>> {
        let mut place = from;
        core::iter::from_fn(move || {
            let (entry, next) = if place < to { self.next(place)? } else { return None };
            place = next;
            Some(entry)
        })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Entry<'_>> {
        self.range(Self::begin(), self.end())
    }

    /// Adds an operation, which is newer than all before.
    pub(crate) fn insert(&mut self, entry: Entry<'_>) {
        let size = page::entry_bytes(entry);
        loop {
            let at = self.chunk_of(entry.0);
            let Some(chunk) = self.chunks.get(at) else { return self.add_chunk(at, entry) };
            let (offset, old) = slot(chunk, entry.0);
            let others = chunk.len() - old;
            if others == 0 || others + size <= CHUNK_BYTES {
                return self.splice(at, offset..offset + old, entry);
            }
            // Keys that ascend fill chunks to their end.
            if offset == chunk.len() {
                return self.add_chunk(at + 1, entry);
            }
            if !self.split(at) {
                return self.add_chunk(at, entry);
            }
        }
    }

    /// Adds a chunk with one operation.
    fn add_chunk(&mut self, at: usize, entry: Entry<'_>) {
        let mut chunk = Vec::new();
        let size = page::entry_bytes(entry);
        chunk.reserve_exact(size.max(GROWTH_BYTES));
        page::append(&mut chunk, entry);
        self.chunk_bytes += chunk.capacity();
        self.live_bytes += size;
        reserve(&mut self.chunks);
        self.chunks.insert(at, chunk);
    }

    /// Puts an operation into a chunk that has room for it, in the place of what is in `old`.
    fn splice(&mut self, at: usize, old: core::ops::Range<usize>, entry: Entry<'_>) {
        let Some(chunk) = self.chunks.get_mut(at) else { return };
        let (before, size) = (chunk.capacity(), page::entry_bytes(entry));
        let grown = chunk.len() - old.len() + size;
        if grown > before {
            let wanted = grown + (grown / 8).max(GROWTH_BYTES);
            chunk.reserve_exact(wanted.min(CHUNK_BYTES).max(grown) - chunk.len());
        }
        self.live_bytes = self.live_bytes + size - old.len();
        page::splice(chunk, old, entry);
        self.chunk_bytes = self.chunk_bytes + chunk.capacity() - before;
    }

    /// Makes two of a chunk, of about the same size; answers whether it has two entries.
    fn split(&mut self, at: usize) -> bool {
        let Some(chunk) = self.chunks.get_mut(at) else { return false };
        let mut middle = 0;
        for entry in page::entries(chunk) {
            let end = middle + page::entry_bytes(entry);
            // The last entry may be longer than all before it.
            if middle >= chunk.len() / 2 || end >= chunk.len() {
                break;
            }
            middle = end;
        }
        if middle == 0 {
            return false;
        }
        let before = chunk.capacity();
        let tail = chunk.get(middle..).map(Vec::from).unwrap_or_default();
        chunk.truncate(middle);
        chunk.shrink_to_fit();
        self.chunk_bytes = self.chunk_bytes + chunk.capacity() + tail.capacity() - before;
        reserve(&mut self.chunks);
        self.chunks.insert(at + 1, tail);
        true
    }

    /// Takes the operations from a place on.
    pub(crate) fn split_off(&mut self, place: Place) -> Self {
        let mut taken = Self::default();
        let mut first = place.chunk as usize;
        if place.offset > 0 {
            let Some(chunk) = self.chunks.get_mut(first) else { return taken };
            let tail = chunk.get(place.offset as usize..).map(Vec::from).unwrap_or_default();
            chunk.truncate(place.offset as usize);
            chunk.shrink_to_fit();
            taken.chunks.push(tail);
            first += 1;
        }
        let rest = self.chunks.drain(first.min(self.chunks.len())..);
        taken.chunks.reserve_exact(rest.len());
        taken.chunks.extend(rest);
        self.chunks.shrink_to_fit();
        self.count();
        taken.count();
        taken
    }

    /// Removes the operations from a place on.
    pub(crate) fn truncate(&mut self, place: Place) {
        drop(self.split_off(place));
    }

    /// Removes the operations before a place.
    pub(crate) fn remove_before(&mut self, place: Place) {
        if place > Self::begin() {
            *self = self.split_off(place);
        }
    }

    /// Takes the first chunk out, as a part.
    pub(crate) fn take_chunk(&mut self) -> Option<Self> {
        if self.chunks.is_empty() {
            return None;
        }
        let mut taken = Self::default();
        taken.chunks.reserve_exact(1);
        taken.chunks.push(self.chunks.remove(0));
        taken.count();
        self.live_bytes -= taken.live_bytes;
        self.chunk_bytes -= taken.chunk_bytes;
        Some(taken)
    }

    fn count(&mut self) {
        self.live_bytes = self.chunks.iter().map(Vec::len).sum();
        self.chunk_bytes = self.chunks.iter().map(Vec::capacity).sum();
    }
}

/// Where an entry of `key` is or would be in a chunk, and the size of the one that is there.
fn slot(chunk: &[u8], key: &[u8]) -> (usize, usize) {
    let offset =
        page::entries(chunk).take_while(|entry| entry.0 < key).map(page::entry_bytes).sum();
    let found = chunk.get(offset..).and_then(page::first).map(|(entry, _)| entry);
    (offset, found.filter(|found| found.0 == key).map_or(0, page::entry_bytes))
}

/// Room for one more chunk; grows by an eighth, so that little is held and not used.
fn reserve(chunks: &mut Vec<Vec<u8>>) {
    if chunks.len() == chunks.capacity() {
        chunks.reserve_exact((chunks.len() / 8).max(1));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_chunk_of_a_short_and_a_long_entry_is_divided_between_them() {
        let long = [7; 1000];
        for (key, len) in [(1, 0), (2, 40), (3, 900), (4, 40), (5, 900)] {
            let mut part = Part::default();
            part.insert((&[2], Some(&[])));
            part.insert((&[4], Some(&long)));
            part.insert((&[key], Some(&long[..len])));
            assert!(part.iter().is_sorted_by(|a, b| a.0 < b.0), "key {key} of {len} bytes");
            assert_eq!(part.find(&[key]), Some(Some(&long[..len])), "key {key}");
        }
    }

    #[test]
    fn a_part_is_a_map_in_which_the_last_operation_counts() {
        let mut state = 3_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize
        };
        let (mut part, mut model) = (Part::default(), BTreeMap::new());
        for step in 0..5000 {
            let number = next().to_le_bytes();
            let key = number[..1 + next() % 2].to_vec();
            let value = (next() % 10 < 7).then(|| number[..next() % 8].to_vec());
            part.insert((&key, value.as_deref()));
            model.insert(key, value);
            if step % 1000 == 999 {
                let middle = [number[0]];
                let right = part.split_off(part.position(&middle));
                assert!(right.iter().all(|(key, _)| *key >= middle[..]));
                right.iter().for_each(|entry| part.insert(entry));
            }
        }
        let found: Vec<_> = part.iter().map(|(k, v)| (k.to_vec(), v.map(<[u8]>::to_vec))).collect();
        assert_eq!(found, model.clone().into_iter().collect::<Vec<_>>());
        assert_eq!(part.live_bytes(), part.iter().map(page::entry_bytes).sum::<usize>());
        for key in 0..=255_u8 {
            let expected = model.get(&[key][..]).map(|value| value.as_deref());
            assert_eq!(part.find(&[key]), expected);
        }
    }
}
