//! Followers of a store that is written: what they read is what was visible at their number.
//!
//! Histories of one thread over one device in memory repeat from their seeds: the writer does its
//! merges within its writes. The model says what each number sees; a copy of the device at
//! the moment of a refresh, opened read-only, must say the same.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use esker::{
    Db, Entry, Error, History, IndexKind, Keyspace, KeyspaceOptions, Merge, Range, Snapshot,
};
use esker_device::memory::MemoryDevice;
use esker_harness::counts::{Counts, budget};
use esker_harness::random::Random;
use esker_substrate::planted::{self, Bug};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;
/// All keyspaces, by name.
type World = BTreeMap<&'static str, Model>;

const NAMES: [&str; 5] = ["fdtree", "lsm", "operands", "history", "brief"];
const KEYS: u64 = 400;
const STEPS: u64 = 600;
const SEEDS: u64 = 24;

fn options(name: &str) -> KeyspaceOptions {
    let options = KeyspaceOptions::default().memtable_bytes(Some(8 << 10));
    match name {
        "lsm" => options.index(IndexKind::Lsm).inline_bytes_max(600),
        "operands" => options.merge(Merge::Add),
        "history" => options.history(History::All),
        "brief" => options.index(IndexKind::Lsm),
        _ => options.inline_bytes_max(600),
    }
}

fn open(device: &MemoryDevice, steps: u32) -> Db {
    let builder = Db::builder_on(Arc::new(device.clone()));
    builder.memory_budget(1 << 20).log_segment_bytes(16 << 10).inline_merges(steps).open().unwrap()
}

fn follow(device: &MemoryDevice) -> Db {
    let builder = Db::builder_on(Arc::new(device.clone()));
    builder.memory_budget(4 << 20).follow(true).open().unwrap()
}

fn key(random: &Random) -> Vec<u8> {
    format!("key {:04}", random.below(KEYS)).into_bytes()
}

fn value(random: &Random) -> Vec<u8> {
    let bytes = if random.below(12) == 0 { 600 + random.below(9000) } else { random.below(300) };
    vec![random.below(256) as u8; bytes as usize + 1]
}

/// A number that a reader of the follower holds, and what it sees.
struct Held {
    snapshot: Snapshot,
    world: World,
    /// A scan that was begun, with the rest of what it should give.
    scan: Option<(Range, Vec<Entry>)>,
}

struct Case {
    device: MemoryDevice,
    random: Random,
    writer: Option<Db>,
    world: World,
    follower: Db,
    /// What the follower sees.
    seen: World,
    held: Vec<Held>,
    steps: u32,
}

impl Case {
    fn new(seed: u64) -> Self {
        let (device, random) = (MemoryDevice::new(), Random::new(seed));
        let steps = 1 + random.below(6) as u32;
        let writer = open(&device, steps);
        let follower = follow(&device);
        let (world, seen, held) = (World::new(), World::new(), Vec::new());
        Self { device, random, writer: Some(writer), world, follower, seen, held, steps }
    }

    fn writer(&self) -> &Db {
        self.writer.as_ref().unwrap()
    }

    fn keyspace(&mut self, name: &'static str) -> Keyspace {
        self.world.entry(name).or_default();
        self.writer().keyspace(name, options(name)).unwrap()
    }

    fn write(&mut self) {
        let name = NAMES[self.random.below(NAMES.len() as u64) as usize];
        let keyspace = self.keyspace(name);
        let model = self.world.get_mut(name).unwrap();
        let (random, device_key) = (&self.random, key(&self.random));
        match random.below(20) {
            0 => {
                let (from, to) = (key(random), key(random));
                keyspace.remove_range(from.clone()..to.clone()).unwrap();
                model.retain(|key, _| *key < from || *key >= to);
            }
            1..4 => {
                keyspace.remove(&device_key).unwrap();
                model.remove(&device_key);
            }
            _ if name == "operands" => {
                let number = random.below(1000);
                keyspace.merge(&device_key, number.to_le_bytes()).unwrap();
                let old = model
                    .get(&device_key)
                    .map_or(0, |old| u64::from_le_bytes(old.as_slice().try_into().unwrap()));
                model.insert(device_key, (old + number).to_le_bytes().to_vec());
            }
            _ => {
                let value = value(random);
                keyspace.insert(&device_key, &value).unwrap();
                model.insert(device_key, value);
            }
        }
    }

