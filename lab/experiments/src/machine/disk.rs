//! The device: blocks of the file system over a translation layer whose pages are twice as large,
//! in virtual time.
//!
//! **Time.** One processor serves commands one after the other, each for [`COMMAND_NS`]; then a
//! write is in the device's buffer and is answered, and its page is programmed when its die is
//! free. The buffer holds 64 pages. A read is answered with its data. A flush and a
//! commit are answered when everything before them is programmed, and their own records; until then
//! no other command is served, as in firmware with one thread. So commands are served in the order
//! of their times.
//!
//! A block that is half of a flash page costs a read of the page, and a program of the whole.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use esker_flash::ftl::{Ftl, Options, PageMapped, Transactional, TxId, mvftl, xftl};
use esker_flash::nand::{Bytes, Counters, Geometry, Lpn, NandSim, preset};
use esker_flash::{Error, Result};

/// Bytes of a block of the file system.
pub const BLOCK_BYTES: usize = 4096;
/// Bytes of a flash page: those of the paper's device, and a page of SQLite.
pub const PAGE_BYTES: usize = 8192;
/// Blocks of a flash page.
pub const PAGE_BLOCKS: u32 = (PAGE_BYTES / BLOCK_BYTES) as u32;

/// The time of a command, without the flash: about 8,700 cycles of the paper's processor (an ARM7
/// at 87.5 MHz), in which 8 KiB also pass over SATA 2 (27 µs).
pub const COMMAND_NS: u64 = 100_000;
/// MV-FTL's memory for diffs: 4,096 mappings. The paper's 16 KiB suffice without readers. Beside
/// readers, who keep the diffs of versions, they do not: transactions of the RL script have up to
/// some 500 pages here, and two in a row were refused from 14 reads a second on.
const DIFF_BYTES: u32 = 64 << 10;
/// Memory of a mapping in a diff.
const ENTRY_BYTES: u32 = 16;
/// Pages that the device's buffer holds while they are programmed.
const BUFFERED: usize = 64;

/// Why a block is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The content of a file.
    Data,
    /// The file system's journal.
    Journal,
    /// Metadata of the file system, at its place.
    Metadata,
}

/// What the host has written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostWrites {
    /// Blocks, by purpose.
    pub blocks: [u64; 3],
    /// Flushes and commits.
    pub barriers: u64,
}

impl HostWrites {
    /// Blocks that were written for a purpose.
    #[must_use]
    pub const fn of(&self, purpose: Purpose) -> u64 {
        self.blocks[purpose as usize]
    }

    /// All blocks.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.blocks.iter().sum()
    }
}

type Nand = NandSim<Bytes>;

/// A layer, with or without transactions.
#[derive(Debug)]
pub enum Layer {
    /// Pages that are overwritten one by one.
    PageMapped(Box<PageMapped<Nand>>),
    /// Atomic transactions.
    XFtl(Box<xftl::XFtl<Nand>>),
    /// Transactions with versions.
    MvFtl(Box<mvftl::MvFtl<Nand>>),
}

/// Which layer a device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerKind {
    /// See [`Layer::PageMapped`].
    PageMapped,
    /// See [`Layer::XFtl`].
    XFtl,
    /// See [`Layer::MvFtl`].
    MvFtl,
}

impl Layer {
    /// An empty device like the paper's, with so many blocks of 1 MiB on each of its eight dies.
    ///
    /// # Errors
    /// A device that is too small for the layer.
    pub fn new(kind: LayerKind, blocks_per_die: u32) -> Result<Self> {
        let jasmine = preset("jasmine")?;
        let geometry: Geometry = jasmine.geometry(Some(blocks_per_die))?;
        let nand = Nand::with_clock(geometry, jasmine.timing);
        let common = Options::default();
        Ok(match kind {
            LayerKind::PageMapped => Self::PageMapped(Box::new(PageMapped::format(nand, &common)?)),
            LayerKind::XFtl => {
                let options = xftl::Options::new(&geometry, &common)?;
                Self::XFtl(Box::new(xftl::XFtl::format(nand, options)?))
            }
            LayerKind::MvFtl => {
                let paper = mvftl::Options::new(&geometry, &common)?;
                // Pages of open transactions and of versions are spare ones.
                let more = DIFF_BYTES.saturating_sub(paper.diff_bytes) / ENTRY_BYTES;
                let logical_pages = paper.logical_pages.saturating_sub(more);
                let options = mvftl::Options { diff_bytes: DIFF_BYTES, logical_pages, ..paper };
                Self::MvFtl(Box::new(mvftl::MvFtl::format(nand, options)?))
            }
        })
    }

