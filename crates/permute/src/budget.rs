//! The division of the memory of a run.
//!
//! Invariant: everything that holds records or blocks is counted here, and the sum is at most
//! what the user allowed.

use crate::error::{Result, input};
use crate::file::BLOCK;
use crate::message::{Message, Value};
use crate::pass::Pass;

/// The least memory, in blocks.
pub const BLOCKS_MIN: u64 = 16;
/// Requests in flight on each side, at most.
const DEPTH_MAX: u64 = 16;
/// Requests in flight on each side, however large they are.
const DEPTH_LARGE: u64 = 8;
/// Bytes in flight on each side, beyond which a device gains nothing.
const IN_FLIGHT: u64 = 4 << 20;
/// The largest request, in bytes: beyond it a device gains nothing.
const UNIT_MAX: u64 = 512 << 10;
/// A buffer of a reader holds this many segments where there is memory: as many rows are copied
/// at a time as fill a cache line with records of 8 bytes.
const SEGMENTS: u64 = 8;
/// Bytes that a buffer of a reader should hold, where segments are short.
const BATCH: u64 = 128 << 10;
/// The least bytes of a load that are worth a part of their own, and the most parts.
const PART_MIN: u64 = 256 << 10;
const PARTS_MAX: u64 = 8;
/// The most that a writer copies before it writes.
const STAGE_MAX: u64 = 256 << 10;
/// Readers and writers of encoded chunks, each: that takes processors, not requests in flight.
const CODED_MAX: u64 = 4;

const BLOCK_BYTES: u64 = BLOCK as u64;

/// The user's limit, and the memory that threads need in addition to their buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Everything, in bytes.
    pub memory: u64,
    /// The size of one record in bytes.
    pub record: usize,
    /// Bytes that each thread holds to reach its file: windows, what codecs need.
    per_thread: u64,
    /// Bytes of the chunks that are read and written whole.
    chunk: Option<u64>,
}

/// The buffers of one pass, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Division {
    /// Threads that read.
    pub readers: usize,
    /// Bytes of records that a reader's buffer holds.
    pub batch: usize,
    /// The whole buffer: the last run of a batch is read behind the others, with parts of blocks
    /// before and after it.
    pub read_buffer: usize,
    /// Threads that write.
    pub writers: usize,
    /// The bytes that a writer copies before it writes, if memory is not aligned as the file is.
    pub stage: usize,
    /// The number of loads that are in memory at the same time.
    pub loads: usize,
}

impl Budget {
    /// Checks that `memory` bytes are enough for records of `record` bytes, where each thread needs
    /// `per_thread` additional bytes.
    pub fn new(memory: u64, record: usize, per_thread: u64) -> Result<Self> {
        let large = (record as u64).next_multiple_of(BLOCK_BYTES).saturating_mul(8);
        let needed = (BLOCKS_MIN * BLOCK_BYTES).max(large.saturating_add(per_thread * 4));
        if memory < needed {
            let text =
                format!("{memory} bytes of memory are too few: at least {needed} are needed (");
            let least = Value::Text(format!("{}KiB", needed.div_ceil(1024)));
            return input(Message::from(text).option("memory", least).then(")"));
        }
        Ok(Self { memory, record, per_thread, chunk: None })
    }

    /// For chunks of `chunk` bytes that are read and written whole; `None` where memory is too
    /// small for that.
    #[must_use]
    pub fn of_chunks(memory: u64, record: usize, chunk: u64, per_thread: u64) -> Option<Self> {
        let budget = Self { memory, record, per_thread, chunk: Some(chunk) };
        let fits = memory >= BLOCKS_MIN * BLOCK_BYTES && budget.in_flight() <= memory;
        fits.then_some(budget)
    }

    /// The least memory for chunks of `chunk` bytes: a thread that reads, one that writes, and
    /// some loads of a chunk.
    #[must_use]
    pub const fn chunks_min(chunk: u64, per_thread: u64) -> u64 {
        let buffer = chunk.saturating_add(4 * BLOCK_BYTES);
        buffer.saturating_mul(5).saturating_add(per_thread.saturating_mul(2))
    }

    /// Bytes of memory of a thread that reads or writes a whole chunk.
    const fn chunk_thread(&self, chunk: u64) -> u64 {
        chunk.saturating_add(4 * BLOCK_BYTES).saturating_add(self.per_thread)
    }

    /// The number of threads that read whole chunks, and of those that write them.
    fn chunk_threads(&self, chunk: u64) -> u64 {
        (self.memory / 8 / self.chunk_thread(chunk)).clamp(1, CODED_MAX)
    }

    /// Bytes for requests in flight, half of them for reads: an eighth of the memory, of little
    /// memory a quarter.
    fn in_flight(&self) -> u64 {
        if let Some(chunk) = self.chunk {
            return self
                .chunk_threads(chunk)
                .saturating_mul(self.chunk_thread(chunk))
                .saturating_mul(2);
        }
        let eighth = self.memory / 8;
        let share = eighth + eighth.min(512 << 10);
        let least = 2 * (self.request_min() + pad(BLOCK) + self.per_thread);
        share.min(2 * (DEPTH_LARGE + 1) * UNIT_MAX).max(least)
    }

    /// A block, or the blocks of a record.
    fn request_min(&self) -> u64 {
        (self.record as u64).max(BLOCK_BYTES).next_multiple_of(BLOCK_BYTES)
    }

