//! A block-mapped translation layer with a few log blocks, as memory cards have one, and as drives
//! had whose random writes were slow.
//!
//! Page i of a logical block is page i of its *data block*. A page that follows the last one of
//! its data block is programmed there. Any other goes to the *log block* of its logical block, in
//! the order of writes (BAST: Kim, Kim, Noh, Min, Cho, IEEE Transactions on Consumer Electronics
//! 48(2), 2002). There are few log blocks. When one is full, or when another logical block needs
//! it, it is *merged*: one whose pages are the first of the logical block, in order, gets the
//! others behind them and becomes the data block; of any other the newest pages are copied into an
//! erased block, and both are erased. So a sequential write costs a program, and a random one up to
//! a block of copies.
//!
//! A logical block whose pages are all trimmed gives its blocks up. Free blocks are used in turn.
//!
//! B1: a block of flash has one owner: a data block, a log block, or the list of free blocks. B2: a
//! page that is mapped is in the log block or in the data block of its logical block, and
//! programmed. B3: `logs` has each logical block with a log block, once.
//!
//! Not here: recovery after a power cut, levelling of wear between data that changes and data that
//! does not, several dies, merges in the background.

use std::collections::VecDeque;

use esker_flash::ftl::{HostCounters, Wear};
use esker_flash::nand::{BlockId, Cause, Lpn, PageKind, Ppn, Spare};
use esker_flash::{Error, Ftl, Nand, Result};

/// Blocks that are neither data nor log: the target of a merge, and one that is being emptied.
const SET_ASIDE: usize = 2;

/// The layer. Memory: 5 bytes for each page and 40 for each block.
#[derive(Clone, Debug)]
pub struct BlockMapped<N> {
    nand: N,
    logical: Vec<Logical>,
    /// Logical blocks with a log block, the one that was written longest ago first.
    logs: VecDeque<u32>,
    logs_max: usize,
    free: VecDeque<BlockId>,
    host: HostCounters,
}

#[derive(Clone, Debug)]
struct Logical {
    data: Option<BlockId>,
    log: Option<Log>,
    /// Which pages have content.
    is_mapped: Vec<bool>,
    mapped: u32,
}

#[derive(Clone, Debug)]
struct Log {
    block: BlockId,
    /// The index in the log block of the newest content of each page that it has.
    places: Vec<Option<u32>>,
}

impl Log {
    /// Whether its first `written` pages are those of the logical block, in order.
    fn is_in_order(&self, written: u32) -> bool {
        let mut places = (0..).zip(&self.places).take(written as usize);
        places.all(|(page, place)| *place == Some(page))
    }
}

impl<N: Nand> BlockMapped<N> {
    /// An empty device of erased flash, with so many log blocks.
    ///
    /// # Errors
    /// [`Error::Geometry`] for several dies, no log block, or too few blocks.
    pub fn format(nand: N, logs_max: usize) -> Result<Self> {
        let (blocks, pages) = (nand.geometry().blocks(), nand.geometry().pages_per_block());
        let impossible = |what: String| Err(Error::Geometry(what));
        if nand.geometry().dies() != 1 {
            return impossible(format!("{} dies: this layer has one", nand.geometry().dies()));
        }
        let taken = logs_max + SET_ASIDE;
        if logs_max == 0 || blocks as usize <= taken {
            return impossible(format!(
                "{logs_max} log blocks of {blocks}: use 1 or more, and {SET_ASIDE} blocks more \
                 than that and the data"
            ));
        }
        let is_mapped = vec![false; pages as usize];
        let empty = Logical { data: None, log: None, is_mapped, mapped: 0 };
        let logical = vec![empty; blocks as usize - taken];
        let free = (0..blocks).map(BlockId).collect();
        let (logs, host) = (VecDeque::new(), HostCounters::default());
        Ok(Self { nand, logical, logs, logs_max, free, host })
    }

    /// The logical block of a page, and its index there.
    fn split(&self, lpn: Lpn) -> Result<(u32, u32)> {
        let limit = self.logical_pages();
        if lpn.0 >= limit {
            let (number, limit) = (lpn.0.into(), limit.into());
            return Err(Error::OutOfRange { what: "logical page", number, limit });
        }
        let pages = self.nand.geometry().pages_per_block();
        Ok((lpn.0 / pages, lpn.0 % pages))
    }

    fn logical(&self, block: u32) -> Result<&Logical> {
        self.logical.get(block as usize).ok_or_else(|| unknown(block))
    }

    fn logical_mut(&mut self, block: u32) -> Result<&mut Logical> {
        self.logical.get_mut(block as usize).ok_or_else(|| unknown(block))
    }

