//! Record by record in the order of the result, each from a cache of blocks of the source.
//!
//! The least recently used block makes room. One thread, one request at a time.

use std::collections::HashMap;

use esker_device::AlignedBuf;

use super::{Turn, Walk};
use crate::error::Result;
use crate::file::{BLOCK, File, Sink, Source};

/// Bytes of the result that are collected before they are written.
const OUT_BYTES: usize = 1 << 20;

/// Blocks in memory, in the order of their use.
struct Cache<'a> {
    file: &'a File,
    blocks: AlignedBuf,
    /// Block by slot, and slots by block.
    numbers: Vec<u64>,
    slots: HashMap<u64, usize>,
    /// The slots used just before and after, in a ring; the slot after the last is its head.
    links: Vec<(usize, usize)>,
    /// The block that was asked for last: neighbours come together.
    last: (u64, usize),
}

impl<'a> Cache<'a> {
    fn new(file: &'a File, memory: u64) -> Self {
        let count = usize::try_from(memory / (BLOCK as u64 + 64)).unwrap_or(usize::MAX).max(1);
        let ring = |slot: usize| ((slot + count) % (count + 1), (slot + 1) % (count + 1));
        Self {
            file,
            blocks: AlignedBuf::in_huge_pages(count * BLOCK),
            numbers: vec![u64::MAX; count],
            slots: HashMap::with_capacity(count),
            links: (0..=count).map(ring).collect(),
            last: (u64::MAX, 0),
        }
    }

    /// Copies bytes of the file that are in one block or two.
    fn copy(&mut self, mut offset: u64, mut out: &mut [u8]) -> Result<()> {
        while !out.is_empty() {
            let slot = self.slot(offset / BLOCK as u64)?;
            let from = usize::try_from(offset % BLOCK as u64).unwrap_or(0);
            let len = (BLOCK - from).min(out.len());
            let (now, later) = out.split_at_mut(len);
            let at = slot * BLOCK + from;
            now.copy_from_slice(&self.blocks[at..at + len]);
            out = later;
            offset += len as u64;
        }
        Ok(())
    }

    fn slot(&mut self, block: u64) -> Result<usize> {
        if self.last.0 == block {
            return Ok(self.last.1);
        }
        let slot = match self.slots.get(&block) {
            Some(slot) => *slot,
            None => self.load(block)?,
        };
        self.use_now(slot);
        self.last = (block, slot);
        Ok(slot)
    }

    /// Reads a block into the slot of the least recently used one.
    fn load(&mut self, block: u64) -> Result<usize> {
        let head = self.numbers.len();
        let slot = self.links[head].0;
        self.slots.remove(&self.numbers[slot]);
        let place = &mut self.blocks[slot * BLOCK..(slot + 1) * BLOCK];
        self.file.read(block * BLOCK as u64, place)?;
        self.numbers[slot] = block;
        self.slots.insert(block, slot);
        Ok(slot)
    }

    fn use_now(&mut self, slot: usize) {
        let head = self.numbers.len();
        let (before, after) = self.links[slot];
        self.links[before].1 = after;
        self.links[after].0 = before;
        let first = self.links[head].1;
        self.links[slot] = (head, first);
        self.links[first].0 = slot;
        self.links[head].1 = slot;
    }
}

/// Makes the result and syncs it.
pub fn run(turn: &Turn) -> Result<()> {
    let records = turn.records()?;
    let (source, target) = (File::open(&turn.source)?, File::create(&turn.target)?);
    target.reserve(records * turn.record as u64)?;
    let steps = turn.source_steps();
    let axes = turn.order.iter().map(|axis| (turn.sizes[*axis], steps[*axis]));
    let mut walk = Walk::new(axes, 0);
    let mut cache = Cache::new(&source, turn.memory.saturating_sub(OUT_BYTES as u64));
    let each = (OUT_BYTES / turn.record).max(1) as u64;
    let mut out = vec![0; usize::try_from(each).unwrap_or(1) * turn.record];
    for first in (0..records).step_by(usize::try_from(each).unwrap_or(1)) {
        let count = usize::try_from(each.min(records - first)).unwrap_or(0);
        for (place, address) in out.chunks_exact_mut(turn.record).take(count).zip(&mut walk) {
            cache.copy(turn.start + address * turn.record as u64, place)?;
        }
        target.write_part(first * turn.record as u64, &out[..count * turn.record])?;
    }
    target.sync()
}
