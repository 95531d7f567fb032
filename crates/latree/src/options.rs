//! Options, and how memory is divided.
//!
//! The memory has fixed parts (8 bytes for each block, pages in flight) and parts that grow with
//! the tree (subtrees, and the pages of buffers on flash). What is left is divided between the
//! *pool* of operations that wait in memory and the *cache* of nodes; their shares follow the
//! workload. Where descriptors take a third, the buffers that hold most are emptied; where the
//! table of subtrees leaves room for the least pool and cache alone, puts are refused.

use alloc::format;

use crate::chip::Chip;
use crate::error::{Error, Result};
use crate::flash::CACHED_BYTES;
use crate::page::{ENTRY_BYTES, HEADER_BYTES};
use crate::space::Space;

/// How the fragments of a buffer are read by a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// All pages of the buffer, as in the paper.
    Whole,
    /// One page of each fragment, by the first 8 bytes of each page's first key, in memory.
    Sorted,
}

/// When buffers are emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffering {
    /// By ADAPT: when the lookups since the last emptying would have paid for one.
    Adaptive,
    /// When the pages of a buffer reach this size in bytes.
    Fixed(usize),
    /// After every operation: a B+tree.
    Off,
}

/// Options of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Memory of the tree, all included, in bytes; 128 KiB by default.
    pub memory_bytes: usize,
    /// Levels of a subtree, 1 to 3; 3 by default. It is part of the format.
    pub subtree_levels: u8,
    /// How buffers are read.
    pub scan: Scan,
    /// When they are emptied.
    pub buffering: Buffering,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            memory_bytes: 128 << 10,
            subtree_levels: 3,
            scan: Scan::Sorted,
            buffering: Buffering::Adaptive,
        }
    }
}

/// The sizes that follow from chip and options, in bytes where nothing else is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// For pool, cache, subtrees and descriptors.
    pub shared: usize,
    /// Entries that an emptying or a range holds at once.
    pub batch: usize,
    /// The greatest number of fragments that a buffer keeps.
    pub fragments_max: usize,
    /// Log pages after which a checkpoint is made.
    pub log_pages_max: u32,
    /// The most bytes of the pool.
    pool_max: usize,
    page_bytes: usize,
}

/// The fewest pages of pool and cache.
const POOL_PAGES_MIN: usize = 4;
const CACHE_PAGES_MIN: usize = 8;

/// The least memory of pool and cache.
const fn pool_and_cache_min(page_bytes: usize) -> usize {
    POOL_PAGES_MIN * page_bytes + CACHE_PAGES_MIN * (page_bytes + CACHED_BYTES)
}

impl Plan {
    /// The plan for a chip.
    ///
    /// # Errors
    /// [`Error::Options`] for sizes that cannot be, [`Error::Memory`] for too little memory.
    pub(crate) fn new(chip: &impl Chip, options: &Options) -> Result<Self> {
        let (page, blocks) = (chip.page_bytes(), chip.blocks());
        let in_block = chip.pages_per_block();
        let is_possible = (256..=32_768).contains(&page)
            && (2..=4096).contains(&in_block)
            && (1..=3).contains(&options.subtree_levels)
            && blocks >= 16
            && u64::from(blocks) * u64::from(in_block) < 1 << 31;
        if !is_possible {
            return Err(Error::Options(format!(
                "a chip of {blocks} blocks of {in_block} pages of {page} bytes with {} levels in \
                 a subtree: use pages of 256 to 32768 bytes, 2 to 4096 in a block, at least 16 \
                 blocks, fewer than 2^31 pages, and 1 to 3 levels",
                options.subtree_levels
            )));
        }
        let memory = options.memory_bytes;
        let batch = (memory / 32).clamp(page, 8 * page);
        let fragments_max = (memory / 16 / page).clamp(4, 16);
        // The log's page, a page that is programmed, two of a builder, and a batch.
        let fixed = |batch: usize| Space::heap_bytes(blocks) + 5 * page + 2 * batch + 1024;
        let least = pool_and_cache_min(page);
        let Some(shared) = memory.checked_sub(fixed(batch)).filter(|shared| *shared >= 2 * least)
        else {
            // A batch is at most a sixteenth of the memory, and a page at least.
            let needed = fixed(page) + 2 * least;
            let needed_bytes = needed.max(needed + (needed / 15).saturating_sub(2 * page));
            return Err(Error::Memory { needed_bytes, given_bytes: memory });
        };
        // A checkpoint has the whole pool, and a recovery writes what is in the log: both have room
        // in reserve, which must be a part of the chip.
        let pages = blocks as usize * in_block as usize / 8;
        let log_pages_max = (shared / page).min(pages).max(8) as u32;
        let pool_max = pages.max(POOL_PAGES_MIN).saturating_mul(page);
        Ok(Self { shared, batch, fragments_max, log_pages_max, pool_max, page_bytes: page })
    }

    /// The bytes of the pool and the pages of the cache, when subtrees and descriptors take
    /// `taken` bytes, the pool has `filled`, and gets one of `parts` parts of what is left.
    pub(crate) fn divide(&self, taken: usize, filled: usize, parts: usize) -> (usize, usize) {
        let left = self.shared.saturating_sub(taken);
        let least = POOL_PAGES_MIN * self.page_bytes;
        let pool = (left / parts.max(2)).min(self.pool_max).max(least);
        let pages = left.saturating_sub(pool.max(filled)) / (self.page_bytes + CACHED_BYTES);
        (pool, pages.max(CACHE_PAGES_MIN))
    }

    /// The most memory that the table of subtrees may take for puts to be admitted.
    pub(crate) fn table_max(&self) -> usize {
        let least = pool_and_cache_min(self.page_bytes);
        self.shared.saturating_sub(self.descriptors_max() + least)
    }

    /// The most memory that descriptors of buffers and of their pages take.
    pub(crate) fn descriptors_max(&self) -> usize {
        self.shared / 3
    }
}

/// The parts of which the pool gets one: 2, 4 or 10, by the lookups an update since the pool was
/// last flushed. With as much memory as the cache it loses to a B+tree when lookups dominate.
pub(crate) fn pool_parts(lookups: u64, updates: u64) -> usize {
    match lookups / updates.max(1) {
        0 => 2,
        1..4 => 4,
        _ => 10,
    }
}

/// Whether fragments get filters, by the lookups and updates since the pool was last flushed.
pub(crate) fn has_filters(lookups: u64, updates: u64) -> bool {
    lookups.saturating_mul(16) >= updates.max(1)
}

/// The greatest size of a key and its value: a quarter of a page, so that a node has four.
pub(crate) fn entry_limit(page_bytes: usize) -> usize {
    (page_bytes - HEADER_BYTES - 8) / 4 - ENTRY_BYTES - 4
}
