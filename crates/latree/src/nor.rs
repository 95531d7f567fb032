//! The adapter of NOR flash ([`embedded_storage::nor_flash::NorFlash`]) to [`Chip`].
//!
//! A region of the flash is divided into pages of a size that the user chooses and blocks of one or
//! more erase units. A page is written once, from its start, by one call of the driver, and without
//! the erased bytes at its end.
//!
//! N1: a page all of whose bytes are 0xFF is erased. The tree's pages begin with a header that has
//! other bytes, so none of them is taken for erased; users of [`NorChip`] as a chip must not
//! program a page of 0xFF alone. N2: a write that was cut leaves a page that is erased or whose
//! checksum is wrong, and the tree programs no block that was open at a cut before it is erased.

use alloc::format;

use embedded_storage::nor_flash::{NorFlash, NorFlashError, NorFlashErrorKind};

use crate::chip::{BlockNo, Chip, Costs, Fault, PageNo, Read};
use crate::error::{Error, Result};

/// Where the tree is on the flash, and how that is divided. All sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NorRegion {
    /// Where it begins: a multiple of `ERASE_SIZE`.
    pub offset: u32,
    /// Its length: a multiple of the blocks; at least 16 of them.
    pub len: u32,
    /// A page: 256 to 4,096, a multiple of `WRITE_SIZE` and of `READ_SIZE`. A quarter of it is the
    /// greatest entry.
    pub page_bytes: u32,
    /// A block: a multiple of `ERASE_SIZE`, with 2 to 4,096 whole pages.
    pub block_bytes: u32,
}

/// A region of NOR flash as a chip. It has no memory of its own.
#[derive(Clone, Debug)]
pub struct NorChip<F> {
    flash: F,
    region: NorRegion,
    costs: Costs,
}

impl<F: NorFlash> NorChip<F> {
    /// A region of a flash, whose content stays as it is.
    ///
    /// # Errors
    /// [`Error::Options`] for a region that is not on the flash or cannot be divided so.
    pub fn new(flash: F, region: NorRegion) -> Result<Self> {
        check::<F>(&region, flash.capacity())?;
        let costs = spi_costs(region.page_bytes);
        Ok(Self { flash, region, costs })
    }

    /// With the times of this flash instead of those of one on SPI at 50 MHz that programs 256
    /// bytes in 0.7 ms. They decide when buffers are emptied, and nothing else.
    #[must_use]
    pub fn with_costs(self, costs: Costs) -> Self {
        Self { costs, ..self }
    }

    /// The flash.
    pub const fn flash(&self) -> &F {
        &self.flash
    }

    /// The flash, for what does not concern the region.
    pub const fn flash_mut(&mut self) -> &mut F {
        &mut self.flash
    }

    /// Gives the flash back.
    pub fn into_flash(self) -> F {
        self.flash
    }

    /// Where a page begins on the flash.
    fn offset(&self, page: PageNo) -> core::result::Result<u32, Fault> {
        let at = u64::from(page.0) * u64::from(self.region.page_bytes);
        if at >= u64::from(self.region.len) {
            return Err(Fault::Other(format!("the region has no page {}", page.0)));
        }
        // Less than the length, so the sum is on the flash.
        Ok(self.region.offset + at as u32)
    }

    fn check_len(&self, bytes: usize) -> core::result::Result<(), Fault> {
        let expected = self.region.page_bytes;
        if bytes == expected as usize {
            return Ok(());
        }
        Err(Fault::Other(format!("{bytes} bytes for a page of {expected}")))
    }

    /// The fault for an error of a program or an erase at `at`. Where the flash can still be read,
    /// the block has failed; otherwise all of it.
    fn failed(&mut self, what: &str, at: u32, kind: NorFlashErrorKind) -> Fault {
        let mut word = alloc::vec![0; F::READ_SIZE.max(1)];
        let is_block = kind == NorFlashErrorKind::Other && self.flash.read(at, &mut word).is_ok();
        if is_block { Fault::Worn } else { fault(what, at, kind) }
    }
}

