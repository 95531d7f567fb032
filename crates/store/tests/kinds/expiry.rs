//! Values with a time to live: what is answered when, and what becomes of them.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use crate::common::{assert_sound, contents, copy, small, tiny, without_history};
use esker::{Db, Error, Keyspace, SimRuntime};
use esker_device::memory::MemoryDevice;

const MS: Duration = Duration::from_millis(1);

/// A store whose clock is set to an hour after 1970.
struct Subject {
    device: MemoryDevice,
    clock: Arc<SimRuntime>,
    db: Db,
    keys: Keyspace,
}

fn at(clock: &Arc<SimRuntime>, device: &MemoryDevice) -> (Db, Keyspace) {
    let db = small(device).runtime(Arc::clone(clock) as _).open().unwrap();
    let keys = tiny(&db, "keys");
    (db, keys)
}

fn subject() -> Subject {
    let (device, clock) = (MemoryDevice::new(), Arc::new(SimRuntime::new(1)));
    clock.set_unix_time(Duration::from_secs(3600));
    let (db, keys) = at(&clock, &device);
    Subject { device, clock, db, keys }
}

fn value(keys: &Keyspace, key: &str) -> Option<String> {
    keys.get(key).unwrap().map(|value| String::from_utf8(value).unwrap())
}

#[test]
fn a_value_is_there_until_its_time_is_over_and_not_a_millisecond_longer() {
    let Subject { clock, db, keys, .. } = subject();
    keys.insert("a", "old").unwrap();
    keys.insert_with_ttl("a", "new", 10 * MS).unwrap();
    keys.insert_with_ttl("b", "b", 5 * MS).unwrap();
    clock.advance(9 * MS);
    assert_eq!(value(&keys, "a").as_deref(), Some("new"));
    assert_eq!(contents(&keys).len(), 1);
    assert_eq!(keys.multi_get(["a", "b"]).unwrap(), [Some(b"new".to_vec()), None]);
    clock.advance(MS);
    assert_eq!(value(&keys, "a"), None, "and the older value stays hidden");
    assert_eq!(keys.first().unwrap(), None);
    for _ in 0..2 {
        db.flush().unwrap();
        assert_eq!((value(&keys, "a"), contents(&keys).len()), (None, 0));
        db.compact().unwrap();
    }
    assert_sound(&db);
}

#[test]
fn a_later_write_takes_the_expiry_away() {
    let Subject { clock, keys, .. } = subject();
    keys.insert_with_ttl("a", "1", MS).unwrap();
    keys.insert("a", "2").unwrap();
    keys.insert_with_ttl("b", "1", MS).unwrap();
    keys.insert_with_ttl("b", "2", 9 * MS).unwrap();
    clock.advance(5 * MS);
    assert_eq!((value(&keys, "a"), value(&keys, "b")), (Some("2".into()), Some("2".into())));
}

#[test]
fn times_to_live_out_of_bounds_are_refused_and_write_nothing() {
    let Subject { clock, db, keys, .. } = subject();
    for ttl in [Duration::ZERO, Duration::MAX] {
        let refused = |result: esker::Result<()>| {
            assert!(matches!(result, Err(Error::Invalid { .. })), "{ttl:?}");
        };
        refused(keys.insert_with_ttl("a", "a", ttl));
        let mut batch = db.batch();
        batch.insert(&keys, "b", "b");
        batch.insert_with_ttl(&keys, "a", "a", ttl);
        assert!(batch.refused().is_some());
        refused(batch.commit().map(drop));
        let mut tx = db.transaction().unwrap();
        refused(tx.insert_with_ttl(&keys, "a", "a", ttl));
    }
    assert_eq!(contents(&keys).len(), 0);
    keys.insert_with_ttl("a", "a", Duration::from_nanos(1)).unwrap();
    assert!(keys.contains("a").unwrap(), "a part of a millisecond is rounded up");
    clock.advance(MS);
    assert!(!keys.contains("a").unwrap());
    let long = Duration::from_millis(u64::MAX - 3_600_000 - 1);
    keys.insert_with_ttl("a", "a", long).unwrap();
    assert!(keys.contains("a").unwrap());
}

