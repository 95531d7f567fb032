//! Bounds of memory, log and syncs, and the behaviour when merges cannot run.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use crate::common::{
    self, assert_sound, contents, copy, only_for, options, small, tiny, without_history,
};
use esker::{Db, Durability, Error, IndexKind, IoStats};
use esker_device::memory::MemoryDevice;
use esker_device::sim::SimDevice;

fn io(db: &Db, purpose: &str) -> IoStats {
    let stats = db.stats().unwrap();
    stats.io.into_iter().find(|row| row.purpose == purpose).unwrap()
}

#[test]
fn a_synced_write_costs_one_sync_and_a_buffered_one_none() {
    let db = small(&MemoryDevice::new()).open().unwrap();
    let keyspace = tiny(&db, "k");
    keyspace.insert_with("first", "", Durability::Synced).unwrap();
    for round in 0..20_u8 {
        let before = io(&db, "log");
        keyspace.insert_with([round], "v", Durability::Synced).unwrap();
        assert_eq!(db.durable_seq(), db.visible_seq());
        let between = io(&db, "log");
        assert_eq!((between.syncs - before.syncs, between.writes - before.writes), (1, 1));
        keyspace.insert([round], "w").unwrap();
        let after = io(&db, "log");
        assert_eq!((after.syncs - between.syncs, after.writes - between.writes), (0, 1));
        assert!(db.durable_seq() < db.visible_seq());
    }
    let before = io(&db, "log").syncs;
    db.persist().unwrap();
    db.persist().unwrap();
    assert_eq!(io(&db, "log").syncs - before, 1);
}

/// Each attempt to load them would read fences until there is no room for more.
#[test]
fn fences_without_room_are_not_loaded_again_and_again() {
    let device = MemoryDevice::new();
    let key = |n: u32| n.wrapping_mul(0x9e37_79b1).to_be_bytes();
    let open = || small(&device).memory_budget(256 << 10).open().unwrap();
    let db = open();
    let keyspace = db.keyspace("k", options()).unwrap();
    for n in 0..60_000 {
        keyspace.insert(key(n), [7; 60]).unwrap();
    }
    drop(keyspace);
    db.close().unwrap();
    let db = open();
    let keyspace = db.open_keyspace("k").unwrap().unwrap();
    let before = io(&db, "user").reads;
    let lookups = 4000;
    for n in 0..lookups {
        assert!(keyspace.get(key(n * 15)).unwrap().is_some());
    }
    let reads = io(&db, "user").reads - before;
    assert!(reads <= 4 * u64::from(lookups), "{reads} reads for {lookups} lookups");
}

#[test]
fn reading_writes_nothing() {
    let device = MemoryDevice::new();
    let db = small(&device).open().unwrap();
    tiny(&db, "k").insert("a", "1").unwrap();
    db.close().unwrap();
    for _ in 0..3 {
        let db = small(&device).create(false).open().unwrap();
        let keyspace = db.open_keyspace("k").unwrap().unwrap();
        assert_eq!(contents(&keyspace).len(), 1);
        assert_sound(&db);
        let rows = db.stats().unwrap().io;
        assert_eq!(rows.iter().map(|row| row.writes + row.syncs).sum::<u64>(), 0, "{rows:?}");
        let before = copy(&device);
        drop((keyspace, db));
        for (name, bytes) in common::files(&device) {
            assert_eq!(common::files(&before)[&name], bytes, "{name}");
        }
    }
}

#[test]
fn an_idle_keyspace_does_not_pin_the_log() {
    let db = small(&MemoryDevice::new()).open().unwrap();
    let (idle, busy) = (tiny(&db, "idle"), tiny(&db, "busy"));
    for round in 0..20_000_u32 {
        if round % 4000 == 0 {
            idle.insert(round.to_be_bytes(), "rare").unwrap();
        }
        busy.insert((round % 100).to_be_bytes(), [1; 100]).unwrap();
        let log = db.stats().unwrap().space.log_bytes;
        // The limit, the segment being written and two spares.
        assert!(log <= (256 + 4 * 16) << 10, "{log} bytes of log after {round} writes");
    }
    assert_eq!(idle.iter().unwrap().count(), 5);
    assert_sound(&db);
}

