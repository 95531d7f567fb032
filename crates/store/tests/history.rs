//! Keyspaces with history against a map for every version: point reads, scans and the changes of
//! every key, over flushes, merges, reopening and killed processes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::catch_unwind;
use std::sync::Arc;
use std::time::Duration;

use common::{Model, assert_sound, back_up, copy, restored, small};
use esker::{
    Compression, Db, History, KeyChanges, Keyspace, KeyspaceOptions, KeyspaceStats, SimRuntime,
};
use esker_device::memory::MemoryDevice;
use esker_harness::counts::{Counts, budget};
use esker_harness::random::Random;
use esker_substrate::planted::{self, Bug};
use esker_substrate::runtime::Runtime;

/// Different keys.
const KEYS: u64 = 60;

fn options() -> KeyspaceOptions {
    KeyspaceOptions::default().memtable_bytes(Some(2 << 10)).history(History::All)
}

fn key(number: u64) -> Vec<u8> {
    format!("{:03}{}", number * 7 % 100, "-".repeat(number as usize % 5)).into_bytes()
}

/// What the keyspace held at every version, by the number of the commit.
#[derive(Default)]
struct Versions {
    states: BTreeMap<u64, Model>,
    /// The same with the values that had expired.
    with_expired: BTreeMap<u64, Model>,
    /// When the values of the newest state expire, in milliseconds.
    expiries: BTreeMap<Vec<u8>, u64>,
    /// Removals of values that had expired.
    of_expired: BTreeSet<(u64, Vec<u8>)>,
}

impl Versions {
    fn newest(&self) -> Model {
        self.with_expired.values().next_back().cloned().unwrap_or_default()
    }

    /// The keys whose values have expired by `now`.
    fn expired(&self, now: u64) -> Vec<Vec<u8>> {
        let expired = self.expiries.iter().filter(|(_, until)| **until <= now);
        expired.map(|(key, _)| key.clone()).collect()
    }

    /// A commit was made at millisecond `now`, when `expired` had expired.
    fn push(&mut self, version: u64, state: Model, now: u64, expired: Vec<Vec<u8>>) {
        let removed = expired.into_iter().filter(|key| !state.contains_key(key));
        self.of_expired.extend(removed.map(|key| (version, key)));
        self.expiries.retain(|key, _| state.contains_key(key));
        let lives = |key: &Vec<u8>| self.expiries.get(key).is_none_or(|until| *until > now);
        let living = state.iter().filter(|(key, _)| lives(key));
        let living = living.map(|(key, value)| (key.clone(), value.clone())).collect();
        self.states.insert(version, living);
        self.with_expired.insert(version, state);
    }

    /// The state at a number: that of the last commit up to it.
    fn at(&self, number: u64) -> &Model {
        self.states.range(..=number).next_back().unwrap().1
    }

    /// All keys that there were, in order.
    fn keys(&self) -> Vec<Vec<u8>> {
        let keys: BTreeSet<_> = self.with_expired.values().flat_map(Model::keys).collect();
        keys.into_iter().cloned().collect()
    }

