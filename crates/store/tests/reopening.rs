//! After a crash in a full merge a store answers reads before that merge has gone on: what an
//! opening costs is the log, not the merge.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::{Arc, Condvar, Mutex};

use common::{Model, assert_sound, contents};
use esker::{Db, Device, IndexKind, IoStats, Keyspace, KeyspaceOptions, KeyspaceStats, Scheme};
use esker_device::Purpose;
use esker_device::sim::{SimDevice, SimImage};
use esker_device::wrap::{Hook, Step, StepKind, Wrapped};

const KEYS: u64 = 6000;
/// Large: most of what is written while the merge runs has to be replayed.
const MEMTABLE_BYTES: u64 = 256 << 10;

fn open(device: &Arc<dyn Device>, scheme: Scheme, inline: bool) -> Db {
    let builder = Db::builder_on(Arc::clone(device)).memory_budget(2 << 20).scheme(scheme);
    let builder = builder.log_segment_bytes(64 << 10);
    if inline { builder.inline_merges(1) } else { builder }.open().unwrap()
}

fn keyspace(db: &Db) -> Keyspace {
    keyspace_of(IndexKind::FdTree, db)
}

fn keyspace_of(index: IndexKind, db: &Db) -> Keyspace {
    let options = KeyspaceOptions::default().index(index);
    db.keyspace("k", options.memtable_bytes(Some(MEMTABLE_BYTES))).unwrap()
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

fn stats(db: &Db) -> KeyspaceStats {
    db.stats().unwrap().keyspaces.swap_remove(0)
}

fn io(db: &Db, purpose: &str) -> IoStats {
    db.stats().unwrap().io.into_iter().find(|row| row.purpose == purpose).unwrap()
}

/// Images that crashes within one full merge leave, with the entries that each must have.
fn crashes(scheme: Scheme) -> Vec<(SimImage, Model)> {
    let device = Arc::new(SimDevice::new());
    let db = open(&(Arc::clone(&device) as _), scheme, true);
    let keyspace = keyspace(&db);
    for number in 0..KEYS {
        keyspace.insert(key(number), [1; 100]).unwrap();
    }
    keyspace.compact().unwrap();
    let mut writes = 0;
    let mut write = || {
        // A merge does one step for each batch.
        let mut batch = db.batch();
        for _ in 0..8 {
            writes += 1;
            batch.insert(&keyspace, key(writes * 4999 % KEYS), [2; 100]);
        }
        batch.commit().unwrap();
    };
    while !stats(&db).merge.is_some_and(|merge| merge.full) {
        write();
    }
    let mut left = Vec::new();
    let mut steps = 0;
    while stats(&db).merge.is_some() {
        write();
        steps += 1;
        if steps % 9 == 0 && left.len() < 8 {
            // As a killed process leaves it.
            left.push((device.image(), contents(&keyspace)));
        }
    }
    left
}

/// Images that crashes of an LSM index leave while some runs are merged in part, with the entries
/// that each must have.
fn crashes_during_slices() -> Vec<(SimImage, Model)> {
    let device = Arc::new(SimDevice::new());
    let db = open(&(Arc::clone(&device) as _), Scheme::Fc, true);
    let keyspace = keyspace_of(IndexKind::Lsm, &db);
    let mut left = Vec::new();
    for write in 0..8 * KEYS {
        keyspace.insert(key(write * 4999 % KEYS), [(write / KEYS) as u8; 100]).unwrap();
        if write % 1777 == 1776 {
            left.push((device.image(), contents(&keyspace)));
        }
    }
    assert!(stats(&db).merges > 10, "{}", stats(&db).merges);
    left
}

/// Reads a little on both sides of a merge's wavefront, then everything.
fn read(db: &Db, expected: &Model) {
    let keyspace = db.open_keyspace("k").unwrap().unwrap();
    for number in [0, KEYS / 2, KEYS - 1] {
        assert_eq!(keyspace.get(key(number)).unwrap().as_ref(), expected.get(&key(number)));
    }
    assert!(contents(&keyspace) == *expected);
}

#[test]
fn reads_are_answered_before_a_merge_goes_on() {
    let mut within = 0;
    for scheme in [Scheme::Fc, Scheme::FcUnshared, Scheme::FcTuple] {
        for (image, expected) in crashes(scheme) {
            let device: Arc<dyn Device> = Arc::new(SimDevice::from_image(&image));
            let db = open(&device, scheme, true);
            let opened = stats(&db);
            let Some(merge) = &opened.merge else { continue };
            within += 1;
            assert!(merge.full && merge.wavefront.is_some());
            assert!(opened.memtable_bytes > MEMTABLE_BYTES / 8, "{}", opened.memtable_bytes);
            // The merge has looked at where it goes on, and no more.
            assert!(io(&db, "merge").bytes_read < opened.data_bytes / 8);
            assert_eq!(io(&db, "merge").bytes_written, 0);
            let before = io(&db, "user").reads;
            assert_eq!(keyspace(&db).get(key(17)).unwrap().as_ref(), expected.get(&key(17)));
            assert!(io(&db, "user").reads - before <= 1 + opened.levels.len() as u64);
            read(&db, &expected);
            let read_at = stats(&db);
            assert_eq!(read_at.merge, opened.merge, "the merge has not gone on");
            assert_eq!(read_at.merges, opened.merges);
            db.compact().unwrap();
            assert!(stats(&db).merges > opened.merges);
            read(&db, &expected);
            assert_sound(&db);
        }
    }
    assert!(within > 6, "only {within} crashes were within a recorded merge");
}

#[test]
fn reads_are_answered_before_slices_go_on() {
    let mut with_runs = 0;
    for (image, expected) in crashes_during_slices() {
        let device: Arc<dyn Device> = Arc::new(SimDevice::from_image(&image));
        let db = open(&device, Scheme::Fc, true);
        let opened = stats(&db);
        assert_eq!((io(&db, "merge").bytes_written, io(&db, "merge").bytes_read), (0, 0));
        let sources = opened.sorted_runs + opened.levels.len() as u64;
        with_runs += u64::from(opened.sorted_runs > 1);
        let before = io(&db, "user").reads;
        let keyspace = keyspace_of(IndexKind::Lsm, &db);
        assert_eq!(keyspace.get(key(17)).unwrap().as_ref(), expected.get(&key(17)));
        assert!(io(&db, "user").reads - before <= 1 + sources);
        read(&db, &expected);
        assert_eq!(stats(&db).merges, opened.merges, "nothing has been merged");
        db.compact().unwrap();
        read(&db, &expected);
        assert_sound(&db);
    }
    assert!(with_runs > 6, "only {with_runs} crashes left runs to merge");
}

/// Holds the writes of merges up until it is opened.
#[derive(Debug, Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

impl Hook for Gate {
    fn before(&self, step: Step) {
        if step.kind == StepKind::Write && step.purpose == Purpose::Merge {
            let is_open = self.is_open.lock().unwrap();
            drop(self.opened.wait_while(is_open, |is_open| !*is_open).unwrap());
        }
    }
}

/// Opens the gate when a test ends, however it ends: a store waits for its merge when it closes.
struct OpensAtTheEnd<'a>(&'a Gate);

impl Drop for OpensAtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

#[test]
fn reads_are_answered_while_a_thread_goes_on_with_the_merge() {
    let mut within = 0;
    for (image, expected) in crashes(Scheme::Fc) {
        let inner = Arc::new(SimDevice::from_image(&image));
        let gated = Wrapped::around(inner as _, Gate::default());
        let device: Arc<dyn Device> = Arc::new(gated.clone());
        let db = open(&device, Scheme::Fc, false);
        let _end = OpensAtTheEnd(gated.hook());
        if stats(&db).merge.is_none() {
            continue;
        }
        within += 1;
        let merges = stats(&db).merges;
        read(&db, &expected);
        // The thread has not written a byte, so the merge is where the crash left it.
        assert!(stats(&db).merge.is_some_and(|merge| merge.full));
        assert_eq!((stats(&db).merges, io(&db, "merge").writes), (merges, 0));
        gated.hook().open();
        db.compact().unwrap();
        assert!(stats(&db).merges > merges);
        read(&db, &expected);
        assert_sound(&db);
    }
    assert!(within > 2, "only {within} crashes were within a recorded merge");
}
