//! Erasing keys: nothing of them is left, and everything else is as it was, over power cuts at
//! every step, full devices, and beside readers, checks and writers.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Model, assert_sound, copy, files, small, threaded};
use esker::{Db, DbBuilder, Error, History, Keyspace, KeyspaceOptions, Past};
use esker_device::memory::MemoryDevice;
use esker_device::sim::SimDevice;
use esker_harness::counts::{Counts, budget};
use esker_harness::crash::{each, limited};
use esker_harness::random::Random;

const ERASED: [&str; 2] = ["key 07", "key 13"];

fn options() -> KeyspaceOptions {
    let options = KeyspaceOptions::default().memtable_bytes(Some(2 << 10)).inline_bytes_max(150);
    options.history(History::All)
}

fn on(disk: &Arc<SimDevice>) -> DbBuilder {
    let builder = Db::builder_on(Arc::clone(disk) as _).memory_budget(256 << 10);
    builder.log_segment_bytes(16 << 10).inline_merges(0)
}

/// Overwrites keys with values of which some are blobs, and returns the state at each version.
fn write(db: &Db, keyspace: &Keyspace, random: &Random, commits: u64) -> BTreeMap<u64, Model> {
    let mut state = Model::new();
    let mut states = BTreeMap::from([(db.version(), state.clone())]);
    for _ in 0..commits {
        let key = format!("key {:02}", random.below(30)).into_bytes();
        if random.percent(10) {
            keyspace.remove(&key).unwrap();
            state.remove(&key);
        } else {
            let value = random.bytes(random.within(&(20..=260)));
            keyspace.insert(&key, &value).unwrap();
            state.insert(key, value);
        }
        states.insert(db.version(), state.clone());
    }
    states
}

fn contents(past: &Past) -> Model {
    past.iter().unwrap().map(Result::unwrap).collect()
}

fn is_erased(key: &[u8]) -> bool {
    ERASED.iter().any(|erased| erased.as_bytes() == key)
}

/// All versions are as they were but for the erased keys, of which a version has the value that it
/// had, or none; with `all`, none.
fn compare(keyspace: &Keyspace, states: &BTreeMap<u64, Model>, all: bool) {
    for (version, state) in states {
        let found = contents(&keyspace.at(*version).unwrap());
        for (key, value) in &found {
            assert_eq!(state.get(key), Some(value), "version {version}");
            assert!(!all || !is_erased(key), "version {version}");
        }
        let missing = state.keys().filter(|key| !found.contains_key(*key));
        assert!(missing.into_iter().all(|key| is_erased(key)), "version {version}");
    }
    for key in ERASED.iter().filter(|_| all) {
        assert_eq!(keyspace.history(key).unwrap().count(), 0);
    }
}

/// What is on the device of a store that has been closed, but for the log.
fn bytes_of(device: &MemoryDevice) -> Vec<u8> {
    files(device).remove("data").unwrap()
}

