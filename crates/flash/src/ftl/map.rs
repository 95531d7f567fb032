//! The map of a layer in memory: where each logical page is, and who owns each flash page.
//!
//! A *slot* is what can be mapped: the logical pages, then the layer's own map pages.
//!
//! **Invariants.** A1: slot s is at page p exactly if p is owned by s. A2: a trimmed slot keeps its
//! page until the trim is durable. Before that a power cut may undo the trim, and then the page
//! must be there: an older version of the slot, overwritten long ago, must not come back.

use super::gc::Owners;
use super::pool::Pool;
use crate::error::{Result, broken};
use crate::nand::{BlockId, Cause, Lpn, Nand, PageKind, Ppn, Spare};

/// No page, or no owner.
const NONE: u32 = u32::MAX;
/// The slot is trimmed, and its page is kept. No page has a number with this bit.
const TRIMMED: u32 = 1 << 31;

/// The map in both directions. Memory: 4 bytes for each slot and 4 for each flash page.
#[derive(Clone, Debug)]
pub(super) struct Map {
    logical: u32,
    place: Vec<u32>,
    owner: Vec<u32>,
}

impl Map {
    /// An empty map of `logical` logical pages and `map_pages` map pages.
    pub fn new(logical: u32, map_pages: u32, pages: u32) -> Self {
        Self {
            logical,
            place: vec![NONE; logical as usize + map_pages as usize],
            owner: vec![NONE; pages as usize],
        }
    }

    /// The number of logical pages.
    pub const fn logical(&self) -> u32 {
        self.logical
    }

    /// The number of slots.
    pub fn slots(&self) -> u32 {
        self.place.len() as u32
    }

    /// The slot of map page `index`.
    pub const fn map_slot(&self, index: u32) -> u32 {
        self.logical + index
    }

    /// The slot that a spare area names, if there is such a slot.
    pub fn slot_of(&self, spare: &Spare) -> Option<u32> {
        let slot = match spare.kind {
            PageKind::Data => Some(spare.lpn.0).filter(|lpn| *lpn < self.logical),
            PageKind::Map => self.logical.checked_add(spare.lpn.0),
            PageKind::Commit | PageKind::Meta => None,
        };
        slot.filter(|slot| *slot < self.slots())
    }

    /// The spare area of a slot's page.
    pub const fn spare(&self, slot: u32, seq: u64) -> Spare {
        if slot < self.logical {
            Spare { lpn: Lpn(slot), kind: PageKind::Data, seq }
        } else {
            Spare { lpn: Lpn(slot - self.logical), kind: PageKind::Map, seq }
        }
    }

    /// The page of a slot that is mapped and not trimmed.
    #[inline]
    pub fn find(&self, slot: u32) -> Option<Ppn> {
        let place = self.place[slot as usize];
        (place & TRIMMED == 0).then_some(Ppn(place))
    }

    /// The slot that owns a page.
    pub fn owner(&self, page: Ppn) -> Option<u32> {
        self.owner.get(page.0 as usize).copied().filter(|slot| *slot != NONE)
    }

    /// Whether the slot is trimmed, and the trim not durable.
    pub fn is_trimmed(&self, slot: u32) -> bool {
        let place = self.place[slot as usize];
        place != NONE && place & TRIMMED != 0
    }

    /// Puts a slot at a page that was just programmed, and answers the page that it leaves.
    #[inline]
    pub fn bind(&mut self, slot: u32, page: Ppn) -> Option<Ppn> {
        self.owner[page.0 as usize] = slot;
        let before = std::mem::replace(&mut self.place[slot as usize], page.0);
        if before == NONE {
            return None;
        }
        let before = Ppn(before & !TRIMMED);
        self.owner[before.0 as usize] = NONE;
        Some(before)
    }

    /// Marks a slot as trimmed; answers whether it was mapped.
    pub fn trim(&mut self, slot: u32) -> bool {
        let is_mapped = self.find(slot).is_some();
        if is_mapped {
            self.place[slot as usize] |= TRIMMED;
        }
        is_mapped
    }

