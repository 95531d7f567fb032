//! Keyspaces with history: batches, merges and range tombstones, one case each.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use common::{Model, assert_sound, copy, small, threaded};
use esker::{Db, History, Keyspace, KeyspaceOptions};
use esker_device::memory::MemoryDevice;
use esker_harness::random::Random;

fn options() -> KeyspaceOptions {
    KeyspaceOptions::default().memtable_bytes(Some(2 << 10)).history(History::All)
}

fn with_history(db: &Db) -> Keyspace {
    db.keyspace("past", options()).unwrap()
}

fn key(number: u64) -> Vec<u8> {
    format!("{:03}{}", number * 7 % 100, "-".repeat(number as usize % 5)).into_bytes()
}

/// Whatever merge is under way, or due: a gathered level, a split.
#[test]
fn compaction_merges_everything() {
    let device = MemoryDevice::new();
    let db = small(&device).inline_merges(1).open().unwrap();
    let keyspace = db.keyspace("past", options().memtable_bytes(Some(4 << 10))).unwrap();
    let random = Random::new(1);
    let stats = |db: &Db| {
        let stats = db.stats().unwrap();
        stats.keyspaces.into_iter().find(|keyspace| keyspace.name == "past").unwrap()
    };
    for round in 0..3_000 {
        keyspace.insert(format!("{:04}", random.below(400)), random.bytes(60)).unwrap();
        if round % 3 == 0 && stats(&db).memtable_entries > 0 {
            let again = small(&copy(&device)).inline_merges(1).open().unwrap();
            again.compact().unwrap();
            let compact = stats(&again);
            assert_eq!((compact.sorted_runs, compact.memtable_entries), (0, 0), "{round}");
        }
    }
}

/// Inside a batch there is nothing: every number of its operations but the last shows the state
/// before it, now and after replay.
#[test]
fn a_batch_is_one_version() {
    let device = MemoryDevice::new();
    let db = small(&device).open().unwrap();
    let keyspace = with_history(&db);
    keyspace.insert("050", "before").unwrap();
    let before = db.version();
    let mut batch = db.batch();
    batch.remove_range(&keyspace, "050".."060");
    for number in 0..100 {
        batch.insert(&keyspace, key(number), "within");
    }
    let version = batch.commit().unwrap();
    assert!(version >= before + 60);
    let look = |keyspace: &Keyspace| {
        for number in before..version {
            let past = keyspace.at(number).unwrap();
            assert_eq!(past.iter().unwrap().count(), 1, "{number}");
            assert_eq!(past.get("050").unwrap().as_deref(), Some(&b"before"[..]));
        }
        let past = keyspace.at(version).unwrap();
        assert!(past.iter().unwrap().all(|entry| entry.unwrap().1 == b"within"));
    };
    look(&keyspace);
    let killed = copy(&device);
    let again = small(&killed).open().unwrap();
    look(&again.open_keyspace("past").unwrap().unwrap());
    db.compact().unwrap();
    look(&keyspace);
}

/// A batch that is larger than the memory of the store that opens it is replayed whole.
#[test]
fn a_large_batch_is_replayed_as_one_version() {
    let device = MemoryDevice::new();
    let db = threaded(&device).memory_budget(16 << 20).open().unwrap();
    let keyspace = db.keyspace("past", KeyspaceOptions::default().history(History::All)).unwrap();
    let mut batch = db.batch();
    for number in 0..4000_u32 {
        batch.insert(&keyspace, number.to_be_bytes(), vec![7; 300]);
    }
    let version = batch.commit().unwrap();
    let killed = copy(&device);
    for _ in 0..2 {
        let again = small(&copy(&killed)).open().unwrap();
        let keyspace = again.open_keyspace("past").unwrap().unwrap();
        assert_eq!(keyspace.at(version - 1).unwrap().iter().unwrap().count(), 0);
        assert_eq!(keyspace.at(version).unwrap().iter().unwrap().count(), 4000);
        assert_eq!(keyspace.iter().unwrap().count(), 4000);
        assert_sound(&again);
    }
}

/// Deletes and versions of a key, many times: nothing is merged in vain, for ever.
#[test]
fn compaction_ends_although_nothing_may_go() {
    let device = MemoryDevice::new();
    let db = small(&device).open().unwrap();
    let keyspace = with_history(&db);
    for round in 0..40 {
        for number in 0..30 {
            keyspace.insert(key(number), [round; 40]).unwrap();
            keyspace.remove(key(number)).unwrap();
        }
        keyspace.remove_range("0".."9").unwrap();
    }
    db.compact().unwrap();
    let merges = || {
        let keyspaces = db.stats().unwrap().keyspaces;
        keyspaces.iter().map(|keyspace| keyspace.merges).sum::<u64>()
    };
    let before = merges();
    db.compact().unwrap();
    assert_eq!(merges(), before, "there is nothing to merge");
    assert_eq!(keyspace.iter().unwrap().count(), 0);
    let changes = keyspace.history(key(3)).unwrap().map(Result::unwrap);
    let changes: Vec<_> = changes.map(|change| change.value.is_some()).collect();
    assert_eq!(changes, [false, true].repeat(40));
}

