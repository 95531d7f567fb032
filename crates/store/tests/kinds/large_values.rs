//! Values that are stored as blobs.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{keeps_history, without_history};
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use crate::common;
use esker::{
    Backup, Compression, Db, Device, Durability, Error, Keyspace, KeyspaceOptions, Result,
};
use esker_device::memory::MemoryDevice;
use esker_device::sim::{CrashModel, CrashOptions, SimDevice, SimImage, Survivors};
use esker_device::{Caching, Open, Purpose};
use esker_harness::crash;

/// Values above this are blobs.
const INLINE: u64 = 100;

fn options() -> KeyspaceOptions {
    common::options().inline_bytes_max(INLINE)
}

fn device() -> Arc<dyn Device> {
    Arc::new(MemoryDevice::new())
}

fn open(device: &Arc<dyn Device>) -> (Db, Keyspace) {
    let db = Db::builder_on(Arc::clone(device)).open().unwrap();
    let keyspace = db.keyspace("k", options()).unwrap();
    (db, keyspace)
}

/// Bytes that no two values share.
fn value(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Bytes of the data file that values take.
fn value_bytes(db: &Db) -> u64 {
    db.stats().unwrap().keyspaces.iter().map(|keyspace| keyspace.value_bytes).sum()
}

fn check(db: &Db) {
    let report = db.check().unwrap();
    assert!(report.is_ok(), "{:?}", report.problems);
}

#[test]
fn values_of_all_lengths_are_read_as_they_were_written() {
    let device = device();
    let (db, keyspace) = open(&device);
    let lengths = [0, 1, 100, 101, 4056, 4057, 65_495, 65_496, 65_497, 130_992, 300_000, 3_000_000];
    let all = |keyspace: &Keyspace| {
        for (number, len) in lengths.into_iter().enumerate() {
            let expected = value(number as u64, len);
            assert_eq!(keyspace.get([number as u8]).unwrap().as_ref(), Some(&expected), "{len}");
            assert!(keyspace.contains([number as u8]).unwrap());
        }
        let entries: Vec<_> = keyspace.iter().unwrap().map(Result::unwrap).collect();
        assert_eq!(entries.len(), lengths.len());
        assert!(entries.iter().zip(lengths).all(|((_, value), len)| value.len() == len));
        let keys: Vec<_> = (0..lengths.len() as u8).map(|number| [number]).collect();
        let found = keyspace.multi_get(&keys).unwrap();
        assert!(found.iter().zip(lengths).all(|(value, len)| value.as_ref().unwrap().len() == len));
    };
    for (number, len) in lengths.into_iter().enumerate() {
        keyspace.insert([number as u8], value(number as u64, len)).unwrap();
    }
    all(&keyspace);
    check(&db);
    keyspace.flush().unwrap();
    all(&keyspace);
    check(&db);
    keyspace.compact().unwrap();
    all(&keyspace);
    check(&db);
    db.close().unwrap();
    let (db, keyspace) = open(&device);
    all(&keyspace);
    check(&db);
}

#[test]
fn what_is_written_over_or_removed_comes_back_once() {
    if !without_history("every version stays") {
        return;
    }
    let device = device();
    let (db, keyspace) = open(&device);
    for round in 0..5u64 {
        for key in 0..20u8 {
            keyspace.insert([key], value(round * 20 + u64::from(key), 10_000)).unwrap();
        }
        if round == 2 {
            keyspace.flush().unwrap();
        }
    }
    // Two rounds went when the memtable was written out.
    assert_eq!(value_bytes(&db), 60 * 12_288);
    check(&db);
    keyspace.compact().unwrap();
    assert_eq!(value_bytes(&db), 20 * 12_288);
    check(&db);
    for key in 0..20u8 {
        let expected = value(80 + u64::from(key), 10_000);
        assert_eq!(keyspace.get([key]).unwrap(), Some(expected));
    }
    for key in 0..20u8 {
        keyspace.remove([key]).unwrap();
    }
    keyspace.compact().unwrap();
    assert_eq!(value_bytes(&db), 0);
    check(&db);
    let space = db.stats().unwrap().space;
    assert!(space.allocated_bytes < 64 << 10, "{space:?}");
}

#[test]
fn a_value_that_is_written_over_again_and_again_takes_bounded_space() {
    if !without_history("every version stays") {
        return;
    }
    // Without threads, so that it is the same every time.
    let db = Db::builder_on(device()).inline_merges(1).open().unwrap();
    let keyspace = db.keyspace("m", options().memtable_bytes(Some(8 << 10))).unwrap();
    for round in 0..400 {
        keyspace.insert("k", value(round, 20_000)).unwrap();
    }
    // Sixteen memtables' worth, and what is being written out.
    let bytes = db.stats().unwrap().space.allocated_bytes;
    assert!(bytes < 2 << 20, "{bytes}");
    check(&db);
}

#[test]
fn logged_values_survive_a_store_that_is_not_closed() {
    let device = device();
    let (db, keyspace) = open(&device);
    keyspace.insert("a", value(1, 200_000)).unwrap();
    keyspace.flush().unwrap();
    keyspace.insert("a", value(2, 200_000)).unwrap();
    keyspace.insert("b", value(3, 200_000)).unwrap();
    db.close().unwrap();
    let (db, keyspace) = open(&device);
    // Space that the log refers to is not used for another value.
    keyspace.insert("c", value(4, 200_000)).unwrap();
    for (key, seed) in [("a", 2), ("b", 3), ("c", 4)] {
        assert_eq!(keyspace.get(key).unwrap(), Some(value(seed, 200_000)));
    }
    check(&db);
    keyspace.compact().unwrap();
    check(&db);
    assert_eq!(value_bytes(&db), (3 + u64::from(keeps_history())) * 200_704);
}

#[test]
fn a_reader_streams_what_was_there_whatever_happens_meanwhile() {
    let (db, keyspace) = open(&device());
    let old = value(1, 500_000);
    keyspace.insert("k", &old).unwrap();
    keyspace.insert("short", "abc").unwrap();
    let mut reader = keyspace.reader("k").unwrap().unwrap();
    let snapshot = db.snapshot().unwrap();
    let mut first = vec![0; 1000];
    reader.read_exact(&mut first).unwrap();
    assert_eq!(first, old[..1000]);
    keyspace.insert("k", value(2, 500_000)).unwrap();
    keyspace.compact().unwrap();
    keyspace.remove("k").unwrap();
    keyspace.compact().unwrap();
    keyspace.insert("l", value(3, 2_000_000)).unwrap();
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).unwrap();
    assert!(rest == old[1000..]);
    for at in [0, 1, 65_495, 65_496, 65_497, 400_000, 499_999] {
        reader.seek(SeekFrom::Start(at)).unwrap();
        let mut byte = [0];
        reader.read_exact(&mut byte).unwrap();
        assert_eq!(byte[0], old[at as usize]);
    }
    assert_eq!(reader.seek(SeekFrom::End(-3)).unwrap(), 499_997);
    assert_eq!(reader.read(&mut first).unwrap(), 3);
    assert_eq!(reader.read(&mut first).unwrap(), 0);
    assert!(reader.seek(SeekFrom::Current(-600_000)).is_err());
    reader.seek(SeekFrom::Start(1 << 40)).unwrap();
    assert_eq!(reader.read(&mut first).unwrap(), 0);
    assert_eq!(snapshot.get(&keyspace, "k").unwrap().as_ref(), Some(&old));
    assert_eq!(snapshot.reader(&keyspace, "k").unwrap().unwrap().len(), 500_000);
    assert!(keyspace.reader("k").unwrap().is_none());
    let mut short = keyspace.reader("short").unwrap().unwrap();
    let mut text = String::new();
    short.read_to_string(&mut text).unwrap();
    assert_eq!(text, "abc");
    drop((reader, snapshot, short));
    keyspace.compact().unwrap();
    assert!(keeps_history() || value_bytes(&db) == 2_002_944);
    check(&db);
}

