//! The use of blocks: which are free, how many of their pages are in use, how worn they are.
//!
//! S1: a page is *live* while memory's state needs it, and *held* from when that ends until the
//! next checkpoint is complete, because the last one may need it. S2: a block is erased only if it
//! has neither. S3: pages of three lifetimes go to three open blocks: nodes, fragments of buffers,
//! and checkpoints with their log.

use alloc::vec::Vec;

use crate::chip::{BlockNo, PageNo};

/// What pages with one lifetime are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Nodes,
    Fragments,
    Meta,
}

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Free,
    Open,
    Closed,
    /// Closed, and of checkpoints and logs: nothing in it is moved.
    ClosedMeta,
    /// A program or an erase failed. It is not used again.
    Retired,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub live: u16,
    pub held: u16,
    /// Erases, above `Space::base`.
    erases: u16,
    pub state: State,
    /// Whether it was opened since [`Space::begin_collecting`].
    pub is_opened: bool,
}

/// The blocks of a chip: 8 bytes of memory each.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    blocks: Vec<Block>,
    pages_per_block: u32,
    base: u32,
    free: usize,
    retired: usize,
    live: u64,
    open: [Option<(BlockNo, u32)>; 3],
}

impl Space {
    pub(crate) fn new(blocks: u32, pages_per_block: u32) -> Self {
        let block = Block { live: 0, held: 0, erases: 0, state: State::Free, is_opened: false };
        Self {
            blocks: alloc::vec![block; blocks as usize],
            pages_per_block,
            base: 0,
            free: blocks as usize,
            retired: 0,
            live: 0,
            open: [None; 3],
        }
    }

    pub(crate) fn heap_bytes(blocks: u32) -> usize {
        blocks as usize * size_of::<Block>()
    }

    pub(crate) fn free_blocks(&self) -> usize {
        self.free
    }

    /// Pages in use.
    pub(crate) fn live_pages(&self) -> u64 {
        self.live
    }

    /// Pages of blocks that are not retired.
    pub(crate) fn usable_pages(&self) -> u64 {
        (self.blocks.len() - self.retired) as u64 * u64::from(self.pages_per_block)
    }

    pub(crate) fn block(&self, block: BlockNo) -> Option<&Block> {
        self.blocks.get(block.0 as usize)
    }

    pub(crate) fn numbered(&self) -> impl Iterator<Item = (BlockNo, &Block)> {
        (0..).map(BlockNo).zip(&self.blocks)
    }

    pub(crate) fn block_of(&self, page: PageNo) -> BlockNo {
        BlockNo(page.0 / self.pages_per_block)
    }

    pub(crate) fn first_page(&self, block: BlockNo) -> PageNo {
        PageNo(block.0 * self.pages_per_block)
    }

    pub(crate) fn pages_per_block(&self) -> u32 {
        self.pages_per_block
    }

    pub(crate) fn erases(&self, block: BlockNo) -> u32 {
        self.block(block).map_or(0, |block| self.base + u32::from(block.erases))
    }

    pub(crate) fn set_erases(&mut self, block: BlockNo, erases: u32) {
        let relative = erases.saturating_sub(self.base);
        self.raise_base(relative.saturating_sub(u16::MAX.into()));
        let relative = erases.saturating_sub(self.base);
        self.change(block, |block| block.erases = u16::try_from(relative).unwrap_or(u16::MAX));
    }

    /// Makes room above the base. Blocks with fewer erases than it are counted as if they had as
    /// many.
    fn raise_base(&mut self, by: u32) {
        if by > 0 {
            self.base = self.base.saturating_add(by);
            let by = u16::try_from(by).unwrap_or(u16::MAX);
            self.blocks.iter_mut().for_each(|block| block.erases = block.erases.saturating_sub(by));
        }
    }

    fn change(&mut self, block: BlockNo, change: impl FnOnce(&mut Block)) {
        if let Some(block) = self.blocks.get_mut(block.0 as usize) {
            change(block);
        }
    }

    pub(crate) fn set_state(&mut self, block: BlockNo, state: State) {
        let Some(now) = self.blocks.get_mut(block.0 as usize) else { return };
        self.free -= usize::from(now.state == State::Free);
        self.free += usize::from(state == State::Free);
        self.retired -= usize::from(now.state == State::Retired);
        self.retired += usize::from(state == State::Retired);
        now.state = state;
    }