/// Thousands of range tombstones become tombstones of keys: none is refused.
#[test]
fn range_tombstones_are_retired_and_stay_in_the_past() {
    let device = MemoryDevice::new();
    let db = small(&device).open().unwrap();
    let keyspace = with_history(&db);
    let mut versions = Vec::new();
    for round in 0..5000_u64 {
        let number = round % 90;
        keyspace.insert(format!("{number:03}"), round.to_be_bytes()).unwrap();
        versions.push(db.version());
        keyspace.remove_range(format!("{number:03}")..format!("{:03}", number + 1)).unwrap();
    }
    assert_eq!(keyspace.iter().unwrap().count(), 0);
    for (round, version) in versions.iter().enumerate().step_by(7) {
        let past = keyspace.at(*version).unwrap();
        let entries: Vec<_> = past.iter().unwrap().map(Result::unwrap).collect();
        assert_eq!(entries.len(), 1, "round {round}");
        assert_eq!(entries[0].1, (round as u64).to_be_bytes());
    }
    assert_eq!(keyspace.history("007").unwrap().count(), 2 * 5000_usize.div_ceil(90));
    assert_sound(&db);
}

/// Each version is found whole.
#[test]
fn readers_of_the_past_run_concurrently_with_writers_and_merges() {
    let device = MemoryDevice::new();
    let db = threaded(&device).open().unwrap();
    let keyspace = with_history(&db);
    let write = |writer: u64| {
        for round in 0..200_u64 {
            let mut batch = db.batch();
            for number in 0..10 {
                batch.insert(&keyspace, [b'a' + writer as u8, number], round.to_be_bytes());
            }
            let version = batch.commit().unwrap();
            let past = keyspace.at(version).unwrap();
            let own = past.prefix([b'a' + writer as u8]).unwrap().map(Result::unwrap);
            assert!(own.map(|(_, value)| value).eq((0..10).map(|_| round.to_be_bytes().to_vec())));
        }
    };
    let read = |seed: u64| {
        let random = Random::new(seed);
        let oldest = 1 + db.version();
        for _ in 0..300 {
            let version = oldest + random.below(db.version() - oldest.min(db.version()) + 1);
            let Ok(past) = keyspace.at(version) else { continue };
            for writer in *b"abc" {
                let entries = past.prefix([writer]).unwrap().map(Result::unwrap);
                let values: Vec<_> = entries.map(|(_, value)| value).collect();
                assert!(values.len() == 10 || values.is_empty(), "{version}: {}", values.len());
                assert!(values.windows(2).all(|pair| pair[0] == pair[1]), "{version}");
            }
        }
    };
    std::thread::scope(|scope| {
        for n in 0..3 {
            let write = &write;
            scope.spawn(move || write(n));
        }
        for n in 0..2 {
            let read = &read;
            scope.spawn(move || read(n));
        }
    });
    assert_eq!(keyspace.history([b'b', 3]).unwrap().count(), 200);
    assert_sound(&db);
}

/// Of several tombstones in a row one is kept, and range tombstones are retired although a snapshot
/// is held.
#[test]
fn removals_of_what_is_removed_take_no_space() {
    let device = MemoryDevice::new();
    let db = small(&device).open().unwrap();
    let keyspace = with_history(&db);
    for number in 0..100 {
        keyspace.insert(key(number), "value").unwrap();
    }
    let full = db.version();
    let snapshot = db.snapshot().unwrap();
    for number in 0..6000 {
        keyspace.remove_range::<&[u8]>(..).unwrap();
        keyspace.remove(key(number % 100)).unwrap();
    }
    db.compact().unwrap();
    let stats = db.stats().unwrap().keyspaces;
    let entries = stats.iter().find(|stats| stats.name == "past").unwrap().entries_estimate;
    assert!(entries <= 200, "{entries}");
    assert_eq!(snapshot.iter(&keyspace).unwrap().count(), 100);
    assert_eq!(keyspace.at(full).unwrap().iter().unwrap().count(), 100);
    assert_eq!(keyspace.at(full + 1).unwrap().iter().unwrap().count(), 0);
    let changes: Vec<_> = keyspace.history(key(7)).unwrap().map(Result::unwrap).collect();
    assert_eq!(changes.len(), 2);
    assert_eq!(changes[0].version, full + 1);
    assert_sound(&db);
}

/// Ranges and the keys that begin them, in the memtable of a merge that a kill interrupts: every
/// version is there when it is resumed, and it can be.
#[test]
fn a_merge_that_is_resumed_finds_what_was_removed_and_written() {
    let (mut kills, device) = (0, MemoryDevice::new());
    let open = |device: &MemoryDevice| {
        Db::builder_on(Arc::new(device.clone())).memory_budget(8 << 20).inline_merges(1).open()
    };
    let db = open(&device).unwrap();
    let options = KeyspaceOptions::default().memtable_bytes(Some(32 << 10));
    let keyspace = db.keyspace("past", options.history(History::All)).unwrap();
    for number in 0..1500_u32 {
        let key = (number * 7 % 1501 * 2 + 1).to_be_bytes();
        let begin = (number * 7 % 1501 * 2 + number % 2).to_be_bytes();
        let mut batch = db.batch();
        batch.remove_range(&keyspace, &begin[..]..=&key[..]);
        // Two in three begin with the key that is written, or one that is not.
        if number % 3 > 0 {
            batch.insert(&keyspace, key, [7; 40]);
        }
        let version = batch.commit().unwrap();
        let stats = db.stats().unwrap().keyspaces;
        if kills < 80 && stats.iter().any(|stats| stats.merge.is_some()) {
            kills += 1;
            let killed = open(&copy(&device)).unwrap();
            let found = killed.open_keyspace("past").unwrap().unwrap();
            let expected: Model = keyspace.iter().unwrap().map(Result::unwrap).collect();
            for compacts in [false, true] {
                if compacts {
                    killed.compact().unwrap();
                }
                let past = found.at(version).unwrap();
                assert!(past.iter().unwrap().map(Result::unwrap).eq(expected.clone()), "{number}");
                assert_sound(&killed);
            }
        }
    }
    assert!(kills > 20, "{kills}");
}
