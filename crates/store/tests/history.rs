//! Keyspaces with history against a map for every version: point reads, scans and the changes of
//! every key, over flushes, merges, reopening and killed processes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::catch_unwind;
use std::sync::Arc;

use common::{Model, assert_sound, back_up, copy, restored, small, threaded};
use esker::{Compression, Db, History, KeyChanges, Keyspace, KeyspaceOptions, KeyspaceStats};
use esker_device::memory::MemoryDevice;
use esker_harness::counts::{Counts, budget};
use esker_harness::random::Random;
use esker_substrate::planted::{self, Bug};

fn options() -> KeyspaceOptions {
    KeyspaceOptions::default().memtable_bytes(Some(2 << 10)).history(History::All)
}

fn with_history(db: &Db) -> Keyspace {
    db.keyspace("past", options()).unwrap()
}

fn key(number: u64) -> Vec<u8> {
    format!("{:03}{}", number * 7 % 100, "-".repeat(number as usize % 5)).into_bytes()
}

/// What the keyspace held at every version, by the number of the commit.
#[derive(Default)]
struct Versions {
    states: BTreeMap<u64, Model>,
}

impl Versions {
    fn newest(&self) -> Model {
        self.states.values().next_back().cloned().unwrap_or_default()
    }

    /// The state at a number: that of the last commit up to it.
    fn at(&self, number: u64) -> &Model {
        self.states.range(..=number).next_back().unwrap().1
    }

    /// All keys that there were, in order.
    fn keys(&self) -> Vec<Vec<u8>> {
        let keys: BTreeSet<_> = self.states.values().flat_map(Model::keys).collect();
        keys.into_iter().cloned().collect()
    }

    /// The changes of a key, newest first.
    fn changes(&self, key: &[u8], writes: &Writes) -> Vec<(u64, Option<Vec<u8>>)> {
        let mut changes = Vec::new();
        let mut before = None;
        for (version, state) in &self.states {
            let now = state.get(key);
            let is_written = writes.get(version).is_some_and(|keys| keys.contains(&key.to_vec()));
            if (now.is_some() && is_written) || now.is_some() != before.is_some() {
                changes.push((*version, now.cloned()));
            }
            before = now;
        }
        changes.reverse();
        changes
    }
}

/// The keys that each commit put.
type Writes = BTreeMap<u64, Vec<Vec<u8>>>;

struct Run {
    device: MemoryDevice,
    db: Db,
    keyspace: Keyspace,
    other: Keyspace,
    versions: Versions,
    writes: Writes,
    random: Random,
    merge_steps: u32,
    /// So long that copies of what is live take several steps.
    has_long_values: bool,
}

impl Run {
    fn new(seed: u64) -> Self {
        let (device, random) = (MemoryDevice::new(), Random::new(seed));
        let merge_steps = [0, 1, 3][seed as usize % 3];
        let db = small(&device).inline_merges(merge_steps).open().unwrap();
        let codec = Compression::ALL[seed as usize % 3];
        let inline_bytes_max = if seed.is_multiple_of(4) { 40 } else { 1 << 10 };
        // Numbers of other commits come before the first one.
        let other = db.keyspace("other", KeyspaceOptions::default()).unwrap();
        other.insert("a", "b").unwrap();
        let share = [0.5, 0.2, 0.8, 0.35, 1.0][seed as usize % 5];
        let options = options().compression(codec).inline_bytes_max(inline_bytes_max);
        let options = options.history_share(share);
        let keyspace = db.keyspace("past", options).unwrap();
        let mut versions = Versions::default();
        versions.states.insert(db.version(), Model::new());
        let writes = Writes::new();
        let has_long_values = !seed.is_multiple_of(3);
        Self { device, db, keyspace, other, versions, writes, random, merge_steps, has_long_values }
    }

    fn value(&self) -> Vec<u8> {
        let longest = if self.has_long_values { 400 } else { 90 };
        self.random.bytes(self.random.within(&(0..=longest)))
    }

