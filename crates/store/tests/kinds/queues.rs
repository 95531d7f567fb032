//! Queues: entries are put at the end, or somewhere, and removed at the front, and the first one is
//! asked for all the time.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::common::{assert_sound, keeps_history, options, small, threaded};
use esker::{Db, Keyspace, Merge, SimRuntime, Snapshot};
use esker_device::memory::MemoryDevice;
use esker_harness::random::Random;
use esker_substrate::planted::{self, Bug};

/// Values, and the milliseconds at which they expire.
type Model = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;
type Entry = (Vec<u8>, Vec<u8>);

/// The queues of the keyspace, by the beginnings of their keys.
const QUEUES: [&str; 3] = ["a/", "b/", "b/c/"];
const STEPS: u64 = 3_000;
const NEVER: u64 = u64::MAX;

fn key(queue: &str, number: u64) -> Vec<u8> {
    format!("{queue}{number:06}").into_bytes()
}

/// The first entry within bounds that has not expired.
fn first_of(model: &Model, (from, to): (&[u8], Bound<&[u8]>), now: u64) -> Option<Entry> {
    let is_within = |key: &[u8]| match to {
        Bound::Unbounded => true,
        Bound::Included(to) => key <= to,
        Bound::Excluded(to) => key < to,
    };
    let mut entries = model.range(from.to_vec()..).filter(|(_, (_, until))| now < *until);
    let first = entries.next().filter(|(key, _)| is_within(key));
    first.map(|(key, (value, _))| (key.clone(), value.clone()))
}

fn next(mut entries: esker::Range) -> Option<Entry> {
    entries.next().transpose().unwrap()
}

/// An earlier state, and the moment of it.
struct Earlier {
    snapshot: Snapshot,
    version: u64,
    model: Model,
    now: u64,
}

struct Subject {
    device: MemoryDevice,
    clock: Arc<SimRuntime>,
    seed: u64,
    has_threads: bool,
    db: Db,
    keyspace: Keyspace,
    random: Random,
    model: Model,
    earlier: Vec<Earlier>,
    /// Milliseconds of the clock.
    now: u64,
    /// Each queue has had numbers up to this one.
    ends: [u64; QUEUES.len()],
}

impl Subject {
    fn new(seed: u64) -> Self {
        let (device, clock) = (MemoryDevice::new(), Arc::new(SimRuntime::new(1)));
        let now = 3_600_000;
        clock.set_unix_time(Duration::from_millis(now));
        let has_threads = seed % 2 == 1;
        let (db, keyspace) = opened(&device, &clock, has_threads);
        let (random, model, earlier) = (Random::new(seed), Model::new(), Vec::new());
        let ends = [0; QUEUES.len()];
        Self { device, clock, seed, has_threads, db, keyspace, random, model, earlier, now, ends }
    }

    fn any_queue(&self) -> usize {
        self.random.index(QUEUES.len())
    }

    /// The next key of a queue; some come late.
    fn next_key(&mut self) -> Vec<u8> {
        let at = self.any_queue();
        self.ends[at] += 1;
        let late = if self.random.percent(10) { self.random.below(20) } else { 0 };
        key(QUEUES[at], self.ends[at].saturating_sub(late))
    }

    fn any_key(&self) -> Vec<u8> {
        let at = self.any_queue();
        key(QUEUES[at], self.random.below(self.ends[at] + 3))
    }

    fn put(&mut self, key: Vec<u8>) {
        let value = self.random.bytes(8);
        let mut until = NEVER;
        if self.random.percent(20) {
            let millis = 1 + self.random.below(300);
            until = self.now + millis;
            self.keyspace.insert_with_ttl(&key, &value, Duration::from_millis(millis)).unwrap();
        } else {
            self.keyspace.insert(&key, &value).unwrap();
        }
        self.model.insert(key, (value, until));
    }

    fn merge(&mut self, key: Vec<u8>) {
        let operand = self.random.bytes(3);
        self.keyspace.merge(&key, &operand).unwrap();
        let live = self.model.get(&key).filter(|(_, until)| self.now < *until);
        let older = live.map(|(value, _)| value.clone()).unwrap_or_default();
        self.model.insert(key, ([older, operand].concat(), NEVER));
    }

    /// Takes the first entries of a queue, or of all.
    fn take(&mut self, how_many: u64) {
        let prefix = QUEUES[self.any_queue()];
        for _ in 0..how_many {
            let found = match self.random.below(3) {
                0 => self.keyspace.first().unwrap(),
                1 => next(self.keyspace.range::<&[u8]>(..).unwrap()),
                _ => next(self.keyspace.prefix(prefix).unwrap()),
            };
            let Some((key, _)) = found else { break };
            self.keyspace.remove(&key).unwrap();
            self.model.remove(&key);
        }
    }

    /// One entry moves in a transaction.
    fn take_and_put_back(&mut self) {
        let mut tx = self.db.transaction().unwrap();
        let Some((taken, value)) = tx.first(&self.keyspace).unwrap() else { return };
        let back = self.any_key();
        tx.remove(&self.keyspace, &taken).unwrap();
        tx.insert(&self.keyspace, &back, &value).unwrap();
        let seen = tx.first(&self.keyspace).unwrap();
        if self.random.percent(50) {
            tx.commit().unwrap();
            self.model.remove(&taken);
            self.model.insert(back, (value, NEVER));
            let expected = first_of(&self.model, (b"", Bound::Unbounded), self.now);
            assert_eq!(seen, expected, "seed {}", self.seed);
        }
    }

