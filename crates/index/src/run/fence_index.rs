//! Express fences: the fences of one level, held in memory.
//!
//! With them a lookup enters the level directly, asks the block's filter, and reads one block for
//! a hit and none for a miss. Without them it reaches the level through the one above.
//!
//! A merge adds to the fences of the new side and shares what it has with every view it publishes;
//! it drops the fences of the old side as its wavefront passes. Both work in whole chunks: a full
//! chunk never changes and is shared, and its memory is counted until its last holder drops it.
//! A chunk for which there is no memory is missing: searches that lead to it find nothing here, and
//! go through the level above.
//!
//! Invariant: fences are in internal-key order; the first of a level is (empty key, ∞), so every
//! search has a result in a level that is not empty and not trimmed, unless a chunk is missing.
//! Invariant: all chunks but the last hold `CHUNK_FENCES`, or are missing and stand for as many.
//! Places count from the first fence that was ever pushed, so they stay valid when chunks in front
//! are dropped.

use std::sync::Arc;

use esker_format::fence::Fence;
use esker_format::filter;
use esker_format::ids::Seq;
use esker_format::key::{self, long_head};
use esker_format::meta::TailFence;
use esker_format::ptr::BlockPtr;
use esker_substrate::budget::{Budget, Part};
use esker_substrate::planted::{self, Bug};

use crate::run::fence_chunk::Chunk;
pub use crate::run::fence_chunk::KeyedFence;
use crate::run::key_hints::equal_range;

/// Fences in a chunk: large enough that a chunk costs little compared with its fences, small enough
/// that dropping one chunk frees a useful amount of memory.
const CHUNK_FENCES: usize = 512;
/// From so many missing chunks on, an index is given up that holds less than one of
/// `MISSING_PER_HELD` chunks: it saves few reads, and the list of what it lacks takes memory, too.
const MISSING_MIN: usize = 64;
const MISSING_PER_HELD: usize = 15;

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
    /// From here on no more are held: the rest of the budget is for other levels.
    most_bytes: u64,
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
        Self { budget: Arc::clone(budget), required_bytes, most_bytes: u64::MAX }
    }

    /// The same for a level whose fences may take this much memory.
    pub(crate) fn at_most(self, most_bytes: u64) -> Self {
        Self { most_bytes, ..self }
    }
}

/// The fences of one level, in order.
#[derive(Debug, Default)]
pub struct FenceIndex {
    full: Arc<Full>,
    /// The chunk being filled.
    last: Chunk,
    /// Fences dropped at the front: a multiple of `CHUNK_FENCES`.
    dropped: usize,
    /// Missing chunks among `full`.
    missing: usize,
    account: Option<Account>,
    /// Memory of the chunks that were ever counted, in bytes, and their fences.
    counted_bytes: u64,
    counted_fences: usize,
    /// Memory of those that were held.
    held_bytes: u64,
}

/// The full chunks. A search reads the heads, and then only chunks with the head of its key.
///
/// Invariant: each slot has the head of its first key at its place in `heads`.
#[derive(Clone, Debug, Default)]
struct Full {
    heads: Vec<u64>,
    slots: Vec<Slot>,
}

impl Full {
    fn push(&mut self, slot: Slot) {
        self.heads.push(long_head(slot.first_key()));
        self.slots.push(slot);
    }

    const fn len(&self) -> usize {
        self.slots.len()
    }

    const fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Without the first `count`.
    fn without_first(&self, count: usize) -> Self {
        Self {
            heads: self.heads.get(count..).unwrap_or_default().to_vec(),
            slots: self.slots.get(count..).unwrap_or_default().to_vec(),
        }
    }

    /// The number of chunks whose first fence is at or before (`key`, `seq`).
    fn count_until(&self, head: u64, key: &[u8], seq: Seq) -> usize {
        let equal = equal_range(&self.heads, &head);
        let slots = self.slots.get(equal.clone()).unwrap_or_default();
        equal.start + slots.partition_point(|slot| slot.begins_until(head, key, seq))
    }

    fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        self.slots.iter().filter_map(Slot::chunk)
    }
}

/// The place of a full chunk.
#[derive(Clone, Debug)]
enum Slot {
    Held(Arc<Chunk>),
    /// There was no memory for the chunk that begins with this key and number.
    Missing(Arc<(Box<[u8]>, Seq)>),
}

impl Slot {
    fn missing(key: &[u8], seq: Seq) -> Self {
        Self::Missing(Arc::new((key.into(), seq)))
    }

    const fn is_missing(&self) -> bool {
        matches!(self, Self::Missing(_))
    }

    fn chunk(&self) -> Option<&Chunk> {
        match self {
            Self::Held(chunk) => Some(chunk),
            Self::Missing(_) => None,
        }
    }

