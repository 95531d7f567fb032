//! Statistics of a store: its operations since it was opened, and its contents, as plain structs.

mod lsm;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use esker_substrate::sync::atomic::Ordering;

use esker_device::Purpose;
use esker_device::count::PurposeCounts;
use esker_format::meta::{IndexMeta, LevelMeta, LsmLevel, PastIndex, Shape};
use esker_format::ptr::{SECTOR_BYTES, UNIT_BYTES};
use esker_index::Forecast;
use esker_substrate::budget::Part;
use esker_substrate::snapshots::At;

use crate::error::Result;
use crate::history::History;
use crate::memory_pressure;
use crate::options::Compression;
use crate::shared::Core;
use crate::slot::Slot;
use crate::stall_stats::Why;
use esker_index::IndexKind;

pub use lsm::{LsmLearnt, LsmLevelStats, LsmRunStats, LsmStats, LsmWrites};

/// Statistics of the whole store at one moment. Counters start at zero when the store is opened.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Every keyspace, by name.
    pub keyspaces: Vec<KeyspaceStats>,
    /// Device operations, one row for each purpose, in a fixed order.
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
    /// The snapshots, readers, backups and memtables that keep space from being reused.
    pub pins: PinStats,
    /// Writers that had to wait, one row for each reason, in a fixed order.
    pub waits: Vec<WaitStats>,
    /// Transactions.
    pub transactions: TransactionStats,
    /// Blocks found in the cache.
    pub cache_hits: u64,
    /// Blocks read from the device.
    pub cache_misses: u64,
    /// The reason why writes are refused, if they are.
    pub poisoned: Option<String>,
}

/// A past index of a keyspace with history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PastIndexStats {
    /// The first version that it answers.
    pub from: u64,
    /// The first version that it does not answer: the next index does.
    pub until: u64,
    /// Its entries, all versions.
    pub entries: u64,
    /// Bytes that they take on the device, with the fences to their blocks.
    pub stored_bytes: u64,
}

impl PastIndexStats {
    fn of(past: &PastIndex) -> Self {
        let counts = || past.levels().map(|level| level.counts);
        Self {
            from: past.from.0,
            until: past.until.0,
            entries: counts().map(|counts| counts.data_entries()).sum(),
            stored_bytes: counts().map(|counts| counts.sectors.saturating_mul(SECTOR_BYTES)).sum(),
        }
    }
}

/// Statistics of one keyspace.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct KeyspaceStats {
    /// Its name.
    pub name: String,
    /// The kind of its index.
    pub index: IndexKind,
    /// The estimated number of entries: puts minus tombstones on the device, plus all entries of
    /// the memtable. Old versions and overwritten entries are counted.
    pub entries_estimate: u64,
    /// The compression of data blocks that are written now.
    pub compression: Compression,
    /// The history that it keeps, if any.
    pub history: Option<History>,
    /// The oldest version that can be read, of a keyspace with history.
    pub history_from: Option<u64>,
    /// Its past indexes, oldest first, where it has history: what copies of the live entries have
    /// left for readers of earlier versions. The other numbers are of the index of now.
    pub past_indexes: Vec<PastIndexStats>,
    /// Bytes of encoded entries on the device, before compression.
    pub data_bytes: u64,
    /// Bytes that these entries take on the device: their blocks, and the fences to the blocks.
    pub stored_bytes: u64,
    /// Bytes that blobs take on the device, including the blobs of entries in the memtable.
    pub value_bytes: u64,
    /// Levels of the main tree, top down, or of the LSM index.
    pub levels: Vec<LevelStats>,
    /// More about an LSM index; `None` for other kinds.
    pub lsm: Option<LsmStats>,
    /// The number of sorted runs.
    pub sorted_runs: u64,
    /// Estimated memory of the memtable, in bytes, including frozen memtables.
    pub memtable_bytes: u64,
    /// Entries in the memtable.
    pub memtable_entries: u64,
    /// Current level sizes.
    pub shape: ShapeStats,
    /// Merges finished since the keyspace was created.
    pub merges: u64,
    /// The error that stopped a flush or merge of this keyspace, if one has stopped.
    pub stalled: Option<String>,
    /// The number of times that a flush or merge has stopped since the store was opened, including
    /// those that succeeded when tried again.
    pub merges_stopped: u64,
    /// The merge under way.
    pub merge: Option<CompactionStats>,
    /// Whether the memtable is being flushed.
    pub flushing: bool,
    /// Range tombstones. Each is kept until a full merge has dropped the entries that it hides.
    pub removed_ranges: u64,
    /// The next flush or merge; `None` while it has to wait for the one under way.
    pub next: Option<NextStats>,
    /// Versions that merges have kept only for snapshots.
    pub kept_versions: u64,
    /// Bytes of blocks that merges have replaced and that a reader or a backup still holds.
    pub replaced_bytes: u64,
}

