//! Threads that read and write a store at once, and record the results that they get.
//!
//! Every thread is a loop over its own random numbers; which of them runs when is the system's
//! choice. The first thread writes with single puts and deletes, which answer no numbers; the
//! others with batches. Some writes merge what they write onto what is there. All read: single
//! keys, several, ranges in both directions, from snapshots and without, some of them held open
//! over later operations.

use std::ops::{Bound, Range};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use esker::{Db, DbBuilder, Durability, IndexKind, Keyspace, KeyspaceOptions, Merge};

use super::stacks::{Stacks, is_merged, merged, value_bytes};
use super::{ABSENT, Asked, Clock, Commit, History, Key, Read, Version};
use crate::random::Random;
use crate::violation::{Oracle, Verdict, Violation, ensure};

/// The keyspaces.
pub const NAMES: [&str; 2] = ["left", "right"];

/// A store as small as one may be, so that merges, nearly all of them full, never end.
pub fn small(builder: DbBuilder) -> DbBuilder {
    builder.memory_budget(128 << 10).log_segment_bytes(16 << 10)
}

/// The way in which threads use a store.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Threads.
    pub threads: u32,
    /// Keys of each keyspace.
    pub keys: Key,
    /// Operations of each thread, unless `stop` is set.
    pub operations: u64,
    /// Commits that wait for the device, in percent.
    pub synced_percent: u32,
    /// The seed of the random numbers.
    pub seed: u64,
}

/// The state that all runs of one test share.
#[derive(Debug, Default)]
pub struct Shared {
    /// When things happen.
    pub clock: Clock,
    /// Set to end a run early.
    pub stop: AtomicBool,
    /// The bases onto which versions were merged, as far as they were read.
    pub stacks: Stacks,
    versions: AtomicU64,
}

