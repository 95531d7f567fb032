//! Snapshots and ranges: what they see, and that they never block.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{assert_sound, keeps_history, schemes, small, tiny};
use esker::Scheme;
use esker_device::memory::MemoryDevice;

#[test]
fn a_snapshot_keeps_its_view_through_overwrites_deletes_and_merges() {
    schemes().into_iter().for_each(keeps_its_view);
}

fn keeps_its_view(scheme: Scheme) {
    let device = MemoryDevice::new();
    let db = small(&device).scheme(scheme).open().unwrap();
    let keyspace = tiny(&db, "k");
    for number in 0..500 {
        keyspace.insert(format!("{number:04}"), "old").unwrap();
    }
    let snapshot = db.snapshot().unwrap();
    for number in 0..500 {
        if number % 2 == 0 {
            keyspace.remove(format!("{number:04}")).unwrap();
        } else {
            keyspace.insert(format!("{number:04}"), "new").unwrap();
        }
    }
    db.compact().unwrap();
    assert_eq!(snapshot.iter(&keyspace).unwrap().count(), 500);
    assert!(snapshot.iter(&keyspace).unwrap().all(|entry| entry.unwrap().1 == b"old"));
    assert_eq!(keyspace.iter().unwrap().count(), 250);
    let kept = db.stats().unwrap().keyspaces[0].data_bytes;
    let again = snapshot.clone();
    drop(snapshot);
    assert_eq!(again.get(&keyspace, "0000").unwrap().as_deref(), Some(b"old".as_slice()));
    drop(again);
    db.compact().unwrap();
    assert_eq!(db.stats().unwrap().snapshots, 0);
    let left = db.stats().unwrap().keyspaces[0].data_bytes;
    assert!(left < kept / 2 || keeps_history());
    assert_sound(&db);
}

#[test]
fn the_loop_over_a_range_may_write_merge_and_drop() {
    schemes().into_iter().for_each(writes_in_a_loop);
}

fn writes_in_a_loop(scheme: Scheme) {
    let device = MemoryDevice::new();
    let db = small(&device).scheme(scheme).open().unwrap();
    let keyspace = tiny(&db, "k");
    for number in 0..1000 {
        keyspace.insert(format!("{number:04}"), [7; 50]).unwrap();
    }
    let mut seen = 0;
    for entry in keyspace.iter().unwrap() {
        let (key, value) = entry.unwrap();
        assert_eq!(value, [7; 50]);
        keyspace.insert(&key, [8; 50]).unwrap();
        keyspace.insert([key.as_slice(), b"+"].concat(), [9; 50]).unwrap();
        if seen % 100 == 0 {
            keyspace.compact().unwrap();
        }
        seen += 1;
    }
    assert_eq!(seen, 1000);
    assert_eq!(keyspace.iter().unwrap().count(), 2000);
    let mut range = keyspace.iter().unwrap();
    range.next().unwrap().unwrap();
    assert!(db.drop_keyspace("k").unwrap());
    // What was fetched is handed out; then the range ends with an error, once.
    let errors = range.filter(Result::is_err).count();
    assert_eq!(errors, 1);
    assert_sound(&db);
}

#[test]
fn a_batch_over_several_keyspaces_is_seen_whole() {
    schemes().into_iter().for_each(batches_over_keyspaces);
}

fn batches_over_keyspaces(scheme: Scheme) {
    let device = MemoryDevice::new();
    let db = small(&device).scheme(scheme).open().unwrap();
    let (a, b) = (tiny(&db, "a"), tiny(&db, "b"));
    for round in 0..300_u32 {
        let before = db.snapshot().unwrap();
        let mut batch = db.batch();
        batch.insert(&a, "x", round.to_be_bytes());
        batch.insert(&b, "x", "overwritten by the next line");
        batch.insert(&b, "x", round.to_be_bytes());
        batch.insert(&b, format!("{round}"), [1; 60]);
        let seq = batch.commit().unwrap();
        // The moment of a commit has a number too.
        let is_right = seq == before.seq() + 3 || keeps_history();
        assert!(is_right, "of two writes to one key only the last is logged");
        let after = db.snapshot().unwrap();
        assert_eq!(after.seq(), seq);
        assert_eq!(before.get(&a, "x").unwrap(), before.get(&b, "x").unwrap());
        let round = round.to_be_bytes().to_vec();
        assert_eq!(after.get(&a, "x").unwrap(), Some(round.clone()));
        assert_eq!(after.get(&b, "x").unwrap(), Some(round));
    }
    assert_sound(&db);
}
