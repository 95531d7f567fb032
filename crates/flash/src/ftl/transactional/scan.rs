//! What a recovery finds: the main map, the commit records that are whole, and what each block is.
//!
//! A block is what the spare area of its first page says. A block whose first page is torn holds
//! nothing that counts: either its first program was interrupted, or its erase. The scan programs
//! nothing and erases only blocks without anything that counts, so it may be interrupted and done
//! again. Cost: the first page of every block, and all pages of meta blocks.

use super::map_store::{self, MapStore};
use super::record::{self, Joiner, Record};
use super::ring::{self, Ring};
use super::space::Space;
use super::store::Store;
use super::{Collection, NONE};
use crate::error::{Error, Result};
use crate::nand::{BlockId, Cause, Lpn, Nand, PageKind, Ppn};

/// What the blocks of a device are.
#[derive(Debug, Default)]
struct Blocks {
    data: Vec<BlockId>,
    map: Vec<(u64, BlockId)>,
    /// With the sequence number and the index in its record of the first page.
    log: Vec<(u64, u32, BlockId)>,
    clean: Vec<BlockId>,
    /// To be erased.
    torn: Vec<BlockId>,
}

/// What is on flash.
#[derive(Debug)]
pub(crate) struct Found<const N: usize> {
    /// The main map, as the pages of the map have it.
    pub(crate) map: Vec<Ppn>,
    /// The sequence number of each page of the map; 0 if it was never written.
    pub(crate) map_sequences: Vec<u64>,
    /// The records that are whole, in the order of their commits.
    pub(crate) records: Vec<Record<N>>,
    /// The block in which the last of them begins.
    pub(crate) last_record: Option<BlockId>,
    places: Vec<Ppn>,
    blocks: Blocks,
    last_sequence: u64,
    page_size: usize,
}

/// Reads what is on flash.
pub(crate) fn scan<N: Nand, const E: usize>(
    nand: &mut N,
    magic: [u8; 4],
    logical_pages: u32,
) -> Result<Found<E>> {
    let page_size = nand.geometry().page_size() as usize;
    let map_pages = map_store::pages_for(logical_pages, page_size) as usize;
    let mut blocks = sort_blocks(nand)?;
    blocks.map.sort_unstable();
    blocks.log.sort_unstable();
    let mut found = Found {
        map: vec![NONE; logical_pages as usize],
        map_sequences: vec![0; map_pages],
        records: Vec::new(),
        last_record: None,
        places: vec![NONE; map_pages],
        blocks,
        last_sequence: 0,
        page_size,
    };
    found.read_map(nand)?;
    found.read_records(nand, magic)?;
    Ok(found)
}

fn sort_blocks<N: Nand>(nand: &mut N) -> Result<Blocks> {
    let geometry = *nand.geometry();
    let mut blocks = Blocks::default();
    for block in (0..geometry.blocks()).map(BlockId) {
        let first = geometry.first_page(block);
        match nand.read(first, &mut [], Cause::Recovery) {
            Err(Error::Erased(_)) => blocks.clean.push(block),
            Err(Error::Torn(_)) => blocks.torn.push(block),
            Err(error) => return Err(error),
            Ok(spare) => match spare.kind {
                PageKind::Data => blocks.data.push(block),
                PageKind::Map => blocks.map.push((spare.seq, block)),
                PageKind::Commit => blocks.log.push((spare.seq, spare.lpn.0, block)),
                PageKind::Meta => {
                    let what = "a kind of page that this layer does not write".to_owned();
                    return Err(Error::Foreign { page: first, what });
                }
            },
        }
    }
    Ok(blocks)
}

