//! The layer: what is programmed, in which order.
//!
//! Order of a commit: the pages of the transaction were programmed as they were written; then the
//! whole table, on new pages, with the transaction's entries marked as committed; then the main map
//! has its mappings, and what they replace is invalid.
//!
//! **The main map** is written lazily: a mapping that flash does not have is noted in the table, as
//! a committed entry. When the table is full, the pages of the map that changed are written and all
//! committed entries dropped (a checkpoint). Before a block is erased, and when the host flushes,
//! the table is written if it has new notes, or a checkpoint is made if it had no room for them.
//! (The papers do not say how plain writes and pages that garbage collection moved survive a
//! restart.)

use std::collections::BTreeSet;

use crate::error::{Error, Result};
use crate::ftl::transactional::levelling::{self, Due};
use crate::ftl::transactional::map_store::{self, MapStore};
use crate::ftl::transactional::record;
use crate::ftl::transactional::ring::{self, Ring, Writing};
use crate::ftl::transactional::store::Store;
use crate::ftl::transactional::{self, Collection, NONE};
use crate::ftl::xftl::table::{self, ENTRY_BYTES, Table, Writer};
use crate::ftl::{self, HostCounters};
use crate::nand::{BlockId, Cause, Geometry, Lpn, Nand, Ppn, Urgency};
use crate::planted::{self, Bug};

/// How a device is laid out. A recovery needs the options of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The number of logical pages, at least 1.
    pub logical_pages: u32,
    /// Entries of the X-L2P table, 16 bytes each; the paper's has 500 to 1,000. A transaction that
    /// needs more is refused.
    pub table_entries: u32,
    /// How data blocks are collected.
    pub collection: Collection,
}

/// The entries of the paper's table.
const TABLE_ENTRIES: u32 = 1000;

impl Options {
    /// A table of 1,000 entries, or of as many as a block holds, with spare pages as `common` says.
    /// Open blocks, the reserve, and blocks of the map and of the table are not spare; pages of
    /// open transactions are in it.
    ///
    /// `reserve_blocks` is not used: these layers keep one block in reserve.
    ///
    /// # Errors
    /// Sizes that leave no logical page.
    pub fn new(geometry: &Geometry, common: &ftl::Options) -> Result<Self> {
        let pages = map_store::spare_pages(geometry, common.spare_permille);
        let collection = Collection::from(common);
        let per_page = record::per_page::<ENTRY_BYTES>(geometry.page_size() as usize);
        let held = (per_page as u64).saturating_mul(geometry.pages_per_block().into());
        let table_entries = TABLE_ENTRIES.min(u32::try_from(held).unwrap_or(u32::MAX));
        let mut options = Self { logical_pages: pages, table_entries, collection };
        options.logical_pages = pages.min(options.most(geometry));
        options.require(geometry)?;
        Ok(options)
    }

    /// The most logical pages, for as many of them as these options have.
    fn most(&self, geometry: &Geometry) -> u32 {
        map_store::data_pages(geometry, self.logical_pages).saturating_sub(self.table_entries)
    }

    pub(super) fn require(&self, geometry: &Geometry) -> Result<()> {
        let most = self.most(geometry);
        map_store::require_pages(self.logical_pages, most)?;
        let page_size = geometry.page_size() as usize;
        let pages = record::pages_for::<ENTRY_BYTES>(self.table_entries as usize, page_size);
        let has_room = record::per_page::<ENTRY_BYTES>(page_size) > 0;
        if self.table_entries == 0 || !has_room || pages > geometry.pages_per_block() as usize {
            return Err(Error::InvalidArgument(format!(
                "a table of {} entries: use 1 or more, and at most a block of {} pages",
                self.table_entries,
                geometry.pages_per_block()
            )));
        }
        Ok(())
    }
}

