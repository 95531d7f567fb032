//! Followers whose writer goes on between any two of their reads of the device.
//!
//! The follower's device calls the writer before a read, in the same thread: it writes, flushes and
//! compacts, so that blocks are used again, segments are retired and manifests are begun while the
//! follower reads. Each answer must be what the model holds at the number that it is of.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cell::Cell as Flag;
use std::collections::BTreeMap;
use std::ops::ControlFlow::Continue;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use esker::{Backup, Db, Error, IndexKind, Keyspace, KeyspaceOptions, Snapshot};
use esker_device::memory::MemoryDevice;
use esker_device::wrap::{Hook, Step, StepKind, Wrapped};
use esker_device::{Caching, Device, Open, Purpose};
use esker_harness::counts::{Counts, budget};
use esker_harness::random::Random;
use esker_substrate::followers::Cell;
use esker_substrate::planted::{self, Bug};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const KEYS: u64 = 120;
const LOOKS: u64 = 50;
const SEEDS: u64 = 12;
/// How often the writer goes on between two looks.
const MEDDLED: u64 = 12;

std::thread_local! {
    /// The writer is at work in this thread, or must not be.
    static IS_BUSY: Flag<bool> = const { Flag::new(false) };
}

struct Writer {
    db: Db,
    keyspace: Keyspace,
    random: Random,
    /// How often it still goes on before the next look.
    left: u64,
    now: Model,
    /// The contents from each number on.
    history: BTreeMap<u64, Arc<Model>>,
}

impl Writer {
    fn new(device: &MemoryDevice, kind: IndexKind, seed: u64) -> Self {
        let db = Db::builder_on(Arc::new(device.clone())).memory_budget(1 << 20);
        let db = db.log_segment_bytes(16 << 10).inline_merges(2).open().unwrap();
        let options = KeyspaceOptions::default().memtable_bytes(Some(8 << 10)).index(kind);
        let keyspace = db.keyspace("all", options.inline_bytes_max(500)).unwrap();
        let history = BTreeMap::from([(0, Arc::default())]);
        let (random, left, now) = (Random::new(seed), MEDDLED, Model::new());
        Self { db, keyspace, random, left, now, history }
    }

    fn key(&self) -> Vec<u8> {
        format!("key {:03}", self.random.below(KEYS)).into_bytes()
    }

    fn go_on(&mut self) {
        match self.random.below(30) {
            0 => self.db.compact().unwrap(),
            1 => self.db.flush().unwrap(),
            2 => {
                let (from, to) = (self.key(), self.key());
                self.keyspace.remove_range(from.clone()..to.clone()).unwrap();
                self.now.retain(|key, _| *key < from || *key >= to);
            }
            _ => {
                let key = self.key();
                let bytes = if self.random.below(20) == 0 { 3000 } else { 150 };
                let value = vec![self.random.below(256) as u8; self.random.below(bytes) as usize];
                self.keyspace.insert(&key, &value).unwrap();
                self.now.insert(key, value);
            }
        }
        self.history.insert(self.db.visible_seq(), Arc::new(self.now.clone()));
    }

    fn at(&self, number: u64) -> Arc<Model> {
        Arc::clone(self.history.range(..=number).next_back().unwrap().1)
    }
}

/// Has the writer go on before some reads, and before some changes of the follower's cell.
struct Between {
    writer: Arc<Mutex<Writer>>,
    random: Random,
    /// One in so many reads.
    one_in: u64,
}

impl std::fmt::Debug for Between {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Between")
    }
}

impl Hook for Between {
    fn before(&self, step: Step) {
        if step.kind == StepKind::Read {
            self.go_on();
        }
    }

    fn before_word(&self) {
        self.go_on();
    }
}

impl Between {
    fn go_on(&self) {
        if IS_BUSY.get() || self.random.below(self.one_in) != 0 {
            return;
        }
        IS_BUSY.set(true);
        let mut writer = self.writer.lock().unwrap();
        if let Some(left) = writer.left.checked_sub(1) {
            writer.left = left;
            (0..self.random.below(24)).for_each(|_| writer.go_on());
        }
        drop(writer);
        IS_BUSY.set(false);
    }
}