#[test]
fn a_writer_streams_and_one_that_is_dropped_leaves_nothing() {
    let device = device();
    let (db, keyspace) = open(&device);
    for (key, len) in [("none", 0), ("short", 100), ("blob", 101), ("long", 5_000_000)] {
        let expected = value(len as u64, len);
        let mut writer = keyspace.writer(key).unwrap();
        for part in expected.chunks(7_777) {
            writer.write_all(part).unwrap();
        }
        assert_eq!(keyspace.get(key).unwrap(), None);
        assert_eq!(writer.bytes(), len as u64);
        writer.finish_with(Durability::Synced).unwrap();
        assert!(keyspace.get(key).unwrap() == Some(expected));
    }
    check(&db);
    let before = db.stats().unwrap().space.allocated_bytes;
    let mut writer = keyspace.writer("dropped").unwrap();
    writer.write_all(&value(9, 3_000_000)).unwrap();
    assert!(db.stats().unwrap().space.allocated_bytes > before);
    check(&db);
    drop(writer);
    assert_eq!(db.stats().unwrap().space.allocated_bytes, before);
    assert_eq!(keyspace.get("dropped").unwrap(), None);
    let mut writer = keyspace.writer("closed").unwrap();
    writer.write_all(&value(9, 300_000)).unwrap();
    db.close().unwrap();
    assert!(writer.write_all(b"more").is_err());
    assert!(matches!(writer.finish(), Err(Error::Closed)));
    let (db, keyspace) = open(&device);
    assert_eq!(keyspace.get("long").unwrap().unwrap().len(), 5_000_000);
    check(&db);
}

