//! Nodes in fixed places, changed by reading, erasing and programming their block: how firmware
//! that treats flash as a disk does it. A power cut in between loses the block.
//!
//! Node n is page n mod p of block n / p. A node that leaves the cache after a change is programmed
//! where its page is the next one of the block; otherwise the whole block is read into memory,
//! erased and programmed, with all changed nodes of the block that are cached. The buffer of a
//! block is counted. There is no wear levelling.

use esker_flash::Nand;
use esker_flash::nand::Cause;

use crate::bplus::Backing;
use crate::cache::{Cache, Frame};
use crate::erase_units::EraseUnits;
use crate::error::{Error, Result, broken};
use crate::page::{Change, Layout, Page};

/// Nodes in fixed places.
#[derive(Debug)]
pub struct InPlace<U> {
    units: U,
    layout: Layout,
    unused: Vec<u32>,
    next: u32,
    block: Vec<u8>,
}

impl<U: EraseUnits> InPlace<U> {
    /// Nodes in erase units that are erased.
    pub fn new(units: U) -> Self {
        let layout = Layout::of_page(units.page_bytes());
        let block = vec![0; layout.page_bytes * units.pages() as usize];
        Self { units, layout, unused: Vec::new(), next: 0, block }
    }

    fn place_of(&self, node: u32) -> (u32, u32) {
        let pages = self.units.pages();
        (node / pages, node % pages)
    }

    /// Writes a block anew, with a node that is not cached and all changed ones that are.
    fn rewrite(&mut self, frame: &Frame, cache: &mut Cache) -> Result<()> {
        let (block, place) = self.place_of(frame.node);
        let written = self.units.next_page(block);
        let (first, bytes) = (frame.node - place, self.layout.page_bytes);
        let mut end = written.max(place + 1);
        for (page, data) in (0..written).zip(self.block.chunks_exact_mut(bytes)) {
            self.units.read(block, page, data, Cause::Gc)?;
        }
        let pages = self.units.pages();
        for (page, data) in (0..pages).zip(self.block.chunks_exact_mut(bytes)) {
            if page == place {
                data.copy_from_slice(frame.page.bytes());
            } else if let Some(other) = cache.peek_mut(first + page).filter(|one| one.is_dirty) {
                data.copy_from_slice(other.page.bytes());
                other.is_dirty = false;
                end = end.max(page + 1);
            } else if page >= written {
                data.fill(0xff);
            }
        }
        if written > 0 {
            self.units.erase(block, Cause::Gc)?;
        }
        for (page, data) in (0..end).zip(self.block.chunks_exact(bytes)) {
            let cause = if page == place { Cause::Host } else { Cause::Gc };
            self.units.program(block, page, data, cause)?;
        }
        Ok(())
    }
}

impl<U: EraseUnits> Backing for InPlace<U> {
    fn name(&self) -> &'static str {
        "inplace"
    }

    fn layout(&self) -> Layout {
        self.layout
    }

    fn admit(&self, nodes: usize) -> Result<()> {
        let all = self.units.units() * self.units.pages();
        let left = (all - self.next) as usize + self.unused.len();
        if left >= nodes {
            Ok(())
        } else {
            Err(Error::Full(format!("its {} blocks are in use", self.units.units())))
        }
    }

    fn allocate(&mut self) -> Result<u32> {
        if let Some(node) = self.unused.pop() {
            return Ok(node);
        }
        self.admit(1)?;
        self.next += 1;
        Ok(self.next - 1)
    }

    fn fetch(&mut self, node: u32, _level: u8, page: &mut Page) -> Result<()> {
        let (block, place) = self.place_of(node);
        self.units.read(block, place, page.bytes_mut(), Cause::Host)
    }

    fn created(&mut self, node: u32, cache: &mut Cache) -> Result<()> {
        if let Some(frame) = cache.peek_mut(node) {
            frame.is_dirty = true;
        }
        Ok(())
    }

    fn changed(&mut self, node: u32, _change: &Change, cache: &mut Cache) -> Result<()> {
        self.created(node, cache)
    }

    fn evict(&mut self, frame: &mut Frame, cache: &mut Cache) -> Result<()> {
        if !frame.is_dirty {
            return Ok(());
        }
        let (block, place) = self.place_of(frame.node);
        if self.units.next_page(block) == place {
            return self.units.program(block, place, frame.page.bytes(), Cause::Host);
        }
        self.rewrite(frame, cache)
    }

    fn free(&mut self, node: u32) -> Result<()> {
        self.unused.push(node);
        Ok(())
    }

    fn flush(&mut self, _cache: &mut Cache) -> Result<()> {
        Ok(())
    }

    fn table_bytes(&self) -> usize {
        self.block.len() + 4 * self.unused.len()
    }

    fn nand(&self) -> &dyn Nand {
        self.units.nand()
    }

    fn check(&self, nodes: usize) -> Result<()> {
        let found = self.next as usize - self.unused.len();
        if found == nodes {
            return Ok(());
        }
        broken(format!("{found} nodes are taken, {nodes} are in the tree"))
    }
}
