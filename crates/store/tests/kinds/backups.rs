//! Guarantees of backups during other operations, and their cost.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{self, assert_sound, back_up, contents, copy, small, threaded, tiny};
use esker::{Db, Device, Error, Keyspace};
use esker_device::memory::MemoryDevice;
use esker_device::sim::{Effect, Fault, FaultPlan, OpKind, SimDevice};
use esker_device::{Caching, Open, Purpose};

fn restored(folder: &MemoryDevice) -> Db {
    let db = small(&common::restored(folder)).create(false).open().unwrap();
    assert_sound(&db);
    db
}

fn fill(keyspace: &Keyspace, numbers: std::ops::Range<u32>, value: &str) {
    for number in numbers {
        keyspace.insert(format!("key{number:05}"), format!("{value}{number}")).unwrap();
    }
}

/// Bytes that the store has written to levels and runs, and bytes that backups have read.
fn written_and_copied(db: &Db) -> (u64, u64) {
    let io = db.stats().unwrap().io;
    let of = |purpose| io.iter().find(|row| row.purpose == purpose).cloned().unwrap_or_default();
    (of("flush").bytes_written + of("merge").bytes_written, of("backup").bytes_read)
}

#[test]
fn a_later_backup_reads_and_writes_what_has_changed() {
    let (device, folder) = (MemoryDevice::new(), MemoryDevice::new());
    let db = small(&device).open().unwrap();
    let keyspace = tiny(&db, "a");
    fill(&keyspace, 0..6000, "first ");
    db.compact().unwrap();
    let first = back_up(&db, &folder).unwrap();
    assert!(first.bytes_read >= first.bytes_total && first.bytes_total > 100_000, "{first:?}");
    assert_eq!((first.run, first.bytes_reused), (1, 0));

    let (_, before) = written_and_copied(&db);
    let again = back_up(&db, &folder).unwrap();
    let (written_before, after) = written_and_copied(&db);
    assert_eq!((again.run, again.bytes_written), (1, 0));
    assert_eq!(after - before, again.bytes_read);
    let log_bytes = again.bytes_read;

    // Less than a memtable: it goes to one sorted run.
    fill(&keyspace, 1000..1020, "second ");
    db.flush().unwrap();
    let (written, _) = written_and_copied(&db);
    let third = back_up(&db, &folder).unwrap();
    assert_eq!(third.run, 2);
    let changed = written - written_before;
    assert!(changed > 0 && changed < first.bytes_total / 4, "{changed} of {}", first.bytes_total);
    assert!(third.bytes_read <= changed + 2 * log_bytes.max(4096), "{third:?}, {changed} changed");
    assert!(third.bytes_reused > first.bytes_total / 2, "{third:?}");
    assert_eq!(
        contents(&restored(&folder).open_keyspace("a").unwrap().unwrap()),
        contents(&keyspace)
    );
}

