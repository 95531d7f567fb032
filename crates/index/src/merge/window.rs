//! Reading an old level ahead, and which of its blocks the wavefront has not passed.

use std::collections::VecDeque;

use esker_device::Purpose;
use esker_format::block::{BlockLayout, BlockView};
use esker_format::ptr::{BlockPtr, Extent, UNIT_BYTES};
use esker_substrate::budget::SMALL_BYTES;
use esker_substrate::error::Result;
use esker_substrate::planted::{self, Race};

use crate::build::buffer::CountedBuf;
use crate::run::tree::BlockReader;

/// Bytes read ahead at once: large enough that reading is sequential.
pub(crate) const READ_AHEAD_BYTES: u64 = 256 * 1024;
/// The share of a small memory budget that a source takes for reading ahead, as a divisor: a merge
/// has up to two dozen sources.
const AHEAD_DIVISOR: u64 = 32;

/// Bytes to read ahead at once in a store with a memory budget of `budget_bytes`; at most
/// `bytes_max`.
pub(crate) fn ahead_bytes(budget_bytes: u64, bytes_max: u64) -> u64 {
    let small = budget_bytes < SMALL_BYTES;
    if small { (budget_bytes / AHEAD_DIVISOR).clamp(UNIT_BYTES, bytes_max) } else { bytes_max }
}

/// Bytes read ahead.
pub struct Window {
    pub(crate) extents: Vec<Extent>,
    ahead_bytes: u64,
    buffer: CountedBuf,
    offset: u64,
    length: usize,
    /// The block verified last, decompressed, where it was compressed.
    unpacked: Vec<u8>,
}

impl Window {
    /// Over the contents of `extents`, at most `ahead_bytes` bytes of them at once.
    pub(crate) fn new(extents: &[Extent], ahead_bytes: u64) -> Self {
        let mut extents = extents.to_vec();
        extents.sort_unstable();
        let (buffer, unpacked) = (CountedBuf::new(), Vec::new());
        Self { extents, ahead_bytes, buffer, offset: 0, length: 0, unpacked }
    }

    fn range_of(&self, ptr: &BlockPtr) -> Option<std::ops::Range<usize>> {
        let from = usize::try_from(ptr.offset().checked_sub(self.offset)?).ok()?;
        let to = from + ptr.bytes();
        (to <= self.length).then_some(from..to)
    }

    /// The end of the extent that holds `ptr`.
    fn extent_end(&self, ptr: &BlockPtr) -> u64 {
        let behind = self.extents.partition_point(|extent| extent.offset() <= ptr.offset());
        let extent = behind.checked_sub(1).and_then(|index| self.extents.get(index));
        extent.map_or(0, |extent| extent.offset() + extent.bytes())
    }

    pub(crate) fn load(
        &mut self,
        reader: &BlockReader,
        ptr: &BlockPtr,
        purpose: Purpose,
    ) -> Result<()> {
        if self.range_of(ptr).is_some() {
            return Ok(());
        }
        let end = self.extent_end(ptr).min(ptr.offset() + self.ahead_bytes);
        let length = end.saturating_sub(ptr.offset()).max(ptr.bytes() as u64) as usize;
        self.length = 0;
        self.buffer.grow(&reader.budget, length);
        let buffer = self.buffer.get_mut(..length).unwrap_or_default();
        reader.blocks.read_raw(ptr.offset(), buffer, purpose)?;
        (self.offset, self.length) = (ptr.offset(), length);
        Ok(())
    }

    fn bytes(&self, ptr: &BlockPtr) -> &[u8] {
        self.range_of(ptr).and_then(|range| self.buffer.get(range)).unwrap_or_default()
    }

    /// Checks that the bytes read are the block, and decompresses it. Takes it out of the cache:
    /// what the merge writes has its place.
    pub(crate) fn verify(&mut self, reader: &BlockReader, ptr: &BlockPtr) -> Result<BlockLayout> {
        let layout = reader.blocks.verify(reader.keyspace, ptr, self.bytes(ptr))?;
        reader.blocks.cache().remove(ptr);
        if layout.is_packed() {
            let mut unpacked = std::mem::take(&mut self.unpacked);
            reader.blocks.unpack(ptr, self.bytes(ptr), &layout, &mut unpacked)?;
            self.unpacked = unpacked;
        }
        Ok(layout)
    }

    /// The block that was verified last.
    pub(crate) fn view(&self, ptr: &BlockPtr, layout: BlockLayout) -> BlockView<'_> {
        let is_packed = layout.is_packed();
        let bytes = if is_packed { self.unpacked.as_slice() } else { self.bytes(ptr) };
        BlockView::new(bytes, layout)
    }
}

/// The blocks that were read and are still needed behind the wavefront, in order: offset and first
/// key. A search for the next entry that takes part may read several blocks ahead.
#[derive(Default)]
pub struct Needed {
    blocks: VecDeque<(u64, Vec<u8>)>,
}

impl Needed {
    pub(crate) fn note(&mut self, offset: u64, first_key: [&[u8]; 2]) {
        self.blocks.push_back((offset, first_key.concat()));
    }

    /// Forgets the blocks that are not needed behind `wavefront`: a block is needed until the
    /// first key of the one behind it is at or before the wavefront. The offset of the first that
    /// is.
    pub(crate) fn behind(&mut self, wavefront: &[u8]) -> Option<u64> {
        let early = planted::is(Race::ReclaimWhenRead);
        let passed = |first_key: &[u8]| first_key <= wavefront || early;
        while self.blocks.get(1).is_some_and(|(_, first_key)| passed(first_key)) {
            self.blocks.pop_front();
        }
        self.blocks.front().map(|(offset, _)| *offset)
    }

    /// The number of blocks.
    pub(crate) fn len(&self) -> u64 {
        self.blocks.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_budget_reads_less_ahead() {
        let kib = |budget: u64| ahead_bytes(budget << 10, READ_AHEAD_BYTES) >> 10;
        assert_eq!([0, 128, 256, 512, 1023, 1024].map(kib), [4, 4, 8, 16, 31, 256]);
    }
}
