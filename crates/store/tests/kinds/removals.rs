//! Removals of ranges of keys: what they affect, what they cost, and when they are forgotten.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ops::Bound;
use std::sync::Arc;

use crate::common::{
    assert_sound, back_up, contents, copy, keeps_history, options, required_features, restored,
    small, threaded, tiny, without_history,
};
use esker::{Db, Device, Error, Keyspace, SimRuntime};
use esker_device::memory::MemoryDevice;

fn key(number: u32) -> String {
    format!("key{number:05}")
}

fn fill(keyspace: &Keyspace, numbers: std::ops::Range<u32>) {
    numbers.for_each(|number| keyspace.insert(key(number), [7; 60]).unwrap());
}

fn numbers(keyspace: &Keyspace) -> Vec<u32> {
    let number = |key: Vec<u8>| String::from_utf8(key).unwrap()[3..].parse().unwrap();
    contents(keyspace).into_keys().map(number).collect()
}

fn removals(db: &Db) -> u64 {
    db.stats().unwrap().keyspaces.iter().map(|keyspace| keyspace.removed_ranges).sum()
}

#[test]
fn all_keys_of_a_range_are_gone_by_one_number() {
    // Where time passes, a commit with history also writes its moment, by a number of its own.
    let clock = Arc::new(SimRuntime::new(1));
    let db = small(&MemoryDevice::new()).runtime(clock).open().unwrap();
    let keys = tiny(&db, "keys");
    fill(&keys, 0..1000);
    let (before, written) = (db.visible_seq(), db.stats().unwrap().user_bytes_written);
    let snapshot = db.snapshot().unwrap();
    keys.remove_range(key(10)..key(990)).unwrap();
    assert_eq!(db.visible_seq(), before + 1);
    assert!(db.stats().unwrap().user_bytes_written - written < 30);
    assert_eq!(numbers(&keys), [(0..10).collect::<Vec<_>>(), (990..1000).collect()].concat());
    assert_eq!(keys.multi_get([key(9), key(10)]).unwrap(), [Some(vec![7; 60]), None]);
    keys.insert(key(500), "again").unwrap();
    assert_eq!(keys.get(key(500)).unwrap().unwrap(), b"again");
    for _ in 0..2 {
        assert_eq!(snapshot.iter(&keys).unwrap().count(), 1000);
        assert_eq!(snapshot.get(&keys, key(500)).unwrap().unwrap(), [7; 60]);
        assert_eq!(numbers(&keys).len(), 21);
        db.compact().unwrap();
        assert_sound(&db);
    }
    // Where history is kept, the keys have tombstones.
    assert_eq!(removals(&db), if keeps_history() { 0 } else { 1 });
    drop(snapshot);
    if keeps_history() {
        return;
    }
    db.compact().unwrap();
    let stats = db.stats().unwrap();
    let puts: u64 = stats.keyspaces[0].levels.iter().map(|level| level.puts).sum();
    assert_eq!((removals(&db), puts, numbers(&keys).len()), (0, 21, 21));
    assert_sound(&db);
}

#[test]
fn bounds_of_all_kinds_are_kept_to() {
    let db = small(&MemoryDevice::new()).open().unwrap();
    let keys = tiny(&db, "keys");
    let left = |bounds: (Bound<&str>, Bound<&str>)| {
        ["", "a", "a\0", "b", "c"].iter().for_each(|key| keys.insert(key, "v").unwrap());
        keys.remove_range::<&str>(bounds).unwrap();
        let left = contents(&keys).into_keys().map(|key| String::from_utf8(key).unwrap());
        left.collect::<Vec<_>>()
    };
    let (included, excluded) = (Bound::Included, Bound::Excluded);
    assert_eq!(left((included("a"), excluded("b"))), ["", "b", "c"]);
    assert_eq!(left((excluded("a"), included("b"))), ["", "a", "c"]);
    assert_eq!(left((Bound::Unbounded, included("a"))), ["a\0", "b", "c"]);
    assert_eq!(left((excluded("a\0"), Bound::Unbounded)), ["", "a", "a\0"]);
    assert_eq!(left((Bound::Unbounded, Bound::Unbounded)), [""; 0]);
    let before = db.visible_seq();
    assert_eq!(left((included("b"), excluded("a"))).len(), 5);
    assert_eq!(left((excluded("a"), excluded("a\0"))).len(), 5);
    assert_eq!(left((Bound::Unbounded, excluded(""))).len(), 5);
    let written = db.visible_seq() - before;
    assert!(written == 15 || keeps_history(), "a range without keys is no operation");
    keys.remove_prefix("a").unwrap();
    assert_eq!(contents(&keys).len(), 3);
    keys.remove_prefix("").unwrap();
    assert!(contents(&keys).is_empty());
}

