//! A whole store under many schedules: waiting for memory, group commit, closing, dropping.
//!
//! `cargo test -p esker --features shuttle,planted --test shuttle`
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "../../index/tests/shuttle/history.rs"]
mod history;
#[path = "../../index/tests/shuttle/runner.rs"]
mod runner;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker::{Db, DbBuilder, Device, Durability, Error, IndexKind, Keyspace, KeyspaceOptions};
use esker_device::memory::MemoryDevice;
use esker_device::sim::{CrashModel, SimDevice, Survivors};
use esker_substrate::planted::{Bug, Race};
use esker_substrate::sync::{Thread, spawn};

use history::History;
use runner::{hunt, schedules};

const VALUE_BYTES: usize = 700;

/// A store of one keyspace whose memtable holds a few values, and what was done to it.
struct Subject {
    db: Db,
    keys: Keyspace,
    history: History,
}

fn builder(device: Arc<dyn Device>) -> DbBuilder {
    Db::builder_on(device).memory_budget(256 << 10).log_segment_bytes(16 << 10)
}

fn value(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(VALUE_BYTES / 8)
}

fn number(value: &[u8]) -> u64 {
    u64::from_le_bytes(*value.first_chunk().expect("values are long"))
}

impl Subject {
    fn new() -> Arc<Self> {
        Self::on(Arc::new(MemoryDevice::new()))
    }

    fn on(device: Arc<dyn Device>) -> Arc<Self> {
        Self::with(device, KeyspaceOptions::default())
    }

    fn of(index: IndexKind) -> Arc<Self> {
        Self::with(Arc::new(MemoryDevice::new()), KeyspaceOptions::default().index(index))
    }

    fn with(device: Arc<dyn Device>, options: KeyspaceOptions) -> Arc<Self> {
        let db = builder(device).open().unwrap();
        let options = options.memtable_bytes(Some(3 << 10));
        let keys = db.keyspace("keys", options).unwrap();
        Arc::new(Self { db, keys, history: History::default() })
    }

    fn put(&self, key: u8, number: u64) {
        self.history.write(key, || {
            self.keys.insert([key], value(number)).unwrap();
            Some(number)
        });
    }

    /// Removes a key as a range of its own.
    fn remove_range(&self, key: u8) {
        self.history.write(key, || {
            self.keys.remove_range([key]..=[key]).unwrap();
            None
        });
    }

    fn get(&self, key: u8) -> Option<u64> {
        self.history.read(key, || self.keys.get([key]).unwrap().as_deref().map(number))
    }

    fn close(&self) {
        self.db.clone().close().unwrap();
    }
}

fn concurrently(subject: &Arc<Subject>, body: impl FnOnce(&Subject) + Send + 'static) -> Thread {
    let subject = Arc::clone(subject);
    spawn("other", move || body(&subject)).unwrap()
}

/// Writers fill the memtable faster than it is written out: each waits, is woken, and no write is
/// lost. A wake-up that is missed is a deadlock, which the scheduler reports.
fn writers_that_wait_for_memory() {
    let subject = Subject::new();
    let writer = |first: u64| {
        move |subject: &Subject| {
            for number in first..first + 5 {
                subject.put((number % 4) as u8, number);
            }
        }
    };
    let (one, two) = (concurrently(&subject, writer(10)), concurrently(&subject, writer(20)));
    subject.get(1);
    one.join().unwrap();
    two.join().unwrap();
    (0..4).for_each(|key| assert!(subject.get(key).is_some()));
    subject.history.assert_linearizable();
    subject.close();
}

/// A thread that requests a merge of everything gets it, though another requests one as well.
fn two_compactions_at_once() {
    let subject = Subject::new();
    (0..4).for_each(|key| subject.put(key, u64::from(key)));
    let compact = |subject: &Subject| subject.keys.compact().unwrap();
    let (one, two) = (concurrently(&subject, compact), concurrently(&subject, compact));
    subject.put(2, 9);
    subject.get(2);
    one.join().unwrap();
    two.join().unwrap();
    (0..4).for_each(|key| assert!(subject.get(key).is_some()));
    subject.history.assert_linearizable();
    subject.close();
}

