//! An immutable, ordered set of removed ranges, in chunks that sets share.
//!
//! Sets differ from those that they were made of in one or two chunks: to make one takes a copy of
//! these, and of the list of chunks.
//!
//! Invariant (ordered ranges): ranges ascend and share no key; adjacent ranges that touch differ in
//! their numbers.
//! Invariant: no chunk is empty, or has more ranges than [`CHUNK_MAX`].

use std::sync::Arc;

use esker_format::action::KeyRange;
use esker_format::meta::RemovedRange;

/// Most ranges of a chunk: about as many are copied then as the largest set has chunks.
const CHUNK_MAX: usize = 64;
/// What is left of a chunk and has fewer is joined with the chunk before it.
const CHUNK_MIN: usize = CHUNK_MAX / 4;

/// Ranges that follow each other.
#[derive(Debug)]
struct Chunk {
    ranges: Vec<Arc<RemovedRange>>,
    size: Size,
}

/// What a set, or a part of it, takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Size {
    pub ranges: usize,
    /// Numbers of all ranges.
    pub numbers: usize,
    /// Bytes of their keys.
    pub bytes: usize,
}

impl Size {
    fn of(range: &RemovedRange) -> Self {
        Self { ranges: 1, numbers: range.seqs.len(), bytes: range.keys().key_bytes() }
    }

    fn sum(sizes: impl Iterator<Item = Self>) -> Self {
        sizes.fold(Self::default(), |sum, size| Self {
            ranges: sum.ranges + size.ranges,
            numbers: sum.numbers + size.numbers,
            bytes: sum.bytes + size.bytes,
        })
    }
}

/// Removed ranges in order.
#[derive(Clone, Debug, Default)]
pub(super) struct RangeSet {
    chunks: Arc<[Arc<Chunk>]>,
    size: Size,
}

/// The place of a range in a set; of none behind its last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    chunk: usize,
    index: usize,
}

impl Chunk {
    fn new(ranges: &[Arc<RemovedRange>]) -> Arc<Self> {
        let size = Size::sum(ranges.iter().map(|range| Size::of(range)));
        Arc::new(Self { ranges: ranges.to_vec(), size })
    }
}

/// Ranges in chunks of about the same length.
fn chunks_of(ranges: &[Arc<RemovedRange>]) -> impl Iterator<Item = Arc<Chunk>> {
    let chunks = ranges.len().div_ceil(CHUNK_MAX).max(1);
    ranges.chunks(ranges.len().div_ceil(chunks).max(1)).map(Chunk::new)
}

impl RangeSet {
    /// A set of ranges that obey the invariant.
    pub fn new(ranges: &[Arc<RemovedRange>]) -> Self {
        Self::of(chunks_of(ranges).collect())
    }

    fn of(chunks: Arc<[Arc<Chunk>]>) -> Self {
        let size = Size::sum(chunks.iter().map(|chunk| chunk.size));
        Self { chunks, size }
    }

    /// What it takes.
    pub const fn size(&self) -> Size {
        self.size
    }

    /// The ranges, ascending.
    pub fn iter(&self) -> impl Iterator<Item = &RemovedRange> {
        self.shared().map(|range| &**range)
    }

    /// The same, to be shared.
    pub fn shared(&self) -> impl Iterator<Item = &Arc<RemovedRange>> {
        self.chunks.iter().flat_map(|chunk| &chunk.ranges)
    }

    /// The range at `place`, if there is one.
    pub fn get(&self, place: Place) -> Option<&RemovedRange> {
        Some(self.chunks.get(place.chunk)?.ranges.get(place.index)?)
    }

    /// The place behind the one of a range.
    pub fn next(&self, Place { chunk, index }: Place) -> Place {
        match self.chunks.get(chunk) {
            Some(here) if index + 1 < here.ranges.len() => Place { chunk, index: index + 1 },
            _ => Place { chunk: chunk + 1, index: 0 },
        }
    }

    /// The place before, if there is one.
    pub fn previous(&self, Place { chunk, index }: Place) -> Option<Place> {
        if let Some(index) = index.checked_sub(1) {
            return Some(Place { chunk, index });
        }
        let chunk = chunk.checked_sub(1)?;
        Some(Place { chunk, index: self.chunks.get(chunk)?.ranges.len().checked_sub(1)? })
    }

    /// The place of the first range for which `is_before` is false: it is true for those before
    /// that one, and false for those behind it.
    pub fn partition_point(&self, is_before: impl Fn(&RemovedRange) -> bool) -> Place {
        let first_is_before =
            |chunk: &Arc<Chunk>| chunk.ranges.first().is_some_and(|range| is_before(range));
        let behind = self.chunks.partition_point(first_is_before);
        let Some(chunk) = behind.checked_sub(1) else { return Place { chunk: 0, index: 0 } };
        let ranges = self.chunks.get(chunk).map_or(&[][..], |chunk| &chunk.ranges);
        let index = ranges.partition_point(|range| is_before(range));
        if index < ranges.len() {
            Place { chunk, index }
        } else {
            Place { chunk: behind, index: 0 }
        }
    }

    /// The set in which `change` has replaced the ranges that share a key with `keys`, and some on
    /// both sides of them, among them a neighbour on each side if there is one.
    pub fn changed(
        &self,
        keys: KeyRange<'_>,
        change: impl FnOnce(&[Arc<RemovedRange>]) -> Vec<Arc<RemovedRange>>,
    ) -> Self {
        let first = self.partition_point(|range| *range.begin < *keys.begin);
        let first = self.previous(first).unwrap_or(first);
        let mut from = self.previous(first).unwrap_or(first).chunk;
        let behind = |range: &RemovedRange| keys.end.is_none_or(|end| &*range.begin < end);
        let last = self.partition_point(behind);
        let to = (last.chunk + 1).min(self.chunks.len());
        let old: Vec<_> = self.ranges_of(from, to).cloned().collect();
        let mut new = change(&old);
        if new.len() < CHUNK_MIN && from > 0 {
            from -= 1;
            new = self.ranges_of(from, from + 1).cloned().chain(new).collect();
        }
        let part = |from, to| self.chunks.get(from..to).unwrap_or_default().iter().cloned();
        let ends = (part(0, from), part(to, self.chunks.len()));
        Self::of(ends.0.chain(chunks_of(&new)).chain(ends.1).collect())
    }

    fn ranges_of(&self, from: usize, to: usize) -> impl Iterator<Item = &Arc<RemovedRange>> {
        let chunks = self.chunks.get(from..to).unwrap_or_default();
        chunks.iter().flat_map(|chunk| &chunk.ranges)
    }

    /// Whether all ranges ascend, and share no key.
    pub fn is_in_order(&self) -> bool {
        let follows = |left: &RemovedRange, right: &RemovedRange| {
            left.end.as_deref().is_some_and(|end| end <= &*right.begin)
        };
        self.iter().zip(self.iter().skip(1)).all(|(left, right)| follows(left, right))
    }
}
