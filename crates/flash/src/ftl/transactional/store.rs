//! The flash, its data blocks, and the sequence number of everything that is programmed.
//!
//! One place programs pages: the caller says where, why and what, and gets the place. After an
//! error of the flash the layer must be recovered, because what is in memory may be ahead.
//!
//! **What waits** (see `nand/clock.rs`). W1: a page of a record or of the map is programmed when
//! all data pages and all such pages before it are: a commit is not durable before its data, and
//! the last page of a record not before the others. W2: a block is erased when all records and
//! pages of the map before it are programmed; nothing waits for the erase but its die. W3: a page
//! that is moved is programmed when it is read; the pages of a victim are moved side by side.

use super::space::Space;
use crate::error::{Error, Result};
use crate::nand::{BlockId, Cause, Lpn, Nand, PageKind, Ppn, Spare, Urgency};
use crate::planted::{self, Bug};

/// A page that a collection moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) lpn: Lpn,
    pub(crate) from: Ppn,
    pub(crate) to: Ppn,
}

/// A block that is being collected, and why.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Victim {
    block: BlockId,
    cause: Cause,
}

/// The erases of blocks, as far as wear levelling must know them.
#[derive(Clone, Copy, Debug)]
struct Erases {
    /// No block was erased more often.
    most: u32,
    /// No block was erased less often.
    least: u32,
    /// Whether a block was erased since the last look for one that is behind.
    is_new: bool,
}

/// Flash with data blocks.
#[derive(Clone, Debug)]
pub(crate) struct Store<N> {
    pub(crate) nand: N,
    pub(crate) space: Space,
    /// The last sequence number that was used.
    sequence: u64,
    buffer: Vec<u8>,
    /// When the data pages that were programmed are.
    data_until_ns: u64,
    /// When the records and pages of the map that were programmed are.
    meta_until_ns: u64,
    wear: Erases,
    /// A page that a planted bug holds back.
    held_back: Option<(Ppn, Vec<u8>, Spare)>,
}

impl<N: Nand> Store<N> {
    pub(crate) fn new(nand: N, space: Space, sequence: u64) -> Self {
        let buffer = vec![0; nand.geometry().page_size() as usize];
        let blocks = (0..nand.geometry().blocks()).map(BlockId);
        let most = blocks.map(|block| nand.erase_count(block)).max().unwrap_or(0);
        Self {
            nand,
            space,
            sequence,
            buffer,
            data_until_ns: 0,
            meta_until_ns: 0,
            wear: Erases { most, least: 0, is_new: true },
            held_back: None,
        }
    }

    /// A sequence number that nothing has.
    pub(crate) fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    pub(crate) fn page_size(&self) -> usize {
        self.buffer.len()
    }

    pub(crate) fn pages_per_block(&self) -> u32 {
        self.nand.geometry().pages_per_block()
    }

    /// The error for data that is not a page.
    pub(crate) fn require_page_length(&self, found: usize) -> Result<()> {
        let expected = self.page_size();
        if !self.nand.keeps_data() || found == expected {
            return Ok(());
        }
        Err(Error::Length { expected, found })
    }

    /// Programs a page of the host. There is room: see [`Space::is_short`].
    pub(crate) fn program_data(&mut self, lpn: Lpn, data: &[u8]) -> Result<Ppn> {
        self.release()?;
        let Some(page) = self.space.place() else {
            return Err(Error::Full("no erased page is left for data".to_owned()));
        };
        let spare = Spare { lpn, kind: PageKind::Data, seq: self.next_sequence() };
        if planted::is(Bug::CommitBeforeData) {
            self.held_back = Some((page, data.to_vec(), spare));
        } else {
            self.program_page(page, data, spare)?;
        }
        self.space.validate(page, lpn);
        Ok(page)
    }

    /// Programs what a planted bug holds back.
    pub(crate) fn release(&mut self) -> Result<()> {
        let Some((page, data, spare)) = self.held_back.take() else { return Ok(()) };
        self.program_page(page, &data, spare)
    }

