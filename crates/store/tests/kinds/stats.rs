//! Statistics of `stats`: what keeps space, why writers waited, what comes next.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ops::ControlFlow;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::common::{only_for, options, without_history};
use esker::{Db, IndexKind, Keyspace, KeyspaceStats, SimRuntime, WaitStats};

fn fill(keyspace: &Keyspace, keys: std::ops::Range<u32>, byte: u8) {
    for key in keys {
        keyspace.insert(key.to_be_bytes(), [byte; 100]).unwrap();
    }
}

fn only(db: &Db) -> KeyspaceStats {
    db.stats().unwrap().keyspaces.swap_remove(0)
}

fn waits(db: &Db, reason: &str) -> WaitStats {
    let all = db.stats().unwrap().waits;
    *all.iter().find(|of| of.reason == reason).unwrap()
}

#[test]
fn a_snapshot_shows_since_when_it_keeps_what() {
    if !without_history("every version stays") {
        return;
    }
    if !only_for(IndexKind::FdTree, "others do not count what is kept for snapshots") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let runtime = Arc::new(SimRuntime::new(1));
    let builder = Db::builder(folder.path()).log_segment_bytes(16 << 10);
    let builder = builder.runtime(Arc::clone(&runtime) as _);
    let db = builder.open().unwrap();
    let keyspace = db.keyspace("a", options()).unwrap();
    fill(&keyspace, 0..1000, 1);
    let pins = db.stats().unwrap().pins;
    assert_eq!((pins.oldest_snapshot_age, pins.writes_since_oldest), (None, 0));
    assert_eq!(pins.log_keyspace.as_deref(), Some("a"));
    let held = db.snapshot().unwrap();
    runtime.advance(Duration::from_secs(90));
    fill(&keyspace, 0..500, 2);
    db.compact().unwrap();
    let pins = db.stats().unwrap().pins;
    assert_eq!(pins.oldest_snapshot_age, Some(Duration::from_secs(90)));
    assert_eq!((pins.writes_since_oldest, pins.kept_versions), (500, 500));
    assert_eq!(only(&db).kept_versions, 500);
    drop(held);
    db.compact().unwrap();
    let pins = db.stats().unwrap().pins;
    assert_eq!((pins.oldest_snapshot_age, pins.kept_versions), (None, 0));
    assert_eq!((pins.replaced_bytes, pins.backup), (0, false));
}

#[test]
fn what_comes_next_comes() {
    if !only_for(IndexKind::FdTree, "the forecast of the next merge does not know slices") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let db = Db::builder(folder.path()).memory_budget(1 << 20).open().unwrap();
    let keyspace = db.keyspace("a", options()).unwrap();
    let empty = only(&db).next.unwrap();
    assert!((1 << 18..=1 << 19).contains(&empty.after_bytes), "{empty:?}");
    fill(&keyspace, 0..500, 1);
    let later = only(&db).next.unwrap();
    assert!(later.after_bytes < empty.after_bytes - 500 * 100, "{later:?}");
    let mut merged = 0;
    for round in 0..40 {
        fill(&keyspace, round * 1000..round * 1000 + 1000, 3);
        db.flush().unwrap();
        let before = only(&db);
        let Some(next) = before.next else { continue };
        fill(&keyspace, 0..2, 4);
        db.flush().unwrap();
        let after = only(&db);
        if before.merge.is_none() && !before.flushing {
            let has_merged = after.merges > before.merges || after.merge.is_some();
            assert_eq!(next.merge_bytes > 0, has_merged, "{next:?}: {before:?}, {after:?}");
            merged += u32::from(has_merged);
        }
    }
    assert!(merged > 0);
}

#[test]
fn writers_that_wait_are_counted_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let db = Db::builder(folder.path()).memory_budget(256 << 10).open().unwrap();
    let keyspace = db.keyspace("a", options()).unwrap();
    for round in 0..15 {
        fill(&keyspace, 0..4000, round);
    }
    let all = [waits(&db, "memory"), waits(&db, "merge")];
    assert!(all.iter().map(|of| of.waits).sum::<u64>() > 0, "{all:?}");
    for of in all {
        assert_eq!(of.waiting, 0);
        assert!(of.longest <= of.total && of.total <= of.longest * of.waits as u32, "{of:?}");
    }
    let stats = db.stats().unwrap();
    assert!(stats.write_amplification().unwrap() > 1.0);
    assert!(stats.space_amplification().unwrap() > 1.0);
    assert!(stats.memory.buffer_bytes <= stats.memory.cache_bytes);
}

#[test]
fn waiting_writers_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let db = Db::open(folder.path()).unwrap();
    let first = db.write_transaction().unwrap();
    std::thread::scope(|scope| {
        let second = scope.spawn(|| db.write_transaction().map(drop));
        while waits(&db, "turn").waiting == 0 {
            std::thread::yield_now();
        }
        drop(first);
        second.join().unwrap().unwrap();
    });
    let of = waits(&db, "turn");
    assert_eq!((of.waiting, of.waits), (0, 1));
    assert!(of.total > Duration::ZERO && of.total == of.longest);
}

#[test]
fn a_backup_under_way_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    let db = Db::open(folder.path().join("store")).unwrap();
    let keyspace = db.keyspace("a", options()).unwrap();
    fill(&keyspace, 0..20_000, 1);
    db.flush().unwrap();
    let (tell, told) = mpsc::channel();
    let mut progress = |_: &_| {
        let _first = tell.send(db.stats().unwrap().pins);
        ControlFlow::Continue(())
    };
    db.backup_with(folder.path().join("copy"), &mut progress).unwrap();
    assert!(told.recv().unwrap().backup);
    assert!(!db.stats().unwrap().pins.backup);
}

/// Reads of the device for lookups of all keys.
fn reads_of_all(db: &Db, keyspace: &Keyspace, keys: u32) -> u64 {
    let reads = || {
        let stats = db.stats().unwrap();
        stats.io.iter().filter(|row| row.purpose == "user").map(|row| row.reads).sum::<u64>()
    };
    let before = reads();
    for key in 0..keys {
        assert!(keyspace.get(key.to_be_bytes()).unwrap().is_some());
    }
    reads() - before
}

#[test]
fn what_a_compaction_writes_is_in_the_cache_while_that_has_room() {
    const KEYS: u32 = 20_000;
    let folder = tempfile::tempdir().unwrap();
    let db = Db::builder(folder.path()).memory_budget(32 << 20).open().unwrap();
    let keyspace = db.keyspace("a", options()).unwrap();
    for byte in 1..6 {
        fill(&keyspace, 0..KEYS, byte);
        db.compact().unwrap();
        let reads = reads_of_all(&db, &keyspace, KEYS);
        assert!(reads <= 20, "{reads} reads after compaction {byte}");
    }
    db.close().unwrap();
    let db = Db::builder(folder.path()).memory_budget(32 << 20).open().unwrap();
    let keyspace = db.keyspace("a", options()).unwrap();
    assert!(reads_of_all(&db, &keyspace, KEYS) > 100, "a store that was opened is cold");
}