    /// One commit of some puts, removals and removed ranges, in one of three ways.
    fn commit(&mut self) {
        let mut state = self.versions.newest();
        let mut put = BTreeMap::new();
        let calls = 1 + self.random.below(if self.random.percent(5) { 60 } else { 4 });
        let mut batch = self.db.batch();
        let mut transaction = self.db.transaction().unwrap();
        let by_batch = self.random.percent(60);
        for _ in 0..calls {
            let (key, value) = (key(self.random.below(60)), self.value());
            let end = super_key(&key, self.random.below(12));
            match self.random.below(20) {
                0..13 => {
                    batch.insert(&self.keyspace, &key, &value);
                    transaction.insert(&self.keyspace, &key, &value).unwrap();
                    state.insert(key.clone(), value);
                    put.insert(key, ());
                }
                13..18 => {
                    batch.remove(&self.keyspace, &key);
                    transaction.remove(&self.keyspace, &key).unwrap();
                    state.remove(&key);
                    put.remove(&key);
                }
                _ => {
                    batch.remove_range(&self.keyspace, key.as_slice()..end.as_slice());
                    let range = key.as_slice()..end.as_slice();
                    transaction.remove_range(&self.keyspace, range).unwrap();
                    state
                        .retain(|there, _| !(key.as_slice()..end.as_slice()).contains(&&there[..]));
                    put.retain(|there, ()| !(key.as_slice()..end.as_slice()).contains(&&there[..]));
                }
            }
        }
        // Other keyspaces take part in some commits.
        if self.random.percent(20) {
            batch.insert(&self.other, "a", "c");
            transaction.insert(&self.other, "a", "c").unwrap();
        }
        if by_batch { batch.commit() } else { transaction.commit() }.unwrap();
        // Without a write there is no new version.
        let version = self.db.version();
        self.versions.states.insert(version, state);
        self.writes.entry(version).or_insert_with(|| put.into_keys().collect());
    }

