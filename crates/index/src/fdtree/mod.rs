//! The FD+tree with exclusive merges (FD+XM).
//!
//! Reading order: [`shape`] (level sizes), [`fence_index`] and `tree` (what is on the device and
//! how it is entered), [`lookup`], `cursor` and [`scan`] (reading), then the merge in the paper's
//! steps: [`prepare`], [`stage`], [`insert`] (with [`writer`] below it), [`merge`] (the loop, the
//! commit and m-delete), [`finalize`]; [`versions`] (what a merge keeps), `spill`, and
//! [`invariants`] (the walker that checks I1 to I6 and I8).
//!
//! A level is a sorted run of immutable blocks. The fences of a level, interleaved with its data,
//! lead to the blocks of the next. New entries collect in the memtable; when it is full it becomes
//! a spill run or is merged, together with all spill runs and as many upper levels as it takes,
//! into one new level, whose fences then fill the levels above it.
//!
//! Not here: concurrency (the owner locks the tree), the log, and the manifest (the owner makes
//! the [`IndexMeta`] durable that a merge hands to it).

pub mod cursor;
pub mod fault;
pub mod fence_index;
pub mod finalize;
pub mod insert;
pub mod invariants;
pub mod lookup;
pub mod merge;
pub mod prepare;
pub mod scan;
pub mod shape;
mod spill;
pub mod stage;
pub mod stats;
pub mod tree;
pub mod versions;
pub mod writer;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker_device::Purpose;
use esker_format::ids::{KeyspaceId, Seq};
use esker_format::meta::IndexMeta;
use esker_substrate::blocks::BlockStore;
use esker_substrate::budget::{Budget, Lease, Part};
use esker_substrate::error::Result;
use esker_substrate::fault::FaultPoints;
use esker_substrate::memtable::Memtable;
use esker_substrate::poison::Poison;
use esker_substrate::snapshots::Snapshots;

pub use invariants::{CheckSink, Problem};
pub use scan::{DamagedRange, ScanBatch, ScanRequest};
pub use stats::{LevelStats, TreeStats};

use cursor::DataCursor;
use lookup::Probe;
use prepare::Balance;
use scan::Source;
use tree::{BlockReader, Tree};

/// What all keyspaces of a store share.
#[derive(Debug)]
pub struct Env {
    /// The data file.
    pub blocks: Arc<BlockStore>,
    /// Which versions may be seen.
    pub snapshots: Arc<Snapshots>,
    /// Named fault points.
    pub faults: Arc<FaultPoints>,
    /// Memory.
    pub budget: Arc<Budget>,
    /// The first write failure.
    pub poison: Arc<Poison>,
}

/// Makes a keyspace's new state durable: the log up to `flushed_seq` first, then the manifest.
/// After an error without poison nothing has changed.
pub type Commit<'a> = dyn FnMut(&IndexMeta) -> Result<()> + 'a;

/// Maintenance that a tree can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Write the memtable as a spill run.
    Spill,
    /// Merge the memtable, all spill runs and as few levels as fit.
    MergeOverflow,
    /// Merge everything because of too many tombstones.
    MergeUnderflow,
    /// Merge everything.
    MergeFull,
}

/// One keyspace's index.
///
/// Thread safety: inserting and reading take `&self` and may run at once from any number of
/// threads; maintenance takes `&mut self`. The owner's lock is the exclusive scheme's lock.
///
/// Invariant (I8): the sequence ranges of memtable, spill runs (newest first) and levels (top
/// down) are disjoint and descending, so that a lookup may stop at the first version it finds.
#[derive(Debug)]
pub struct FdTree {
    env: Arc<Env>,
    reader: BlockReader,
    memtable: Memtable,
    memtable_bytes_max: u64,
    newest_seq: AtomicU64,
    /// Spill runs, newest first.
    spills: Vec<Tree>,
    main: Tree,
    meta: IndexMeta,
    kept: KeptTombstones,
    /// Puts and tombstones on the device, without what is kept for snapshots.
    flushed: Balance,
    /// Counts the memtable against the budget.
    memtable_lease: parking_lot::Mutex<Option<Lease>>,
}

/// Tombstones that the last full merge had to keep, and for whom.
#[derive(Clone, Copy, Debug, Default)]
struct KeptTombstones {
    count: u64,
    oldest_snapshot: Option<Seq>,
}

/// The share of a memtable's memory that is payload, until a full memtable has shown it.
const PAYLOAD_SHARE: (u64, u64) = (2, 3);
/// The memtable's use is reported to the budget in steps of this many bytes.
const LEASE_STEP_BYTES: u64 = 64 * 1024;

