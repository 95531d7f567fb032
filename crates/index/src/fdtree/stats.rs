//! What a tree is made of, for users.

use esker_format::meta::{LevelMeta, Shape};

use super::FdTree;

/// One level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LevelStats {
    /// The level's number.
    pub rank: u8,
    /// Blocks.
    pub blocks: u64,
    /// Bytes on the device.
    pub bytes: u64,
    /// Puts.
    pub puts: u64,
    /// Tombstones.
    pub tombstones: u64,
    /// Bytes of puts and tombstones.
    pub data_bytes: u64,
    /// Versions kept only for snapshots.
    pub kept_for_snapshots: u64,
}

/// One keyspace's index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeStats {
    /// Versions in the memtable.
    pub memtable_entries: u64,
    /// Estimated memory of the memtable, in bytes.
    pub memtable_bytes: u64,
    /// Standing spill runs, newest first: what their data level holds.
    pub spills: Vec<LevelStats>,
    /// Levels of the main tree, top down.
    pub levels: Vec<LevelStats>,
    /// Level sizes in force.
    pub shape: Shape,
    /// Merges since the keyspace was created.
    pub merges: u64,
    /// Memory of fences and filters, in bytes.
    pub fence_memory_bytes: u64,
}

impl LevelStats {
    fn of(meta: &LevelMeta) -> Self {
        Self {
            rank: meta.rank,
            blocks: meta.counts.blocks,
            bytes: meta.counts.sectors * esker_format::ptr::SECTOR_BYTES,
            puts: meta.counts.puts,
            tombstones: meta.counts.tombstones,
            data_bytes: meta.counts.data_bytes(),
            kept_for_snapshots: meta.counts.kept_for_snapshots,
        }
    }
}

impl FdTree {
    /// Statistics; no I/O.
    pub fn stats(&self) -> TreeStats {
        let spills = self.meta.spills.iter().filter_map(|spill| spill.levels.last());
        TreeStats {
            memtable_entries: self.memtable_entries(),
            memtable_bytes: self.memtable.memory_bytes(),
            spills: spills.map(LevelStats::of).collect(),
            levels: self.meta.main.levels.iter().map(LevelStats::of).collect(),
            shape: self.meta.shape,
            merges: self.meta.merges,
            fence_memory_bytes: self.trees().map(super::tree::Tree::fence_memory_bytes).sum(),
        }
    }
}
