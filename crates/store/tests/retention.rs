//! Keyspaces that keep their history for a time: what has to stay readable stays, what is given up
//! is refused, and its space is used again.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use common::{Model, assert_sound, back_up, copy, restored, small, threaded};
use esker::{Db, Error, History, Keyspace, KeyspaceOptions, Past, SimRuntime};
use esker_device::count::CountingDevice;
use esker_device::delay::{DelayDevice, Delays};
use esker_device::memory::MemoryDevice;
use esker_device::{Device, Purpose};
use esker_harness::counts::{Counts, budget};
use esker_harness::random::Random;
use esker_substrate::planted::{self, Bug};
use esker_substrate::runtime::Runtime;

fn options(history: History) -> KeyspaceOptions {
    KeyspaceOptions::default().memtable_bytes(Some(2 << 10)).history(history)
}

fn refused(error: &Error) -> bool {
    matches!(error, Error::Invalid { .. }) && error.to_string().contains("before its history")
}

fn contents(past: &Past) -> Model {
    past.iter().unwrap().map(Result::unwrap).collect()
}

/// The oldest version that can be read.
fn oldest(db: &Db) -> u64 {
    let stats = db.stats().unwrap();
    stats.keyspaces.iter().find(|of| of.name == "past").unwrap().history_from.unwrap()
}

struct Run {
    device: MemoryDevice,
    db: Db,
    keyspace: Keyspace,
    states: BTreeMap<u64, Model>,
    random: Random,
    kept: u64,
    /// Earlier versions that are held.
    held: Vec<Past>,
    /// Versions with names.
    named: BTreeMap<String, u64>,
}

impl Run {
    fn new(seed: u64, kept: u64) -> Self {
        let (device, random) = (MemoryDevice::new(), Random::new(seed));
        let db = small(&device).inline_merges([0, 1, 3][seed as usize % 3]).open().unwrap();
        let inline_bytes_max = if seed.is_multiple_of(2) { 90 } else { 1 << 10 };
        let options = options(History::Newest(kept)).inline_bytes_max(inline_bytes_max);
        let keyspace = db.keyspace("past", options).unwrap();
        let states = BTreeMap::from([(db.version(), Model::new())]);
        Self {
            device,
            db,
            keyspace,
            states,
            random,
            kept,
            held: Vec::new(),
            named: BTreeMap::new(),
        }
    }

    fn commit(&mut self) {
        let mut state = self.states.values().next_back().cloned().unwrap_or_default();
        let mut batch = self.db.batch();
        for _ in 0..1 + self.random.below(3) {
            let key = format!("{:02}", self.random.below(40)).into_bytes();
            match self.random.below(12) {
                0 => {
                    batch.remove(&self.keyspace, &key);
                    state.remove(&key);
                }
                1 => {
                    let end = format!("{:02}", self.random.below(40)).into_bytes();
                    batch.remove_range(&self.keyspace, key.as_slice()..end.as_slice());
                    state.retain(|there, _| !(&key..&end).contains(&there));
                }
                _ => {
                    let value = self.random.bytes(self.random.within(&(0..=220)));
                    batch.insert(&self.keyspace, &key, &value);
                    state.insert(key, value);
                }
            }
        }
        batch.commit().unwrap();
        self.states.insert(self.db.version(), state);
    }

