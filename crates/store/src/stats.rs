//! What the store has done and what it holds, as plain structs.

/// A moment's figures of the whole store. Counters start at zero when the store is opened.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Every keyspace, by name.
    pub keyspaces: Vec<KeyspaceStats>,
    /// Device operations, one row a purpose, in a fixed order.
    pub io: Vec<IoStats>,
    /// Key and value bytes of accepted writes since the store was opened.
    pub user_bytes_written: u64,
    /// Space on the device.
    pub space: SpaceStats,
    /// Memory.
    pub memory: MemoryStats,
    /// Live snapshots, those of open ranges included.
    pub snapshots: u64,
    /// The sequence number of the oldest live snapshot: the version that it pins.
    pub oldest_snapshot: Option<u64>,
    /// Blocks found in the cache.
    pub cache_hits: u64,
    /// Blocks read from the device.
    pub cache_misses: u64,
    /// Why writes are refused, if they are.
    pub poisoned: Option<String>,
}

/// One keyspace.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct KeyspaceStats {
    /// Its name.
    pub name: String,
    /// Entries, estimated: puts less tombstones, versions and overwritten entries included.
    pub entries_estimate: u64,
    /// Bytes of encoded entries on the device.
    pub data_bytes: u64,
    /// Levels of the main tree, top down.
    pub levels: Vec<LevelStats>,
    /// Standing spill runs.
    pub spills: u64,
    /// Payload bytes in the memtable.
    pub memtable_bytes: u64,
    /// Entries in the memtable.
    pub memtable_entries: u64,
    /// Level sizes in force.
    pub shape: ShapeStats,
    /// Merges finished since the keyspace was created.
    pub merges: u64,
    /// Why the last merge of this keyspace stopped, if it did.
    pub stalled: Option<String>,
}

/// One level of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LevelStats {
    /// The level's number.
    pub rank: u8,
    /// Blocks.
    pub blocks: u64,
    /// Bytes of those blocks.
    pub bytes: u64,
    /// Puts.
    pub puts: u64,
    /// Tombstones.
    pub tombstones: u64,
}

/// The level sizes chosen at the last full merge.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ShapeStats {
    /// Growth per level.
    pub growth: f64,
    /// Upper levels with data.
    pub upper_levels: u8,
    /// Standing spill runs allowed.
    pub spill_runs: u8,
    /// Payload bytes of a full memtable.
    pub memtable_bytes: u64,
}

/// Device operations made for one purpose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IoStats {
    /// `user`, `log`, `merge`, `spill`, `gc`, `manifest`, `recovery` or `check`.
    pub purpose: &'static str,
    /// Read operations.
    pub reads: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Write operations.
    pub writes: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Syncs.
    pub syncs: u64,
}

/// Space on the device, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpaceStats {
    /// Length of the data file.
    pub data_file_bytes: u64,
    /// Part of it that holds blocks, those of finished merges not yet given back included.
    pub allocated_bytes: u64,
    /// Part of it that is free.
    pub free_bytes: u64,
    /// Log segments, spare ones included.
    pub log_bytes: u64,
    /// The manifest.
    pub manifest_bytes: u64,
}

/// Memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStats {
    /// The budget.
    pub budget_bytes: u64,
    /// Memtables.
    pub memtable_bytes: u64,
    /// Fences and filters held in memory.
    pub fence_bytes: u64,
    /// Cached blocks.
    pub cache_bytes: u64,
}
