//! The FD+tree with full concurrency (FD+FC).
//!
//! Reading order: [`shape`] (level sizes), [`fence_index`] and [`tree`] (what is on the device and
//! how it is entered), [`lookup`], [`cursor`], [`data_cursor`] and [`scan`] (reading one tree),
//! [`gone`] (keys that it has lost), [`view`] (what readers see while merges run) and `read` (what
//! they call), then the merge in the paper's steps: [`scheme`], [`prepare`], [`start`] (freezing,
//! and going on after a crash), [`stage`] (with [`window`] and [`preserve`]), [`insert`] (with
//! [`level_writer`], [`top_writer`] and [`writer`] below it), [`merge`] (the loop, publish points,
//! records), [`delete`], [`finalize`]; [`compression`] (codecs, and the room that merges need for
//! them), [`two_level`] (how the older FD-tree differs), [`versions`] (what a merge keeps),
//! [`removed`] (ranges of keys), [`operands`] (what
//! changes values), [`values`] (whose the values outside blocks are), and
//! [`invariants`] (the walker that checks I1 to I6 and I8). `due` says what should begin,
//! `forecast` what will, `paused` makes everything stand still, [`walk`] goes through all that a
//! durable state leads to. [`lsm`] is the other kind of index, on the same runs, views and readers.
//!
//! A level is a sorted run of immutable blocks. The fences of a level, interleaved with its data,
//! lead to the blocks of the next. New entries collect in the memtable; when it is full it becomes
//! a spill run or is merged, together with all spill runs and as many upper levels as it takes,
//! into one new level, whose fences then fill the levels above it. While a merge runs, keys at or
//! before its wavefront are found on the new side and all others on the old one.
//!
//! Not here: threads (the owner calls [`Index::step`]), the log, and the manifest (the owner
//! makes the [`IndexMeta`] durable that a step hands to it).

use std::sync::Arc;

use esker_device::Purpose;
use esker_format::block::Codec;
use esker_format::data::Data;
use esker_format::ids::{KeyspaceId, Seq};
use esker_format::meta::IndexMeta;
use esker_format::value_ref::ValueRef;
use esker_substrate::blocks::BlockStore;
use esker_substrate::budget::{Budget, Part as MemoryPart};
use esker_substrate::error::Result;
use esker_substrate::fault::FaultPoints;
use esker_substrate::memtable::Memtable;
use esker_substrate::planted::{self, Bug};
use esker_substrate::poison::Poison;
use esker_substrate::snapshots::Snapshots;
use esker_substrate::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use esker_substrate::sync::{Mutex, RwLock, RwLockReadGuard, Swap};

use super::fdtree::Sizes;
use super::fdtree::lead::Lead;
use super::fdtree::prepare::Balance;
use super::merge::{Merge, Step};
use super::operands::Operator;
use super::paused::Paused;
use super::preserve;
use super::removed::Removed;
use super::scheme::Scheme;
use super::tree::{BlockReader, Tree};
use super::values::{Values, ValuesEdit};
use super::view::{Part, View, Views, Which};
use super::{fault, lsm};

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

/// Makes a keyspace's new state durable, and with it what has become of its values: first the log,
/// up to [`IndexMeta::log_needed_seq`], then the manifest. After an error without poison nothing
/// has changed.
pub type Commit<'a> = dyn FnMut(&IndexMeta, &ValuesEdit) -> Result<()> + 'a;

/// Runs its argument under the lock that gives sequence numbers out.
pub type Gate<'a> = dyn Fn(&mut dyn FnMut()) + 'a;

/// What can be chosen for a keyspace's index.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Memory of the memtable and of what is frozen, in bytes.
    pub memtable_bytes_max: u64,
    /// How merges run.
    pub scheme: Scheme,
    /// Where level sizes come from.
    pub sizes: Sizes,
    /// What data blocks are compressed with.
    pub codec: Codec,
    /// How it is merged if it is an LSM index.
    pub merging: lsm::Merging,
}

/// Work that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// The memtable is to be written out as a spill run.
    Spill,
    /// A merge is to begin.
    Merge {
        /// Of everything.
        full: bool,
        /// The memtable takes part.
        with_memtable: bool,
    },
}