#[test]
fn threads_write_and_merge_during_backups() {
    let (device, folder) = (MemoryDevice::new(), MemoryDevice::new());
    let db = threaded(&device).open().unwrap();
    let (a, b) = (tiny(&db, "a"), tiny(&db, "b"));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..2u32 {
            let (db, a, b, done) = (&db, &a, &b, &done);
            scope.spawn(move || {
                for number in 0u32.. {
                    if done.load(Ordering::Relaxed) {
                        return;
                    }
                    let key = format!("{writer}-{:04}", number.wrapping_mul(7919) % 1500);
                    let mut batch = db.batch();
                    batch.insert(a, &key, number.to_le_bytes());
                    batch.insert(b, &key, number.to_le_bytes());
                    batch.commit().unwrap();
                }
            });
        }
        let mut last = 0;
        for _ in 0..6 {
            let report = back_up(&db, &folder).unwrap();
            assert!(report.seq >= last);
            last = report.seq;
            let copy = restored(&folder);
            assert_eq!(copy.visible_seq(), report.seq);
            let both = ["a", "b"].map(|name| contents(&copy.open_keyspace(name).unwrap().unwrap()));
            assert!(both[0] == both[1], "a batch is in the backup in part");
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_sound(&db);
}

#[test]
fn a_keyspace_that_is_dropped_meanwhile_is_in_the_backup() {
    let (device, folder) = (MemoryDevice::new(), MemoryDevice::new());
    let db = small(&device).open().unwrap();
    let (a, b) = (tiny(&db, "a"), tiny(&db, "b"));
    fill(&a, 0..1000, "a");
    fill(&b, 0..1000, "b");
    let held = [contents(&a), contents(&b)];
    let mut dropped = false;
    let to: Arc<dyn Device> = Arc::new(folder.clone());
    let made = db.backup_on(to, &mut |_| {
        if !std::mem::replace(&mut dropped, true) {
            assert!(db.drop_keyspace("b").unwrap());
            // What it had is not given to others before it is copied.
            fill(&a, 0..1500, "later ");
        }
        ControlFlow::Continue(())
    });
    made.unwrap();
    let copy = restored(&folder);
    let found = ["a", "b"].map(|name| contents(&copy.open_keyspace(name).unwrap().unwrap()));
    assert!(found == held);
    assert_sound(&db);
    let space = db.stats().unwrap().space;
    db.compact().unwrap();
    assert!(db.stats().unwrap().space.allocated_bytes < space.data_file_bytes);
}

#[test]
fn closing_the_store_ends_a_backup() {
    let (device, folder) = (MemoryDevice::new(), MemoryDevice::new());
    let db = small(&device).open().unwrap();
    let keyspace = tiny(&db, "a");
    fill(&keyspace, 0..500, "a");
    back_up(&db, &folder).unwrap();
    fill(&keyspace, 500..900, "b");
    let mut handle = Some(db.clone());
    let made = db.backup_on(Arc::new(folder.clone()), &mut |_| {
        if let Some(db) = handle.take() {
            db.close().unwrap();
        }
        ControlFlow::Continue(())
    });
    assert!(matches!(made, Err(Error::Closed)), "{made:?}");
    assert_eq!(contents(&restored(&folder).open_keyspace("a").unwrap().unwrap()).len(), 500);
    let again = small(&device).open().unwrap();
    assert_eq!(contents(&again.open_keyspace("a").unwrap().unwrap()).len(), 900);
    assert_sound(&again);
}

#[test]
fn an_ended_backup_leaves_the_one_before() {
    let (device, folder) = (MemoryDevice::new(), MemoryDevice::new());
    let db = small(&device).open().unwrap();
    let keyspace = tiny(&db, "a");
    fill(&keyspace, 0..500, "a");
    back_up(&db, &folder).unwrap();
    let before = common::files(&folder);
    fill(&keyspace, 0..900, "b");
    let made = db.backup_on(Arc::new(folder.clone()), &mut |so_far| {
        if so_far.bytes_copied > 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(made, Err(Error::Invalid { .. })), "{made:?}");
    assert_eq!(before["blocks"].len(), common::files(&folder)["blocks"].len());
    assert_eq!(contents(&restored(&folder).open_keyspace("a").unwrap().unwrap()).len(), 500);
}

/// A catalog that was deleted is not a first backup that was never finished.
#[test]
fn a_backup_without_its_catalog_is_not_removed() {
    let (device, folder) = (MemoryDevice::new(), MemoryDevice::new());
    let db = small(&device).open().unwrap();
    fill(&tiny(&db, "a"), 0..500, "a");
    back_up(&db, &folder).unwrap();
    let catalog = common::files(&folder)["backup"].clone();
    folder.remove("backup").unwrap();
    let left = common::files(&folder);
    let opened = esker::Backup::open_on(Arc::new(folder.clone())).map(drop);
    for refused in [back_up(&db, &folder).map(drop), opened] {
        let text = refused.as_ref().map_err(ToString::to_string).unwrap_err();
        assert!(matches!(refused, Err(Error::Damaged { .. })), "{text}");
        assert!(text.contains("backup is") && text.contains("choose another folder"), "{text}");
        assert_eq!(common::files(&folder), left);
    }
    // It is a backup again as soon as its catalog is there again.
    let file = folder.open("backup", Open::CreateNew, Caching::Buffered).unwrap();
    file.write_at(0, &catalog, Purpose::Backup).unwrap();
    assert_eq!(contents(&restored(&folder).open_keyspace("a").unwrap().unwrap()).len(), 500);
    assert_eq!(back_up(&db, &folder).unwrap().run, 1);
}

#[test]
fn copies_that_went_their_own_ways_are_not_mixed() {
    let (device, folder) = (MemoryDevice::new(), MemoryDevice::new());
    let db = small(&device).open().unwrap();
    fill(&tiny(&db, "a"), 0..1000, "a");
    db.close().unwrap();
    let twin = copy(&device);
    let (db, twin) = (small(&device).open().unwrap(), small(&twin).open().unwrap());
    for (store, value) in [(&db, "one "), (&twin, "two ")] {
        let keyspace = store.open_keyspace("a").unwrap().unwrap();
        fill(&keyspace, 0..1000, value);
        store.compact().unwrap();
    }
    back_up(&db, &folder).unwrap();
    let made = back_up(&twin, &folder);
    assert!(
        made.as_ref().is_err_and(|error| error.to_string().contains("another copy")),
        "{made:?}"
    );
    let found = contents(&restored(&folder).open_keyspace("a").unwrap().unwrap());
    assert_eq!(found, contents(&db.open_keyspace("a").unwrap().unwrap()));
}

#[test]
fn damage_in_the_store_is_not_copied() {
    let (device, folder) = (MemoryDevice::new(), MemoryDevice::new());
    let db = small(&device).open().unwrap();
    let keyspace = tiny(&db, "a");
    fill(&keyspace, 0..1000, "a");
    back_up(&db, &folder).unwrap();
    fill(&keyspace, 0..1000, "b");
    db.compact().unwrap();
    let file = device.open("data", Open::Existing, Caching::Buffered).unwrap();
    for unit in 0..file.len().unwrap() / 4096 {
        let mut byte = [0];
        file.read_at(unit * 4096 + 200, &mut byte, Purpose::Check).unwrap();
        file.write_at(unit * 4096 + 200, &[byte[0] ^ 4], Purpose::Check).unwrap();
    }
    let made = back_up(&db, &folder);
    assert!(matches!(&made, Err(Error::Damaged { file, .. }) if file == "data"), "{made:?}");
    assert_eq!(
        restored(&folder).open_keyspace("a").unwrap().unwrap().get("key00007").unwrap(),
        Some(b"a7".to_vec())
    );
}

/// A catalog and blocks are read back before they are put in place: if the device has changed
/// either of them, the last good backup stays.
#[test]
fn what_does_not_read_back_is_not_put_in_place() {
    let device = MemoryDevice::new();
    let db = small(&device).open().unwrap();
    let keyspace = tiny(&db, "a");
    fill(&keyspace, 0..500, "a");
    let sim = Arc::new(SimDevice::new());
    let folder: Arc<dyn Device> = Arc::clone(&sim) as _;
    let back_up = || db.backup_on(Arc::clone(&folder), &mut |_| ControlFlow::Continue(()));
    let mut refused = 0;
    for file in ["backup.new", "blocks"] {
        let before = back_up().unwrap().run;
        fill(&keyspace, 0..900, file);
        db.compact().unwrap();
        for nth in 0..40 {
            let flip = Fault::new(Effect::FlipRead { byte: 100, mask: 4 }).on(OpKind::Read);
            sim.set_faults(FaultPlan::new().with(flip.file(file).nth(nth)));
            let made = back_up();
            sim.set_faults(FaultPlan::new());
            let backup = esker::Backup::open_on(Arc::clone(&folder)).unwrap();
            assert!(backup.check().unwrap().is_ok(), "{file} {nth}");
            if made.is_ok() {
                break;
            }
            assert!(matches!(made, Err(Error::Damaged { .. })), "{made:?}");
            assert_eq!(backup.run(), before);
            refused += 1;
        }
    }
    assert!(refused > 2, "{refused}");
}
