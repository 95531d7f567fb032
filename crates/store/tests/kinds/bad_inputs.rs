//! Mistakes of callers, and the errors that they get.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::sync::Arc;

use crate::common::{assert_sound, keeps_history, options, small, tiny};
use esker::{Db, Device, Error, INLINE_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use esker_device::memory::MemoryDevice;
use esker_device::{Caching, Open};

fn open_small() -> Db {
    small(&MemoryDevice::new()).open().unwrap()
}

#[test]
fn the_longest_keys_and_values_are_taken_and_longer_ones_refused() {
    let device = MemoryDevice::new();
    let db = small(&device).open().unwrap();
    let keyspace = tiny(&db, "k");
    let long_key = vec![0xff; KEY_BYTES_MAX];
    let long_value = vec![7; INLINE_BYTES_MAX];
    keyspace.insert("", "").unwrap();
    keyspace.insert(&long_key, &long_value).unwrap();
    keyspace.insert([0xff; 100], "x").unwrap();
    let too_long = [long_key.as_slice(), b"x"].concat();
    assert!(matches!(keyspace.insert(&too_long, ""), Err(Error::Invalid { .. })));
    assert!(matches!(keyspace.remove(&too_long), Err(Error::Invalid { .. })));
    assert!(matches!(keyspace.get(&too_long), Err(Error::Invalid { .. })));
    let too_much = vec![0; VALUE_BYTES_MAX + 1];
    assert!(matches!(keyspace.insert("a", &too_much), Err(Error::Invalid { .. })));
    db.compact().unwrap();
    db.close().unwrap();
    let db = small(&device).open().unwrap();
    let keyspace = tiny(&db, "k");
    assert_eq!(keyspace.get("").unwrap().unwrap(), b"");
    assert_eq!(keyspace.get(&long_key).unwrap().unwrap(), long_value);
    assert_eq!(keyspace.range(too_long..).unwrap().count(), 0);
    assert_eq!(keyspace.last().unwrap().unwrap().0, long_key);
    assert_eq!(keyspace.first().unwrap().unwrap().0, b"");
    assert_sound(&db);
}

#[test]
fn reversed_and_equal_bounds_are_empty_and_absent_keys_can_be_deleted() {
    let db = open_small();
    let keyspace = tiny(&db, "k");
    keyspace.insert("b", "1").unwrap();
    keyspace.remove("absent").unwrap();
    assert_eq!(keyspace.range("c".."a").unwrap().count(), 0);
    assert_eq!(keyspace.range("b".."b").unwrap().count(), 0);
    assert_eq!(keyspace.range("b"..="b").unwrap().count(), 1);
    assert_eq!(keyspace.range("c".."a").unwrap().next_back().map(drop), None);
    assert_eq!(keyspace.prefix("").unwrap().count(), 1);
}

#[test]
fn batches_may_be_empty_repeat_keys_and_exceed_the_log_but_not_the_budget() {
    let db = open_small();
    let keyspace = tiny(&db, "k");
    assert_eq!(db.batch().commit().unwrap(), 0);
    let mut batch = db.batch();
    batch.insert(&keyspace, "a", "1");
    batch.remove(&keyspace, "a");
    batch.insert(&keyspace, "a", "2");
    batch.insert(&keyspace, "b", "1");
    batch.remove(&keyspace, "b");
    // The moment of a commit has a number too.
    assert_eq!(batch.commit().unwrap(), 2 + u64::from(keeps_history()));
    assert_eq!(keyspace.get("a").unwrap().unwrap(), b"2");
    assert_eq!(keyspace.get("b").unwrap(), None);
    let mut batch = db.batch();
    for number in 0..20 {
        batch.insert(&keyspace, [number], [1; 100_000]);
    }
    batch.commit().unwrap();
    assert_eq!(keyspace.get([19]).unwrap().unwrap(), [1; 100_000]);
    let mut batch = db.batch();
    for number in 0..60_u8 {
        batch.insert(&keyspace, [number], [2; 100_000]);
    }
    assert!(matches!(batch.commit(), Err(Error::Invalid { .. })));
    assert_eq!(keyspace.get([0]).unwrap().unwrap(), [1; 100_000]);
    assert_sound(&db);
}

#[test]
fn handles_of_another_store_are_refused() {
    let (db, other) = (open_small(), open_small());
    let (keyspace, foreign) = (tiny(&db, "k"), tiny(&other, "k"));
    let mut batch = db.batch();
    batch.insert(&keyspace, "a", "1");
    assert!(batch.refused().is_none());
    batch.insert(&foreign, "a", "1");
    assert!(matches!(batch.refused(), Some(Error::Invalid { .. })));
    assert!(matches!(batch.commit(), Err(Error::Invalid { .. })));
    assert_eq!(keyspace.get("a").unwrap(), None);
    let snapshot = db.snapshot().unwrap();
    assert!(matches!(snapshot.get(&foreign, "a"), Err(Error::Invalid { .. })));
    assert!(matches!(snapshot.iter(&foreign), Err(Error::Invalid { .. })));
}

#[test]
fn names_and_options_are_checked() {
    let db = open_small();
    let create = |name: &str| db.keyspace(name, options());
    assert!(matches!(create(""), Err(Error::Invalid { .. })));
    assert!(matches!(create("a\nb"), Err(Error::Invalid { .. })));
    assert!(matches!(create(&"x".repeat(256)), Err(Error::Invalid { .. })));
    create(&"x".repeat(255)).unwrap();
    create("ünïcode/..").unwrap();
    let none = options().memtable_bytes(Some(0));
    assert!(matches!(db.keyspace("k", none), Err(Error::Invalid { .. })));
    let device = MemoryDevice::new();
    let open = || Db::builder_on(Arc::new(device.clone()));
    assert!(matches!(open().memory_budget(0).open(), Err(Error::Invalid { .. })));
    assert!(matches!(open().log_segment_bytes(1).open(), Err(Error::Invalid { .. })));
    assert_eq!(device.list().unwrap(), Vec::<String>::new());
}

#[test]
fn closed_stores_and_dropped_keyspaces_say_so() {
    let db = open_small();
    let keyspace = tiny(&db, "k");
    keyspace.insert("a", "1").unwrap();
    let (snapshot, mut range) = (db.snapshot().unwrap(), keyspace.iter().unwrap());
    assert!(!db.drop_keyspace("absent").unwrap());
    assert!(db.drop_keyspace("k").unwrap());
    assert!(matches!(keyspace.get("a"), Err(Error::NoKeyspace { .. })));
    assert!(matches!(keyspace.insert("a", ""), Err(Error::NoKeyspace { .. })));
    assert!(matches!(keyspace.iter(), Err(Error::NoKeyspace { .. })));
    assert!(matches!(keyspace.flush(), Err(Error::NoKeyspace { .. })));
    assert!(matches!(snapshot.get(&keyspace, "a"), Err(Error::NoKeyspace { .. })));
    assert!(matches!(range.next(), Some(Err(Error::NoKeyspace { .. }))));
    assert!(range.next().is_none());
    let again = tiny(&db, "k");
    assert_eq!(again.get("a").unwrap(), None);
    db.clone().close().unwrap();
    assert!(matches!(again.get("a"), Err(Error::Closed)));
    assert!(matches!(again.insert("a", ""), Err(Error::Closed)));
    assert!(matches!(again.iter(), Err(Error::Closed)));
    assert!(matches!(snapshot.get(&again, "a"), Err(Error::Closed)));
    assert!(matches!(db.snapshot(), Err(Error::Closed)));
    assert!(matches!(db.keyspaces(), Err(Error::Closed)));
    assert!(matches!(db.stats(), Err(Error::Closed)));
    assert!(matches!(db.persist(), Err(Error::Closed)));
    assert!(matches!(db.batch().commit(), Err(Error::Closed)));
    assert!(matches!(db.close(), Err(Error::Closed)));
}

#[test]
fn one_store_is_open_once() {
    let device = MemoryDevice::new();
    let db = small(&device).open().unwrap();
    let keyspace = tiny(&db, "k");
    assert!(matches!(small(&device).open(), Err(Error::Locked { .. })));
    drop(db);
    assert!(matches!(small(&device).open(), Err(Error::Locked { .. })), "a keyspace holds it too");
    drop(keyspace);
    small(&device).create(false).open().unwrap();
}

#[test]
fn foreign_folders_and_files_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let open = |path: &std::path::Path, create| Db::builder(path).create(create).open();
    assert!(matches!(open(&missing, false), Err(Error::NoStore { .. })));
    assert!(!missing.exists());
    assert!(matches!(open(folder.path(), false), Err(Error::NoStore { .. })));
    let file = folder.path().join("file");
    fs::write(&file, "text").unwrap();
    assert!(matches!(open(&file, true), Err(Error::NotAStore { .. })));
    assert!(matches!(open(folder.path(), true), Err(Error::NotAStore { .. })));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing was added");
    assert_eq!(fs::read(&file).unwrap(), b"text");
    let nowhere = folder.path().join("a\0b");
    assert!(open(&nowhere, true).is_err());
}

#[test]
fn a_store_without_its_superblock_is_damaged_and_not_recreated() {
    let device = MemoryDevice::new();
    let db = small(&device).open().unwrap();
    tiny(&db, "k").insert("a", "1").unwrap();
    db.close().unwrap();
    device.remove("superblock").unwrap();
    let before = device.list().unwrap();
    assert!(matches!(small(&device).open(), Err(Error::Damaged { .. })));
    assert_eq!(device.list().unwrap(), before);
}

#[test]
fn what_a_stopped_creation_left_is_completed() {
    let device = MemoryDevice::new();
    for name in ["data", "superblock.new"] {
        device.open(name, Open::CreateNew, Caching::Buffered).unwrap();
    }
    assert!(matches!(small(&device).create(false).open(), Err(Error::NoStore { .. })));
    let db = small(&device).open().unwrap();
    tiny(&db, "k").insert("a", "1").unwrap();
    assert_sound(&db);
}
