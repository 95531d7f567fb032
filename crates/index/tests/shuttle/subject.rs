//! An index to be tried: small, with nothing worth caching, on a device whose reads and writes
//! are points at which threads may change.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use esker_device::memory::MemoryDevice;
use esker_device::wrap::{Hook, Step as DeviceStep, StepKind, Wrapped};
use esker_device::{Device, Purpose};
use esker_format::block::Codec;
use esker_format::data::Value;
use esker_format::ids::{KeyspaceId, Seq, StoreId};
use esker_format::meta::IndexMeta;
use esker_index::fdtree::Sizes;
use esker_index::lsm::Compaction;
use esker_index::lsm::policy::Params;
use esker_index::{
    BackgroundJob, Env, History as Kept, Index, IndexKind, Options, ScanRequest, Scheme, Step, Work,
};
use esker_substrate::blocks::BlockStore;
use esker_substrate::budget::Budget;
use esker_substrate::snapshots::{At, Snapshots};
use esker_substrate::sync::atomic::{AtomicBool, Ordering};
use esker_substrate::sync::{Mutex, Thread, spawn};
use shuttle::rand::Rng as _;

use crate::history::History;

/// Keys that a subject begins with; a block takes about three of them.
pub const KEYS: u8 = 12;
/// A merge of everything.
pub const FULL: Work = Work::Merge { full: true, with_memtable: true };
/// A merge of everything but the memtable.
pub const FULL_ALONE: Work = Work::Merge { full: true, with_memtable: false };

/// The history of a keyspace that keeps one.
const KEPT: Kept = Kept { from: Seq(0), share: 0.5, expires: false };

thread_local! {
    /// Whether subjects have an LSM index. All threads of a schedule are one of the system's.
    static IS_LSM: Cell<bool> = const { Cell::new(false) };
    /// Whether subjects keep history.
    static KEEPS_HISTORY: Cell<bool> = const { Cell::new(false) };
    /// The most of a level that may be empty before it is packed.
    static OMEGA: Cell<f64> = const { Cell::new(Params::DEFAULT.omega) };
}

/// Runs a scenario with subjects that have an LSM index.
pub fn with_lsm(scenario: fn()) {
    IS_LSM.set(true);
    scenario();
    IS_LSM.set(false);
}

/// Runs a scenario with subjects that keep history.
pub fn with_history(scenario: fn()) {
    KEEPS_HISTORY.set(true);
    scenario();
    KEEPS_HISTORY.set(false);
}

/// The same where any emptiness is too much.
pub fn with_packing(scenario: fn()) {
    OMEGA.set(0.0);
    with_lsm(scenario);
    OMEGA.set(Params::DEFAULT.omega);
}

/// An index of nothing.
fn nothing() -> IndexMeta {
    let kind = if IS_LSM.get() { IndexKind::Lsm } else { IndexKind::FdTree };
    esker_index::empty(kind)
}

/// A key that the schedule chooses.
pub fn any_key() -> u8 {
    shuttle::rand::thread_rng().gen_range(0..KEYS)
}

/// Bytes of most values.
const VALUE_BYTES: usize = 1200;

/// Threads may change before a block is read for a user, and around every write of a merge.
#[derive(Debug, Default)]
struct Points(AtomicBool);

impl Points {
    fn point(&self) {
        let _a_thread_may_change = self.0.load(Ordering::Relaxed);
    }
}

impl Hook for Points {
    fn before(&self, step: DeviceStep) {
        if step.kind != StepKind::Read || step.purpose == Purpose::User {
            self.point();
        }
    }

    fn after(&self, step: DeviceStep) {
        if step.kind == StepKind::Write {
            self.point();
        }
    }
}

/// A tree, the lock that gives numbers out, and what was done to it.
pub struct Subject {
    pub tree: Index,
    pub env: Arc<Env>,
    pub history: History,
    /// Every operation in its order: its place is its number less one.
    order: Mutex<Vec<(u8, bool)>>,
    value_bytes: usize,
}

fn value(seq: u64, bytes: usize) -> Vec<u8> {
    seq.to_le_bytes().repeat(bytes.div_ceil(8))
}