#[test]
fn the_memtables_of_many_keyspaces_share_one_limit() {
    let device = MemoryDevice::new();
    let db = small(&device).open().unwrap();
    let keyspaces: Vec<_> =
        (0..20).map(|number| db.keyspace(&format!("k{number}"), options()).unwrap()).collect();
    for round in 0..4000_u32 {
        let keyspace = &keyspaces[round as usize % 20];
        keyspace.insert(round.to_be_bytes(), [2; 300]).unwrap();
        if round % 50 == 0 {
            let stats = db.stats().unwrap();
            let memtables: u64 = stats.keyspaces.iter().map(|k| k.memtable_bytes).sum();
            assert!(memtables <= 128 << 10, "{memtables} bytes of memtables");
        }
    }
    assert_sound(&db);
    let again = small(&copy(&device)).open().unwrap();
    for keyspace in &keyspaces {
        let recovered = again.open_keyspace(keyspace.name()).unwrap().unwrap();
        assert_eq!(contents(&recovered), contents(keyspace));
    }
}

#[test]
fn recovery_with_less_memory_writes_out_what_does_not_fit() {
    let device = MemoryDevice::new();
    let db = Db::builder_on(Arc::new(device.clone())).memory_budget(16 << 20).open().unwrap();
    let keyspace = db.keyspace("k", options()).unwrap();
    for number in 0..20_000_u32 {
        keyspace.insert(number.to_be_bytes(), [3; 100]).unwrap();
    }
    let stats = |db: &Db| {
        let all = db.stats().unwrap().keyspaces;
        all.into_iter().find(|keyspace| keyspace.name == "k").unwrap()
    };
    assert_eq!(stats(&db).merges, 0, "all of it is still in the memtable");
    let killed = copy(&device);
    for _ in 0..2 {
        let again = small(&killed).open().unwrap();
        assert!(stats(&again).memtable_bytes <= 128 << 10);
        assert!(stats(&again).data_bytes > 2 << 20);
        let recovered = again.open_keyspace("k").unwrap().unwrap();
        assert_eq!(contents(&recovered), contents(&keyspace));
        assert_eq!(again.visible_seq(), db.visible_seq());
        assert_sound(&again);
    }
}

/// Two keyspaces, one of which has a bad block that every merge must read.
fn one_damaged_keyspace() -> (SimDevice, Db) {
    let device = SimDevice::new();
    let open = || {
        let builder = Db::builder_on(Arc::new(device.clone()));
        let builder = builder.memory_budget(256 << 10).log_segment_bytes(16 << 10);
        builder.inline_merges(0).open().unwrap()
    };
    let db = open();
    let bad = tiny(&db, "bad");
    for number in 0..400_u32 {
        bad.insert(number.to_be_bytes(), [4; 100]).unwrap();
    }
    bad.compact().unwrap();
    let good = tiny(&db, "good");
    good.insert("a", "1").unwrap();
    drop((bad, good, db));
    // A block in the middle: what is in the first and in the last one can be read.
    for offset in (700..device.files()["data"].len() as u64).step_by(4096) {
        device.flip("data", offset, 0x10);
        let db = open();
        let problems = db.check().unwrap().problems;
        assert!(problems.iter().all(|problem| problem.file == "data"), "{problems:?}");
        let bad = tiny(&db, "bad");
        let is_read = |number: u32| bad.get(number.to_be_bytes()).is_ok();
        if !problems.is_empty() && is_read(0) && is_read(399) {
            drop(bad);
            return (device, db);
        }
        drop((bad, db));
        device.flip("data", offset, 0x10);
    }
    unreachable!("no block is in use")
}

