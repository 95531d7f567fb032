//! Record by record, through a cache of blocks.

use std::collections::{BTreeMap, HashMap};

use esker_device::AlignedBuf;

use super::Work;
use super::addresses::of_input;
use crate::error::{Error, Result};
use crate::file::{BLOCK, File, Sink, Source};

/// Bytes of a block of the cache, a fraction of small memories.
const CACHED: usize = 32 << 10;
/// Bytes of the buffer of the output.
const WRITTEN: usize = 1 << 20;

pub(super) fn run(work: &Work<'_>) -> Result<()> {
    let block = CACHED.min(work.memory / 16 / BLOCK * BLOCK).max(BLOCK);
    let out_bytes = WRITTEN.min(work.memory / 4).max(work.record);
    let slots = (work.memory.saturating_sub(out_bytes) / block).max(1);
    let mut cache = Cache::new(work.source.file, block, slots);
    let mut out = Vec::with_capacity(out_bytes);
    let mut written = 0;
    for stretch in of_input(work.task)? {
        let mut address = stretch.address;
        for _ in 0..stretch.records {
            if out.len() + work.record > out_bytes {
                work.sink.file.write_part(work.sink.start + written, &out)?;
                written += out.len() as u64;
                out.clear();
            }
            cache.copy(work.source.start + address * work.record as u64, work.record, &mut out)?;
            address = address.wrapping_add_signed(stretch.step);
        }
    }
    work.sink.file.write_part(work.sink.start + written, &out)
}

/// Blocks of a file, of which the least recently used goes.
struct Cache<'a> {
    file: &'a File,
    /// Bytes of a block.
    block: usize,
    /// One slot after the other.
    bytes: AlignedBuf,
    slots: usize,
    /// For each block the slot that it is in, and when it was last used.
    held: HashMap<u64, (usize, u64)>,
    /// The blocks by when they were last used.
    ages: BTreeMap<u64, u64>,
    now: u64,
    /// The block of the last use, and its slot.
    last: Option<(u64, usize)>,
}

impl<'a> Cache<'a> {
    fn new(file: &'a File, block: usize, slots: usize) -> Self {
        Self {
            file,
            block,
            bytes: AlignedBuf::zeroed(block * slots),
            slots,
            held: HashMap::new(),
            ages: BTreeMap::new(),
            now: 0,
            last: None,
        }
    }

    /// Appends a range of the file, which may cross blocks.
    fn copy(&mut self, mut offset: u64, len: usize, out: &mut Vec<u8>) -> Result<()> {
        let mut left = len;
        while left > 0 {
            let number = offset / self.block as u64;
            // The remainder is below the size of a block.
            let skew = (offset % self.block as u64) as usize;
            let now = left.min(self.block - skew);
            let from = self.slot(number)? * self.block + skew;
            out.extend_from_slice(&self.bytes[from..from + now]);
            offset += now as u64;
            left -= now;
        }
        Ok(())
    }

    fn slot(&mut self, number: u64) -> Result<usize> {
        if let Some((_, slot)) = self.last.filter(|(last, _)| *last == number) {
            return Ok(slot);
        }
        self.now += 1;
        let slot = match self.held.get(&number) {
            Some((slot, age)) => {
                self.ages.remove(age);
                *slot
            }
            None => self.fill(number)?,
        };
        self.held.insert(number, (slot, self.now));
        self.ages.insert(self.now, number);
        self.last = Some((number, slot));
        Ok(slot)
    }

    /// Reads a block in place of the oldest.
    fn fill(&mut self, number: u64) -> Result<usize> {
        let slot = if self.held.len() < self.slots {
            self.held.len()
        } else {
            let oldest = self.ages.pop_first().and_then(|(_, oldest)| self.held.remove(&oldest));
            oldest.ok_or(Error::Internal("a full cache holds blocks"))?.0
        };
        let into = &mut self.bytes[slot * self.block..(slot + 1) * self.block];
        self.file.read(number * self.block as u64, into)?;
        Ok(slot)
    }
}