    fn program_page(&mut self, page: Ppn, data: &[u8], spare: Spare) -> Result<()> {
        self.nand.program(page, data, spare, Cause::Host)?;
        self.data_until_ns = self.data_until_ns.max(self.nand.until_ns());
        Ok(())
    }

    /// Reads a data page, and checks that it is the one of this logical page.
    pub(crate) fn read_data(&mut self, page: Ppn, lpn: Lpn, data: &mut [u8]) -> Result<()> {
        self.release()?;
        let spare = self.nand.read(page, data, Cause::Host)?;
        self.require_spare(page, lpn, spare)
    }

    fn require_spare(&self, page: Ppn, lpn: Lpn, spare: Spare) -> Result<()> {
        if !self.nand.keeps_data() || (spare.kind == PageKind::Data && spare.lpn == lpn) {
            return Ok(());
        }
        let what = format!("{:?} of {}, and is mapped as {lpn}", spare.kind, spare.lpn);
        Err(Error::Foreign { page, what })
    }

    /// Programs the next page of a meta block (W1).
    pub(crate) fn program_meta(
        &mut self,
        page: Ppn,
        data: &[u8],
        spare: Spare,
        cause: Cause,
    ) -> Result<()> {
        let outer = self.nand.open_scope(Urgency::Foreground);
        self.nand.wait_until(self.data_until_ns.max(self.meta_until_ns));
        let done = self.nand.program(page, data, spare, cause);
        self.meta_until_ns = self.meta_until_ns.max(self.nand.until_ns());
        self.nand.close_scope(outer);
        done
    }

    /// Erases a block (W2).
    fn erase(&mut self, block: BlockId, cause: Cause) -> Result<()> {
        let outer = self.nand.open_scope(Urgency::Background);
        self.nand.wait_until(self.meta_until_ns);
        let done = self.nand.erase(block, cause);
        self.nand.close_scope(outer);
        self.wear.most = self.wear.most.max(self.nand.erase_count(block));
        self.wear.is_new = true;
        done
    }

    /// Of the blocks that are not used soon anyway, the one that was erased least, if another block
    /// was erased more often by more than the spread. Cost: O(1), and a pass over the blocks after
    /// an erase while there is one, or the bound of the least is out of date.
    pub(crate) fn lagging(&mut self, is_used_soon: impl Fn(BlockId) -> bool) -> Option<BlockId> {
        let (most, spread) = (self.wear.most, self.space.wear_spread());
        if !self.wear.is_new || most.saturating_sub(self.wear.least) <= spread {
            return None;
        }
        self.wear.is_new = false;
        let blocks = (0..self.nand.geometry().blocks()).map(BlockId);
        let by_erases = blocks.map(|block| (self.nand.erase_count(block), block));
        let (soon, other): (Vec<_>, Vec<_>) = by_erases
            .partition(|(_, block)| self.space.is_used_soon(*block) || is_used_soon(*block));
        let (erases, block) = other.into_iter().min()?;
        let least = soon.into_iter().min().map_or(erases, |(least, _)| least.min(erases));
        self.wear.least = least;
        (most.saturating_sub(erases) > spread).then_some(block)
    }

    /// Erases a meta block, and answers the erased block that takes its place.
    pub(crate) fn recycle(&mut self, block: BlockId) -> Result<BlockId> {
        self.erase(block, Cause::Map)?;
        Ok(self.space.exchange(block, self.nand.erase_count(block)))
    }

