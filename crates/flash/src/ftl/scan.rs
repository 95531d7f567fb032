//! What a recovery reads: the spare areas of all pages, of which the newest of each slot counts.

use super::map::Map;
use super::pool::Found;
use crate::error::{Error, Result, invalid};
use crate::nand::{BlockId, Cause, Geometry, Nand, Ppn, Spare};

/// Reads the spare areas of all blocks that `is_read` names, and passes each readable page of a
/// block to `visit`, with the rank of that block among those with copies of a page: the lowest one
/// counts. Answers what is in the blocks, `valid` aside; one that is not read counts as empty.
///
/// Cost: a read for each page that is not erased, and one for each block.
///
/// # Errors
/// Flash that keeps no data, those of `visit`, the power off.
pub fn scan<N: Nand>(
    nand: &mut N,
    is_read: impl Fn(BlockId) -> bool,
    mut visit: impl FnMut(Ppn, Spare, u32) -> Result<()>,
) -> Result<Vec<Found>> {
    if !nand.keeps_data() {
        return invalid("flash that keeps no data cannot be recovered: simulate it with data");
    }
    let geometry = *nand.geometry();
    let mut all = Vec::with_capacity(geometry.blocks() as usize);
    let mut readable = Vec::with_capacity(geometry.pages_per_block() as usize);
    for block in (0..geometry.blocks()).map(BlockId) {
        let mut found = Found::default();
        readable.clear();
        let pages = if is_read(block) { geometry.pages_per_block() } else { 0 };
        for page in (0..pages).map(|index| Ppn(geometry.first_page(block).0 + index)) {
            match nand.read(page, &mut [], Cause::Recovery) {
                Ok(spare) => {
                    found.newest = found.newest.max(spare.seq);
                    readable.push((page, spare));
                }
                Err(Error::Torn(_)) => found.torn += 1,
                Err(Error::Erased(_)) => break,
                Err(error) => return Err(error),
            }
            found.written += 1;
        }
        // A block that is not full is where a collection was moving pages to. To keep what it had
        // moved costs a power cut one torn page, and not all pages that were moved before it. Of
        // full blocks the one with more torn pages may be half erased.
        let is_full = found.written == geometry.pages_per_block();
        let rank = found.torn + if is_full { geometry.pages_per_block() } else { 0 };
        for (page, spare) in readable.drain(..) {
            visit(page, spare, rank)?;
        }
        all.push(found);
    }
    Ok(all)
}

/// The newest page of each slot of a map, and what is in the blocks, `valid` aside.
///
/// # Errors
/// [`Error::Foreign`] for pages of another layer or size, and those of [`scan`].
pub(super) fn newest_of<N: Nand>(nand: &mut N, map: &Map) -> Result<(Newest, Vec<Found>)> {
    let mut newest = Newest::new(map.slots());
    let found = scan(
        nand,
        |_| true,
        |page, spare, rank| {
            let slot = map.slot_of(&spare).ok_or_else(|| Error::Foreign {
                page,
                what: format!("{:?} {} of another layer or size", spare.kind, spare.lpn),
            })?;
            newest.offer(slot, page, spare.seq, rank);
            Ok(())
        },
    )?;
    Ok((newest, found))
}

/// Puts each slot of a map at its newest page, counts the valid pages of blocks, and answers the
/// sequence number of the next page.
pub(super) fn bind(
    geometry: &Geometry,
    map: &mut Map,
    newest: &Newest,
    found: &mut [Found],
) -> u64 {
    for (slot, version) in newest.iter() {
        map.bind(slot, version.page);
        if let Some(block) = found.get_mut(geometry.block_of(version.page).0 as usize) {
            block.valid += 1;
        }
    }
    found.iter().map(|block| block.newest).max().unwrap_or(0) + 1
}

/// Erases every block that is not erased.
///
/// # Errors
/// The power off.
pub fn erase_all<N: Nand>(nand: &mut N) -> Result<()> {
    for block in (0..nand.geometry().blocks()).map(BlockId) {
        let first = nand.geometry().first_page(block);
        match nand.read(first, &mut [], Cause::Recovery) {
            Err(Error::Erased(_)) => {}
            Ok(_) | Err(Error::Torn(_)) => nand.erase(block, Cause::Recovery)?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The newest page of each slot.
///
/// Of two copies of the same version, which a power cut during a collection leaves, the one in the
/// block of lower rank counts.
#[derive(Clone, Debug)]
pub struct Newest {
    best: Vec<Option<Version>>,
}

/// A page of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Its sequence number.
    pub seq: u64,
    /// The page.
    pub page: Ppn,
    /// The rank of its block.
    rank: u32,
}

impl Newest {
    /// For `slots` slots.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        Self { best: vec![None; slots as usize] }
    }

    /// Compares a page of a slot with the newest so far.
    pub fn offer(&mut self, slot: u32, page: Ppn, seq: u64, rank: u32) {
        let Some(best) = self.best.get_mut(slot as usize) else { return };
        let is_newer = |b: &Version| seq > b.seq || (seq == b.seq && rank < b.rank);
        if best.as_ref().is_none_or(is_newer) {
            *best = Some(Version { seq, page, rank });
        }
    }

    /// The newest page of a slot.
    #[must_use]
    pub fn get(&self, slot: u32) -> Option<Version> {
        self.best.get(slot as usize).copied().flatten()
    }

    /// Drops the page of a slot if it is older than `seq`.
    pub fn drop_older(&mut self, slot: u32, seq: u64) {
        if let Some(best) = self.best.get_mut(slot as usize) {
            *best = best.filter(|version| version.seq > seq);
        }
    }

    /// All slots with a page.
    pub fn iter(&self) -> impl Iterator<Item = (u32, Version)> + '_ {
        (0..).zip(&self.best).filter_map(|(slot, best)| best.map(|version| (slot, version)))
    }
}