    fn reopen(&mut self, closes: bool) {
        if closes {
            self.db.clone().close().unwrap();
        } else {
            // What a process leaves that is killed.
            self.device = copy(&self.device);
        }
        self.db = small(&self.device).inline_merges(self.merge_steps).open().unwrap();
        self.keyspace = self.db.open_keyspace("past").unwrap().unwrap();
        self.other = self.db.open_keyspace("other").unwrap().unwrap();
        assert_eq!(self.db.version(), *self.versions.states.keys().next_back().unwrap());
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..90 => {
                self.commit();
                if is_merging(&self.db) {
                    self.look_back(1);
                    self.look_at_changes();
                }
            }
            90..93 => self.db.flush().unwrap(),
            93 => self.db.compact().unwrap(),
            94 => self.reopen(true),
            95 => self.reopen(false),
            _ => self.look_back(3),
        }
    }

    /// Compares some versions, whole.
    fn look_back(&self, count: u64) {
        let (oldest, newest) = self.bounds();
        for _ in 0..count {
            compare(
                &self.keyspace,
                &self.versions,
                oldest + self.random.below(newest - oldest + 1),
            );
        }
    }

    fn bounds(&self) -> (u64, u64) {
        let mut versions = self.versions.states.keys();
        let oldest = *versions.next().unwrap();
        (oldest, versions.next_back().copied().unwrap_or(oldest))
    }

    /// Compares every number there is, and the changes of every key. How many questions that were.
    fn look_back_at_all(&self) -> u64 {
        let (oldest, newest) = self.bounds();
        for number in oldest..=newest {
            compare(&self.keyspace, &self.versions, number);
        }
        for number in 0..70 {
            let key = key(number);
            let changes = self.keyspace.history(&key).unwrap().map(Result::unwrap);
            let changes: Vec<_> = changes.map(|change| (change.version, change.value)).collect();
            assert_eq!(changes, self.versions.changes(&key, &self.writes), "{key:?}");
            let since = (oldest + newest) / 2;
            let some = self.keyspace.history(&key).unwrap().since(since).count();
            assert_eq!(some, changes.iter().filter(|change| change.0 >= since).count());
            let past = self.keyspace.at(since).unwrap().history(&key).unwrap().count();
            assert_eq!(past, changes.iter().filter(|change| change.0 <= since).count());
        }
        for _ in 0..20 {
            self.look_at_changes();
        }
        newest - oldest
    }

    /// Compares what changed between two versions: every change, and the differences.
    fn look_at_changes(&self) {
        let (oldest, newest) = self.bounds();
        let since = oldest + self.random.below(newest - oldest + 1);
        let up_to = since + self.random.below(newest - since + 1);
        let (first, prefix) =
            (key(self.random.below(60)), key(self.random.below(60))[..1].to_vec());
        let mut expected = Vec::new();
        for key in self.versions.keys() {
            let changes = self.versions.changes(&key, &self.writes).into_iter();
            let within = changes.filter(|(version, _)| (since + 1..=up_to).contains(version));
            expected.extend(within.map(|(version, value)| (key.clone(), version, value)));
        }
        let found = |changes: KeyChanges| {
            let changes = changes.map(Result::unwrap);
            changes.map(|change| (change.key, change.version, change.value)).collect::<Vec<_>>()
        };
        let changes = || self.keyspace.changes(since + 1..=up_to).unwrap();
        assert_eq!(found(changes()), expected, "{since}..={up_to}");
        let some = found(changes().range(first.as_slice()..));
        assert!(some.iter().eq(expected.iter().filter(|change| change.0 >= first)));
        let some = found(changes().prefix(&prefix));
        assert!(some.iter().eq(expected.iter().filter(|change| change.0.starts_with(&prefix))));

        let (before, after) = (self.versions.at(since), self.versions.at(up_to));
        let differs = |key: &Vec<u8>| before.get(key) != after.get(key);
        let keys = self.versions.keys().into_iter().filter(differs);
        let expected: Vec<_> =
            keys.map(|key| (before.get(&key).cloned(), after.get(&key).cloned(), key)).collect();
        let diff = self.keyspace.diff(since, up_to).unwrap().map(Result::unwrap);
        let diff: Vec<_> = diff.map(|found| (found.before, found.after, found.key)).collect();
        assert_eq!(diff, expected, "{since}, {up_to}");
        let back = self.keyspace.diff(up_to, since).unwrap().map(Result::unwrap);
        let back: Vec<_> = back.map(|found| (found.after, found.before, found.key)).collect();
        assert_eq!(back, expected, "{up_to}, {since}");
    }
}

fn is_merging(db: &Db) -> bool {
    db.stats().unwrap().keyspaces.iter().any(|keyspace| keyspace.merge.is_some())
}

fn past_indexes(db: &Db) -> u64 {
    let stats = db.stats().unwrap();
    let past = |keyspace: &KeyspaceStats| keyspace.past_indexes.len() as u64;
    stats.keyspaces.iter().map(past).sum()
}

/// A key behind `key`.
fn super_key(key: &[u8], distance: u64) -> Vec<u8> {
    let number: u64 = std::str::from_utf8(&key[..3]).unwrap().parse().unwrap();
    format!("{:03}", number + distance).into_bytes()
}

fn compare(keyspace: &Keyspace, versions: &Versions, number: u64) {
    let (past, expected) = (keyspace.at(number).unwrap(), versions.at(number));
    assert_eq!(past.version(), number);
    let found: Model = past.iter().unwrap().map(Result::unwrap).collect();
    assert_eq!(found, *expected, "version {number}");
    let backwards = past.iter().unwrap().rev().map(Result::unwrap);
    assert!(backwards.eq(expected.clone().into_iter().rev()), "version {number}, backwards");
    let key = key(number);
    assert_eq!(past.get(&key).unwrap().as_ref(), expected.get(&key), "version {number}, {key:?}");
    assert_eq!(past.contains(&key).unwrap(), expected.contains_key(&key));
    let keys: Vec<_> = (0..8).map(|n| self::key(number + n)).collect();
    let together = past.multi_get(&keys).unwrap();
    assert!(together.iter().map(Option::as_ref).eq(keys.iter().map(|key| expected.get(key))));
    assert_eq!(past.first().unwrap(), expected.clone().into_iter().next());
    assert_eq!(past.last().unwrap(), expected.clone().into_iter().next_back());
}