impl<F: NorFlash> Chip for NorChip<F> {
    fn page_bytes(&self) -> usize {
        self.region.page_bytes as usize
    }

    fn pages_per_block(&self) -> u32 {
        self.region.block_bytes / self.region.page_bytes
    }

    fn blocks(&self) -> u32 {
        self.region.len / self.region.block_bytes
    }

    fn costs(&self) -> Costs {
        self.costs
    }

    fn read(&mut self, page: PageNo, data: &mut [u8]) -> core::result::Result<Read, Fault> {
        self.check_len(data.len())?;
        let at = self.offset(page)?;
        self.flash.read(at, data).map_err(|error| fault("read", at, error.kind()))?;
        let is_erased = data.iter().all(|byte| *byte == 0xFF);
        Ok(if is_erased { Read::Erased } else { Read::Data })
    }

    fn program(&mut self, page: PageNo, data: &[u8]) -> core::result::Result<(), Fault> {
        self.check_len(data.len())?;
        let at = self.offset(page)?;
        let written = data.get(..written_bytes(data, F::WRITE_SIZE)).unwrap_or(data);
        match self.flash.write(at, written) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.failed("write", at, error.kind())),
        }
    }

    fn erase(&mut self, block: BlockNo) -> core::result::Result<(), Fault> {
        let at = self.offset(PageNo(block.0.saturating_mul(self.pages_per_block())))?;
        match self.flash.erase(at, at + self.region.block_bytes) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.failed("erase", at, error.kind())),
        }
    }
}

/// The length of a page without the bytes at its end that are erased, in whole words.
fn written_bytes(data: &[u8], word: usize) -> usize {
    let last = data.iter().rposition(|byte| *byte != 0xFF);
    let used = last.map_or(0, |last| last + 1);
    used.next_multiple_of(word.max(1)).min(data.len())
}

fn spi_costs(page_bytes: u32) -> Costs {
    let page = u64::from(page_bytes);
    Costs { read_ns: page * 160, program_ns: page * 160 + page * 700_000 / 256 }
}

fn check<F: NorFlash>(region: &NorRegion, capacity: usize) -> Result<()> {
    let NorRegion { offset, len, page_bytes, block_bytes } = *region;
    let (erase, write, read) = (F::ERASE_SIZE as u64, F::WRITE_SIZE as u64, F::READ_SIZE as u64);
    let is_whole = |bytes: u32, unit: u64| unit > 0 && u64::from(bytes).is_multiple_of(unit);
    let in_block = block_bytes.checked_div(page_bytes).unwrap_or(0);
    let is_possible = (256..=4096).contains(&page_bytes)
        && is_whole(page_bytes, write)
        && is_whole(page_bytes, read)
        && is_whole(block_bytes, erase)
        && is_whole(block_bytes, u64::from(page_bytes))
        && (2..=4096).contains(&in_block)
        && is_whole(offset, erase)
        && is_whole(len, u64::from(block_bytes))
        && u64::from(offset) + u64::from(len) <= capacity.min(u32::MAX as usize) as u64;
    if is_possible {
        return Ok(());
    }
    Err(Error::Options(format!(
        "a region of {len} bytes from byte {offset} with pages of {page_bytes} and blocks of \
         {block_bytes}: on a flash of {capacity} bytes that is read, written and erased in units \
         of {read}, {write} and {erase}, use pages of 256 to 4096 bytes in multiples of the first \
         two, blocks of 2 to 4096 pages in multiples of the third, and a region of whole blocks"
    )))
}

fn fault(what: &str, at: u32, kind: NorFlashErrorKind) -> Fault {
    Fault::Other(format!("the flash cannot {what} at byte {at}: {kind}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erased_bytes_at_the_end_are_not_written() {
        let mut page = [0xFF; 256];
        assert_eq!(written_bytes(&page, 4), 0);
        page[5] = 0;
        assert_eq!(written_bytes(&page, 4), 8);
        assert_eq!(written_bytes(&page, 1), 6);
        assert_eq!(written_bytes(&page, 256), 256);
        page[255] = 1;
        assert_eq!(written_bytes(&page, 8), 256);
    }
}
