//! Threads whose transactions meet, and that record what they read and wrote.
//!
//! Most are optimistic, some have the writers' turn; in addition there are batches and reads of
//! snapshots. They read single keys, several, first and last ones, and ranges from both ends, of
//! which some are dropped on the way.

use std::collections::BTreeMap;
use std::ops::Range;

use esker::{Db, Keyspace};
use esker_substrate::planted::{Race, with};

use super::{Transaction, Write};
use crate::linear::drive::{Shared, collect, failed, key_bytes, keyspaces};
use crate::linear::stacks::{is_merged, merged, put, value_bytes};
use crate::linear::{ABSENT, Key, Span, Version};
use crate::random::Random;
use crate::violation::{Oracle, Verdict, Violation, ensure};

/// The way in which threads use a store.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Threads.
    pub threads: u32,
    /// Keys of each keyspace.
    pub keys: Key,
    /// Transactions of each thread.
    pub transactions: u64,
    /// The seed of the random numbers.
    pub seed: u64,
    /// A mistake that the store makes.
    pub mistake: Option<Race>,
}

/// The transactions of threads, and their counts.
#[derive(Debug, Default)]
pub struct Done {
    /// Everything, in no order.
    pub history: Vec<Transaction>,
    /// Commits that were refused.
    pub conflicts: u64,
    /// Ranges that were scanned.
    pub scans: u64,
}

/// Runs the threads to their end.
///
/// # Errors
/// When an operation fails, or a transaction does not see its own writes.
pub fn run(db: &Db, plan: &Plan, shared: &Shared) -> Verdict<Done> {
    let keyspaces = keyspaces(db)?;
    let mut done = Done::default();
    std::thread::scope(|scope| {
        let start = |number| {
            let (keyspaces, seed) = (&keyspaces, plan.seed.wrapping_mul(1013) + u64::from(number));
            scope.spawn(move || {
                let (random, done) = (Random::new(seed), Done::default());
                let thread = Thread { db, keyspaces, plan, shared, random, done };
                match plan.mistake {
                    Some(mistake) => with(mistake, || thread.run()),
                    None => thread.run(),
                }
            })
        };
        let threads: Vec<_> = (0..plan.threads).map(start).collect();
        for thread in threads {
            let panicked = |_| Violation::new(Oracle::NoPanic, "a thread panicked");
            let Done { history, conflicts, scans } = thread.join().map_err(panicked)??;
            done.history.extend(history);
            done.conflicts += conflicts;
            done.scans += scans;
        }
        Ok(done)
    })
}

struct Thread<'a> {
    db: &'a Db,
    keyspaces: &'a [Keyspace; 2],
    plan: &'a Plan,
    shared: &'a Shared,
    random: Random,
    done: Done,
}

/// The operations of a transaction so far.
struct Attempt<'a> {
    tx: esker::Transaction,
    invoked: u64,
    reads: Vec<(Key, Version)>,
    own: BTreeMap<Key, Write>,
    thread: &'a Thread<'a>,
    scans: u64,
}

