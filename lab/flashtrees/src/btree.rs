//! A B+tree whose nodes are pages, behind a write-back cache.
//!
//! A node has the number of its page in the translation layer, whose table is the node table: 2 to
//! 4 bytes a node, counted against the memory. A changed node is written, out of place, when it
//! leaves the cache; its parent is not. Garbage collection moves pages and changes the table.
//!
//! Nodes have one page. Among sizes of whole pages that is the size with the least time to read by
//! log2 of the fan-out, which the time of a lookup without a cache is proportional to
//! ([`lookup_ns_of`]), for all chips of `esker-flash`.

use esker_flash::{Ftl, Nand, Timing};

use crate::bplus::Backing;
use crate::cache::{Cache, Frame};
use crate::error::Result;
use crate::page::{Change, Layout, Page};
use crate::space::Pages;

/// The time to read a node of `pages` pages by log2 of its fan-out, with nodes 69 % full.
#[must_use]
pub fn lookup_ns_of(timing: &Timing, page_bytes: usize, pages: u32) -> f64 {
    let layout = Layout::of_page(page_bytes * pages as usize);
    let fan_out = layout.capacity(1) as f64 * 0.69;
    (timing.read_ns + timing.transfer_ns_per_page) as f64 * f64::from(pages) / fan_out.log2()
}

/// Nodes as pages.
#[derive(Debug)]
pub struct PageNodes<F> {
    pages: Pages<F>,
    layout: Layout,
}

impl<F: Ftl> PageNodes<F> {
    /// Nodes in pages of their own, with leaves' entries of `leaf_bytes`.
    pub fn new(pages: Pages<F>, leaf_bytes: usize) -> Self {
        let layout = Layout { leaf_bytes, ..Layout::of_page(pages.page_bytes()) };
        Self { pages, layout }
    }
}

fn mark(node: u32, cache: &mut Cache) {
    if let Some(frame) = cache.peek_mut(node) {
        frame.is_dirty = true;
    }
}

impl<F: Ftl> Backing for PageNodes<F> {
    fn name(&self) -> &'static str {
        "btree"
    }

    fn layout(&self) -> Layout {
        self.layout
    }

    fn admit(&self, nodes: usize) -> Result<()> {
        self.pages.require(nodes)
    }

    fn allocate(&mut self) -> Result<u32> {
        self.pages.allocate()
    }

    fn fetch(&mut self, node: u32, _level: u8, page: &mut Page) -> Result<()> {
        self.pages.read(node, page.bytes_mut())
    }

    fn created(&mut self, node: u32, cache: &mut Cache) -> Result<()> {
        mark(node, cache);
        Ok(())
    }

    fn changed(&mut self, node: u32, _change: &Change, cache: &mut Cache) -> Result<()> {
        mark(node, cache);
        Ok(())
    }

    fn evict(&mut self, frame: &mut Frame, _cache: &mut Cache) -> Result<()> {
        if frame.is_dirty {
            self.pages.write(frame.node, frame.page.bytes())?;
        }
        Ok(())
    }

    fn free(&mut self, node: u32) -> Result<()> {
        self.pages.release(node);
        Ok(())
    }

    fn flush(&mut self, _cache: &mut Cache) -> Result<()> {
        Ok(())
    }

    fn table_bytes(&self) -> usize {
        self.pages.table_bytes()
    }

    fn nand(&self) -> &dyn Nand {
        self.pages.nand()
    }

    fn check(&self, nodes: usize) -> Result<()> {
        self.pages.check(nodes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_flash::nand::PRESETS;

    #[test]
    fn one_page_is_the_best_node_on_every_chip() {
        for preset in PRESETS {
            let page = preset.sizes.page_size as usize;
            let of = |pages| lookup_ns_of(&preset.timing, page, pages);
            assert!((2..=16).all(|pages| of(1) < of(pages)), "{}", preset.name);
        }
    }
}
