//! The flash, its data blocks, and the sequence number of everything that is programmed.
//!
//! One place programs pages: the caller says where, why and what, and gets the place. After an
//! error of the flash the layer must be recovered, because what is in memory may be ahead.

use super::space::Space;
use crate::error::{Error, Result};
use crate::nand::{BlockId, Cause, Lpn, Nand, PageKind, Ppn, Spare};
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

/// Flash with data blocks.
#[derive(Clone, Debug)]
pub(crate) struct Store<N> {
    pub(crate) nand: N,
    pub(crate) space: Space,
    /// The last sequence number that was used.
    sequence: u64,
    buffer: Vec<u8>,
    /// A page that a planted bug holds back.
    held_back: Option<(Ppn, Vec<u8>, Spare)>,
}

impl<N: Nand> Store<N> {
    pub(crate) fn new(nand: N, space: Space, sequence: u64) -> Self {
        let buffer = vec![0; nand.geometry().page_size() as usize];
        Self { nand, space, sequence, buffer, held_back: None }
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
            self.nand.program(page, data, spare, Cause::Host)?;
        }
        self.space.validate(page, lpn);
        Ok(page)
    }

    /// Programs what a planted bug holds back.
    pub(crate) fn release(&mut self) -> Result<()> {
        let Some((page, data, spare)) = self.held_back.take() else { return Ok(()) };
        self.nand.program(page, &data, spare, Cause::Host)
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

    /// Programs the next page of a meta block.
    pub(crate) fn program_meta(
        &mut self,
        page: Ppn,
        data: &[u8],
        spare: Spare,
        cause: Cause,
    ) -> Result<()> {
        self.nand.program(page, data, spare, cause)
    }

    /// Erases a meta block, and answers the erased block that takes its place.
    pub(crate) fn recycle(&mut self, block: BlockId) -> Result<BlockId> {
        self.nand.erase(block, Cause::Map)?;
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
        if self.space.valid_in(block) == 0 {
            return Ok((victim, Vec::new()));
        }
        if self.space.open_reserve().is_none() {
            return Err(Error::Full("the reserve is in use".to_owned()));
        }
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
        let spare = self.nand.read(from, &mut self.buffer, cause)?;
        self.require_spare(from, lpn, spare)?;
        self.nand.program(to, &self.buffer, spare, cause)?;
        self.space.validate(to, lpn);
        self.space.invalidate(from);
        Ok(to)
    }

    /// Erases a block that a collection emptied: it is the reserve now.
    pub(crate) fn erase_victim(&mut self, Victim { block, cause }: Victim) -> Result<()> {
        self.nand.erase(block, cause)?;
        self.space.add_free(block, self.nand.erase_count(block));
        Ok(())
    }
}