/// What the looks of one case found.
#[derive(Default)]
struct Found {
    answers: u64,
    too_old: u64,
    overtaken: u64,
}

struct Case {
    device: MemoryDevice,
    writer: Arc<Mutex<Writer>>,
    follower: Db,
    keyspace: Keyspace,
    random: Random,
    found: Found,
}

impl Case {
    fn new(kind: IndexKind, seed: u64) -> Self {
        Self::with(kind, seed, 1 + Random::new(seed).below(24))
    }

    /// The writer goes on before one in `one_in` reads.
    fn with(kind: IndexKind, seed: u64, one_in: u64) -> Self {
        let (device, random) = (MemoryDevice::new(), Random::new(seed));
        let mut writer = Writer::new(&device, kind, seed);
        (0..200).for_each(|_| writer.go_on());
        let writer = Arc::new(Mutex::new(writer));
        let hook = Between { writer: Arc::clone(&writer), random: Random::new(!seed), one_in };
        let meddled = Wrapped::around(Arc::new(device.clone()), hook);
        let follower = Db::builder_on(Arc::new(meddled)).memory_budget(4 << 20).follow(true);
        let follower = follower.open().unwrap();
        let keyspace = follower.open_keyspace("all").unwrap().unwrap();
        Self { device, writer, follower, keyspace, random, found: Found::default() }
    }

    /// All entries as of a snapshot, against the model.
    fn compare(&mut self, snapshot: &Snapshot) {
        let expected = self.writer.lock().unwrap().at(snapshot.seq());
        let entries: esker::Result<Model> =
            snapshot.iter(&self.keyspace).and_then(Iterator::collect);
        match entries {
            Ok(entries) => {
                assert!(entries == *expected, "the scan as of {} differs", snapshot.seq());
                self.found.answers += 1;
            }
            Err(Error::TooOld { .. }) => self.found.too_old += 1,
            Err(Error::Overtaken { .. }) => self.found.overtaken += 1,
            Err(error) => assert_eq!(error.to_string(), "", "a scan fails"),
        }
        let key = self.writer.lock().unwrap().key();
        match snapshot.get(&self.keyspace, &key) {
            Ok(value) => assert_eq!(value.as_ref(), expected.get(&key)),
            Err(error) => {
                assert!(matches!(error, Error::TooOld { .. } | Error::Overtaken { .. }), "{error}");
            }
        }
    }

    fn run(mut self) -> Found {
        let mut held: Option<Snapshot> = None;
        for _ in 0..LOOKS {
            let before = {
                let mut writer = self.writer.lock().unwrap();
                writer.left = MEDDLED;
                writer.db.visible_seq()
            };
            let seen = match self.follower.refresh() {
                Err(Error::Overtaken { .. }) => {
                    self.found.overtaken += 1;
                    continue;
                }
                seen => seen.unwrap(),
            };
            assert!(seen >= before, "what was written before a refresh is seen after it");
            let snapshot = self.follower.snapshot().unwrap();
            self.compare(&snapshot);
            if let Some(held) = &held {
                self.compare(held);
            }
            if self.random.below(3) == 0 {
                held = Some(snapshot);
            }
            self.get();
        }
        self.found
    }

    /// Makes a backup while the writer goes on up to `meddled` times, and compares the store that
    /// it is restored to with the model. False if the writer was too fast.
    fn back_up(&self, to: &Arc<dyn Device>, meddled: u64) -> bool {
        let before = {
            let mut writer = self.writer.lock().unwrap();
            writer.left = meddled;
            writer.db.visible_seq()
        };
        let report = match self.follower.backup_on(Arc::clone(to), &mut |_| Continue(())) {
            Err(Error::Overtaken { .. }) => return false,
            made => made.unwrap(),
        };
        assert!(report.seq >= before, "what was written before a backup is in it");
        let backup = Backup::open_on(Arc::clone(to)).unwrap();
        assert_eq!(backup.seq(), report.seq);
        let checked = backup.check().unwrap();
        assert!(checked.is_ok(), "{checked:?}");
        let restored = MemoryDevice::new();
        backup.restore_on(Arc::new(restored.clone()), &mut |_| Continue(())).unwrap();
        let db = Db::builder_on(Arc::new(restored)).memory_budget(4 << 20).open().unwrap();
        let entries: esker::Result<Model> =
            db.open_keyspace("all").unwrap().unwrap().iter().and_then(Iterator::collect);
        let expected = self.writer.lock().unwrap().at(report.seq);
        assert!(entries.unwrap() == *expected, "the backup of {} differs", report.seq);
        true
    }