fn has(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn nothing_of_an_erased_key_is_on_the_device() {
    let device = MemoryDevice::new();
    let db = small(&device).open().unwrap();
    let keyspace = db.keyspace("past", options()).unwrap();
    let random = Random::new(1);
    for round in 0..6 {
        keyspace.insert("name of a person", format!("inline {round} of a person")).unwrap();
        write(&db, &keyspace, &random, 150);
        let long = format!("blob {round} of a person").repeat(12);
        keyspace.insert("name of a person", long).unwrap();
        write(&db, &keyspace, &random, 150);
    }
    assert!(has(&bytes_of(&device), b"of a person"));
    keyspace.erase(["name of a person"]).unwrap();
    assert!(!has(&bytes_of(&device), b"of a person"));
    assert_sound(&db);
    db.close().unwrap();
    assert!(!has(&bytes_of(&device), b"of a person"));
    assert_sound(&small(&device).open().unwrap());
}

#[test]
fn a_power_cut_leaves_each_version_with_the_key_or_without() {
    let mut counts = Counts::new("erase", "power cuts");
    for seed in 0..3 * budget() {
        let disk = Arc::new(SimDevice::new());
        let db = on(&disk).open().unwrap();
        let keyspace = db.keyspace("past", options()).unwrap();
        let states = write(&db, &keyspace, &Random::new(seed), 400);
        db.flush().unwrap();
        disk.record();
        keyspace.erase(ERASED).unwrap();
        disk.mark(1);
        let trace = disk.take_trace().unwrap();
        let visited = each(&trace, &limited(seed, 40), |state, disk| {
            let again = on(disk).open().unwrap();
            let keyspace = again.open_keyspace("past").unwrap().unwrap();
            compare(&keyspace, &states, state.acknowledged().is_some());
            assert_sound(&again);
            keyspace.erase(ERASED).unwrap();
            compare(&keyspace, &states, true);
            assert_sound(&again);
            Ok(())
        });
        counts.add("crashes", visited.unwrap().visited);
        let stats = db.stats().unwrap().keyspaces;
        assert!(stats.iter().any(|keyspace| keyspace.past_indexes.len() > 1));
    }
    assert!(counts.get("crashes") > 80);
    counts.record().unwrap();
}

/// What a split under way has passed is in its inputs, which become a past index.
#[test]
fn keys_are_erased_whatever_merge_is_under_way() {
    let device = MemoryDevice::new();
    let db = small(&device).inline_merges(1).open().unwrap();
    let keyspace = db.keyspace("past", options().inline_bytes_max(1 << 10)).unwrap();
    let random = Random::new(2);
    let mut merging = 0;
    for round in 0..1_500_u64 {
        let key = format!("key {:02}", random.below(30));
        keyspace.insert(&key, random.bytes(random.within(&(200..=390)))).unwrap();
        if round % 40 == 0 {
            ERASED.iter().for_each(|key| keyspace.remove(key).unwrap());
        }
        let stats = db.stats().unwrap().keyspaces;
        let is_merging = stats.iter().any(|keyspace| keyspace.merge.is_some());
        if !is_merging && round % 20 != 0 {
            continue;
        }
        merging += u64::from(is_merging);
        let again = small(&copy(&device)).inline_merges(1).open().unwrap();
        let keyspace = again.open_keyspace("past").unwrap().unwrap();
        keyspace.erase(ERASED).unwrap();
        for key in ERASED {
            assert_eq!(keyspace.history(key).unwrap().count(), 0, "{round}");
        }
    }
    assert!(merging > 20, "{merging}");
}

/// An erasing that finds no space leaves everything as it was, and succeeds when there is some.
#[test]
fn a_full_device_is_an_error() {
    let disk = Arc::new(SimDevice::new());
    let db = on(&disk).open().unwrap();
    let keyspace = db.keyspace("past", options()).unwrap();
    let states = write(&db, &keyspace, &Random::new(5), 700);
    let mut refused = 0;
    for spare in 0..60 {
        disk.set_capacity_bytes(disk.used_bytes() + spare * (8 << 10));
        match keyspace.erase(ERASED) {
            Ok(()) => break,
            Err(Error::Full { .. } | Error::Invalid { .. }) => refused += 1,
            Err(error) => assert!(error.to_string().is_empty(), "{error}"),
        }
        compare(&keyspace, &states, false);
        assert_sound(&db);
    }
    assert!(refused > 0);
    disk.set_capacity_bytes(64 << 20);
    keyspace.erase(ERASED).unwrap();
    compare(&keyspace, &states, true);
    assert_sound(&db);
}

/// Readers, checks and writers go on while keys are erased again and again, and versions are given
/// up.
#[test]
fn keys_are_erased_beside_everything_else() {
    let device = MemoryDevice::new();
    let db = threaded(&device).open().unwrap();
    let keyspace = db.keyspace("past", options().history(History::Newest(400))).unwrap();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let random = Random::new(1);
            for round in 0..2_000_u64 {
                let key = format!("key {:02}", random.below(30));
                keyspace.insert(key, random.bytes(20 + round as usize % 200)).unwrap();
            }
            is_done.store(true, Ordering::Relaxed);
        });
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                assert_sound(&db);
                db.flush().unwrap();
            }
        });
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                let Ok(past) = keyspace.at(db.version().saturating_sub(200)) else { continue };
                let (first, second) = (contents(&past), contents(&past));
                let left = |state: &Model| {
                    let mut state = state.clone();
                    state.retain(|key, _| !is_erased(key));
                    state
                };
                assert_eq!(left(&first), left(&second));
            }
        });
        while !is_done.load(Ordering::Relaxed) {
            keyspace.erase(ERASED).unwrap();
        }
    });
    keyspace.erase(ERASED).unwrap();
    for key in ERASED {
        assert_eq!(keyspace.history(key).unwrap().count(), 0);
    }
    assert_sound(&db);
    let again = small(&copy(&device)).open().unwrap();
    assert_sound(&again);
}

#[test]
fn what_cannot_be_erased_is_refused() {
    let db = small(&MemoryDevice::new()).open().unwrap();
    let refused = |options: KeyspaceOptions| {
        let keyspace = db.keyspace("refused", options).unwrap();
        let error = keyspace.erase(["a"]).unwrap_err().to_string();
        db.drop_keyspace("refused").unwrap();
        error
    };
    assert!(refused(KeyspaceOptions::default()).contains("keeps no history"));
    assert!(refused(options().history_share(1.0)).contains("history_share of 1.0"));
    let keyspace = db.keyspace("past", options()).unwrap();
    assert!(keyspace.erase(["x".repeat(esker::KEY_BYTES_MAX + 1)]).is_err());
    keyspace.erase(["never written"]).unwrap();
    keyspace.erase::<&str>([]).unwrap();
    keyspace.insert("a", "b").unwrap();
    let version = db.version();
    keyspace.erase(["a"]).unwrap();
    assert_eq!(keyspace.at(version).unwrap().get("a").unwrap(), None);
    keyspace.insert("a", "c").unwrap();
    assert_eq!(keyspace.history("a").unwrap().count(), 1);
}