/// What the layer has done besides programming what it was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Transactions committed, without those that wrote nothing.
    pub commits: u64,
    /// Pages of the table for them.
    pub commit_pages: u64,
    /// Pages of the table for flushes and garbage collection.
    pub noted_pages: u64,
    /// Checkpoints of the map.
    pub checkpoints: u64,
    /// Pages of the map that they wrote.
    pub map_pages: u64,
    /// Writes that were refused because the table was full.
    pub refused: u64,
    /// The most entries that the table has had at one time.
    pub entries_max: u64,
}

/// X-FTL over flash.
#[derive(Clone, Debug)]
pub struct XFtl<N> {
    pub(super) store: Store<N>,
    pub(super) table: Table,
    /// The main map.
    pub(super) main: Vec<Ppn>,
    pub(super) ring: Ring,
    pub(super) map: MapStore,
    /// The pages of the map that differ from those on flash.
    pub(super) changed: BTreeSet<u32>,
    /// Whether the table has notes that the one on flash has not.
    pub(super) is_unsaved: bool,
    /// Whether the table had no room for a note, or has more entries than it may.
    pub(super) is_overfull: bool,
    /// The block in which the newest table on flash begins.
    pub(super) newest: Option<BlockId>,
    pub(super) host: HostCounters,
    pub(super) options: Options,
    pub(super) activity: Activity,
    /// A buffer of one page.
    pub(super) page: Vec<u8>,
}

impl<N: Nand> XFtl<N> {
    /// The flash below.
    pub fn into_nand(self) -> N {
        self.store.nand
    }

    /// The flash below.
    pub const fn nand(&self) -> &N {
        &self.store.nand
    }

    /// The flash below, to plan a power cut. What is programmed or erased behind the layer's back
    /// breaks it.
    pub const fn nand_mut(&mut self) -> &mut N {
        &mut self.store.nand
    }

    /// What the layer has done.
    pub fn activity(&self) -> Activity {
        Activity { entries_max: self.table.entries_max() as u64, ..self.activity }
    }

    /// Entries of the table.
    pub fn table_entries(&self) -> usize {
        self.table.entries()
    }

    pub(super) fn require(&self, lpn: Lpn) -> Result<()> {
        ftl::require_lpn(lpn, self.options.logical_pages)
    }

    pub(super) fn require_open(&self, writer: Writer) -> Result<()> {
        if self.table.is_open(writer) {
            return Ok(());
        }
        Err(transactional::unknown(writer))
    }

    pub(super) fn mapped(&self, lpn: Lpn) -> Ppn {
        self.main.get(lpn.0 as usize).copied().unwrap_or(NONE)
    }

    /// Reads a page where it is.
    pub(super) fn read_at(&mut self, ppn: Ppn, lpn: Lpn, data: &mut [u8]) -> Result<bool> {
        self.host.reads += 1;
        if ppn == NONE {
            data.fill(0);
            return Ok(false);
        }
        self.store.read_data(ppn, lpn, data).map(|()| true)
    }

    /// Gives a page another place in the main map, and answers the one it had.
    fn set_main(&mut self, lpn: Lpn, ppn: Ppn) -> Ppn {
        self.changed.insert(self.map.index_of(lpn));
        match self.main.get_mut(lpn.0 as usize) {
            Some(place) => std::mem::replace(place, ppn),
            None => NONE,
        }
    }

    fn invalidate(&mut self, ppn: Ppn) {
        if ppn != NONE {
            self.store.space.invalidate(ppn);
        }
    }

    /// Notes a mapping of the main map that flash does not have.
    fn note(&mut self, lpn: Lpn, ppn: Ppn) {
        let sequence = self.store.next_sequence();
        self.is_unsaved = true;
        self.is_overfull |= !self.table.note(lpn, ppn, sequence);
    }