#[test]
fn batches_and_transactions_take_large_values() {
    let (db, keyspace) = open(&device());
    let mut batch = db.batch();
    batch.insert(&keyspace, "a", value(1, 70_000));
    batch.insert(&keyspace, "a", value(2, 70_000));
    batch.insert(&keyspace, "b", "short");
    batch.commit().unwrap();
    assert_eq!(keyspace.get("a").unwrap(), Some(value(2, 70_000)));
    let mut tx = db.transaction().unwrap();
    assert_eq!(tx.get(&keyspace, "a").unwrap(), Some(value(2, 70_000)));
    tx.insert(&keyspace, "c", value(3, 70_000)).unwrap();
    assert_eq!(tx.get(&keyspace, "c").unwrap(), Some(value(3, 70_000)));
    assert_eq!(tx.iter(&keyspace).unwrap().count(), 3);
    let used = value_bytes(&db);
    keyspace.insert("a", "other").unwrap();
    assert!(tx.commit().is_err_and(|error| error.is_conflict()));
    // What was written for it is free.
    assert_eq!(value_bytes(&db), used);
    check(&db);
    let mut tx = db.transaction().unwrap();
    tx.insert(&keyspace, "c", value(4, 70_000)).unwrap();
    tx.commit().unwrap();
    assert_eq!(keyspace.get("c").unwrap(), Some(value(4, 70_000)));
    check(&db);
}

#[test]
fn large_values_expire() {
    let (db, keyspace) = open(&device());
    keyspace.insert_with_ttl("soon", value(1, 9_000), Duration::from_millis(30)).unwrap();
    keyspace.insert_with_ttl("late", value(2, 9_000), Duration::from_secs(9_000)).unwrap();
    let mut reader = keyspace.reader("late").unwrap().unwrap();
    std::thread::sleep(Duration::from_millis(40));
    assert_eq!(keyspace.get("soon").unwrap(), None);
    assert!(keyspace.reader("soon").unwrap().is_none());
    keyspace.compact().unwrap();
    check(&db);
    // The reader is of a moment at which both were there.
    assert_eq!(value_bytes(&db), 2 * 12_288);
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, value(2, 9_000));
    drop(reader);
    keyspace.compact().unwrap();
    check(&db);
    assert_eq!(value_bytes(&db), (1 + u64::from(keeps_history())) * 12_288);
}