/// The number that a value was written with.
pub fn number(value: &[u8]) -> u64 {
    let (first, _) = value.split_first_chunk().expect("values are long");
    assert!(value.chunks(8).all(|chunk| chunk == first), "a value is whole");
    u64::from_le_bytes(*first)
}

impl Subject {
    /// Every key written once and merged, every third one overwritten in the memtable.
    pub fn new() -> Arc<Self> {
        Self::with(KEYS)
    }

    /// The same with so many keys.
    pub fn with(keys: u8) -> Arc<Self> {
        let subject = Self::empty(VALUE_BYTES);
        (0..keys).for_each(|key| subject.put(key));
        subject.complete(FULL);
        (0..keys).step_by(3).for_each(|key| subject.put(key));
        Arc::new(subject)
    }

    /// Nothing written; values of so many bytes.
    pub fn empty(value_bytes: usize) -> Self {
        let device = Arc::new(MemoryDevice::new());
        let device: Arc<dyn Device> = Arc::new(Wrapped::around(device, Points::default()));
        let blocks = BlockStore::create(&device, StoreId(1), 4096).unwrap();
        let env = Arc::new(Env {
            blocks: Arc::new(blocks),
            snapshots: Arc::default(),
            faults: Arc::default(),
            // So little that nothing is cached.
            budget: Arc::new(Budget::new(4096)),
            poison: Arc::default(),
        });
        Self {
            tree: Self::open(&env, nothing()),
            env,
            history: History::default(),
            order: Mutex::default(),
            value_bytes,
        }
    }

    fn open(env: &Arc<Env>, meta: IndexMeta) -> Index {
        let params = Params { omega: OMEGA.get(), ..Params::DEFAULT };
        let options = Options {
            // Between two publish points a merge writes as many blocks as a record frees: they take
            // all freed places.
            memtable_bytes_max: 4 << 10,
            scheme: Scheme::Fc,
            sizes: Sizes::Cost,
            codec: Codec::None,
            compaction: Compaction { params, ..Compaction::DEFAULT },
            history: KEEPS_HISTORY.get().then_some(KEPT),
        };
        Index::open(Arc::clone(env), KeyspaceId(1), meta, options)
    }

    /// The index as it is when it is opened after a crash: as the last record says. What had been
    /// written behind it stays taken.
    pub fn reopen(&mut self) {
        let meta = IndexMeta::clone(&self.tree.meta());
        let tree = Self::open(&self.env, meta);
        std::mem::replace(&mut self.tree, tree).close();
    }

    pub fn snapshots(&self) -> &Arc<Snapshots> {
        &self.env.snapshots
    }

    pub fn put(&self, key: u8) {
        self.write(key, true);
    }

    pub fn delete(&self, key: u8) {
        self.write(key, false);
    }

    fn write(&self, key: u8, put: bool) {
        self.history.write(key, || {
            let mut order = self.order.lock();
            order.push((key, put));
            let seq = order.len() as u64;
            let value = put.then(|| value(seq, self.value_bytes));
            self.tree.insert(&[key], Seq(seq), value.as_deref().into());
            self.snapshots().publish(Seq(seq));
            put.then_some(seq)
        });
    }

    /// The number of the version that a lookup finds.
    pub fn get(&self, key: u8) -> Option<u64> {
        self.history.read(key, || {
            let found = self.tree.get(&[key], || self.snapshots().visible());
            let found = found.expect("a block is readable as long as a view leads to it");
            found.and_then(Value::here).as_deref().map(number)
        })
    }

    /// The number of the version that a lookup as of `seq` finds.
    pub fn get_at(&self, key: u8, seq: Seq) -> Option<u64> {
        let at = At { seq, now: self.snapshots().now() };
        let found = self.tree.get_at(&[key], at).expect("a block is readable");
        found.and_then(Value::here).as_deref().map(number)
    }

    /// The newest version of a key up to `seq`, and whether it is a value, where history is kept.
    pub fn version(&self, key: u8, seq: Seq) -> Option<(u64, bool)> {
        let found = self.tree.version(&[key], seq).expect("a block is readable");
        found.map(|found| (found.seq.0, found.value.is_some()))
    }