    /// A lookup as of now, which may catch up meanwhile.
    fn get(&self) {
        let key = self.writer.lock().unwrap().key();
        let from = self.follower.visible_seq();
        let value = match self.keyspace.get(&key) {
            Err(Error::Overtaken { .. }) => return,
            value => value.unwrap(),
        };
        let to = self.follower.visible_seq();
        let writer = self.writer.lock().unwrap();
        let mut models = writer.history.range(from..=to).map(|(_, model)| model);
        let is_right = |model: &Arc<Model>| model.get(&key) == value.as_ref();
        assert!(is_right(&writer.at(from)) || models.any(is_right), "{key:?} from {from} to {to}");
    }
}

fn hold_all_cells(device: &MemoryDevice) -> Vec<Cell> {
    std::iter::from_fn(|| Cell::join(device)).collect()
}

#[test]
fn each_answer_is_that_of_its_number() {
    let mut counts = Counts::new("follow", "a writer between reads");
    for kind in IndexKind::ALL {
        for seed in 0..SEEDS * budget() {
            let run = catch_unwind(|| Case::new(kind, seed).run());
            let found = run.unwrap_or_else(|_| panic!("{kind}, seed {seed}"));
            counts.add("answers", found.answers);
            counts.add("too old", found.too_old);
            counts.add("overtaken", found.overtaken);
            let refused = found.too_old + found.overtaken;
            assert!(refused * 10 <= found.answers, "{kind}, seed {seed}: {refused}");
        }
    }
    counts.record().unwrap();
}

/// Backups that a follower makes while the writer goes on, each over the one before.
#[test]
fn a_backup_by_a_follower_is_the_store_of_its_number() {
    let mut counts = Counts::new("follow", "backups between reads");
    for kind in IndexKind::ALL {
        for seed in 200..200 + SEEDS * budget() {
            let run = catch_unwind(|| {
                let case = Case::new(kind, seed);
                let to: Arc<dyn Device> = Arc::new(MemoryDevice::new());
                (0..4).map(|_| case.back_up(&to, MEDDLED)).collect::<Vec<_>>()
            });
            let made = run.unwrap_or_else(|_| panic!("{kind}, seed {seed}"));
            counts.add("backups", made.iter().filter(|made| **made).count() as u64);
            counts.add("overtaken", made.iter().filter(|made| !**made).count() as u64);
        }
    }
    assert!(counts.get("overtaken") * 4 <= counts.get("backups"), "{}", counts.line());
    counts.record().unwrap();
}

/// Where the writer goes on before every read, a backup comes to an end too, and one that does not
/// succeed leaves the one before.
#[test]
fn a_backup_beside_a_writer_that_never_rests_ends() {
    for kind in IndexKind::ALL {
        let case = Case::with(kind, 300, 1);
        let to: Arc<dyn Device> = Arc::new(MemoryDevice::new());
        assert!(case.back_up(&to, 0));
        let is_made = case.back_up(&to, u64::MAX);
        let left = Backup::open_on(to).unwrap();
        assert!(left.check().unwrap().is_ok());
        assert_eq!(left.run(), if is_made { 2 } else { 1 });
    }
}

