//! Blocks that several flushes share.
//!
//! A flush seldom begins or ends at a block boundary. Its part of such a block waits here until the
//! rest comes, so that the device is never asked for part of a block (the thesis's output buffers,
//! one block a partition; here only the bytes that have come are held). When there is no room, the
//! part goes through the page cache, and so does what is left at the end.
//!
//! Invariant: each byte of the output is deposited or written once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::Result;
use crate::file::{BLOCK, Sink};

/// Blocks are distributed over this many maps, so that writers seldom wait for each other.
const SHARDS: usize = 32;
/// Bytes that a piece of a block costs in addition to its contents: its place in a map, its length,
/// its allocation.
const BESIDE: usize = 128;

/// The shared blocks of one output.
#[derive(Debug)]
pub(crate) struct Edges {
    shards: Vec<Mutex<HashMap<u64, Edge>>>,
    /// Bytes that may be held.
    capacity: usize,
    held: AtomicUsize,
    peak: AtomicUsize,
}

/// The deposited parts of a block: pieces in ascending order with gaps between them.
#[derive(Debug, Default)]
struct Edge(Vec<Piece>);

#[derive(Debug)]
struct Piece {
    start: usize,
    bytes: Vec<u8>,
}

/// The result of depositing a part of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deposit {
    /// The block is whole now, and the caller's to write.
    Whole,
    /// The rest is awaited.
    Waits,
    /// There is no room: the caller writes the part.
    NoRoom,
}

impl Edges {
    /// Holds at most `capacity` bytes.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            capacity,
            held: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
        }
    }

    /// The largest number of bytes that were held at the same time.
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.peak.load(Ordering::Relaxed) as u64
    }

    fn shard(&self, block: u64) -> MutexGuard<'_, HashMap<u64, Edge>> {
        let shard = usize::try_from(block % SHARDS as u64).unwrap_or(0);
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Deposits bytes within one block, at an offset of the file. If they complete the block, it is
    /// put into `whole`.
    fn deposit(&self, offset: u64, part: &[u8], whole: &mut [u8]) -> Deposit {
        let block = offset / BLOCK as u64;
        let start = usize::try_from(offset % BLOCK as u64).unwrap_or(0);
        let mut blocks = self.shard(block);
        if let Some(edge) = blocks.get(&block)
            && edge.len() + part.len() == BLOCK
        {
            for piece in &edge.0 {
                whole[piece.start..piece.start + piece.bytes.len()].copy_from_slice(&piece.bytes);
            }
            whole[start..start + part.len()].copy_from_slice(part);
            self.held.fetch_sub(edge.cost(), Ordering::Relaxed);
            blocks.remove(&block);
            return Deposit::Whole;
        }
        let cost = part.len() + BESIDE;
        let held = self.held.fetch_add(cost, Ordering::Relaxed) + cost;
        if held > self.capacity {
            self.held.fetch_sub(cost, Ordering::Relaxed);
            return Deposit::NoRoom;
        }
        self.peak.fetch_max(held, Ordering::Relaxed);
        let joined = blocks.entry(block).or_default().add(start, part);
        self.held.fetch_sub(joined * BESIDE, Ordering::Relaxed);
        Deposit::Waits
    }

    /// Writes what never became whole: the ends of the file, and what met parts that had no room.
    pub(crate) fn finish(&self, sink: &dyn Sink) -> Result<()> {
        let mut left: Vec<(u64, Edge)> = Vec::new();
        for shard in &self.shards {
            left.extend(shard.lock().unwrap_or_else(PoisonError::into_inner).drain());
        }
        left.sort_unstable_by_key(|(block, _)| *block);
        for (block, edge) in left {
            for piece in edge.0 {
                sink.write_part(block * BLOCK as u64 + piece.start as u64, &piece.bytes)?;
            }
        }
        Ok(())
    }
}

impl Edge {
    /// The number of bytes that have come.
    fn len(&self) -> usize {
        self.0.iter().map(|piece| piece.bytes.len()).sum()
    }

    /// The bytes that it takes of the capacity.
    fn cost(&self) -> usize {
        self.len() + self.0.len() * BESIDE
    }

