//! Express fences: the fences of one level, held in memory.
//!
//! With them a lookup enters the level directly, asks the block's filter, and reads one block for
//! a hit and none for a miss. Without them it reaches the level through the one above.
//!
//! A merge adds to the fences of the new side and shares what it has with every view it publishes;
//! it drops the fences of the old side as its wavefront passes. Both work in whole chunks: a full
//! chunk never changes and is shared, and its memory is counted until its last holder drops it.
//!
//! Invariant: fences are in internal-key order; the first of a level is (empty key, ∞), so every
//! search has a result in a level that is not empty and not trimmed.
//! Invariant: all chunks but the last hold `CHUNK_FENCES`. Places count from the first fence that
//! was ever pushed, so they stay valid when chunks in front are dropped.

use std::sync::Arc;

use esker_format::fence::Fence;
use esker_format::ids::Seq;
use esker_format::key::{self, long_head};
use esker_format::meta::TailFence;
use esker_format::ptr::BlockPtr;
use esker_substrate::budget::{Budget, Lease, Part};

/// Fences in a chunk: large enough that a chunk costs little compared with its fences, small enough
/// that dropping one chunk frees a useful amount of memory.
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

impl Place {
    /// The place that many fences after this one, if there is one.
    #[must_use]
    pub const fn ahead(self, fences: usize) -> Self {
        Self(self.0.saturating_add(fences))
    }

    /// The place that many fences before this one, or the first.
    #[must_use]
    pub const fn behind(self, fences: usize) -> Self {
        Self(self.0.saturating_sub(fences))
    }
}

/// The account that the memory of fences is counted against.
#[derive(Clone, Debug)]
pub struct Account {
    budget: Arc<Budget>,
    /// Up to here fences are held even over the budget: without top fences no key can be found.
    required_bytes: u64,
}

impl Account {
    /// For fences that must be held.
    pub(crate) fn required(budget: &Arc<Budget>) -> Self {
        Self::required_until(budget, u64::MAX)
    }

    /// For fences that are held if there is memory for them.
    pub(crate) fn optional(budget: &Arc<Budget>) -> Self {
        Self::required_until(budget, 0)
    }

    /// For fences that must be held in memory up to `required_bytes`, and beyond that if there is
    /// memory.
    pub(crate) fn required_until(budget: &Arc<Budget>, required_bytes: u64) -> Self {
        Self { budget: Arc::clone(budget), required_bytes }
    }
}

/// The fences of one level, in order.
#[derive(Debug, Default)]
pub struct FenceIndex {
    full: Arc<Vec<Arc<Chunk>>>,
    /// The chunk being filled.
    last: Chunk,
    /// Fences dropped at the front: a multiple of `CHUNK_FENCES`.
    dropped: usize,
    account: Option<Account>,
    /// Memory of the full chunks ever pushed, in bytes, and their fences.
    counted_bytes: u64,
    counted_fences: usize,
    /// The budget had no memory for some of them.
    over_budget: bool,
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
    /// Counts the chunk's memory, when it is full.
    lease: Option<Lease>,
}