    fn state(&self, version: u64) -> &Model {
        self.states.range(..=version).next_back().unwrap().1
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..88 => self.commit(),
            88..91 => self.db.flush().unwrap(),
            91 => self.db.compact().unwrap(),
            92 => self.reopen(),
            93 => {
                let versions = self.versions();
                let version = versions.start + self.random.below(versions.end - versions.start);
                self.held.push(self.keyspace.at(version).unwrap());
            }
            94 => self.held.truncate(self.held.len() / 2),
            95 => self.name(),
            _ => self.look_back(),
        }
        for past in &self.held {
            assert_eq!(contents(past), *self.state(past.version()), "held {}", past.version());
        }
    }

    /// Gives a version a name, or gives the name up.
    fn name(&mut self) {
        let name = format!("n{}", self.random.below(3));
        if self.named.remove(&name).is_some() {
            return self.db.unpin(&name).unwrap();
        }
        let versions = self.versions();
        let version = versions.start + self.random.below(versions.end - versions.start);
        self.db.pin(&name, version).unwrap();
        self.named.insert(name, version);
    }

    fn reopen(&mut self) {
        // Versions are held within a process.
        self.held.clear();
        self.device = copy(&self.device);
        self.db = small(&self.device).open().unwrap();
        self.keyspace = self.db.open_keyspace("past").unwrap().unwrap();
    }

    fn versions(&self) -> std::ops::Range<u64> {
        oldest(&self.db)..self.db.version() + 1
    }

    /// What is kept is right, and at least what was asked for is kept.
    fn look_back(&self) {
        let versions = self.versions();
        assert!(versions.end.saturating_sub(self.kept) >= versions.start, "{versions:?}");
        for _ in 0..4 {
            let version = versions.start + self.random.below(versions.end - versions.start);
            let past = self.keyspace.at(version).unwrap();
            assert_eq!(contents(&past), *self.state(version), "version {version}");
        }
        if let Some(before) = versions.start.checked_sub(1) {
            assert!(refused(&self.keyspace.at(before).unwrap_err()));
        }
        for (name, version) in &self.named {
            let past = self.keyspace.at_named(name).unwrap();
            assert_eq!(past.version(), *version);
            assert_eq!(contents(&past), *self.state(*version), "{name}");
        }
        let names = self.db.named_versions().unwrap();
        let names = names.into_iter().map(|named| (named.name, named.version));
        assert!(names.eq(self.named.clone()));
        self.look_at_changes(&versions);
        for key in ["00", "17", "39"] {
            for change in self.keyspace.history(key).unwrap().map(Result::unwrap) {
                let state = self.state(change.version);
                assert_eq!(state.get(key.as_bytes()), change.value.as_ref(), "{}", change.version);
                assert!(versions.contains(&change.version));
            }
        }
    }
}

impl Run {
    /// All changes that are kept, each key's newest first, lead from the oldest version to now.
    fn look_at_changes(&self, versions: &std::ops::Range<u64>) {
        let mut state = self.state(versions.end).clone();
        for change in self.keyspace.changes(..).unwrap().map(Result::unwrap) {
            assert!((versions.start + 1..versions.end).contains(&change.version));
            assert_eq!(state.get(&change.key), change.value.as_ref(), "{}", change.version);
            match self.state(change.version - 1).get(&change.key) {
                Some(before) => state.insert(change.key, before.clone()),
                None => state.remove(&change.key),
            };
        }
        assert_eq!(state, *self.state(versions.start));
    }
}

fn a_life(seed: u64, steps: u64) -> Run {
    let mut run = Run::new(seed, [60, 200, 1][seed as usize % 3]);
    (0..steps).for_each(|_| run.step());
    run.look_back();
    assert_sound(&run.db);
    run
}

#[test]
fn what_has_to_stay_readable_stays() {
    let mut counts = Counts::new("retention", "random lives");
    for seed in 0..9 * budget() {
        let mut run = a_life(seed, 500);
        let created = *run.states.keys().next().unwrap();
        counts.add("versions given up", oldest(&run.db) - created);
        counts.add("versions", run.db.version());
        let folder = MemoryDevice::new();
        back_up(&run.db, &folder).unwrap();
        run.device = restored(&folder);
        run.reopen();
        run.look_back();
        run.db.compact().unwrap();
        run.look_back();
        assert_sound(&run.db);
    }
    assert!(counts.get("versions given up") > 500, "{}", counts.get("versions given up"));
    counts.record().unwrap();
}

/// What the same lives would show.
#[test]
fn lives_would_show_what_is_given_up_wrongly() {
    for bug in [Bug::DroppedUnderPin, Bug::PastValuesKept, Bug::NamesNotPinned] {
        let is_found = |seed| catch_unwind(|| planted::with(bug, || a_life(seed, 500))).is_err();
        assert!((0..6).any(is_found), "{bug:?}");
    }
}