#[test]
fn every_version_stays_as_it_was() {
    let mut counts = Counts::new("history", "every version");
    for seed in 0..12 * budget() {
        let mut run = Run::new(seed);
        (0..150).for_each(|_| run.step());
        counts.add("versions", run.look_back_at_all());
        counts.add("past indexes", past_indexes(&run.db));
        assert_sound(&run.db);
        run.db.compact().unwrap();
        counts.add("versions", run.look_back_at_all());
        run.reopen(seed.is_multiple_of(2));
        counts.add("versions", run.look_back_at_all());
        assert_sound(&run.db);
        let folder = MemoryDevice::new();
        back_up(&run.db, &folder).unwrap();
        run.device = restored(&folder);
        run.reopen(false);
        counts.add("versions", run.look_back_at_all());
    }
    assert!(counts.get("versions") > 10_000 && counts.get("past indexes") > 50);
    counts.record().unwrap();
}

/// What the same runs would show of bugs in splits.
#[test]
fn every_version_would_show_what_splits_get_wrong() {
    for bug in [Bug::SplitReadsNewSide, Bug::SplitResetsNumbers, Bug::ChangesOfNow] {
        let is_found = |seed: u64| {
            let life = || {
                let mut run = Run::new(seed);
                (0..150).for_each(|_| run.step());
                run.look_back_at_all()
            };
            catch_unwind(|| planted::with(bug, life)).is_err()
        };
        assert!((0..12).any(is_found), "{bug:?}");
    }
}

/// Whatever merge is under way, or due: a gathered level, a split.
#[test]
fn compaction_merges_everything() {
    let device = MemoryDevice::new();
    let db = small(&device).inline_merges(1).open().unwrap();
    let keyspace = db.keyspace("past", options().memtable_bytes(Some(4 << 10))).unwrap();
    let random = Random::new(1);
    let stats = |db: &Db| {
        let stats = db.stats().unwrap();
        stats.keyspaces.into_iter().find(|keyspace| keyspace.name == "past").unwrap()
    };
    for round in 0..3_000 {
        keyspace.insert(format!("{:04}", random.below(400)), random.bytes(60)).unwrap();
        if round % 3 == 0 && stats(&db).memtable_entries > 0 {
            let again = small(&copy(&device)).inline_merges(1).open().unwrap();
            again.compact().unwrap();
            let compact = stats(&again);
            assert_eq!((compact.sorted_runs, compact.memtable_entries), (0, 0), "{round}");
        }
    }
}

/// Inside a batch there is nothing: every number of its operations but the last shows the state
/// before it, now and after replay.
#[test]
fn a_batch_is_one_version() {
    let device = MemoryDevice::new();
    let db = small(&device).open().unwrap();
    let keyspace = with_history(&db);
    keyspace.insert("050", "before").unwrap();
    let before = db.version();
    let mut batch = db.batch();
    batch.remove_range(&keyspace, "050".."060");
    for number in 0..100 {
        batch.insert(&keyspace, key(number), "within");
    }
    let version = batch.commit().unwrap();
    assert!(version >= before + 60);
    let look = |keyspace: &Keyspace| {
        for number in before..version {
            let past = keyspace.at(number).unwrap();
            assert_eq!(past.iter().unwrap().count(), 1, "{number}");
            assert_eq!(past.get("050").unwrap().as_deref(), Some(&b"before"[..]));
        }
        let past = keyspace.at(version).unwrap();
        assert!(past.iter().unwrap().all(|entry| entry.unwrap().1 == b"within"));
    };
    look(&keyspace);
    let killed = copy(&device);
    let again = small(&killed).open().unwrap();
    look(&again.open_keyspace("past").unwrap().unwrap());
    db.compact().unwrap();
    look(&keyspace);
}