#[test]
fn a_merge_that_meets_damage_fails_no_write_until_there_is_no_room() {
    if !without_history("the times are damaged") {
        return;
    }
    if !only_for(IndexKind::FdTree, "slices go past damaged blocks and never refuse a write") {
        return;
    }
    let (device, db) = one_damaged_keyspace();
    let bad = tiny(&db, "bad");
    let mut accepted = 0_u32;
    let refused = loop {
        match bad.insert((1000 + accepted).to_be_bytes(), [5; 100]) {
            Ok(()) => accepted += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::Damaged { .. }), "{refused}");
    let stats = db.stats().unwrap();
    let bad_stats = &stats.keyspaces[0];
    assert!(bad_stats.stalled.as_ref().unwrap().contains("data"));
    assert!(bad_stats.merges_stopped > 0 && stats.keyspaces.len() == 2);
    assert_eq!(stats.keyspaces[1].merges_stopped, 0);
    assert!(bad_stats.memtable_bytes >= 8 << 10 && bad_stats.memtable_bytes < 9 << 10);
    assert_eq!(stats.poisoned, None);
    assert!(matches!(bad.compact(), Err(Error::Damaged { .. })));
    bad.remove("absent").unwrap();
    // A refused write is not logged, and no other keyspace is affected.
    let seq = db.visible_seq();
    assert!(bad.insert("x", "y").is_err());
    assert_eq!(db.visible_seq(), seq);
    let good = tiny(&db, "good");
    for number in 0..2000_u32 {
        good.insert((number % 200).to_be_bytes(), [6; 100]).unwrap();
        if number % 500 == 499 {
            good.compact().unwrap();
        }
    }
    assert_eq!(bad.get(1000_u32.to_be_bytes()).unwrap().unwrap(), [5; 100]);
    let mut whole = bad.iter().unwrap();
    assert!(whole.any(|entry| matches!(entry, Err(Error::Damaged { .. }))));
    let mut range = bad.iter().unwrap().skip_damaged();
    let readable = range.by_ref().map(Result::unwrap).count() as u32;
    assert!(readable > accepted + 300 && readable < accepted + 400, "{readable}");
    assert_eq!(range.damaged().len(), 1);
    let backwards = bad.iter().unwrap().skip_damaged().rev().map(Result::unwrap).count() as u32;
    assert_eq!(backwards, readable);
    drop((whole, range, bad, good));
    db.close().unwrap();
    let db = Db::builder_on(Arc::new(device)).memory_budget(256 << 10).open().unwrap();
    let bad = db.open_keyspace("bad").unwrap().unwrap();
    assert_eq!(bad.iter().unwrap().skip_damaged().count() as u32, readable);
    assert!(db.drop_keyspace("bad").unwrap());
    assert_sound(&db);
}

#[test]
fn a_damaged_keyspace_stops_the_others_only_when_the_log_is_too_long() {
    if !without_history("the times are damaged") {
        return;
    }
    let (_device, db) = one_damaged_keyspace();
    let (bad, good) = (tiny(&db, "bad"), tiny(&db, "good"));
    bad.insert("pins one segment", "").unwrap();
    for number in 0..10_000_u32 {
        good.insert((number % 200).to_be_bytes(), [6; 100]).unwrap();
    }
    // And now every segment.
    let mut refused = None;
    for number in 0..400_000_u32 {
        let result = if number % 100 == 0 {
            bad.insert(number.to_be_bytes(), "")
        } else {
            good.insert((number % 200).to_be_bytes(), [6; 100])
        };
        if let Err(error) = result {
            refused = Some((number % 100, error));
            break;
        }
    }
    assert!(matches!(refused, Some((1.., Error::Damaged { .. }))), "{refused:?}");
    let log = db.stats().unwrap().space.log_bytes;
    assert!(log <= (512 + 4 * 16) << 10, "{log}");
    good.remove("a").unwrap();
    db.drop_keyspace("bad").unwrap();
    good.insert("a", "again").unwrap();
    assert!(db.stats().unwrap().space.log_bytes <= (256 + 4 * 16) << 10);
    assert_sound(&db);
}