/// Space stays what it is, however much is written.
#[test]
fn space_is_used_again() {
    let (device, runtime) = (MemoryDevice::new(), Arc::new(SimRuntime::new(1)));
    runtime.set_unix_time(Duration::from_secs(1_000));
    let db = small(&device).runtime(Arc::clone(&runtime) as _).open().unwrap();
    let history = History::For(Duration::from_secs(60));
    let keyspace = db.keyspace("past", options(history).inline_bytes_max(150)).unwrap();
    let random = Random::new(7);
    let mut used = Vec::new();
    for round in 0..12_000_u64 {
        runtime.advance(Duration::from_millis(100));
        let key = format!("{:03}", random.below(100));
        keyspace.insert(key, random.bytes(random.within(&(50..=200)))).unwrap();
        if round % 2_000 == 1_999 {
            let space = db.stats().unwrap().space;
            used.push(space.data_file_bytes - space.free_bytes);
            // A minute is 600 commits.
            let version = keyspace.at_time(ago(&runtime, 60)).unwrap().version();
            assert!(db.version() - version >= 590, "{version}");
            assert!(db.version() - oldest(&db) < 2_000);
        }
    }
    let (first, last) = (used[1], used[5]);
    assert!(last < first + first / 2, "{used:?}");
    assert_sound(&db);
}

/// Values that have expired are left behind by splits, and go with what is given up.
#[test]
fn space_of_what_expires_is_used_again() {
    let (device, runtime) = (MemoryDevice::new(), Arc::new(SimRuntime::new(1)));
    runtime.set_unix_time(Duration::from_secs(1_000));
    let db = small(&device).runtime(Arc::clone(&runtime) as _).open().unwrap();
    let history = History::For(Duration::from_secs(60));
    let sessions = db.keyspace("past", options(history)).unwrap();
    let random = Random::new(7);
    let mut used = Vec::new();
    for round in 0..12_000_u64 {
        runtime.advance(Duration::from_millis(100));
        let (key, ttl) = (round.wrapping_mul(0x9e37_79b9_7f4a_7c15), Duration::from_secs(30));
        sessions.insert_with_ttl(key.to_be_bytes(), random.bytes(90), ttl).unwrap();
        if round % 2_000 == 1_999 {
            let space = db.stats().unwrap().space;
            used.push(space.data_file_bytes - space.free_bytes);
            let past = sessions.at_time(ago(&runtime, 60)).unwrap();
            assert_eq!(past.iter().unwrap().count(), 300, "half a minute's");
        }
    }
    let (first, last) = (used[1], used[5]);
    assert!(last < first * 2, "{used:?}");
    assert_sound(&db);
}

/// A history begins in a keyspace that is there, and is made longer and shorter.
#[test]
fn a_history_begins_and_changes() {
    let device = MemoryDevice::new();
    let db = small(&device).open().unwrap();
    let plain = KeyspaceOptions::default().memtable_bytes(Some(2 << 10));
    let keyspace = db.keyspace("past", plain.clone()).unwrap();
    let random = Random::new(3);
    let write = |keyspace: &Keyspace| {
        for _ in 0..400 {
            keyspace.insert([random.below(40) as u8], random.bytes(60)).unwrap();
        }
    };
    write(&keyspace);
    let before = db.version();
    keyspace.set_history(History::All).unwrap();
    let begun = db.version();
    assert!(refused(&keyspace.at(before - 1).unwrap_err()));
    let state = contents(&keyspace.at(begun).unwrap());
    write(&keyspace);
    drop((keyspace, db));
    let db = small(&device).open().unwrap();
    let keyspace = db.keyspace("past", plain.clone().history(History::All)).unwrap();
    assert_eq!(contents(&keyspace.at(begun).unwrap()), state);
    assert_eq!(oldest(&db), begun);
    keyspace.set_history(History::Newest(1)).unwrap();
    write(&keyspace);
    assert!(refused(&keyspace.at(begun).unwrap_err()));
    keyspace.set_history(History::All).unwrap();
    let kept = oldest(&db);
    write(&keyspace);
    assert_eq!(oldest(&db), kept);
    assert!(db.keyspace("past", plain.history(History::Newest(1))).is_err());
    assert_sound(&db);

    let refused = |options: KeyspaceOptions, history| {
        let keyspace = db.keyspace("refused", options).unwrap();
        let error = keyspace.set_history(history).unwrap_err().to_string();
        db.drop_keyspace("refused").unwrap();
        error
    };
    assert!(refused(plain_with_operator(), History::All).contains("no merge operator"));
    let lsm = KeyspaceOptions::default().index(esker::IndexKind::Lsm);
    assert!(refused(lsm, History::All).contains("kind fdtree"));
    assert!(refused(KeyspaceOptions::default(), History::Newest(0)).contains("1 version"));
    let never = KeyspaceOptions::default().history(History::All).history_share(1.0);
    assert!(refused(never, History::Newest(5)).contains("kept for ever"));
}

