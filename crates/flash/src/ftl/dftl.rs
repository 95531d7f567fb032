//! DFTL: the map is on flash, and a cache of its entries in memory (Gupta, Kim, Urgaonkar, ASPLOS
//! 2009).
//!
//! A *translation page* holds the places of page size / 4 logical pages of one die. The directory,
//! where each translation page is, is in memory. A logical page whose entry is not cached costs a
//! read of its translation page; an entry that is evicted and not written costs a read and a
//! program of its translation page, which takes along all changed entries of that page.
//!
//! Garbage collection moves data and translation pages alike. The entry of a moved page that is not
//! cached waits in a buffer of a few blocks' entries, and is written together with others of its
//! translation page. A translation page is on the die of its logical pages, so that no collection
//! makes work for another die.
//!
//! **Differences from the paper.** Moved pages of both sorts share the block of garbage collection.
//! Logical pages and sequence numbers are in spare areas, so writes are durable without their
//! entries: a recovery reads all spare areas, and writes the translation pages that are behind. A
//! translation page records trims as the page-mapped layer's trim pages do: an entry that says "not
//! mapped" counts until a newer page is written.
//!
//! **The simulation** holds the whole map in memory, so that flash without data can be simulated:
//! the cache decides what an access costs. Where the flash keeps data, translation pages are real,
//! and every one that is read is compared with the map.

mod cache;
mod recovery;
mod tables;

use self::tables::Tables;
use super::map::{Map, Write, put, read};
use super::options::Options;
use super::pool::{Pool, Stream};
use super::{Ftl, HostCounters, Wear, gc, wear};
use crate::error::{Error, Result};
use crate::nand::{Cause, Geometry, Lpn, Nand, Urgency};
use crate::planted::{self, Bug};

/// The stream of host writes.
const HOST: Stream = Stream(0);
/// The stream of translation pages.
const TRANSLATION: Stream = Stream(1);
/// The number of streams.
const STREAMS: u32 = 2;
/// Blocks of each die that are set aside: open for the host, for translation pages and for
/// collection, and the one that is being emptied.
const SET_ASIDE: u32 = 4;

/// A layer whose map is on flash.
///
/// Memory of the simulation: that of the page-mapped layer, and about 40 bytes for each cached
/// entry. Of a device: [`Dftl::device_ram_bytes`].
#[derive(Clone, Debug)]
pub struct Dftl<N> {
    nand: N,
    pool: Pool,
    tables: Tables,
    /// The sequence number of the next page.
    seq: u64,
    host: HostCounters,
    lookups: Lookups,
    /// A translation page as it is read; empty where the flash keeps no data.
    buffer: Vec<u8>,
}

/// How the cache did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lookups {
    /// Entries that were in memory.
    pub hits: u64,
    /// Entries that were not.
    pub misses: u64,
}

/// How many slots there are, and how entries are laid out.
#[derive(Clone, Copy, Debug)]
struct Layout {
    logical: u32,
    translation_pages: u32,
    /// Entries of the cache.
    cached: u32,
    /// Entries that wait for their translation page although they are not cached.
    buffered: u32,
}

impl Layout {
    fn new(geometry: &Geometry, options: &Options, cache_permille: u32) -> Result<Self> {
        let slots = options.data_pages_per_die(geometry, SET_ASIDE)?;
        let entries = tables::entries_of_page(geometry);
        let translation = slots.div_ceil(entries + 1);
        let logical = slots.saturating_sub(translation) * geometry.dies();
        if logical == 0 {
            return Err(Error::Geometry(format!("{slots} pages for data: use more blocks")));
        }
        let cached = u64::from(logical) * u64::from(cache_permille.min(1_000)) / 1_000;
        Ok(Self {
            logical,
            translation_pages: translation * geometry.dies(),
            cached: cached.max(2) as u32,
            buffered: 4 * geometry.pages_per_block(),
        })
    }
}

impl<N: Nand> Dftl<N> {
    /// Makes an empty device of `nand`, with a cache of `cache_permille` entries for each 1,000
    /// logical pages (the paper has 5 to 30), 2 at least. Blocks that are not erased are.
    ///
    /// # Errors
    /// Options that leave no room for data, the power off.
    pub fn format(mut nand: N, options: &Options, cache_permille: u32) -> Result<Self> {
        let layout = Layout::new(nand.geometry(), options, cache_permille)?;
        super::scan::erase_all(&mut nand)?;
        let pool = Pool::new(&nand, options, STREAMS, &[]);
        let map = Map::new(layout.logical, layout.translation_pages, nand.geometry().pages());
        let tables = Tables::new(map, nand.geometry(), layout.cached, layout.buffered);
        Ok(Self::of(nand, pool, tables, 1))
    }

    /// Opens the device after a power cut, with the options that it was formatted with. Reads the
    /// spare areas of all pages, and writes the translation pages that are behind.
    ///
    /// # Errors
    /// [`Error::Foreign`] for pages of another layer or size, flash without data, a full device,
    /// the power off.
    pub fn recover(nand: N, options: &Options, cache_permille: u32) -> Result<Self> {
        recovery::recover(nand, options, cache_permille)
    }