#[test]
fn a_full_device_refuses_puts_and_can_be_emptied() {
    let device = SimDevice::new();
    let builder = Db::builder_on(Arc::new(device.clone()));
    let builder = builder.memory_budget(256 << 10).log_segment_bytes(16 << 10);
    let db = builder.inline_merges(0).open().unwrap();
    let keyspace = tiny(&db, "k");
    keyspace.insert("a", "1").unwrap();
    device.set_capacity_bytes(2 << 20);
    let mut accepted = 0_u32;
    let refused = loop {
        match keyspace.insert(accepted.to_be_bytes(), [7; 200]) {
            Ok(()) => accepted += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::Full { .. }), "{refused}");
    assert!(accepted > 2000, "{accepted}");
    assert_eq!(db.stats().unwrap().poisoned, None);
    for number in 0..accepted {
        assert_eq!(keyspace.get(number.to_be_bytes()).unwrap().unwrap(), [7; 200]);
    }
    let again = db.open_keyspace("k").unwrap().unwrap();
    assert_eq!(again.iter().unwrap().count() as u32, accepted + 1);
    db.drop_keyspace("k").unwrap();
    let fresh = tiny(&db, "fresh");
    for number in 0..accepted / 2 {
        fresh.insert(number.to_be_bytes(), [8; 200]).unwrap();
    }
    assert_sound(&db);
}

#[test]
fn a_failed_sync_poisons_the_store_until_it_is_reopened() {
    use esker_device::sim::{Effect, Fault, FaultPlan, OpKind, SyncLoss};
    let device = SimDevice::new();
    // With threads the one that works ahead of the log could meet the fault.
    let db = Db::builder_on(Arc::new(device.clone())).inline_merges(0).open().unwrap();
    let keyspace = tiny(&db, "k");
    keyspace.insert_with("a", "1", Durability::Synced).unwrap();
    let fault = Fault::new(Effect::FailSync(SyncLoss::Dropped)).on(OpKind::Sync);
    device.set_faults(FaultPlan::new().with(fault));
    assert!(matches!(keyspace.insert_with("b", "2", Durability::Synced), Err(Error::Io(_))));
    device.set_faults(FaultPlan::new());
    assert!(matches!(keyspace.insert("c", "3"), Err(Error::Poisoned { .. })));
    assert!(matches!(db.persist(), Err(Error::Poisoned { .. })));
    assert!(matches!(db.flush(), Err(Error::Poisoned { .. })));
    assert!(matches!(db.keyspace("new", Default::default()), Err(Error::Poisoned { .. })));
    assert!(matches!(db.drop_keyspace("k"), Err(Error::Poisoned { .. })));
    assert_eq!(keyspace.get("a").unwrap().unwrap(), b"1");
    assert!(db.stats().unwrap().poisoned.is_some());
    drop(keyspace);
    assert!(matches!(db.close(), Err(Error::Poisoned { .. })));
    let db = Db::builder_on(Arc::new(device)).open().unwrap();
    let keyspace = db.open_keyspace("k").unwrap().unwrap();
    assert_eq!(keyspace.get("a").unwrap().unwrap(), b"1");
    keyspace.insert("c", "3").unwrap();
    assert_sound(&db);
}

/// Written by a store with 64 times the memory.
#[test]
fn a_batch_that_does_not_fit_the_memory_is_replayed_in_parts() {
    if !without_history("a batch is one version") {
        return;
    }
    let device = MemoryDevice::new();
    let db = Db::builder_on(Arc::new(device.clone())).memory_budget(16 << 20).open().unwrap();
    let keyspace = db.keyspace("k", options()).unwrap();
    let mut batch = db.batch();
    for n in 0..20_000 {
        batch.insert(&keyspace, format!("{n:08}"), [7; 16]);
    }
    batch.commit().unwrap();
    let db = small(&copy(&device)).open().unwrap();
    let stats = db.stats().unwrap();
    let work = stats.keyspaces.iter().map(|keyspace| keyspace.merges + keyspace.sorted_runs);
    let work: u64 = work.sum();
    assert!(work >= 3, "{work}: it was in memory as a whole");
    let keyspace = db.open_keyspace("k").unwrap().unwrap();
    assert_eq!(keyspace.iter().unwrap().count(), 20_000);
    assert_sound(&db);
}
