//! FlashDB: nodes as pages or as logs, each node as its history suggests (Nath, Kansal, IPSN 2007).
//!
//! A node in *disk mode* is a page, written out of place when it leaves the cache after a change. A
//! change of a node in *log mode* is an entry of 24 bytes in the log buffer, which has one page;
//! log pages have entries of many nodes, and reading such a node is reading its page and then the
//! log pages of its list. A list that becomes longer than 8 is semi-compacted: the node's page is
//! written.
//!
//! **The rule.** Every operation costs what its mode costs, and would have cost something else in
//! the other one. The sum of the differences, at least 0, is compared with the cost of changing
//! modes and back: when it reaches that, the node changes its mode and the sum is 0 (a task system
//! of two states, for which the paper has it 3-competitive). Costs are those of the chip, and are
//! counted where there are any: a node that is read from the cache costs nothing in either mode,
//! and several changes until it leaves the cache are one write in disk mode.
//!
//! Not in the paper, in its favour: the write-back cache; a node that changes to log mode keeps its
//! page, so that this costs nothing. Memory: the table of pages, and for each node 2 bytes of mode
//! and sum, beside the lists. Lists have a quarter of the memory: when it is used, nodes that are
//! changed leave log mode.

use esker_flash::{Ftl, Nand, Timing};

use crate::bplus::Backing;
use crate::cache::{Cache, Frame};
use crate::error::{Result, broken};
use crate::lists::Lists;
use crate::page::{Change, Layout, Page};
use crate::space::Pages;
use crate::units::{self, UNIT_BYTES, Unit, units_of_page};

/// The most log pages of a node.
const LIST_MAX: usize = 8;

/// How a node is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// As a page.
    Disk,
    /// As a page and changes of it.
    Log,
}

/// 15 bits of sum and one of mode.
#[derive(Clone, Copy, Debug)]
struct State {
    mode: Mode,
    /// What the other mode would have saved; at most [`SUM_MAX`].
    sum: u16,
}

/// Bytes of a state in memory.
const STATE_BYTES: usize = 2;
const SUM_MAX: u32 = 0x7fff;
/// A write, in the unit of costs.
const WRITE: u32 = 1_000;

/// Times of the chip, in thousandths of a write.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    read: u32,
    /// A change in log mode: its share of a log page and of a semi-compaction.
    entry: u32,
}

impl Costs {
    /// Of pages of `page_bytes`, `pages_per_block` of them in a block: a write has its share of
    /// the erase.
    #[must_use]
    pub fn new(timing: &Timing, page_bytes: usize, pages_per_block: u32) -> Self {
        let transfer = timing.transfer_ns_per_page;
        let erase = timing.erase_ns / u64::from(pages_per_block.max(1));
        let write_ns = (timing.program_ns + transfer + erase).max(1);
        let read = (timing.read_ns + transfer) * u64::from(WRITE) / write_ns;
        let entries = units_of_page(page_bytes, UNIT_BYTES).max(1) as u32;
        let read = u32::try_from(read).unwrap_or(SUM_MAX).min(SUM_MAX);
        Self { read, entry: WRITE / entries + WRITE / LIST_MAX as u32 }
    }

    /// What a change of modes and back costs: reading the log and writing the page, and nothing.
    const fn both_changes(&self, pages: usize) -> u32 {
        self.read * pages as u32 + WRITE
    }
}

impl State {
    const NEW: Self = Self { mode: Mode::Disk, sum: 0 };

    /// Counts an operation; answers whether the mode changes.
    fn count(&mut self, cost: u32, other: u32, both_changes: u32) -> bool {
        let sum = u32::from(self.sum).saturating_add(cost).saturating_sub(other).min(SUM_MAX);
        let changes = sum >= both_changes.min(SUM_MAX);
        self.sum = if changes { 0 } else { sum as u16 };
        changes
    }
}

/// Nodes in two modes.
#[derive(Debug)]
pub struct FlashDb<F> {
    pages: Pages<F>,
    layout: Layout,
    costs: Costs,
    lists: Lists,
    lists_bytes_max: usize,
    states: Vec<State>,
    buffer: Vec<Unit>,
    nodes: usize,
    page: Vec<u8>,
    /// Changes of modes.
    switches: u64,
}

impl<F: Ftl> FlashDb<F> {
    /// Nodes over the pages of a translation layer, in a memory of `budget` bytes, of which the
    /// lists get a quarter.
    pub fn new(pages: Pages<F>, costs: Costs, budget: usize) -> Self {
        let page = vec![0; pages.page_bytes()];
        Self {
            layout: Layout::of_page(page.len()),
            lists: Lists::new(pages.number_bytes(), units_of_page(page.len(), UNIT_BYTES)),
            pages,
            costs,
            lists_bytes_max: budget / 4,
            states: Vec::new(),
            buffer: Vec::new(),
            nodes: 0,
            page,
            switches: 0,
        }
    }

    /// Changes of modes so far.
    pub const fn switches(&self) -> u64 {
        self.switches
    }

    fn state(&mut self, node: u32) -> &mut State {
        let at = node as usize;
        if self.states.len() <= at {
            self.states.resize(at + 1, State::NEW);
        }
        &mut self.states[at]
    }

    /// Writes the page of a node, which replaces its log.
    fn write(&mut self, node: u32, page: &Page) -> Result<()> {
        self.pages.write(node, page.bytes())?;
        self.forget_log(node);
        Ok(())
    }

    fn forget_log(&mut self, node: u32) {
        self.buffer.retain(|unit| unit.node != node);
        self.lists.clear(node).into_iter().for_each(|page| self.pages.release(page));
    }

