//! The real protocol under many schedules: readers, writers and scans beside a merge that
//! publishes views, records its progress and gives space back.
//!
//! `cargo test -p esker-index --features shuttle,planted --test shuttle`

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use esker_device::Device;
use esker_device::memory::MemoryDevice;
use esker_format::ids::{KeyspaceId, Seq, StoreId};
use esker_format::meta::IndexMeta;
use esker_index::fdtree::{Env, FdTree, Options, ScanRequest, Scheme, Sizes, Step, Which, Work};
use esker_substrate::blocks::BlockStore;
use esker_substrate::budget::Budget;
use esker_substrate::planted::{Bug, with};
use esker_substrate::sync::{Mutex, spawn};
use shuttle::scheduler::{PctScheduler, RandomScheduler};

/// Keys of the store; each block takes about three entries.
const KEYS: u8 = 12;
const FULL: Work = Work::Merge { full: true, with_memtable: true };

/// A tree, the lock that gives numbers out, and every version by key and number.
struct Subject {
    tree: FdTree,
    env: Arc<Env>,
    order: Mutex<u64>,
}

fn value(seq: u64) -> Vec<u8> {
    seq.to_le_bytes().repeat(150)
}

impl Subject {
    fn new() -> Arc<Self> {
        Self::with(KEYS)
    }

    /// Every key written once and merged, every third one overwritten in the memtable.
    fn with(keys: u8) -> Arc<Self> {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new());
        let blocks = BlockStore::create(&device, StoreId(1), 4096).unwrap();
        let env = Arc::new(Env {
            blocks: Arc::new(blocks),
            snapshots: Arc::default(),
            faults: Arc::default(),
            budget: Arc::new(Budget::new(1 << 20)),
            poison: Arc::default(),
        });
        let options =
            Options { memtable_bytes_max: 8 << 10, scheme: Scheme::Fc, sizes: Sizes::Cost };
        let tree = FdTree::open(Arc::clone(&env), KeyspaceId(1), IndexMeta::default(), options);
        let subject = Arc::new(Self { tree, env, order: Mutex::new(0) });
        (0..keys).for_each(|key| subject.put(key));
        subject.complete(FULL);
        (0..keys).step_by(3).for_each(|key| subject.put(key));
        subject
    }

    fn put(&self, key: u8) {
        let mut last = self.order.lock();
        *last += 1;
        self.tree.insert(&[key], Seq(*last), Some(&value(*last)));
        self.env.snapshots.publish(Seq(*last));
    }

    fn complete(&self, work: Work) {
        let gate = |body: &mut dyn FnMut()| {
            let _order = self.order.lock();
            body();
        };
        if self.tree.begin(work, &gate).unwrap() {
            for which in [Which::Spill, Which::Merge] {
                while self.tree.step(which, &mut |_| Ok(())).unwrap() == Step::More {}
            }
        }
    }

    /// The number of the version that a lookup finds.
    fn get(&self, key: u8) -> u64 {
        let found = self.tree.get(&[key], || self.env.snapshots.visible());
        let found = found.expect("a block is readable as long as a view leads to it");
        number(&found.expect("a key that was written is found"))
    }

    fn scan(&self, seq: Seq) -> BTreeMap<u8, u64> {
        let mut all = BTreeMap::new();
        let mut lower = Bound::Unbounded;
        loop {
            let request = ScanRequest {
                seq,
                lower: lower.as_ref().map(Vec::as_slice),
                upper: Bound::Unbounded,
                reverse: false,
                entries_max: 5,
                bytes_max: 1 << 20,
                skip_damaged: false,
            };
            let batch = self.tree.scan(&request).expect("a scan reads what its views lead to");
            all.extend(batch.entries.iter().map(|(key, value)| (key[0], number(value))));
            match batch.resume {
                Some(bound) => lower = bound,
                None => return all,
            }
        }
    }
}

fn number(value: &[u8]) -> u64 {
    let (first, _) = value.split_first_chunk().expect("values are long");
    assert!(value.chunks(8).all(|chunk| chunk == first), "a value is whole");
    u64::from_le_bytes(*first)
}

/// Runs `body` under `runs` random schedules and as many with few switches at chosen points.
fn schedules(runs: usize, body: fn()) {
    let budget = std::env::var("ESKER_TEST_BUDGET").ok().and_then(|b| b.parse().ok()).unwrap_or(1);
    let runs = runs * budget;
    let config = || {
        let mut config = shuttle::Config::new();
        config.stack_size = 1 << 18;
        config
    };
    shuttle::Runner::new(RandomScheduler::new(runs), config()).run(body);
    shuttle::Runner::new(PctScheduler::new(3, runs), config()).run(body);
}

/// Without writers every lookup has one right answer, wherever the merge stands.
fn lookups_beside_a_merge() {
    let subject = Subject::new();
    let expected = subject.scan(subject.env.snapshots.visible());
    let merging = Arc::clone(&subject);
    let merge = spawn("merge", move || merging.complete(FULL)).unwrap();
    for key in [0, 5, KEYS - 1, 6, 1] {
        assert_eq!(subject.get(key), expected[&key], "key {key}");
    }
    merge.join().unwrap();
}