#[test]
fn a_batch_removes_what_came_before_and_keeps_what_comes_after() {
    let db = small(&MemoryDevice::new()).open().unwrap();
    let (left, right) = (tiny(&db, "left"), tiny(&db, "right"));
    fill(&left, 0..5);
    fill(&right, 0..5);
    let before = db.visible_seq();
    let mut batch = db.batch();
    batch.insert(&left, key(7), "before");
    batch.remove_range(&left, key(1)..key(3));
    batch.remove_range(&left, key(3)..);
    batch.insert(&left, key(2), "after");
    batch.insert(&right, key(2), "after");
    assert_eq!(batch.commit().unwrap(), before + 3);
    assert_eq!(numbers(&left), [0, 2]);
    assert_eq!(numbers(&right), [0, 1, 2, 3, 4]);
    assert_eq!((removals(&db), left.get(key(2)).unwrap().unwrap()), (1, b"after".to_vec()));
}

#[test]
fn a_read_of_a_removed_range_conflicts() {
    let db = small(&MemoryDevice::new()).open().unwrap();
    let keys = tiny(&db, "keys");
    fill(&keys, 0..20);
    let conflicts = |read: &dyn Fn(&esker::Transaction), bounds: std::ops::Range<u32>| {
        let mut tx = db.transaction().unwrap();
        read(&tx);
        tx.insert(&keys, "mine", "").unwrap();
        keys.remove_range(key(bounds.start)..key(bounds.end)).unwrap();
        tx.commit().is_err_and(|error| error.is_conflict())
    };
    let keys = &keys;
    let get = |number: u32| move |tx: &esker::Transaction| drop(tx.get(keys, key(number)).unwrap());
    assert!(conflicts(&get(5), 5..6));
    assert!(conflicts(&get(5), 0..20), "also when it was absent");
    assert!(!conflicts(&get(5), 6..20) && !conflicts(&get(5), 0..5));
    let scan = |tx: &esker::Transaction| {
        assert_eq!(tx.range(keys, key(8)..key(10)).unwrap().filter(Result::is_err).count(), 0);
    };
    assert!(conflicts(&scan, 9..30) && conflicts(&scan, 0..9));
    assert!(!conflicts(&scan, 10..30) && !conflicts(&scan, 0..8));
}

#[test]
fn a_transaction_that_removes_a_range_reads_nothing_of_it() {
    let db = small(&MemoryDevice::new()).open().unwrap();
    let keys = tiny(&db, "keys");
    fill(&keys, 0..20);
    let mut tx = db.transaction().unwrap();
    tx.insert(&keys, key(3), "gone").unwrap();
    tx.remove_range(&keys, key(2)..key(18)).unwrap();
    tx.insert(&keys, key(4), "stays").unwrap();
    let found = |tx: &esker::Transaction| -> Vec<Vec<u8>> {
        tx.iter(&keys).unwrap().map(|entry| entry.unwrap().0).collect()
    };
    assert_eq!(tx.get(&keys, key(3)).unwrap(), None);
    assert_eq!(tx.multi_get(&keys, [key(4), key(5)]).unwrap(), [Some(b"stays".to_vec()), None]);
    // What is written in the range meanwhile is removed with it.
    keys.insert(key(6), "meanwhile").unwrap();
    tx.commit().unwrap();
    assert_eq!(numbers(&keys), [0, 1, 4, 18, 19]);

    let mut tx = db.transaction().unwrap();
    tx.remove_range(&keys, key(2)..key(18)).unwrap();
    assert_eq!(found(&tx).len(), 4);
    let ends = (tx.first(&keys).unwrap().unwrap().0, tx.last(&keys).unwrap().unwrap().0);
    assert_eq!(ends, (key(0).into_bytes(), key(19).into_bytes()));
    keys.insert(key(1), "read before").unwrap();
    assert!(tx.commit().unwrap_err().is_conflict());
}