    /// The trim of the slot is durable: answers the page that it leaves, if it is still trimmed.
    pub fn unbind_trimmed(&mut self, slot: u32) -> Option<Ppn> {
        if !self.is_trimmed(slot) {
            return None;
        }
        let page = Ppn(std::mem::replace(&mut self.place[slot as usize], NONE) & !TRIMMED);
        self.owner[page.0 as usize] = NONE;
        Some(page)
    }

    /// The number of valid pages of a block, counted.
    pub fn count_valid<N: Nand>(&self, nand: &N, block: BlockId) -> u32 {
        let first = nand.geometry().first_page(block).0 as usize;
        let pages = first..first + nand.geometry().pages_per_block() as usize;
        self.owner[pages].iter().filter(|owner| **owner != NONE).count() as u32
    }

    /// Checks A1, and that owned pages are programmed and lead back by their spare areas.
    pub fn check<N: Nand>(&self, nand: &N) -> Result<()> {
        let mut placed = 0_u64;
        for (slot, place) in (0_u32..).zip(&self.place).filter(|(_, place)| **place != NONE) {
            let page = Ppn(place & !TRIMMED);
            placed += 1;
            if self.owner.get(page.0 as usize) != Some(&slot) {
                return broken(format!("slot {slot} is at {page}, which another owns"));
            }
            let geometry = nand.geometry();
            if geometry.index_of(page) >= nand.next_page(geometry.block_of(page)) {
                return broken(format!("slot {slot} is at {page}, which is erased"));
            }
        }
        let owned = self.owner.iter().filter(|owner| **owner != NONE).count() as u64;
        if owned != placed {
            return broken(format!("{owned} pages have an owner, and {placed} slots a page"));
        }
        Ok(())
    }

    /// Memory in bytes.
    pub fn ram_bytes(&self) -> u64 {
        4 * (self.place.capacity() + self.owner.capacity()) as u64
    }
}

impl<N: Nand> Owners<N> for Map {
    #[inline]
    fn is_valid(&self, page: Ppn) -> bool {
        self.owner[page.0 as usize] != NONE
    }

    #[inline]
    fn moved(&mut self, from: Ppn, to: Ppn, spare: &Spare) -> Result<()> {
        let slot = std::mem::replace(&mut self.owner[from.0 as usize], NONE);
        if *spare != Spare::UNKNOWN && self.slot_of(spare) != Some(slot) {
            return broken(format!("{from} of slot {slot} says that it is {spare:?}"));
        }
        self.owner[to.0 as usize] = slot;
        let place = &mut self.place[slot as usize];
        *place = (*place & TRIMMED) | to.0;
        Ok(())
    }
}

/// Reads a logical page where the map has it; one that is not mapped reads as zeros. Answers
/// whether it is.
pub(super) fn read<N: Nand>(nand: &mut N, map: &Map, lpn: Lpn, data: &mut [u8]) -> Result<bool> {
    let Some(page) = map.find(lpn.0) else {
        data.fill(0);
        return Ok(false);
    };
    let spare = nand.read(page, data, Cause::Host)?;
    if nand.keeps_data() && map.slot_of(&spare) != Some(lpn.0) {
        return broken(format!("{page} is mapped as {lpn} and holds {}", spare.lpn));
    }
    Ok(true)
}

/// Programs a slot's new version as the next page of a stream, which must have room, and gives up
/// the old one.
pub(super) fn put<N: Nand>(
    nand: &mut N,
    pool: &mut Pool,
    map: &mut Map,
    write: Write<'_>,
) -> Result<()> {
    let domain = nand.geometry().die_of_lpn(Lpn(write.slot));
    let page = pool.take(domain, write.stream)?;
    nand.program(page, write.data, map.spare(write.slot, write.seq), write.cause)?;
    if let Some(before) = map.bind(write.slot, page) {
        pool.invalidate(before);
    }
    Ok(())
}

/// A slot's new version.
pub(super) struct Write<'a> {
    pub slot: u32,
    pub data: &'a [u8],
    pub seq: u64,
    pub stream: super::pool::Stream,
    pub cause: Cause,
}