    fn ftl(&mut self) -> &mut dyn Ftl {
        match self {
            Self::PageMapped(layer) => &mut **layer,
            Self::XFtl(layer) => &mut **layer,
            Self::MvFtl(layer) => &mut **layer,
        }
    }

    /// The same, to look at.
    #[must_use]
    pub fn as_ftl(&self) -> &dyn Ftl {
        match self {
            Self::PageMapped(layer) => &**layer,
            Self::XFtl(layer) => &**layer,
            Self::MvFtl(layer) => &**layer,
        }
    }

    fn transactional(&mut self) -> Result<&mut dyn Transactional> {
        match self {
            Self::PageMapped(_) => {
                Err(Error::InvalidArgument("this layer has no transactions: use another".into()))
            }
            Self::XFtl(layer) => Ok(&mut **layer),
            Self::MvFtl(layer) => Ok(&mut **layer),
        }
    }

    /// Mappings in diffs, or in the table of X-FTL, committed ones included.
    fn entries(&self) -> usize {
        match self {
            Self::PageMapped(_) => 0,
            Self::XFtl(layer) => layer.table_entries(),
            Self::MvFtl(layer) => layer.diff_entries(),
        }
    }

    /// Writes of transactions that were refused for want of memory.
    #[must_use]
    pub fn refused(&self) -> u64 {
        match self {
            Self::PageMapped(_) => 0,
            Self::XFtl(layer) => layer.activity().refused,
            Self::MvFtl(layer) => layer.activity().refused,
        }
    }
}

/// The device.
#[derive(Debug)]
pub struct Disk {
    layer: Layer,
    /// When the processor is free.
    free_ns: u64,
    /// When the pages in the buffer are programmed, in the order of their commands.
    buffer: VecDeque<u64>,
    /// When everything that was written is programmed.
    programmed_ns: u64,
    writes: HostWrites,
    transactions: Transactions,
    page: Vec<u8>,
}

/// What transactions took of the layer's memory.
#[derive(Clone, Debug, Default)]
struct Transactions {
    /// The pages that each open transaction has written.
    written: BTreeMap<TxId, BTreeSet<Lpn>>,
    /// The most pages of one.
    largest: u64,
    /// The most mappings at one time.
    entries_max: u64,
}

impl Disk {
    /// The device of a layer.
    #[must_use]
    pub fn new(layer: Layer) -> Self {
        Self {
            layer,
            free_ns: 0,
            buffer: VecDeque::new(),
            programmed_ns: 0,
            writes: HostWrites::default(),
            transactions: Transactions::default(),
            page: vec![0; PAGE_BYTES],
        }
    }

    /// The layer.
    #[must_use]
    pub const fn layer(&self) -> &Layer {
        &self.layer
    }