    /// Counts a page as live.
    pub(crate) fn add_live(&mut self, page: PageNo) {
        self.live += 1;
        self.change(self.block_of(page), |block| block.live = block.live.saturating_add(1));
    }

    /// A live page is held from now on.
    pub(crate) fn release(&mut self, page: PageNo) {
        self.live = self.live.saturating_sub(1);
        self.change(self.block_of(page), |block| {
            block.live = block.live.saturating_sub(1);
            block.held = block.held.saturating_add(1);
        });
    }

    /// A checkpoint is complete: blocks without live pages are free. Answers how many became so.
    pub(crate) fn forget_held(&mut self) -> usize {
        let before = self.free;
        for block in &mut self.blocks {
            block.held = 0;
            if block.live == 0 && matches!(block.state, State::Closed | State::ClosedMeta) {
                block.state = State::Free;
                self.free += 1;
            }
        }
        self.free - before
    }

    /// Closed blocks that the next checkpoint makes free.
    pub(crate) fn releasable(&self) -> usize {
        let is_dead = |block: &&Block| {
            block.live == 0 && matches!(block.state, State::Closed | State::ClosedMeta)
        };
        self.blocks.iter().filter(is_dead).count()
    }

    /// The page of the stream's open block that is programmed next.
    pub(crate) fn next(&mut self, stream: Stream) -> Option<PageNo> {
        let place = self.open.get_mut(stream as usize)?;
        let (block, index) = (*place)?;
        *place = Some((block, index + 1));
        if index + 1 == self.pages_per_block {
            *place = None;
            self.set_state(block, closed(stream));
        }
        Some(PageNo(self.first_page(block).0 + index))
    }

    /// Opens an erased block for a stream.
    pub(crate) fn open(&mut self, stream: Stream, block: BlockNo) {
        self.set_state(block, State::Open);
        self.change(block, |block| block.is_opened = true);
        if let Some(place) = self.open.get_mut(stream as usize) {
            *place = Some((block, 0));
        }
    }

    /// From now on [`Block::is_opened`] tells the blocks that a collection has filled.
    pub(crate) fn begin_collecting(&mut self) {
        self.blocks.iter_mut().for_each(|block| block.is_opened = false);
    }

    /// Retires a block; its live pages stay readable.
    pub(crate) fn retire(&mut self, block: BlockNo) {
        self.set_state(block, State::Retired);
        for place in &mut self.open {
            place.take_if(|(open, _)| *open == block);
        }
    }

    /// The free block with the fewest erases.
    pub(crate) fn least_worn_free(&self) -> Option<BlockNo> {
        let free = self.numbered().filter(|(_, block)| block.state == State::Free);
        free.min_by_key(|(number, block)| (block.erases, *number)).map(|(number, _)| number)
    }

    /// The least and greatest erase counts of blocks that are not retired.
    pub(crate) fn wear(&self) -> (u32, u32) {
        let usable = || self.blocks.iter().filter(|block| block.state != State::Retired);
        let least = usable().map(|block| block.erases).min().unwrap_or(0);
        let greatest = usable().map(|block| block.erases).max().unwrap_or(0);
        (self.base + u32::from(least), self.base + u32::from(greatest))
    }

    /// Counts an erase.
    pub(crate) fn erased(&mut self, block: BlockNo) {
        if self.block(block).is_some_and(|block| block.erases == u16::MAX) {
            let least = self.blocks.iter().map(|block| block.erases).min().unwrap_or(0);
            self.raise_base(u32::from(least.max(1)));
        }
        self.change(block, |block| block.erases = block.erases.saturating_add(1));
    }
}

fn closed(stream: Stream) -> State {
    if stream == Stream::Meta { State::ClosedMeta } else { State::Closed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erase_counts_beyond_65535_differ_after_an_opening_and_when_counted() {
        let (first, second, third) = (BlockNo(0), BlockNo(1), BlockNo(2));
        let mut space = Space::new(4, 8);
        // The last was never erased, or its count was lost.
        space.set_erases(first, 70_000);
        space.set_erases(second, 70_040);
        space.set_erases(third, 69_990);
        let counts = [first, second, third].map(|block| space.erases(block));
        assert_eq!(counts, [70_000, 70_040, 69_990]);
        (0..100_000).for_each(|_| space.erased(first));
        assert_eq!(space.erases(first), 170_000);
        assert_eq!(space.wear().1, 170_000);
        assert!(size_of::<Block>() == 8, "of memory for each block");
    }
}
