//! Express fences: the fences of one level, held in memory.
//!
//! With them a lookup enters the level directly, asks the block's filter, and reads one block for
//! a hit and none for a miss. Without them it reaches the level through the one above.
//!
//! Invariant F1: fences are in internal-key order and the first is (empty key, ∞), so every
//! search has an answer in a level that is not empty.
//! Invariant F2: chunks are not empty; all but the last hold `CHUNK_FENCES`.

use esker_format::fence::Fence;
use esker_format::ids::Seq;
use esker_format::key::{self, long_head};
use esker_format::ptr::BlockPtr;

/// Fences in a chunk: large enough that a chunk costs little beside its fences, small enough that
/// giving one chunk up frees memory in useful pieces.
const CHUNK_FENCES: usize = 1024;

/// A fence with its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyedFence<'a> {
    /// The least user key that may enter the block.
    pub key: &'a [u8],
    /// The largest number that may enter the block at that key; [`Seq::MAX`] is ∞.
    pub seq: Seq,
    /// The way to the block.
    pub fence: Fence<'a>,
}

/// The place of a fence in a [`FenceIndex`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(usize);

/// The fences of one level, in order.
#[derive(Debug, Default)]
pub struct FenceIndex {
    chunks: Vec<Chunk>,
    len: usize,
    key_bytes: u64,
    filter_bytes: u64,
}

/// Columns of up to `CHUNK_FENCES` fences. Searches touch `heads`, then at most a few keys.
#[derive(Debug, Default)]
struct Chunk {
    heads: Vec<u64>,
    keys: Column,
    /// Empty as long as every number is ∞.
    seqs: Vec<Seq>,
    ptrs: Vec<BlockPtr>,
    counts: Vec<(u32, u32)>,
    filters: Column,
}

/// Byte strings back to back.
#[derive(Debug, Default)]
struct Column {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Column {
    fn push(&mut self, item: &[u8]) {
        self.bytes.extend_from_slice(item);
        self.ends.push(self.bytes.len() as u32);
    }

    fn get(&self, index: usize) -> &[u8] {
        let from = index.checked_sub(1).map_or(0, |left| self.end(left));
        self.bytes.get(from..self.end(index)).unwrap_or_default()
    }

    fn end(&self, index: usize) -> usize {
        self.ends.get(index).map_or(0, |end| *end as usize)
    }

    fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        self.ends.shrink_to_fit();
    }
}

impl Chunk {
    fn len(&self) -> usize {
        self.heads.len()
    }

    fn push(&mut self, item: &KeyedFence<'_>) {
        if item.seq != Seq::MAX && self.seqs.is_empty() {
            self.seqs.resize(self.len(), Seq::MAX);
        }
        if item.seq != Seq::MAX || !self.seqs.is_empty() {
            self.seqs.push(item.seq);
        }
        self.heads.push(long_head(item.key));
        self.keys.push(item.key);
        self.ptrs.push(item.fence.ptr);
        self.counts.push((item.fence.puts, item.fence.tombstones));
        self.filters.push(item.fence.filter);
    }

    fn seq(&self, index: usize) -> Seq {
        self.seqs.get(index).copied().unwrap_or(Seq::MAX)
    }

