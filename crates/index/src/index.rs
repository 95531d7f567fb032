//! One keyspace's index: the parts that all kinds share, and its kind.
//!
//! Not here: threads (the owner calls [`Index::step`]), the log, and the manifest (the owner makes
//! the [`IndexMeta`] durable that a step passes to it).

use std::sync::Arc;

use esker_format::data::Data;
use esker_format::ids::{KeyspaceId, Seq};
use esker_format::meta::{IndexMeta, PastIndex};
use esker_format::value_ref::ValueRef;
use esker_substrate::blocks::BlockStore;
use esker_substrate::budget::{Budget, Part as MemoryPart};
use esker_substrate::error::Result;
use esker_substrate::fault::FaultPoints;
use esker_substrate::memtable::Memtable;
use esker_substrate::poison::Poison;
use esker_substrate::snapshots::Snapshots;
use esker_substrate::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use esker_substrate::sync::{Mutex, RwLock, RwLockReadGuard, Swap};

use crate::history::Kept;
use crate::history::retention::Pins;
use crate::job::BackgroundJob;
use crate::kind::Kind;
use crate::kind::context::KindContext;
use crate::kind::registry::{Options, kind_of};
use crate::merge::Step;
use crate::merge::flush::Flush;
use crate::merge::scheme::Scheme;
use crate::read::gaps::Gaps;
use crate::read::heat::Heat;
use crate::read::operands::Operator;
use crate::read::past::PastIndexes;
use crate::read::range_tombstones::RangeTombstones;
use crate::read::source::Part;
use crate::read::view::{View, Views};
use crate::record::{Durable, RecordEdits};
use crate::run::opener::TreeOpener;
use crate::run::tree::BlockReader;
use crate::upkeep::balance::{Balance, KeptTombstones, flushed_balance};
use crate::upkeep::owed::KeptForRemovals;
use crate::upkeep::pause::Paused;
use crate::upkeep::values::Values;

/// The resources that all keyspaces of a store share.
#[derive(Debug)]
pub struct Env {
    /// The data file.
    pub blocks: Arc<BlockStore>,
    /// The visible number and the live snapshots.
    pub snapshots: Arc<Snapshots>,
    /// Named fault points.
    pub faults: Arc<FaultPoints>,
    /// Memory.
    pub budget: Arc<Budget>,
    /// The first write failure.
    pub poison: Arc<Poison>,
}

/// Makes a keyspace's new state durable, with what else the record changes: first the log, up to
/// [`IndexMeta::log_needed_seq`], then the manifest. After an error without poison nothing has
/// changed.
pub type Commit<'a> = dyn FnMut(&IndexMeta, &RecordEdits) -> Result<()> + 'a;

/// Runs its argument under the lock that gives sequence numbers out.
pub type Gate<'a> = dyn Fn(&mut dyn FnMut()) + 'a;