    /// Blocks of the file system that it has.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        self.layer.as_ftl().logical_pages().saturating_mul(PAGE_BLOCKS)
    }

    /// The most mappings at the end of a transaction, and the most pages of one.
    #[must_use]
    pub const fn entries(&self) -> (u64, u64) {
        (self.transactions.entries_max, self.transactions.largest)
    }

    /// What the host has written.
    #[must_use]
    pub const fn writes(&self) -> HostWrites {
        self.writes
    }

    /// The operations on flash.
    #[must_use]
    pub fn flash(&self) -> Counters {
        *self.layer.as_ftl().counters()
    }

    /// Serves a command that comes at `now`; when its flash operations begin.
    fn command(&mut self, now: u64) -> u64 {
        self.free_ns = self.free_ns.max(now) + COMMAND_NS;
        self.layer.ftl().issue_at(self.free_ns);
        self.free_ns
    }

    /// Reads the page of the buffer of this device, as a transaction sees it.
    fn load(&mut self, lpn: Lpn, tx: Option<TxId>) -> Result<()> {
        match tx {
            Some(tx) => self.layer.transactional()?.read_in(tx, lpn, &mut self.page)?,
            None => self.layer.ftl().read(lpn, &mut self.page)?,
        };
        Ok(())
    }

    /// Reads blocks from `block` on, as a transaction sees them; when they are there.
    ///
    /// # Errors
    /// Those of the layer.
    pub fn read(&mut self, now: u64, block: u32, buf: &mut [u8], tx: Option<TxId>) -> Result<u64> {
        let mut end = now;
        for part in parts(block, buf.len()) {
            self.command(now);
            self.load(part.lpn, tx)?;
            end = end.max(self.layer.ftl().end_ns());
            let from = self.page.get(part.at..part.at + part.len).unwrap_or_default();
            if let Some(to) = buf.get_mut(part.from..part.from + part.len) {
                to.copy_from_slice(from);
            }
        }
        Ok(end)
    }

    /// Writes whole blocks from `block` on, in a transaction or outside; when the device has them.
    ///
    /// # Errors
    /// Those of the layer.
    pub fn write(
        &mut self,
        now: u64,
        (purpose, block): (Purpose, u32),
        bytes: &[u8],
        tx: Option<TxId>,
    ) -> Result<u64> {
        let mut end = now;
        for part in parts(block, bytes.len()) {
            let has_room = |buffer: &VecDeque<u64>| buffer.len() < BUFFERED;
            let room_at = if has_room(&self.buffer) { None } else { self.buffer.pop_front() };
            end = self.command(now.max(room_at.unwrap_or(0)));
            if part.len < PAGE_BYTES {
                self.load(part.lpn, tx)?;
                let read = self.layer.ftl().end_ns();
                self.layer.ftl().issue_at(read);
                self.free_ns = self.free_ns.max(read);
                end = self.free_ns;
            }
            let from = bytes.get(part.from..part.from + part.len).unwrap_or_default();
            if let Some(to) = self.page.get_mut(part.at..part.at + part.len) {
                to.copy_from_slice(from);
            }
            match tx {
                Some(tx) => {
                    self.layer.transactional()?.write_in(tx, part.lpn, &self.page)?;
                    self.transactions.written.entry(tx).or_default().insert(part.lpn);
                }
                None => self.layer.ftl().write(part.lpn, &self.page)?,
            }
            let programmed = self.layer.ftl().end_ns();
            self.programmed_ns = self.programmed_ns.max(programmed);
            self.buffer.push_back(programmed);
        }
        self.writes.blocks[purpose as usize] += bytes.len().div_ceil(BLOCK_BYTES) as u64;
        Ok(end)
    }

    /// Makes everything durable that was written outside of transactions; when it is.
    ///
    /// # Errors
    /// Those of the layer.
    pub fn flush(&mut self, now: u64) -> Result<u64> {
        self.barrier(now, |layer| layer.ftl().flush())
    }

    /// Begins a transaction, as of the commands before; and when.
    ///
    /// # Errors
    /// Those of the layer.
    pub fn begin(&mut self, now: u64) -> Result<(TxId, u64)> {
        let begun = self.command(now);
        let tx = self.layer.transactional()?.begin()?;
        Ok((tx, begun.max(self.layer.ftl().end_ns())))
    }

    /// Commits a transaction; when it is durable.
    ///
    /// # Errors
    /// Those of the layer.
    pub fn commit(&mut self, now: u64, tx: TxId) -> Result<u64> {
        let pages = self.transactions.written.remove(&tx).map_or(0, |pages| pages.len());
        let of = &mut self.transactions;
        of.largest = of.largest.max(pages as u64);
        of.entries_max = of.entries_max.max(self.layer.entries() as u64);
        self.barrier(now, |layer| layer.transactional()?.commit(tx))
    }

    /// Ends a transaction: what it wrote is dropped.
    ///
    /// # Errors
    /// Those of the layer.
    pub fn abort(&mut self, now: u64, tx: TxId) -> Result<u64> {
        let begun = self.command(now);
        self.transactions.written.remove(&tx);
        self.layer.transactional()?.abort(tx)?;
        Ok(begun)
    }

    fn barrier(&mut self, now: u64, body: impl FnOnce(&mut Layer) -> Result<()>) -> Result<u64> {
        self.command(now.max(self.programmed_ns.saturating_sub(COMMAND_NS)));
        body(&mut self.layer)?;
        self.programmed_ns = self.programmed_ns.max(self.layer.ftl().end_ns());
        self.free_ns = self.free_ns.max(self.programmed_ns);
        self.buffer.clear();
        self.writes.barriers += 1;
        Ok(self.free_ns)
    }
}

/// The part of a range of blocks that is in one flash page.
struct Part {
    lpn: Lpn,
    /// Its offset in the page.
    at: usize,
    /// Its offset in the range.
    from: usize,
    len: usize,
}