/// A follower that cannot tell the writer what it reads is refused what may be gone, and is told
/// nothing wrong.
#[test]
fn an_answer_that_is_not_kept_is_refused() {
    let (mut answers, mut refused) = (0, 0);
    for kind in IndexKind::ALL {
        for seed in 100..100 + SEEDS / 2 * budget() {
            let run = catch_unwind(|| {
                let mut case = Case::new(kind, seed);
                // All places are taken before the follower is opened once more.
                let cells = hold_all_cells(&case.device);
                IS_BUSY.set(true);
                let without = Db::builder_on(Arc::new(Wrapped::around(
                    Arc::new(case.device.clone()),
                    Between {
                        writer: Arc::clone(&case.writer),
                        random: Random::new(seed),
                        one_in: 3,
                    },
                )));
                case.follower = without.memory_budget(4 << 20).follow(true).open().unwrap();
                case.keyspace = case.follower.open_keyspace("all").unwrap().unwrap();
                IS_BUSY.set(false);
                // That of the first one, which is closed now.
                let last = hold_all_cells(&case.device);
                assert_eq!(case.follower.lag().unwrap().unwrap().operations, None);
                let found = case.run();
                drop((cells, last));
                found
            });
            IS_BUSY.set(false);
            let found = run.unwrap_or_else(|_| panic!("{kind}, seed {seed}"));
            (answers, refused) = (answers + found.answers, refused + found.too_old);
        }
    }
    assert!(answers > 50 && refused > 20, "{answers} answers, {refused} refused");
}

#[test]
fn finds_numbers_that_are_not_compared() {
    let found = (0..SEEDS * 4).any(|seed| {
        let run = || Case::new(IndexKind::FdTree, seed).run();
        catch_unwind(AssertUnwindSafe(|| planted::with(Bug::AskedNotCompared, run))).is_err()
    });
    IS_BUSY.set(false);
    assert!(found, "no case finds a number that the writer does not keep");
}

#[test]
fn damage_is_damage_in_a_follower_too() {
    let device = MemoryDevice::new();
    let mut writer = Writer::new(&device, IndexKind::FdTree, 1);
    (0..300).for_each(|_| writer.go_on());
    writer.db.compact().unwrap();
    let follower = Db::builder_on(Arc::new(device.clone())).follow(true).open().unwrap();
    let report = follower.check().unwrap();
    assert!(report.is_ok() && report.followed_at == Some(writer.db.visible_seq()), "{report:?}");
    let data = device.open("data", Open::Existing, Caching::Buffered).unwrap();
    let bytes = data.len().unwrap();
    data.write_at(0, &vec![0x5a; bytes as usize], Purpose::User).unwrap();
    let keyspace = follower.open_keyspace("all").unwrap().unwrap();
    let error = keyspace.iter().unwrap().find_map(Result::err).unwrap();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    assert!(!follower.check().unwrap().is_ok());
    let error = follower.backup_on(Arc::new(MemoryDevice::new()), &mut |_| Continue(()));
    assert!(matches!(error, Err(Error::Damaged { .. })), "{error:?}");
}

#[test]
fn a_read_only_opening_follows_a_writer_and_keeps_others_out_where_there_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let writer = Db::open(folder.path()).unwrap();
    let keyspace = writer.keyspace("all", KeyspaceOptions::default()).unwrap();
    keyspace.insert("a", "1").unwrap();
    let reader = || Db::builder(folder.path()).read_only(true);
    let follower = reader().open().unwrap();
    let seen = follower.open_keyspace("all").unwrap().unwrap();
    assert_eq!(seen.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    assert!(matches!(seen.insert("b", "2"), Err(Error::ReadOnly)));
    assert!(matches!(seen.compact(), Err(Error::ReadOnly)));
    assert!(matches!(Db::open(folder.path()), Err(Error::Locked { .. })));
    keyspace.insert("b", "2").unwrap();
    assert!(!seen.contains("b").unwrap());
    assert_eq!(follower.refresh().unwrap(), writer.visible_seq());
    assert!(seen.contains("b").unwrap());
    writer.close().unwrap();
    assert!(seen.contains("b").unwrap());
    let next = Db::open(folder.path()).unwrap();
    assert!(next.lag().unwrap().is_none());
    next.close().unwrap();
    let locked = reader().open().unwrap();
    assert!(matches!(Db::open(folder.path()), Err(Error::Locked { .. })));
    assert_eq!(locked.lag().unwrap(), None);
    assert!(locked.refresh().unwrap() >= 2);
    let last = Db::builder(folder.path()).follow(true).open().unwrap();
    assert!(last.lag().unwrap().is_some());
}