/// A batch that is larger than the memory of the store that opens it is replayed whole.
#[test]
fn a_large_batch_is_replayed_as_one_version() {
    let device = MemoryDevice::new();
    let db = threaded(&device).memory_budget(16 << 20).open().unwrap();
    let keyspace = db.keyspace("past", KeyspaceOptions::default().history(History::All)).unwrap();
    let mut batch = db.batch();
    for number in 0..4000_u32 {
        batch.insert(&keyspace, number.to_be_bytes(), vec![7; 300]);
    }
    let version = batch.commit().unwrap();
    let killed = copy(&device);
    for _ in 0..2 {
        let again = small(&copy(&killed)).open().unwrap();
        let keyspace = again.open_keyspace("past").unwrap().unwrap();
        assert_eq!(keyspace.at(version - 1).unwrap().iter().unwrap().count(), 0);
        assert_eq!(keyspace.at(version).unwrap().iter().unwrap().count(), 4000);
        assert_eq!(keyspace.iter().unwrap().count(), 4000);
        assert_sound(&again);
    }
}

/// Deletes and versions of a key, many times: nothing is merged in vain, for ever.
#[test]
fn compaction_ends_although_nothing_may_go() {
    let device = MemoryDevice::new();
    let db = small(&device).open().unwrap();
    let keyspace = with_history(&db);
    for round in 0..40 {
        for number in 0..30 {
            keyspace.insert(key(number), [round; 40]).unwrap();
            keyspace.remove(key(number)).unwrap();
        }
        keyspace.remove_range("0".."9").unwrap();
    }
    db.compact().unwrap();
    let merges = || {
        let keyspaces = db.stats().unwrap().keyspaces;
        keyspaces.iter().map(|keyspace| keyspace.merges).sum::<u64>()
    };
    let before = merges();
    db.compact().unwrap();
    assert_eq!(merges(), before, "there is nothing to merge");
    assert_eq!(keyspace.iter().unwrap().count(), 0);
    let changes = keyspace.history(key(3)).unwrap().map(Result::unwrap);
    let changes: Vec<_> = changes.map(|change| change.value.is_some()).collect();
    assert_eq!(changes, [false, true].repeat(40));
}

/// Thousands of range tombstones become tombstones of keys: none is refused.
#[test]
fn range_tombstones_are_retired_and_stay_in_the_past() {
    let device = MemoryDevice::new();
    let db = small(&device).open().unwrap();
    let keyspace = with_history(&db);
    let mut versions = Vec::new();
    for round in 0..5000_u64 {
        let number = round % 90;
        keyspace.insert(format!("{number:03}"), round.to_be_bytes()).unwrap();
        versions.push(db.version());
        keyspace.remove_range(format!("{number:03}")..format!("{:03}", number + 1)).unwrap();
    }
    assert_eq!(keyspace.iter().unwrap().count(), 0);
    for (round, version) in versions.iter().enumerate().step_by(7) {
        let past = keyspace.at(*version).unwrap();
        let entries: Vec<_> = past.iter().unwrap().map(Result::unwrap).collect();
        assert_eq!(entries.len(), 1, "round {round}");
        assert_eq!(entries[0].1, (round as u64).to_be_bytes());
    }
    assert_eq!(keyspace.history("007").unwrap().count(), 2 * 5000_usize.div_ceil(90));
    assert_sound(&db);
}

/// Each version is found whole.
#[test]
fn readers_of_the_past_run_concurrently_with_writers_and_merges() {
    let device = MemoryDevice::new();
    let db = threaded(&device).open().unwrap();
    let keyspace = with_history(&db);
    let write = |writer: u64| {
        for round in 0..200_u64 {
            let mut batch = db.batch();
            for number in 0..10 {
                batch.insert(&keyspace, [b'a' + writer as u8, number], round.to_be_bytes());
            }
            let version = batch.commit().unwrap();
            let past = keyspace.at(version).unwrap();
            let own = past.prefix([b'a' + writer as u8]).unwrap().map(Result::unwrap);
            assert!(own.map(|(_, value)| value).eq((0..10).map(|_| round.to_be_bytes().to_vec())));
        }
    };
    let read = |seed: u64| {
        let random = Random::new(seed);
        let oldest = 1 + db.version();
        for _ in 0..300 {
            let version = oldest + random.below(db.version() - oldest.min(db.version()) + 1);
            let Ok(past) = keyspace.at(version) else { continue };
            for writer in *b"abc" {
                let entries = past.prefix([writer]).unwrap().map(Result::unwrap);
                let values: Vec<_> = entries.map(|(_, value)| value).collect();
                assert!(values.len() == 10 || values.is_empty(), "{version}: {}", values.len());
                assert!(values.windows(2).all(|pair| pair[0] == pair[1]), "{version}");
            }
        }
    };
    std::thread::scope(|scope| {
        for n in 0..3 {
            let write = &write;
            scope.spawn(move || write(n));
        }
        for n in 0..2 {
            let read = &read;
            scope.spawn(move || read(n));
        }
    });
    assert_eq!(keyspace.history([b'b', 3]).unwrap().count(), 200);
    assert_sound(&db);
}