#[test]
fn snapshots_scans_and_transactions_keep_to_the_moment_at_which_they_began() {
    let Subject { clock, db, keys, .. } = subject();
    keys.insert("z", "older").unwrap();
    for key in ["a", "b", "z"] {
        keys.insert_with_ttl(key, key, 10 * MS).unwrap();
    }
    let snapshot = db.snapshot().unwrap();
    let mut scan = keys.iter().unwrap();
    let reader = db.transaction().unwrap();
    let mut tx = db.transaction().unwrap();
    clock.advance(20 * MS);
    // Merges that meet what has expired keep it for them.
    for _ in 0..3 {
        keys.insert("c", vec![b'c'; 3000]).unwrap();
        db.flush().unwrap();
        db.compact().unwrap();
    }
    assert_eq!(contents(&keys).len(), 1);
    assert_eq!(snapshot.get(&keys, "a").unwrap().as_deref(), Some(&b"a"[..]));
    assert_eq!(snapshot.multi_get(&keys, ["b"]).unwrap(), [Some(b"b".to_vec())]);
    assert_eq!(snapshot.iter(&keys).unwrap().count(), 3);
    assert_eq!(scan.next().unwrap().unwrap().0, b"a");
    assert_eq!(scan.next_back().unwrap().unwrap().1, b"z");
    assert!(tx.contains(&keys, "b").unwrap());
    tx.insert_with_ttl(&keys, "d", "d", MS).unwrap();
    clock.advance(2 * MS);
    assert_eq!(tx.get(&keys, "d").unwrap().as_deref(), Some(&b"d"[..]));
    assert_eq!(reader.iter(&keys).unwrap().count(), 3);
    // That something expires is no conflict.
    tx.commit().unwrap();
    assert!(!keys.contains("d").unwrap(), "its time began with the call");
    drop((snapshot, scan, reader));
    db.compact().unwrap();
    assert_eq!(contents(&keys).len(), 1);
    assert_sound(&db);
}

#[test]
fn a_clock_that_is_set_back_brings_nothing_back() {
    let Subject { clock, device, db, keys } = subject();
    keys.insert_with_ttl("a", "a", 10 * MS).unwrap();
    clock.advance(10 * MS);
    assert!(!keys.contains("a").unwrap());
    clock.set_unix_time(Duration::from_secs(1));
    assert!(!keys.contains("a").unwrap());
    // It is 10 ms past the hour still: time does not advance until the clock has caught up.
    keys.insert_with_ttl("b", "b", 10 * MS).unwrap();
    clock.set_unix_time(Duration::from_secs(3600) + 19 * MS);
    assert!(keys.contains("b").unwrap());
    clock.advance(MS);
    assert!(!keys.contains("b").unwrap());
    // A store that is opened by an earlier clock goes by that one.
    db.close().unwrap();
    clock.set_unix_time(Duration::from_secs(3600));
    let (db, keys) = at(&clock, &device);
    assert!(keys.contains("a").unwrap());
    clock.advance(10 * MS);
    assert!(!keys.contains("a").unwrap());
    assert_sound(&db);
}

#[test]
fn what_has_expired_is_reclaimed_by_merges() {
    if !without_history("what has expired stays in the past") {
        return;
    }
    let Subject { clock, db, keys, .. } = subject();
    for number in 0..2000_u32 {
        let key = number.to_be_bytes();
        if number % 10 == 0 {
            keys.insert(key, vec![1; 100]).unwrap();
        } else {
            keys.insert_with_ttl(key, vec![2; 100], 1000 * MS).unwrap();
        }
    }
    db.compact().unwrap();
    let entries = |db: &Db| -> u64 {
        let stats = db.stats().unwrap();
        stats.keyspaces.iter().flat_map(|k| &k.levels).map(|level| level.puts).sum()
    };
    assert_eq!(entries(&db), 2000);
    clock.advance(1000 * MS);
    assert_eq!(contents(&keys).len(), 200);
    db.compact().unwrap();
    assert_eq!(entries(&db), 200);
    assert_eq!(contents(&keys).len(), 200);
    assert_sound(&db);
}

#[test]
fn expiry_survives_a_kill_and_a_merge_that_a_crash_cut_off() {
    let Subject { clock, device, db, keys } = subject();
    let mut cut = Vec::new();
    for number in 0..600_u32 {
        keys.insert_with_ttl(number.to_be_bytes(), [3; 40], (number + 1) * MS).unwrap();
        if number % 100 == 99 {
            cut.push(copy(&device));
        }
    }
    drop((db, keys));
    clock.advance(250 * MS);
    for (at_hundred, device) in (1_u32..).zip(cut) {
        let (db, keys) = at(&clock, &device);
        let left = (100 * at_hundred).saturating_sub(250) as usize;
        assert_eq!(contents(&keys).len(), left);
        db.compact().unwrap();
        assert_eq!(contents(&keys).len(), left);
        assert_sound(&db);
    }
}