impl Thread<'_> {
    fn run(mut self) -> Verdict<Done> {
        for _ in 0..self.plan.transactions {
            match self.random.below(100) {
                0..12 => self.batch()?,
                12..20 => self.snapshot()?,
                _ => self.transaction()?,
            }
        }
        Ok(self.done)
    }

    fn key(&self) -> Key {
        self.random.below(2 * u64::from(self.plan.keys)) as Key
    }

    fn write(&self, key: Key) -> Write {
        let (version, is_delete) = (self.shared.version(), self.random.percent(30));
        let is_merged = !is_delete && self.random.percent(30);
        Write { key, version: if is_merged { merged(version) } else { version }, is_delete }
    }

    fn version(&self, key: Key, value: Option<Vec<u8>>) -> Verdict<Version> {
        value.map_or(Ok(ABSENT), |value| self.shared.stacks.see(key, &value))
    }

    /// Lets the others in between, now and then: transactions are short.
    fn pause(&self) {
        if self.random.percent(25) {
            std::thread::yield_now();
        }
    }

    fn batch(&mut self) -> Verdict {
        let mut writes = BTreeMap::new();
        for _ in 0..=self.random.below(3) {
            let key = self.key();
            writes.insert(key, self.write(key));
        }
        let mut batch = self.db.batch();
        for write in writes.values() {
            let Some((keyspace, bytes)) = self.place(write.key) else { continue };
            let value = value_bytes(write.version);
            if write.is_delete {
                batch.remove(keyspace, bytes);
            } else if is_merged(write.version) {
                batch.merge(keyspace, bytes, value);
            } else {
                batch.insert(keyspace, bytes, value);
            }
        }
        let (span, number) = self.shared.clock.during(|| batch.commit());
        let number = Some(number.map_err(failed)?);
        let writes = writes.into_values().collect();
        let reads = Vec::new();
        self.done.history.push(Transaction { span, reads_at: 0, reads, number, writes });
        Ok(())
    }

    fn snapshot(&mut self) -> Verdict {
        let invoked = self.shared.clock.stamp();
        let snapshot = self.db.snapshot().map_err(failed)?;
        let mut reads = Vec::new();
        for _ in 0..2 {
            self.pause();
            let key = self.key();
            let Some((keyspace, bytes)) = self.place(key) else { continue };
            let found = snapshot.get(keyspace, bytes).map_err(failed)?;
            reads.push((key, self.version(key, found)?));
        }
        let (at, range) = self.part();
        if let Some(keyspace) = self.keyspaces.get(at) {
            let first = at as Key * self.plan.keys;
            let entries = snapshot.range(keyspace, self.bounds(&range)).map_err(failed)?;
            let mut seen = Vec::new();
            collect(entries, first, false, self.shared, &mut seen)?;
            let seen: BTreeMap<_, _> = seen.into_iter().collect();
            reads.extend(range.map(|key| (key, seen.get(&key).copied().unwrap_or(ABSENT))));
        }
        let span = Span { invoked, returned: self.shared.clock.stamp() };
        let (reads_at, writes) = (snapshot.seq(), Vec::new());
        self.done.history.push(Transaction { span, reads_at, reads, number: None, writes });
        Ok(())
    }

    fn transaction(&mut self) -> Verdict {
        let invoked = self.shared.clock.stamp();
        let in_turn = self.random.percent(10);
        let begun = if in_turn { self.db.write_transaction() } else { self.db.transaction() };
        let (tx, reads) = (begun.map_err(failed)?, Vec::new());
        let mut attempt =
            Attempt { tx, invoked, reads, own: BTreeMap::new(), thread: self, scans: 0 };
        for _ in 0..=self.random.below(5) {
            attempt.step()?;
            self.pause();
        }
        let (transaction, scans, conflicts) = attempt.end()?;
        self.done.history.push(transaction);
        self.done.scans += scans;
        self.done.conflicts += conflicts;
        Ok(())
    }

    fn place(&self, key: Key) -> Option<(&Keyspace, Vec<u8>)> {
        let keys = self.plan.keys.max(1);
        Some((self.keyspaces.get((key / keys) as usize)?, key_bytes(key % keys)))
    }

    /// Some keys of one keyspace.
    fn part(&self) -> (usize, Range<Key>) {
        let (at, keys) = (self.random.index(2), u64::from(self.plan.keys));
        let from = self.random.below(keys);
        let to = (from + 1 + self.random.below(12)).min(keys);
        let first = at as Key * self.plan.keys;
        (at, first + from as Key..first + to as Key)
    }

    fn bounds(&self, range: &Range<Key>) -> Range<Vec<u8>> {
        let keys = self.plan.keys.max(1);
        let first = range.start / keys * keys;
        key_bytes(range.start - first)..key_bytes(range.end - first)
    }
}