    fn get(&self, index: usize) -> Option<KeyedFence<'_>> {
        let ptr = *self.ptrs.get(index)?;
        let (puts, tombstones) = *self.counts.get(index)?;
        let fence = Fence { ptr, puts, tombstones, filter: self.filters.get(index) };
        Some(KeyedFence { key: self.keys.get(index), seq: self.seq(index), fence })
    }

    /// How many fences are at or before (`key`, `seq`).
    fn count_until(&self, head: u64, key: &[u8], seq: Seq) -> usize {
        let from = self.heads.partition_point(|other| *other < head);
        let equal = self.heads.get(from..).unwrap_or_default();
        let mut low = from;
        let mut high = from + equal.partition_point(|other| *other == head);
        while low < high {
            let middle = low + (high - low) / 2;
            let fence = (self.keys.get(middle), self.seq(middle));
            if key::compare(fence, (key, seq)).is_le() {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    fn shrink(&mut self) {
        self.heads.shrink_to_fit();
        self.keys.shrink();
        self.seqs.shrink_to_fit();
        self.ptrs.shrink_to_fit();
        self.counts.shrink_to_fit();
        self.filters.shrink();
    }
}

impl FenceIndex {
    /// Memory of a fence beside its key and filter.
    const FENCE_BYTES: u64 = 48;

    /// Adds a fence behind all others.
    pub fn push(&mut self, item: &KeyedFence<'_>) {
        let full = self.chunks.last().is_none_or(|chunk| chunk.len() >= CHUNK_FENCES);
        if full {
            if let Some(last) = self.chunks.last_mut() {
                last.shrink();
            }
            self.chunks.push(Chunk::default());
        }
        if let Some(last) = self.chunks.last_mut() {
            last.push(item);
        }
        self.len += 1;
        self.key_bytes += item.key.len() as u64;
        self.filter_bytes += item.fence.filter.len() as u64;
    }

    /// Gives back memory that pushing had reserved.
    pub fn shrink(&mut self) {
        if let Some(last) = self.chunks.last_mut() {
            last.shrink();
        }
    }

    /// Number of fences.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no fence.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Memory in use, in bytes.
    #[must_use]
    pub const fn memory_bytes(&self) -> u64 {
        self.len as u64 * Self::FENCE_BYTES + self.key_bytes + self.filter_bytes
    }

    /// The fence at `place`.
    #[must_use]
    pub fn get(&self, place: Place) -> Option<KeyedFence<'_>> {
        self.chunks.get(place.0 / CHUNK_FENCES)?.get(place.0 % CHUNK_FENCES)
    }

    /// The first fence.
    #[must_use]
    pub const fn first(&self) -> Option<Place> {
        if self.len == 0 { None } else { Some(Place(0)) }
    }

    /// The last fence.
    #[must_use]
    pub const fn last(&self) -> Option<Place> {
        match self.len.checked_sub(1) {
            Some(last) => Some(Place(last)),
            None => None,
        }
    }

    /// The key of the last fence.
    #[must_use]
    pub fn last_key(&self) -> Option<(&[u8], Seq)> {
        let last = self.get(self.last()?)?;
        Some((last.key, last.seq))
    }

    /// The place behind `place`.
    #[must_use]
    pub fn next(&self, place: Place) -> Option<Place> {
        Some(Place(place.0 + 1)).filter(|next| next.0 < self.len)
    }

    /// The place before `place`.
    #[must_use]
    pub const fn previous(&self, place: Place) -> Option<Place> {
        match place.0.checked_sub(1) {
            Some(previous) => Some(Place(previous)),
            None => None,
        }
    }

    /// The last fence at or before (`key`, `seq`): the block that the newest visible version
    /// must be in, if the level has one.
    #[must_use]
    pub fn find(&self, key: &[u8], seq: Seq) -> Option<Place> {
        let head = long_head(key);
        // Chunks whose first fence is at or before the key; the last of them has the answer.
        let before = self.chunks.partition_point(|chunk| {
            chunk.heads.first().is_some_and(|first| *first < head)
                || chunk.get(0).is_some_and(|f| key::compare((f.key, f.seq), (key, seq)).is_le())
        });
        let number = before.checked_sub(1)?;
        let within = self.chunks.get(number)?.count_until(head, key, seq).checked_sub(1)?;
        Some(Place(number * CHUNK_FENCES + within))
    }

    /// All fences in order.
    pub fn iter(&self) -> impl Iterator<Item = KeyedFence<'_>> {
        (0..self.len).filter_map(|index| self.get(Place(index)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_format::ids::Generation;
    use proptest::prelude::*;
    use std::cmp::Reverse;
    use std::collections::BTreeMap;

    fn fence(sector: u64, filter: &[u8]) -> Fence<'_> {
        let ptr = BlockPtr { sector, sectors: 8, crc: 1, generation: Generation(2) };
        Fence { ptr, puts: 3, tombstones: 4, filter }
    }

    fn key() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(0u8..3, 0..12)
    }

    proptest! {
        #[test]
        fn finds_what_a_sorted_map_finds(
            keys in proptest::collection::btree_set(
                (key(), prop_oneof![Just(u64::MAX), 1u64..9]), 1..2500),
            probes in proptest::collection::vec((key(), 0u64..10), 50),
        ) {
            let mut model = BTreeMap::new();
            for (number, (key, seq)) in keys.into_iter().enumerate() {
                model.insert((key, Reverse(seq)), number as u64);
            }
            let mut index = FenceIndex::default();
            for ((key, seq), number) in &model {
                let filter = [*number as u8; 3];
                index.push(&KeyedFence { key, seq: Seq(seq.0), fence: fence(*number, &filter) });
            }
            index.shrink();
            for (key, seq) in probes {
                let found = index.find(&key, Seq(seq)).and_then(|place| index.get(place));
                let expected = model.range(..=(key, Reverse(seq))).next_back();
                prop_assert_eq!(found.map(|f| f.fence.ptr.sector), expected.map(|(_, n)| *n));
            }
            let all: Vec<_> = index.iter().map(|f| (f.key.to_vec(), Reverse(f.seq.0))).collect();
            prop_assert_eq!(all, model.keys().cloned().collect::<Vec<_>>());
        }
    }
}