/// Work that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// The memtable is to be written out as a sorted run.
    Flush,
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
/// never wait: they load a view. At most one flush and one merge are under way; each is stepped
/// by one thread at a time.
///
/// Locks, in the order in which they are taken: that of rewriting past indexes, `starting`, the one
/// that the kind has for its merges, `flush`, the owner's gate, that of `durable`, and inside
/// [`Views`] its own.
#[derive(Debug)]
pub struct Index {
    pub(super) env: Arc<Env>,
    pub(super) reader: BlockReader,
    pub(super) kind: Box<dyn Kind>,
    pub(super) scheme: Scheme,
    /// The number of the codec.
    pub(super) codec: AtomicU8,
    pub(super) memtable_bytes_max: AtomicU64,
    pub(super) views: Views,
    pub(super) newest_seq: AtomicU64,
    /// Where scans begin that would pass many removed keys. Each put is noted there.
    pub(super) gaps: Gaps,
    /// Everything up to here has been frozen or is on the device.
    pub(super) frozen_until: AtomicU64,
    /// The keyspace's record in the manifest.
    pub(super) durable: Durable,
    /// Only one flush or merge begins at a time.
    pub(super) starting: Mutex<()>,
    pub(super) flush: Mutex<Option<Flush>>,
    pub(super) merging: AtomicBool,
    pub(super) flushing: AtomicBool,
    /// The merge under way retires range tombstones.
    pub(super) retiring: AtomicBool,
    /// Bytes of payload in a fixed amount of memtable memory (see `due`); 0 until one has been
    /// measured.
    pub(super) payload_share: AtomicU64,
    /// The history that the keyspace keeps: merges drop no version above its first one.
    pub(super) history: Kept,
    /// The keyspace's merge operator.
    pub(super) operator: Swap<Operator>,
    /// The reads of scans, by range of keys, where the kind merges by them.
    pub(super) heat: Heat,
    /// The log's entries for a merge that a crash interrupted, until it resumes.
    pub(super) recovered: Mutex<Option<Memtable>>,
    pub(super) awaits_resume: AtomicBool,
    pub(super) kept: Mutex<KeptTombstones>,
    /// Puts and tombstones on the device, without versions that are kept for snapshots.
    pub(super) flushed: Mutex<Balance>,
    pub(super) values: Mutex<Values>,
    /// Bytes of blobs that the memtable which takes writes refers to.
    pub(super) referred_bytes: AtomicU64,
    /// Room that is owed for the memtable that takes writes, and for what the log still had for a
    /// merge.
    pub(super) owed_bytes: AtomicU64,
    pub(super) recovered_bytes: AtomicU64,
    /// Bytes that are kept for range tombstones without a record.
    pub(super) kept_for_removals: Mutex<KeptForRemovals>,
    /// The number of callers that allow merges to use the reserve (see `reserve`).
    pub(super) reserve_users: AtomicU32,
    /// Memory of the memtables that the budget knows of.
    pub(super) counted_bytes: AtomicU64,
    /// Versions that somebody reads, and those that are being given up.
    pub(super) pins: Mutex<Pins>,
    /// Shared by operations and exclusive to merges, in exclusive schemes alone.
    pub(super) exclusive: RwLock<()>,
}

/// The cache learns of the memtable's growth in steps of this many bytes.
const LEND_STEP_BYTES: u64 = 64 * 1024;

impl Index {
    /// Opens a keyspace's index: reads the blocks of its top fences. A new keyspace has
    /// `IndexMeta::default()`.
    ///
    /// Unreadable top fences are not an error here: reads of the keys behind them return the error,
    /// all other reads succeed. When the log has been given to [`Index::replay`], call
    /// [`Index::resume`].
    pub fn open(env: Arc<Env>, id: KeyspaceId, meta: IndexMeta, options: Options) -> Self {
        Self::open_beside(env, id, meta, options, &[])
    }

    /// Opens the index once more, as another record has it. Fences of what both records have are
    /// not read again.
    pub fn open_again(&self, meta: IndexMeta, options: Options) -> Self {
        let (env, id) = (Arc::clone(&self.env), self.reader.keyspace);
        Self::open_beside(env, id, meta, options, &self.views.load().parts)
    }

    fn open_beside(
        env: Arc<Env>,
        id: KeyspaceId,
        meta: IndexMeta,
        options: Options,
        parts: &[Part],
    ) -> Self {
        let reader = BlockReader {
            blocks: Arc::clone(&env.blocks),
            keyspace: id,
            budget: Arc::clone(&env.budget),
            pot: None,
        };
        let meta = Arc::new(meta);
        let removed = RangeTombstones::new(&meta.removed).into();
        let kind = kind_of(&meta, &options);
        let older = parts.iter().flat_map(|part| part.trees()).map(|(tree, _)| tree);
        let parts = kind.open_parts(&TreeOpener::new(&reader, older), &meta);
        let frozen = meta.merge.as_ref().map_or(Seq(0), |merge| merge.frozen.1);
        let frozen_until = meta.flushed_seq.max(frozen);
        let is_merging = meta.merge.is_some();
        Self {
            reader,
            kind,
            scheme: options.scheme,
            codec: (options.codec as u8).into(),
            memtable_bytes_max: options.memtable_bytes_max.into(),
            views: Views::new(View::new(Arc::default(), parts, removed, Arc::default())),
            newest_seq: frozen_until.0.into(),
            gaps: Gaps::default(),
            frozen_until: frozen_until.0.into(),
            flushed: Mutex::new(flushed_balance(&meta)),
            durable: Durable::new(meta),
            starting: Mutex::default(),
            flush: Mutex::default(),
            merging: is_merging.into(),
            flushing: false.into(),
            retiring: false.into(),
            payload_share: 0.into(),
            history: Kept::new(options.history),
            operator: Swap::new(Arc::default()),
            heat: Heat::default(),
            recovered: Mutex::default(),
            awaits_resume: is_merging.into(),
            kept: Mutex::default(),
            values: Mutex::default(),
            referred_bytes: 0.into(),
            owed_bytes: 0.into(),
            recovered_bytes: 0.into(),
            kept_for_removals: Mutex::default(),
            reserve_users: 0.into(),
            counted_bytes: 0.into(),
            pins: Mutex::default(),
            exclusive: RwLock::default(),
            env,
        }
    }