impl Attempt<'_> {
    fn step(&mut self) -> Verdict {
        match self.thread.random.below(100) {
            0..30 => self.get(),
            30..36 => self.edge(),
            36..58 => self.scan(),
            58..64 => self.remove_range(),
            _ => self.write(),
        }
    }

    /// Notes a version that was found under `key` as a read of others, or checks that it is what
    /// the transaction wrote itself.
    fn found(&mut self, key: Key, version: Version) -> Verdict {
        let Some(own) = self.own.get(&key) else {
            self.reads.push((key, version));
            return Ok(());
        };
        let expected = if own.is_delete { ABSENT } else { own.version };
        ensure(version == expected, Oracle::ContentMatches, || {
            format!("key {key} was written by the transaction as {expected} and is {version}")
        })
    }

    fn get(&mut self) -> Verdict {
        let key = self.thread.key();
        let Some((keyspace, bytes)) = self.thread.place(key) else { return Ok(()) };
        let found = self.tx.get(keyspace, bytes).map_err(failed)?;
        self.found(key, self.thread.version(key, found)?)
    }

    fn write(&mut self) -> Verdict {
        let key = self.thread.key();
        let Some((keyspace, bytes)) = self.thread.place(key) else { return Ok(()) };
        let mut write = self.thread.write(key);
        if self.own.contains_key(&key) {
            // Of its own writes only the last one has a place in the history: the base of what is
            // merged must be another transaction's.
            write.version = put(write.version);
        }
        let value = value_bytes(write.version);
        let written = if write.is_delete {
            self.tx.remove(keyspace, bytes)
        } else if is_merged(write.version) {
            self.tx.merge(keyspace, bytes, value)
        } else {
            self.tx.insert(keyspace, bytes, value)
        };
        written.map_err(failed)?;
        self.own.insert(key, write);
        Ok(())
    }

    fn remove_range(&mut self) -> Verdict {
        let (at, range) = self.thread.part();
        let Some(keyspace) = self.thread.keyspaces.get(at) else { return Ok(()) };
        let bounds = self.thread.bounds(&range);
        self.tx.remove_range(keyspace, bounds).map_err(failed)?;
        for key in range {
            let write = self.thread.write(key);
            self.own.insert(key, Write { is_delete: true, ..write });
        }
        Ok(())
    }

    /// The first or the last key of a keyspace.
    fn edge(&mut self) -> Verdict {
        let (at, last) = (self.thread.random.index(2), self.thread.random.percent(50));
        let Some(keyspace) = self.thread.keyspaces.get(at) else { return Ok(()) };
        let edge = if last { self.tx.last(keyspace) } else { self.tx.first(keyspace) };
        let keys = self.thread.plan.keys;
        let first = at as Key * keys;
        let mut seen = Vec::new();
        let entry = edge.map_err(failed)?.map(Ok).into_iter();
        collect(entry, first, false, self.thread.shared, &mut seen)?;
        let passed = match seen.first() {
            Some((key, _)) if last => *key..first + keys,
            Some((key, _)) => first..key + 1,
            None => first..first + keys,
        };
        self.passed(passed, &seen)
    }

    /// A range from one end, some of it or all.
    fn scan(&mut self) -> Verdict {
        let (at, range) = self.thread.part();
        let Some(keyspace) = self.thread.keyspaces.get(at) else { return Ok(()) };
        let reverse = self.thread.random.percent(50);
        let wanted = if self.thread.random.percent(50) { usize::MAX } else { 1 };
        let bounds = self.thread.bounds(&range);
        let entries = self.tx.range(keyspace, bounds).map_err(failed)?;
        let first = at as Key * self.thread.plan.keys;
        let mut seen = Vec::new();
        if reverse {
            collect(entries.rev().take(wanted), first, true, self.thread.shared, &mut seen)?;
        } else {
            collect(entries.take(wanted), first, false, self.thread.shared, &mut seen)?;
        }
        let passed = match (seen.len() >= wanted, reverse) {
            (false, _) => range,
            (true, false) => range.start..seen.last().map_or(range.start, |(key, _)| key + 1),
            (true, true) => seen.first().map_or(range.end, |(key, _)| *key)..range.end,
        };
        self.scans += 1;
        self.passed(passed, &seen)
    }

    /// All keys that a scan came past, found or not.
    fn passed(&mut self, keys: Range<Key>, seen: &[(Key, Version)]) -> Verdict {
        let seen: BTreeMap<_, _> = seen.iter().copied().collect();
        for key in keys {
            self.found(key, seen.get(&key).copied().unwrap_or(ABSENT))?;
        }
        Ok(())
    }

    fn end(self) -> Verdict<(Transaction, u64, u64)> {
        let Self { tx, invoked, reads, own, thread, scans } = self;
        let reads_at = tx.seq();
        let writes: Vec<_> = own.into_values().collect();
        let committed = if thread.random.percent(5) {
            tx.rollback();
            None
        } else {
            match tx.commit() {
                Ok(number) => Some(number),
                Err(error) if error.is_conflict() => None,
                Err(error) => return Err(failed(error)),
            }
        };
        let span = Span { invoked, returned: thread.shared.clock.stamp() };
        let conflicts = u64::from(committed.is_none());
        let number = committed.filter(|_| !writes.is_empty());
        let writes = if number.is_some() { writes } else { Vec::new() };
        Ok((Transaction { span, reads_at, reads, number, writes }, scans, conflicts))
    }
}