/// What is all from before the history is not split off: no version would be in the past index.
#[test]
fn nothing_from_before_the_history_becomes_past() {
    let device = MemoryDevice::new();
    let db = small(&device).open().unwrap();
    let plain = KeyspaceOptions::default().memtable_bytes(Some(2 << 10));
    let keyspace = db.keyspace("past", plain).unwrap();
    (0..100).for_each(|number: u8| keyspace.insert([number], [7; 30]).unwrap());
    db.compact().unwrap();
    (0..60).for_each(|number: u8| keyspace.remove([number]).unwrap());
    keyspace.set_history(History::All).unwrap();
    let begun = db.version();
    db.compact().unwrap();
    assert_eq!(contents(&keyspace.at(begun).unwrap()).len(), 40);
    let db = small(&copy(&device)).open().unwrap();
    let keyspace = db.open_keyspace("past").unwrap().unwrap();
    keyspace.erase([[3], [70]]).unwrap();
    assert_eq!(contents(&keyspace.at(begun).unwrap()).len(), 39);
    let mut round = 0_u8;
    while db.stats().unwrap().keyspaces.iter().all(|of| of.past_indexes.len() < 3) {
        round += 1;
        (0..100).for_each(|number: u8| keyspace.insert([number], [round; 30]).unwrap());
    }
    assert_eq!(contents(&keyspace.at(begun).unwrap()).len(), 39);
    drop((keyspace, db.clone().close()));
    assert_sound(&small(&copy(&device)).open().unwrap());
}

fn plain_with_operator() -> KeyspaceOptions {
    KeyspaceOptions::default().merge(esker::Merge::Add)
}

/// The time on the store's clock, this number of seconds ago.
fn ago(runtime: &SimRuntime, seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + runtime.unix_time() - Duration::from_secs(seconds)
}

/// Versions are held and let go while others write, and merges give up what nobody holds.
#[test]
fn versions_are_held_beside_writers() {
    let device = MemoryDevice::new();
    let db = threaded(&device).open().unwrap();
    let keyspace = db.keyspace("past", options(History::Newest(50))).unwrap();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..6_000_u64 {
                let mut batch = db.batch();
                for number in 0..4_u8 {
                    batch.insert(&keyspace, [number], round.to_be_bytes());
                }
                batch.commit().unwrap();
            }
            is_done.store(true, Ordering::Relaxed);
        });
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    let Ok(past) = keyspace.at(db.version().saturating_sub(40)) else { continue };
                    for _ in 0..5 {
                        let values = contents(&past).into_values().collect::<Vec<_>>();
                        assert!(values.windows(2).all(|pair| pair[0] == pair[1]));
                        assert!(values.len() == 4 || values.is_empty(), "{}", values.len());
                    }
                }
            });
        }
    });
    assert!(oldest(&db) > 1_000);
    assert_sound(&db);
}

