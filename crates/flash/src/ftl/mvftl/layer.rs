//! The layer: what is programmed, in which order, and how room for it is made.
//!
//! Order of a commit: the pages of the transaction were programmed as they were written; then the
//! record with its mappings; then the diff is in the list, and what it replaces can become invalid.
//!
//! Order of a collection: the valid pages of the victim are copied; their owners, the main map or a
//! diff, get the new places; those that a restart must find are in a record; then the victim is
//! erased. (The paper does not say how moved pages survive a restart.)
//!
//! **The log** has four blocks. Three are filled. Then all mappings since the last dump of the map
//! are compacted into the fourth, if they take at most half of it, and the three are erased; the
//! mappings are taken from memory, which has the newest of each page, instead of read from pages
//! with empty space. Otherwise, the whole map is written and all four are erased.

use crate::error::{Error, Result};
use crate::ftl::mvftl::commit_log::{self, Mapping};
use crate::ftl::mvftl::versions::{ENTRY_BYTES, Moved, Versions, Writer};
use crate::ftl::transactional::levelling::{self, Due};
use crate::ftl::transactional::map_store::{self, MapStore};
use crate::ftl::transactional::ring::{self, Ring, Writing};
use crate::ftl::transactional::store::Store;
use crate::ftl::transactional::{self, Collection, NONE};
use crate::ftl::{self, HostCounters};
use crate::nand::{Cause, Geometry, Lpn, Nand, Ppn, Urgency};
use crate::planted::{self, Bug};

/// How a device is laid out. A recovery needs the options of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The number of logical pages, at least 1.
    pub logical_pages: u32,
    /// Memory for diffs in bytes, 16 for each mapping and 64 for each diff. The paper's device has
    /// 16 KiB. A write that needs more is refused.
    pub diff_bytes: u32,
    /// Whether a dump writes the whole map, as in the paper, or only the pages of it that changed.
    pub whole_dumps: bool,
    /// How data blocks are collected.
    pub collection: Collection,
}

/// The memory for diffs of the paper's device.
const DIFF_BYTES: u32 = 16 << 10;

impl Options {
    /// As on the paper's device, with spare pages as `common` says. Open blocks, the reserve, and
    /// blocks of the map and of the log are not spare; pinned versions and pages of open
    /// transactions are in it.
    ///
    /// `reserve_blocks` is not used: these layers keep one block in reserve.
    ///
    /// # Errors
    /// Sizes that leave no logical page.
    pub fn new(geometry: &Geometry, common: &ftl::Options) -> Result<Self> {
        let pages = map_store::spare_pages(geometry, common.spare_permille);
        let collection = Collection::from(common);
        let per_page = commit_log::per_page(geometry.page_size() as usize);
        // A transaction must fit into two blocks of the log.
        let held = (per_page as u64 * 2).saturating_mul(geometry.pages_per_block().into());
        let held = held.saturating_mul(ENTRY_BYTES as u64);
        let diff_bytes = DIFF_BYTES.min(u32::try_from(held).unwrap_or(u32::MAX));
        let mut options = Self { logical_pages: pages, diff_bytes, whole_dumps: true, collection };
        options.logical_pages = pages.min(options.most(geometry));
        options.require(geometry)?;
        Ok(options)
    }

    /// Diff entries that fit into memory.
    fn entries_max(&self) -> u32 {
        self.diff_bytes / ENTRY_BYTES as u32
    }

    /// The most logical pages, for as many of them as these options have.
    fn most(&self, geometry: &Geometry) -> u32 {
        map_store::data_pages(geometry, self.logical_pages).saturating_sub(self.entries_max())
    }

