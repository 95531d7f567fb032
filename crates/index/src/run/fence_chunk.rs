//! A run of fences in columns, each of which takes as few bytes as its values need.

use std::ops::Range;

use esker_format::fence::Fence;
use esker_format::ids::{Generation, Seq};
use esker_format::key::{self, long_head};
use esker_format::ptr::BlockPtr;
use esker_substrate::budget::Lease;

use crate::run::packed::Packed;

/// One in so many fences has its head in a table. A search of the table leaves as many, whose keys
/// are within a line or two of the processor's cache.
const HEAD_EVERY: usize = 16;

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

/// Fences in order. Searches touch some heads of keys, then a few keys.
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

/// Keys in order.
#[derive(Clone, Debug, Default)]
struct Keys {
    /// The heads of every [`HEAD_EVERY`]th, from the first on.
    heads: Vec<u64>,
    all: Strings,
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
        if self.len().is_multiple_of(HEAD_EVERY) {
            self.heads.push(long_head(key));
        }
        self.all.push(key);
    }

    const fn len(&self) -> usize {
        self.all.ends.len()
    }

    fn get(&self, index: usize) -> &[u8] {
        self.all.get(index)
    }

    /// The keys among which those are that do not differ from a key with this head by their heads
    /// alone: all before are less, all behind are greater.
    fn around(&self, head: u64) -> Range<usize> {
        let less = self.heads.partition_point(|other| *other < head);
        let rest = self.heads.get(less..).unwrap_or_default();
        let greater = less + rest.partition_point(|other| *other == head);
        let from = less.checked_sub(1).map_or(0, |last| last * HEAD_EVERY + 1);
        from..(greater * HEAD_EVERY).min(self.len())
    }

    const fn memory_bytes(&self) -> usize {
        size_of::<u64>() * self.heads.len() + self.all.memory_bytes()
    }

    fn shrink(&mut self) {
        self.heads.shrink_to_fit();
        self.all.shrink();
    }
}

impl Chunk {
    pub fn len(&self) -> usize {
        self.keys.len()
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

    /// Memory of the filters, in bytes.
    pub const fn filter_bytes(&self) -> u64 {
        self.filters.bytes.len() as u64
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
        match self.keys.heads.first().copied() {
            None => false,
            Some(first) if first != head => first < head,
            Some(_) => key::compare((self.keys.get(0), self.seq(0)), (key, seq)).is_le(),
        }
    }

    /// The number of fences at or before (`key`, `seq`).
    pub fn count_until(&self, head: u64, key: &[u8], seq: Seq) -> usize {
        let Range { start: mut low, end: mut high } = self.keys.around(head);
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