    /// Adds a part; answers how many pieces fewer there are than with it as one of its own.
    fn add(&mut self, start: usize, part: &[u8]) -> usize {
        let after = self.0.partition_point(|piece| piece.start < start);
        let follows = |piece: &Piece| piece.start + piece.bytes.len() == start;
        let mut joined = 0;
        let index = match after.checked_sub(1).filter(|before| follows(&self.0[*before])) {
            Some(before) => {
                let bytes = &mut self.0[before].bytes;
                bytes.reserve_exact(part.len());
                bytes.extend_from_slice(part);
                joined += 1;
                before
            }
            None => {
                self.0.reserve_exact(1);
                self.0.insert(after, Piece { start, bytes: part.to_vec() });
                after
            }
        };
        let is_next = self.0.get(index + 1).is_some_and(|next| next.start == start + part.len());
        if is_next {
            let next = self.0.remove(index + 1);
            let bytes = &mut self.0[index].bytes;
            bytes.reserve_exact(next.bytes.len());
            bytes.extend_from_slice(&next.bytes);
            joined += 1;
        }
        joined
    }
}

/// Whole blocks on their way to the device.
struct Stage<'a> {
    sink: &'a dyn Sink,
    /// At least two blocks long, in whole blocks.
    memory: &'a mut [u8],
    /// The number of bytes of it that are filled.
    len: usize,
    /// The place of these bytes in the file.
    offset: u64,
}

impl Stage<'_> {
    /// Leaves part of a block to `edges`; a block that is whole by that comes next here.
    fn deposit(&mut self, edges: &Edges, offset: u64, part: &[u8]) -> Result<()> {
        if self.len + BLOCK > self.memory.len() {
            self.write()?;
        }
        let block = &mut self.memory[self.len..self.len + BLOCK];
        match edges.deposit(offset, part, block) {
            Deposit::Whole => self.len += BLOCK,
            Deposit::Waits => {}
            Deposit::NoRoom => self.sink.write_part(offset, part)?,
        }
        Ok(())
    }

    fn push(&mut self, mut blocks: &[u8]) -> Result<()> {
        while !blocks.is_empty() {
            if self.len == self.memory.len() {
                self.write()?;
            }
            let (now, later) = blocks.split_at((self.memory.len() - self.len).min(blocks.len()));
            self.memory[self.len..self.len + now.len()].copy_from_slice(now);
            self.len += now.len();
            blocks = later;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<()> {
        if self.len > 0 {
            self.sink.write_blocks(self.offset, &self.memory[..self.len])?;
            self.offset += self.len as u64;
            self.len = 0;
        }
        Ok(())
    }
}

/// Writes bytes that belong at an offset: whole blocks from where they are if their memory is
/// aligned, else through `scratch` in one request, if it holds them, with the shared blocks before
/// and after that they make whole.
pub(crate) fn write_span(
    sink: &dyn Sink,
    edges: &Edges,
    scratch: &mut [u8],
    offset: u64,
    bytes: &[u8],
) -> Result<()> {
    if !sink.is_blocked() {
        return sink.write_part(offset, bytes);
    }
    let skew = usize::try_from(offset % BLOCK as u64).unwrap_or(0);
    let has_head = skew > 0 || bytes.len() < BLOCK;
    let head_len = if has_head { (BLOCK - skew).min(bytes.len()) } else { 0 };
    let (head, rest) = bytes.split_at(head_len);
    let (blocks, tail) = rest.split_at(rest.len() / BLOCK * BLOCK);
    let mut stage = Stage { sink, memory: scratch, len: 0, offset: offset - skew as u64 };
    if !head.is_empty() {
        stage.deposit(edges, offset, head)?;
    }
    let blocks_at = offset + head.len() as u64;
    if stage.len == 0 {
        stage.offset = blocks_at;
    }
    if stage.len == 0 && blocks.as_ptr().addr().is_multiple_of(sink.alignment()) {
        if !blocks.is_empty() {
            sink.write_blocks(blocks_at, blocks)?;
            stage.offset += blocks.len() as u64;
        }
    } else {
        stage.push(blocks)?;
    }
    if !tail.is_empty() {
        stage.deposit(edges, blocks_at + blocks.len() as u64, tail)?;
    }
    stage.write()
}