    /// A plain write.
    pub(super) fn write_plain(&mut self, lpn: Lpn, data: &[u8]) -> Result<()> {
        self.require(lpn)?;
        self.store.require_page_length(data.len())?;
        self.make_room()?;
        let ppn = self.store.program_data(lpn, data)?;
        let old = self.set_main(lpn, ppn);
        self.invalidate(old);
        self.note(lpn, ppn);
        self.host.writes += 1;
        self.level()
    }

    /// A plain trim.
    pub(super) fn trim_plain(&mut self, lpn: Lpn) -> Result<()> {
        self.require(lpn)?;
        self.host.trims += 1;
        if self.mapped(lpn) == NONE {
            return Ok(());
        }
        let old = self.set_main(lpn, NONE);
        self.invalidate(old);
        self.note(lpn, NONE);
        Ok(())
    }

    /// A write of a transaction.
    pub(super) fn write_open(&mut self, writer: Writer, lpn: Lpn, data: &[u8]) -> Result<()> {
        self.require(lpn)?;
        self.store.require_page_length(data.len())?;
        self.make_room()?;
        // Committed entries, such as those of a collection, make room for those of transactions.
        if !self.table.admits(writer, lpn) {
            self.checkpoint()?;
        }
        if !self.table.admits(writer, lpn) {
            self.activity.refused += 1;
            let what =
                format!("open transactions fill the {} entries of X-L2P", self.table.limit());
            return Err(Error::Refused(format!("{what}: commit or abort one")));
        }
        let ppn = self.store.program_data(lpn, data)?;
        let old = self.table.write(writer, lpn, ppn);
        self.invalidate(old.unwrap_or(NONE));
        self.host.writes += 1;
        self.level()
    }

    /// Commits a transaction.
    pub(super) fn commit_writer(&mut self, writer: Writer) -> Result<()> {
        if self.table.written(writer) == 0 {
            self.table.abort(writer);
            return Ok(());
        }
        if !planted::is(Bug::CommitBeforeData) {
            self.store.release()?;
        }
        self.make_ring_room(0)?;
        let sequence = self.store.next_sequence();
        let mappings = self.table.commit(writer, sequence);
        self.activity.commit_pages += self.append_table(Cause::Commit)?;
        self.activity.commits += 1;
        self.store.release()?;
        for (lpn, ppn) in mappings {
            let old = self.set_main(lpn, ppn);
            self.invalidate(old);
        }
        self.level()
    }

    /// Static wear levelling, between operations: a block for each one that the operation may have
    /// erased besides data blocks.
    pub(super) fn level(&mut self) -> Result<()> {
        let outer = self.store.nand.open_scope(Urgency::Background);
        for _ in 0..ring::BLOCKS {
            if !self.level_block()? {
                break;
            }
        }
        self.store.nand.close_scope(outer);
        Ok(())
    }

    /// Acts on the block that is behind in erases; answers whether there is one.
    fn level_block(&mut self) -> Result<bool> {
        let main = &self.main;
        let newest = |lpn: Lpn| main.get(lpn.0 as usize).copied().unwrap_or(NONE);
        match levelling::level(&mut self.store, &mut self.ring, &mut self.map, &newest)? {
            Due::Nothing => return Ok(false),
            Due::Done => {}
            Due::TurnLog => {
                self.checkpoint()?;
                self.ring.recycle(&mut self.store, None)?;
            }
            Due::Collect => self.collect()?,
        }
        Ok(true)
    }

    /// Drops a transaction.
    pub(super) fn abort_writer(&mut self, writer: Writer) {
        for page in self.table.abort(writer) {
            self.invalidate(page);
        }
    }

    /// Makes all mappings of the main map durable.
    pub(super) fn save(&mut self) -> Result<()> {
        self.store.release()?;
        if self.is_overfull {
            return self.checkpoint();
        }
        if self.is_unsaved {
            self.make_ring_room(0)?;
        }
        // Room may have been made by a checkpoint.
        if self.is_unsaved {
            self.activity.noted_pages += self.append_table(Cause::Map)?;
        }
        Ok(())
    }