    fn page(&self, block: BlockId, index: u32) -> Ppn {
        Ppn(self.nand.geometry().first_page(block).0 + index)
    }

    /// Where the content of a page is.
    fn place(&self, logical: &Logical, index: u32) -> Option<Ppn> {
        if !logical.is_mapped.get(index as usize).is_some_and(|is_mapped| *is_mapped) {
            return None;
        }
        let logged = logical.log.as_ref().and_then(|log| {
            let place = (*log.places.get(index as usize)?)?;
            Some(self.page(log.block, place))
        });
        logged.or_else(|| logical.data.map(|data| self.page(data, index)))
    }

    /// Whether a page can be programmed in the data block.
    fn is_append(&self, logical: &Logical, index: u32) -> bool {
        match logical.data {
            Some(data) => self.nand.next_page(data) == index,
            None => index == 0 && logical.log.is_none(),
        }
    }

    fn is_log_full(&self, logical: &Logical) -> bool {
        let pages = self.nand.geometry().pages_per_block();
        logical.log.as_ref().is_some_and(|log| self.nand.next_page(log.block) >= pages)
    }

    fn take(&mut self) -> Result<BlockId> {
        let none = || Error::Invariant("no block is free for a merge".to_owned());
        self.free.pop_front().ok_or_else(none)
    }

    fn erase(&mut self, block: BlockId) -> Result<()> {
        self.nand.erase(block, Cause::Gc)?;
        self.free.push_back(block);
        Ok(())
    }

    /// Programs a page in the data block of its logical block, as the next one.
    fn append(&mut self, block: u32, index: u32, data: &[u8]) -> Result<()> {
        let target = match self.logical(block)?.data {
            Some(target) => target,
            None => self.take()?,
        };
        let page = self.page(target, index);
        self.nand.program(page, data, spare(page.0), Cause::Host)?;
        let logical = self.logical_mut(block)?;
        logical.data = Some(target);
        if let Some(place) = logical.log.as_mut().and_then(|log| log.places.get_mut(index as usize))
        {
            *place = None;
        }
        Ok(())
    }

    /// Programs a page in the log block of its logical block, which is not full.
    fn log(&mut self, block: u32, index: u32, data: &[u8]) -> Result<()> {
        if self.logical(block)?.log.is_none() {
            self.open_log(block)?;
        }
        let none = || Error::Invariant(format!("logical block {block} has no log block"));
        let target = self.logical(block)?.log.as_ref().ok_or_else(none)?.block;
        let place = self.nand.next_page(target);
        let page = self.page(target, place);
        self.nand.program(page, data, spare(page.0), Cause::Host)?;
        let log = self.logical_mut(block)?.log.as_mut().ok_or_else(none)?;
        if let Some(newest) = log.places.get_mut(index as usize) {
            *newest = Some(place);
        }
        self.logs.retain(|other| *other != block);
        self.logs.push_back(block);
        Ok(())
    }

    fn open_log(&mut self, block: u32) -> Result<()> {
        while self.logs.len() >= self.logs_max
            && let Some(oldest) = self.logs.front()
        {
            self.merge(*oldest)?;
        }
        let target = self.take()?;
        let places = vec![None; self.nand.geometry().pages_per_block() as usize];
        self.logical_mut(block)?.log = Some(Log { block: target, places });
        self.logs.push_back(block);
        Ok(())
    }

    /// Makes one data block of the log block and the data block of a logical block.
    fn merge(&mut self, block: u32) -> Result<()> {
        self.logs.retain(|other| *other != block);
        let logical = self.logical(block)?.clone();
        let Some(log) = &logical.log else { return Ok(()) };
        let written = self.nand.next_page(log.block);
        let is_in_order = log.is_in_order(written);
        let (target, from) = if is_in_order { (log.block, written) } else { (self.take()?, 0) };
        let pages = (0..).zip(&logical.is_mapped).filter(|(_, is_mapped)| **is_mapped);
        let until = pages.last().map_or(0, |(page, _)| page + 1);
        for index in from..until {
            self.copy(&logical, index, target)?;
        }
        let merged = self.logical_mut(block)?;
        (merged.data, merged.log) = (Some(target), None);
        if let Some(old) = logical.data {
            self.erase(old)?;
        }
        if is_in_order { Ok(()) } else { self.erase(log.block) }
    }

    /// Copies a page to the next one of `target`; one without content is programmed with zeros.
    fn copy(&mut self, logical: &Logical, index: u32, target: BlockId) -> Result<()> {
        let to = self.page(target, index);
        if let Some(from) = self.place(logical, index) {
            self.nand.copy(from, to, Cause::Gc)?;
            return Ok(());
        }
        let zeros = vec![0; self.nand.geometry().page_size() as usize];
        self.nand.program(to, &zeros, spare(to.0), Cause::Gc)
    }

