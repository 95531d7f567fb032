//! In-page logging: changes of a node beside it, in the same erase unit (Lee, Moon, SIGMOD 2007).
//!
//! An erase unit is a block, with places for data pages and a log region of half of its pages, the
//! largest share of the paper's sweep: changes are far smaller than nodes. A change is made in the
//! cached image of a node and appended to its *log sector* in memory. When that is full, or when
//! the node leaves the cache, it is programmed into the log region; the data page is not written.
//! To read a node is to read its data page and its log sectors. When the unit has no page left it
//! is *merged*: the newest images of its nodes are programmed into a free block, and it is erased.
//!
//! **What differs.** The pages of a block are programmed in ascending order, so data pages and log
//! sectors share them as they come; a directory in memory, a byte a page, says which is which. The
//! paper programs a log sector as a part of a page. This flash programs a page once, so that a log
//! sector costs a whole program and a whole page of the region. With partial programs of 1/16 of a
//! page, as in the paper, a program would cost about as much, and a merge would come later.
//! A node whose data page is not yet on flash is programmed as one when it leaves the cache.

use std::collections::BTreeMap;

use esker_flash::Nand;
use esker_flash::nand::Cause;

use crate::blocks::Blocks;
use crate::bplus::Backing;
use crate::cache::{Cache, Frame};
use crate::erase_units::EraseUnits;
use crate::error::{Result, broken};
use crate::page::{Change, Layout, Page};
use crate::units::{self, UNIT_BYTES, Unit, units_of_page};

/// Memory of a change that is not on flash, in bytes: the operation, key and value.
const PENDING_BYTES: usize = 20;

/// What a page of a unit holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// The image of the node in this place.
    Data(u32),
    /// Changes of the node in this place.
    Log(u32),
    /// Of a node that is not there any more.
    Stale,
}

#[derive(Debug)]
struct EraseUnit {
    block: u32,
    /// The pages that are programmed.
    uses: Vec<Use>,
}

/// Nodes in erase units.
#[derive(Debug)]
pub struct Ipl<U> {
    blocks: Blocks<U>,
    layout: Layout,
    /// The nodes of a unit: node n is in place n mod `places` of unit n / `places`.
    places: u32,
    units: Vec<EraseUnit>,
    /// The log sectors in memory.
    pending: BTreeMap<u32, Vec<Change>>,
    pending_len: usize,
    unused: Vec<u32>,
    next: u32,
    sector: Vec<u8>,
    /// Merges so far.
    merges: u64,
}

impl<U: EraseUnits> Ipl<U> {
    /// Nodes in erase units, whose contents are lost.
    pub fn new(units: U) -> Self {
        let (layout, pages) = (Layout::of_page(units.page_bytes()), units.pages());
        Self {
            blocks: Blocks::new(units),
            layout,
            places: pages / 2,
            units: Vec::new(),
            pending: BTreeMap::new(),
            pending_len: 0,
            unused: Vec::new(),
            next: 0,
            sector: vec![0; layout.page_bytes],
            merges: 0,
        }
    }

    /// Merges of units so far.
    pub const fn merges(&self) -> u64 {
        self.merges
    }

    const fn place_of(&self, node: u32) -> (usize, u32) {
        ((node / self.places) as usize, node % self.places)
    }

    fn unit(&self, at: usize) -> Result<&EraseUnit> {
        self.units.get(at).map_or_else(|| broken(format!("there is no unit {at}")), Ok)
    }

    fn take_pending(&mut self, node: u32) -> Vec<Change> {
        let changes = self.pending.remove(&node).unwrap_or_default();
        self.pending_len -= changes.len();
        changes
    }

    /// Whether the data page of a node is on flash.
    fn has_page(&self, node: u32) -> bool {
        let (at, place) = self.place_of(node);
        self.units.get(at).is_some_and(|unit| unit.uses.contains(&Use::Data(place)))
    }

    /// Programs the next page of a unit.
    fn append(&mut self, at: usize, kind: Use, cause: Cause, image: Option<&Page>) -> Result<()> {
        let unit = self.unit(at)?;
        let (block, next) = (unit.block, unit.uses.len() as u32);
        let data = image.map_or(self.sector.as_slice(), Page::bytes);
        self.blocks.units_mut().program(block, next, data, cause)?;
        if let Some(unit) = self.units.get_mut(at) {
            unit.uses.push(kind);
        }
        Ok(())
    }

    /// Writes the log sector of a node, or its first data page.
    fn write(&mut self, node: u32, image: &Page, cache: &Cache) -> Result<()> {
        let (at, place) = self.place_of(node);
        if self.unit(at)?.uses.len() as u32 == self.blocks.units().pages() {
            // The merge writes the image.
            return self.merge(at, Some((node, image)), cache);
        }
        let changes = self.take_pending(node);
        if !self.has_page(node) {
            return self.append(at, Use::Data(place), Cause::Host, Some(image));
        }
        let log: Vec<Unit> = changes.into_iter().map(|change| Unit { node, change }).collect();
        units::encode(log.iter(), UNIT_BYTES, &mut self.sector);
        self.append(at, Use::Log(place), Cause::Host, None)
    }