/// One keyspace's index.
///
/// Thread safety: everything may be called from any thread, but only one at a time inserts. Reads
/// never wait: they load a view. At most one spill and one merge are under way; each is stepped
/// by one thread at a time.
///
/// Locks, in the order in which they are taken: `starting`, `merge`, `spill`, the owner's gate,
/// `recording`, and inside [`Views`] its own.
#[derive(Debug)]
pub struct Index {
    pub(super) env: Arc<Env>,
    pub(super) reader: BlockReader,
    pub(super) scheme: Scheme,
    pub(super) sizes: Sizes,
    /// The number of the codec.
    pub(super) codec: AtomicU8,
    pub(super) memtable_bytes_max: AtomicU64,
    pub(super) views: Views,
    pub(super) newest_seq: AtomicU64,
    /// Everything up to here has been frozen or is on the device.
    pub(super) frozen_until: AtomicU64,
    /// What the manifest says. Replaced only under `recording`; read without waiting for the
    /// syncs that happen under it.
    pub(super) durable: Swap<IndexMeta>,
    pub(super) recording: Mutex<()>,
    /// Only one spill or merge begins at a time.
    pub(super) starting: Mutex<()>,
    pub(super) merge: Mutex<Option<Merge>>,
    /// The slices under way; locked behind `merge`.
    pub(super) slices: Mutex<Option<lsm::Job>>,
    pub(super) lsm: lsm::Lsm,
    pub(super) spill: Mutex<Option<Merge>>,
    pub(super) merging: AtomicBool,
    pub(super) spilling: AtomicBool,
    /// The merge under way moves a frozen memtable and has no record yet: a spill recorded now
    /// would claim that older operations are on the device too.
    pub(super) moves_unrecorded: AtomicBool,
    /// The merge under way retires removals of ranges.
    pub(super) retiring: AtomicBool,
    /// Spill runs that the merge under way consumes.
    pub(super) consumed_spills: AtomicU64,
    /// Bytes of payload in so much memory of a memtable (see `due`); 0 while none has shown it.
    pub(super) payload_share: AtomicU64,
    pub(super) lead: Lead,
    /// What merge operands are merged by.
    pub(super) operator: Swap<Operator>,
    /// What the log still had for the merge that a crash cut off, until that goes on.
    pub(super) recovered: Mutex<Option<Memtable>>,
    pub(super) awaits_resume: AtomicBool,
    pub(super) kept: Mutex<KeptTombstones>,
    /// Puts and tombstones on the device, without what is kept for snapshots.
    pub(super) flushed: Mutex<Balance>,
    pub(super) values: Mutex<Values>,
    /// Bytes of values that the memtable which takes writes refers to.
    pub(super) referred_bytes: AtomicU64,
    /// Memory of the memtables that the budget knows of.
    pub(super) counted_bytes: AtomicU64,
    /// Shared by operations and exclusive to merges, in exclusive schemes alone.
    pub(super) exclusive: RwLock<()>,
}

/// Tombstones that the last full merge had to keep, and for whom.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KeptTombstones {
    pub count: u64,
    /// Removals of ranges that it could not retire.
    pub removals: usize,
    pub oldest_snapshot: Option<Seq>,
}