    fn of(nand: N, pool: Pool, tables: Tables, seq: u64) -> Self {
        let page = if nand.keeps_data() { nand.geometry().page_size() } else { 0 };
        Self {
            nand,
            pool,
            tables,
            seq,
            host: HostCounters::default(),
            lookups: Lookups::default(),
            buffer: vec![0; page as usize],
        }
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

    /// How the cache did so far.
    #[must_use]
    pub const fn lookups(&self) -> Lookups {
        self.lookups
    }

    /// The memory that a device would need for its map: 8 bytes for each cached or waiting entry,
    /// and 4 for each translation page.
    #[must_use]
    pub fn device_ram_bytes(&self) -> u64 {
        self.tables.device_ram_bytes()
    }

    /// The steps of one logical page, in a scope of their own: what they wait for, other pages of
    /// the request do not.
    fn in_turn<T>(&mut self, steps: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let outer = self.nand.open_scope(Urgency::Foreground);
        let done = steps(self);
        self.nand.close_scope(outer);
        done
    }

    /// Brings the entry of a logical page into the cache. What follows waits for the read of its
    /// translation page, and until the entry that it evicts is written.
    fn look_up(&mut self, lpn: u32) -> Result<()> {
        if self.tables.touch(lpn) {
            self.lookups.hits += 1;
            return Ok(());
        }
        self.lookups.misses += 1;
        self.read_translation(self.tables.translation_page(lpn))?;
        if let Some(evicted) = self.tables.insert(lpn)
            && self.tables.is_behind(evicted)
        {
            self.nand.wait();
            self.write_back(self.tables.translation_page(evicted))?;
        }
        self.nand.wait();
        Ok(())
    }

    /// Reads a translation page, if it was ever written, and compares it with the map.
    fn read_translation(&mut self, index: u32) -> Result<()> {
        let Some(page) = self.tables.map.find(self.tables.map.map_slot(index)) else {
            return Ok(());
        };
        self.nand.read(page, &mut self.buffer, Cause::Map)?;
        if self.buffer.is_empty() { Ok(()) } else { self.tables.compare(index, &self.buffer) }
    }

    /// Writes a translation page with all entries that it is behind with, when its old version is
    /// read. Trims that it records are durable then.
    fn write_back(&mut self, index: u32) -> Result<()> {
        self.in_turn(|layer| layer.rewrite_translation(index))
    }

    fn rewrite_translation(&mut self, index: u32) -> Result<()> {
        let slot = self.tables.map.map_slot(index);
        let domain = self.nand.geometry().die_of_lpn(Lpn(slot));
        // Collections move pages: the entries are final afterwards.
        gc::make_room(&mut self.nand, &mut self.pool, &mut self.tables, domain, TRANSLATION)?;
        self.read_translation(index)?;
        self.nand.wait();
        let data = self.tables.content(index, self.nand.keeps_data());
        self.put(slot, &data, TRANSLATION, Cause::Map)?;
        for lpn in self.tables.written(index) {
            if let Some(page) = self.tables.map.unbind_trimmed(lpn) {
                self.pool.invalidate(page);
            }
        }
        Ok(())
    }

    /// Writes translation pages until no more entries wait than may.
    fn write_overdue(&mut self) -> Result<()> {
        while let Some(index) = self.tables.overdue() {
            self.write_back(index)?;
        }
        Ok(())
    }

    /// Programs the next version of a slot in a stream that has room.
    fn put(&mut self, slot: u32, data: &[u8], stream: Stream, cause: Cause) -> Result<()> {
        let write = Write { slot, data, seq: self.seq, stream, cause };
        put(&mut self.nand, &mut self.pool, &mut self.tables.map, write)?;
        self.seq += 1;
        Ok(())
    }

    fn require(&self, lpn: Lpn) -> Result<()> {
        super::require_lpn(lpn, self.tables.map.logical())
    }
}

impl<N: Nand> Ftl for Dftl<N> {
    fn logical_pages(&self) -> u32 {
        self.tables.map.logical()
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
        self.in_turn(|layer| {
            layer.look_up(lpn.0)?;
            layer.write_overdue()?;
            read(&mut layer.nand, &layer.tables.map, lpn, data)
        })
    }

    fn write(&mut self, lpn: Lpn, data: &[u8]) -> Result<()> {
        self.require(lpn)?;
        super::require_length(&self.nand, data.len())?;
        self.host.writes += 1;
        self.in_turn(|layer| {
            layer.look_up(lpn.0)?;
            let domain = layer.nand.geometry().die_of_lpn(lpn);
            gc::make_room(&mut layer.nand, &mut layer.pool, &mut layer.tables, domain, HOST)?;
            layer.put(lpn.0, data, HOST, Cause::Host)?;
            layer.tables.changed(lpn.0);
            layer.write_overdue()
        })
    }

    fn trim(&mut self, lpn: Lpn) -> Result<()> {
        self.require(lpn)?;
        self.host.trims += 1;
        self.in_turn(|layer| {
            layer.look_up(lpn.0)?;
            if layer.tables.map.trim(lpn.0) {
                layer.tables.trimmed(lpn.0);
                if planted::is(Bug::TrimFreedEarly)
                    && let Some(page) = layer.tables.map.unbind_trimmed(lpn.0)
                {
                    layer.pool.invalidate(page);
                }
            }
            layer.write_overdue()
        })
    }

    fn flush(&mut self) -> Result<()> {
        self.host.flushes += 1;
        while let Some(index) = self.tables.first_with_trims() {
            self.write_back(index)?;
        }
        self.write_overdue()
    }

    fn host(&self) -> HostCounters {
        self.host
    }

    fn wear(&self) -> Wear {
        wear::summary(&self.nand, self.nand.geometry().dies())
    }

    fn ram_bytes(&self) -> u64 {
        self.pool.ram_bytes() + self.tables.ram_bytes() + self.nand.ram_bytes()
    }

    fn check(&self) -> Result<()> {
        let map = &self.tables.map;
        map.check(&self.nand)?;
        self.pool.check(&self.nand, |block| map.count_valid(&self.nand, block))?;
        self.tables.check()
    }
}
