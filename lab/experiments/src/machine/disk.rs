//! The device: blocks of the file system over a translation layer with larger pages, in virtual
//! time.
//!
//! **Time.** One processor serves commands one after the other, each for [`COMMAND_NS`]; then a
//! write is in the device's buffer and is answered, and its page is programmed when its die is
//! free. The buffer holds 64 pages. A read is answered with its data. A flush and a
//! commit are answered when everything before them is programmed, and their own records; until then
//! no other command is served, as in firmware with one thread. So commands are served in the order
//! of their times.
//!
//! What is a part of a flash page costs a read of the page, which the program waits for, and a
//! program of the whole. How large these pages are, and what a flush writes besides, is the
//! [`Board`]'s.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use esker_flash::ftl::{Ftl, Options, PageMapped, Transactional, TxId, mvftl, xftl};
use esker_flash::nand::{Bytes, Counters, Lpn, NandSim, Urgency};
use esker_flash::{Error, Result};

use super::board::Board;
use super::recorder::Recorder;

/// Bytes of a block of the file system.
pub const BLOCK_BYTES: usize = 4096;
/// Bytes of a physical page of the paper's device: a page of SQLite, and what files get at a time.
pub const PAGE_BYTES: usize = 8192;
/// Its blocks.
pub const PAGE_BLOCKS: u32 = (PAGE_BYTES / BLOCK_BYTES) as u32;

/// The time of a command, without the flash: about 8,700 cycles of the paper's processor (an ARM7
/// at 87.5 MHz), in which 8 KiB also pass over SATA 2 (27 µs).
pub const COMMAND_NS: u64 = 100_000;
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
    /// Pages, of the size that is mapped, that the firmware programmed with them.
    pub firmware_programs: u64,
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
    /// An empty one, with so many MiB on each of eight dies.
    fn new(kind: LayerKind, board: Board, mib_per_die: u32) -> Result<Self> {
        let (geometry, timing) = board.sized(mib_per_die)?;
        let nand = Nand::with_clock(geometry, timing);
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
                let diff_bytes = board.diff_bytes();
                let more = diff_bytes.saturating_sub(paper.diff_bytes) / ENTRY_BYTES;
                let logical_pages = paper.logical_pages.saturating_sub(more);
                let options = mvftl::Options { diff_bytes, logical_pages, ..paper };
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
    /// Pages that a barrier programs on each die besides, and how long that takes.
    firmware: (u64, u64),
    recorder: Option<Recorder>,
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
    /// An empty device, with so many MiB on each of its eight dies.
    ///
    /// # Errors
    /// A device that is too small for the layer.
    pub fn new(kind: LayerKind, board: Board, mib_per_die: u32) -> Result<Self> {
        let layer = Layer::new(kind, board, mib_per_die)?;
        let nand = layer.as_ftl().dyn_nand();
        let page = vec![0; nand.geometry().page_size() as usize];
        let pages = board.pages_of_a_barrier(kind);
        // Dies that share a channel pass their pages one after the other.
        let sharing = u64::from(nand.geometry().sizes().dies_per_channel);
        let each = nand.clock().map_or(0, |clock| {
            clock.timing().program_ns + sharing * clock.timing().transfer_ns_per_page
        });
        Ok(Self {
            layer,
            firmware: (pages, pages * each),
            recorder: None,
            free_ns: 0,
            buffer: VecDeque::new(),
            programmed_ns: 0,
            writes: HostWrites::default(),
            transactions: Transactions::default(),
            page,
        })
    }

    /// The layer.
    #[must_use]
    pub const fn layer(&self) -> &Layer {
        &self.layer
    }

    /// Blocks of the file system that it has.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        let blocks = (self.page.len() / BLOCK_BYTES) as u32;
        self.layer.as_ftl().logical_pages().saturating_mul(blocks)
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

    /// Records what the host does from now on.
    pub fn record(&mut self, recorder: Recorder) {
        self.recorder = Some(recorder);
    }

    /// Ends the record, if there is one.
    pub const fn take_record(&mut self) -> Option<Recorder> {
        self.recorder.take()
    }

    fn note(&mut self, op: impl FnOnce(&mut Recorder)) {
        if let Some(recorder) = &mut self.recorder {
            op(recorder);
        }
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
        self.note(|recorder| recorder.read(now, block, buf.len()));
        let mut end = now;
        for part in parts(self.page.len(), block, buf.len()) {
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
        self.note(|recorder| recorder.write(now, (purpose, block), bytes.len()));
        let mut end = now;
        for part in parts(self.page.len(), block, bytes.len()) {
            let has_room = |buffer: &VecDeque<u64>| buffer.len() < BUFFERED;
            let room_at = if has_room(&self.buffer) { None } else { self.buffer.pop_front() };
            end = self.command(now.max(room_at.unwrap_or(0)));
            let from = bytes.get(part.from..part.from + part.len).unwrap_or_default();
            self.program(&part, from, tx)?;
            let programmed = self.layer.ftl().end_ns();
            self.programmed_ns = self.programmed_ns.max(programmed);
            self.buffer.push_back(programmed);
        }
        self.writes.blocks[purpose as usize] += bytes.len().div_ceil(BLOCK_BYTES) as u64;
        Ok(end)
    }

    /// Writes a part of a page, as steps of one request.
    fn program(&mut self, part: &Part, from: &[u8], tx: Option<TxId>) -> Result<()> {
        let scope = self.layer.ftl().dyn_nand_mut().open_scope(Urgency::Foreground);
        if part.len < self.page.len() {
            self.load(part.lpn, tx)?;
            self.layer.ftl().dyn_nand_mut().wait();
        }
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
        self.layer.ftl().dyn_nand_mut().close_scope(scope);
        Ok(())
    }

    /// Makes everything durable that was written outside of transactions; when it is.
    ///
    /// # Errors
    /// Those of the layer.
    pub fn flush(&mut self, now: u64) -> Result<u64> {
        self.note(|recorder| recorder.flush(now));
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
        let (pages, ns) = self.firmware;
        self.writes.firmware_programs += pages * u64::from(self.layer.as_ftl().geometry().dies());
        self.free_ns = self.free_ns.max(self.programmed_ns) + ns;
        self.programmed_ns = self.free_ns;
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

fn parts(page_bytes: usize, block: u32, bytes: usize) -> impl Iterator<Item = Part> {
    let page_blocks = (page_bytes / BLOCK_BYTES) as u32;
    let first = (block % page_blocks) as usize * BLOCK_BYTES;
    let mut from = 0;
    let mut lpn = block / page_blocks;
    std::iter::from_fn(move || {
        let at = if from == 0 { first } else { 0 };
        let len = (page_bytes - at).min(bytes - from);
        let part = Part { lpn: Lpn(lpn), at, from, len };
        from += len;
        lpn += 1;
        (len > 0).then_some(part)
    })
}

#[cfg(test)]
mod tests;
