//! Blocks and values are known by numbers that are handed out once, regardless of how a store ends.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{self, assert_sound, back_up, contents, copy, restored};
use esker::{Db, Device, Keyspace};
use esker_device::memory::MemoryDevice;
use esker_device::{Caching, Open, Purpose};
use esker_substrate::planted::{Bug, with};
use esker_testkit::generations;

/// Data of a piece of a value.
const PIECE: usize = 65536 - 40;
const VALUES: u8 = 10;

fn open(device: &MemoryDevice) -> (Db, Keyspace) {
    let db = Db::builder_on(Arc::new(device.clone())).inline_merges(0).open().unwrap();
    let keyspace = db.keyspace("k", common::options().inline_bytes_max(4096)).unwrap();
    (db, keyspace)
}

fn fill(keyspace: &Keyspace) {
    for number in 0..VALUES {
        keyspace.insert([number], vec![number; 8 * PIECE]).unwrap();
    }
}

/// A value that is like no older one, and each piece of it like no other.
fn fresh() -> Vec<u8> {
    (0..12 * PIECE).map(|at| 100 + (at / PIECE) as u8).collect()
}

/// Removes all but some of the values and writes another to where they were.
fn replace(db: &Db, keyspace: &Keyspace, kept: u8) {
    for number in kept..VALUES {
        keyspace.remove([number]).unwrap();
    }
    db.compact().unwrap();
    keyspace.insert("fresh", fresh()).unwrap();
}

fn is_in_backup(folder: &MemoryDevice, expected: &BTreeMap<Vec<u8>, Vec<u8>>) {
    let (db, keyspace) = open(&restored(folder));
    assert_sound(&db);
    assert!(contents(&keyspace) == *expected, "the restored store has other values");
}

fn are_used_once(device: &MemoryDevice) {
    let device: Arc<dyn Device> = Arc::new(device.clone());
    generations::are_used_once(&device).unwrap();
}

#[test]
fn a_backup_over_a_killed_process_holds_what_the_store_holds() {
    for kept in 1..6 {
        let (device, folder) = (MemoryDevice::new(), MemoryDevice::new());
        let (db, keyspace) = open(&device);
        fill(&keyspace);
        back_up(&db, &folder).unwrap();
        let killed = copy(&device);
        are_used_once(&killed);
        let (db, keyspace) = open(&killed);
        replace(&db, &keyspace, kept);
        assert_sound(&db);
        let expected = contents(&keyspace);
        back_up(&db, &folder).unwrap();
        is_in_backup(&folder, &expected);
        are_used_once(&killed);
    }
}

#[test]
fn a_restored_store_has_backups_of_its_own() {
    for kept in 1..6 {
        let (device, folder) = (MemoryDevice::new(), MemoryDevice::new());
        let (db, keyspace) = open(&device);
        fill(&keyspace);
        back_up(&db, &folder).unwrap();
        let again = restored(&folder);
        are_used_once(&again);
        let (db, keyspace) = open(&again);
        let folder = MemoryDevice::new();
        back_up(&db, &folder).unwrap();
        replace(&db, &keyspace, kept);
        let expected = contents(&keyspace);
        back_up(&db, &folder).unwrap();
        is_in_backup(&folder, &expected);
    }
}

/// Done as by a version that handed numbers out before the manifest had them, and looked for none.
fn as_before<T>(work: impl FnOnce() -> T) -> T {
    with(Bug::GenerationsNotReserved, work)
}

#[test]
fn numbers_of_a_store_from_before_are_not_handed_out_again() {
    for kept in 1..6 {
        let (device, folder) = (MemoryDevice::new(), MemoryDevice::new());
        as_before(|| {
            let (db, keyspace) = open(&device);
            fill(&keyspace);
            back_up(&db, &folder).unwrap();
        });
        let restored = restored(&folder);
        for (store, folder) in [(copy(&device), folder), (restored, MemoryDevice::new())] {
            let (db, keyspace) = open(&store);
            assert_sound(&db);
            back_up(&db, &folder).unwrap();
            replace(&db, &keyspace, kept);
            let expected = contents(&keyspace);
            back_up(&db, &folder).unwrap();
            is_in_backup(&folder, &expected);
            are_used_once(&store);
        }
    }
}

#[test]
fn a_value_that_lost_a_piece_to_an_older_one_is_not_taken_for_whole() {
    let device = MemoryDevice::new();
    let killed = as_before(|| {
        fill(&open(&device).1);
        let killed = copy(&device);
        let (_db, keyspace) = open(&killed);
        (1..9).for_each(|number: u8| keyspace.remove([number]).unwrap());
        keyspace.compact().unwrap();
        let durable = copy(&killed);
        keyspace.insert("fresh", fresh()).unwrap();
        (copy(&killed), common::files(&durable)["data"].clone())
    });
    let (killed, durable) = killed;
    let written = common::files(&killed)["data"].clone();
    let mut left_out = 0;
    for at in (0..durable.len().min(written.len()) - PIECE - 40).step_by(4096) {
        let piece = at..at + PIECE + 40;
        if !written[at..].starts_with(b"EskV") || written[piece.clone()] == durable[piece.clone()] {
            continue;
        }
        let cut = copy(&killed);
        let file = cut.open("data", Open::Existing, Caching::Buffered).unwrap();
        file.write_at(at as u64, &durable[piece], Purpose::Check).unwrap();
        let (db, keyspace) = open(&cut);
        let found = keyspace.get("fresh").unwrap();
        assert!(found.is_none(), "a mixture is answered, of what was at byte {at}");
        assert_sound(&db);
        left_out += 1;
    }
    assert!(left_out > 3, "{left_out}");
}