/// Byte strings back to back.
#[derive(Clone, Debug, Default)]
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
    /// Memory of a fence in addition to its key and filter.
    const FENCE_BYTES: u64 = 48;

    fn len(&self) -> usize {
        self.heads.len()
    }

    fn memory_bytes(&self) -> u64 {
        let variable = self.keys.bytes.len() + self.filters.bytes.len();
        self.len() as u64 * Self::FENCE_BYTES + variable as u64
    }

    /// A copy that is not counted: of the chunk being filled, for a view.
    fn copy(&self) -> Self {
        Self {
            heads: self.heads.clone(),
            keys: self.keys.clone(),
            seqs: self.seqs.clone(),
            ptrs: self.ptrs.clone(),
            counts: self.counts.clone(),
            filters: self.filters.clone(),
            lease: None,
        }
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

    /// Whether the first fence is at or before (`key`, `seq`).
    fn begins_until(&self, head: u64, key: &[u8], seq: Seq) -> bool {
        match self.heads.first() {
            None => false,
            Some(first) if *first != head => *first < head,
            Some(_) => key::compare((self.keys.get(0), self.seq(0)), (key, seq)).is_le(),
        }
    }

    /// The number of fences at or before (`key`, `seq`).
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
    /// No fences; their memory will be counted.
    pub(crate) fn counted(account: Account) -> Self {
        Self { account: Some(account), ..Self::default() }
    }

    /// Adds a fence behind all others. False when there is no memory for it: the index is of no
    /// use then.
    #[must_use]
    pub fn push(&mut self, item: &KeyedFence<'_>) -> bool {
        if self.last.len() >= CHUNK_FENCES {
            let mut chunk = std::mem::take(&mut self.last);
            chunk.shrink();
            if !self.count(&mut chunk) {
                return false;
            }
            Arc::make_mut(&mut self.full).push(Arc::new(chunk));
        }
        self.last.push(item);
        true
    }

    /// Counts a chunk's memory; false when there is none for it.
    fn count(&mut self, chunk: &mut Chunk) -> bool {
        let Some(account) = &self.account else { return true };
        let bytes = chunk.memory_bytes();
        self.counted_bytes += bytes;
        self.counted_fences += chunk.len();
        chunk.lease = account.budget.try_lease(Part::Fences, bytes);
        if chunk.lease.is_none() {
            self.over_budget = true;
            if self.counted_bytes > account.required_bytes {
                return false;
            }
            chunk.lease = Some(account.budget.lease(Part::Fences, bytes));
        }
        true
    }

    /// No fence follows: returns memory that pushing had reserved and counts the rest. False when
    /// there is no memory for it.
    #[must_use]
    pub fn finish(&mut self) -> bool {
        let mut last = std::mem::take(&mut self.last);
        last.shrink();
        let counted = self.count(&mut last);
        self.last = last;
        counted
    }

    /// The memory that `fences` fences will take if they are like those counted so far, in bytes;
    /// 0 before the first chunk is counted.
    pub(super) fn expected_bytes(&self, fences: u64) -> u64 {
        let counted = (self.counted_fences as u64).max(1);
        let bytes = u128::from(self.counted_bytes) * u128::from(fences.max(counted));
        u64::try_from(bytes / u128::from(counted)).unwrap_or(u64::MAX)
    }

    /// Whether the budget had too little memory for all that is held.
    pub(crate) const fn is_over_budget(&self) -> bool {
        self.over_budget
    }

    /// The current fences, for a view: full chunks are shared, the last one is copied.
    pub(crate) fn snapshot(&self) -> Self {
        Self {
            full: Arc::clone(&self.full),
            last: self.last.copy(),
            dropped: self.dropped,
            ..Self::default()
        }
    }

    /// Forgets all fences.
    pub(crate) fn clear(&mut self) {
        *self = Self { account: self.account.take(), ..Self::default() };
    }

    /// The index without the chunks of which no fence leads to a block with keys behind
    /// `wavefront`; `None` while there is no such chunk.
    pub(crate) fn behind(&self, wavefront: &[u8]) -> Option<Self> {
        let passed = |chunk: &Chunk| chunk.len() > 0 && chunk.keys.get(0) <= wavefront;
        let starts = self.full.iter().map(Arc::as_ref).chain([&self.last]).skip(1);
        let count = starts.take_while(|next| passed(next)).count();
        if count == 0 {
            return None;
        }
        let rest = self.full.get(count..).unwrap_or_default().to_vec();
        Some(Self {
            full: Arc::new(rest),
            last: self.last.copy(),
            dropped: self.dropped + count * CHUNK_FENCES,
            ..Self::default()
        })
    }

    /// Frees the chunks in front of the one that holds `place`.
    pub(crate) fn drop_before(&mut self, place: Place) {
        let count = (place.0.saturating_sub(self.dropped) / CHUNK_FENCES).min(self.full.len());
        if count > 0 {
            let rest = self.full.get(count..).unwrap_or_default().to_vec();
            self.full = Arc::new(rest);
            self.dropped += count * CHUNK_FENCES;
        }
    }

    /// Number of fences, including dropped ones.
    #[must_use]
    pub fn len(&self) -> usize {
        self.dropped + self.full.len() * CHUNK_FENCES + self.last.len()
    }

    /// Whether there is no fence.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.full.is_empty() && self.last.len() == 0
    }

    /// Memory in use, in bytes; chunks shared with other indexes count in each.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let full: u64 = self.full.iter().map(|chunk| chunk.memory_bytes()).sum();
        full + self.last.memory_bytes()
    }

    fn chunk(&self, number: usize) -> Option<&Chunk> {
        match self.full.get(number) {
            Some(chunk) => Some(chunk),
            None => Some(&self.last).filter(|_| number == self.full.len()),
        }
    }

    /// The fence at `place`.
    #[must_use]
    pub fn get(&self, place: Place) -> Option<KeyedFence<'_>> {
        let index = place.0.checked_sub(self.dropped)?;
        self.chunk(index / CHUNK_FENCES)?.get(index % CHUNK_FENCES)
    }

    /// The first fence.
    #[must_use]
    pub fn first(&self) -> Option<Place> {
        if self.is_empty() { None } else { Some(Place(self.dropped)) }
    }

    /// The last fence.
    #[must_use]
    pub fn last(&self) -> Option<Place> {
        if self.is_empty() { None } else { Some(Place(self.len() - 1)) }
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
        Some(Place(place.0 + 1)).filter(|next| next.0 < self.len())
    }

    /// The place before `place`.
    #[must_use]
    pub fn previous(&self, place: Place) -> Option<Place> {
        place.0.checked_sub(1).filter(|previous| *previous >= self.dropped).map(Place)
    }

    /// The last fence at or before (`key`, `seq`): the block that the newest visible version
    /// must be in, if the level has one.
    #[must_use]
    pub fn find(&self, key: &[u8], seq: Seq) -> Option<Place> {
        let head = long_head(key);
        // Chunks whose first fence is at or before the key; the last of them contains the answer.
        let in_last = self.last.begins_until(head, key, seq);
        let number = if in_last {
            self.full.len()
        } else {
            let before = self.full.partition_point(|chunk| chunk.begins_until(head, key, seq));
            before.checked_sub(1)?
        };
        let within = self.chunk(number)?.count_until(head, key, seq).checked_sub(1)?;
        Some(Place(self.dropped + number * CHUNK_FENCES + within))
    }

    /// All fences in order.
    pub fn iter(&self) -> impl Iterator<Item = KeyedFence<'_>> {
        (self.dropped..self.len()).filter_map(|index| self.get(Place(index)))
    }
}