    pub(super) fn require(&self, geometry: &Geometry) -> Result<()> {
        let page_size = geometry.page_size() as usize;
        let per_block = u64::from(geometry.pages_per_block());
        let most = self.most(geometry);
        map_store::require_pages(self.logical_pages, most)?;
        let longest = self.entries_max().max(geometry.pages_per_block()) as usize;
        let pages = commit_log::pages_for(longest, page_size) as u64;
        if commit_log::per_page(page_size) == 0 || pages > 2 * per_block {
            return Err(Error::InvalidArgument(format!(
                "a transaction of {longest} pages has {pages} pages of log, two blocks have {}: \
                 use larger pages or blocks, or less memory for diffs",
                2 * per_block
            )));
        }
        if self.diff_bytes < 512 {
            return Err(Error::InvalidArgument(format!(
                "{} bytes for diffs: use 512 or more",
                self.diff_bytes
            )));
        }
        Ok(())
    }
}

/// What the layer has done besides programming what it was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Transactions committed, those of plain writes included; without those that wrote nothing.
    pub commits: u64,
    /// Pages of the log for them.
    pub commit_pages: u64,
    /// Pages of the log for what garbage collection moved.
    pub moved_pages: u64,
    /// Compactions of the log.
    pub compactions: u64,
    /// Pages of the log that they wrote.
    pub compaction_pages: u64,
    /// Dumps of the map.
    pub dumps: u64,
    /// Pages of the map that they wrote.
    pub dump_pages: u64,
    /// Writes that were refused for want of memory.
    pub refused: u64,
    /// The most mappings that diffs have had at one time.
    pub entries_max: u64,
}

/// The logical pages whose mappings are in the log.
#[derive(Clone, Debug)]
pub(super) struct Dirty {
    bits: Vec<u64>,
    count: usize,
}

impl Dirty {
    pub(super) fn new(logical_pages: u32) -> Self {
        Self { bits: vec![0; logical_pages.div_ceil(64) as usize], count: 0 }
    }

    pub(super) fn insert(&mut self, lpn: Lpn) {
        let Some(word) = self.bits.get_mut(lpn.0 as usize / 64) else { return };
        let bit = 1 << (lpn.0 % 64);
        self.count += usize::from(*word & bit == 0);
        *word |= bit;
    }

    fn clear(&mut self) {
        self.bits.fill(0);
        self.count = 0;
    }

    /// Ascending.
    fn iter(&self) -> impl Iterator<Item = Lpn> {
        let words = (0u32..).zip(&self.bits).filter(|(_, word)| **word != 0);
        words.flat_map(|(at, word)| {
            (0..64).filter(move |bit| word & (1 << bit) != 0).map(move |bit| Lpn(at * 64 + bit))
        })
    }
}

/// MV-FTL over flash.
#[derive(Clone, Debug)]
pub struct MvFtl<N> {
    pub(super) store: Store<N>,
    pub(super) versions: Versions,
    pub(super) ring: Ring,
    pub(super) map: MapStore,
    pub(super) dirty: Dirty,
    /// The transaction of plain writes.
    pub(super) plain: Writer,
    pub(super) host: HostCounters,
    pub(super) options: Options,
    pub(super) activity: Activity,
    /// A buffer of one page.
    pub(super) page: Vec<u8>,
}

