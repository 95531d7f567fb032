//! The part of a buffer that is in memory: operations in one piece of memory, sorted by key.
//!
//! P1: keys ascend and are different. P2: `bytes` has the entries that `offsets` names and those
//! that were replaced; when the latter are more than half, they are removed.

use alloc::vec::Vec;

use crate::page::{self, Entry};

/// Operations of different keys, the newest of each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    bytes: Vec<u8>,
    offsets: Vec<u32>,
    /// Bytes of entries that are not replaced.
    live_bytes: usize,
}

impl Part {
    pub(crate) fn len(&self) -> usize {
        self.offsets.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// The sizes of all entries on flash.
    pub(crate) fn live_bytes(&self) -> usize {
        self.live_bytes
    }

    /// The memory that it holds, in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.bytes.capacity() + 4 * self.offsets.capacity()
    }

    pub(crate) fn get(&self, at: usize) -> Option<Entry<'_>> {
        let offset = *self.offsets.get(at)? as usize;
        page::first(self.bytes.get(offset..)?).map(|(entry, _)| entry)
    }

    /// The number of keys before `key`.
    pub(crate) fn position(&self, key: &[u8]) -> usize {
        self.offsets.partition_point(|offset| {
            let bytes = self.bytes.get(*offset as usize..).unwrap_or(&[]);
            page::first(bytes).is_some_and(|(entry, _)| entry.0 < key)
        })
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
        let offset = self.bytes.len() as u32;
        let size = page::entry_bytes(entry);
        reserve(&mut self.bytes, size);
        page::append(&mut self.bytes, entry);
        self.live_bytes += size;
        match self.get(at).filter(|(key, _)| *key == entry.0).map(page::entry_bytes) {
            Some(replaced) => {
                self.live_bytes -= replaced;
                if let Some(place) = self.offsets.get_mut(at) {
                    *place = offset;
                }
                if self.bytes.len() > 2 * self.live_bytes + 64 {
                    *self = self.compacted(0, self.len());
                }
            }
            None => {
                reserve(&mut self.offsets, 1);
                self.offsets.insert(at, offset);
            }
        }
    }

    /// The operations of `from..to`, in as little memory as they need.
    pub(crate) fn compacted(&self, from: usize, to: usize) -> Self {
        let chosen = from..to.min(self.len());
        let size = chosen.clone().filter_map(|at| self.get(at)).map(page::entry_bytes).sum();
        let mut bytes = Vec::new();
        bytes.reserve_exact(size);
        let mut offsets = Vec::new();
        offsets.reserve_exact(chosen.len());
        for entry in chosen.filter_map(|at| self.get(at)) {
            offsets.push(bytes.len() as u32);
            page::append(&mut bytes, entry);
        }
        Self { live_bytes: bytes.len(), bytes, offsets }
    }

    /// Takes the operations from `at` on.
    pub(crate) fn split_off(&mut self, at: usize) -> Self {
        let taken = self.compacted(at, self.len());
        *self = self.compacted(0, at);
        taken
    }
}

/// Room for `more` elements; grows by an eighth, so that little is held and not used.
fn reserve<T>(vector: &mut Vec<T>, more: usize) {
    if vector.capacity() - vector.len() < more {
        vector.reserve_exact(more.max(vector.len() / 8).max(8));
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