    /// Adds a version to the memtable. No I/O. One thread at a time. For a merge operand, returns
    /// how many operands of the key are now stacked in the memtable.
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
        self.owe(key, data);
        // Before the gaps look whether puts are noted.
        self.newest_seq.fetch_max(seq.0, Ordering::SeqCst);
        if !matches!(data, Data::Delete) {
            self.gaps.note(key);
        }
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
                let mut recovered = self.recovered.lock();
                let recovered = recovered.get_or_insert_default();
                let before = recovered.memory_bytes();
                recovered.insert(key, seq, data);
                let added = recovered.memory_bytes().saturating_sub(before);
                self.counted_bytes.fetch_add(added, Ordering::Relaxed);
                self.env.budget.add(MemoryPart::Memtables, added);
                self.owe_recovered(key, data);
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

    /// Whether a flush is under way.
    pub fn is_flushing(&self) -> bool {
        self.flushing.load(Ordering::Acquire)
    }

    /// Whether a memtable holds versions, or a flush or merge is under way.
    pub fn is_busy(&self) -> bool {
        let view = self.views.load();
        let holds_any = !view.memtable.is_empty() || view.frozen_bytes() > 0;
        // The view first: a memtable that is no longer in it is recorded, or its merge is known.
        holds_any || self.is_merging() || self.is_flushing()
    }

    pub(super) fn awaits_resume(&self) -> bool {
        self.awaits_resume.load(Ordering::Acquire)
    }

    /// Begins `work`; returns false when there is nothing to do or something prevents it.
    ///
    /// Cost: a merge may read top fences that are not in memory, and makes space for itself.
    ///
    /// # Errors
    /// [`esker_substrate::Error::Full`] without space for a merge to begin; `Corrupt` when top
    /// fences cannot be read.
    pub fn begin(&self, work: Work, gate: &Gate<'_>) -> Result<bool> {
        self.env.poison.check()?;
        match work {
            Work::Flush => Ok(self.begin_flush(gate)),
            Work::Merge { full, with_memtable } => {
                self.kind.begin(self.context(), full, with_memtable, gate)
            }
        }
    }

    /// Goes on with the merge that a crash cut off, if there is one: to be called when the log
    /// has been replayed. When blocks that it needs cannot be read, every later step tries again.
    ///
    /// # Errors
    /// `Corrupt` when a block cannot be read that the merge begins with.
    pub fn resume(&self) -> Result<()> {
        self.kind.resume(self.context())
    }

    /// Does the next step of the flush or merge under way. After an error readers see what they saw
    /// before; if the store is not poisoned the step may be tried again.
    ///
    /// Cost: reads each merged block once and writes each new block once, sequentially; a step
    /// writes one unit, and some make a record durable: a sync of the data file and the cost of
    /// `commit`.
    ///
    /// # Errors
    /// [`esker_substrate::Error::Full`] without space, `Corrupt` when a merged block cannot be
    /// read, and errors of `commit` or the device.
    pub fn step(&self, which: BackgroundJob, commit: &mut Commit<'_>) -> Result<Step> {
        self.env.poison.check()?;
        match which {
            BackgroundJob::Flush => self.step_flush(commit),
            BackgroundJob::Merge => self.kind.step(self.context(), commit),
        }
    }

    /// Completes the flush and the merge under way.
    ///
    /// # Errors
    /// Those of [`Index::step`].
    pub fn complete(&self, commit: &mut Commit<'_>) -> Result<()> {
        for which in [BackgroundJob::Flush, BackgroundJob::Merge] {
            while self.step(which, commit)? == Step::More {}
        }
        Ok(())
    }