    /// One batch over two keyspaces.
    fn write_batch(&mut self) {
        let (one, two) = (self.keyspace("fdtree"), self.keyspace("history"));
        let mut batch = self.writer().batch();
        for _ in 0..1 + self.random.below(4) {
            let (key, value) = (key(&self.random), value(&self.random));
            batch.insert(&one, &key, &value);
            batch.insert(&two, &key, &value);
            self.world.get_mut("fdtree").unwrap().insert(key.clone(), value.clone());
            self.world.get_mut("history").unwrap().insert(key, value);
        }
        batch.commit().unwrap();
    }

    fn upkeep(&mut self) {
        match self.random.below(10) {
            0 => self.writer().compact().unwrap(),
            1..5 => self.writer().flush().unwrap(),
            5 => {
                self.writer().drop_keyspace("brief").unwrap();
                self.world.remove("brief");
            }
            6 => {
                // Another writer.
                let writer = self.writer.take().unwrap();
                if self.random.below(2) == 0 {
                    writer.close().unwrap();
                } else {
                    drop(writer);
                }
                self.check_follower();
                self.writer = Some(open(&self.device, self.steps));
                for name in self.world.keys() {
                    self.writer().keyspace(name, options(name)).unwrap();
                }
            }
            _ => self.writer().persist().unwrap(),
        }
    }

    fn refresh(&mut self) {
        self.follower.refresh().unwrap();
        self.seen = self.world.clone();
        assert_eq!(self.follower.visible_seq(), self.writer().visible_seq());
        assert_eq!(self.follower.lag().unwrap().unwrap().operations, Some(0));
    }

    /// The follower's contents against the model, and against a recovery of the same moment.
    fn check_whole(&self) {
        let names: Vec<_> = self.seen.keys().map(ToString::to_string).collect();
        assert_eq!(self.follower.keyspaces().unwrap().len(), names.len());
        let image = Db::builder_on(Arc::new(self.device.copy())).memory_budget(4 << 20);
        let image = image.read_only(true).open().unwrap();
        for (name, model) in &self.seen {
            let keyspace = self.follower.open_keyspace(name).unwrap().unwrap();
            let found: Vec<_> = keyspace.iter().unwrap().map(Result::unwrap).collect();
            let recovered = image.open_keyspace(name).unwrap().unwrap();
            let recovered: Vec<_> = recovered.iter().unwrap().map(Result::unwrap).collect();
            let expected: Vec<_> = model.clone().into_iter().collect();
            assert!(recovered == expected, "{name}: the recovery differs");
            assert!(found == expected, "{name}: the follower's scan differs");
            for number in (0..KEYS).step_by(7) {
                let key = format!("key {number:04}").into_bytes();
                assert_eq!(keyspace.get(&key).unwrap(), model.get(&key).cloned(), "{name}");
            }
        }
    }

    /// Some reads of the follower as of its last refresh, however long that is ago.
    fn check_follower(&self) {
        for (name, model) in &self.seen {
            let Some(keyspace) = self.follower.open_keyspace(name).unwrap() else { continue };
            let key = key(&self.random);
            match keyspace.get(&key) {
                // It may have caught up to find what is there: then the newest is right too.
                Ok(found) => {
                    let now = self.world.get(name).and_then(|model| model.get(&key));
                    let old = model.get(&key);
                    assert!(found.as_ref() == old || found.as_ref() == now, "{name} {key:?}");
                }
                Err(error) => assert!(matches!(error, Error::NoKeyspace { .. }), "{name}: {error}"),
            }
        }
    }

    fn hold(&mut self) {
        self.refresh();
        let snapshot = self.follower.snapshot().unwrap();
        let scan = self.seen.get("fdtree").map(|model| {
            let keyspace = self.follower.open_keyspace("fdtree").unwrap().unwrap();
            let mut scan = snapshot.iter(&keyspace).unwrap();
            let mut rest = model.clone().into_iter();
            for _ in 0..self.random.below(5) {
                assert_eq!(scan.next().map(Result::unwrap), rest.next());
            }
            (scan, rest.collect())
        });
        self.held.push(Held { snapshot, world: self.seen.clone(), scan });
    }