/// The cache learns of the memtable's growth in steps of this many bytes.
const LEND_STEP_BYTES: u64 = 64 * 1024;
impl Index {
    /// Opens a keyspace's index: reads the blocks of its top fences. A new keyspace has
    /// `IndexMeta::default()`.
    ///
    /// Top fences that cannot be read are no error here: what they lead to is out of reach and
    /// answers with the error, everything else goes on. When the log has been given to
    /// [`Index::replay`], call [`Index::resume`].
    pub fn open(env: Arc<Env>, id: KeyspaceId, meta: IndexMeta, options: Options) -> Self {
        let reader = BlockReader {
            blocks: Arc::clone(&env.blocks),
            keyspace: id,
            budget: Arc::clone(&env.budget),
        };
        let meta = Arc::new(meta);
        let removed = Removed::new(Arc::clone(&meta.removed)).into();
        let parts = open_parts(&reader, &meta);
        let frozen = meta.merge.as_ref().map_or(Seq(0), |merge| merge.frozen.1);
        let frozen_until = meta.flushed_seq.max(frozen);
        let is_merging = meta.merge.is_some();
        let consumed = meta.merge.as_ref().map_or(0, |merge| merge.spills);
        Self {
            reader,
            scheme: options.scheme,
            sizes: options.scheme.sizes(options.sizes),
            codec: (options.codec as u8).into(),
            memtable_bytes_max: options.memtable_bytes_max.into(),
            views: Views::new(View::new(Arc::default(), parts, removed)),
            newest_seq: frozen_until.0.into(),
            frozen_until: frozen_until.0.into(),
            flushed: Mutex::new(flushed_balance(&meta)),
            durable: Swap::new(meta),
            recording: Mutex::default(),
            starting: Mutex::default(),
            merge: Mutex::default(),
            slices: Mutex::default(),
            lsm: lsm::Lsm::new(options.merging),
            spill: Mutex::default(),
            merging: is_merging.into(),
            spilling: false.into(),
            moves_unrecorded: false.into(),
            retiring: false.into(),
            consumed_spills: u64::from(consumed).into(),
            payload_share: 0.into(),
            lead: Lead::default(),
            operator: Swap::new(Arc::default()),
            recovered: Mutex::default(),
            awaits_resume: is_merging.into(),
            kept: Mutex::default(),
            values: Mutex::default(),
            referred_bytes: 0.into(),
            counted_bytes: 0.into(),
            exclusive: RwLock::default(),
            env,
        }
    }

    /// Adds a version to the memtable. No I/O. One thread at a time. Answers how many operands of
    /// the key stand on each other in it then, if it is one.
    pub fn insert(&self, key: &[u8], seq: Seq, data: Data<'_>) -> u16 {
        let _shared = self.share();
        if let Data::Reference(content) = data {
            self.values.lock().note(content);
            let bytes = ValueRef::bytes_of(content);
            self.referred_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        let memtable = Arc::clone(&self.views.load().memtable);
        let before = memtable.memory_bytes();
        let depth = memtable.insert(key, seq, data);
        self.newest_seq.fetch_max(seq.0, Ordering::Relaxed);
        let after = memtable.memory_bytes();
        let added = after.saturating_sub(before);
        self.counted_bytes.fetch_add(added, Ordering::Relaxed);
        self.env.budget.add(MemoryPart::Memtables, added);
        if before / LEND_STEP_BYTES != after / LEND_STEP_BYTES {
            self.lend_to_cache();
        }
        depth
    }

    /// Takes an operation that the log holds: into the memtable, into what the merge under way
    /// still has to move, or nowhere if it is on the device already.
    pub fn replay(&self, key: &[u8], seq: Seq, data: Data<'_>) {
        let durable = self.meta();
        if let Some(merge) = &durable.merge
            && merge.frozen.0 < seq
            && seq <= merge.frozen.1
        {
            if key > merge.wavefront.as_slice() && self.awaits_resume() {
                if let Data::Reference(content) = data {
                    self.values.lock().note(content);
                }
                self.recovered.lock().get_or_insert_default().insert(key, seq, data);
            }
        } else if seq > durable.flushed_seq {
            self.insert(key, seq, data);
        }
    }

    /// In an exclusive scheme, waits until no merge runs.
    pub(super) fn share(&self) -> Option<RwLockReadGuard<'_, ()>> {
        self.scheme.is_exclusive().then(|| self.exclusive.read())
    }

    /// Whether a merge is under way.
    pub fn is_merging(&self) -> bool {
        self.merging.load(Ordering::Acquire)
    }

    /// Whether a spill is under way.
    pub fn is_spilling(&self) -> bool {
        self.spilling.load(Ordering::Acquire)
    }

    pub(super) fn awaits_resume(&self) -> bool {
        self.awaits_resume.load(Ordering::Acquire)
    }