    /// Moves the newest images of a unit's nodes to a free block. `given` is one that is not in the
    /// cache.
    fn merge(&mut self, at: usize, given: Option<(u32, &Page)>, cache: &Cache) -> Result<()> {
        let new = self.blocks.take(Cause::Gc)?;
        let first = at as u32 * self.places;
        let mut uses = Vec::new();
        for place in 0..self.places {
            let node = first + place;
            let given = given.filter(|(other, _)| *other == node).map(|(_, page)| page);
            let known = given.or_else(|| cache.peek(node).map(|frame| &frame.page));
            let next = uses.len() as u32;
            if given.is_none() && !self.has_page(node) {
                // Not a node, or one that never left the cache.
                continue;
            }
            if let Some(page) = known {
                self.take_pending(node);
                self.blocks.units_mut().program(new, next, page.bytes(), Cause::Gc)?;
            } else {
                let mut page = Page::new(self.layout, node, 0);
                self.replay(node, &mut page, Cause::Gc)?;
                self.blocks.units_mut().program(new, next, page.bytes(), Cause::Gc)?;
            }
            uses.push(Use::Data(place));
        }
        self.merges += 1;
        let merged = EraseUnit { block: new, uses };
        let Some(unit) = self.units.get_mut(at) else { return broken("a unit is gone") };
        let old = std::mem::replace(unit, merged);
        self.blocks.give_back(old.block, Cause::Gc)
    }

    fn replay(&mut self, node: u32, page: &mut Page, cause: Cause) -> Result<()> {
        let (at, place) = self.place_of(node);
        let unit = self.units.get(at);
        let block = unit.map_or(0, |unit| unit.block);
        let uses = unit.map_or(&[][..], |unit| unit.uses.as_slice());
        for (index, kind) in (0..).zip(uses) {
            if *kind == Use::Data(place) {
                self.blocks.units_mut().read(block, index, page.bytes_mut(), cause)?;
            } else if *kind == Use::Log(place) {
                self.blocks.units_mut().read(block, index, &mut self.sector, cause)?;
                units::decode(&self.sector, UNIT_BYTES, node, |change| page.apply(change))?;
            }
        }
        Ok(())
    }
}

impl<U: EraseUnits> Backing for Ipl<U> {
    fn name(&self) -> &'static str {
        "ipl"
    }

    fn layout(&self) -> Layout {
        self.layout
    }

    fn admit(&self, nodes: usize) -> Result<()> {
        // One free block is for merges, which every operation needs.
        let fresh = (self.places - 1).wrapping_sub(self.next.wrapping_sub(1) % self.places);
        let places = self.places as usize * self.blocks.free().saturating_sub(1);
        if self.unused.len() + fresh as usize + places >= nodes {
            return Ok(());
        }
        Err(self.blocks.full())
    }

    fn allocate(&mut self) -> Result<u32> {
        if let Some(node) = self.unused.pop() {
            return Ok(node);
        }
        let node = self.next;
        if self.place_of(node).0 == self.units.len() {
            let block = self.blocks.take(Cause::Host)?;
            self.units.push(EraseUnit { block, uses: Vec::new() });
        }
        self.next += 1;
        Ok(node)
    }

    fn fetch(&mut self, node: u32, _level: u8, page: &mut Page) -> Result<()> {
        self.replay(node, page, Cause::Host)
    }

    fn created(&mut self, node: u32, cache: &mut Cache) -> Result<()> {
        if let Some(frame) = cache.peek_mut(node) {
            frame.is_dirty = true;
        }
        Ok(())
    }

    fn changed(&mut self, node: u32, change: &Change, cache: &mut Cache) -> Result<()> {
        if cache.peek(node).is_none_or(|frame| frame.is_dirty) {
            return Ok(());
        }
        let pending = self.pending.entry(node).or_default();
        pending.push(*change);
        self.pending_len += 1;
        let is_full = pending.len() >= units_of_page(self.layout.page_bytes, UNIT_BYTES);
        match cache.peek(node) {
            Some(frame) if is_full => self.write(node, &frame.page, cache),
            _ => Ok(()),
        }
    }

    fn evict(&mut self, frame: &mut Frame, cache: &mut Cache) -> Result<()> {
        if frame.is_dirty || self.pending.contains_key(&frame.node) {
            return self.write(frame.node, &frame.page, cache);
        }
        Ok(())
    }

    fn free(&mut self, node: u32) -> Result<()> {
        self.take_pending(node);
        let (at, place) = self.place_of(node);
        if let Some(unit) = self.units.get_mut(at) {
            let is_its = |kind: &&mut Use| [Use::Data(place), Use::Log(place)].contains(kind);
            unit.uses.iter_mut().filter(is_its).for_each(|kind| *kind = Use::Stale);
        }
        self.unused.push(node);
        Ok(())
    }

    fn flush(&mut self, _cache: &mut Cache) -> Result<()> {
        Ok(())
    }

    fn table_bytes(&self) -> usize {
        let directory = self.units.len() * (4 + 2 * self.places as usize);
        let pending = self.pending_len * PENDING_BYTES;
        self.blocks.bytes() + directory + pending + 4 * self.unused.len()
    }

    fn nand(&self) -> &dyn Nand {
        self.blocks.nand()
    }

    fn check(&self, nodes: usize) -> Result<()> {
        let found = self.next as usize - self.unused.len();
        if found != nodes {
            return broken(format!("{found} nodes are taken, {nodes} are in the tree"));
        }
        let blocks = self.blocks.units().units() as usize;
        if self.blocks.free() + self.units.len() != blocks {
            return broken("a block is neither free nor a unit's");
        }
        if self.pending.values().map(Vec::len).sum::<usize>() != self.pending_len {
            return broken("the pending changes are not those of a recount");
        }
        Ok(())
    }
}