    fn release(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let held = self.held.remove(self.random.below(self.held.len() as u64) as usize);
        for (name, model) in &held.world {
            let Some(keyspace) = self.follower.open_keyspace(name).unwrap() else { continue };
            if *name == "brief" {
                continue;
            }
            let found: Vec<_> =
                held.snapshot.iter(&keyspace).unwrap().map(Result::unwrap).collect();
            let expected: Vec<_> = model.clone().into_iter().collect();
            assert!(found == expected, "{name}: the snapshot differs");
            let key = key(&self.random);
            assert_eq!(held.snapshot.get(&keyspace, &key).unwrap(), model.get(&key).cloned());
        }
        if let Some((scan, expected)) = held.scan {
            let found: Vec<_> = scan.map(Result::unwrap).collect();
            assert!(found == expected, "the rest of a scan differs");
        }
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..70 => (0..1 + self.random.below(8)).for_each(|_| self.write()),
            70..74 => self.write_batch(),
            74..80 => self.upkeep(),
            80..86 => {
                self.refresh();
                self.check_whole();
            }
            86..90 => self.hold(),
            90..94 => self.release(),
            _ => self.check_follower(),
        }
    }

    fn run(mut self) -> u64 {
        for _ in 0..STEPS {
            self.step();
        }
        self.refresh();
        self.check_whole();
        while !self.held.is_empty() {
            self.release();
        }
        self.writer().visible_seq()
    }
}

#[test]
fn a_follower_sees_what_was_visible_at_its_number() {
    let mut counts = Counts::new("follow", "random histories");
    for seed in 0..SEEDS * budget() {
        let run = catch_unwind(|| Case::new(seed).run());
        let operations = run.unwrap_or_else(|_| panic!("seed {seed}"));
        counts.add("operations", operations);
    }
    counts.record().unwrap();
}

fn is_found(bug: Bug) {
    let found = (0..SEEDS).any(|seed| {
        let run = || planted::with(bug, || Case::new(seed).run());
        catch_unwind(AssertUnwindSafe(run)).is_err()
    });
    assert!(found, "no history finds {bug:?}");
}

#[test]
fn finds_pins_that_are_not_counted() {
    is_found(Bug::FollowerPinIgnored);
}

#[test]
fn finds_a_segment_that_is_skipped() {
    is_found(Bug::FollowerSkipsSegment);
}

#[test]
fn finds_blocks_that_are_believed() {
    is_found(Bug::BlockWithoutChecksum);
}

/// Writes one value for all keys, in a folder, and drops what no reader needs.
fn write_all(path: &Path, value: &str) {
    let db = Db::builder(path).memory_budget(1 << 20).open().unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    for number in 0..300 {
        keyspace.insert(format!("key {number}"), value).unwrap();
    }
    db.compact().unwrap();
    db.close().unwrap();
}

/// A follower holds a snapshot while the file in which it says so is changed by hand, and another
/// writer comes. What it reads there, if it is not refused.
fn of_a_lost_pin(lose: fn(&Path)) -> Option<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    write_all(&path, "old");
    let follower = Db::builder(&path).follow(true).open().unwrap();
    let snapshot = follower.snapshot().unwrap();
    lose(&path.join("followers"));
    write_all(&path, "mid");
    write_all(&path, "new");
    follower.refresh().unwrap();
    let keyspace = follower.open_keyspace("k").unwrap().unwrap();
    assert_eq!(keyspace.get("key 7").unwrap().as_deref(), Some(&b"new"[..]));
    let found = match snapshot.get(&keyspace, "key 7") {
        Ok(found) => found,
        Err(error) => {
            assert!(matches!(error, Error::TooOld { .. }), "{error}");
            None
        }
    };
    // From now on its snapshots are kept again.
    let newest = follower.snapshot().unwrap();
    write_all(&path, "last");
    follower.refresh().unwrap();
    assert_eq!(newest.get(&keyspace, "key 7").unwrap().as_deref(), Some(&b"new"[..]));
    found
}

#[test]
fn a_snapshot_whose_pin_is_lost_is_refused() {
    let nothing = |_: &Path| ();
    let remove = |file: &Path| std::fs::remove_file(file).unwrap();
    let replace = |file: &Path| {
        let copy = file.with_extension("copy");
        std::fs::copy(file, &copy).unwrap();
        std::fs::rename(&copy, file).unwrap();
    };
    // No file: a writer cannot open it.
    let obstruct = |file: &Path| {
        std::fs::remove_file(file).unwrap();
        std::os::unix::fs::symlink("/nowhere/at/all", file).unwrap();
    };
    assert_eq!(of_a_lost_pin(nothing).as_deref(), Some(&b"old"[..]));
    for lose in [remove, replace, obstruct] {
        assert_eq!(of_a_lost_pin(lose), None);
    }
    let planted = planted::with(Bug::CellNotFound, || {
        catch_unwind(|| of_a_lost_pin(remove)).map_or(true, |found| found.is_some())
    });
    assert!(planted, "a pin that is lost must be missed");
}

