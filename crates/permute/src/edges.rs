//! Blocks that several flushes share.
//!
//! A flush seldom begins or ends where a block does. What it has of such a block waits here until
//! the rest comes, so that the device is never asked for part of a block (the thesis's output
//! buffers, one block a partition). When there is no room, the part goes through the page cache,
//! and so does what is left at the end.
//!
//! Invariant: each byte of the output is deposited or written once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::Result;
use crate::file::{BLOCK, Sink};

/// The shared blocks of one output.
#[derive(Debug)]
pub(crate) struct Edges {
    blocks: Mutex<HashMap<u64, Edge>>,
    capacity: usize,
    peak: AtomicUsize,
}

#[derive(Debug)]
struct Edge {
    bytes: Box<[u8; BLOCK]>,
    /// What is there, in ascending order, neighbours joined.
    filled: Vec<(usize, usize)>,
}

/// What became of a part of a block.
#[derive(Debug)]
pub(crate) enum Deposit {
    /// The block is whole now, and the caller's to write.
    Whole(Box<[u8; BLOCK]>),
    /// The rest is awaited.
    Waits,
    /// There is no room: the caller writes the part.
    NoRoom,
}

impl Edges {
    /// Holds at most `capacity` blocks.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { blocks: Mutex::default(), capacity, peak: AtomicUsize::new(0) }
    }

    /// Bytes of the blocks held at once, at most.
    pub(crate) fn peak_bytes(&self) -> u64 {
        (self.peak.load(Ordering::Relaxed) * BLOCK) as u64
    }

    /// Leaves bytes that lie within one block, at an offset of the file.
    pub(crate) fn deposit(&self, offset: u64, part: &[u8]) -> Deposit {
        let block = offset / BLOCK as u64;
        let start = usize::try_from(offset % BLOCK as u64).unwrap_or(0);
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let room = blocks.len() < self.capacity;
        let edge = match blocks.get_mut(&block) {
            Some(edge) => edge,
            None if room => blocks.entry(block).or_insert_with(|| Edge {
                bytes: Box::new([0; BLOCK]),
                filled: Vec::with_capacity(2),
            }),
            None => return Deposit::NoRoom,
        };
        edge.add(start, part);
        let is_whole = edge.filled == [(0, BLOCK)];
        self.peak.fetch_max(blocks.len(), Ordering::Relaxed);
        if is_whole {
            return blocks.remove(&block).map_or(Deposit::Waits, |edge| Deposit::Whole(edge.bytes));
        }
        Deposit::Waits
    }

    /// Writes what never became whole: the ends of the file, and what met parts that had no room.
    pub(crate) fn finish(&self, sink: &dyn Sink) -> Result<()> {
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left: Vec<(u64, Edge)> = blocks.drain().collect();
        left.sort_unstable_by_key(|(block, _)| *block);
        for (block, edge) in left {
            for (start, end) in edge.filled {
                sink.write_part(block * BLOCK as u64 + start as u64, &edge.bytes[start..end])?;
            }
        }
        Ok(())
    }
}

impl Edge {
    fn add(&mut self, start: usize, part: &[u8]) {
        let end = start + part.len();
        self.bytes[start..end].copy_from_slice(part);
        self.filled.push((start, end));
        self.filled.sort_unstable();
        let mut joined: Vec<(usize, usize)> = Vec::with_capacity(self.filled.len());
        for (start, end) in self.filled.drain(..) {
            match joined.last_mut() {
                Some(last) if last.1 >= start => last.1 = last.1.max(end),
                _ => joined.push((start, end)),
            }
        }
        self.filled = joined;
    }
}

/// Writes bytes that belong at an offset; whole blocks directly where their memory is aligned,
/// else through `scratch`, which bounds how much one request holds.
pub(crate) fn write_span(
    sink: &dyn Sink,
    edges: &Edges,
    scratch: &mut [u8],
    mut offset: u64,
    mut bytes: &[u8],
) -> Result<()> {
    if !sink.is_blocked() {
        return sink.write_part(offset, bytes);
    }
    let mut staged = 0;
    let mut staged_at = offset;
    let skew = usize::try_from(offset % BLOCK as u64).unwrap_or(0);
    if skew > 0 || bytes.len() < BLOCK {
        let (head, rest) = bytes.split_at((BLOCK - skew).min(bytes.len()));
        match edges.deposit(offset, head) {
            Deposit::Whole(block) => {
                scratch[..BLOCK].copy_from_slice(&block[..]);
                staged = BLOCK;
                staged_at = offset - skew as u64;
            }
            Deposit::Waits => {}
            Deposit::NoRoom => sink.write_part(offset, head)?,
        }
        offset += head.len() as u64;
        bytes = rest;
    }
    let (mut blocks, tail) = bytes.split_at(bytes.len() / BLOCK * BLOCK);
    let tail_at = offset + blocks.len() as u64;
    if staged == 0 && blocks.as_ptr().addr().is_multiple_of(sink.alignment()) {
        if !blocks.is_empty() {
            sink.write_blocks(offset, blocks)?;
        }
        blocks = &[];
    }
    if staged == 0 {
        staged_at = offset;
    }
    while staged > 0 || !blocks.is_empty() {
        let (now, later) = blocks.split_at((scratch.len() - staged).min(blocks.len()));
        scratch[staged..staged + now.len()].copy_from_slice(now);
        staged += now.len();
        sink.write_blocks(staged_at, &scratch[..staged])?;
        staged_at += staged as u64;
        staged = 0;
        blocks = later;
    }
    if !tail.is_empty() {
        match edges.deposit(tail_at, tail) {
            Deposit::Whole(block) => {
                scratch[..BLOCK].copy_from_slice(&block[..]);
                sink.write_blocks(tail_at, &scratch[..BLOCK])?;
            }
            Deposit::Waits => {}
            Deposit::NoRoom => sink.write_part(tail_at, tail)?,
        }
    }
    Ok(())
}
