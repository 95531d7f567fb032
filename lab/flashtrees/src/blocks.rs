//! Whole blocks of a chip, for trees that erase on their own: the least erased free one is taken.
//!
//! Memory as it is counted: 4 bytes a block.

use std::collections::BTreeSet;

use esker_flash::nand::{BlockId, Cause, Lpn, PageKind, Ppn, Spare};
use esker_flash::{Geometry, Nand};

use crate::error::{Error, Result, broken};

/// A chip's blocks. Each operation begins when the one before it has ended.
#[derive(Debug)]
pub struct Blocks<N> {
    nand: N,
    /// Free blocks, erased or to be erased when they are taken, by (erases, block).
    free: BTreeSet<(u32, u32)>,
}

impl<N: Nand> Blocks<N> {
    /// All blocks of a chip, free. What they hold is lost.
    pub fn new(nand: N) -> Self {
        let blocks = 0..nand.geometry().blocks();
        let free = blocks.map(|block| (nand.erase_count(BlockId(block)), block)).collect();
        Self { nand, free }
    }

    /// The sizes of the chip.
    pub fn geometry(&self) -> &Geometry {
        self.nand.geometry()
    }

    /// The chip.
    pub const fn nand(&self) -> &N {
        &self.nand
    }

    /// The number of free blocks.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Takes the free block that was erased least, erased.
    ///
    /// # Errors
    /// [`Error::Full`]; those of the flash.
    pub fn take(&mut self, cause: Cause) -> Result<u32> {
        let Some((_, block)) = self.free.pop_first() else { return Err(self.full()) };
        if self.nand.next_page(BlockId(block)) > 0 {
            self.erase(block, cause)?;
        }
        Ok(block)
    }

    /// The error of a chip without a free block.
    pub fn full(&self) -> Error {
        Error::Full(format!("its {} blocks are in use", self.geometry().blocks()))
    }

    /// Erases a block and gives it back.
    ///
    /// # Errors
    /// Those of the flash.
    pub fn give_back(&mut self, block: u32, cause: Cause) -> Result<()> {
        self.erase(block, cause)?;
        self.free.insert((self.nand.erase_count(BlockId(block)), block));
        Ok(())
    }

    /// Erases a block that is not free.
    ///
    /// # Errors
    /// Those of the flash.
    pub fn erase(&mut self, block: u32, cause: Cause) -> Result<()> {
        self.begin();
        Ok(self.nand.erase(BlockId(block), cause)?)
    }

    /// Reads a page of a block.
    ///
    /// # Errors
    /// Those of the flash.
    pub fn read(&mut self, block: u32, page: u32, data: &mut [u8], cause: Cause) -> Result<()> {
        self.begin();
        let page = self.page(block, page)?;
        self.nand.read(page, data, cause)?;
        Ok(())
    }

    /// Programs a page of a block, which is the next one.
    ///
    /// # Errors
    /// Those of the flash.
    pub fn program(&mut self, block: u32, page: u32, data: &[u8], cause: Cause) -> Result<()> {
        self.begin();
        let page = self.page(block, page)?;
        let spare = Spare { lpn: Lpn::NONE, kind: PageKind::Data, seq: 0 };
        Ok(self.nand.program(page, data, spare, cause)?)
    }

    fn page(&self, block: u32, page: u32) -> Result<Ppn> {
        let geometry = self.geometry();
        if page >= geometry.pages_per_block() {
            return broken(format!("page {page} of block {block} is used"));
        }
        geometry.require_block(BlockId(block))?;
        Ok(Ppn(geometry.first_page(BlockId(block)).0 + page))
    }

    fn begin(&mut self) {
        let now = self.nand.end_ns();
        self.nand.issue_at(now);
    }

    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        4 * self.geometry().blocks() as usize
    }
}
