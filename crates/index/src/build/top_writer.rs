//! The fences to the topmost new level, in blocks of their own that the manifest names.

use esker_format::block::BlockBuilder;
use esker_format::entry::Payload;
use esker_format::meta::TailFence;
use esker_format::ptr::{BlockPtr, Extent, UNIT_BYTES};
use esker_substrate::error::Result;

use crate::build::writer::ExtentWriter;
use crate::run::fence_index::{FenceIndex, KeyedFence, fence_of, keyed, owned};

/// Writes top fences.
///
/// Invariant: `blocks` and `open` together hold all fences added, in order.
pub struct TopWriter {
    builder: BlockBuilder,
    out: ExtentWriter,
    blocks: Vec<BlockPtr>,
    /// The fences in the block being built.
    open: FenceIndex,
}

impl TopWriter {
    /// Goes on behind `blocks` with `open` fences in the block being built.
    pub(crate) fn new(out: ExtentWriter, blocks: Vec<BlockPtr>, open: &[TailFence]) -> Self {
        let builder = BlockBuilder::new(UNIT_BYTES as usize);
        let mut top = Self { builder, out, blocks, open: FenceIndex::default() };
        for fence in open {
            let payload = Payload::Fence(fence_of(fence));
            // They were in one block before.
            top.builder.push(&fence.key, fence.seq, &payload);
            let _not_counted = top.open.push(&keyed(fence));
        }
        top
    }

    /// Adds a fence. After an error the call may be repeated.
    pub(crate) fn add(&mut self, fence: &KeyedFence<'_>) -> Result<()> {
        let payload = Payload::Fence(fence.fence);
        if !self.builder.try_push(fence.key, fence.seq, &payload) {
            self.close_block()?;
            self.builder.push(fence.key, fence.seq, &payload);
        }
        let _not_counted = self.open.push(fence);
        Ok(())
    }

    fn close_block(&mut self) -> Result<()> {
        if !self.builder.is_empty() {
            self.blocks.push(self.out.append(&mut self.builder)?.0);
            self.open.clear();
        }
        Ok(())
    }

    /// Closes the last block and writes it.
    pub(crate) fn close(&mut self) -> Result<()> {
        self.close_block()?;
        self.out.close()
    }

    /// Writes the buffer.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.out.flush()
    }

    /// The fences in the block being built.
    pub(crate) const fn open(&self) -> &FenceIndex {
        &self.open
    }

    /// The fences in the block being built, for the record.
    pub(crate) fn tail(&self) -> Vec<TailFence> {
        self.open.iter().map(|fence| owned(&fence)).collect()
    }

    /// The blocks that are complete.
    pub(crate) fn blocks(&self) -> &[BlockPtr] {
        &self.blocks
    }

    /// Bytes of the space that the blocks take.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.out.used_bytes()
    }

    /// The extents as far as they hold flushed blocks.
    pub(crate) fn written(&self) -> Vec<Extent> {
        self.out.written()
    }

    /// All extents taken.
    pub(crate) fn taken(&self) -> impl Iterator<Item = Extent> {
        self.out.taken()
    }

    /// Drops the extents without freeing them.
    pub(crate) fn forget(&mut self) {
        self.out.forget();
    }

    /// Blocks and extents, after [`TopWriter::close`]. The extents are the caller's.
    pub(crate) fn take(&mut self) -> (Vec<BlockPtr>, Vec<Extent>) {
        (std::mem::take(&mut self.blocks), self.out.take())
    }
}
