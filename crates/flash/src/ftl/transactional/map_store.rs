//! The main map on flash: pages of mappings, each written anew at another place.
//!
//! | bytes | field |
//! |---|---|
//! | 0..4 | magic, `MAPP` |
//! | 4..8 | index of the page in the map |
//! | 8..16 | sequence number |
//! | 16.. | physical pages of (P − 16) / 4 successive logical pages; `ffff_ffff` for none |
//!
//! Of several pages with one index the one with the greatest sequence number counts. It holds the
//! newest committed mappings as of that number.
//!
//! When only one erased block is left, the pages that count in another block are written to it and
//! that block is erased. There is room for two maps and two blocks, so at most half of the pages of
//! the emptiest block count. The other half of the erased block is slack for pages that crashes
//! tear while this is done.
//!
//! Invariants: `places` of an index is its newest page, in a block of `used`, of which the last is
//! written on. One erased block is left between calls.

use std::collections::VecDeque;

use super::NONE;
use super::ring;
use super::space::Space;
use super::store::Store;
use crate::error::{Error, Result, invalid};
use crate::nand::{BlockId, Cause, Geometry, Lpn, Nand, PageKind, Ppn, Spare};

const MAGIC: [u8; 4] = *b"MAPP";
const HEADER_BYTES: usize = 16;

/// The mappings that a page of the map holds.
pub(crate) fn per_page(page_size: usize) -> usize {
    (page_size.saturating_sub(HEADER_BYTES) / 4).max(1)
}

/// The pages of a map.
pub(crate) fn pages_for(logical_pages: u32, page_size: usize) -> u32 {
    (logical_pages as usize).div_ceil(per_page(page_size)) as u32
}

/// The blocks that a map needs.
pub(crate) fn blocks_for(logical_pages: u32, page_size: usize, pages_per_block: u32) -> usize {
    2 * pages_for(logical_pages, page_size).div_ceil(pages_per_block.max(1)) as usize + 2
}

/// The pages of a device that are not in meta blocks.
pub(crate) fn pages_without_meta(geometry: &Geometry, logical_pages: u32) -> u32 {
    let page_size = geometry.page_size() as usize;
    let meta = blocks_for(logical_pages, page_size, geometry.pages_per_block()) + ring::BLOCKS;
    let meta = u32::try_from(meta).unwrap_or(u32::MAX);
    geometry.blocks().saturating_sub(meta).saturating_mul(geometry.pages_per_block())
}

/// The pages that may be valid at one time: collections need the open blocks and the reserve.
pub(crate) fn data_pages(geometry: &Geometry, logical_pages: u32) -> u32 {
    let withheld = Space::withheld(geometry).saturating_mul(geometry.pages_per_block());
    pages_without_meta(geometry, logical_pages).saturating_sub(withheld)
}

/// The logical pages of a device with so many spare pages for 1,000 of them.
pub(crate) fn spare_pages(geometry: &Geometry, spare_permille: u32) -> u32 {
    let share = |pages: u32| {
        let data = u64::from(pages) * 1_000 / (1_000 + u64::from(spare_permille));
        u32::try_from(data).unwrap_or(pages)
    };
    // The map has a size that follows from the logical pages, which it makes fewer.
    let first = share(geometry.pages());
    share(data_pages(geometry, first))
}

/// Refuses a number of logical pages of which the device has room for `most`.
pub(crate) fn require_pages(logical_pages: u32, most: u32) -> Result<()> {
    if (1..=most).contains(&logical_pages) {
        return Ok(());
    }
    invalid(match most {
        0 => format!("{logical_pages} logical pages, and no room for one: use a larger device"),
        _ => format!("{logical_pages} logical pages: use 1 to {most}, or a larger device"),
    })
}

/// The newest committed mapping of a logical page.
pub(crate) trait Newest {
    fn newest(&self, lpn: Lpn) -> Ppn;
}

impl<F: Fn(Lpn) -> Ppn> Newest for F {
    fn newest(&self, lpn: Lpn) -> Ppn {
        self(lpn)
    }
}

