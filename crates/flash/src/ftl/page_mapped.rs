//! The page-mapped layer: a full map in memory, written out of place, any policy of garbage
//! collection.
//!
//! Logical page l is on die l mod dies, so that successive pages go to different channels. Each die
//! is a domain of garbage collection of its own. Host writes of each stream, and pages that garbage
//! collection moves, go to different blocks. The logical size follows from the spare pages
//! ([`Options`]): the open blocks of a die (one for each stream of the host, and one of garbage
//! collection), the one that is being emptied, its reserve, and the pages that record trims are not
//! spare.
//!
//! Every write is durable when it returns: its page has the logical page and a sequence number in
//! its spare area. A recovery reads all spare areas, writes nothing, and takes the newest page of
//! each slot. Trims are durable after a flush, in pages of their own (`trims`).

mod recovery;
mod trims;

use self::trims::Trims;
use super::map::{Map, Write, put, read};
use super::options::Options;
use super::pool::{Pool, Stream};
use super::{Ftl, HostCounters, Wear, gc, wear};
use crate::error::{Error, Result, invalid};
use crate::nand::{Cause, Geometry, Lpn, Nand};
use crate::planted::{self, Bug};

/// The stream of host writes without one, and of trims' pages.
const HOST: Stream = Stream(0);

/// A page-mapped layer.
///
/// Memory: 4 bytes for each logical and each flash page, and 40 for each block.
#[derive(Clone, Debug)]
pub struct PageMapped<N> {
    nand: N,
    pool: Pool,
    map: Map,
    trims: Trims,
    /// The last stream of the host.
    last_stream: Stream,
    /// The sequence number of the next page.
    seq: u64,
    host: HostCounters,
}

/// How many slots there are of each sort.
#[derive(Clone, Copy, Debug)]
struct Layout {
    streams: u32,
    logical: u32,
    trim_pages: u32,
}

impl Layout {
    fn new(geometry: &Geometry, options: &Options) -> Result<Self> {
        let streams = options.streams;
        if streams == 0 {
            return invalid("no streams: host writes need 1 or more");
        }
        // One open block for each stream, one for garbage collection, and one being emptied.
        let set_aside = streams.saturating_add(2);
        let slots = options.data_pages_per_die(geometry, set_aside)? * geometry.dies();
        let trim_pages = slots.div_ceil(Trims::bits_of_page(geometry));
        match slots.checked_sub(trim_pages) {
            Some(logical) if logical > 0 => Ok(Self { streams, logical, trim_pages }),
            _ => Err(Error::Geometry(format!("{slots} pages for data: use more blocks"))),
        }
    }

    const fn last_stream(self) -> Stream {
        Stream(self.streams - 1)
    }
}

impl<N: Nand> PageMapped<N> {
    /// Makes an empty device of `nand`. Blocks that are not erased are.
    ///
    /// # Errors
    /// Options that leave no room for data, the power off.
    pub fn format(mut nand: N, options: &Options) -> Result<Self> {
        let layout = Layout::new(nand.geometry(), options)?;
        super::scan::erase_all(&mut nand)?;
        let pool = Pool::new(&nand, options, layout.streams, &[]);
        let map = Map::new(layout.logical, layout.trim_pages, nand.geometry().pages());
        let trims = Trims::new(nand.geometry());
        let (last_stream, host) = (layout.last_stream(), HostCounters::default());
        Ok(Self { nand, pool, map, trims, last_stream, seq: 1, host })
    }

    /// Opens the device after a power cut, with the options that it was formatted with. Writes
    /// nothing. Reads the spare areas of all pages.
    ///
    /// # Errors
    /// [`Error::Foreign`] for pages of another layer or size, flash without data, the power off.
    pub fn recover(nand: N, options: &Options) -> Result<Self> {
        recovery::recover(nand, options)
    }