    /// Bytes of the largest request.
    #[must_use]
    pub fn request(&self) -> u64 {
        if let Some(chunk) = self.chunk {
            return chunk.next_multiple_of(BLOCK_BYTES);
        }
        let share = self.in_flight() / 2 / DEPTH_LARGE;
        let blocks = share.saturating_sub(pad(BLOCK) + self.per_thread) / BLOCK_BYTES * BLOCK_BYTES;
        blocks.min(UNIT_MAX).max(self.request_min())
    }

    /// Bytes of the largest segment that may be read for a part of it: there may be one reader.
    #[must_use]
    pub fn filtered(&self) -> u64 {
        let half = (self.in_flight() / 2).saturating_sub(pad(BLOCK) + self.per_thread);
        if self.chunk.is_some() { self.request() } else { half.min(UNIT_MAX).max(self.request()) }
    }

    /// Bytes for the records of a load and the blocks that flushes share.
    #[must_use]
    pub fn load(&self) -> u64 {
        self.memory.saturating_sub(self.in_flight())
    }

    /// Into how many parts a load is cut at most, each placed and written on its own. A part may
    /// end inside of a chunk.
    #[must_use]
    pub fn parts(&self) -> u64 {
        if self.chunk.is_some() { 1 } else { (self.load() / PART_MIN).clamp(1, PARTS_MAX) }
    }

    /// Bytes for the records of a load alone: each part begins somewhere in a block.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.load().saturating_sub(self.parts() * 2 * BLOCK_BYTES)
    }

    /// Divides the memory for a pass, reading what wants offsets to be multiples of `align`.
    #[must_use]
    pub fn divide(&self, pass: &Pass, align: usize) -> Division {
        let record = self.record as u64;
        let bytes = |records: u64| records.saturating_mul(record);
        let load = bytes(pass.load_records());
        let edges = pass.partitions_at_once().saturating_mul(BLOCK_BYTES);
        let two = load.saturating_add(self.parts() * 2 * BLOCK_BYTES).saturating_mul(2);
        let fits = two.saturating_add(edges) <= self.load();
        let loads = if fits && pass.load_records() < pass.space.records() { 2 } else { 1 };
        let (readers, batch) = self.reading(pass, pad(align));
        let (writers, stage) = self.writing(pass);
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        Division {
            readers: count(readers),
            batch: count(batch),
            read_buffer: count(batch + pad(align)),
            writers: count(writers),
            stage: count(stage),
            loads,
        }
    }

    /// The number of readers, and the bytes of records that the buffer of each holds.
    fn reading(&self, pass: &Pass, pad: u64) -> (u64, u64) {
        let most = self.request();
        if let Some(chunk) = self.chunk {
            return (self.chunk_threads(chunk), most);
        }
        let record = self.record as u64;
        let segment = pass.segment_records().saturating_mul(record);
        let half = self.in_flight() / 2;
        let wanted = depth(segment.min(most));
        let mut batch = segment.saturating_mul(SEGMENTS).max(BATCH).min(most);
        let least = if pass.waste() > 1 { segment } else { segment.min(most) };
        let each = |batch: u64| batch + pad + self.per_thread;
        while half / each(batch) < wanted && batch / 2 >= least.max(self.request_min()) {
            batch /= 2;
        }
        let batch = batch.max(least).next_multiple_of(BLOCK_BYTES);
        let whole = pass.space.records().saturating_mul(record).div_ceil(batch).max(1);
        ((half / each(batch)).clamp(1, wanted).min(whole), batch)
    }

    /// The number of writers, and the bytes that each may copy before it writes.
    fn writing(&self, pass: &Pass) -> (u64, u64) {
        if let Some(chunk) = self.chunk {
            return (self.chunk_threads(chunk), 2 * BLOCK_BYTES);
        }
        let record = self.record as u64;
        let flush = pass.flush_records().saturating_mul(record).min(UNIT_MAX);
        let half = self.in_flight() / 2;
        let wanted = depth(flush);
        // With the shared blocks before and after.
        let mut stage = (flush + 2 * BLOCK_BYTES).min(STAGE_MAX).next_multiple_of(BLOCK_BYTES);
        let each = |stage: u64| stage + self.per_thread;
        while half / each(stage) < wanted && stage / 2 >= 2 * BLOCK_BYTES {
            stage = (stage / 2).next_multiple_of(BLOCK_BYTES);
        }
        let whole = pass.space.records().saturating_mul(record).div_ceil(flush.max(1)).max(1);
        ((half / each(stage)).clamp(1, wanted).min(whole), stage)
    }

    /// Bytes that the threads of a division hold in addition to their buffers.
    #[must_use]
    pub const fn thread_bytes(&self, division: &Division) -> u64 {
        self.per_thread * (division.readers + division.writers) as u64
    }
}

/// The number of requests of a given size that keep a device busy.
fn depth(request: u64) -> u64 {
    (IN_FLIGHT / request.max(1)).clamp(DEPTH_LARGE, DEPTH_MAX)
}

/// Parts of blocks at the ends of the first and the last run of a batch, in bytes.
const fn pad(align: usize) -> u64 {
    (3 * align).next_multiple_of(BLOCK) as u64
}

impl Division {
    /// Bytes of the buffers of requests in flight.
    #[must_use]
    pub const fn in_flight(&self) -> u64 {
        (self.readers * self.read_buffer + self.writers * self.stage) as u64
    }
}
