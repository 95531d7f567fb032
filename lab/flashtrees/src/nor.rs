//! NOR flash, as stores for microcontrollers expect it, over a translation layer for NAND.
//!
//! NOR is written in words of 4 bytes, in any order, and a word that is not erased can get more
//! zeros. NAND is programmed in whole pages, in ascending order and once. So such a store cannot be
//! put on NAND as it is: `sequential-storage` refuses words of more than 32 bytes and clears the
//! header of an item that is removed; `ekv` has words of at most 4 and writes the header of a chunk
//! after its content. Here a word is written into a page in memory, and the page is written out of
//! place by a translation layer.
//!
//! **What it costs, and what it does not.** Pages are cached, write-back, in all the memory that
//! the store does not need for itself: words of the same page are one program, and reads of a
//! cached page are free. That is more than either store promises: a write is lost with the power
//! as long as its page is cached, as it is in the other trees. Erasing trims the pages, which
//! costs a page for each [`TRIMS`] of them or less. The translation table is counted where it is
//! in the host.

use esker_flash::nand::{Lpn, Nand};
use esker_flash::{Error, Ftl, Result};

use crate::cache::{Cache, FRAME_BYTES, Frame};
use crate::page::{Layout, Page};
use crate::space::{TableIn, layer_bytes};

/// Bytes that are erased together.
pub const ERASE_BYTES: usize = 4_096;
/// Bytes of a word.
pub const WORD_BYTES: usize = 4;
/// Trims that are made durable together.
pub const TRIMS: usize = 256;

/// The least number of cached pages.
const FRAMES_MIN: usize = 2;

/// NOR flash over a translation layer.
#[derive(Debug)]
pub struct Nor<F> {
    ftl: F,
    table: TableIn,
    layout: Layout,
    bytes: usize,
    cache: Cache,
    frames: usize,
    trims: usize,
}

impl<F: Ftl> Nor<F> {
    /// Flash of at most `bytes_max` that is erased, with the least cache.
    ///
    /// # Errors
    /// Pages of which there are no whole number in [`ERASE_BYTES`].
    pub fn new(ftl: F, table: TableIn, bytes_max: usize) -> Result<Self> {
        let page_bytes = ftl.geometry().page_size() as usize;
        if !ERASE_BYTES.is_multiple_of(page_bytes) {
            let what = format!("pages of {page_bytes} bytes: use a divisor of {ERASE_BYTES}");
            return Err(Error::Geometry(what));
        }
        let layout = Layout::of_page(page_bytes);
        let bytes = (ftl.logical_pages() as usize * page_bytes).min(bytes_max);
        let bytes = bytes - bytes % ERASE_BYTES;
        let (cache, frames) = (Cache::default(), FRAMES_MIN);
        Ok(Self { ftl, table, layout, bytes, cache, frames, trims: 0 })
    }

    /// With a cache of `bytes`, or the least one if that is larger.
    #[must_use]
    pub fn with_cache(self, bytes: usize) -> Self {
        let frames = (bytes / (self.layout.page_bytes + FRAME_BYTES)).max(FRAMES_MIN);
        Self { frames, ..self }
    }

    /// Memory of the least cache in bytes.
    pub const fn cache_least(&self) -> usize {
        FRAMES_MIN * (self.layout.page_bytes + FRAME_BYTES)
    }

    /// Bytes, in whole erase pages.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Memory of the table, where it is in the host, in bytes.
    pub fn table_bytes(&self) -> usize {
        match self.table {
            TableIn::Host => layer_bytes(self.ftl.geometry(), self.bytes / self.layout.page_bytes),
            TableIn::Device => 0,
        }
    }

    /// Memory of cached pages in bytes.
    pub fn cache_bytes(&self) -> usize {
        self.cache.len() * (self.layout.page_bytes + FRAME_BYTES)
    }

    /// The chip.
    pub fn nand(&self) -> &dyn Nand {
        self.ftl.dyn_nand()
    }

    /// Checks the translation layer.
    ///
    /// # Errors
    /// [`Error::Invariant`].
    pub fn check(&self) -> Result<()> {
        self.ftl.check()
    }

    /// Reads from a byte on. Bytes that are erased read as 0xff.
    ///
    /// # Errors
    /// Those of the layer.
    pub fn read(&mut self, from: usize, data: &mut [u8]) -> Result<()> {
        let mut at = from;
        for part in split(data, from, self.layout.page_bytes) {
            let start = at % self.layout.page_bytes;
            let page = self.page(at / self.layout.page_bytes)?;
            if let Some(bytes) = page.page.bytes().get(start..start + part.len()) {
                part.copy_from_slice(bytes);
            }
            at += part.len();
        }
        Ok(())
    }