    /// The flash, as a power cut would leave it.
    #[must_use]
    pub fn into_nand(self) -> N {
        self.nand
    }

    /// The flash.
    #[must_use]
    pub const fn nand(&self) -> &N {
        &self.nand
    }

    /// The flash, to plan power cuts.
    pub const fn nand_mut(&mut self) -> &mut N {
        &mut self.nand
    }

    #[inline]
    fn put(&mut self, slot: u32, data: &[u8], stream: Stream, cause: Cause) -> Result<()> {
        let domain = self.nand.geometry().die_of_lpn(Lpn(slot));
        gc::make_room(&mut self.nand, &mut self.pool, &mut self.map, domain, stream)?;
        let write = Write { slot, data, seq: self.seq, stream, cause };
        put(&mut self.nand, &mut self.pool, &mut self.map, write)?;
        self.seq += 1;
        Ok(())
    }

    /// Makes all trims durable, then gives up the pages of what they trimmed.
    fn write_trims(&mut self) -> Result<()> {
        while let Some(index) = self.trims.first_dirty() {
            let page = self.trims.page(index, &self.map, self.nand.keeps_data());
            self.put(self.map.map_slot(index), &page, HOST, Cause::Map)?;
            self.trims.written(index);
        }
        for slot in self.trims.take_pending() {
            if let Some(page) = self.map.unbind_trimmed(slot) {
                self.pool.invalidate(page);
            }
        }
        Ok(())
    }

    fn require(&self, lpn: Lpn) -> Result<()> {
        super::require_lpn(lpn, self.map.logical())
    }
}

impl<N: Nand> Ftl for PageMapped<N> {
    fn logical_pages(&self) -> u32 {
        self.map.logical()
    }

    fn dyn_nand(&self) -> &dyn Nand {
        &self.nand
    }

    fn dyn_nand_mut(&mut self) -> &mut dyn Nand {
        &mut self.nand
    }

    fn read(&mut self, lpn: Lpn, data: &mut [u8]) -> Result<bool> {
        self.require(lpn)?;
        super::require_length(&self.nand, data.len())?;
        self.host.reads += 1;
        read(&mut self.nand, &self.map, lpn, data)
    }

    #[inline]
    fn write(&mut self, lpn: Lpn, data: &[u8]) -> Result<()> {
        self.write_in_stream(lpn, data, HOST)
    }

    #[inline]
    fn write_in_stream(&mut self, lpn: Lpn, data: &[u8], stream: Stream) -> Result<()> {
        self.require(lpn)?;
        super::require_length(&self.nand, data.len())?;
        self.host.writes += 1;
        let stream = stream.min(self.last_stream);
        self.put(lpn.0, data, stream, Cause::Host)
    }

    fn streams(&self) -> u32 {
        self.last_stream.0 + 1
    }

    fn trim(&mut self, lpn: Lpn) -> Result<()> {
        self.require(lpn)?;
        self.host.trims += 1;
        if !self.map.trim(lpn.0) {
            return Ok(());
        }
        let is_due = self.trims.add(lpn.0);
        if planted::is(Bug::TrimFreedEarly)
            && let Some(page) = self.map.unbind_trimmed(lpn.0)
        {
            self.pool.invalidate(page);
        }
        if is_due {
            self.write_trims()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.host.flushes += 1;
        self.write_trims()
    }

    fn host(&self) -> HostCounters {
        self.host
    }

    fn wear(&self) -> Wear {
        wear::summary(&self.nand, self.nand.geometry().dies())
    }

    fn ram_bytes(&self) -> u64 {
        let layer = self.pool.ram_bytes() + self.map.ram_bytes() + self.trims.ram_bytes();
        layer + self.nand.ram_bytes()
    }

    fn check(&self) -> Result<()> {
        self.map.check(&self.nand)?;
        self.pool.check(&self.nand, |block| self.map.count_valid(&self.nand, block))?;
        self.trims.check(&self.map)
    }
}