/// A keyspace's next flush or merge, as predicted now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NextStats {
    /// Bytes of memory that the memtable grows by before the flush or merge begins; 0 if it is due.
    pub after_bytes: u64,
    /// Bytes of the memtable that are flushed as a sorted run first; 0 for none.
    pub flush_bytes: u64,
    /// Bytes of data that are then merged; 0 if no merge follows.
    pub merge_bytes: u64,
    /// The number of levels of the index that the merge replaces or merges into.
    pub merge_levels: usize,
    /// Whether these are all levels.
    pub merge_is_full: bool,
}

/// The snapshots, readers, backups and memtables that keep space from being reused. The guide's
/// page on operating describes the remedies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PinStats {
    /// The age of the oldest live snapshot; snapshots of ranges and transactions are included.
    pub oldest_snapshot_age: Option<Duration>,
    /// Operations since that snapshot was taken: the versions that they replaced are kept for it.
    pub writes_since_oldest: u64,
    /// Versions that merges have kept only for snapshots.
    pub kept_versions: u64,
    /// Bytes of blocks that merges have replaced and that a reader or a backup still holds.
    pub replaced_bytes: u64,
    /// Whether a backup is being made: it keeps the log, and the blocks that are replaced
    /// meanwhile.
    pub backup: bool,
    /// The keyspace whose memtable needs the oldest log segment that is in use.
    pub log_keyspace: Option<String>,
}

/// Writers that waited for one reason, since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitStats {
    /// `memory`: the memtables of the keyspace were full and being flushed. `merge`: writers were
    /// ahead of a merge under way, with which they keep step. `turn`: another transaction had the
    /// writers' turn.
    pub reason: &'static str,
    /// The number of writers that wait now.
    pub waiting: u64,
    /// The number of waits, including those that have not ended.
    pub waits: u64,
    /// The total time of the waits that have ended.
    pub total: Duration,
    /// The longest wait that has ended.
    pub longest: Duration,
}

/// A merge under way.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompactionStats {
    /// Whether the merge is full: it merges all levels.
    pub full: bool,
    /// Levels of the main tree, from the top, that are replaced.
    pub levels: usize,
    /// Bytes of data blocks that the new levels have so far, including blocks of the old bottom
    /// level that are kept as they are.
    pub written_bytes: u64,
    /// Bytes of data that are merged in total, all versions included.
    pub input_bytes: u64,
    /// The last key that has been merged: keys up to it are read from the new levels.
    pub wavefront: Option<Vec<u8>>,
}

impl fmt::Debug for CompactionStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The wavefront is a key, and left out: keys do not belong in logs.
        f.debug_struct("CompactionStats")
            .field("full", &self.full)
            .field("levels", &self.levels)
            .field("written_bytes", &self.written_bytes)
            .field("input_bytes", &self.input_bytes)
            .finish_non_exhaustive()
    }
}

/// One level of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LevelStats {
    /// The level's number.
    pub rank: u8,
    /// The number of blocks.
    pub blocks: u64,
    /// Bytes of those blocks.
    pub bytes: u64,
    /// The number of puts.
    pub puts: u64,
    /// The number of tombstones.
    pub tombstones: u64,
}

/// The level sizes chosen at the last full merge.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ShapeStats {
    /// The ratio of the sizes of two adjacent levels.
    pub growth: f64,
    /// The number of upper levels with data.
    pub upper_levels: u8,
    /// The number of sorted runs allowed.
    pub sorted_runs: u8,
    /// The payload bytes of a full memtable.
    pub memtable_bytes: u64,
}

/// Device operations made for one purpose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IoStats {
    /// `user`, `log`, `merge`, `flush`, `gc`, `manifest`, `recovery`, `check`, `backup`
    /// or `value`.
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
    /// Part of it that holds blocks, including replaced blocks of finished merges that are not yet
    /// freed.
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
    /// The memory budget.
    pub budget_bytes: u64,
    /// Memtables.
    pub memtable_bytes: u64,
    /// Fences and filters held in memory.
    pub fence_bytes: u64,
    /// Cached blocks, and the buffers of flushes and merges.
    pub cache_bytes: u64,
    /// The buffers of flushes and merges alone.
    pub buffer_bytes: u64,
}