/// The pages of a block that can be read.
fn for_each_page<N: Nand>(
    nand: &mut N,
    block: BlockId,
    page: &mut [u8],
    mut each: impl FnMut(Ppn, &[u8]) -> Result<()>,
) -> Result<()> {
    let first = nand.geometry().first_page(block).0;
    for place in (first..first + nand.next_page(block)).map(Ppn) {
        match nand.read(place, page, Cause::Recovery) {
            Ok(_) => each(place, page)?,
            Err(Error::Torn(_) | Error::Erased(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn foreign<T>(page: Ppn, what: impl Into<String>) -> Result<T> {
    Err(Error::Foreign { page, what: what.into() })
}

impl<const E: usize> Found<E> {
    fn read_map<N: Nand>(&mut self, nand: &mut N) -> Result<()> {
        let held = map_store::per_page(self.page_size);
        let mut page = vec![0; self.page_size];
        for (_, block) in self.blocks.map.clone() {
            for_each_page(nand, block, &mut page, |place, bytes| {
                let Some(found) = map_store::decode(bytes) else {
                    return foreign(place, "no page of a map among those of the map");
                };
                self.last_sequence = self.last_sequence.max(found.sequence);
                let index = found.index as usize;
                let Some(known) = self.map_sequences.get_mut(index) else {
                    return foreign(place, format!("map page {index}, past the logical pages"));
                };
                if found.sequence <= *known {
                    return Ok(());
                }
                *known = found.sequence;
                if let Some(known) = self.places.get_mut(index) {
                    *known = place;
                }
                let mappings = self.map.iter_mut().skip(index * held).zip(found.mappings);
                mappings.for_each(|(known, ppn)| *known = ppn);
                Ok(())
            })?;
        }
        Ok(())
    }

    fn read_records<N: Nand>(&mut self, nand: &mut N, magic: [u8; 4]) -> Result<()> {
        let mut page = vec![0; self.page_size];
        let mut joiner = Joiner::new();
        let mut begun = None;
        for (_, _, block) in self.blocks.log.clone() {
            for_each_page(nand, block, &mut page, |place, bytes| {
                let Some(found) = record::decode(bytes, magic) else {
                    return foreign(place, "no commit record among those of this layer");
                };
                self.last_sequence = self.last_sequence.max(found.sequence);
                let sequence = found.sequence;
                if begun.is_none_or(|(known, _)| known != sequence) {
                    begun = Some((sequence, block));
                }
                if let Some(record) = joiner.push(found) {
                    self.records.push(record);
                    self.last_record = begun.map(|(_, block)| block);
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Whether a record is newer than the page of the map that has the logical page.
    pub(crate) fn is_newer(&self, lpn: Lpn, sequence: u64) -> bool {
        let index = lpn.0 as usize / map_store::per_page(self.page_size);
        self.map_sequences.get(index).is_some_and(|known| sequence > *known)
    }

    /// Puts a committed mapping into the map.
    pub(crate) fn apply(&mut self, lpn: Lpn, ppn: Ppn) -> Result<()> {
        match self.map.get_mut(lpn.0 as usize) {
            Some(known) => *known = ppn,
            None => return foreign(ppn, format!("a mapping of {lpn}, past the logical pages")),
        }
        Ok(())
    }

    /// Makes the layer's parts of what was found: the flash, the ring of records, the map on flash,
    /// and the main map. Erases what does not count.
    pub(crate) fn build<N: Nand>(
        self,
        nand: N,
        collection: Collection,
    ) -> Result<(Store<N>, Ring, MapStore, Vec<Ppn>)> {
        let geometry = *nand.geometry();
        let mut store = Store::new(nand, Space::new(geometry, collection), self.last_sequence);
        self.validate(&mut store)?;
        let Found { map, places, blocks, page_size, .. } = self;
        let log: Vec<_> = blocks.log.iter().map(|(_, _, block)| *block).collect();
        let maps: Vec<_> = blocks.map.iter().map(|(_, block)| *block).collect();
        for block in blocks.clean {
            store.space.add_free(block, store.nand.erase_count(block));
        }
        let idle = blocks.data.iter().filter(|block| store.space.valid_in(**block) == 0);
        let idle: Vec<_> = blocks.torn.iter().chain(idle).copied().collect();
        for block in &idle {
            store.nand.erase(*block, Cause::Recovery)?;
            store.space.add_free(*block, store.nand.erase_count(*block));
        }
        for block in blocks.data {
            if store.space.valid_in(block) != 0 {
                store.space.add_closed(block);
            }
        }
        let map_blocks = map_store::blocks_for(
            u32::try_from(map.len()).unwrap_or(u32::MAX),
            page_size,
            geometry.pages_per_block(),
        );
        let next_of = |nand: &N, used: &[BlockId]| used.last().map_or(0, |b| nand.next_page(*b));
        let log_next = next_of(&store.nand, &log);
        let map_next = next_of(&store.nand, &maps);
        let log_erased = fill(&mut store.space, &log, ring::BLOCKS)?;
        let map_erased = fill(&mut store.space, &maps, map_blocks)?;
        let ring = Ring::new(log, log_next, log_erased);
        Ok((store, ring, MapStore::new(maps, map_next, map_erased, places, page_size), map))
    }

    /// Marks what the map leads to as valid.
    fn validate<N: Nand>(&self, store: &mut Store<N>) -> Result<()> {
        let geometry = *store.nand.geometry();
        for (lpn, ppn) in (0u32..).map(Lpn).zip(&self.map).filter(|(_, ppn)| **ppn != NONE) {
            if geometry.require_page(*ppn).is_err() {
                return foreign(*ppn, format!("what {lpn} is mapped to, past the device"));
            }
            if self.blocks.data.binary_search(&geometry.block_of(*ppn)).is_err() {
                return foreign(*ppn, format!("no data, and {lpn} is mapped to it"));
            }
            if let Some(other) = store.space.lpn(*ppn) {
                return foreign(*ppn, format!("both {other} and {lpn}"));
            }
            store.space.validate(*ppn, lpn);
        }
        Ok(())
    }
}

/// Takes erased blocks, so that there are `wanted` with those in use.
fn fill(space: &mut Space, used: &[BlockId], wanted: usize) -> Result<Vec<BlockId>> {
    let Some(missing) = wanted.checked_sub(used.len()) else {
        let what = format!("{} meta blocks of one kind, not {wanted}", used.len());
        return Err(Error::InvalidArgument(format!("{what}: recover with the options of format")));
    };
    let taken: Vec<_> = (0..missing).filter_map(|_| space.take_free()).collect();
    if taken.len() < missing {
        let what = "too few erased blocks for the map and commit records".to_owned();
        return Err(Error::Full(what));
    }
    Ok(taken)
}
