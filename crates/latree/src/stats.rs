//! What a tree has done, and how full it is.

use crate::flash::Counts;

/// Counts since the tree was opened, and sizes now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Operations on the chip.
    pub flash: Counts,
    /// Lookups, and batches of ranges.
    pub lookups: u64,
    /// Pages of buffers that they read.
    pub scanned_pages: u64,
    /// Emptyings that ADAPT asked for.
    pub adaptive_empties: u64,
    /// Emptyings for the size of a buffer, or of all of them.
    pub sized_empties: u64,
    /// Parts in memory that were moved to the buffers below instead of being flushed.
    pub handed_down: u64,
    /// Emptyings before a block is collected.
    pub collected_empties: u64,
    /// Nodes that were moved to collect a block.
    pub moved_nodes: u64,
    /// Pages of buffers that were moved to collect a block.
    pub moved_fragments: u64,
    /// Blocks that were collected.
    pub collected_blocks: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Leaves.
    pub leaves: u64,
    /// Subtrees.
    pub subtrees: usize,
    /// Pages of buffers on flash.
    pub buffer_pages: usize,
    /// Pages in use.
    pub live_pages: u64,
    /// Blocks that are free.
    pub free_blocks: usize,
    /// The least erase count of a block.
    pub erases_least: u32,
    /// The greatest erase count of a block.
    pub erases_greatest: u32,
    /// Pages that the node cache may have.
    pub cache_pages: usize,
}