    fn map(&mut self, block: u32, index: u32, is_mapped: bool) -> Result<()> {
        let logical = self.logical_mut(block)?;
        if let Some(bit) = logical.is_mapped.get_mut(index as usize) {
            logical.mapped -= u32::from(*bit);
            logical.mapped += u32::from(is_mapped);
            *bit = is_mapped;
        }
        Ok(())
    }
}

/// What the spare area has. Nothing reads it.
const fn spare(number: u32) -> Spare {
    Spare { lpn: Lpn(number), kind: PageKind::Data, seq: 0 }
}

fn unknown(block: u32) -> Error {
    Error::Invariant(format!("there is no logical block {block}"))
}

impl<N: Nand> Ftl for BlockMapped<N> {
    fn logical_pages(&self) -> u32 {
        self.logical.len() as u32 * self.nand.geometry().pages_per_block()
    }

    fn dyn_nand(&self) -> &dyn Nand {
        &self.nand
    }

    fn dyn_nand_mut(&mut self) -> &mut dyn Nand {
        &mut self.nand
    }

    fn read(&mut self, lpn: Lpn, data: &mut [u8]) -> Result<bool> {
        let (block, index) = self.split(lpn)?;
        self.host.reads += 1;
        let place = self.place(self.logical(block)?, index);
        match place {
            Some(page) => _ = self.nand.read(page, data, Cause::Host)?,
            None => data.fill(0),
        }
        Ok(place.is_some())
    }

    fn write(&mut self, lpn: Lpn, data: &[u8]) -> Result<()> {
        let (block, index) = self.split(lpn)?;
        self.host.writes += 1;
        let logical = self.logical(block)?;
        if self.is_log_full(logical) && !self.is_append(logical, index) {
            self.merge(block)?;
        }
        if self.is_append(self.logical(block)?, index) {
            self.append(block, index, data)?;
        } else {
            self.log(block, index, data)?;
        }
        self.map(block, index, true)
    }

    fn trim(&mut self, lpn: Lpn) -> Result<()> {
        let (block, index) = self.split(lpn)?;
        self.host.trims += 1;
        self.map(block, index, false)?;
        let logical = self.logical_mut(block)?;
        if logical.mapped > 0 {
            return Ok(());
        }
        let blocks = [logical.data.take(), logical.log.take().map(|log| log.block)];
        self.logs.retain(|other| *other != block);
        blocks.into_iter().flatten().try_for_each(|block| self.erase(block))
    }

    /// Does nothing: every write is on flash when it returns.
    fn flush(&mut self) -> Result<()> {
        self.host.flushes += 1;
        Ok(())
    }

    fn host(&self) -> HostCounters {
        self.host
    }

    fn wear(&self) -> Wear {
        let blocks = self.nand.geometry().blocks();
        let counts = || (0..blocks).map(|block| self.nand.erase_count(BlockId(block)));
        let (min, max) = (counts().min().unwrap_or(0), counts().max().unwrap_or(0));
        let sum: f64 = counts().map(f64::from).sum();
        Wear { min, mean: sum / f64::from(blocks), max, spread: max - min }
    }

    fn ram_bytes(&self) -> u64 {
        let geometry = self.nand.geometry();
        u64::from(geometry.pages()) * 5 + u64::from(geometry.blocks()) * 40 + self.nand.ram_bytes()
    }

    fn check(&self) -> Result<()> {
        let broken = |what: String| Err(Error::Invariant(what));
        let mut owners = vec![0; self.nand.geometry().blocks() as usize];
        let mut own = |block: BlockId| {
            owners.get_mut(block.0 as usize).into_iter().for_each(|count| *count += 1);
        };
        self.free.iter().for_each(|block| own(*block));
        for (number, logical) in (0..).zip(&self.logical) {
            logical.data.into_iter().for_each(&mut own);
            logical.log.iter().for_each(|log| own(log.block));
            let listed = self.logs.iter().filter(|other| **other == number).count();
            if listed != usize::from(logical.log.is_some()) {
                return broken(format!("logical block {number} is listed {listed} times (B3)"));
            }
            let mapped = (0..).zip(&logical.is_mapped).filter(|(_, is_mapped)| **is_mapped);
            if mapped.clone().count() != logical.mapped as usize {
                return broken(format!("logical block {number} does not count its pages"));
            }
            for (index, _) in mapped {
                let place = self.place(logical, index);
                if !place.is_some_and(|page| self.is_programmed(page)) {
                    return broken(format!("page {index} of logical block {number} is lost (B2)"));
                }
            }
        }
        match (0..).zip(&owners).find(|(_, count)| **count != 1) {
            Some((block, count)) => broken(format!("{} has {count} owners (B1)", BlockId(block))),
            None => Ok(()),
        }
    }
}