impl FdTree {
    /// Opens a keyspace's index: reads the blocks of its top fences. A new keyspace has
    /// `IndexMeta::default()`. The memtable is full at `memtable_bytes_max` bytes of memory.
    ///
    /// Top fences that cannot be read are no error here: what they lead to is out of reach and
    /// answers with the error, everything else goes on.
    pub fn open(env: Arc<Env>, id: KeyspaceId, meta: IndexMeta, memtable_bytes_max: u64) -> Self {
        let reader = BlockReader {
            blocks: Arc::clone(&env.blocks),
            keyspace: id,
            budget: Arc::clone(&env.budget),
        };
        let main = Tree::open(&reader, meta.main.clone());
        let spills = meta.spills.iter().map(|spill| Tree::open(&reader, spill.clone())).collect();
        let newest_seq = AtomicU64::new(meta.flushed_seq.0);
        let flushed = flushed_balance(&meta);
        Self {
            env,
            reader,
            memtable: Memtable::default(),
            memtable_bytes_max,
            newest_seq,
            spills,
            main,
            meta,
            kept: KeptTombstones::default(),
            flushed,
            memtable_lease: parking_lot::Mutex::new(None),
        }
    }

    /// Adds a version to the memtable: a value, or with `None` a tombstone. No I/O.
    pub fn insert(&self, key: &[u8], seq: Seq, value: Option<&[u8]>) {
        let before = self.memtable.memory_bytes();
        self.memtable.insert(key, seq, value);
        self.newest_seq.fetch_max(seq.0, Ordering::Relaxed);
        let after = self.memtable.memory_bytes();
        if before / LEASE_STEP_BYTES != after / LEASE_STEP_BYTES {
            let mut lease = self.memtable_lease.lock();
            lease.take();
            *lease = Some(self.env.budget.lease(Part::Memtables, after));
            self.lend_to_cache();
        }
    }

    /// The cache may use what memtables and fences leave free.
    fn lend_to_cache(&self) {
        self.env.blocks.cache().set_bytes_max(self.env.budget.limit_bytes(Part::Cache));
    }

