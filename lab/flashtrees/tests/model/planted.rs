//! Bugs on purpose, which the histories must find.

use std::panic::{AssertUnwindSafe, catch_unwind};

use esker_flash::Nand;
use esker_flash::ftl::PageMapped;
use esker_flashtrees::btree::PageNodes;
use esker_flashtrees::cache::{Cache, Frame};
use esker_flashtrees::page::{Change, LEAF_BYTES, Layout, Page};
use esker_flashtrees::space::{Pages, TableIn};
use esker_flashtrees::{Backing, FlashTree, Result, Tree};

use crate::chip;
use crate::histories::histories;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Bug {
    /// A changed node that leaves the cache is not written, once in a while.
    LosesAWrite,
    /// A node that was merged away keeps its page.
    KeepsAPage,
    /// A node that is read lacks its last entry, once in a while.
    ReadsAnOldImage,
}

/// The nodes of a B+tree, with a bug.
struct Planted<B> {
    nodes: B,
    bug: Bug,
    count: u64,
}

impl<B> Planted<B> {
    fn is_due(&mut self, bug: Bug) -> bool {
        self.count += u64::from(self.bug == bug);
        self.bug == bug && self.count.is_multiple_of(200)
    }
}

impl<B: Backing> Backing for Planted<B> {
    fn name(&self) -> &'static str {
        self.nodes.name()
    }

    fn layout(&self) -> Layout {
        self.nodes.layout()
    }

    fn admit(&self, nodes: usize) -> Result<()> {
        self.nodes.admit(nodes)
    }

    fn allocate(&mut self) -> Result<u32> {
        self.nodes.allocate()
    }

    fn fetch(&mut self, node: u32, level: u8, page: &mut Page) -> Result<()> {
        self.nodes.fetch(node, level, page)?;
        if self.is_due(Bug::ReadsAnOldImage) && !page.is_empty() {
            let key = page.key(page.len() - 1);
            page.apply(&Change::Remove { key })?;
        }
        Ok(())
    }

    fn created(&mut self, node: u32, cache: &mut Cache) -> Result<()> {
        self.nodes.created(node, cache)
    }

    fn changed(&mut self, node: u32, change: &Change, cache: &mut Cache) -> Result<()> {
        self.nodes.changed(node, change, cache)
    }

    fn evict(&mut self, frame: &mut Frame, cache: &mut Cache) -> Result<()> {
        if frame.is_dirty && self.is_due(Bug::LosesAWrite) {
            return Ok(());
        }
        self.nodes.evict(frame, cache)
    }

    fn free(&mut self, node: u32) -> Result<()> {
        if self.bug == Bug::KeepsAPage { Ok(()) } else { self.nodes.free(node) }
    }

    fn flush(&mut self, cache: &mut Cache) -> Result<()> {
        self.nodes.flush(cache)
    }

    fn table_bytes(&self) -> usize {
        self.nodes.table_bytes()
    }

    fn nand(&self) -> &dyn Nand {
        self.nodes.nand()
    }

    fn check(&self, nodes: usize) -> Result<()> {
        self.nodes.check(nodes)
    }
}

fn survives(bug: Bug) -> bool {
    let make = |seed| -> Result<Box<dyn FlashTree>> {
        let ftl = PageMapped::format(chip::nand(seed), &chip::options())?;
        let pages = Pages::new(ftl, TableIn::Host);
        let nodes = PageNodes::new(pages, LEAF_BYTES);
        let memory = [12, 12, 24][seed as usize] << 10;
        Ok(Box::new(Tree::new(Planted { nodes, bug, count: 0 }, memory)?))
    };
    catch_unwind(AssertUnwindSafe(|| histories(make, 45_000))).is_ok()
}

#[test]
fn every_planted_bug_is_found() {
    for bug in [Bug::LosesAWrite, Bug::KeepsAPage, Bug::ReadsAnOldImage] {
        assert!(!survives(bug), "{bug:?}");
    }
}
