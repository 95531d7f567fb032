//! Blocks that a scan holds from one of its batches to the next: the current ones of its sources,
//! and those that were read ahead. They are in memory only: no space of the data file is kept for
//! them.
//!
//! A block is held under its pointer, which has its generation and checksum, so that what is held
//! is the block that a later view leads to, or is not asked for.
//!
//! A read of several blocks fails as a whole if one sector cannot be read. Its blocks are noted as
//! lost, and the scan reads each of them by itself: it does not ask for them together again.
//!
//! Invariant: pointers ascend by sector, and no two are equal.

use std::sync::Arc;

use esker_format::ptr::BlockPtr;
use esker_substrate::budget::{Budget, Lease, Part};
use esker_substrate::cache::CachedBlock;

/// Most bytes of blocks that are held between two batches.
const BYTES_MAX: usize = 256 << 10;
/// Most lost blocks that are noted. Others may be asked for again.
const LOST_MAX: usize = 256;

/// A set of blocks.
#[derive(Debug, Default)]
pub struct HeldBlocks {
    blocks: Vec<(BlockPtr, Arc<CachedBlock>)>,
    /// Sectors of the lost blocks.
    lost: Vec<u64>,
    /// Their memory between two batches.
    lease: Option<Lease>,
}

impl HeldBlocks {
    fn find(&self, ptr: &BlockPtr) -> Result<usize, usize> {
        self.blocks.binary_search_by_key(&ptr.sector, |(held, _)| held.sector)
    }

    /// Whether a block is held.
    pub(crate) fn has(&self, ptr: &BlockPtr) -> bool {
        let at = self.find(ptr).ok().and_then(|at| self.blocks.get(at));
        at.is_some_and(|(held, _)| held == ptr)
    }

    /// Takes a block out.
    pub(crate) fn take(&mut self, ptr: &BlockPtr) -> Option<Arc<CachedBlock>> {
        let at = self.find(ptr).ok()?;
        let is_same = self.blocks.get(at).is_some_and(|(held, _)| held == ptr);
        is_same.then(|| self.blocks.remove(at).1)
    }

    /// Puts a block in; of two with the same place in the file, the later one stays.
    pub(crate) fn put(&mut self, ptr: BlockPtr, block: Arc<CachedBlock>) {
        match self.find(&ptr) {
            Ok(at) => self.blocks.splice(at..=at, [(ptr, block)]).for_each(drop),
            Err(at) => self.blocks.insert(at, (ptr, block)),
        }
    }

    /// Takes all blocks out; their memory stays counted. Both sets know the lost blocks.
    pub(crate) fn take_all(&mut self) -> Self {
        let blocks = std::mem::take(&mut self.blocks);
        Self { blocks, lost: self.lost.clone(), lease: None }
    }

    /// Whether a block did not come when it was read together with others.
    pub(crate) fn is_lost(&self, ptr: &BlockPtr) -> bool {
        self.lost.contains(&ptr.sector)
    }

    /// Notes that a block did not come when it was read together with others.
    pub(crate) fn lose(&mut self, ptr: &BlockPtr) {
        self.note_lost(ptr.sector);
    }

    /// Notes the lost blocks of another set.
    pub(crate) fn lose_those_of(&mut self, other: &Self) {
        other.lost.iter().for_each(|sector| self.note_lost(*sector));
    }

    fn note_lost(&mut self, sector: u64) {
        if self.lost.len() < LOST_MAX && !self.lost.contains(&sector) {
            self.lost.push(sector);
        }
    }

    /// Puts blocks of another set in as long as no more than 256 KiB are held.
    pub(crate) fn extend(&mut self, other: Self) {
        self.lose_those_of(&other);
        let mut room = BYTES_MAX.saturating_sub(self.bytes());
        for (ptr, block) in other.blocks {
            if let Some(left) = room.checked_sub(block.len()) {
                room = left;
                self.put(ptr, block);
            }
        }
    }

    /// Counts the memory of the blocks as the cache's; drops them if it has too little.
    pub(crate) fn count(&mut self, budget: &Arc<Budget>) {
        self.lease = None;
        let bytes = self.bytes() as u64;
        if bytes > 0 {
            self.lease = budget.try_lease(Part::Cache, bytes);
        }
        if self.lease.is_none() {
            self.blocks = Vec::new();
        }
    }

    fn bytes(&self) -> usize {
        self.blocks.iter().map(|(_, block)| block.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use esker_format::block::{BlockBuilder, BlockIdentity, BlockLayout};
    use esker_format::data::Data;
    use esker_format::entry::Payload;
    use esker_format::ids::{Generation, KeyspaceId, Seq, StoreId};

    use super::*;

    fn block(sector: u64, generation: u64) -> (BlockPtr, Arc<CachedBlock>) {
        let generation = Generation(generation);
        let (store, keyspace) = (StoreId(1), KeyspaceId(1));
        let mut builder = BlockBuilder::new(4096);
        builder.push(b"key", Seq(1), &Payload::of(Data::Put(b"value")));
        let mut bytes = vec![0; 4096];
        let identity = BlockIdentity { store, keyspace, sector, generation };
        let crc = builder.finish(identity, &mut bytes).crc;
        let layout = BlockLayout::parse(&bytes).unwrap();
        (
            BlockPtr { sector, sectors: 8, generation, crc },
            Arc::new(CachedBlock::new(bytes.into(), layout)),
        )
    }

    #[test]
    fn a_block_of_another_generation_is_not_taken() {
        let mut held = HeldBlocks::default();
        let ((old, was), (new, is)) = (block(8, 1), block(8, 2));
        held.put(old, was);
        assert!(held.has(&old) && !held.has(&new));
        assert!(held.take(&new).is_none());
        held.put(new, is);
        assert!(held.take(&old).is_none());
        assert!(held.take(&new).is_some() && held.take(&new).is_none());
    }

    #[test]
    fn lost_blocks_are_known_to_all_sets_of_a_scan() {
        let (mut held, (ptr, _)) = (HeldBlocks::default(), block(8, 1));
        held.lose(&ptr);
        let mut of_batch = held.take_all();
        assert!(held.is_lost(&ptr) && of_batch.is_lost(&ptr));
        for sector in 9..1_000 {
            of_batch.lose(&block(sector, 1).0);
        }
        assert_eq!(of_batch.lost.len(), LOST_MAX);
        held.extend(of_batch);
        assert!(held.is_lost(&block(9, 1).0) && held.lost.len() == LOST_MAX);
    }

    #[test]
    fn no_more_is_held_than_256_kib_and_the_budget_counts_it() {
        let (mut held, mut more) = (HeldBlocks::default(), HeldBlocks::default());
        for sector in (0..2_000).rev() {
            let (ptr, block) = block(sector, 1);
            more.put(ptr, block);
        }
        held.extend(more);
        let bytes = held.bytes() as u64;
        assert!(held.bytes() <= BYTES_MAX && held.bytes() + 4096 > BYTES_MAX);
        let budget = Arc::new(Budget::new(2 * BYTES_MAX as u64));
        held.count(&budget);
        assert_eq!(budget.used_bytes(Part::Cache), bytes);
        let taken = held.take_all();
        assert_eq!((taken.bytes() as u64, budget.used_bytes(Part::Cache)), (bytes, bytes));
        held.extend(taken);
        let other = budget.lease(Part::Memtables, 2 * BYTES_MAX as u64);
        held.count(&budget);
        assert!(held.blocks.is_empty() && budget.used_bytes(Part::Cache) == 0);
        drop(other);
    }
}