/// A lookup answers a version that was the newest at some moment while it ran.
fn lookups_beside_writes_and_a_merge() {
    let subject = Subject::new();
    let other = Arc::clone(&subject);
    let merge = spawn("write and merge", move || {
        other.put(4);
        other.put(9);
        other.complete(FULL);
        other.put(4);
    });
    let mut last = 0;
    for key in [4, 9, 4, 4] {
        let before = subject.env.snapshots.visible().0;
        let found = subject.get(key);
        assert!(found <= subject.env.snapshots.visible().0);
        if key == 4 {
            assert!(found >= last, "time went back from {last} to {found}, at {before}");
            last = found;
        }
    }
    merge.unwrap().join().unwrap();
}

/// A lookup answers no older version than the newest of when it began, beside a spill, which keeps
/// only the newest version of each key.
fn lookups_beside_writes_and_a_spill() {
    let subject = Subject::new();
    let (first, begun_at) = (subject.get(4), subject.env.snapshots.visible().0);
    let other = Arc::clone(&subject);
    let spill = spawn("write and spill", move || {
        other.put(4);
        other.put(4);
        other.complete(Work::Spill);
    });
    for _ in 0..3 {
        // All that is written from then on are versions of this key.
        let before = subject.env.snapshots.visible().0;
        let newest = if before > begun_at { before } else { first };
        let found = subject.get(4);
        assert!(found >= newest, "time went back from {newest} to {found}");
    }
    spill.unwrap().join().unwrap();
}

/// A scan sees its moment, however merges and writes go on.
fn scans_beside_writes_and_a_merge() {
    let subject = Subject::new();
    let snapshot = subject.env.snapshots.register();
    let expected = subject.scan(snapshot.seq());
    assert_eq!(expected.len(), usize::from(KEYS));
    let other = Arc::clone(&subject);
    let merge = spawn("write and merge", move || {
        other.put(2);
        other.complete(FULL);
        other.put(7);
        other.complete(Work::Spill);
    });
    assert_eq!(subject.scan(snapshot.seq()), expected);
    merge.unwrap().join().unwrap();
    assert_eq!(subject.scan(snapshot.seq()), expected);
}

/// A spill goes on beside a merge, and both beside lookups.
fn a_spill_beside_a_merge() {
    let subject = Subject::new();
    subject.complete(Work::Spill);
    let (merging, spilling) = (Arc::clone(&subject), Arc::clone(&subject));
    let alone = Work::Merge { full: true, with_memtable: false };
    let merge = spawn("merge", move || merging.complete(alone)).unwrap();
    let spill = spawn("spill", move || {
        spilling.put(3);
        spilling.complete(Work::Spill);
    });
    for key in [3, 8] {
        subject.get(key);
    }
    spill.unwrap().join().unwrap();
    merge.join().unwrap();
    subject.tree.collect().unwrap();
    assert!(subject.tree.is_settled());
    let expected = (0..KEYS).map(|key| (key, subject.get(key))).collect::<BTreeMap<_, _>>();
    assert_eq!(subject.scan(subject.env.snapshots.visible()), expected);
}

/// Nothing is cached, and the merge is long enough to write where it has read before.
fn lookups_of_what_a_merge_is_passing() {
    let subject = Subject::with(60);
    let merging = Arc::clone(&subject);
    let merge = spawn("merge", move || merging.complete(FULL)).unwrap();
    for key in [4, 1, 10] {
        let written = u64::from(key) + 1;
        assert_eq!(subject.get(key), written, "key {key}");
    }
    merge.join().unwrap();
}

const RUNS: usize = 2_500;

#[test]
fn lookups_find_the_one_right_answer() {
    schedules(RUNS, lookups_beside_a_merge);
}

#[test]
fn lookups_never_go_back_in_time() {
    schedules(RUNS, lookups_beside_writes_and_a_merge);
}

#[test]
fn lookups_beside_a_spill_never_go_back_in_time() {
    schedules(RUNS, lookups_beside_writes_and_a_spill);
}

#[test]
fn lookups_of_passing_blocks_find_them() {
    schedules(RUNS / 5, lookups_of_what_a_merge_is_passing);
}

#[test]
fn scans_see_their_moment() {
    schedules(RUNS, scans_beside_writes_and_a_merge);
}

#[test]
fn spills_and_merges_go_on_beside_each_other() {
    schedules(RUNS, a_spill_beside_a_merge);
}

/// A mistake on purpose must be found.
fn is_found(bug: Bug, body: fn()) {
    let found = std::panic::catch_unwind(|| with(bug, || schedules(20_000, body)));
    assert!(found.is_err(), "{bug:?} was not found");
}

#[test]
fn finds_space_reused_under_a_reader() {
    is_found(Bug::QuarantineIgnored, lookups_of_what_a_merge_is_passing);
}

#[test]
fn finds_the_number_read_before_the_view() {
    // A full merge would hide it: it settles the version that the lookup then finds.
    is_found(Bug::NumberBeforeView, lookups_beside_writes_and_a_spill);
}