impl Shared {
    /// A version that was not used before.
    pub(crate) fn version(&self) -> Version {
        self.versions.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// The key's bytes, in the order of keys.
pub(crate) fn key_bytes(key: Key) -> Vec<u8> {
    let tail = "/deep".repeat(key as usize % 7);
    format!("key{key:06}{tail}").into_bytes()
}

fn key_of(bytes: &[u8]) -> Option<Key> {
    let key = std::str::from_utf8(bytes.get(3..9)?).ok()?.parse().ok()?;
    (key_bytes(key) == bytes).then_some(key)
}

pub(crate) fn failed(error: esker::Error) -> Violation {
    Violation::new(Oracle::WorksOn, error.to_string())
}

/// Opens the keyspaces of a store, creating them where they are not there: one with each kind of
/// index.
///
/// # Errors
/// The store's error.
pub fn keyspaces(db: &Db) -> Verdict<[Keyspace; 2]> {
    let options = || KeyspaceOptions::default().memtable_bytes(Some(4 << 10)).merge(Merge::Append);
    let open = |name, kind| db.keyspace(name, options().index(kind)).map_err(failed);
    Ok([open(NAMES[0], IndexKind::FdTree)?, open(NAMES[1], IndexKind::Lsm)?])
}

/// A batch of these writes; each keyspace has `keys` keys.
pub fn batch(
    db: &Db,
    keyspaces: &[Keyspace; 2],
    keys: Key,
    writes: &[(Key, Version)],
) -> esker::Batch {
    let mut batch = db.batch();
    for (key, version) in writes {
        let Some(keyspace) = keyspaces.get((key / keys.max(1)) as usize) else { continue };
        let bytes = key_bytes(key % keys.max(1));
        match *version {
            ABSENT => batch.remove(keyspace, bytes),
            version if is_merged(version) => batch.merge(keyspace, bytes, value_bytes(version)),
            version => batch.insert(keyspace, bytes, value_bytes(version)),
        }
    }
    batch
}

/// Runs the threads to their end, and `meanwhile` concurrently.
///
/// # Errors
/// When an operation fails, or an entry is found that no thread wrote.
pub fn run<T>(
    db: &Db,
    plan: &Plan,
    shared: &Shared,
    meanwhile: impl FnOnce() -> T,
) -> Verdict<(History, T)> {
    let keyspaces = keyspaces(db)?;
    let mut history = History::default();
    let answer = std::thread::scope(|scope| {
        let start = |number| {
            let (keyspaces, seed) = (&keyspaces, plan.seed.wrapping_mul(1009) + u64::from(number));
            scope.spawn(move || {
                let random = Random::new(seed);
                let history = History::default();
                let held = Vec::new();
                Thread { db, keyspaces, plan, shared, random, number, history, held }.run()
            })
        };
        let threads: Vec<_> = (0..plan.threads).map(start).collect();
        let answer = meanwhile();
        for thread in threads {
            let panicked = |_| Violation::new(Oracle::NoPanic, "a thread panicked");
            history.absorb(thread.join().map_err(panicked)??);
        }
        Ok(answer)
    })?;
    Ok((history, answer))
}

/// Reads everything from one snapshot.
///
/// # Errors
/// When that fails, or an entry is found that no thread wrote.
pub fn read_all(db: &Db, keys: Key, shared: &Shared) -> Verdict<Read> {
    let keyspaces = keyspaces(db)?;
    let (span, snapshot) = shared.clock.during(|| db.snapshot());
    let snapshot = snapshot.map_err(failed)?;
    let mut seen = Vec::new();
    for (keyspace, first) in keyspaces.iter().zip([0, keys]) {
        let range = snapshot.iter(keyspace).map_err(failed)?;
        collect(range, first, false, shared, &mut seen)?;
    }
    let number = Some(snapshot.seq());
    Ok(Read { span, number, asked: Asked::Within(0..2 * keys), seen })
}

/// Fetches all that is left of a range.
pub(crate) fn collect(
    range: impl Iterator<Item = esker::Result<(Vec<u8>, Vec<u8>)>>,
    first: Key,
    reverse: bool,
    shared: &Shared,
    seen: &mut Vec<(Key, Version)>,
) -> Verdict {
    let mut fetched = Vec::new();
    for entry in range {
        fetched.push(decode(entry.map_err(failed)?, first, shared)?);
    }
    if reverse {
        fetched.reverse();
    }
    ensure(fetched.is_sorted_by(|a, b| a.0 < b.0), Oracle::ContentMatches, || {
        "a range is out of order".into()
    })?;
    seen.extend(fetched);
    Ok(())
}

fn decode(
    (key, value): (Vec<u8>, Vec<u8>),
    first: Key,
    shared: &Shared,
) -> Verdict<(Key, Version)> {
    let unknown = || Violation::new(Oracle::NothingFromNowhere, "a key that nobody wrote");
    let key = first + key_of(&key).ok_or_else(unknown)?;
    Ok((key, shared.stacks.see(key, &value)?))
}

/// A range that is fetched in pieces while its thread does other things.
struct Held {
    read: Read,
    range: esker::Range,
    first: Key,
    fetched: Vec<(Vec<u8>, Vec<u8>)>,
}

struct Thread<'a> {
    db: &'a Db,
    keyspaces: &'a [Keyspace; 2],
    plan: &'a Plan,
    shared: &'a Shared,
    random: Random,
    number: u32,
    history: History,
    held: Vec<Held>,
}

/// Ranges that a thread holds open.
const HELD_MAX: usize = 2;

impl Thread<'_> {
    fn run(mut self) -> Verdict<History> {
        for _ in 0..self.plan.operations {
            if self.shared.stop.load(Ordering::Relaxed) {
                break;
            }
            match self.random.below(100) {
                0..45 => self.write()?,
                45..75 => self.get()?,
                75..83 => self.multi_get()?,
                83..90 => self.scan()?,
                90..94 => self.snapshot()?,
                94 if self.held.len() < HELD_MAX => self.hold()?,
                _ => self.fetch()?,
            }
        }
        while !self.held.is_empty() {
            self.fetch()?;
        }
        Ok(self.history)
    }

    fn key(&self) -> Key {
        self.random.below(2 * u64::from(self.plan.keys)) as Key
    }

    fn keyspace(&self, key: Key) -> Option<&Keyspace> {
        self.keyspaces.get((key / self.plan.keys.max(1)) as usize)
    }