/// A page of the map that was read.
pub(crate) struct MapPage {
    pub(crate) index: u32,
    pub(crate) sequence: u64,
    pub(crate) mappings: Vec<Ppn>,
}

/// Reads a page; None if it is not one of a map.
pub(crate) fn decode(page: &[u8]) -> Option<MapPage> {
    let (header, body) = page.split_first_chunk::<HEADER_BYTES>()?;
    if header[..4] != MAGIC {
        return None;
    }
    let index = u32::from_le_bytes(header[4..8].try_into().ok()?);
    let sequence = u64::from_le_bytes(header[8..].try_into().ok()?);
    let words = body.chunks_exact(4).filter_map(|bytes| bytes.try_into().ok());
    let mappings = words.map(|bytes| Ppn(u32::from_le_bytes(bytes))).collect();
    Some(MapPage { index, sequence, mappings })
}

/// Where the pages of the map are.
#[derive(Clone, Debug)]
pub(crate) struct MapStore {
    used: VecDeque<BlockId>,
    /// The one that waits longest is used next.
    erased: VecDeque<BlockId>,
    /// The index of the next page in the last block of `used`.
    next: u32,
    places: Vec<Ppn>,
    page: Vec<u8>,
}

impl MapStore {
    /// A map of which nothing is on flash, or what a scan found: `used` the oldest first, and where
    /// the newest page of each index is.
    pub(crate) fn new(
        used: Vec<BlockId>,
        next: u32,
        erased: Vec<BlockId>,
        places: Vec<Ppn>,
        page_size: usize,
    ) -> Self {
        Self { used: used.into(), erased: erased.into(), next, places, page: vec![0; page_size] }
    }

    /// The page of the map that has a logical page.
    pub(crate) fn index_of(&self, lpn: Lpn) -> u32 {
        (lpn.0 as usize / per_page(self.page.len())) as u32
    }

    /// The number of pages of the map.
    pub(crate) fn pages(&self) -> u32 {
        self.places.len() as u32
    }

