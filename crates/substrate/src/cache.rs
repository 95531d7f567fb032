//! The block cache: verified blocks by address, generation and checksum.
//!
//! The generation is part of the key, so a block that was freed and rewritten is never served with
//! its former contents; stale entries age out. The checksum is, because a merge that failed and is
//! repeated may write something else at the same place with the same generation.

pub(crate) mod buffers;

use std::sync::Arc;

use esker_format::block::{BlockLayout, BlockView};
use esker_format::ptr::BlockPtr;

/// A verified block in memory, decompressed. Its bytes are not aligned for direct I/O: an
/// allocation of 4 KiB at a multiple of 4 KiB takes twice its length.
#[derive(Debug)]
pub struct CachedBlock {
    bytes: Box<[u8]>,
    layout: BlockLayout,
}

impl CachedBlock {
    /// A block whose `layout` was verified against `bytes`, unpacked where it was packed.
    #[must_use]
    pub const fn new(bytes: Box<[u8]>, layout: BlockLayout) -> Self {
        Self { bytes, layout }
    }

    /// The memory that a block of so many bytes takes in the cache.
    #[must_use]
    pub const fn weight_of(bytes: usize) -> u64 {
        bytes as u64 + ENTRY_BYTES
    }

    /// Bytes of the block.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The block, for reading.
    #[must_use]
    pub fn view(&self) -> BlockView<'_> {
        BlockView::new(&self.bytes, self.layout)
    }
}

impl Drop for CachedBlock {
    fn drop(&mut self) {
        buffers::give(std::mem::take(&mut self.bytes));
    }
}

#[derive(Clone, Debug)]
struct ByLength;

/// Memory of a cached block in addition to its bytes.
const ENTRY_BYTES: u64 = 160;

/// The share of the cache that is left to what is read, as a divisor, when written blocks enter.
/// The cache has parts, and one may be full before all are.
const READ_SHARE: u64 = 4;

/// Sector, generation and checksum.
type Key = (u64, u64, u32);

impl quick_cache::Weighter<Key, Arc<CachedBlock>> for ByLength {
    fn weight(&self, _: &Key, block: &Arc<CachedBlock>) -> u64 {
        CachedBlock::weight_of(block.bytes.len())
    }
}

/// Verified blocks within a number of bytes: as long as they are in memory, not as they are stored.
#[derive(Debug)]
pub struct BlockCache {
    blocks: quick_cache::sync::Cache<Key, Arc<CachedBlock>, ByLength>,
}

const fn cache_key(ptr: &BlockPtr) -> Key {
    (ptr.sector, ptr.generation.0, ptr.crc)
}

impl BlockCache {
    /// A cache of at most `bytes`.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let estimated_items = usize::try_from(bytes / 4096).unwrap_or(usize::MAX).max(16);
        Self { blocks: quick_cache::sync::Cache::with_weighter(estimated_items, bytes, ByLength) }
    }

    /// The block, if it is cached.
    pub fn get(&self, ptr: &BlockPtr) -> Option<Arc<CachedBlock>> {
        self.blocks.get(&cache_key(ptr))
    }

    /// Whether the block is cached, without counting as a use.
    pub fn contains(&self, ptr: &BlockPtr) -> bool {
        self.blocks.contains_key(&cache_key(ptr))
    }

    /// Adds a block.
    pub fn insert(&self, ptr: &BlockPtr, block: &Arc<CachedBlock>) {
        self.blocks.insert(cache_key(ptr), Arc::clone(block));
    }

    /// The bytes of written blocks that would enter without taking the place of other blocks, if
    /// the cache had `most` bytes at most. Asks each part of the cache.
    pub fn room(&self, most: u64) -> u64 {
        let capacity = self.blocks.capacity().min(most);
        (capacity - capacity / READ_SHARE).saturating_sub(self.bytes())
    }

    /// Removes a block, if it is there.
    pub fn remove(&self, ptr: &BlockPtr) {
        self.blocks.remove(&cache_key(ptr));
    }

    /// Hits and misses so far.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        (self.blocks.hits(), self.blocks.misses())
    }

    /// Bytes in use.
    pub fn bytes(&self) -> u64 {
        self.blocks.weight()
    }

    /// Changes the number of bytes.
    pub fn set_bytes_max(&self, bytes: u64) {
        self.blocks.set_capacity(bytes);
    }
}