#[test]
fn removals_survive_kills_merges_and_backups() {
    let device = MemoryDevice::new();
    let db = threaded(&device).inline_merges(1).open().unwrap();
    let (keys, folder) = (tiny(&db, "keys"), MemoryDevice::new());
    let mut cut = Vec::new();
    for round in 0..6 {
        fill(&keys, 0..300);
        keys.remove_range(key(round * 50)..key(round * 50 + 100)).unwrap();
        keys.insert(key(round * 50 + 10), "again").unwrap();
        cut.push((copy(&device), contents(&keys)));
        if round == 3 {
            back_up(&db, &folder).unwrap();
        }
    }
    cut.push((restored(&folder), cut[3].1.clone()));
    for (device, expected) in cut {
        let db = small(&device).create(false).open().unwrap();
        let keys = tiny(&db, "keys");
        for _ in 0..2 {
            assert_eq!(contents(&keys), expected);
            assert_sound(&db);
            db.compact().unwrap();
        }
        assert_eq!(removals(&db), 0);
    }
}

#[test]
fn a_lone_removal_does_not_hold_the_log() {
    let db = small(&MemoryDevice::new()).open().unwrap();
    let (lone, busy) = (tiny(&db, "lone"), tiny(&db, "busy"));
    lone.remove_range("a".."b").unwrap();
    for number in 0..20_000_u32 {
        busy.insert(key(number % 100), [number as u8; 100]).unwrap();
    }
    let space = db.stats().unwrap().space;
    assert!(space.log_bytes < 2 << 20, "{space:?}");
    assert_sound(&db);
}

#[test]
fn too_many_ranges_under_a_snapshot_are_refused_and_room_comes_back() {
    if !without_history("none is refused") {
        return;
    }
    let device = MemoryDevice::new();
    let db = threaded(&device).open().unwrap();
    let keys = tiny(&db, "keys");
    fill(&keys, 0..200);
    let remove = |number: u32| keys.remove_range(key(2 * number)..key(2 * number + 1));
    // Without a snapshot there is no end: they wait for full merges.
    (0..9000).for_each(|number| remove(number).unwrap());
    assert!(removals(&db) <= 4096);
    let snapshot = db.snapshot().unwrap();
    let refused = (9000..20_000).find_map(|number| remove(number).err()).unwrap();
    assert!(matches!(refused, Error::Full { .. }), "{refused}");
    let said = refused.to_string();
    assert!(said.starts_with("no space left for a removed range in keyspace keys"), "{said}");
    // Nor is the keyspace compacted for each one.
    let merges = || db.stats().unwrap().keyspaces[0].merges;
    let before = merges();
    for number in 0..200 {
        keys.insert(key(number), [8; 100]).unwrap();
        assert!(matches!(remove(30_000 + number), Err(Error::Full { .. })));
    }
    assert!(merges() < before + 100, "{before} compactions, and then {}", merges());
    keys.insert("others", "go on").unwrap();
    assert_eq!(snapshot.get(&keys, "others").unwrap(), None);
    drop(snapshot);
    keys.compact().unwrap();
    remove(20_000).unwrap();
    assert_sound(&db);
    assert!(!copy(&device).list().unwrap().is_empty());
}

#[test]
fn ranges_of_long_keys_are_not_refused() {
    let db = small(&MemoryDevice::new()).memory_budget(4 << 20).open().unwrap();
    let keys = db.keyspace("keys", options()).unwrap();
    let long = |number: u32| format!("{number:08}").repeat(1000);
    (0..200).for_each(|number| keys.remove_range(long(2 * number)..long(2 * number + 1)).unwrap());
    assert_sound(&db);
}

/// A version that does not know of them finds bit 4 in the superblock.
#[test]
fn the_first_removal_sets_a_required_feature() {
    let device = MemoryDevice::new();
    let db = small(&device).open().unwrap();
    let keys = tiny(&db, "keys");
    fill(&keys, 0..10);
    assert_eq!(required_features(&device), 0);
    keys.remove_range(key(3)..).unwrap();
    assert_eq!(required_features(&device), 1 << 4);
}

/// Removals wait for compactions that keep step with them, and are not refused.
#[test]
fn ranges_removed_one_after_the_other_are_not_refused() {
    const KEYS: u32 = 12_000;
    let folder = tempfile::tempdir().unwrap();
    let db = Db::builder(folder.path().join("store")).memory_budget(4 << 20).open().unwrap();
    let keys = db.keyspace("keys", options()).unwrap();
    (0..KEYS).for_each(|number| keys.insert(key(number), [7; 1000]).unwrap());
    (0..KEYS).for_each(|number| keys.remove_range(key(number)..key(number + 1)).unwrap());
    assert!(contents(&keys).is_empty());
    assert_sound(&db);
}