    fn log(&mut self, unit: Unit, cache: &Cache) -> Result<()> {
        self.buffer.push(unit);
        if self.buffer.len() < units_of_page(self.layout.page_bytes, UNIT_BYTES) {
            return Ok(());
        }
        self.write_log(cache)
    }

    /// Writes the log buffer, and semi-compacts the nodes whose lists became too long.
    fn write_log(&mut self, cache: &Cache) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        units::encode(self.buffer.iter(), UNIT_BYTES, &mut self.page);
        let page = self.pages.allocate()?;
        self.pages.write(page, &self.page)?;
        let mut nodes: Vec<u32> = self.buffer.drain(..).map(|unit| unit.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.iter().for_each(|node| self.lists.push(*node, page));
        for node in nodes {
            if self.lists.of(node).len() <= LIST_MAX {
                continue;
            }
            match cache.peek(node) {
                Some(frame) => self.write(node, &frame.page)?,
                None => {
                    // Its level is in the page that is read.
                    let mut page = Page::new(self.layout, node, 0);
                    self.replay(node, &mut page)?;
                    self.write(node, &page)?;
                }
            }
        }
        Ok(())
    }

    fn replay(&mut self, node: u32, page: &mut Page) -> Result<()> {
        self.pages.read(node, page.bytes_mut())?;
        for at in self.lists.of(node) {
            self.pages.read(*at, &mut self.page)?;
            units::decode(&self.page, UNIT_BYTES, node, |change| page.apply(change))?;
        }
        self.buffer
            .iter()
            .filter(|unit| unit.node == node)
            .try_for_each(|unit| page.apply(&unit.change))
    }
}

impl<F: Ftl> Backing for FlashDb<F> {
    fn name(&self) -> &'static str {
        "flashdb"
    }

    fn layout(&self) -> Layout {
        self.layout
    }

    fn admit(&self, nodes: usize) -> Result<()> {
        // A change in log mode writes a log page at most, and an operation has few more changes
        // than a node has entries. Removals may use what is kept from puts.
        let entries = self.layout.capacity(1) + 8;
        let log = entries.div_ceil(units_of_page(self.layout.page_bytes, UNIT_BYTES)) + 1;
        self.pages.require(if nodes > 0 { nodes + 16 * log } else { log })
    }

    fn allocate(&mut self) -> Result<u32> {
        let node = self.pages.allocate()?;
        *self.state(node) = State::NEW;
        self.nodes += 1;
        Ok(node)
    }

    fn fetch(&mut self, node: u32, _level: u8, page: &mut Page) -> Result<()> {
        self.replay(node, page)?;
        let (costs, logs) = (self.costs, self.lists.of(node).len());
        let disk = costs.read;
        let state = self.state(node);
        // A node that logs its changes has half of the longest list, in the mean.
        let log = disk * (1 + if state.mode == Mode::Log { logs } else { LIST_MAX / 2 }) as u32;
        let (cost, other) = if state.mode == Mode::Log { (log, disk) } else { (disk, log) };
        if state.count(cost, other, costs.both_changes(logs)) {
            // The node is written when it leaves the cache after its next change.
            state.mode = if state.mode == Mode::Log { Mode::Disk } else { Mode::Log };
            self.switches += 1;
        }
        Ok(())
    }

    fn created(&mut self, node: u32, cache: &mut Cache) -> Result<()> {
        if let Some(frame) = cache.peek_mut(node) {
            frame.is_dirty = true;
        }
        Ok(())
    }

    fn changed(&mut self, node: u32, change: &Change, cache: &mut Cache) -> Result<()> {
        let Some(frame) = cache.peek_mut(node) else { return broken("a node is not cached") };
        // What is not on flash yet is written as a page in any case.
        if frame.is_dirty || self.state(node).mode == Mode::Disk {
            frame.is_dirty = true;
            return Ok(());
        }
        let (costs, logs) = (self.costs, self.lists.of(node).len());
        // The first change since the node was cached is the one that would make it be written.
        let disk = if frame.changes <= 1 { WRITE } else { 0 };
        let is_due = self.state(node).count(costs.entry, disk, costs.both_changes(logs));
        if is_due || self.lists.bytes() > self.lists_bytes_max {
            self.state(node).mode = Mode::Disk;
            self.switches += 1;
            frame.is_dirty = true;
            return Ok(());
        }
        self.log(Unit { node, change: *change }, cache)
    }

    fn evict(&mut self, frame: &mut Frame, _cache: &mut Cache) -> Result<()> {
        if !frame.is_dirty {
            return Ok(());
        }
        self.write(frame.node, &frame.page)?;
        let costs = self.costs;
        let log = costs.entry * frame.changes.min(SUM_MAX);
        let state = self.state(frame.node);
        if state.mode == Mode::Disk && state.count(WRITE, log, costs.both_changes(0)) {
            state.mode = Mode::Log;
            self.switches += 1;
        }
        Ok(())
    }

    fn free(&mut self, node: u32) -> Result<()> {
        self.forget_log(node);
        self.pages.release(node);
        self.nodes -= 1;
        Ok(())
    }

    fn flush(&mut self, cache: &mut Cache) -> Result<()> {
        self.write_log(cache)
    }

    fn table_bytes(&self) -> usize {
        let states = STATE_BYTES * self.states.len();
        self.pages.table_bytes() + self.lists.bytes() + states + self.layout.page_bytes
    }

    fn nand(&self) -> &dyn Nand {
        self.pages.nand()
    }

    fn check(&self, nodes: usize) -> Result<()> {
        if self.nodes != nodes {
            return broken(format!("{} nodes are taken, {nodes} are in the tree", self.nodes));
        }
        self.lists.check()?;
        self.pages.check(self.nodes + self.lists.pages())
    }
}