    fn first_key(&self) -> &[u8] {
        match self {
            Self::Held(chunk) => chunk.first_key(),
            Self::Missing(first) => &first.0,
        }
    }

    /// Whether the first fence is at or before (`key`, `seq`).
    fn begins_until(&self, head: u64, key: &[u8], seq: Seq) -> bool {
        match self {
            Self::Held(chunk) => chunk.begins_until(head, key, seq),
            Self::Missing(first) => key::compare((&first.0, first.1), (key, seq)).is_le(),
        }
    }
}

impl FenceIndex {
    /// No fences; their memory will be counted.
    pub(crate) fn counted(account: Account) -> Self {
        Self { account: Some(account), ..Self::default() }
    }

    /// Adds a fence behind all others. False when there is memory for so few that the index is
    /// of no use.
    #[must_use]
    pub fn push(&mut self, item: &KeyedFence<'_>) -> bool {
        if self.last.len() >= CHUNK_FENCES {
            let chunk = std::mem::take(&mut self.last);
            let slot = self.count(chunk).map_or_else(
                |first| Slot::Missing(Arc::new(first)),
                |chunk| Slot::Held(Arc::new(chunk)),
            );
            self.missing += usize::from(slot.is_missing());
            Arc::make_mut(&mut self.full).push(slot);
        }
        self.last.push(item);
        self.missing < MISSING_MIN || self.missing <= MISSING_PER_HELD * self.held_chunks()
    }

    /// Counts a chunk's memory; its first key and number where there is none for it.
    fn count(&mut self, mut chunk: Chunk) -> Result<Chunk, (Box<[u8]>, Seq)> {
        chunk.finish();
        let Some(account) = &self.account else { return Ok(chunk) };
        let bytes = chunk.memory_bytes();
        self.counted_bytes += bytes;
        self.counted_fences += chunk.len();
        let has_room = self.held_bytes.saturating_add(bytes) <= account.most_bytes;
        let lease = || account.budget.try_lease(Part::Fences, bytes);
        chunk.lease = has_room.then(lease).flatten();
        if chunk.lease.is_none() {
            if self.counted_bytes > account.required_bytes {
                return Err(chunk.first());
            }
            chunk.lease = Some(account.budget.lease(Part::Fences, bytes));
            chunk.is_over_budget = true;
        }
        self.held_bytes += bytes;
        Ok(chunk)
    }

    /// No fence follows: returns memory that pushing had reserved and counts the rest.
    pub fn finish(&mut self) {
        let last = std::mem::take(&mut self.last);
        if last.len() == 0 {
            return;
        }
        match self.count(last) {
            Ok(last) => self.last = last,
            Err((key, seq)) => self.miss(&key, seq),
        }
    }

    /// No fence from (`key`, `seq`) on is known; it is behind all that were pushed.
    pub(super) fn miss(&mut self, key: &[u8], seq: Seq) {
        let last = std::mem::take(&mut self.last);
        // The last chunk goes with it: places count full chunks and what is behind them.
        let slot = match last.len() {
            0 => Slot::missing(key, seq),
            _ => Slot::Missing(Arc::new(last.first())),
        };
        Arc::make_mut(&mut self.full).push(slot);
        self.missing += 1;
    }

    /// The same for a level whose fences need not be in memory: chunks that were held beyond the
    /// budget are missing as far as it still has no memory for them. `None` where none is held.
    pub(crate) fn within_budget(mut self) -> Option<Self> {
        let budget = self.account.as_ref().map(|account| Arc::clone(&account.budget));
        let over = |budget: &Arc<Budget>| {
            budget.used_bytes(Part::Fences).saturating_sub(budget.limit_bytes(Part::Fences))
        };
        let mut over = budget.as_ref().map_or(0, over);
        for slot in Arc::make_mut(&mut self.full).slots.iter_mut().rev() {
            if let Slot::Held(chunk) = slot
                && chunk.is_over_budget
                && over > 0
            {
                over = over.saturating_sub(chunk.memory_bytes());
                *slot = Slot::Missing(Arc::new(chunk.first()));
            }
        }
        self.count_missing();
        if self.last.is_over_budget && over > 0 {
            let (key, seq) = self.last.first();
            self.last = Chunk::default();
            self.miss(&key, seq);
        }
        (self.held_chunks() > 0 || self.last.len() > 0).then_some(self)
    }

    fn held_chunks(&self) -> usize {
        self.full.len() - self.missing
    }

    fn count_missing(&mut self) {
        self.missing = self.full.slots.iter().filter(|slot| slot.is_missing()).count();
    }