/// A compaction merges what was written before it, though another thread flushes that; and what
/// that flushes is on the device.
fn a_compaction_beside_a_flush() {
    for index in IndexKind::ALL {
        let subject = Subject::of(index);
        (0..4).for_each(|key| subject.put(key, u64::from(key)));
        let flusher = concurrently(&subject, move |subject: &Subject| {
            subject.db.flush().unwrap();
            let stats = subject.db.stats().unwrap();
            let bytes = stats.keyspaces.iter().map(|keyspace| keyspace.data_bytes);
            assert!(bytes.sum::<u64>() >= 4 * VALUE_BYTES as u64, "{index}");
        });
        subject.keys.compact().unwrap();
        let stats = subject.db.stats().unwrap();
        let runs = stats.keyspaces.iter().map(|keyspace| keyspace.sorted_runs);
        assert_eq!(runs.sum::<u64>(), 0, "{index}");
        flusher.join().unwrap();
        subject.close();
    }
}

/// A compaction of a keyspace without entries ends, though another thread puts one meanwhile.
fn a_compaction_of_nothing_beside_a_put() {
    for index in IndexKind::ALL {
        let subject = Subject::of(index);
        subject.put(1, 1);
        subject.remove_range(1);
        subject.keys.compact().unwrap();
        let writer = concurrently(&subject, |subject: &Subject| subject.put(2, 2));
        subject.keys.compact().unwrap();
        writer.join().unwrap();
        assert!(subject.get(1).is_none() && subject.get(2) == Some(2), "{index}");
        subject.close();
    }
}

/// A store is closed while its memtables are written out and merged: a write is refused or is
/// there when the store is opened again.
fn a_close_during_writes_and_merges() {
    let device = Arc::new(MemoryDevice::new());
    let subject = Subject::on(Arc::clone(&device) as _);
    (0..3).for_each(|key| subject.put(key, u64::from(key)));
    let acknowledged = Arc::new(AtomicU64::new(2));
    let noted = Arc::clone(&acknowledged);
    let writer = concurrently(&subject, move |subject| {
        for number in 3..8 {
            match subject.keys.insert([number as u8], value(number)) {
                Ok(()) => noted.store(number, Ordering::Relaxed),
                Err(Error::Closed | Error::NoKeyspace { .. }) => return,
                Err(error) => panic!("{error}"),
            }
        }
    });
    let closer = concurrently(&subject, Subject::close);
    closer.join().unwrap();
    writer.join().unwrap();
    let again = Subject::reopened(device);
    let mut ended = false;
    for key in 0..8 {
        let is = again.get(key);
        assert!(is.is_none_or(|number| number == u64::from(key)));
        let was_acknowledged = u64::from(key) <= acknowledged.load(Ordering::Relaxed);
        assert!(is.is_some() || !was_acknowledged, "key {key} was acknowledged");
        assert!(is.is_none() || !ended, "key {key} is there, and one before is not");
        ended = is.is_none();
    }
    again.close();
}

impl Subject {
    fn reopened(device: Arc<MemoryDevice>) -> Self {
        let db = builder(device).open().unwrap();
        let keys = db.open_keyspace("keys").unwrap().unwrap();
        Self { db, keys, history: History::default() }
    }
}

/// A keyspace is dropped while it is read, written and merged: a call that is too late gets an
/// error, and nothing is left of the keyspace.
fn a_drop_during_reads_and_merges() {
    let subject = Subject::new();
    (0..4).for_each(|key| subject.put(key, u64::from(key)));
    let reader = concurrently(&subject, |subject| {
        for key in [1, 3, 1] {
            match subject.keys.get([key]) {
                Ok(found) => assert_eq!(found.as_deref().map(number), Some(u64::from(key))),
                Err(Error::NoKeyspace { .. }) => return,
                Err(error) => panic!("{error}"),
            }
        }
    });
    let merge = concurrently(&subject, |subject| match subject.keys.compact() {
        Ok(()) | Err(Error::NoKeyspace { .. }) => {}
        Err(error) => panic!("{error}"),
    });
    let writer = concurrently(&subject, |subject| match subject.keys.insert([9], value(9)) {
        Ok(()) | Err(Error::NoKeyspace { .. }) => {}
        Err(error) => panic!("{error}"),
    });
    assert!(subject.db.drop_keyspace("keys").unwrap());
    reader.join().unwrap();
    merge.join().unwrap();
    writer.join().unwrap();
    let left = subject.db.stats().unwrap().memory.memtable_bytes;
    assert_eq!(left, 0, "what a dropped keyspace held is given back");
    assert!(matches!(subject.keys.get([1]), Err(Error::NoKeyspace { .. })));
    subject.close();
}