    /// Programs the table; its pages. There is room.
    fn append_table(&mut self, cause: Cause) -> Result<u64> {
        let keeps = |entry: &table::Entry| !planted::is(Bug::TrimKept) || entry.ppn != NONE;
        let entries: Vec<_> = self.table.image().filter(keeps).map(|entry| entry.pack()).collect();
        self.is_unsaved = false;
        if entries.is_empty() {
            return Ok(0);
        }
        let sequence = self.store.next_sequence();
        let record = Writing { magic: table::MAGIC, entries: &entries, sequence, cause };
        self.newest = self.ring.append(&mut self.store, &mut self.page, &record)?;
        Ok(record::pages_for::<ENTRY_BYTES>(entries.len(), self.page.len()) as u64)
    }

    /// Makes room for the table and so many entries more in its blocks; a checkpoint makes all of
    /// them obsolete.
    fn make_ring_room(&mut self, more: usize) -> Result<()> {
        let per_block = self.store.pages_per_block();
        let entries = self.table.entries().saturating_add(more);
        let pages = record::pages_for::<ENTRY_BYTES>(entries, self.page.len()) as u64;
        if self.ring.room(per_block, 0) >= pages {
            return Ok(());
        }
        self.ring.recycle(&mut self.store, self.newest)?;
        if self.ring.room(per_block, 0) >= pages {
            return Ok(());
        }
        self.checkpoint()?;
        self.ring.recycle(&mut self.store, None)
    }

    /// Writes the pages of the map that changed, so that no committed entry is needed.
    pub(super) fn checkpoint(&mut self) -> Result<()> {
        self.store.release()?;
        let main = &self.main;
        let newest = |lpn: Lpn| main.get(lpn.0 as usize).copied().unwrap_or(NONE);
        for index in &self.changed {
            self.map.write(&mut self.store, *index, &newest)?;
        }
        self.activity.checkpoints += 1;
        self.activity.map_pages += self.changed.len() as u64;
        self.changed.clear();
        self.table.forget_committed();
        (self.is_unsaved, self.is_overfull, self.newest) = (false, false, None);
        Ok(())
    }

    /// Collects blocks until a data page can be programmed. The request waits for the die of its
    /// page alone.
    fn make_room(&mut self) -> Result<()> {
        if !self.store.space.is_short() {
            return Ok(());
        }
        let outer = self.store.nand.open_scope(Urgency::Background);
        while self.store.space.is_short() {
            self.collect()?;
        }
        self.store.nand.close_scope(outer);
        Ok(())
    }

    /// Collects a block.
    fn collect(&mut self) -> Result<()> {
        // The table finds room for all notes, so that no checkpoint happens between the copies
        // and the erase: a part of one would leave valid pages in both blocks.
        if self.is_overfull {
            self.checkpoint()?;
        }
        self.make_ring_room(self.store.pages_per_block() as usize)?;
        let (table, main) = (&self.table, &self.main);
        let in_main = |ppn: Ppn, lpn: Lpn| main.get(lpn.0 as usize) == Some(&ppn);
        // By the main map or by X-L2P.
        let is_needed = |ppn: Ppn, lpn: Lpn| {
            in_main(ppn, lpn) || (!planted::is(Bug::GcForgetsVersion) && table.has(ppn))
        };
        let (victim, moves) = self.store.collect(is_needed)?;
        for page in moves {
            if planted::is(Bug::GcForgetsOwner) {
                continue;
            }
            if !self.table.relocate(page.from, page.to, page.lpn) {
                self.set_main(page.lpn, page.to);
                let sequence = self.store.next_sequence();
                self.table.note_moved(page.lpn, page.to, sequence);
                self.is_unsaved = true;
            }
        }
        self.save()?;
        self.store.erase_victim(victim)?;
        if self.table.entries() > self.table.limit() {
            self.checkpoint()?;
        }
        Ok(())
    }
}