    /// Does `work` from beginning to end, after the work under way. Everything inserted before is
    /// on the device and recorded when it returns, as far as `work` writes it.
    ///
    /// # Errors
    /// Those of [`Index::begin`] and [`Index::step`].
    pub fn run(&self, work: Work, gate: &Gate<'_>, commit: &mut Commit<'_>) -> Result<()> {
        self.complete(commit)?;
        if self.begin(work, gate)? { self.complete(commit) } else { Ok(()) }
    }

    /// Whether a full merge would find nothing to do. `may_change`: levels that are not fully
    /// compacted may contain values with an expiry, or merge operands.
    pub fn is_fully_compacted(&self, may_change: bool) -> bool {
        if self.is_busy() || self.must_split() {
            return false;
        }
        let may_change = may_change && !self.keeps_history();
        self.kind.is_fully_compacted(self.context(), &self.meta(), may_change)
    }

    /// What the index lends to its kind.
    pub(crate) const fn context(&self) -> KindContext<'_> {
        KindContext::new(self)
    }

    /// The durable state.
    pub fn meta(&self) -> Arc<IndexMeta> {
        Arc::clone(&self.durable.load())
    }

    /// Pauses flushes and merges, and lets none begin, until the returned guard is dropped.
    pub fn pause(&self) -> Paused<'_> {
        let rewriting = self.history.rewriting.lock();
        let starting = self.starting.lock();
        let merges = self.kind.pause();
        let (_rewriting, _starting) = (rewriting, starting);
        Paused { index: self, _rewriting, _starting, merges, flush: self.flush.lock() }
    }

    /// The newest number that was inserted.
    pub fn newest_seq(&self) -> Seq {
        Seq(self.newest_seq.load(Ordering::Relaxed))
    }

    /// Whether everything up to `seq` is on the device, without the log.
    pub fn is_flushed(&self, seq: Seq) -> bool {
        self.durable.load().log_unneeded_seq() >= seq
    }

    /// Frees what no view leads to any more.
    ///
    /// # Errors
    /// When an extent was free already.
    pub fn collect(&self) -> Result<()> {
        self.views.collect(&self.env.blocks)
    }

    /// Whether a full merge would drop tombstones and the versions that they hide, or retire range
    /// tombstones: there are more than the last full merge has kept for a snapshot that is still
    /// live.
    pub fn has_garbage(&self) -> bool {
        let kept = self.still_kept();
        let has_tombstones = self.flushed.lock().tombstones > kept.count;
        (has_tombstones && !self.keeps_history()) || self.removals() > kept.removals
    }

    /// The same with the past indexes that the manifest records for it, oldest first.
    #[must_use]
    pub fn with_past(self, past: Vec<Arc<PastIndex>>) -> Self {
        let began = self.history_from().unwrap_or_default();
        let now_from = self.durable.load().history.from;
        let past = Arc::new(PastIndexes::new(past, now_from, began));
        self.views.publish(|view| {
            let (memtable, removed) = (Arc::clone(&view.memtable), Arc::clone(&view.removed));
            View::new(memtable, view.parts.clone(), removed, past)
        });
        self
    }

    /// The past indexes.
    pub(crate) fn past(&self) -> Arc<PastIndexes> {
        Arc::clone(&self.views.load().past)
    }

    /// The records of the past indexes, oldest first. Nothing until the next split changes them.
    pub fn past_indexes(&self) -> Vec<Arc<PastIndex>> {
        self.past().all().to_vec()
    }

    /// The first version that can be read, where the keyspace keeps history.
    pub fn oldest_version(&self) -> Option<Seq> {
        let from = self.history_from()?;
        Some(from.max(self.views.load().past.dropped_until()))
    }

    /// Whether the next merge copies what is live, and leaves the rest as a past index.
    pub fn splits_next(&self) -> bool {
        self.durable.load().history.splits_next
    }

    /// Whether all space that merges freed is available again.
    pub fn is_quiescent(&self) -> bool {
        self.views.is_quiescent()
    }

    /// Drops everything in memory. Nothing may use the index afterwards.
    pub fn close(&self) {
        let mut paused = self.pause();
        paused.forget();
    }
}