/// The writer changes another keyspace all the time.
#[test]
fn damage_is_found_beside_a_busy_writer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let writer = Db::builder(&path).memory_budget(1 << 20).open().unwrap();
    let still = writer.keyspace("still", KeyspaceOptions::default()).unwrap();
    for number in 0..3000 {
        still.insert(format!("key {number}"), [number as u8; 200]).unwrap();
    }
    writer.compact().unwrap();
    let busy = writer.keyspace("busy", options("fdtree")).unwrap();
    let follower = Db::builder(&path).follow(true).open().unwrap();
    assert!(follower.check().unwrap().is_ok());
    let bytes = std::fs::read(path.join("data")).unwrap();
    let data = std::fs::OpenOptions::new().write(true).open(path.join("data")).unwrap();
    for (unit, at) in bytes.chunks(4096).zip((0..).step_by(4096)) {
        if unit.windows(5).any(|part| part == b"key 7") {
            data.write_all_at(&[!unit[100]], at + 100).unwrap();
        }
    }
    let is_done = AtomicBool::new(false);
    let report = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                busy.insert("key", [1; 200]).unwrap();
                writer.flush().unwrap();
            }
        });
        let report = follower.check();
        is_done.store(true, Ordering::Relaxed);
        report
    });
    let report = report.unwrap();
    assert!(!report.is_ok(), "{report:?}");
}

/// One operation that is not flushed keeps the log, in which there is more than the follower has
/// memory for.
#[test]
fn what_is_flushed_since_need_not_fit_the_memory() {
    let device = MemoryDevice::new();
    let builder = Db::builder_on(Arc::new(device.clone())).memory_budget(16 << 20);
    let writer = builder.inline_merges(4).open().unwrap();
    let cold = writer.keyspace("cold", KeyspaceOptions::default()).unwrap();
    let hot = options("fdtree").memtable_bytes(Some(64 << 10));
    let hot = writer.keyspace("hot", hot).unwrap();
    cold.insert("key", "value").unwrap();
    let builder = Db::builder_on(Arc::new(device)).memory_budget(1 << 20);
    let follower = builder.follow(true).open().unwrap();
    for number in 0..40_000_u32 {
        hot.insert((number % 300).to_be_bytes(), [number as u8; 100]).unwrap();
    }
    follower.refresh().unwrap();
    assert_eq!(follower.visible_seq(), writer.visible_seq());
    let found = follower.open_keyspace("hot").unwrap().unwrap();
    let last = 39_999_u32;
    assert_eq!(found.get((last % 300).to_be_bytes()).unwrap(), Some(vec![last as u8; 100]));
}

/// The file is replaced by a copy of itself while the writer goes on.
#[test]
fn a_file_that_is_replaced_beside_a_writer_is_found_by_both() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let writer = Db::builder(&path).memory_budget(1 << 20).open().unwrap();
    let keyspace = writer.keyspace("k", KeyspaceOptions::default()).unwrap();
    let write_all = |value: &str| {
        for number in 0..300 {
            keyspace.insert(format!("key {number}"), value).unwrap();
        }
        writer.compact().unwrap();
    };
    write_all("old");
    let follower = Db::builder(&path).follow(true).open().unwrap();
    let (file, copy) = (path.join("followers"), path.join("followers.copy"));
    std::fs::copy(&file, &copy).unwrap();
    std::fs::rename(&copy, &file).unwrap();
    follower.refresh().unwrap();
    // The writer has not looked since.
    let snapshot = follower.snapshot().unwrap();
    write_all("mid");
    write_all("new");
    follower.refresh().unwrap();
    let read = follower.open_keyspace("k").unwrap().unwrap();
    assert_eq!(snapshot.get(&read, "key 7").unwrap().as_deref(), Some(&b"old"[..]));
    assert_eq!(read.get("key 7").unwrap().as_deref(), Some(&b"new"[..]));
    assert_eq!(follower.lag().unwrap().unwrap().operations, Some(0));
}

/// Another store comes to where the store was.
#[test]
fn a_folder_that_is_renamed_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    let (path, moved) = (folder.path().join("store"), folder.path().join("moved"));
    write_all(&path, "old");
    let follower = Db::builder(&path).follow(true).open().unwrap();
    let snapshot = follower.snapshot().unwrap();
    std::fs::rename(&path, &moved).unwrap();
    write_all(&path, "other");
    write_all(&moved, "mid");
    write_all(&moved, "new");
    follower.refresh().unwrap();
    let read = follower.open_keyspace("k").unwrap().unwrap();
    assert_eq!(snapshot.get(&read, "key 7").unwrap().as_deref(), Some(&b"old"[..]));
    assert_eq!(read.get("key 7").unwrap().as_deref(), Some(&b"new"[..]));
}
