//! Erase units: the blocks of a chip, or as many pages of a translation layer.
//!
//! A device with a layer inside has no erase that the host could ask for: there a unit is a run of
//! logical pages, and to erase it is to trim them.

use esker_flash::nand::{BlockId, Cause, Lpn, PageKind, Ppn, Spare};
use esker_flash::{Ftl, Nand, Timing};

use crate::error::{Result, broken};

/// Units of pages that are programmed in ascending order and erased together. Each operation
/// begins when the one before it has ended.
pub trait EraseUnits {
    /// The number of units.
    fn units(&self) -> u32;

    /// The pages of each.
    fn pages(&self) -> u32;

    /// Bytes of a page.
    fn page_bytes(&self) -> usize;

    /// Reads a page of a unit.
    ///
    /// # Errors
    /// Those of the flash.
    fn read(&mut self, unit: u32, page: u32, data: &mut [u8], cause: Cause) -> Result<()>;

    /// Programs the next page of a unit, which has this index.
    ///
    /// # Errors
    /// Those of the flash.
    fn program(&mut self, unit: u32, page: u32, data: &[u8], cause: Cause) -> Result<()>;

    /// Erases a unit.
    ///
    /// # Errors
    /// Those of the flash.
    fn erase(&mut self, unit: u32, cause: Cause) -> Result<()>;

    /// The index of the page of a unit that is programmed next.
    fn next_page(&self, unit: u32) -> u32;

    /// How often a unit was erased.
    fn erase_count(&self, unit: u32) -> u32;

    /// The flash below.
    fn nand(&self) -> &dyn Nand;

    /// Memory of the host for each unit, in bytes: its erases, where the host levels wear.
    fn bytes_of_unit(&self) -> usize;
}

/// The times of a chip; without a clock all operations are equally long.
pub(crate) fn timing_of(nand: &dyn Nand) -> Timing {
    let equal = Timing {
        read_ns: 1,
        program_ns: 1,
        erase_ns: 0,
        transfer_ns_per_page: 0,
        copy_back: false,
        endurance: 0,
    };
    nand.clock().map_or(equal, |clock| *clock.timing())
}

/// The blocks of a chip.
#[derive(Debug)]
pub struct RawUnits<N>(pub N);

impl<N: Nand> RawUnits<N> {
    fn begin(&mut self, unit: u32, page: u32) -> Result<Ppn> {
        if page >= self.pages() || unit >= self.units() {
            return broken(format!("block {unit} has no page {page}"));
        }
        let now = self.0.end_ns();
        self.0.issue_at(now);
        Ok(Ppn(self.0.geometry().first_page(BlockId(unit)).0 + page))
    }
}

impl<N: Nand> EraseUnits for RawUnits<N> {
    fn units(&self) -> u32 {
        self.0.geometry().blocks()
    }

    fn pages(&self) -> u32 {
        self.0.geometry().pages_per_block()
    }

    fn page_bytes(&self) -> usize {
        self.0.geometry().page_size() as usize
    }

    fn read(&mut self, unit: u32, page: u32, data: &mut [u8], cause: Cause) -> Result<()> {
        let page = self.begin(unit, page)?;
        self.0.read(page, data, cause)?;
        Ok(())
    }

    fn program(&mut self, unit: u32, page: u32, data: &[u8], cause: Cause) -> Result<()> {
        let page = self.begin(unit, page)?;
        let spare = Spare { lpn: Lpn::NONE, kind: PageKind::Data, seq: 0 };
        Ok(self.0.program(page, data, spare, cause)?)
    }

    fn erase(&mut self, unit: u32, cause: Cause) -> Result<()> {
        self.begin(unit, 0)?;
        Ok(self.0.erase(BlockId(unit), cause)?)
    }

    fn next_page(&self, unit: u32) -> u32 {
        self.0.next_page(BlockId(unit))
    }

    fn erase_count(&self, unit: u32) -> u32 {
        self.0.erase_count(BlockId(unit))
    }

    fn nand(&self) -> &dyn Nand {
        &self.0
    }

    fn bytes_of_unit(&self) -> usize {
        4
    }
}

/// Runs of pages of a layer in the device. Erases are not counted, since the layer levels wear.
#[derive(Debug)]
pub struct LayerUnits<F> {
    ftl: F,
    pages: u32,
    /// The next page of each unit.
    next: Vec<u32>,
}

impl<F: Ftl> LayerUnits<F> {
    /// All pages of a layer, in units of `pages`.
    pub fn new(ftl: F, pages: u32) -> Self {
        let pages = pages.max(2);
        let next = vec![0; (ftl.logical_pages() / pages) as usize];
        Self { ftl, pages, next }
    }

    fn begin(&mut self, unit: u32, page: u32) -> Result<Lpn> {
        if page >= self.pages || unit >= self.units() {
            return broken(format!("unit {unit} has no page {page}"));
        }
        let now = self.ftl.end_ns();
        self.ftl.issue_at(now);
        Ok(Lpn(unit * self.pages + page))
    }

    fn set_next(&mut self, unit: u32, page: u32) {
        if let Some(next) = self.next.get_mut(unit as usize) {
            *next = page;
        }
    }
}

impl<F: Ftl> EraseUnits for LayerUnits<F> {
    fn units(&self) -> u32 {
        self.next.len() as u32
    }

    fn pages(&self) -> u32 {
        self.pages
    }

    fn page_bytes(&self) -> usize {
        self.ftl.geometry().page_size() as usize
    }

    fn read(&mut self, unit: u32, page: u32, data: &mut [u8], _cause: Cause) -> Result<()> {
        let page = self.begin(unit, page)?;
        if self.ftl.read(page, data)? {
            return Ok(());
        }
        broken(format!("{page} of a unit was never written"))
    }

    fn program(&mut self, unit: u32, page: u32, data: &[u8], _cause: Cause) -> Result<()> {
        if page != self.next_page(unit) {
            return broken(format!("page {page} of unit {unit} is not its next one"));
        }
        let lpn = self.begin(unit, page)?;
        self.ftl.write(lpn, data)?;
        self.set_next(unit, page + 1);
        Ok(())
    }

    fn erase(&mut self, unit: u32, _cause: Cause) -> Result<()> {
        for page in 0..self.next_page(unit) {
            let lpn = self.begin(unit, page)?;
            self.ftl.trim(lpn)?;
        }
        self.set_next(unit, 0);
        Ok(())
    }

    fn next_page(&self, unit: u32) -> u32 {
        self.next.get(unit as usize).copied().unwrap_or_default()
    }

    fn erase_count(&self, _unit: u32) -> u32 {
        0
    }

    fn nand(&self) -> &dyn Nand {
        self.ftl.dyn_nand()
    }

    fn bytes_of_unit(&self) -> usize {
        1
    }
}