    /// Clears the bits that `data` has not, from a byte on.
    ///
    /// # Errors
    /// Those of the layer.
    pub fn write(&mut self, from: usize, data: &[u8]) -> Result<()> {
        let mut at = from;
        let mut rest = data;
        while !rest.is_empty() {
            let start = at % self.layout.page_bytes;
            let len = rest.len().min(self.layout.page_bytes - start);
            let (now, later) = rest.split_at(len);
            let page = self.page(at / self.layout.page_bytes)?;
            page.is_dirty = true;
            let place = page.page.bytes_mut().get_mut(start..start + len).unwrap_or_default();
            place.iter_mut().zip(now).for_each(|(byte, new)| *byte &= new);
            (at, rest) = (at + len, later);
        }
        Ok(())
    }

    /// Erases the pages of `from..to`.
    ///
    /// # Errors
    /// Those of the layer.
    pub fn erase(&mut self, from: usize, to: usize) -> Result<()> {
        for page in from / self.layout.page_bytes..to / self.layout.page_bytes {
            self.cache.remove(page as u32);
            self.begin();
            self.ftl.trim(Lpn(page as u32))?;
            self.trims += 1;
        }
        if self.trims >= TRIMS {
            self.trims = 0;
            self.begin();
            self.ftl.flush()?;
        }
        Ok(())
    }

    /// Writes what is only in memory.
    ///
    /// # Errors
    /// Those of the layer.
    pub fn flush(&mut self) -> Result<()> {
        for node in self.cache.nodes() {
            self.begin();
            if let Some(frame) = self.cache.peek_mut(node).filter(|frame| frame.is_dirty) {
                self.ftl.write(Lpn(node), frame.page.bytes())?;
                frame.is_dirty = false;
            }
        }
        Ok(())
    }

    fn begin(&mut self) {
        let now = self.ftl.end_ns();
        self.ftl.issue_at(now);
    }

    fn page(&mut self, page: usize) -> Result<&mut Frame> {
        let node = u32::try_from(page).unwrap_or(u32::MAX);
        if self.cache.touch(node).is_none() {
            while self.cache.len() >= self.frames {
                let Some(old) = self.cache.remove_oldest() else { break };
                self.begin();
                if old.is_dirty
                    && let Err(error) = self.ftl.write(Lpn(old.node), old.page.bytes())
                {
                    // What was not written stays to be written.
                    self.cache.insert(old);
                    return Err(error);
                }
            }
            let mut image = Page::new(self.layout, node, 0);
            self.begin();
            if !self.ftl.read(Lpn(node), image.bytes_mut())? {
                image.bytes_mut().fill(0xff);
            }
            self.cache.insert(Frame { node, page: image, is_dirty: false, changes: 0 });
        }
        let lost = || Error::Invariant(format!("page {page} is not cached"));
        self.cache.touch(node).ok_or_else(lost)
    }
}

/// The parts of `data` in each page, if it begins at byte `from`.
fn split(data: &mut [u8], from: usize, page_bytes: usize) -> impl Iterator<Item = &mut [u8]> {
    let first = data.len().min(page_bytes - from % page_bytes);
    let (head, tail) = data.split_at_mut(first);
    std::iter::once(head).chain(tail.chunks_mut(page_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_flash::NandSim;
    use esker_flash::ftl::{Options, PageMapped};
    use esker_flash::nand::{Bytes, preset};

    #[test]
    fn words_are_cleared_and_erased_across_pages() {
        let preset = preset("slc512").unwrap();
        let nand = NandSim::<Bytes>::with_clock(preset.geometry(Some(64)).unwrap(), preset.timing);
        let ftl = PageMapped::format(nand, &Options::default()).unwrap();
        let mut nor = Nor::new(ftl, TableIn::Host, 16 << 10).unwrap();
        let data: Vec<u8> = (0..1_500).map(|byte| byte as u8).collect();
        nor.write(300, &data).unwrap();
        nor.write(4_096, &[1; 8]).unwrap();
        let mut found = vec![0; 1_504];
        nor.read(298, &mut found).unwrap();
        assert_eq!(
            (&found[..2], &found[2..1_502], found[1_503]),
            (&[0xff; 2][..], &data[..], 0xff)
        );
        nor.write(300, &[0xf0; 4]).unwrap();
        nor.read(300, &mut found[..4]).unwrap();
        assert_eq!(found[..4], [0, 0, 0, 0]);
        nor.erase(0, ERASE_BYTES).unwrap();
        nor.read(300, &mut found).unwrap();
        assert!(found.iter().all(|byte| *byte == 0xff));
        nor.read(4_096, &mut found[..9]).unwrap();
        assert_eq!(found[..9], [1, 1, 1, 1, 1, 1, 1, 1, 0xff]);
        nor.flush().unwrap();
        nor.check().unwrap();
    }
}