#[test]
fn a_dropped_keyspace_frees_its_blobs_and_reads_fail() {
    let (db, keyspace) = open(&device());
    keyspace.insert("a", value(1, 300_000)).unwrap();
    keyspace.flush().unwrap();
    keyspace.insert("b", value(2, 300_000)).unwrap();
    let mut reader = keyspace.reader("a").unwrap().unwrap();
    let mut writer = keyspace.writer("c").unwrap();
    writer.write_all(&value(3, 300_000)).unwrap();
    assert!(db.drop_keyspace("k").unwrap());
    let mut byte = [0];
    let error = reader.read(&mut byte).unwrap_err().to_string();
    assert!(error.contains("no keyspace k"), "{error}");
    assert!(matches!(writer.finish(), Err(Error::NoKeyspace { .. })));
    check(&db);
    let other = db.keyspace("other", options()).unwrap();
    other.insert("a", value(4, 600_000)).unwrap();
    assert_eq!(other.get("a").unwrap(), Some(value(4, 600_000)));
    check(&db);
}

#[test]
fn compressed_keyspaces_keep_large_values_as_they_are() {
    let device = device();
    let (db, keyspace) = open(&device);
    drop(keyspace);
    let keyspace = db.keyspace("z", options().compression(Compression::Lz4)).unwrap();
    for key in 0..50u8 {
        keyspace.insert([key], vec![key; 5_000]).unwrap();
        keyspace.insert([key, key], vec![key; 50]).unwrap();
    }
    keyspace.compact().unwrap();
    check(&db);
    assert_eq!(keyspace.get([7]).unwrap(), Some(vec![7; 5_000]));
    assert_eq!(value_bytes(&db), 50 * 8192);
}

#[test]
fn writers_in_many_threads_write_concurrently() {
    let (db, keyspace) = open(&device());
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let keyspace = keyspace.clone();
            scope.spawn(move || {
                for number in 0..40u8 {
                    let seed = u64::from(thread) * 100 + u64::from(number);
                    keyspace.insert([thread, number % 10], value(seed, 30_000)).unwrap();
                }
            });
        }
        for _ in 0..5 {
            check(&db);
            keyspace.compact().unwrap();
        }
    });
    for thread in 0..4u8 {
        for number in 30..40u8 {
            let seed = u64::from(thread) * 100 + u64::from(number);
            assert_eq!(keyspace.get([thread, number % 10]).unwrap(), Some(value(seed, 30_000)));
        }
    }
    keyspace.compact().unwrap();
    assert!(keeps_history() || value_bytes(&db) == 40 * 32_768);
    check(&db);
}

#[test]
fn backups_copy_a_value_once() {
    let (db, keyspace) = open(&device());
    for key in 0..20u8 {
        keyspace.insert([key], value(u64::from(key), 100_000)).unwrap();
    }
    keyspace.flush().unwrap();
    keyspace.insert("logged", value(20, 100_000)).unwrap();
    let folder = device();
    let backup =
        |db: &Db| db.backup_on(Arc::clone(&folder), &mut |_| ControlFlow::Continue(())).unwrap();
    let first = backup(&db);
    assert!(first.bytes_written > 21 * 100_000, "{first:?}");
    // All references are written anew, and no value.
    keyspace.insert("more", "abc").unwrap();
    keyspace.remove([3]).unwrap();
    keyspace.insert([4], value(44, 100_000)).unwrap();
    keyspace.compact().unwrap();
    let second = backup(&db);
    assert!(second.bytes_written < 200_000, "{second:?}");
    assert!(second.bytes_reused > 18 * 100_000, "{second:?}");
    let backup = Backup::open_on(Arc::clone(&folder)).unwrap();
    let report = backup.check().unwrap();
    assert!(report.is_ok(), "{:?}", report.problems);
    assert_eq!(report.values, if keeps_history() { 22 } else { 20 });
    let restored = device();
    backup.restore_on(Arc::clone(&restored), &mut |_| ControlFlow::Continue(())).unwrap();
    let (copy, copied) = open(&restored);
    let entries =
        |keyspace: &Keyspace| -> Vec<_> { keyspace.iter().unwrap().map(Result::unwrap).collect() };
    assert!(entries(&copied) == entries(&keyspace));
    check(&copy);
    // Both go their own way, with the same numbers: one of them is refused.
    keyspace.insert([5], value(55, 100_000)).unwrap();
    copied.insert([5], value(66, 100_000)).unwrap();
    drop(backup);
    db.backup_on(Arc::clone(&folder), &mut |_| ControlFlow::Continue(())).unwrap();
    let other = copy.backup_on(Arc::clone(&folder), &mut |_| ControlFlow::Continue(()));
    assert!(matches!(other, Err(Error::Invalid { .. })), "{other:?}");
}