    /// The value of `key` as of `seq`. With express fences in memory, one read for a hit and none
    /// for a miss, less what is cached; else at most one read a level.
    ///
    /// # Errors
    /// When a block that could hold the key cannot be read.
    pub fn get(&self, key: &[u8], seq: Seq) -> Result<Option<Vec<u8>>> {
        if let Some(version) = self.memtable.get(key, seq) {
            return Ok(version.put().map(<[u8]>::to_vec));
        }
        let probe = Probe::new(key, seq);
        for tree in self.trees() {
            if let Some(found) = tree.get(&self.reader, &probe)? {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The values of `keys` as of `seq`, in order, with several reads in flight.
    pub fn multi_get(&self, keys: &[&[u8]], seq: Seq) -> Vec<Result<Option<Vec<u8>>>> {
        let mut wanted = Vec::new();
        for key in keys.iter().filter(|key| self.memtable.get(key, seq).is_none()) {
            let probe = Probe::new(key, seq);
            self.trees().for_each(|tree| tree.candidates(&probe, &mut wanted));
        }
        wanted.sort_unstable_by_key(|ptr| ptr.sector);
        wanted.dedup();
        if wanted.len() > 1 {
            // More than the cache can take would push out what was just read.
            let room = self.env.budget.limit_bytes(Part::Cache) / 2;
            let mut bytes = 0;
            wanted.retain(|ptr| {
                bytes += ptr.bytes() as u64;
                bytes <= room
            });
            self.reader.blocks.prefetch(self.reader.keyspace, &wanted, Purpose::User);
        }
        keys.iter().map(|key| self.get(key, seq)).collect()
    }

    /// One batch of a scan.
    ///
    /// # Errors
    /// When a block within the bounds cannot be read, unless the request skips damage.
    pub fn scan(&self, request: &ScanRequest<'_>) -> Result<ScanBatch> {
        let mut sources = vec![Source::memory(&self.memtable)];
        for tree in self.trees() {
            for (level, meta) in tree.meta.levels.iter().enumerate() {
                if meta.counts.data_entries() > 0 {
                    sources.push(Source::level(DataCursor::new(tree, &self.reader, level)));
                }
            }
        }
        scan::scan(request, sources)
    }

    /// Spill runs newest first, then the main tree.
    fn trees(&self) -> impl Iterator<Item = &Tree> {
        self.spills.iter().chain([&self.main])
    }

    /// Estimated memory of the memtable, in bytes.
    pub fn memtable_memory_bytes(&self) -> u64 {
        self.memtable.memory_bytes()
    }

    /// Versions in the memtable.
    pub fn memtable_entries(&self) -> u64 {
        let counts = self.memtable.counts();
        counts.puts + counts.tombstones
    }

    /// When the memtable counts as full, in bytes of memory.
    pub const fn memtable_bytes_max(&self) -> u64 {
        self.memtable_bytes_max
    }

    /// Changes when the memtable counts as full.
    pub const fn set_memtable_bytes_max(&mut self, bytes: u64) {
        self.memtable_bytes_max = bytes;
    }

    /// What should be done now.
    pub fn due(&self) -> Option<Work> {
        if self.memtable.memory_bytes() >= self.memtable_bytes_max {
            return Some(self.flush_work());
        }
        // Tombstones kept for a snapshot can go when the snapshot has gone.
        let still_kept = self.kept.oldest_snapshot == self.env.snapshots.oldest();
        let kept = if still_kept { self.kept.count } else { 0 };
        let underflows = prepare::underflows(&self.balance(), self.kappa0_bytes(), kept);
        underflows.then_some(Work::MergeUnderflow)
    }

    /// How the memtable is best flushed now: as a spill run while fewer than t stand, else by a
    /// merge.
    pub fn flush_work(&self) -> Work {
        let standing = self.spills.len() < usize::from(self.meta.shape.t);
        if standing { Work::Spill } else { Work::MergeOverflow }
    }

    /// Does `work` now. When it returns, everything inserted before is on the device and
    /// recorded; on an error nothing has changed, and if the store is not poisoned the work may be
    /// tried again.
    ///
    /// Cost: reads each merged block once and writes each new block once, sequentially; one sync
    /// of the data file and what `commit` takes.
    ///
    /// # Errors
    /// [`esker_substrate::Error::Full`] without room, `Corrupt` when a merged block cannot be
    /// read, and whatever `commit` or the device says.
    pub fn run(&mut self, work: Work, commit: &mut Commit<'_>) -> Result<()> {
        self.env.poison.check()?;
        let nothing_new = self.memtable.is_empty() && self.spills.is_empty();
        let result = match work {
            Work::Spill if self.memtable.is_empty() => Ok(()),
            Work::Spill => self.spill(commit),
            Work::MergeOverflow if nothing_new => Ok(()),
            Work::MergeOverflow => self.merge(false, commit),
            Work::MergeFull if nothing_new && self.is_tight() => Ok(()),
            Work::MergeUnderflow | Work::MergeFull => self.merge(true, commit),
        };
        result.map_err(|error| self.poison_if_write_failed(error))
    }

    /// Whether a full merge would find nothing to do.
    fn is_tight(&self) -> bool {
        let data = self.meta.main.levels.iter().filter(|level| level.counts.data_entries() > 0);
        let counts = || data.clone().map(|level| level.counts);
        let garbage = counts().map(|counts| counts.tombstones + counts.kept_for_snapshots);
        counts().count() <= 1 && garbage.sum::<u64>() == 0
    }

    /// A read that failed, or a device without room, leaves the store as it was; a write that
    /// failed leaves the device in a state nobody knows.
    fn poison_if_write_failed(&self, error: esker_substrate::Error) -> esker_substrate::Error {
        use esker_device::Operation;
        use esker_substrate::Error;
        match &error {
            // Space that was discarded may be gone when it is written again. What is written here
            // is named by nobody yet, so that nothing has changed.
            Error::Device(device)
                if device.operation == Operation::Write
                    && device.is_full()
                    && self.env.poison.reason().is_none() =>
            {
                Error::Full { what: device.to_string() }
            }
            Error::Device(device)
                if matches!(device.operation, Operation::Write | Operation::Sync) =>
            {
                self.env.poison.set(error)
            }
            _ => error,
        }
    }

    /// The durable state.
    pub const fn meta(&self) -> &IndexMeta {
        &self.meta
    }

    fn newest_seq(&self) -> Seq {
        Seq(self.newest_seq.load(Ordering::Relaxed))
    }

    /// κ0: what a full memtable holds. A memtable that is full tells; until one has been, a fixed
    /// share of its memory stands for it.
    fn kappa0_bytes(&self) -> u64 {
        if self.memtable.memory_bytes() >= self.memtable_bytes_max {
            return self.memtable.counts().data_bytes();
        }
        match self.meta.shape.kappa0_bytes {
            0 => self.memtable_bytes_max / PAYLOAD_SHARE.1 * PAYLOAD_SHARE.0,
            known => known,
        }
    }

    /// N∆ and N∇ of the whole tree.
    fn balance(&self) -> Balance {
        let counts = self.memtable.counts();
        Balance {
            puts: self.flushed.puts + counts.puts,
            tombstones: self.flushed.tombstones + counts.tombstones,
            tombstone_bytes: self.flushed.tombstone_bytes + counts.tombstone_bytes,
        }
    }

    /// After a flush: an empty memtable and a new durable state.
    fn finish_flush(&mut self, meta: IndexMeta) {
        self.flushed = flushed_balance(&meta);
        self.meta = meta;
        self.memtable = Memtable::default();
        *self.memtable_lease.lock() = None;
        self.lend_to_cache();
    }

    /// Gives all extents of a dropped keyspace back. Call when the manifest that dropped it is
    /// durable.
    ///
    /// # Errors
    /// When an extent was free already.
    pub fn release(&mut self) -> Result<()> {
        let meta = std::mem::take(&mut self.meta);
        self.env.blocks.retire(meta.extents().copied());
        self.main = Tree::default();
        self.spills.clear();
        self.finish_flush(IndexMeta::default());
        self.env.blocks.free_retired()
    }
}

fn flushed_balance(meta: &IndexMeta) -> Balance {
    let mut balance = Balance::default();
    let trees = meta.spills.iter().chain([&meta.main]);
    for counts in trees.flat_map(|tree| &tree.levels).map(|level| level.counts) {
        balance.puts += counts.puts;
        balance.tombstones += counts.tombstones;
        balance.tombstone_bytes += counts.tombstone_bytes;
    }
    balance
}