/// Three writers share writes and syncs; what was acknowledged survives a power cut.
fn three_writers_commit_in_groups() {
    let device = SimDevice::new();
    let subject = Subject::on(Arc::new(device.clone()));
    let writer = |key: u8| {
        move |subject: &Subject| {
            let mut batch = subject.db.batch();
            batch.insert(&subject.keys, [key], [key; 40]);
            batch.insert(&subject.keys, [key + 10], [key; 40]);
            let seq = batch.commit_with(Durability::Synced).unwrap();
            assert!(subject.db.durable_seq() >= seq, "what is acknowledged is durable");
        }
    };
    let writers = [1, 2, 3].map(|key| concurrently(&subject, writer(key)));
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    let left = device.crash(&Survivors::nothing(), &CrashModel::default());
    let db = builder(Arc::new(SimDevice::from_image(&left))).open().unwrap();
    let keys = db.open_keyspace("keys").unwrap().unwrap();
    for key in [1, 2, 3] {
        assert_eq!(keys.get([key]).unwrap().as_deref(), Some(&[key; 40][..]));
        assert_eq!(keys.get([key + 10]).unwrap().as_deref(), Some(&[key; 40][..]));
    }
    db.close().unwrap();
    let _cannot_write = subject.db.clone().close();
}

/// A thread that holds a snapshot sees each batch whole or not at all, and always the same.
fn batches_during_snapshots() {
    let subject = Subject::new();
    let write = |subject: &Subject, number: u64| {
        let mut batch = subject.db.batch();
        batch.insert(&subject.keys, [1], value(number));
        batch.insert(&subject.keys, [2], value(number));
        batch.commit().unwrap();
    };
    write(&subject, 1);
    let writer = concurrently(&subject, move |subject| (2..5).for_each(|n| write(subject, n)));
    let reader = concurrently(&subject, |subject| {
        for _ in 0..2 {
            let snapshot = subject.db.snapshot().unwrap();
            let read = |key: u8| snapshot.get(&subject.keys, [key]).unwrap().map(|v| number(&v));
            let (two, one) = (read(2), read(1));
            assert_eq!(one, two, "a batch is whole");
            let all: Vec<_> = snapshot.iter(&subject.keys).unwrap().map(Result::unwrap).collect();
            assert!(all.iter().all(|(_, value)| Some(number(value)) == one), "and stays");
        }
    });
    writer.join().unwrap();
    reader.join().unwrap();
    subject.close();
}

/// Keys are removed by the range and written again while all is merged, by merges that retire
/// removals and by ones that come too early for it.
fn removals_during_merges() {
    let subject = Subject::new();
    (0..4).for_each(|key| subject.put(key, u64::from(key)));
    let writer = concurrently(&subject, |subject| {
        for number in 10..14 {
            subject.remove_range((number % 4) as u8);
            subject.put(((number + 1) % 4) as u8, number);
        }
    });
    let merger = concurrently(&subject, |subject| subject.keys.compact().unwrap());
    for key in [1, 2, 3, 2] {
        subject.get(key);
    }
    let snapshot = subject.db.snapshot().unwrap();
    let all = || -> Vec<_> { snapshot.iter(&subject.keys).unwrap().map(Result::unwrap).collect() };
    let seen = all();
    writer.join().unwrap();
    merger.join().unwrap();
    subject.keys.compact().unwrap();
    assert_eq!(all(), seen, "and stays");
    drop(snapshot);
    subject.keys.compact().unwrap();
    assert_eq!(subject.db.stats().unwrap().keyspaces[0].removed_ranges, 0);
    for key in 0..4 {
        let _recorded = subject.get(key);
    }
    subject.history.assert_linearizable();
    subject.close();
}

/// Concurrent transactions that add one to a number: none is lost.
fn transactions_add_up() {
    let subject = Subject::new();
    let add = |subject: &Subject| {
        subject.db.transact(|tx| {
            let seen = tx.get(&subject.keys, [1])?;
            tx.insert(&subject.keys, [1], value(seen.as_deref().map_or(0, number) + 1))
        })
    };
    let adder =
        move |times: u32| move |subject: &Subject| (0..times).for_each(|_| add(subject).unwrap());
    let (one, two) = (concurrently(&subject, adder(2)), concurrently(&subject, adder(1)));
    subject.keys.insert([2], value(2)).unwrap();
    one.join().unwrap();
    two.join().unwrap();
    assert_eq!(subject.get(1), Some(3), "each addition counts");
    assert_eq!(subject.db.stats().unwrap().transactions.live, 0);
    subject.close();
}