impl<N: Nand> MvFtl<N> {
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
        Activity { entries_max: self.versions.entries_max() as u64, ..self.activity }
    }

    /// Committed diffs that are kept: 1 if no older version is read.
    pub fn committed_diffs(&self) -> usize {
        self.versions.committed()
    }

    /// Mappings in diffs, committed or not.
    pub fn diff_entries(&self) -> usize {
        self.versions.entries()
    }

    /// Memory of the paper's device that diffs use, in bytes.
    pub fn diff_bytes_used(&self) -> usize {
        self.versions.used_bytes()
    }

    /// Plain writes after which they are committed.
    fn plain_max(&self) -> usize {
        (self.options.entries_max() as usize / 4).max(1)
    }

    pub(super) fn require(&self, lpn: Lpn) -> Result<()> {
        ftl::require_lpn(lpn, self.options.logical_pages)
    }

    pub(super) fn require_open(&self, writer: Writer) -> Result<()> {
        if writer != self.plain && self.versions.is_open(writer) {
            return Ok(());
        }
        Err(transactional::unknown(writer))
    }

    /// Pages that nothing refers to any more.
    pub(super) fn bury(&mut self) {
        for page in self.versions.take_dead() {
            self.store.space.invalidate(page);
        }
    }

    /// Refuses a mapping that has no memory; otherwise the transaction that makes it. Without `tx`
    /// this is the one of plain writes.
    fn admit(&mut self, tx: Option<Writer>, lpn: Lpn) -> Result<Writer> {
        let mut admitted = self.versions.admit(tx.unwrap_or(self.plain), lpn);
        if admitted.is_err() && self.versions.written(self.plain) > 0 {
            self.commit_plain()?;
            admitted = self.versions.admit(tx.unwrap_or(self.plain), lpn);
        }
        self.bury();
        let writer = tx.unwrap_or(self.plain);
        admitted.map(|()| writer).map_err(|refused| {
            self.activity.refused += 1;
            Error::Refused(format!(
                "diffs use {} of {} bytes: commit, or end transactions that read old versions",
                refused.used, refused.limit
            ))
        })
    }

    /// Reads what a transaction sees.
    pub(super) fn read_as(&mut self, writer: Writer, lpn: Lpn, data: &mut [u8]) -> Result<bool> {
        self.host.reads += 1;
        match self.versions.read(writer, lpn) {
            Some(ppn) => self.store.read_data(ppn, lpn, data).map(|()| true),
            None => {
                data.fill(0);
                Ok(false)
            }
        }
    }

    /// Algorithm 1; without `tx` for a plain write.
    pub(super) fn write_as(&mut self, tx: Option<Writer>, lpn: Lpn, data: &[u8]) -> Result<()> {
        self.require(lpn)?;
        self.store.require_page_length(data.len())?;
        let writer = self.admit(tx, lpn)?;
        self.make_room()?;
        let ppn = self.store.program_data(lpn, data)?;
        self.versions.write(writer, lpn, ppn);
        self.bury();
        self.host.writes += 1;
        self.commit_plain_if_large()?;
        self.level()
    }

    /// Static wear levelling, between operations: a block for each one that the operation may have
    /// erased besides data blocks.
    fn level(&mut self) -> Result<()> {
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
        let versions = &self.versions;
        let newest = |lpn: Lpn| -> Ppn { versions.newest(lpn) };
        match levelling::level(&mut self.store, &mut self.ring, &mut self.map, &newest)? {
            Due::Nothing => return Ok(false),
            Due::Done => {}
            Due::TurnLog => self.turn_log()?,
            Due::Collect => self.collect()?,
        }
        Ok(true)
    }

    /// A plain trim.
    pub(super) fn trim_plain(&mut self, lpn: Lpn) -> Result<()> {
        self.require(lpn)?;
        self.host.trims += 1;
        if self.versions.read(self.plain, lpn).is_none() {
            return Ok(());
        }
        let writer = self.admit(None, lpn)?;
        self.versions.write(writer, lpn, NONE);
        self.bury();
        self.commit_plain_if_large()
    }

    fn commit_plain_if_large(&mut self) -> Result<()> {
        if self.versions.written(self.plain) < self.plain_max() {
            return Ok(());
        }
        self.commit_plain()
    }

    /// Commits plain writes.
    pub(super) fn commit_plain(&mut self) -> Result<()> {
        if self.versions.written(self.plain) == 0 {
            return Ok(());
        }
        let writer = self.plain;
        self.plain = self.versions.begin(false);
        self.commit_writer(writer)
    }

    /// Commits a transaction: its record, then its place in the list.
    pub(super) fn commit_writer(&mut self, writer: Writer) -> Result<()> {
        let mut mappings = self.versions.mappings(writer);
        if planted::is(Bug::TrimKept) {
            mappings.retain(|(_, ppn)| *ppn != NONE);
        }
        if !mappings.is_empty() {
            if !planted::is(Bug::CommitBeforeData) {
                self.store.release()?;
            }
            let pages = self.log(&mappings, Cause::Commit)?;
            self.store.release()?;
            self.activity.commits += 1;
            self.activity.commit_pages += pages;
        }
        self.versions.publish(writer);
        self.bury();
        self.level()
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
        // The record of the moved pages finds room, so that no dump of the map happens between
        // the copies and the erase: a part of one would leave valid pages in both blocks.
        let most = self.store.pages_per_block() as usize;
        self.make_log_room(commit_log::pages_for(most, self.page.len()) as u64)?;
        let versions = &self.versions;
        let (victim, moves) = self.store.collect(|ppn, lpn| versions.is_needed(ppn, lpn))?;
        let mut durable: Vec<Mapping> = Vec::new();
        for page in moves {
            if planted::is(Bug::GcForgetsOwner) {
                continue;
            }
            if self.versions.relocate(page.from, page.to, page.lpn) == Moved::Newest {
                durable.push((page.lpn, page.to));
            }
        }
        if !durable.is_empty() {
            self.activity.moved_pages += self.log(&durable, Cause::Map)?;
        }
        self.store.erase_victim(victim)
    }

    /// Appends a record to the log; its pages.
    fn log(&mut self, mappings: &[Mapping], cause: Cause) -> Result<u64> {
        let pages = commit_log::pages_for(mappings.len(), self.page.len()) as u64;
        self.make_log_room(pages)?;
        self.append(mappings, cause)?;
        Ok(pages)
    }

    fn append(&mut self, mappings: &[Mapping], cause: Cause) -> Result<()> {
        let entries: Vec<_> = mappings.iter().map(|mapping| commit_log::pack(*mapping)).collect();
        let sequence = self.store.next_sequence();
        let magic = commit_log::MAGIC;
        let record = Writing { magic, entries: &entries, sequence, cause };
        self.ring.append(&mut self.store, &mut self.page, &record)?;
        mappings.iter().for_each(|(lpn, _)| self.dirty.insert(*lpn));
        Ok(())
    }

    /// Makes room for so many pages of log, with one block left erased for a compaction.
    fn make_log_room(&mut self, pages: u64) -> Result<()> {
        let per_block = self.store.pages_per_block();
        if self.ring.room(per_block, 1) >= pages {
            return Ok(());
        }
        self.turn_log()?;
        if self.ring.room(per_block, 1) < pages {
            return Err(Error::Full("the blocks of the log are full".to_owned()));
        }
        Ok(())
    }

    /// Makes the blocks of the log obsolete, and erases them.
    fn turn_log(&mut self) -> Result<()> {
        let compacted = commit_log::pages_for(self.dirty.count, self.page.len());
        if compacted <= self.store.pages_per_block() as usize / 2 && self.ring.erased() > 0 {
            self.compact(compacted as u64)
        } else {
            self.dump()
        }
    }

    /// Writes the newest of all mappings in the log as one record, and erases the rest of the log.
    fn compact(&mut self, pages: u64) -> Result<()> {
        let newest: Vec<Mapping> =
            self.dirty.iter().map(|lpn| (lpn, self.versions.newest(lpn))).collect();
        if newest.is_empty() {
            return self.ring.recycle(&mut self.store, None);
        }
        self.ring.begin_block()?;
        self.append(&newest, Cause::Map)?;
        self.activity.compactions += 1;
        self.activity.compaction_pages += pages;
        let kept = self.ring.current();
        self.ring.recycle(&mut self.store, kept)
    }

    /// Writes the map, so that the whole log is obsolete.
    fn dump(&mut self) -> Result<()> {
        let pages: Vec<u32> = if self.options.whole_dumps {
            (0..self.map.pages()).collect()
        } else {
            let mut changed: Vec<_> = self.dirty.iter().map(|l| self.map.index_of(l)).collect();
            changed.dedup();
            changed
        };
        let versions = &self.versions;
        let newest = |lpn: Lpn| -> Ppn { versions.newest(lpn) };
        for page in &pages {
            self.map.write(&mut self.store, *page, &newest)?;
        }
        self.activity.dumps += 1;
        self.activity.dump_pages += pages.len() as u64;
        self.dirty.clear();
        self.ring.recycle(&mut self.store, None)
    }
}