    /// The blocks, for the accounting of all blocks.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = BlockId> {
        self.used.iter().chain(&self.erased).copied()
    }

    /// Whether the block has pages of the map.
    pub(crate) fn has_pages(&self, block: BlockId) -> bool {
        self.used.contains(&block)
    }

    /// The erased blocks.
    pub(crate) const fn erased_mut(&mut self) -> &mut VecDeque<BlockId> {
        &mut self.erased
    }

    /// Writes what counts in a block with pages of the map again, and erases it. One erased block
    /// is left however full it is, so that a crash meanwhile finds what it finds after
    /// [`write`](Self::write).
    pub(crate) fn move_out<N: Nand>(
        &mut self,
        store: &mut Store<N>,
        block: BlockId,
        newest: &impl Newest,
    ) -> Result<()> {
        let rounds = self.used.len() + self.erased.len();
        for _ in 0..=rounds {
            let at = self.used.iter().position(|used| *used == block);
            // Emptying the emptiest blocks may have emptied it.
            let Some(at) = at else { return Ok(()) };
            if self.erased.len() < 2 {
                self.empty_one(store, newest)?;
            } else if at + 1 == self.used.len() {
                self.begin_block()?;
            } else {
                return self.empty(store, at, newest);
            }
        }
        Err(Error::Full("the blocks of the map are full".to_owned()))
    }

    /// Writes one page of the map.
    pub(crate) fn write<N: Nand>(
        &mut self,
        store: &mut Store<N>,
        index: u32,
        newest: &impl Newest,
    ) -> Result<()> {
        self.make_room(store, newest)?;
        self.append(store, index, newest)
    }

    /// Begins a block if the last is full, and empties another if only one erased one is left.
    fn make_room<N: Nand>(&mut self, store: &mut Store<N>, newest: &impl Newest) -> Result<()> {
        let rounds = self.used.len() + self.erased.len();
        for _ in 0..=rounds {
            // None is left if a crash interrupted the emptying of a block: it is taken up again.
            if self.erased.is_empty() {
                self.empty_one(store, newest)?;
                continue;
            }
            if !self.used.is_empty() && self.next < store.pages_per_block() {
                return Ok(());
            }
            if self.erased.len() < 2 {
                self.empty_one(store, newest)?;
                continue;
            }
            self.begin_block()?;
        }
        Err(Error::Full("the blocks of the map are full".to_owned()))
    }

    fn begin_block(&mut self) -> Result<()> {
        let Some(block) = self.erased.pop_front() else {
            return Err(Error::Full("no erased block is left for the map".to_owned()));
        };
        self.used.push_back(block);
        self.next = 0;
        Ok(())
    }

    /// The block, other than the last, in which the fewest pages count: at most half of them do.
    fn emptiest(&self, geometry: &Geometry) -> Option<usize> {
        let mut live = vec![0_u32; self.used.len()];
        for place in self.places.iter().filter(|place| **place != NONE) {
            let block = geometry.block_of(*place);
            if let Some(at) = self.used.iter().position(|used| *used == block)
                && let Some(count) = live.get_mut(at)
            {
                *count += 1;
            }
        }
        live.pop();
        (0..live.len()).min_by_key(|at| live.get(*at).copied())
    }

    /// Empties the emptiest block.
    fn empty_one<N: Nand>(&mut self, store: &mut Store<N>, newest: &impl Newest) -> Result<()> {
        match self.emptiest(store.nand.geometry()) {
            Some(at) => self.empty(store, at, newest),
            None => Err(Error::Full("the map has too few blocks".to_owned())),
        }
    }

    /// Writes what counts in a block, other than the last, again, and erases it.
    fn empty<N: Nand>(
        &mut self,
        store: &mut Store<N>,
        at: usize,
        newest: &impl Newest,
    ) -> Result<()> {
        let geometry = *store.nand.geometry();
        let Some(block) = self.used.get(at).copied() else { return Ok(()) };
        let is_there = |place: &Ppn| *place != NONE && geometry.block_of(*place) == block;
        let live = (0u32..).zip(&self.places).filter(|(_, place)| is_there(place));
        let live: Vec<u32> = live.map(|(index, _)| index).collect();
        for index in live {
            if self.next >= store.pages_per_block() {
                self.begin_block()?;
            }
            self.append(store, index, newest)?;
        }
        let erased = store.recycle(block)?;
        self.used.remove(at);
        self.erased.push_back(erased);
        Ok(())
    }

    fn append<N: Nand>(
        &mut self,
        store: &mut Store<N>,
        index: u32,
        newest: &impl Newest,
    ) -> Result<()> {
        let Some(block) = self.used.back().copied() else {
            return Err(Error::Invariant("the map has no block to write to".to_owned()));
        };
        let place = Ppn(store.nand.geometry().first_page(block).0 + self.next);
        self.next += 1;
        let sequence = store.next_sequence();
        if store.nand.keeps_data() {
            self.fill(index, sequence, newest);
        }
        let spare = Spare { lpn: Lpn(index), kind: PageKind::Map, seq: sequence };
        store.program_meta(place, &self.page, spare, Cause::Map)?;
        if let Some(known) = self.places.get_mut(index as usize) {
            *known = place;
        }
        Ok(())
    }

    fn fill(&mut self, index: u32, sequence: u64, newest: &impl Newest) {
        let held = per_page(self.page.len());
        let Some((header, body)) = self.page.split_first_chunk_mut::<HEADER_BYTES>() else {
            return;
        };
        header[..4].copy_from_slice(&MAGIC);
        header[4..8].copy_from_slice(&index.to_le_bytes());
        header[8..].copy_from_slice(&sequence.to_le_bytes());
        let first = index as usize * held;
        for (at, bytes) in body.chunks_exact_mut(4).enumerate() {
            let lpn = u32::try_from(first + at).unwrap_or(u32::MAX);
            bytes.copy_from_slice(&newest.newest(Lpn(lpn)).0.to_le_bytes());
        }
    }
}