/// A fence as it is in a block.
pub(crate) const fn fence_of(tail: &TailFence) -> Fence<'_> {
    Fence {
        ptr: tail.ptr,
        puts: tail.puts,
        tombstones: tail.tombstones,
        filter: tail.filter.as_slice(),
    }
}

/// A fence with its key.
pub(crate) const fn keyed(tail: &TailFence) -> KeyedFence<'_> {
    KeyedFence { key: tail.key.as_slice(), seq: tail.seq, fence: fence_of(tail) }
}

/// A fence on its own.
pub(crate) fn owned(fence: &KeyedFence<'_>) -> TailFence {
    TailFence {
        key: fence.key.to_vec(),
        seq: fence.seq,
        ptr: fence.fence.ptr,
        puts: fence.fence.puts,
        tombstones: fence.fence.tombstones,
        filter: fence.fence.filter.to_vec(),
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
                let fence = fence(*number, &filter);
                assert!(index.push(&KeyedFence { key, seq: Seq(seq.0), fence }));
            }
            assert!(index.finish());
            for (key, seq) in probes {
                let found = index.find(&key, Seq(seq)).and_then(|place| index.get(place));
                let expected = model.range(..=(key, Reverse(seq))).next_back();
                prop_assert_eq!(found.map(|f| f.fence.ptr.sector), expected.map(|(_, n)| *n));
            }
            let all: Vec<_> = index.iter().map(|f| (f.key.to_vec(), Reverse(f.seq.0))).collect();
            prop_assert_eq!(all, model.keys().cloned().collect::<Vec<_>>());
        }

        #[test]
        fn a_trimmed_index_still_finds_everything_behind_the_wavefront(
            keys in proptest::collection::btree_set(1u16..9000, 1..5000),
            wavefront in 0u16..9000,
        ) {
            let mut index = FenceIndex::default();
            let all: Vec<u16> = [0].into_iter().chain(keys).collect();
            for number in &all {
                let key = number.to_be_bytes();
                let fence = fence(u64::from(*number), &[]);
                assert!(index.push(&KeyedFence { key: &key, seq: Seq::MAX, fence }));
            }
            let trimmed = index.behind(&wavefront.to_be_bytes());
            let dropped = trimmed.as_ref().map_or(0, |trimmed| trimmed.dropped);
            let passed = all.iter().filter(|key| **key <= wavefront).count();
            prop_assert_eq!(dropped, passed.saturating_sub(1) / CHUNK_FENCES * CHUNK_FENCES);
            let trimmed = trimmed.unwrap_or_else(|| index.snapshot());
            for probe in [wavefront, wavefront + 1, wavefront + 777, u16::MAX] {
                let probe = probe.to_be_bytes();
                let expected = index.find(&probe, Seq(0));
                prop_assert_eq!(trimmed.find(&probe, Seq(0)), expected);
                let sector = |index: &FenceIndex| {
                    expected.and_then(|at| index.get(at)).map(|fence| fence.fence.ptr.sector)
                };
                prop_assert_eq!(sector(&trimmed), sector(&index));
            }
        }
    }

    #[test]
    fn memory_is_counted_as_long_as_anyone_holds_a_chunk() {
        let budget = Arc::new(Budget::new(1 << 20));
        let mut index = FenceIndex::counted(Account::optional(&budget));
        let used = || budget.used_bytes(Part::Fences);
        let mut number = 0u32;
        let mut push = |index: &mut FenceIndex| {
            number += 1;
            let key = number.to_be_bytes();
            index.push(&KeyedFence { key: &key, seq: Seq::MAX, fence: fence(0, &[1; 30]) })
        };
        (0..3000).for_each(|_| assert!(push(&mut index)));
        let view = index.snapshot();
        let two = used();
        assert!(two > 0);
        drop(index.behind(&2500u32.to_be_bytes()));
        index.drop_before(Place(2500));
        assert_eq!(used(), two, "the view still holds them");
        drop(view);
        assert_eq!(used(), 0);
        // A quarter of the budget is for fences.
        assert!((0..6000).any(|_| !push(&mut index)));
    }
}