    /// Begins `work` if nothing stands in its way; says whether it did. Before slices of an LSM
    /// index the memtable is written out, as it takes no part in them.
    pub fn begin(&self, work: Work) -> bool {
        if self.tree.index_kind() == IndexKind::Lsm
            && matches!(work, Work::Merge { with_memtable: true, .. })
        {
            self.complete(Work::Flush);
        }
        let gate = |body: &mut dyn FnMut()| {
            let _order = self.order.lock();
            body();
        };
        self.tree.begin(work, &gate).unwrap()
    }

    pub fn step(&self, which: BackgroundJob) -> Step {
        self.tree.step(which, &mut |_, _| Ok(())).unwrap()
    }

    /// Begins `work` if nothing stands in its way, and completes what is under way then.
    pub fn complete(&self, work: Work) {
        if self.begin(work) {
            self.finish();
        }
    }

    /// Completes what is under way.
    pub fn finish(&self) {
        for which in [BackgroundJob::Flush, BackgroundJob::Merge] {
            while self.step(which) == Step::More {}
        }
    }

    /// Everything that a scan sees, a few entries at a time.
    pub fn scan(&self, seq: Seq) -> BTreeMap<u8, u64> {
        self.scan_in(seq, false)
    }

    /// The same from the last key to the first.
    pub fn scan_back(&self, seq: Seq) -> BTreeMap<u8, u64> {
        self.scan_in(seq, true)
    }

    fn scan_in(&self, seq: Seq, reverse: bool) -> BTreeMap<u8, u64> {
        let mut all = BTreeMap::new();
        let (mut lower, mut upper) = (Bound::Unbounded, Bound::Unbounded);
        loop {
            let request = ScanRequest {
                at: At { seq, now: self.snapshots().now() },
                lower: lower.as_ref().map(Vec::as_slice),
                upper: upper.as_ref().map(Vec::as_slice),
                reverse,
                entries_max: 5,
                bytes_max: 1 << 20,
                skip_damaged: false,
            };
            let batch = self.tree.scan(&request).expect("a scan reads what its views lead to");
            for (key, value) in batch.entries {
                let before = all.insert(key[0], number(&value.here().expect("no value is a blob")));
                assert_eq!(before, None, "key {} comes once", key[0]);
            }
            match batch.resume {
                Some(bound) if reverse => upper = bound,
                Some(bound) => lower = bound,
                None => return all,
            }
        }
    }

    /// The entries that every reader must see as of `seq`.
    pub fn expected(&self, seq: Seq) -> BTreeMap<u8, u64> {
        let mut all = BTreeMap::new();
        for ((key, put), number) in self.order.lock().iter().zip(1..=seq.0) {
            if *put {
                all.insert(*key, number)
            } else {
                all.remove(key)
            };
        }
        all
    }

    /// The newest version of a key up to `seq` that was written.
    pub fn expected_version(&self, key: u8, seq: Seq) -> Option<(u64, bool)> {
        let order = self.order.lock();
        let versions = order.iter().zip(1..=seq.0).filter(|((written, _), _)| *written == key);
        versions.last().map(|((_, put), number)| (number, *put))
    }

    /// When everybody is done: all is there, all that was seen could be, all space came back.
    pub fn assert_sound(&self) {
        let visible = self.snapshots().visible();
        let expected = self.expected(visible);
        for key in 0..KEYS {
            assert_eq!(self.get(key), expected.get(&key).copied(), "key {key} in the end");
        }
        assert_eq!(self.scan(visible), expected);
        self.history.assert_linearizable();
        self.tree.collect().unwrap();
        assert!(self.tree.is_quiescent(), "space without readers is freed");
    }
}

/// A thread of a scenario.
pub fn concurrently(
    subject: &Arc<Subject>,
    body: impl FnOnce(&Subject) + Send + 'static,
) -> Thread {
    let subject = Arc::clone(subject);
    spawn("other", move || body(&subject)).unwrap()
}