    /// Whether no chunk is missing.
    pub(crate) const fn is_complete(&self) -> bool {
        self.missing == 0
    }

    /// The memory that `fences` fences will take if they are like those counted so far, in bytes;
    /// 0 before the first chunk is counted.
    pub(super) fn expected_bytes(&self, fences: u64) -> u64 {
        let counted = (self.counted_fences as u64).max(1);
        let bytes = u128::from(self.counted_bytes) * u128::from(fences.max(counted));
        u64::try_from(bytes / u128::from(counted)).unwrap_or(u64::MAX)
    }

    /// The current fences, for a view: full chunks are shared, the last one is copied.
    pub(crate) fn snapshot(&self) -> Self {
        Self {
            full: Arc::clone(&self.full),
            last: self.last.copy(),
            dropped: self.dropped,
            missing: self.missing,
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
        let last = Some(self.last.first_key()).filter(|_| self.last.len() > 0);
        let starts = self.full.slots.iter().map(Slot::first_key).chain(last).skip(1);
        let count = starts.take_while(|first| *first <= wavefront).count();
        (count > 0).then(|| {
            let mut rest = self.snapshot();
            rest.drop_chunks(count);
            rest
        })
    }

    /// Frees the chunks in front of the one that holds `place`.
    pub(crate) fn drop_before(&mut self, place: Place) {
        let count = (place.0.saturating_sub(self.dropped) / CHUNK_FENCES).min(self.full.len());
        if count > 0 {
            self.drop_chunks(count);
        }
    }

    fn drop_chunks(&mut self, count: usize) {
        self.full = Arc::new(self.full.without_first(count));
        self.dropped += count * CHUNK_FENCES;
        self.count_missing();
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
        let full: u64 = self.full.chunks().map(Chunk::memory_bytes).sum();
        full + self.last.memory_bytes()
    }

    /// The memory of a fence without its filter, in bytes, on average over full chunks.
    pub(crate) fn each_bytes(&self) -> Option<u64> {
        let besides_filters = |chunk: &Chunk| chunk.memory_bytes() - chunk.filter_bytes();
        let bytes: u64 = self.full.chunks().map(besides_filters).sum();
        bytes.checked_div(self.full.chunks().map(|chunk| chunk.len() as u64).sum())
    }

    fn chunk(&self, number: usize) -> Option<&Chunk> {
        match self.full.slots.get(number) {
            Some(slot) => slot.chunk(),
            None => Some(&self.last).filter(|_| number == self.full.len()),
        }
    }

    /// The chunk that `place` is in, and where; `None` where it is missing.
    fn at(&self, place: Place) -> Option<(&Chunk, usize)> {
        let index = place.0.checked_sub(self.dropped)?;
        Some((self.chunk(index / CHUNK_FENCES)?, index % CHUNK_FENCES))
    }

    /// The fence at `place`; `None` behind the last and where a chunk is missing.
    #[must_use]
    pub fn get(&self, place: Place) -> Option<KeyedFence<'_>> {
        let (chunk, index) = self.at(place)?;
        chunk.get(index)
    }

    /// The way to the block of the fence at `place`, if there is one.
    pub(super) fn ptr(&self, place: Place) -> Option<BlockPtr> {
        let (chunk, index) = self.at(place)?;
        chunk.ptr(index)
    }

    /// Whether the block of the fence at `place` may hold a key with this hash; true where there is
    /// no fence, so that a lookup ends with the error of [`ptr`](Self::ptr) and not as a miss.
    pub(super) fn may_contain(&self, place: Place, hash: u64) -> bool {
        self.at(place).is_none_or(|(chunk, index)| filter::may_contain(chunk.filter(index), hash))
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
    /// must be in, if the level has one. `None` where the chunk is missing that would have it.
    #[must_use]
    pub fn find(&self, key: &[u8], seq: Seq) -> Option<Place> {
        // Chunks whose first fence is at or before the key; the last of them contains the answer.
        let head = long_head(key);
        let before = self.full.count_until(head, key, seq);
        let in_last = before == self.full.len() && self.last.begins_until(head, key, seq);
        let number = if in_last { before } else { self.searched(before.checked_sub(1)?) };
        let within = self.chunk(number)?.count_until(key, seq).checked_sub(1)?;
        Some(Place(self.dropped + number * CHUNK_FENCES + within))
    }

    /// The chunk that a search is led to.
    fn searched(&self, number: usize) -> usize {
        let held = |number: &usize| self.chunk(*number).is_some();
        if planted::is(Bug::MissingChunkPassed) {
            return (0..=number).rev().find(held).unwrap_or(number);
        }
        number
    }

    /// All fences in order, without those of missing chunks.
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
mod tests;