    fn batch(&mut self) {
        let mut batch = self.db.batch();
        for _ in 0..self.random.below(12) {
            if self.random.percent(50) {
                let (key, value) = (self.next_key(), self.random.bytes(4));
                batch.insert(&self.keyspace, &key, &value);
                self.model.insert(key, (value, NEVER));
            } else if let Some((key, _)) = self.model.first_key_value() {
                let key = key.clone();
                batch.remove(&self.keyspace, &key);
                self.model.remove(&key);
            }
        }
        batch.commit().unwrap();
    }

    fn remove_range(&mut self) {
        let at = self.any_queue();
        let (from, len) = (self.random.below(self.ends[at] + 1), self.random.below(60));
        let (from, to) = (key(QUEUES[at], from), key(QUEUES[at], from + len));
        self.keyspace.remove_range(&from[..]..&to[..]).unwrap();
        self.model.retain(|key, _| *key < from || *key >= to);
    }

    fn keep(&mut self) {
        let (snapshot, version) = (self.db.snapshot().unwrap(), self.db.version());
        let (model, now) = (self.model.clone(), self.now);
        self.earlier.push(Earlier { snapshot, version, model, now });
        if self.earlier.len() > 3 {
            self.earlier.remove(self.random.index(3));
        }
    }

    fn reopen(&mut self) {
        self.earlier.clear();
        self.db.clone().close().unwrap();
        (self.db, self.keyspace) = opened(&self.device, &self.clock, self.has_threads);
    }

    fn step(&mut self) {
        match self.random.below(400) {
            0..=179 => {
                let key = self.next_key();
                self.put(key);
            }
            180..=349 => self.take(1),
            350..=353 => self.take(60),
            354..=359 => self.batch(),
            360..=363 => {
                let key = self.any_key();
                self.put(key);
            }
            364 | 365 if !keeps_history() => {
                let key = self.any_key();
                self.merge(key);
            }
            366..=369 => self.take_and_put_back(),
            370..=372 => self.remove_range(),
            373..=375 => self.keep(),
            376..=381 => {
                let millis = self.random.below(60);
                self.clock.advance(Duration::from_millis(millis));
                self.now += millis;
            }
            382 => self.db.flush().unwrap(),
            383 if self.random.percent(30) => self.db.compact().unwrap(),
            384 if self.random.percent(30) => self.reopen(),
            _ => {}
        }
        self.look();
    }

    /// The first entry, of all and within some bounds, now and as of an earlier state.
    fn look(&self) {
        let prefix = QUEUES[self.any_queue()];
        let end = key(prefix, 999_999);
        let (from, to) = (self.any_key(), self.any_key());
        let bounds = [
            (&b""[..], Bound::Unbounded),
            (&from[..], Bound::Unbounded),
            (b"", Bound::Included(&to[..])),
            (prefix.as_bytes(), Bound::Excluded(&end[..])),
        ];
        let (from, to) = *self.random.pick(&bounds).unwrap();
        let range = (Bound::Included(from), to);
        let found = next(self.keyspace.range::<&[u8]>(range).unwrap());
        let expected = first_of(&self.model, (from, to), self.now);
        assert_eq!(found, expected, "seed {}, from {from:?} to {to:?}", self.seed);
        let Some(earlier) = self.random.pick(&self.earlier) else { return };
        let Earlier { snapshot, version, model, now } = earlier;
        let seed = self.seed;
        let found = next(snapshot.range::<&[u8]>(&self.keyspace, range).unwrap());
        let expected = first_of(model, (from, to), *now);
        assert_eq!(found, expected, "seed {seed}, from {from:?} to {to:?} as of {version}");
        if keeps_history() {
            // Values have expired as of the version's time, which is not after that moment.
            let past = self.keyspace.at(*version).unwrap();
            let found = next(past.range::<&[u8]>(range).unwrap());
            let is_later = |at: &Entry| found.as_ref().is_none_or(|found| found.0 > at.0);
            assert!(
                !expected.is_some_and(|expected| is_later(&expected)),
                "seed {seed}, version {version}"
            );
        }
    }
}

fn opened(device: &MemoryDevice, clock: &Arc<SimRuntime>, has_threads: bool) -> (Db, Keyspace) {
    let builder = if has_threads { threaded(device) } else { small(device) };
    let db = builder.runtime(Arc::clone(clock) as _).open().unwrap();
    let options = options().memtable_bytes(Some(8 << 10));
    let options = if keeps_history() { options } else { options.merge(Merge::Append) };
    let keyspace = db.keyspace("queues", options).unwrap();
    (db, keyspace)
}

fn run(seed: u64) {
    let mut subject = Subject::new(seed);
    (0..STEPS).for_each(|_| subject.step());
    let all: esker::Result<Vec<Entry>> = subject.keyspace.iter().and_then(Iterator::collect);
    let live = subject.model.iter().filter(|(_, (_, until))| subject.now < *until);
    let live: Vec<_> = live.map(|(key, (value, _))| (key.clone(), value.clone())).collect();
    assert!(all.unwrap() == live, "seed {seed}");
    assert_sound(&subject.db);
}

#[test]
fn the_first_entries_of_queues_are_those_of_a_map() {
    (0..6 * esker_harness::counts::budget()).for_each(run);
}

/// Whether a planted bug is found with one of the first seeds.
fn is_found(bug: Bug) -> bool {
    let fails = |seed: &u64| {
        let run = || planted::with(bug, || run(*seed));
        catch_unwind(AssertUnwindSafe(run)).is_err()
    };
    let found = (0..8).find(fails);
    println!("queues: {bug:?} found with seed {found:?}");
    found.is_some()
}

#[test]
fn finds_gaps_that_a_put_does_not_end() {
    assert!(is_found(Bug::GapNotClosed));
}

#[test]
fn finds_gaps_that_are_used_for_older_readers() {
    assert!(is_found(Bug::GapForOlder));
}