/// Transactions that count the keys of a range and add the next one: none meets a phantom.
fn transactions_that_count_keys() {
    let subject = Subject::new();
    let append = |subject: &Subject| {
        subject.db.transact(|tx| {
            let count = tx.range(&subject.keys, [10]..[20])?.count();
            tx.insert(&subject.keys, [10 + count as u8], value(0))
        })
    };
    let other = concurrently(&subject, move |subject| append(subject).unwrap());
    append(&subject).unwrap();
    other.join().unwrap();
    assert_eq!(subject.keys.iter().unwrap().count(), 2, "each has a key of its own");
    subject.close();
}

/// Turns are given one after the other; a close ends the waiting for them.
fn turns_during_a_close() {
    let subject = Subject::new();
    let writer = |subject: &Subject| {
        for _ in 0..2 {
            let turn = match subject.db.write_transaction() {
                Ok(turn) => turn,
                Err(Error::Closed) => return,
                Err(error) => panic!("{error}"),
            };
            let add = |mut turn: esker::Transaction| {
                let seen = turn.get(&subject.keys, [1])?;
                turn.insert(&subject.keys, [1], value(seen.as_deref().map_or(0, number) + 1))?;
                turn.commit()
            };
            match add(turn) {
                Ok(_) | Err(Error::Closed | Error::NoKeyspace { .. }) => {}
                Err(error) => panic!("those with a turn never conflict: {error}"),
            }
        }
    };
    let writers = [concurrently(&subject, writer), concurrently(&subject, writer)];
    subject.close();
    writers.into_iter().for_each(|writer| writer.join().unwrap());
}

#[test]
fn no_writer_waits_for_ever() {
    schedules("writers that wait for memory", 5_000, writers_that_wait_for_memory);
}

#[test]
fn two_may_compact() {
    schedules("two compactions at once", 4_000, two_compactions_at_once);
}

#[test]
fn a_compaction_has_all() {
    schedules("a compaction beside a flush", 4_000, a_compaction_beside_a_flush);
}

#[test]
fn a_compaction_of_nothing_ends() {
    schedules("a compaction of nothing beside a put", 2_000, a_compaction_of_nothing_beside_a_put);
}

#[test]
fn a_store_may_be_closed_during_a_merge() {
    schedules("a close during writes and merges", 6_000, a_close_during_writes_and_merges);
}

#[test]
fn a_keyspace_may_be_dropped_during_a_merge() {
    schedules("a drop during reads and merges", 4_000, a_drop_during_reads_and_merges);
}

#[test]
fn what_a_group_commits_is_durable() {
    schedules("three writers commit in groups", 5_000, three_writers_commit_in_groups);
}

#[test]
fn batches_are_whole_for_snapshots() {
    schedules("batches during snapshots", 6_000, batches_during_snapshots);
}

#[test]
fn removals_are_whole_during_merges() {
    schedules("removals during merges", 5_000, removals_during_merges);
}

#[test]
fn additions_are_not_lost() {
    schedules("transactions that add up", 6_000, transactions_add_up);
}

#[test]
fn phantoms_are_met() {
    schedules("transactions that count keys", 6_000, transactions_that_count_keys);
}

#[test]
fn no_writer_waits_for_its_turn_for_ever() {
    schedules("turns during a close", 4_000, turns_during_a_close);
}

#[test]
fn finds_transactions_begun_during_a_write() {
    hunt(Race::BegunBesideWrite, 20_000, &[transactions_add_up]);
}

#[test]
fn finds_ranges_that_are_not_checked() {
    hunt(Race::RangesUnchecked, 1_000, &[transactions_that_count_keys]);
}

#[test]
fn finds_a_missed_notification() {
    hunt(Race::MissedNotify, 10_000, &[writers_that_wait_for_memory]);
}

#[test]
fn finds_ticks_read_late() {
    hunt(Race::TicksReadLate, 40_000, &[writers_that_wait_for_memory]);
}

#[test]
fn finds_frozen_memtables_that_are_forgotten() {
    hunt(Race::FrozenForgotten, 5_000, &[a_compaction_beside_a_flush]);
}

#[test]
fn finds_numbers_that_are_visible_too_early() {
    hunt(Race::VisibleBeforeInserted, 10_000, &[batches_during_snapshots]);
}

#[test]
fn finds_acknowledgement_before_sync() {
    hunt(Bug::AcknowledgedBeforeSync, 10_000, &[three_writers_commit_in_groups]);
}

#[test]
fn every_race_in_a_store_has_its_test() {
    let hunted = [
        Race::MissedNotify,
        Race::TicksReadLate,
        Race::FrozenForgotten,
        Race::VisibleBeforeInserted,
        Race::BegunBesideWrite,
        Race::RangesUnchecked,
    ];
    assert_eq!(hunted, Race::IN_STORE);
}
