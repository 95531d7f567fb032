//! Pages with numbers that can be overwritten, over a translation layer.
//!
//! The page-mapped layer of `esker-flash` is the log with garbage collection and wear levelling of
//! all trees that need one. It is either software of the host beside the tree, and its table is
//! counted against the tree's memory, or it is inside the device.
//!
//! The table as a firmware holds it ([`layer_bytes`]): a page of flash for each page number in use,
//! in 2 to 4 bytes, as the chip needs; numbers that are not in use are chained in it; a bit for
//! each page of flash, whether it is valid; the valid pages and the erases of each block. The owner
//! of a page is in its spare area, which garbage collection reads with the page. The simulated
//! layer has the same knowledge in larger tables, so it reads and programs the same.
//!
//! Page numbers that are given up are not trimmed but used again, the last one first: a trim that
//! survives power cuts costs a page now and then.

use esker_flash::nand::Lpn;
use esker_flash::{Ftl, Geometry, Nand};

use crate::error::{Error, Result};

/// Where the table of the translation layer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableIn {
    /// In the memory of the tree.
    Host,
    /// In the device.
    Device,
}

/// Bytes of a number below `count`, 2 to 4.
#[must_use]
pub const fn number_bytes(count: usize) -> usize {
    match count {
        0..=0x1_0000 => 2,
        0x1_0001..=0x100_0000 => 3,
        _ => 4,
    }
}

/// Memory of a translation layer in bytes, with so many page numbers.
#[must_use]
pub fn layer_bytes(geometry: &Geometry, numbers: usize) -> usize {
    let (pages, blocks) = (geometry.pages() as usize, geometry.blocks() as usize);
    // Erases in 2 bytes; valid pages.
    let block = 2 + if geometry.pages_per_block() < 256 { 1 } else { 2 };
    number_bytes(pages) * numbers + pages.div_ceil(8) + block * blocks
}

/// Pages of a translation layer, each operation after the one before it has ended.
#[derive(Debug)]
pub struct Pages<F> {
    ftl: F,
    table: TableIn,
    unused: Vec<u32>,
    next: u32,
}

impl<F: Ftl> Pages<F> {
    /// All pages of a layer, none in use.
    pub const fn new(ftl: F, table: TableIn) -> Self {
        Self { ftl, table, unused: Vec::new(), next: 0 }
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> usize {
        self.ftl.geometry().page_size() as usize
    }

    /// Takes a page number. Its content is not defined until it is written.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub fn allocate(&mut self) -> Result<u32> {
        if let Some(page) = self.unused.pop() {
            return Ok(page);
        }
        if self.next >= self.ftl.logical_pages() {
            return Err(self.full());
        }
        self.next += 1;
        Ok(self.next - 1)
    }

    /// Gives a page number up.
    pub fn release(&mut self, page: u32) {
        self.unused.push(page);
    }

    /// Refuses when fewer than `pages` numbers are left.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub fn require(&self, pages: usize) -> Result<()> {
        let left = (self.ftl.logical_pages() - self.next) as usize + self.unused.len();
        if left >= pages { Ok(()) } else { Err(self.full()) }
    }

    fn full(&self) -> Error {
        Error::Full(format!("its {} pages are in use", self.ftl.logical_pages()))
    }

    /// Reads a page.
    ///
    /// # Errors
    /// Those of the layer; a page that was never written.
    pub fn read(&mut self, page: u32, data: &mut [u8]) -> Result<()> {
        self.begin();
        if self.ftl.read(Lpn(page), data)? {
            return Ok(());
        }
        Err(Error::Damaged { node: page, what: "its page was never written".to_owned() })
    }

    /// Writes a page.
    ///
    /// # Errors
    /// Those of the layer.
    pub fn write(&mut self, page: u32, data: &[u8]) -> Result<()> {
        self.begin();
        Ok(self.ftl.write(Lpn(page), data)?)
    }

    fn begin(&mut self) {
        let now = self.ftl.end_ns();
        self.ftl.issue_at(now);
    }

    /// Memory of the table that counts for the tree, in bytes.
    pub fn table_bytes(&self) -> usize {
        match self.table {
            TableIn::Host => layer_bytes(self.ftl.geometry(), self.next as usize),
            TableIn::Device => 0,
        }
    }

    /// Bytes of a page number.
    pub fn number_bytes(&self) -> usize {
        number_bytes(self.ftl.logical_pages() as usize)
    }

    /// The numbers in use.
    pub fn used(&self) -> usize {
        self.next as usize - self.unused.len()
    }

    /// The flash below.
    pub fn nand(&self) -> &dyn Nand {
        self.ftl.dyn_nand()
    }

    /// Checks the layer, and that `used` pages are in use.
    ///
    /// # Errors
    /// [`Error::Invariant`].
    pub fn check(&self, used: usize) -> Result<()> {
        self.ftl.check()?;
        if self.used() == used {
            return Ok(());
        }
        crate::error::broken(format!("{} pages are taken and {used} are used", self.used()))
    }
}