#[test]
fn check_reads_values_that_the_log_alone_refers_to() {
    let device = device();
    let (db, keyspace) = open(&device);
    keyspace.insert("k", value(1, 300_000)).unwrap();
    let whole = db.check().unwrap();
    assert!(whole.is_ok() && whole.values == 1, "{whole:?}");
    let file = device.open("data", Open::Existing, Caching::Buffered).unwrap();
    file.write_at(200_000, b"?", Purpose::Check).unwrap();
    let report = db.check().unwrap();
    let [problem] = &*report.problems else { panic!("{report:?}") };
    assert_eq!((&*problem.file, problem.offset / 65_536), ("data", 200_000 / 65_536));
    assert!(matches!(keyspace.get("k"), Err(Error::Damaged { .. })));
}

#[test]
fn readers_of_a_closed_store_say_so() {
    let device = device();
    let (db, keyspace) = open(&device);
    keyspace.insert("short", value(1, 50)).unwrap();
    keyspace.insert("long", value(1, 5000)).unwrap();
    let readers = ["short", "long"].map(|key| keyspace.reader(key).unwrap().unwrap());
    db.close().unwrap();
    for mut reader in readers {
        let error = reader.read(&mut [0; 10]).unwrap_err();
        assert!(matches!(error.downcast(), Ok(Error::Closed)));
    }
}

fn crashed(device: &SimDevice, survivors: &Survivors) -> SimImage {
    device.crash(survivors, &CrashModel::default())
}

fn simulated(image: &SimImage) -> (Arc<SimDevice>, Db, Keyspace) {
    let device = Arc::new(SimDevice::from_image(image));
    let db = Db::builder_on(Arc::clone(&device) as _).inline_merges(0).open().unwrap();
    let keyspace = db.keyspace("k", options()).unwrap();
    (device, db, keyspace)
}

/// A crash leaves the record of a value and not the value; then the same bytes are written again,
/// to the same place: they must not bring the record back.
#[test]
fn what_one_recovery_has_left_out_no_later_one_finds() {
    let (device, db, keyspace) = simulated(&SimDevice::new().image());
    keyspace.insert(b"large", value(2, 700)).unwrap();
    db.persist().unwrap();
    let same = value(1, 700);
    let (mut lost, mut found) = (0, 0);
    keyspace.insert(b"first", &same).unwrap();
    for unit in 0..device.pending_units() {
        let image = crashed(&device, &Survivors::AllBut(unit..unit + 1));
        let (device, _db, keyspace) = simulated(&image);
        if keyspace.get(b"first").unwrap().is_some() {
            found += 1;
            continue;
        }
        lost += 1;
        device.record();
        keyspace.insert(b"second", &same).unwrap();
        let options = CrashOptions {
            exhaustive_units: 0,
            family_choices: 4,
            random_choices: 0,
            ..CrashOptions::default()
        };
        let judged = crash::each(&device.take_trace().unwrap(), &options, |_, device| {
            let (_, _db, keyspace) = simulated(&device.image());
            assert_eq!(keyspace.get(b"first").unwrap(), None, "it comes back");
            Ok(())
        });
        judged.unwrap();
    }
    assert!(lost > 0 && found > 0, "{lost} times lost, {found} times found");
}