    fn bytes(&self, key: Key) -> Vec<u8> {
        key_bytes(key % self.plan.keys.max(1))
    }

    fn new_version(&self) -> Version {
        match self.random.below(100) {
            0..20 => ABSENT,
            20..50 => merged(self.shared.version()),
            _ => self.shared.version(),
        }
    }

    fn durability(&self) -> Durability {
        let synced = self.random.percent(self.plan.synced_percent);
        if synced { Durability::Synced } else { Durability::Buffered }
    }

    fn write(&mut self) -> Verdict {
        match self.number {
            0 => self.single(),
            _ if self.random.percent(12) => self.remove_range(),
            _ => self.batch(),
        }
    }

    fn single(&mut self) -> Verdict {
        let (key, version, durability) = (self.key(), self.new_version(), self.durability());
        let (Some(keyspace), bytes) = (self.keyspace(key), self.bytes(key)) else { return Ok(()) };
        let value = value_bytes(version);
        let (span, done) = self.shared.clock.during(|| match version {
            ABSENT => keyspace.remove_with(&bytes, durability),
            _ if is_merged(version) => keyspace.merge_with(&bytes, &value, durability),
            _ => keyspace.insert_with(&bytes, &value, durability),
        });
        done.map_err(failed)?;
        let synced = durability == Durability::Synced;
        self.history.commits.push(Commit {
            span,
            number: None,
            synced,
            writes: vec![(key, version)],
            is_range: false,
        });
        Ok(())
    }

    fn batch(&mut self) -> Verdict {
        let mut writes: Vec<(Key, Version)> = Vec::new();
        for _ in 0..=self.random.below(5) {
            let key = self.key();
            if writes.iter().all(|(other, _)| *other != key) {
                writes.push((key, self.new_version()));
            }
        }
        let batch = batch(self.db, self.keyspaces, self.plan.keys, &writes);
        let durability = self.durability();
        let (span, number) = self.shared.clock.during(|| batch.commit_with(durability));
        let number = Some(number.map_err(failed)?);
        let synced = durability == Durability::Synced;
        self.history.commits.push(Commit { span, number, synced, writes, is_range: false });
        Ok(())
    }

    fn remove_range(&mut self) -> Verdict {
        let (at, range) = self.part();
        let Some(keyspace) = self.keyspaces.get(at) else { return Ok(()) };
        let mut batch = self.db.batch();
        batch.remove_range(keyspace, self.bounds(&range));
        let durability = self.durability();
        let (span, number) = self.shared.clock.during(|| batch.commit_with(durability));
        let number = Some(number.map_err(failed)?);
        let synced = durability == Durability::Synced;
        let writes = range.map(|key| (key, ABSENT)).collect();
        self.history.commits.push(Commit { span, number, synced, writes, is_range: true });
        Ok(())
    }

    fn get(&mut self) -> Verdict {
        let key = self.key();
        let (Some(keyspace), bytes) = (self.keyspace(key), self.bytes(key)) else { return Ok(()) };
        let (span, found) = self.shared.clock.during(|| keyspace.get(&bytes));
        let seen =
            found.map_err(failed)?.map(|value| self.shared.stacks.see(key, &value)).transpose()?;
        let seen = seen.map(|version| (key, version)).into_iter().collect();
        self.history.reads.push(Read { span, number: None, asked: Asked::One(key), seen });
        Ok(())
    }

    fn multi_get(&mut self) -> Verdict {
        let keyspace = self.random.index(2);
        let first = keyspace as Key * self.plan.keys;
        let draw = || first + self.random.below(u64::from(self.plan.keys)) as Key;
        let mut keys: Vec<Key> = (0..=self.random.below(6)).map(|_| draw()).collect();
        keys.sort_unstable();
        keys.dedup();
        let bytes: Vec<_> = keys.iter().map(|key| self.bytes(*key)).collect();
        let Some(keyspace) = self.keyspaces.get(keyspace) else { return Ok(()) };
        let (span, values) = self.shared.clock.during(|| keyspace.multi_get(&bytes));
        let mut seen = Vec::new();
        for (key, value) in keys.iter().zip(values.map_err(failed)?) {
            if let Some(value) = value {
                seen.push((*key, self.shared.stacks.see(*key, &value)?));
            }
        }
        self.history.reads.push(Read { span, number: None, asked: Asked::Each(keys), seen });
        Ok(())
    }