impl Stats {
    /// Bytes written to the device for each byte that the user wrote, since the store was opened;
    /// `None` if the user has written nothing.
    #[must_use]
    pub fn write_amplification(&self) -> Option<f64> {
        let written: u64 = self.io.iter().map(|io| io.bytes_written).sum();
        ratio(written, self.user_bytes_written)
    }

    /// Bytes of all files for each byte of entries in them, before compression: what fences, free
    /// space, log and manifest add. Entries that were overwritten count until a merge drops them.
    /// `None` if nothing has been flushed.
    #[must_use]
    pub fn space_amplification(&self) -> Option<f64> {
        let SpaceStats { data_file_bytes, log_bytes, manifest_bytes, .. } = self.space;
        let data = self.keyspaces.iter().map(|keyspace| keyspace.data_bytes).sum();
        ratio(data_file_bytes + log_bytes + manifest_bytes, data)
    }
}

fn ratio(bytes: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| bytes as f64 / of as f64)
}

/// Transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransactionStats {
    /// Transactions that have begun and not ended.
    pub live: u64,
    /// Commits refused since the store was opened, because something that was read had changed.
    pub conflicts: u64,
    /// Bytes of recently written keys that are remembered for the conflict checks of live
    /// transactions.
    pub remembered_bytes: u64,
}

pub(crate) fn collect(shared: &Core) -> Result<Stats> {
    let (cache_hits, cache_misses) = shared.env.blocks.cache().hits_and_misses();
    let (live, remembered_bytes) = shared.recent.held();
    let slots = shared.slots();
    // A keyspace dropped since the list was made is left out.
    let mut keyspaces: Vec<_> = slots.iter().filter_map(|slot| keyspace(slot)).collect();
    keyspaces.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Stats {
        pins: pins(shared, &slots, &keyspaces),
        waits: Why::ALL.into_iter().map(|why| wait(shared, why)).collect(),
        keyspaces,
        io: io(shared),
        user_bytes_written: shared.user_bytes_written.load(Ordering::Relaxed),
        space: space(shared),
        memory: memory(shared),
        snapshots: shared.snapshots().count() as u64,
        oldest_snapshot: shared.snapshots().oldest().map(|seq| seq.0),
        transactions: TransactionStats {
            live,
            conflicts: shared.recent.conflicts(),
            remembered_bytes,
        },
        cache_hits,
        cache_misses,
        poisoned: shared.poison.reason().map(str::to_string),
    })
}

fn keyspace(slot: &Slot) -> Option<KeyspaceStats> {
    let tree = slot.tree().ok()?;
    let meta: &IndexMeta = &tree.meta();
    let (state, retained) = (tree.stats(), tree.retained());
    let counts = || meta.counts();
    let lsm = meta.scattered_levels().zip(1..);
    let levels = meta.main.levels.iter().map(level);
    let levels = levels.chain(lsm.map(|(level, rank)| lsm_level(level, rank))).collect();
    let puts: u64 = counts().map(|counts| counts.puts).sum();
    let tombstones: u64 = counts().map(|counts| counts.tombstones).sum();
    let memtable_entries = tree.memtable_entries();
    Some(KeyspaceStats {
        name: slot.name.clone(),
        index: esker_index::kind_in(meta),
        entries_estimate: puts.saturating_sub(tombstones).saturating_add(memtable_entries),
        compression: Compression::of(tree.codec()),
        history: slot.history().map(|history| History::of(history.retention)),
        history_from: tree.oldest_version().map(|from| from.0),
        past_indexes: tree.past_indexes().iter().map(|past| PastIndexStats::of(past)).collect(),
        data_bytes: counts().map(|counts| counts.data_bytes()).sum(),
        stored_bytes: counts().map(|counts| counts.sectors.saturating_mul(SECTOR_BYTES)).sum(),
        value_bytes: tree.value_bytes(),
        levels,
        lsm: lsm::of(meta, tree.merge_report()),
        sorted_runs: meta.sorted_runs.len() as u64,
        memtable_bytes: tree.memtable_memory_bytes(),
        memtable_entries,
        shape: shape(&meta.shape),
        merges: meta.merges,
        stalled: slot.stall().map(|stall| stall.error.to_string()),
        merges_stopped: slot.stalls.load(Ordering::Relaxed),
        merge: state.merge.map(|merge| CompactionStats {
            full: merge.full,
            levels: merge.levels,
            written_bytes: merge.written_bytes,
            input_bytes: merge.input_bytes,
            wavefront: merge.wavefront,
        }),
        flushing: state.flushing,
        removed_ranges: tree.removals() as u64,
        next: tree.forecast().map(next),
        kept_versions: retained.versions,
        replaced_bytes: retained.replaced_bytes,
    })
}