    /// The changes of a key, newest first.
    fn changes(&self, key: &[u8], writes: &Writes) -> Vec<(u64, Option<Vec<u8>>)> {
        let mut changes = Vec::new();
        let mut states = self.with_expired.iter();
        let mut before = states.next().and_then(|(_, state)| state.get(key));
        for (version, state) in states {
            let now = state.get(key);
            let is_written = writes.get(version).is_some_and(|keys| keys.contains(&key.to_vec()));
            let is_of_expired = self.of_expired.contains(&(*version, key.to_vec()));
            let is_change = now.is_some() != before.is_some() && !is_of_expired;
            if (now.is_some() && is_written) || is_change {
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
    /// So long that copies of what is live have several publish points.
    has_long_values: bool,
    clock: Arc<SimRuntime>,
    has_expiries: bool,
}

impl Run {
    fn new(seed: u64) -> Self {
        let (device, random) = (MemoryDevice::new(), Random::new(seed));
        let merge_steps = [0, 1, 3][seed as usize % 3];
        let clock = Arc::new(SimRuntime::new(1));
        clock.set_unix_time(Duration::from_secs(1));
        let builder = small(&device).inline_merges(merge_steps);
        let db = builder.runtime(Arc::clone(&clock) as _).open().unwrap();
        let codec = Compression::ALL[seed as usize % 3];
        let inline_bytes_max = if seed.is_multiple_of(4) { 40 } else { 1 << 10 };
        // Numbers of other commits come before the first one.
        let other = db.keyspace("other", KeyspaceOptions::default()).unwrap();
        other.insert("a", "b").unwrap();
        let share = [0.5, 0.2, 0.8, 0.35, 1.0][seed as usize % 5];
        let begins_later = seed % 4 == 3;
        let options = match begins_later {
            true => KeyspaceOptions::default().memtable_bytes(Some(2 << 10)),
            false => options().history_share(share),
        };
        let options = options.compression(codec).inline_bytes_max(inline_bytes_max);
        let keyspace = db.keyspace("past", options).unwrap();
        let mut run = Self {
            device,
            db,
            keyspace,
            other,
            versions: Versions::default(),
            writes: Writes::new(),
            random,
            merge_steps,
            has_long_values: !seed.is_multiple_of(3),
            clock,
            has_expiries: seed % 3 != 1,
        };
        run.versions.push(run.db.version(), Model::new(), 0, Vec::new());
        if begins_later {
            run.begin_later();
        }
        run
    }

    /// Writes without history, and begins one then.
    fn begin_later(&mut self) {
        for _ in 0..self.random.below(KEYS) {
            self.commit();
        }
        self.keyspace.set_history(History::All).unwrap();
        let state = self.versions.newest();
        self.versions.states.clear();
        self.versions.with_expired.clear();
        self.writes.clear();
        self.versions.push(self.db.version(), state, self.now(), Vec::new());
    }

    /// Milliseconds.
    fn now(&self) -> u64 {
        self.clock.unix_time().as_millis() as u64
    }

    fn value(&self) -> Vec<u8> {
        let longest = if self.has_long_values { 900 } else { 90 };
        self.random.bytes(self.random.within(&(0..=longest)))
    }

    /// One commit of some puts, removals and removed ranges, in one of three ways.
    fn commit(&mut self) {
        self.clock.advance(Duration::from_millis(self.random.below(4)));
        let mut state = self.versions.newest();
        let expired = self.versions.expired(self.now());
        let mut put = BTreeMap::new();
        let calls = 1 + self.random.below(if self.random.percent(5) { 60 } else { 4 });
        let mut batch = self.db.batch();
        let mut transaction = self.db.transaction().unwrap();
        let by_batch = self.random.percent(60);
        for _ in 0..calls {
            let (key, value) = (key(self.random.below(KEYS)), self.value());
            let end = super_key(&key, self.random.below(12));
            match self.random.below(20) {
                0..13 => {
                    self.versions.expiries.remove(&key);
                    if self.has_expiries && self.random.percent(30) {
                        let ttl = Duration::from_millis(1 + self.random.below(150));
                        let until = self.now() + ttl.as_millis() as u64;
                        self.versions.expiries.insert(key.clone(), until);
                        batch.insert_with_ttl(&self.keyspace, &key, &value, ttl);
                        transaction.insert_with_ttl(&self.keyspace, &key, &value, ttl).unwrap();
                    } else {
                        batch.insert(&self.keyspace, &key, &value);
                        transaction.insert(&self.keyspace, &key, &value).unwrap();
                    }
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
        self.versions.push(version, state, self.now(), expired);
        self.writes.entry(version).or_insert_with(|| put.into_keys().collect());
    }

    /// Erases some keys, where that can be.
    fn erase(&mut self) {
        let keys = [key(self.random.below(KEYS)), key(self.random.below(KEYS))];
        let expired = self.versions.expired(self.now());
        if let Err(error) = self.keyspace.erase(&keys) {
            assert!(error.to_string().contains("history_share of 1.0"), "{error}");
            return;
        }
        let states = self.versions.states.values_mut();
        for state in states.chain(self.versions.with_expired.values_mut()) {
            state.retain(|key, _| !keys.contains(key));
        }
        self.writes.values_mut().for_each(|written| written.retain(|key| !keys.contains(key)));
        self.versions.of_expired.retain(|(_, key)| !keys.contains(key));
        let (version, state) = (self.db.version(), self.versions.newest());
        if !self.versions.states.contains_key(&version) {
            self.versions.push(version, state, self.now(), expired);
        }
    }

    fn reopen(&mut self, closes: bool) {
        if closes {
            self.db.clone().close().unwrap();
        } else {
            // What a process leaves that is killed.
            self.device = copy(&self.device);
        }
        let builder = small(&self.device).inline_merges(self.merge_steps);
        self.db = builder.runtime(Arc::clone(&self.clock) as _).open().unwrap();
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
            96 => self.erase(),
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
            (key(self.random.below(KEYS)), key(self.random.below(KEYS))[..1].to_vec());
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
    // Each key is there in a version, or is not: by a scan from each end.
    counts.add("answers", counts.get("versions") * 2 * KEYS);
    assert!(counts.get("answers") >= 1_000_000, "{}", counts.get("answers"));
    counts.record().unwrap();
}

/// What the same runs would show of bugs in splits.
#[test]
fn every_version_would_show_what_splits_get_wrong() {
    for bug in [
        Bug::SplitReadsNewSide,
        Bug::SplitResetsNumbers,
        Bug::SplitExpiresNow,
        Bug::ChangesOfNow,
        Bug::ErasedStays,
    ] {
        let is_found = |seed: u64| {
            let life = || {
                let mut run = Run::new(seed);
                (0..150).for_each(|_| run.step());
                run.look_back_at_all()
            };
            catch_unwind(|| planted::with(bug, life)).is_err()
        };
        assert!((0..60).any(is_found), "{bug:?}");
    }
}
