//! Writers, readers and scans at once.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::{assert_sound, copy, keeps_history, schemes, small, threaded, tiny};
use esker::{Db, DbBuilder, Durability};
use esker_device::memory::MemoryDevice;
use esker_device::wrap::{Hook, Step, StepKind, Wrapped};

/// Opens a store under each scheme, with merges in the threads that write and in others.
fn under_every_scheme(body: impl Fn(&dyn Fn(&MemoryDevice) -> DbBuilder)) {
    for scheme in schemes() {
        body(&|device| small(device).scheme(scheme));
        body(&|device| threaded(device).scheme(scheme));
    }
}

const WRITERS: u32 = 4;
const ROUNDS: u32 = 400;

/// Each writer moves its two counters in step, in two keyspaces, by one batch a round; a reader of
/// both from one snapshot must find them equal, and never smaller than before.
#[test]
fn batches_are_whole_for_readers_and_scans() {
    under_every_scheme(batches_are_whole);
}

fn batches_are_whole(builder: &dyn Fn(&MemoryDevice) -> DbBuilder) {
    let device = MemoryDevice::new();
    let db = builder(&device).open().unwrap();
    let (a, b) = (tiny(&db, "a"), tiny(&db, "b"));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut last = vec![None; WRITERS as usize];
                while !done.load(Ordering::Relaxed) {
                    let snapshot = db.snapshot().unwrap();
                    for writer in 0..WRITERS {
                        let key = format!("counter{writer}");
                        let value = snapshot.get(&a, &key).unwrap();
                        assert_eq!(value, snapshot.get(&b, &key).unwrap());
                        assert!(value >= last[writer as usize]);
                        last[writer as usize] = value;
                    }
                }
            });
        }
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let snapshot = db.snapshot().unwrap();
                let left: Vec<_> = snapshot.iter(&a).unwrap().map(Result::unwrap).collect();
                let right: Vec<_> = snapshot.iter(&b).unwrap().rev().map(Result::unwrap).collect();
                assert!(left.iter().eq(right.iter().rev()));
            }
        });
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (db, a, b) = (&db, &a, &b);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let mut batch = db.batch();
                        for keyspace in [a, b] {
                            batch.insert(keyspace, format!("counter{writer}"), round.to_be_bytes());
                            batch.insert(keyspace, format!("{writer}-{}", round % 50), [1; 80]);
                        }
                        let synced = round % 7 == 0;
                        let durability =
                            if synced { Durability::Synced } else { Durability::Buffered };
                        let seq = batch.commit_with(durability).unwrap();
                        assert!(!synced || db.durable_seq() >= seq);
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::Relaxed);
    });
    let written = u64::from(WRITERS * ROUNDS * 4);
    assert!(db.visible_seq() == written || (keeps_history() && db.visible_seq() > written));
    assert_sound(&db);
    let killed = builder(&copy(&device)).open().unwrap();
    assert_eq!(killed.visible_seq(), db.visible_seq());
    let again = killed.open_keyspace("a").unwrap().unwrap();
    assert!(again.iter().unwrap().map(Result::unwrap).eq(a.iter().unwrap().map(Result::unwrap)));
}

/// Closing waits for what runs, and everything after it is refused.
#[test]
fn close_stops_every_thread() {
    under_every_scheme(closing_stops_every_thread);
}

fn closing_stops_every_thread(builder: &dyn Fn(&MemoryDevice) -> DbBuilder) {
    let device = MemoryDevice::new();
    let db = builder(&device).open().unwrap();
    let keyspace = tiny(&db, "k");
    let accepted = thread::scope(|scope| {
        let writers: Vec<_> = (0..4_u32)
            .map(|writer| {
                let keyspace = &keyspace;
                scope.spawn(move || {
                    let mut accepted = Vec::new();
                    for round in 0.. {
                        let key = format!("{writer}-{round}");
                        match keyspace.insert(&key, [3; 100]) {
                            Ok(()) => accepted.push(key),
                            Err(esker::Error::Closed) => break,
                            Err(error) => panic!("{error}"),
                        }
                    }
                    accepted
                })
            })
            .collect();
        while db.visible_seq() < 500 {
            thread::yield_now();
        }
        db.clone().close().unwrap();
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect::<Vec<_>>()
    });
    // The old handles are still held, and the device is free for the next.
    let again = builder(&device).create(false).open().unwrap();
    let keyspace = again.open_keyspace("k").unwrap().unwrap();
    assert_eq!(keyspace.iter().unwrap().count(), accepted.len());
    assert!(accepted.iter().all(|key| keyspace.contains(key).unwrap()));
    assert!(matches!(db.close(), Err(esker::Error::Closed)));
}

/// A flush or compaction of the whole store is not affected by keyspaces that other threads drop.
#[test]
fn keyspaces_that_are_dropped_meanwhile_are_passed_over() {
    let db = threaded(&MemoryDevice::new()).open().unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..300 {
                let keyspace = tiny(&db, "comes and goes");
                (0..20u32).for_each(|key| keyspace.insert(key.to_be_bytes(), [7; 200]).unwrap());
                assert!(db.drop_keyspace("comes and goes").unwrap(), "round {round}");
            }
            done.store(true, Ordering::Relaxed);
        });
        let last = tiny(&db, "stays");
        while !done.load(Ordering::Relaxed) {
            last.insert("key", [1; 100]).unwrap();
            db.flush().unwrap();
            db.compact().unwrap();
        }
    });
    assert_sound(&db);
}

/// A device on which the log's own thread is slow, and that notes what is written after a close.
#[derive(Debug, Default)]
struct SlowLog {
    closed: AtomicBool,
    written_after: AtomicBool,
}

impl Hook for SlowLog {
    fn before(&self, step: Step) {
        if step.kind == StepKind::Read {
            return;
        }
        if thread::current().name() == Some("esker-log") {
            thread::sleep(Duration::from_millis(5));
        }
        if self.closed.load(Ordering::SeqCst) {
            self.written_after.store(true, Ordering::SeqCst);
        }
    }
}

/// The thread that prepares the log's next segments has ended its work when `close` returns: the
/// folder may be another process's then, or gone.
#[test]
fn nothing_is_written_after_a_close() {
    for round in 0..10 {
        let device = Wrapped::around(Arc::new(MemoryDevice::new()), SlowLog::default());
        let builder = Db::builder_on(Arc::new(device.clone())).memory_budget(256 << 10);
        let db = builder.log_segment_bytes(16 << 10).open().unwrap();
        let keyspace = tiny(&db, "k");
        (0..40u32).for_each(|key| keyspace.insert(key.to_be_bytes(), [7; 1000]).unwrap());
        db.close().unwrap();
        device.hook().closed.store(true, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(20));
        assert!(!device.hook().written_after.load(Ordering::SeqCst), "round {round}");
    }
}