impl<N: Nand> BlockMapped<N> {
    fn is_programmed(&self, page: Ppn) -> bool {
        let geometry = self.nand.geometry();
        geometry.index_of(page) < self.nand.next_page(geometry.block_of(page))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_flash::nand::{Bytes, preset};
    use esker_flash::{Geometry, NandSim};
    use esker_workload::Random;
    use std::collections::BTreeMap;

    fn device(blocks: u32, logs: usize) -> BlockMapped<NandSim<Bytes>> {
        let preset = preset("slc512").unwrap();
        let sizes = esker_flash::nand::Sizes {
            blocks_per_plane: blocks,
            pages_per_block: 8,
            ..preset.sizes
        };
        let nand = NandSim::with_clock(Geometry::new(sizes).unwrap(), preset.timing);
        BlockMapped::format(nand, logs).unwrap()
    }

    fn image(value: u64) -> Vec<u8> {
        value.to_le_bytes().repeat(64)
    }

    #[test]
    fn it_is_an_array_of_pages() {
        for (seed, logs) in [(1, 1), (2, 2), (3, 5)] {
            let (mut ftl, mut random) = (device(14, logs), Random::new(seed));
            let pages = u64::from(ftl.logical_pages());
            let (mut model, mut found) = (BTreeMap::new(), image(0));
            for step in 0..20_000 {
                // Runs of pages now and then, so that all kinds of merges happen.
                let (first, count) = match random.below(10) {
                    0 => (random.below(pages / 8) * 8, 8),
                    1 => (random.below(pages), 1 + random.below(12)),
                    _ => (random.below(pages), 1),
                };
                let is_trim = random.below(4) == 0;
                for page in first..(first + count).min(pages) {
                    if is_trim {
                        ftl.trim(Lpn(page as u32)).unwrap();
                        model.remove(&page);
                    } else {
                        ftl.write(Lpn(page as u32), &image(step)).unwrap();
                        model.insert(page, step);
                    }
                }
                let page = random.below(pages);
                let is_mapped = ftl.read(Lpn(page as u32), &mut found).unwrap();
                assert_eq!(is_mapped, model.contains_key(&page), "page {page}, step {step}");
                assert_eq!(found, image(model.get(&page).copied().unwrap_or_default()));
                if step % 100 == 0 {
                    ftl.check().unwrap();
                }
            }
            assert!(ftl.wear().min > 0, "all blocks are used in turn");
        }
    }

    #[test]
    fn sequential_writes_cost_programs_and_random_ones_cost_blocks() {
        let mut ftl = device(40, 2);
        let pages = ftl.logical_pages();
        for round in 0..3 {
            for page in 0..pages {
                ftl.write(Lpn(page), &image(round)).unwrap();
            }
        }
        let copies = ftl.counters().of(Cause::Gc).programs;
        assert_eq!(copies, 0, "blocks that are rewritten in order are exchanged");
        let mut random = Random::new(1);
        for _ in 0..1_000 {
            ftl.write(Lpn(random.below(u64::from(pages)) as u32), &image(9)).unwrap();
        }
        let copies = ftl.counters().of(Cause::Gc).programs;
        assert!(copies > 5_000, "{copies} copies for 1,000 random writes");
        ftl.check().unwrap();
    }

    #[test]
    fn a_lost_page_and_a_lost_block_are_found() {
        let mut ftl = device(14, 2);
        ftl.write(Lpn(0), &image(1)).unwrap();
        ftl.check().unwrap();
        let mut lost = ftl.clone();
        lost.logical[0].data = None;
        assert!(lost.check().unwrap_err().to_string().contains("B2"));
        let mut lost = ftl.clone();
        lost.free.pop_front();
        assert!(lost.check().unwrap_err().to_string().contains("B1"));
        ftl.logs.push_back(1);
        assert!(ftl.check().unwrap_err().to_string().contains("B3"));
    }

    #[test]
    fn devices_that_cannot_be_are_refused() {
        let nand = || device(14, 2).nand;
        assert!(BlockMapped::format(nand(), 0).is_err());
        assert!(BlockMapped::format(nand(), 12).is_err());
        assert!(BlockMapped::format(nand(), 11).is_ok());
        assert!(device(14, 2).read(Lpn(80), &mut image(0)).is_err());
    }
}
