//! The meta blocks of commit records: filled in turn, erased when all that they hold is obsolete.
//!
//! Invariants: pages are programmed in the order of `used` and, within a block, ascending; so a
//! scan in this order sees records in the order of their commits. A block of `erased` is erased;
//! the one that waits longest is used next.

use std::collections::VecDeque;

use super::record;
use super::store::Store;
use crate::error::{Error, Result};
use crate::nand::{BlockId, Cause, Lpn, Nand, PageKind, Ppn, Spare};

/// The blocks of commit records: four, as MV-FTL's evaluation has them (section 3.3).
pub(crate) const BLOCKS: usize = 4;

/// A record to be written.
pub(crate) struct Writing<'a, const N: usize> {
    pub(crate) magic: [u8; 4],
    pub(crate) entries: &'a [[u8; N]],
    pub(crate) sequence: u64,
    pub(crate) cause: Cause,
}

/// Meta blocks for records.
#[derive(Clone, Debug)]
pub(crate) struct Ring {
    /// Blocks with pages, the oldest first. The last is written on.
    used: VecDeque<BlockId>,
    erased: VecDeque<BlockId>,
    /// The index of the next page in the last block of `used`.
    next: u32,
}

impl Ring {
    /// `used` as a scan found them, the oldest first; `next` is the index of the next page in the
    /// last one.
    pub(crate) fn new(used: Vec<BlockId>, next: u32, erased: Vec<BlockId>) -> Self {
        Self { used: used.into(), erased: erased.into(), next }
    }

    /// Pages that can be programmed before blocks must be recycled, with `kept` erased blocks kept.
    pub(crate) fn room(&self, pages_per_block: u32, kept: usize) -> u64 {
        let open = if self.used.is_empty() { 0 } else { pages_per_block.saturating_sub(self.next) };
        let erased = self.erased.len() as u64 * u64::from(pages_per_block);
        let kept = kept as u64 * u64::from(pages_per_block);
        (u64::from(open) + erased).saturating_sub(kept)
    }

    pub(crate) fn erased(&self) -> usize {
        self.erased.len()
    }

    /// The blocks, for the accounting of all blocks.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = BlockId> {
        self.used.iter().chain(&self.erased).copied()
    }

    /// Whether the block has records.
    pub(crate) fn has_records(&self, block: BlockId) -> bool {
        self.used.contains(&block)
    }

    /// Whether the block is erased and waits for records.
    pub(crate) fn is_waiting(&self, block: BlockId) -> bool {
        self.erased.contains(&block)
    }

    /// Goes on in an erased block, whatever room the last one has.
    pub(crate) fn begin_block(&mut self) -> Result<()> {
        let Some(block) = self.erased.pop_front() else {
            return Err(Error::Full("no erased block is left for commit records".to_owned()));
        };
        self.used.push_back(block);
        self.next = 0;
        Ok(())
    }

    /// Programs a record, at least one entry long; the block in which it begins. `page` is a buffer
    /// of one page.
    pub(crate) fn append<N: Nand, const E: usize>(
        &mut self,
        store: &mut Store<N>,
        page: &mut [u8],
        record: &Writing<'_, E>,
    ) -> Result<Option<BlockId>> {
        let mut begins = None;
        let held = record::per_page::<E>(page.len()).max(1);
        let last = record.entries.len().div_ceil(held).saturating_sub(1);
        for (at, entries) in record.entries.chunks(held).enumerate() {
            record::encode(page, record.magic, record.sequence, entries, at == last);
            let place = self.place(store.pages_per_block())?;
            begins = begins.or(Some(place.0));
            let place = Ppn(store.nand.geometry().first_page(place.0).0 + place.1);
            // The index in the record orders blocks that one record begins.
            let lpn = Lpn(u32::try_from(at).unwrap_or(u32::MAX));
            let spare = Spare { lpn, kind: PageKind::Commit, seq: record.sequence };
            store.program_meta(place, page, spare, record.cause)?;
        }
        Ok(begins)
    }

    fn place(&mut self, pages_per_block: u32) -> Result<(BlockId, u32)> {
        if self.used.is_empty() || self.next >= pages_per_block {
            self.begin_block()?;
        }
        let Some(block) = self.used.back().copied() else {
            return Err(Error::Invariant("commit records have no block".to_owned()));
        };
        let at = self.next;
        self.next += 1;
        Ok((block, at))
    }

    /// The block that is written on.
    pub(crate) fn current(&self) -> Option<BlockId> {
        self.used.back().copied()
    }

    /// Erases all blocks before `kept`, or all blocks.
    pub(crate) fn recycle<N: Nand>(
        &mut self,
        store: &mut Store<N>,
        kept: Option<BlockId>,
    ) -> Result<()> {
        while let Some(oldest) = self.used.front().copied() {
            if Some(oldest) == kept {
                break;
            }
            let erased = store.recycle(oldest)?;
            self.used.pop_front();
            self.erased.push_back(erased);
        }
        Ok(())
    }
}