/// Of several tombstones in a row one is kept, and range tombstones are retired although a snapshot
/// is held.
#[test]
fn removals_of_what_is_removed_take_no_space() {
    let device = MemoryDevice::new();
    let db = small(&device).open().unwrap();
    let keyspace = with_history(&db);
    for number in 0..100 {
        keyspace.insert(key(number), "value").unwrap();
    }
    let full = db.version();
    let snapshot = db.snapshot().unwrap();
    for number in 0..6000 {
        keyspace.remove_range::<&[u8]>(..).unwrap();
        keyspace.remove(key(number % 100)).unwrap();
    }
    db.compact().unwrap();
    let stats = db.stats().unwrap().keyspaces;
    let entries = stats.iter().find(|stats| stats.name == "past").unwrap().entries_estimate;
    assert!(entries <= 200, "{entries}");
    assert_eq!(snapshot.iter(&keyspace).unwrap().count(), 100);
    assert_eq!(keyspace.at(full).unwrap().iter().unwrap().count(), 100);
    assert_eq!(keyspace.at(full + 1).unwrap().iter().unwrap().count(), 0);
    let changes: Vec<_> = keyspace.history(key(7)).unwrap().map(Result::unwrap).collect();
    assert_eq!(changes.len(), 2);
    assert_eq!(changes[0].version, full + 1);
    assert_sound(&db);
}

/// Ranges and the keys that begin them, in the memtable of a merge that a kill interrupts: every
/// version is there when it is resumed, and it can be.
#[test]
fn a_merge_that_is_resumed_finds_what_was_removed_and_written() {
    let (mut kills, device) = (0, MemoryDevice::new());
    let open = |device: &MemoryDevice| {
        Db::builder_on(Arc::new(device.clone())).memory_budget(8 << 20).inline_merges(1).open()
    };
    let db = open(&device).unwrap();
    let options = KeyspaceOptions::default().memtable_bytes(Some(32 << 10));
    let keyspace = db.keyspace("past", options.history(History::All)).unwrap();
    for number in 0..1500_u32 {
        let key = (number * 7 % 1501 * 2 + 1).to_be_bytes();
        let begin = (number * 7 % 1501 * 2 + number % 2).to_be_bytes();
        let mut batch = db.batch();
        batch.remove_range(&keyspace, &begin[..]..=&key[..]);
        // Two in three begin with the key that is written, or one that is not.
        if number % 3 > 0 {
            batch.insert(&keyspace, key, [7; 40]);
        }
        let version = batch.commit().unwrap();
        let stats = db.stats().unwrap().keyspaces;
        if kills < 80 && stats.iter().any(|stats| stats.merge.is_some()) {
            kills += 1;
            let killed = open(&copy(&device)).unwrap();
            let found = killed.open_keyspace("past").unwrap().unwrap();
            let expected: Model = keyspace.iter().unwrap().map(Result::unwrap).collect();
            for compacts in [false, true] {
                if compacts {
                    killed.compact().unwrap();
                }
                let past = found.at(version).unwrap();
                assert!(past.iter().unwrap().map(Result::unwrap).eq(expected.clone()), "{number}");
                assert_sound(&killed);
            }
        }
    }
    assert!(kills > 20, "{kills}");
}