fn next(forecast: Forecast) -> NextStats {
    let merge = forecast.merge.unwrap_or_default();
    NextStats {
        after_bytes: forecast.after_bytes,
        flush_bytes: forecast.flush_bytes,
        merge_bytes: merge.input_bytes,
        merge_levels: merge.levels,
        merge_is_full: merge.full,
    }
}

fn pins(shared: &Core, slots: &[Arc<Slot>], keyspaces: &[KeyspaceStats]) -> PinStats {
    let snapshots = shared.snapshots();
    let oldest = snapshots.oldest_at();
    let age = |at: At| Duration::from_millis(snapshots.now().0.saturating_sub(at.now.0));
    let is_pinned = |slot: &Arc<Slot>| slot.tree().is_ok_and(|tree| tree.is_pinned());
    PinStats {
        oldest_snapshot_age: oldest.map(age),
        writes_since_oldest: oldest.map_or(0, |at| snapshots.visible().0.saturating_sub(at.seq.0)),
        kept_versions: keyspaces.iter().map(|keyspace| keyspace.kept_versions).sum(),
        replaced_bytes: keyspaces.iter().map(|keyspace| keyspace.replaced_bytes).sum(),
        backup: slots.iter().any(is_pinned),
        log_keyspace: memory_pressure::oldest_pin(shared).map(|slot| slot.name.clone()),
    }
}

fn wait(shared: &Core, why: Why) -> WaitStats {
    let of = shared.waits.figures(why);
    WaitStats {
        reason: why.as_str(),
        waiting: of.waiting,
        waits: of.waits,
        total: of.total,
        longest: of.longest,
    }
}

const fn level(level: &LevelMeta) -> LevelStats {
    LevelStats {
        rank: level.rank,
        blocks: level.counts.blocks,
        bytes: level.counts.sectors.saturating_mul(SECTOR_BYTES),
        puts: level.counts.puts,
        tombstones: level.counts.tombstones,
    }
}

/// The data of a level of an LSM index.
fn lsm_level(of: &LsmLevel, rank: u8) -> LevelStats {
    let none = LevelMeta::default();
    LevelStats { rank, ..level(of.tree.levels.last().unwrap_or(&none)) }
}

fn shape(shape: &Shape) -> ShapeStats {
    ShapeStats {
        growth: f64::from(shape.b_quarters) / 4.0,
        upper_levels: shape.k,
        sorted_runs: shape.t,
        memtable_bytes: shape.kappa0_bytes,
    }
}

fn io(shared: &Core) -> Vec<IoStats> {
    let counts = shared.device.counts();
    let row = |(purpose, of): (Purpose, PurposeCounts)| IoStats {
        purpose: purpose.as_str(),
        reads: of.reads,
        bytes_read: of.bytes_read,
        writes: of.writes,
        bytes_written: of.bytes_written,
        syncs: of.syncs,
    };
    counts.iter().map(row).collect()
}

fn space(shared: &Core) -> SpaceStats {
    let map = shared.env.blocks.space();
    let mut data_file_bytes = map.end().saturating_mul(UNIT_BYTES);
    let mut free_bytes = map.free_units().saturating_mul(UNIT_BYTES);
    drop(map);
    if shared.follower.is_some() {
        let (bytes, used) = (shared.env.blocks.file_bytes(), shared.manifest.state());
        let used = used.keyspaces.values().flat_map(|keyspace| keyspace.extents());
        let used = used.fold(0, |sum: u64, extent| sum.saturating_add(extent.bytes()));
        (data_file_bytes, free_bytes) = (bytes, bytes.saturating_sub(used));
    }
    SpaceStats {
        data_file_bytes,
        allocated_bytes: data_file_bytes.saturating_sub(free_bytes),
        free_bytes,
        log_bytes: shared.log.space_bytes(),
        manifest_bytes: shared.manifest.bytes(),
    }
}

fn memory(shared: &Core) -> MemoryStats {
    let budget = &shared.env.budget;
    MemoryStats {
        budget_bytes: budget.total_bytes(),
        memtable_bytes: budget.used_bytes(Part::Memtables),
        fence_bytes: budget.used_bytes(Part::Fences),
        cache_bytes: shared.env.blocks.cache().bytes() + budget.used_bytes(Part::Cache),
        buffer_bytes: budget.used_bytes(Part::Cache),
    }
}
