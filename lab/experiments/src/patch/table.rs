//! Tables: blocks anywhere in the store, and the fences that say what of them counts.
//!
//! The index of a table, in pages of its own: the blocks (place, pages, weight, what lives), the
//! last key, the fences. It is written anew whenever the table changes.

use std::sync::Arc;

use esker_format::bytes::{self, put_varint};
use esker_pages::Snapshot;

use super::block::{self, Record};
use super::error::{damaged, pages};
use super::fences::{Fences, NOWHERE};
use super::pager::Span;
use crate::Result;

/// A block of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its pages.
    pub span: Span,
    /// The weight of its records, dead ones included.
    pub weight: u64,
    /// The weight of those that live.
    pub live: u64,
}

/// A sorted table. Invariant: every block has a fence, and every fence's block is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Its number: of two tables of level 0 the newer one has the greater.
    pub number: u32,
    /// Its place in the catalogue.
    pub slot: u32,
    /// Where its index is.
    pub index: Span,
    /// Its blocks, in the order in which they were written.
    pub blocks: Vec<Block>,
    /// Which of them has what.
    pub fences: Fences,
    /// A key that no greater one is in it.
    pub last: Vec<u8>,
}

impl Table {
    /// A key that no smaller one is in it.
    #[must_use]
    pub fn first(&self) -> &[u8] {
        self.fences.key(0)
    }

    /// The weight of the records that live.
    #[must_use]
    pub fn live(&self) -> u64 {
        self.blocks.iter().map(|block| block.live).sum()
    }

    /// The weight of all records in its blocks.
    #[must_use]
    pub fn weight(&self) -> u64 {
        self.blocks.iter().map(|block| block.weight).sum()
    }

    /// All pages that it takes, its index included.
    pub fn spans(&self) -> impl Iterator<Item = Span> + '_ {
        self.blocks.iter().map(|block| block.span).chain([self.index])
    }

    /// The block behind a fence.
    #[must_use]
    pub fn block(&self, fence: usize) -> Option<&Block> {
        let number = self.fences.block(fence);
        if number == NOWHERE { None } else { self.blocks.get(number as usize) }
    }

    /// The block that has a key, if any has.
    #[must_use]
    pub fn find(&self, key: &[u8]) -> Option<&Block> {
        self.fences.find(key).and_then(|fence| self.block(fence))
    }

    /// Drops the blocks that have no fence, and returns their pages.
    pub fn drop_dead(&mut self) -> Vec<Span> {
        let mut has_fence = vec![false; self.blocks.len()];
        for block in self.fences.blocks() {
            if let Some(has) = has_fence.get_mut(*block as usize) {
                *has = true;
            }
        }
        let (mut dead, mut numbers, mut kept) = (Vec::new(), Vec::new(), Vec::new());
        for (block, has) in self.blocks.iter().zip(has_fence) {
            numbers.push(kept.len() as u32);
            if has { kept.push(*block) } else { dead.push(block.span) }
        }
        self.blocks = kept;
        self.fences.renumber(|block| numbers.get(block as usize).copied().unwrap_or(NOWHERE));
        dead
    }

    /// The index as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, self.blocks.len() as u64);
        let mut before = 0;
        for block in &self.blocks {
            put_varint(&mut bytes, zigzag(i64::from(block.span.page) - before));
            put_varint(&mut bytes, u64::from(block.span.pages));
            put_varint(&mut bytes, block.weight);
            put_varint(&mut bytes, block.weight - block.live);
            before = i64::from(block.span.all().end);
        }
        bytes.push(self.last.len() as u8);
        bytes.extend_from_slice(&self.last);
        self.fences.encode(&mut bytes);
        bytes
    }

    /// Reads an index.
    ///
    /// # Errors
    /// The bytes are none.
    pub fn decode(bytes: &[u8], number: u32, slot: u32, index: Span) -> Result<Self> {
        let (blocks, last, fences) = decode(bytes).map_err(damaged)?;
        Ok(Self { number, slot, index, blocks, fences, last })
    }
}

/// The blocks of an index, the last key, and the fences.
fn decode(bytes: &[u8]) -> esker_format::Result<(Vec<Block>, Vec<u8>, Fences)> {
    let mut input = bytes::Reader::new(bytes);
    let (mut blocks, mut before) = (Vec::new(), 0i64);
    for _ in 0..input.varint()? {
        let page = before.checked_add(unzigzag(input.varint()?));
        let page = page.and_then(|page| u32::try_from(page).ok());
        let page = page.ok_or_else(|| input.error("a block is in no page"))?;
        let span = Span { page, pages: input.varint_u32()? };
        let (weight, dead) = (input.varint()?, input.varint()?);
        let live = weight.checked_sub(dead);
        let live = live.ok_or_else(|| input.error("more of a block is dead than it has"))?;
        before = i64::from(span.all().end);
        blocks.push(Block { span, weight, live });
    }
    let length = input.u8()?;
    let last = input.take(length.into())?.to_vec();
    let fences = Fences::decode(&mut input)?;
    let is_there = |block: &u32| *block == NOWHERE || (*block as usize) < blocks.len();
    if !fences.blocks().iter().all(is_there) {
        return Err(input.error("a fence leads to no block"));
    }
    Ok((blocks, last, fences))
}

const fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

const fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// Blocks that a reader keeps decoded: those that fences alternate between.
const KEPT: usize = 32;

/// Reads blocks of one version, and counts.
#[derive(Debug)]
pub struct Reader {
    snapshot: Snapshot,
    /// By their first pages, the last used at the end.
    kept: Vec<(u32, Arc<Vec<Record>>)>,
    bytes: Vec<u8>,
    /// Pages read from the store.
    pub pages_read: u64,
}

impl Reader {
    /// A reader of a version.
    #[must_use]
    pub const fn new(snapshot: Snapshot) -> Self {
        Self { snapshot, kept: Vec::new(), bytes: Vec::new(), pages_read: 0 }
    }

    /// The bytes of pages.
    ///
    /// # Errors
    /// Those of the store.
    pub fn bytes(&mut self, span: Span) -> Result<&[u8]> {
        let page_bytes = self.snapshot.page_size() as usize;
        self.bytes.resize(span.pages as usize * page_bytes, 0);
        for (page, part) in span.all().zip(self.bytes.chunks_mut(page_bytes)) {
            self.snapshot.read(page, 0, part).map_err(pages)?;
        }
        self.pages_read += u64::from(span.pages);
        Ok(&self.bytes)
    }

    /// The records of a block, dead ones included.
    ///
    /// # Errors
    /// Those of the store; the block is damaged.
    pub fn block(&mut self, block: &Block) -> Result<Arc<Vec<Record>>> {
        let page = block.span.page;
        if let Some(at) = self.kept.iter().position(|(of, _)| *of == page) {
            let found = self.kept.remove(at);
            let records = Arc::clone(&found.1);
            self.kept.push(found);
            return Ok(records);
        }
        let records = block::decode(self.bytes(block.span)?)?;
        if self.kept.len() >= KEPT {
            self.kept.remove(0);
        }
        self.kept.push((page, Arc::clone(&records)));
        Ok(records)
    }

    /// What a table has of a key: `Some(None)` for a tombstone.
    ///
    /// # Errors
    /// As [`block`](Self::block).
    pub fn get(&mut self, table: &Table, key: &[u8]) -> Result<Option<Option<Vec<u8>>>> {
        match table.find(key) {
            Some(block) => block::find(self.bytes(block.span)?, key),
            None => Ok(None),
        }
    }
}