/// Several threads find the same past indexes to give up, and each record takes its time.
#[test]
fn what_is_given_up_is_given_up_once() {
    let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    let delays = Delays { sync: Duration::from_micros(300), ..Delays::default() };
    let device: Arc<dyn Device> = Arc::new(DelayDevice::new(memory, delays));
    let db = Db::builder_on(device).memory_budget(512 << 10).log_segment_bytes(16 << 10);
    let db = db.open().unwrap();
    let options = options(History::Newest(1)).history_share(0.2);
    let keyspace = db.keyspace("past", options.inline_bytes_max(60)).unwrap();
    let plain = db.keyspace("plain", KeyspaceOptions::default().memtable_bytes(Some(2 << 10)));
    let plain = plain.unwrap();
    let is_done = AtomicBool::new(false);
    let write = |thread: u8| {
        for round in 0..1_500_u64 {
            let value = [round as u8; 90];
            let value = &value[..10 + (round as usize * 7) % 80];
            keyspace.insert([thread, round as u8 % 40], value).unwrap();
            plain.insert([thread, round as u8 % 40], value).unwrap();
        }
    };
    std::thread::scope(|scope| {
        let writers = [0, 1].map(|thread| scope.spawn(move || write(thread)));
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    db.flush().unwrap();
                }
            });
        }
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                assert_sound(&db);
                let changes = keyspace.history([0, 7]).unwrap();
                assert!(changes.map(Result::unwrap).count() < 3_000);
            }
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        is_done.store(true, Ordering::Relaxed);
    });
    assert_eq!(plain.iter().unwrap().map(Result::unwrap).count(), 80);
    assert!(oldest(&db) > 1_000);
    assert_sound(&db);
}

#[test]
fn what_is_no_retention_is_refused() {
    let device = MemoryDevice::new();
    let db = small(&device).open().unwrap();
    let error = |history| db.keyspace("past", options(history)).unwrap_err().to_string();
    for nothing in [History::Newest(0), History::For(Duration::from_micros(999))] {
        assert!(error(nothing).contains("1 ms, or for 1 version"), "{nothing:?}");
    }
    let never = options(History::Newest(10)).history_share(1.0);
    let never = db.keyspace("past", never).unwrap_err().to_string();
    assert!(never.contains("0.2 to 0.8"), "{never}");
    db.keyspace("past", options(History::Newest(10))).unwrap();
    db.keyspace("past", options(History::Newest(10))).unwrap();
    assert!(error(History::All).contains("was created with history Newest(10)"));
    assert!(error(History::Newest(9)).contains("Newest(10)"));
    drop(db);
    let db = small(&device).open().unwrap();
    db.open_keyspace("past").unwrap().unwrap();
    let again = db.keyspace("past", options(History::For(Duration::from_secs(1))));
    assert!(again.unwrap_err().to_string().contains("Newest(10)"));
}

/// Past indexes are given up, all at once, by one record, without a read of what they hold.
#[test]
fn giving_versions_up_reads_nothing() {
    let counting = Arc::new(CountingDevice::new(Arc::new(MemoryDevice::new())));
    let builder = Db::builder_on(Arc::clone(&counting) as _).memory_budget(256 << 10);
    // At a fixed time: how many moments there are to be kept must not depend on the machine.
    let builder = builder.runtime(Arc::new(SimRuntime::new(4)));
    let db = builder.log_segment_bytes(16 << 10).inline_merges(0).open().unwrap();
    let keyspace = db.keyspace("past", options(History::Newest(10))).unwrap();
    db.pin("first", db.version()).unwrap();
    let random = Random::new(4);
    for round in 0..4_000_u64 {
        keyspace.insert([random.below(60) as u8], round.to_string().repeat(9)).unwrap();
    }
    db.flush().unwrap();
    let past_indexes = |db: &Db| db.stats().unwrap().keyspaces.last().unwrap().past_indexes.len();
    assert!(past_indexes(&db) > 8, "{}", past_indexes(&db));
    db.unpin("first").unwrap();
    keyspace.insert([0], "").unwrap();
    let before = counting.counts();
    db.flush().unwrap();
    let made = counting.counts() - before;
    assert_eq!(past_indexes(&db), 0);
    // The flush's record and this one, each written twice. A lookup of a version's time finds its
    // block in the cache.
    assert_eq!(made[Purpose::Manifest].writes, 2 * 2, "{made:?}");
    assert_eq!(made.total().reads, 0, "{made:?}");
}