    /// Begins `work`; false when there is nothing to do or something stands in its way.
    ///
    /// # Errors
    /// Those of [`Index::begin_merge`].
    pub fn begin(&self, work: Work, gate: &Gate<'_>) -> Result<bool> {
        self.env.poison.check()?;
        match work {
            Work::Spill => Ok(self.begin_spill(gate)),
            // What is written out comes first: slices take no memtable.
            Work::Merge { full, .. } if self.is_lsm() => Ok(self.begin_slices(full)),
            Work::Merge { full, with_memtable } => self.begin_merge(full, with_memtable, gate),
        }
    }

    /// Does the next step of the spill or merge under way. After an error readers see what they
    /// saw before; if the store is not poisoned the step may be tried again.
    ///
    /// Cost: reads each merged block once and writes each new block once, sequentially; a step
    /// writes one unit, and some make a record durable: a sync of the data file and what `commit`
    /// takes.
    ///
    /// # Errors
    /// [`esker_substrate::Error::Full`] without room, `Corrupt` when a merged block cannot be
    /// read, and whatever `commit` or the device says.
    pub fn step(&self, which: Which, commit: &mut Commit<'_>) -> Result<Step> {
        self.env.poison.check()?;
        if which == Which::Merge && self.awaits_resume() {
            self.resume()?;
        }
        let mut slot = match which {
            Which::Spill => self.spill.lock(),
            Which::Merge => self.merge.lock(),
        };
        if which == Which::Merge && slot.is_none() {
            return self.step_slices(commit);
        }
        let Some(merge) = slot.as_mut() else { return Ok(Step::Idle) };
        let _exclusive = self.scheme.is_exclusive().then(|| self.exclusive.write());
        let step = merge.step(self, commit).map_err(|error| self.poison_if_write_failed(error))?;
        if step == Step::Done {
            *slot = None;
            match which {
                Which::Spill => self.spilling.store(false, Ordering::Release),
                Which::Merge => {
                    self.consumed_spills.store(0, Ordering::Relaxed);
                    self.moves_unrecorded.store(false, Ordering::Release);
                    self.retiring.store(false, Ordering::Release);
                    self.merging.store(false, Ordering::Release);
                }
            }
        }
        Ok(step)
    }

    /// Completes the spill and the merge under way.
    ///
    /// # Errors
    /// Those of [`Index::step`].
    pub fn complete(&self, commit: &mut Commit<'_>) -> Result<()> {
        for which in [Which::Spill, Which::Merge] {
            while self.step(which, commit)? == Step::More {}
        }
        Ok(())
    }

    /// Does `work` from beginning to end, behind what is under way. Everything inserted before is
    /// on the device and recorded when it returns, as far as `work` writes it.
    ///
    /// # Errors
    /// Those of [`Index::begin`] and [`Index::step`].
    pub fn run(&self, work: Work, gate: &Gate<'_>, commit: &mut Commit<'_>) -> Result<()> {
        self.complete(commit)?;
        if self.begin(work, gate)? { self.complete(commit) } else { Ok(()) }
    }

    /// Whether a full merge would find nothing to do. `may_change`: there may be values with an
    /// expiry, or operands, which are in levels that are not settled.
    pub fn is_tight(&self, may_change: bool) -> bool {
        if self.is_merging() || self.is_spilling() || self.memtable_entries() > 0 {
            return false;
        }
        let durable = self.meta();
        if let Some(lsm) = &durable.lsm {
            let settled = !may_change && self.removals() == 0;
            return lsm::is_empty(&durable, lsm) || (settled && lsm::is_tight(&durable, lsm));
        }
        let data = durable.main.levels.iter().filter(|level| level.counts.data_entries() > 0);
        let counts = || data.clone().map(|level| level.counts);
        let garbage = counts().map(|counts| counts.tombstones + counts.kept_for_snapshots);
        let hidden = durable.main.levels.is_empty() || self.removals() == 0;
        durable.spills.is_empty()
            && hidden
            && counts().count() <= 1
            && garbage.sum::<u64>() == 0
            && (!may_change || data.clone().all(preserve::is_settled))
    }

