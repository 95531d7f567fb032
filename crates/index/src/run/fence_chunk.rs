//! A run of fences, with their numbers in packed rows.

use std::ops::Range;

use esker_format::fence::Fence;
use esker_format::ids::{Generation, Seq};
use esker_format::key::{self, long_head};
use esker_format::ptr::BlockPtr;
use esker_substrate::budget::Lease;

use crate::run::key_hints::KeyHints;
use crate::run::packed::PackedRows;

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

/// Fences in order. A search reads hints of keys, and then the keys with the same hint as its key:
/// none or few, unless a few keys differ much from all others.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    /// The head of the first key.
    head: u64,
    /// Hints of all keys; none before the chunk is finished.
    hints: KeyHints,
    rows: Rows,
    /// Keys back to back, as filters are.
    keys: Vec<u8>,
    filters: Vec<u8>,
    /// Empty as long as every number is ∞.
    seqs: Vec<Seq>,
    /// Counts the chunk's memory, when it is full.
    pub lease: Option<Lease>,
    /// The lease is beyond what the budget has.
    pub is_over_budget: bool,
}

/// What a fence has besides key, number and filter: sector, sectors, checksum, generation, puts and
/// tombstones; then where its key and its filter end.
type Rows = PackedRows<8>;
const KEY_END: usize = 6;
const FILTER_END: usize = 7;

/// The way to a block, of the first numbers of a row.
#[inline]
const fn block_ptr([sector, sectors, crc, generation]: [u64; 4]) -> BlockPtr {
    let (sectors, crc, generation) = (sectors as u16, crc as u32, Generation(generation));
    BlockPtr { sector, sectors, crc, generation }
}

/// The string at `index` of strings that lie back to back; `column` has their ends.
#[inline]
fn string<'a>(bytes: &'a [u8], rows: &Rows, column: usize, index: usize) -> &'a [u8] {
    let end = |index| rows.number(index, column).map_or(0, |end| end as usize);
    let from = index.checked_sub(1).map_or(0, end);
    bytes.get(from..end(index)).unwrap_or_default()
}

impl Chunk {
    pub const fn len(&self) -> usize {
        self.rows.len()
    }

    /// Memory of the fences, in bytes.
    pub const fn memory_bytes(&self) -> u64 {
        let seqs = size_of::<Seq>() * self.seqs.len();
        let strings = self.keys.len() + self.filters.len();
        let numbers = self.hints.memory_bytes() + self.rows.memory_bytes() + seqs;
        (size_of::<Self>() + numbers + strings) as u64
    }

    /// Memory of the filters, in bytes.
    pub const fn filter_bytes(&self) -> u64 {
        self.filters.len() as u64
    }

    /// A copy that is not counted: of the chunk being filled, for a view.
    pub fn copy(&self) -> Self {
        Self {
            head: self.head,
            hints: self.hints_of_all(),
            rows: self.rows.clone(),
            keys: self.keys.clone(),
            filters: self.filters.clone(),
            seqs: self.seqs.clone(),
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
        if self.len() == 0 {
            self.head = long_head(item.key);
        }
        self.hints = KeyHints::default();
        let fence = &item.fence;
        self.keys.extend_from_slice(item.key);
        self.filters.extend_from_slice(fence.filter);
        self.rows.push(&[
            fence.ptr.sector,
            u64::from(fence.ptr.sectors),
            u64::from(fence.ptr.crc),
            fence.ptr.generation.0,
            u64::from(fence.puts),
            u64::from(fence.tombstones),
            self.keys.len() as u64,
            self.filters.len() as u64,
        ]);
    }

    fn seq(&self, index: usize) -> Seq {
        self.seqs.get(index).copied().unwrap_or(Seq::MAX)
    }

    #[inline]
    fn key(&self, index: usize) -> &[u8] {
        string(&self.keys, &self.rows, KEY_END, index)
    }

    /// The fence at `index`.
    #[inline]
    pub fn get(&self, index: usize) -> Option<KeyedFence<'_>> {
        let [sector, sectors, crc, generation, puts, tombstones] = self.rows.get(index)?;
        let fence = Fence {
            ptr: block_ptr([sector, sectors, crc, generation]),
            puts: puts as u32,
            tombstones: tombstones as u32,
            filter: self.filter(index),
        };
        Some(KeyedFence { key: self.key(index), seq: self.seq(index), fence })
    }

    /// The way to the block of the fence at `index`.
    #[inline]
    pub fn ptr(&self, index: usize) -> Option<BlockPtr> {
        self.rows.get(index).map(block_ptr)
    }

    /// The filter of that fence.
    #[inline]
    pub fn filter(&self, index: usize) -> &[u8] {
        string(&self.filters, &self.rows, FILTER_END, index)
    }

    /// The key of the first fence; empty where there is none.
    pub fn first_key(&self) -> &[u8] {
        self.key(0)
    }

    /// Key and number of the first fence.
    pub fn first(&self) -> (Box<[u8]>, Seq) {
        (self.first_key().into(), self.seq(0))
    }

    /// Whether the first fence is at or before (`key`, `seq`); `head` is the key's.
    pub fn begins_until(&self, head: u64, key: &[u8], seq: Seq) -> bool {
        let is_before = self.head < head;
        self.len() > 0 && (is_before || (self.head == head && self.is_until(0, key, seq)))
    }

    fn is_until(&self, index: usize, key: &[u8], seq: Seq) -> bool {
        key::compare((self.key(index), self.seq(index)), (key, seq)).is_le()
    }

    /// The number of fences at or before (`key`, `seq`).
    pub fn count_until(&self, key: &[u8], seq: Seq) -> usize {
        let around = self.hints.around(key).unwrap_or(0..self.len());
        let Range { start: mut low, end: mut high } = around;
        while low < high {
            let middle = low + (high - low) / 2;
            if self.is_until(middle, key, seq) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// No fence follows: gives back memory that pushes reserved, and prepares searches.
    pub fn finish(&mut self) {
        self.rows.shrink();
        self.keys.shrink_to_fit();
        self.filters.shrink_to_fit();
        self.seqs.shrink_to_fit();
        self.hints = self.hints_of_all();
    }

    fn hints_of_all(&self) -> KeyHints {
        KeyHints::of(self.len(), |index| self.key(index))
    }
}