fn parts(block: u32, bytes: usize) -> impl Iterator<Item = Part> {
    let first = (block % PAGE_BLOCKS) as usize * BLOCK_BYTES;
    let mut from = 0;
    let mut lpn = block / PAGE_BLOCKS;
    std::iter::from_fn(move || {
        let at = if from == 0 { first } else { 0 };
        let len = (PAGE_BYTES - at).min(bytes - from);
        let part = Part { lpn: Lpn(lpn), at, from, len };
        from += len;
        lpn += 1;
        (len > 0).then_some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(kind: LayerKind) -> Disk {
        Disk::new(Layer::new(kind, 16).unwrap())
    }

    #[test]
    fn halves_of_pages_are_read_and_programmed_whole() {
        let mut disk = disk(LayerKind::PageMapped);
        disk.write(0, (Purpose::Data, 2), &[7; 3 * BLOCK_BYTES], None).unwrap();
        assert_eq!(disk.flash().total().programs, 2);
        disk.write(0, (Purpose::Journal, 4), &[8; BLOCK_BYTES], None).unwrap();
        assert_eq!((disk.writes().blocks, disk.writes().total()), ([3, 1, 0], 4));
        let mut read = vec![0; 4 * BLOCK_BYTES];
        disk.read(0, 2, &mut read, None).unwrap();
        assert_eq!((read[0], read[BLOCK_BYTES * 2], read[BLOCK_BYTES * 3]), (7, 8, 0));
        disk.layer().as_ftl().check().unwrap();
    }

    /// By hand: a command takes 100 µs; a program 750 and its transfer.
    #[test]
    fn writes_are_buffered_and_barriers_wait_for_them() {
        let mut disk = disk(LayerKind::PageMapped);
        let transfer = preset("jasmine").unwrap().timing.transfer_ns_per_page;
        // Formatting has kept the dies busy.
        let begun = 10_000_000;
        let first = disk.write(begun, (Purpose::Data, 0), &[1; PAGE_BYTES], None).unwrap();
        let second = disk.write(begun, (Purpose::Data, 2), &[1; PAGE_BYTES], None).unwrap();
        assert_eq!((first - begun, second - begun), (COMMAND_NS, 2 * COMMAND_NS));
        let flushed = disk.flush(second).unwrap();
        assert_eq!(flushed, second + 750_000 + transfer);
        assert_eq!(disk.flush(flushed).unwrap(), flushed + COMMAND_NS);
        let mut page = vec![0; PAGE_BYTES];
        let read = disk.read(flushed, 0, &mut page, None).unwrap();
        assert_eq!(read, flushed + 2 * COMMAND_NS + 50_000 + transfer);
    }

    #[test]
    fn a_full_buffer_waits_for_a_program() {
        let mut disk = disk(LayerKind::PageMapped);
        let ends: Vec<u64> = (0..300)
            .map(|at| disk.write(0, (Purpose::Data, 16 * at), &[1; PAGE_BYTES], None).unwrap())
            .collect();
        let late = ends[299] - ends[298];
        assert!(late >= 700_000, "all on one die: {late}");
        assert_eq!(ends[40] - ends[39], COMMAND_NS);
    }

    /// Pages of a transaction go to different dies.
    #[test]
    fn pages_of_a_transaction_are_programmed_at_the_same_time() {
        for kind in [LayerKind::XFtl, LayerKind::MvFtl] {
            let mut disk = Disk::new(Layer::new(kind, 64).unwrap());
            let begun = 100_000_000;
            let (tx, mut at) = disk.begin(begun).unwrap();
            for page in 0..8 {
                let place = (Purpose::Data, page * PAGE_BLOCKS);
                at = disk.write(at, place, &[1; PAGE_BYTES], Some(tx)).unwrap();
            }
            let end = disk.commit(at, tx).unwrap();
            // Nine commands, the last program, and that of the record.
            let most = 9 * COMMAND_NS + 2 * 800_000;
            assert!(end - begun < most, "{kind:?}: {} ns", end - begun);
            assert_eq!(disk.entries(), (8, 8));
        }
    }

    #[test]
    fn transactions_are_whole_or_absent() {
        for kind in [LayerKind::XFtl, LayerKind::MvFtl] {
            let mut disk = disk(kind);
            let mut page = vec![0; PAGE_BYTES];
            let (kept, _) = disk.begin(0).unwrap();
            disk.write(0, (Purpose::Data, 0), &[1; PAGE_BYTES], Some(kept)).unwrap();
            disk.read(0, 0, &mut page, None).unwrap();
            assert_eq!(page[0], 0);
            let end = disk.commit(0, kept).unwrap();
            assert!(end > 1_500_000, "two programs, one after the other: {end}");
            let (dropped, _) = disk.begin(0).unwrap();
            disk.write(0, (Purpose::Data, 0), &[2; PAGE_BYTES], Some(dropped)).unwrap();
            disk.abort(0, dropped).unwrap();
            disk.read(0, 0, &mut page, None).unwrap();
            assert_eq!(page[0], 1);
        }
        assert!(disk(LayerKind::PageMapped).begin(0).is_err());
    }
}
