//! Statistics of a tree's parts, for users.

use esker_format::meta::{LevelMeta, Shape};

use crate::Index;
use crate::job::BackgroundJob;
use crate::run::tree::Tree;

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
    /// Sorted runs, newest first: the contents of their data level.
    pub sorted_runs: Vec<LevelStats>,
    /// Levels of the main tree, top down.
    pub levels: Vec<LevelStats>,
    /// Level sizes in force.
    pub shape: Shape,
    /// Merges since the keyspace was created.
    pub merges: u64,
    /// Memory of fences and filters, in bytes.
    pub fence_memory_bytes: u64,
    /// The merge under way.
    pub merge: Option<CompactionStats>,
    /// Whether the memtable is being written out.
    pub flushing: bool,
}

/// A merge under way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompactionStats {
    /// Of everything.
    pub full: bool,
    /// Levels of the main tree that are replaced.
    pub levels: usize,
    /// Bytes of data blocks that the new side has so far, those of the old bottom that it keeps
    /// included.
    pub written_bytes: u64,
    /// Bytes of data that it merges.
    pub input_bytes: u64,
    /// The last user key that has been merged.
    pub wavefront: Option<Vec<u8>>,
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

impl Index {
    /// Statistics; no I/O.
    pub fn stats(&self) -> TreeStats {
        let meta = self.meta();
        let view = self.views.load();
        let sorted_runs = meta.sorted_runs.iter().filter_map(|flush| flush.levels.last());
        // Of a level with scattered blocks, the contents of its last blocks.
        let scattered = meta.scattered_levels().filter_map(|level| level.tree.levels.last());
        let levels = meta.main.levels.iter().chain(scattered);
        TreeStats {
            memtable_entries: self.memtable_entries(),
            memtable_bytes: self.memtable_memory_bytes(),
            sorted_runs: sorted_runs.map(LevelStats::of).collect(),
            levels: levels.map(LevelStats::of).collect(),
            shape: meta.shape,
            merges: meta.merges,
            fence_memory_bytes: self.fence_memory_bytes(),
            merge: view.moving(BackgroundJob::Merge).map(|(_, merge)| merge.shown_stats()),
            flushing: self.is_flushing(),
        }
    }

    /// The memory of fences, in bytes.
    pub(crate) fn fence_memory_bytes(&self) -> u64 {
        let view = self.views.load();
        let trees = view.parts.iter().flat_map(|part| part.trees());
        let held: u64 = trees.map(|(tree, _)| tree.fence_memory_bytes()).sum();
        held + view.past.fence_memory_bytes()
    }

    /// The memory of a fence without its filter, in bytes, on average over the last level's; `None`
    /// where none is in memory.
    pub(crate) fn largest_fence_bytes(&self) -> Option<u64> {
        let view = self.views.load();
        let trees = view.parts.iter().flat_map(|part| part.trees());
        let of_last = |tree: &Tree| tree.known_fences(tree.height().checked_sub(1)?)?.each_bytes();
        trees.filter_map(|(tree, _)| of_last(tree)).next_back()
    }
}