    /// Makes new blocks durable, then the record that names them.
    pub(super) fn make_durable(
        &self,
        meta: &IndexMeta,
        values: &ValuesEdit,
        commit: &mut Commit<'_>,
    ) -> Result<()> {
        let synced = if planted::is(Bug::CommitBeforeBlocks) {
            Ok(())
        } else {
            let ready = self.env.faults.hit(fault::MERGE_SYNC);
            ready.and_then(|()| self.env.blocks.sync(Purpose::Merge))
        };
        // A failed sync says nothing about what is on the device: no more writes.
        self.env.poison.on_error(synced)?;
        self.env.faults.hit(fault::MERGE_COMMIT)?;
        commit(meta, values)?;
        if planted::is(Bug::CommitBeforeBlocks) {
            self.env.blocks.sync(Purpose::Merge)?;
        }
        Ok(())
    }

    /// A read that failed, or a device without room, leaves the store as it was; a write that
    /// failed leaves the device in a state nobody knows.
    pub(super) fn poison_if_write_failed(
        &self,
        error: esker_substrate::Error,
    ) -> esker_substrate::Error {
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
    pub fn meta(&self) -> Arc<IndexMeta> {
        Arc::clone(&self.durable.load())
    }

    /// Makes spills and merges stand still, and lets none begin, until the answer is dropped.
    pub fn pause(&self) -> Paused<'_> {
        let starting = self.starting.lock();
        let merge = self.merge.lock();
        Paused { tree: self, _starting: starting, merge, spill: self.spill.lock() }
    }

    /// The newest number that was inserted.
    pub fn newest_seq(&self) -> Seq {
        Seq(self.newest_seq.load(Ordering::Relaxed))
    }

    /// Whether everything up to `seq` is on the device, without the log.
    pub fn is_flushed(&self, seq: Seq) -> bool {
        self.durable.load().log_unneeded_seq() >= seq
    }

    /// Notes what a spill or merge has left.
    pub(super) fn note_result(
        &self,
        meta: &IndexMeta,
        which: Which,
        full: bool,
        oldest: Option<Seq>,
    ) {
        let flushed = flushed_balance(meta);
        *self.flushed.lock() = flushed;
        if which == Which::Spill && meta.lsm.is_some() {
            self.lsm.note_run(meta);
        }
        if which == Which::Merge && full {
            // Those of spills made meanwhile are kept for nobody.
            let count = meta.main.levels.iter().map(|level| level.counts.tombstones).sum();
            let removals = Removed::new(Arc::clone(&meta.removed)).len();
            let kept = KeptTombstones { count, removals, oldest_snapshot: oldest };
            *self.kept.lock() = kept;
        }
    }

    /// Frees what no view leads to any more.
    ///
    /// # Errors
    /// When an extent was free already.
    pub fn collect(&self) -> Result<()> {
        self.views.collect(&self.env.blocks)
    }

    /// Whether all space that merges gave up has come back.
    pub fn is_settled(&self) -> bool {
        self.views.is_settled()
    }

    /// Lets go of everything in memory. Nothing may use the index afterwards.
    pub fn close(&self) {
        let mut paused = self.pause();
        paused.forget();
    }
}

fn open_parts(reader: &BlockReader, meta: &IndexMeta) -> Vec<Part> {
    if let Some(lsm) = &meta.lsm {
        return lsm::open_parts(reader, meta, lsm);
    }
    let consumed = meta.merge.as_ref().map_or(0, |merge| usize::from(merge.spills));
    let kept = meta.spills.len().saturating_sub(consumed);
    let run = |tree| Part::Run(Arc::new(Tree::open(reader, tree)));
    let mut parts: Vec<_> = meta.spills.iter().take(kept).cloned().map(run).collect();
    parts.push(match &meta.merge {
        Some(merge) => Part::Moving(Arc::new(Index::recorded_moving(reader, meta, merge))),
        None => run(meta.main.clone()),
    });
    parts
}

pub(super) fn flushed_balance(meta: &IndexMeta) -> Balance {
    let mut balance = Balance::default();
    for counts in meta.counts() {
        balance.puts += counts.puts;
        balance.tombstones += counts.tombstones;
        balance.tombstone_bytes += counts.tombstone_bytes;
    }
    balance
}