    /// Moves the valid pages of a victim to the reserve. The caller changes their owners, makes
    /// that durable, and then calls [`erase_victim`](Self::erase_victim). `is_needed` is for a
    /// planted bug.
    pub(crate) fn collect(
        &mut self,
        is_needed: impl Fn(Ppn, Lpn) -> bool,
    ) -> Result<(Victim, Vec<Move>)> {
        self.release()?;
        let nand = &self.nand;
        let Some((block, for_wear)) = self.space.choose(|block| nand.erase_count(block)) else {
            let what = "every page of every block is in use".to_owned();
            return Err(Error::Full(what));
        };
        let cause = if for_wear { Cause::Wear } else { Cause::Gc };
        let victim = Victim { block, cause };
        let first = self.nand.geometry().first_page(block).0;
        let mut moves = Vec::new();
        for from in (first..first + self.pages_per_block()).map(Ppn) {
            let Some(lpn) = self.space.lpn(from) else { continue };
            if !is_needed(from, lpn) {
                self.space.invalidate(from);
                continue;
            }
            let to = self.move_page(from, lpn, cause)?;
            moves.push(Move { lpn, from, to });
        }
        Ok((victim, moves))
    }

    fn move_page(&mut self, from: Ppn, lpn: Lpn, cause: Cause) -> Result<Ppn> {
        let Some(to) = self.space.place_moved() else {
            return Err(Error::Full("the reserve is smaller than a block".to_owned()));
        };
        let outer = self.nand.open_scope(Urgency::Background);
        let spare = self.nand.read(from, &mut self.buffer, cause)?;
        self.require_spare(from, lpn, spare)?;
        self.nand.wait();
        self.nand.program(to, &self.buffer, spare, cause)?;
        self.data_until_ns = self.data_until_ns.max(self.nand.until_ns());
        self.nand.close_scope(outer);
        self.space.validate(to, lpn);
        self.space.invalidate(from);
        Ok(to)
    }

    /// Erases a block that a collection emptied: it is the reserve now.
    pub(crate) fn erase_victim(&mut self, Victim { block, cause }: Victim) -> Result<()> {
        self.erase(block, cause)?;
        self.space.add_free(block, self.nand.erase_count(block));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ftl::transactional::Collection;
    use crate::nand::{Cell, Geometry, NandSim, Sizes, Timing};

    const SIZES: Sizes = Sizes {
        channels: 2,
        dies_per_channel: 1,
        planes_per_die: 1,
        blocks_per_plane: 1,
        pages_per_block: 3,
        page_size: 64,
    };

    /// The victim is on one die, the reserve on the other.
    #[test]
    fn a_moved_page_is_programmed_when_it_is_read_and_the_victim_erased_after_the_record() {
        let (geometry, timing) = (Geometry::new(SIZES).unwrap(), Timing::of_cell(Cell::Slc, 64));
        let nand = NandSim::<()>::with_clock(geometry, timing);
        let mut space = Space::new(geometry, Collection::default());
        (0..2).for_each(|block| space.add_free(BlockId(block), 0));
        let mut store = Store::new(nand, space, 0);
        let data: Vec<_> = (0..3).map(|lpn| store.program_data(Lpn(lpn), &[]).unwrap()).collect();
        data[..2].iter().for_each(|page| store.space.invalidate(*page));
        store.nand.issue_at(1_000_000_000);
        let (victim, moves) = store.collect(|_, _| true).unwrap();
        assert_eq!(moves, [Move { lpn: Lpn(2), from: Ppn(2), to: Ppn(3) }]);
        let (transfer, program) = (timing.transfer_ns_per_page, timing.program_ns);
        let moved = 1_000_000_000 + timing.read_ns + 2 * transfer + program;
        assert_eq!(store.data_until_ns, moved);
        let spare = Spare { lpn: Lpn(0), kind: PageKind::Commit, seq: 9 };
        store.program_meta(Ppn(4), &[], spare, Cause::Map).unwrap();
        let recorded = moved + transfer + program;
        assert_eq!((store.meta_until_ns, store.nand.end_ns()), (recorded, recorded));
        store.erase_victim(victim).unwrap();
        assert_eq!(store.nand.end_ns(), recorded, "nothing waits for the erase");
        store.nand.issue_at(recorded);
        let spare = Spare { lpn: Lpn(0), kind: PageKind::Data, seq: 10 };
        store.nand.program(Ppn(0), &[], spare, Cause::Host).unwrap();
        let erased = recorded + timing.erase_ns;
        assert_eq!(store.nand.end_ns(), erased + program, "but its die");
    }
}