    /// Some keys of one keyspace.
    fn part(&self) -> (usize, Range<Key>) {
        let keyspace = self.random.index(2);
        let keys = u64::from(self.plan.keys);
        let (mut from, mut to) = (0, keys);
        if self.random.percent(90) {
            from = self.random.below(keys);
            to = (from + 1 + self.random.below(40)).min(keys);
        }
        let first = keyspace as Key * self.plan.keys;
        (keyspace, first + from as Key..first + to as Key)
    }

    fn bounds(&self, range: &Range<Key>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let last = range.end.saturating_sub(1);
        (Bound::Included(self.bytes(range.start)), Bound::Included(self.bytes(last)))
    }

    /// A range of the newest state.
    fn open(&self) -> Verdict<(Read, esker::Range, Key)> {
        let (at, range) = self.part();
        let bounds = self.bounds(&range);
        let keyspace = self.keyspaces.get(at);
        let keyspace = keyspace.ok_or_else(|| Violation::new(Oracle::Harness, "no keyspace"))?;
        let (span, opened) = self.shared.clock.during(|| keyspace.range(bounds));
        let first = at as Key * self.plan.keys;
        let asked = Asked::Within(range);
        let read = Read { span, number: None, asked, seen: Vec::new() };
        Ok((read, opened.map_err(failed)?, first))
    }

    fn scan(&mut self) -> Verdict {
        let (mut read, range, first) = self.open()?;
        if self.random.percent(50) {
            collect(range.rev(), first, true, self.shared, &mut read.seen)?;
        } else {
            collect(range, first, false, self.shared, &mut read.seen)?;
        }
        self.history.reads.push(read);
        Ok(())
    }

    /// Both keyspaces, and some keys again.
    fn snapshot(&mut self) -> Verdict {
        let (span, snapshot) = self.shared.clock.during(|| self.db.snapshot());
        let snapshot = snapshot.map_err(failed)?;
        let number = Some(snapshot.seq());
        let key = self.key();
        if let Some(keyspace) = self.keyspace(key) {
            let found = snapshot.get(keyspace, self.bytes(key)).map_err(failed)?;
            let version = found.map(|value| self.shared.stacks.see(key, &value)).transpose()?;
            let seen = version.map(|version| (key, version)).into_iter().collect();
            self.history.reads.push(Read { span, number, asked: Asked::One(key), seen });
        }
        for _ in 0..2 {
            let (at, range) = self.part();
            let (bounds, first) = (self.bounds(&range), at as Key * self.plan.keys);
            let Some(keyspace) = self.keyspaces.get(at) else { continue };
            let opened = snapshot.range(keyspace, bounds).map_err(failed)?;
            let mut seen = Vec::new();
            collect(opened, first, false, self.shared, &mut seen)?;
            self.history.reads.push(Read { span, number, asked: Asked::Within(range), seen });
        }
        Ok(())
    }

    /// Opens a range and leaves it for later.
    fn hold(&mut self) -> Verdict {
        let (read, range, first) = self.open()?;
        self.held.push(Held { read, range, first, fetched: Vec::new() });
        Ok(())
    }

    /// Fetches a little of a range that is held open.
    fn fetch(&mut self) -> Verdict {
        let few = 1 + self.random.index(8);
        let Some(mut held) = self.held.pop() else { return Ok(()) };
        for _ in 0..few {
            match held.range.next() {
                Some(entry) => held.fetched.push(entry.map_err(failed)?),
                None => {
                    let entries = held.fetched.into_iter().map(Ok);
                    collect(entries, held.first, false, self.shared, &mut held.read.seen)?;
                    self.history.reads.push(held.read);
                    return Ok(());
                }
            }
        }
        self.held.insert(0, held);
        Ok(())
    }
}
