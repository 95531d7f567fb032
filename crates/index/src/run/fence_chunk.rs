//! A run of fences in columns, each of which takes as few bytes as its values need.

use esker_format::fence::Fence;
use esker_format::ids::{Generation, Seq};
use esker_format::key::{self, long_head};
use esker_format::ptr::BlockPtr;
use esker_substrate::budget::Lease;

use crate::run::fence_index::KeyedFence;
use crate::run::packed::Packed;

/// Bytes of a key that searches compare first.
const HEAD_BYTES: usize = 8;

/// Fences in order. Searches touch the heads of keys, then at most a few keys.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    keys: Keys,
    /// Empty as long as every number is ∞.
    seqs: Vec<Seq>,
    sectors: Packed,
    lengths: Packed,
    crcs: Packed,
    generations: Packed,
    puts: Packed,
    tombstones: Packed,
    filters: Strings,
    /// Counts the chunk's memory, when it is full.
    pub lease: Option<Lease>,
    /// The lease is beyond what the budget has.
    pub is_over_budget: bool,
}

/// Byte strings back to back.
#[derive(Clone, Debug, Default)]
struct Strings {
    bytes: Vec<u8>,
    ends: Packed,
}

/// Keys. The head of a short key is the key.
#[derive(Clone, Debug, Default)]
struct Keys {
    /// The first bytes of each, padded with zeros.
    heads: Vec<[u8; HEAD_BYTES]>,
    lengths: Packed,
    /// Whole keys, where they are longer than a head; no strings as long as none is.
    long: Strings,
}

impl Strings {
    fn push(&mut self, item: &[u8]) {
        self.bytes.extend_from_slice(item);
        self.ends.push(self.bytes.len() as u64);
    }

    fn get(&self, index: usize) -> &[u8] {
        let from = index.checked_sub(1).map_or(0, |left| self.end(left));
        self.bytes.get(from..self.end(index)).unwrap_or_default()
    }

    fn end(&self, index: usize) -> usize {
        self.ends.get(index).map_or(0, |end| end as usize)
    }

    const fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.ends.memory_bytes()
    }

    fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        self.ends.shrink();
    }
}

impl Keys {
    fn push(&mut self, key: &[u8]) {
        let is_long = key.len() > HEAD_BYTES;
        if is_long && self.long.ends.len() == 0 {
            (0..self.heads.len()).for_each(|_| self.long.push(&[]));
        }
        if is_long || self.long.ends.len() > 0 {
            self.long.push(if is_long { key } else { &[] });
        }
        self.heads.push(long_head(key).to_be_bytes());
        self.lengths.push(key.len() as u64);
    }

    fn get(&self, index: usize) -> &[u8] {
        let length = self.lengths.get(index).map_or(0, |length| length as usize);
        if length > HEAD_BYTES {
            return self.long.get(index);
        }
        self.heads.get(index).and_then(|head| head.get(..length)).unwrap_or_default()
    }

    const fn memory_bytes(&self) -> usize {
        HEAD_BYTES * self.heads.len() + self.lengths.memory_bytes() + self.long.memory_bytes()
    }

    fn shrink(&mut self) {
        self.heads.shrink_to_fit();
        self.lengths.shrink();
        self.long.shrink();
    }
}

impl Chunk {
    pub fn len(&self) -> usize {
        self.keys.heads.len()
    }

    /// Memory of the fences, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        let numbers = [
            &self.sectors,
            &self.lengths,
            &self.crcs,
            &self.generations,
            &self.puts,
            &self.tombstones,
        ];
        let numbers: usize = numbers.into_iter().map(Packed::memory_bytes).sum();
        let strings = self.keys.memory_bytes() + self.filters.memory_bytes();
        (size_of::<Self>() + numbers + strings + size_of::<Seq>() * self.seqs.len()) as u64
    }

    /// A copy that is not counted: of the chunk being filled, for a view.
    pub fn copy(&self) -> Self {
        Self {
            keys: self.keys.clone(),
            seqs: self.seqs.clone(),
            sectors: self.sectors.clone(),
            lengths: self.lengths.clone(),
            crcs: self.crcs.clone(),
            generations: self.generations.clone(),
            puts: self.puts.clone(),
            tombstones: self.tombstones.clone(),
            filters: self.filters.clone(),
            lease: None,
            is_over_budget: false,
        }
    }

    /// Adds a fence behind all others.
    pub fn push(&mut self, item: &KeyedFence<'_>) {
        if item.seq != Seq::MAX && self.seqs.is_empty() {
            self.seqs.resize(self.len(), Seq::MAX);
        }
        if item.seq != Seq::MAX || !self.seqs.is_empty() {
            self.seqs.push(item.seq);
        }
        let fence = &item.fence;
        self.keys.push(item.key);
        self.sectors.push(fence.ptr.sector);
        self.lengths.push(u64::from(fence.ptr.sectors));
        self.crcs.push(u64::from(fence.ptr.crc));
        self.generations.push(fence.ptr.generation.0);
        self.puts.push(u64::from(fence.puts));
        self.tombstones.push(u64::from(fence.tombstones));
        self.filters.push(fence.filter);
    }

    fn seq(&self, index: usize) -> Seq {
        self.seqs.get(index).copied().unwrap_or(Seq::MAX)
    }

    /// The fence at `index`.
    #[inline]
    pub fn get(&self, index: usize) -> Option<KeyedFence<'_>> {
        let ptr = BlockPtr {
            sector: self.sectors.get(index)?,
            sectors: self.lengths.get(index)? as u16,
            crc: self.crcs.get(index)? as u32,
            generation: Generation(self.generations.get(index)?),
        };
        let fence = Fence {
            ptr,
            puts: self.puts.get(index)? as u32,
            tombstones: self.tombstones.get(index)? as u32,
            filter: self.filters.get(index),
        };
        Some(KeyedFence { key: self.keys.get(index), seq: self.seq(index), fence })
    }

    /// The key of the first fence; empty where there is none.
    pub fn first_key(&self) -> &[u8] {
        self.keys.get(0)
    }

    /// Key and number of the first fence.
    pub fn first(&self) -> (Box<[u8]>, Seq) {
        (self.first_key().into(), self.seq(0))
    }

    /// Whether the first fence is at or before (`key`, `seq`).
    pub fn begins_until(&self, head: u64, key: &[u8], seq: Seq) -> bool {
        match self.keys.heads.first().map(|first| u64::from_be_bytes(*first)) {
            None => false,
            Some(first) if first != head => first < head,
            Some(_) => key::compare((self.keys.get(0), self.seq(0)), (key, seq)).is_le(),
        }
    }

    /// The number of fences at or before (`key`, `seq`).
    pub fn count_until(&self, head: u64, key: &[u8], seq: Seq) -> usize {
        let heads = &self.keys.heads;
        let from = heads.partition_point(|other| u64::from_be_bytes(*other) < head);
        let equal = heads.get(from..).unwrap_or_default();
        let mut low = from;
        let mut high = from + equal.partition_point(|other| u64::from_be_bytes(*other) == head);
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

    /// Gives back memory that pushes reserved.
    pub fn shrink(&mut self) {
        self.keys.shrink();
        self.seqs.shrink_to_fit();
        let numbers = [
            &mut self.sectors,
            &mut self.lengths,
            &mut self.crcs,
            &mut self.generations,
            &mut self.puts,
            &mut self.tombstones,
        ];
        numbers.into_iter().for_each(Packed::shrink);
        self.filters.shrink();
    }
}
