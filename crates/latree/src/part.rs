//! The part of a buffer that is in memory: operations sorted by key, in chunks of memory.
//!
//! P1: keys ascend and are different. P2: chunks have the entries that `places` names and those
//! that were replaced; when the latter are more than half, they are removed. Chunks are small, so
//! that a part that grows is never copied as a whole.

use alloc::vec::Vec;

use crate::page::{self, Entry};

/// The size of a chunk, in bytes, unless an entry is larger or there are very many.
const CHUNK_BYTES: usize = 1024;
const MANY_CHUNKS: usize = 16 << 10;

/// Where an entry begins.
#[derive(Clone, Copy, Debug)]
struct Place {
    chunk: u16,
    offset: u16,
}

/// Operations of different keys, the newest of each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    chunks: Vec<Vec<u8>>,
    places: Vec<Place>,
    /// Bytes of entries that are not replaced.
    live_bytes: usize,
    /// Bytes of all entries.
    bytes: usize,
    /// Bytes of the chunks' memory.
    chunk_bytes: usize,
}

impl Part {
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The sizes of all entries on flash.
    pub(crate) fn live_bytes(&self) -> usize {
        self.live_bytes
    }

    /// The memory that it holds, in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.chunk_bytes
            + size_of::<Vec<u8>>() * self.chunks.capacity()
            + size_of::<Place>() * self.places.capacity()
    }

    fn at(&self, place: Place) -> Option<Entry<'_>> {
        let chunk = self.chunks.get(usize::from(place.chunk))?;
        page::first(chunk.get(usize::from(place.offset)..)?).map(|(entry, _)| entry)
    }

    pub(crate) fn get(&self, at: usize) -> Option<Entry<'_>> {
        self.at(*self.places.get(at)?)
    }

    /// The number of keys before `key`.
    pub(crate) fn position(&self, key: &[u8]) -> usize {
        self.places.partition_point(|place| self.at(*place).is_some_and(|entry| entry.0 < key))
    }

    pub(crate) fn find(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        let (found, value) = self.get(self.position(key))?;
        (found == key).then_some(value)
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = Entry<'_>> {
        (0..self.len()).filter_map(|at| self.get(at))
    }

    /// Adds an operation, which is newer than all before.
    pub(crate) fn insert(&mut self, entry: Entry<'_>) {
        let at = self.position(entry.0);
        let size = page::entry_bytes(entry);
        let Some(old) = self.get(at).filter(|old| old.0 == entry.0).map(page::entry_bytes) else {
            let place = self.append(entry, size);
            reserve(&mut self.places, 1);
            self.places.insert(at, place);
            return;
        };
        let Some(place) = self.places.get(at).copied() else { return };
        if size <= old {
            let chunk = self.chunks.get_mut(usize::from(place.chunk));
            let offset = usize::from(place.offset);
            if let Some(bytes) = chunk.and_then(|chunk| chunk.get_mut(offset..offset + size)) {
                page::write(bytes, entry);
            }
            self.live_bytes -= old - size;
            return;
        }
        let place = self.append(entry, size);
        self.live_bytes -= old;
        if let Some(replaced) = self.places.get_mut(at) {
            *replaced = place;
        }
        if self.bytes > 2 * self.live_bytes + 64 {
            *self = self.compacted(0, self.len());
        }
    }

    /// Appends an entry to a chunk with room.
    fn append(&mut self, entry: Entry<'_>, size: usize) -> Place {
        let has_room = self.chunks.last().is_some_and(|last| last.capacity() - last.len() >= size);
        if !has_room {
            let most = if self.chunks.len() < MANY_CHUNKS { CHUNK_BYTES } else { 32 * CHUNK_BYTES };
            let mut chunk = Vec::new();
            chunk.reserve_exact((self.bytes / 8).clamp(64, most).max(size));
            self.chunk_bytes += chunk.capacity();
            reserve(&mut self.chunks, 1);
            self.chunks.push(chunk);
        }
        self.live_bytes += size;
        self.bytes += size;
        let number = self.chunks.len() - 1;
        let offset = self.chunks.last_mut().map_or(0, |last| {
            let offset = last.len();
            page::append(last, entry);
            offset
        });
        Place { chunk: number as u16, offset: offset as u16 }
    }

    /// The operations of `from..to`, in little more memory than they need.
    pub(crate) fn compacted(&self, from: usize, to: usize) -> Self {
        let chosen = from..to.min(self.len());
        let mut part = Self::default();
        part.places.reserve_exact(chosen.len());
        for entry in chosen.filter_map(|at| self.get(at)) {
            let place = part.append(entry, page::entry_bytes(entry));
            part.places.push(place);
        }
        part
    }

    /// Takes the operations from `at` on.
    pub(crate) fn split_off(&mut self, at: usize) -> Self {
        if at >= self.len() {
            return Self::default();
        }
        let taken = self.compacted(at, self.len());
        *self = self.compacted(0, at);
        taken
    }

    /// Keeps the operations of `from..to`, without giving memory back.
    pub(crate) fn keep(&mut self, from: usize, to: usize) {
        self.places.truncate(to);
        self.places.drain(..from.min(self.places.len()));
        self.live_bytes = self.iter().map(page::entry_bytes).sum();
    }

    /// Removes the operations before `at`.
    pub(crate) fn remove_first(&mut self, at: usize) {
        if at > 0 {
            *self = self.compacted(at, self.len());
        }
    }
}

/// Room for `more` elements; grows by an eighth, so that little is held and not used.
fn reserve<T>(vector: &mut Vec<T>, more: usize) {
    if vector.capacity() - vector.len() < more {
        vector.reserve_exact(more.max(vector.len() / 8).max(4));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

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
