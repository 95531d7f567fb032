//! Keyspaces with history: the times of versions, what is refused, and what their creation records.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::io::Write as _;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use common::{assert_sound, files, small};
use esker::{Db, Error, History, IndexKind, Keyspace, KeyspaceOptions, Merge, SimRuntime};
use esker_device::memory::MemoryDevice;
use esker_device::sim::{CrashModel, SimDevice, Survivors};
use esker_harness::random::Random;
use esker_substrate::planted::{self, Bug};

fn with_history(db: &Db) -> Keyspace {
    let options = KeyspaceOptions::default().memtable_bytes(Some(2 << 10));
    db.keyspace("past", options.history(History::All)).unwrap()
}

fn refusal(error: Error) -> String {
    match error {
        Error::Invalid { what, .. } => what,
        other => panic!("{other}"),
    }
}

#[test]
fn what_cannot_be_asked_is_refused_by_name() {
    let device = MemoryDevice::new();
    let db = small(&device).open().unwrap();
    let plain = db.keyspace("plain", KeyspaceOptions::default()).unwrap();
    plain.insert("a", "b").unwrap();
    let keyspace = with_history(&db);
    let (oldest, refused) = (db.version(), |version| refusal(keyspace.at(version).unwrap_err()));
    keyspace.insert("a", "b").unwrap();
    let newest = db.version();
    assert!(refused(0).contains("before its history"));
    assert!(refused(newest + 1).contains(&format!("has versions {oldest} to {newest}")));
    assert!(refused(u64::MAX).contains("in the future"));
    assert!(refusal(plain.at(newest).unwrap_err()).contains("keeps no history"));
    assert!(refusal(plain.history("a").unwrap_err()).contains("keeps no history"));
    let changes = |versions: RangeInclusive<u64>| refusal(keyspace.changes(versions).unwrap_err());
    assert!(changes(0..=newest).contains(&format!("those after version {oldest} are")));
    assert!(changes(oldest..=newest).contains("are not kept"));
    assert!(changes(newest..=newest + 1).contains("in the future"));
    assert!(changes(newest + 2..=newest + 3).contains("in the future"));
    assert_eq!(keyspace.changes(newest + 1..).unwrap().count(), 0);
    assert_eq!(keyspace.changes(..).unwrap().count(), 1);
    assert_eq!(keyspace.changes(newest..newest).unwrap().count(), 0);
    assert!(refusal(keyspace.diff(oldest - 1, newest).unwrap_err()).contains("before its history"));
    assert!(refusal(keyspace.diff(newest + 1, oldest).unwrap_err()).contains("in the future"));
    assert!(refusal(plain.changes(..).unwrap_err()).contains("keeps no history"));
    assert!(refusal(plain.diff(newest, newest).unwrap_err()).contains("keeps no history"));
    let pin = |name: &str, version| refusal(db.pin(name, version).unwrap_err());
    assert!(pin("", newest).contains("1 to 255 bytes"));
    assert!(pin("a", newest + 1).contains(&format!("there are versions {oldest} to {newest}")));
    assert!(pin("a", oldest - 1).contains("cannot be kept"));
    db.pin("a", oldest).unwrap();
    assert!(pin("a", newest).contains("unpin it first"));
    assert!(refusal(db.unpin("b").unwrap_err()).contains("no version is kept as b"));
    assert!(refusal(keyspace.at_named("b").unwrap_err()).contains("no version is kept as b"));
    assert!(refusal(plain.at_named("a").unwrap_err()).contains("keeps no history"));
    let open = |name: &str, options| refusal(db.keyspace(name, options).unwrap_err());
    let history = KeyspaceOptions::default().history(History::All);
    assert!(open("plain", history.clone()).contains("set_history begins one"));
    assert!(open("new", history.clone().merge(Merge::Add)).contains("no merge operator"));
    assert!(open("new", history.index(IndexKind::Lsm)).contains("kind fdtree"));
    let adds = KeyspaceOptions::default().merge(Merge::Add);
    assert!(open("past", adds).contains("no merge operator"));
    // The option need not be given again, and may be.
    db.keyspace("past", KeyspaceOptions::default()).unwrap();
    with_history(&db);
    assert_eq!(db.keyspaces().unwrap(), ["past", "plain"]);
}

/// Versions without history must refuse the store.
#[test]
fn a_store_with_history_requires_the_feature() {
    let requires = |device: &MemoryDevice| {
        let superblock = files(device).remove("superblock").unwrap();
        (0..4).any(|slot| superblock[(slot << 16) + 9] & 1 != 0)
    };
    let device = MemoryDevice::new();
    let db = small(&device).open().unwrap();
    db.keyspace("plain", KeyspaceOptions::default()).unwrap();
    assert!(!requires(&device));
    with_history(&db);
    assert!(requires(&device));
}

/// A store whose clock shows `seconds`.
fn at_second(device: &MemoryDevice, seconds: u64) -> (Db, Arc<SimRuntime>) {
    let runtime = Arc::new(SimRuntime::new(1));
    runtime.set_unix_time(Duration::from_secs(seconds));
    let db = small(device).runtime(Arc::clone(&runtime) as _).open().unwrap();
    (db, runtime)
}

fn time(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

#[test]
fn versions_are_found_by_their_times() {
    let device = MemoryDevice::new();
    let (db, clock) = at_second(&device, 100);
    let keyspace = with_history(&db);
    let plain = db.keyspace("plain", KeyspaceOptions::default()).unwrap();
    let created = db.version();
    for second in 101..110 {
        clock.set_unix_time(Duration::from_secs(second));
        for n in 0..3 {
            keyspace.insert("key", format!("{second}.{n}")).unwrap();
            plain.insert("key", "other commits have no time").unwrap();
        }
    }
    let found = |keyspace: &Keyspace, seconds: u64| {
        let value = keyspace.at_time(time(seconds)).unwrap().get("key").unwrap();
        String::from_utf8(value.unwrap()).unwrap()
    };
    assert_eq!(found(&keyspace, 101), "101.2");
    assert_eq!(found(&keyspace, 105), "105.2");
    assert_eq!(found(&keyspace, 1_000), "109.2");
    assert_eq!(keyspace.at_time(time(100)).unwrap().get("key").unwrap(), None);
    let (first, last) = (time(101), time(109));
    assert_eq!(db.time_of(db.version()).unwrap(), Some(last));
    assert_eq!(db.time_of(created).unwrap(), None);
    let changes = keyspace.history("key").unwrap().map(Result::unwrap);
    let oldest = changes.last().unwrap();
    assert_eq!(db.time_of(oldest.version).unwrap(), Some(first));
    assert_eq!(keyspace.at(oldest.version).unwrap().time().unwrap(), Some(first));
    assert!(refusal(plain.at_time(last).unwrap_err()).contains("keeps no history"));
    db.close().unwrap();

    // The clock has been set back: versions keep the newest time until it has caught up.
    let (db, clock) = at_second(&device, 50);
    let keyspace = db.open_keyspace("past").unwrap().unwrap();
    keyspace.insert("key", "later").unwrap();
    assert_eq!(db.time_of(db.version()).unwrap(), Some(last));
    assert_eq!(found(&keyspace, 109), "later");
    assert_eq!(found(&keyspace, 108), "108.2");
    clock.set_unix_time(Duration::from_secs(200));
    let mut writer = keyspace.writer("key").unwrap();
    writer.write_all(&[b'x'; 5000]).unwrap();
    writer.finish().unwrap();
    assert_eq!(db.time_of(db.version()).unwrap(), Some(time(200)));
    assert_eq!(found(&keyspace, 199), "later");
    db.compact().unwrap();
    assert_eq!(found(&keyspace, 104), "104.2");
    assert_sound(&db);
}

#[test]
fn names_of_own_keyspaces_are_hidden_and_reserved() {
    let device = MemoryDevice::new();
    let db = small(&device).open().unwrap();
    with_history(&db).insert("a", "b").unwrap();
    assert_eq!(db.keyspaces().unwrap(), ["past"]);
    assert!(db.open_keyspace("esker.times").unwrap().is_none());
    assert!(!db.drop_keyspace("esker.times").unwrap());
    let refused = db.keyspace("esker.times", KeyspaceOptions::default()).unwrap_err();
    assert!(refusal(refused).contains("Esker's own"));
    assert!(db.drop_keyspace("past").unwrap());
    with_history(&db).insert("a", "b").unwrap();
    assert!(db.time_of(db.version()).unwrap().is_some());
}

/// A commit that is refused leaves its time to the next one.
#[test]
fn a_refused_commit_takes_no_time_with_it() {
    let device = MemoryDevice::new();
    let (db, clock) = at_second(&device, 100);
    let keyspace = with_history(&db);
    let plain = db.keyspace("plain", KeyspaceOptions::default()).unwrap();
    keyspace.insert("key", "old").unwrap();
    clock.set_unix_time(Duration::from_secs(10_000));
    let mut stale = db.transaction().unwrap();
    stale.get(&plain, "read").unwrap();
    plain.insert("read", "written since").unwrap();
    stale.insert(&keyspace, "other", "never").unwrap();
    assert!(matches!(stale.commit(), Err(Error::Conflict { .. })));
    keyspace.insert("key", "new").unwrap();
    assert_eq!(db.time_of(db.version()).unwrap(), Some(time(10_000)));
    let then = keyspace.at_time(time(9_999)).unwrap();
    assert_eq!(then.get("key").unwrap().as_deref(), Some(&b"old"[..]));
}

/// Numbers that a power cut takes back are part of the history when they are given out again.
#[test]
fn a_keyspace_is_not_older_than_what_is_durable() {
    let disk = Arc::new(SimDevice::new());
    let open = |disk: &Arc<SimDevice>| {
        let builder = Db::builder_on(Arc::clone(disk) as _).memory_budget(256 << 10);
        builder.log_segment_bytes(16 << 10).inline_merges(0).open().unwrap()
    };
    let db = open(&disk);
    let plain = db.keyspace("plain", KeyspaceOptions::default()).unwrap();
    for number in 0..500_u32 {
        plain.insert(number.to_be_bytes(), "not synced").unwrap();
    }
    with_history(&db);
    let left = disk.crash(&Survivors::nothing(), &CrashModel::default());
    let db = open(&Arc::new(SimDevice::from_image(&left)));
    let keyspace = db.open_keyspace("past").unwrap().unwrap();
    let versions: Vec<u64> = (0..20_u32)
        .map(|number| {
            keyspace.insert("key", number.to_be_bytes()).unwrap();
            db.version()
        })
        .collect();
    db.compact().unwrap();
    for (number, version) in (0_u32..).zip(versions) {
        let value = keyspace.at(version).unwrap().get("key").unwrap();
        assert_eq!(value.as_deref(), Some(&number.to_be_bytes()[..]));
    }
}

/// Fills a device of this many bytes, and then removes keys; what a removal was refused with.
fn remove_on_a_full_device(capacity_bytes: u64) -> Result<(), Error> {
    let disk = Arc::new(SimDevice::new());
    disk.set_capacity_bytes(capacity_bytes);
    let runtime = Arc::new(SimRuntime::new(1));
    let builder = Db::builder_on(Arc::clone(&disk) as _).memory_budget(256 << 10);
    let builder = builder.log_segment_bytes(16 << 10).inline_merges(0);
    let db = builder.runtime(Arc::clone(&runtime) as _).open().unwrap();
    let keyspace = with_history(&db);
    let mut number = 0_u32;
    let next = |number: u32| runtime.set_unix_time(Duration::from_millis(number.into()));
    loop {
        next(number);
        match keyspace.insert(number.to_be_bytes(), [7; 200]) {
            Ok(()) => number += 1,
            Err(Error::Full { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    for (at, removed) in (number..).zip(0..20_u32) {
        next(at);
        keyspace.remove(removed.to_be_bytes())?;
        assert!(keyspace.get(removed.to_be_bytes()).unwrap().is_none());
        let when = SystemTime::UNIX_EPOCH + Duration::from_millis(at.into());
        assert_eq!(db.time_of(db.version()).unwrap(), Some(when));
    }
    Ok(())
}

/// Removals are accepted on full devices of several sizes, each with its time.
#[test]
fn removals_succeed_on_a_full_device() {
    // How full the last blocks are, and what is merged when the device is full, depends on it.
    let refused = |capacity_bytes| remove_on_a_full_device(capacity_bytes).err();
    let every = (5_000_000..7_500_000).step_by(11 * 40_960);
    for capacity_bytes in every.chain([6 << 20, 6_556_480, 6_884_160, 7_048_000]) {
        let refused = refused(capacity_bytes);
        assert!(refused.is_none(), "of {capacity_bytes} bytes: {refused:?}");
    }
    let hunt = || planted::with(Bug::UnitsLeftEmpty, || refused(5_000_000));
    assert!(matches!(hunt(), Some(Error::Full { .. })));
}

/// Overwrites keys until two splits of more blocks than fences are given up at a time have run, and
/// compares versions from before each while it runs. The number of those answers.
fn read_beside_long_splits() -> u64 {
    const KEYS: u64 = 60_000;
    let builder = Db::builder_on(Arc::new(MemoryDevice::new())).memory_budget(1 << 20);
    let db = builder.log_segment_bytes(64 << 10).inline_merges(1).open().unwrap();
    let options = KeyspaceOptions::default().memtable_bytes(Some(64 << 10));
    let keyspace = db.keyspace("past", options.history(History::All)).unwrap();
    let value = |n: u64, round: u64| format!("{n} {round} ").repeat(10);
    for n in 0..KEYS {
        keyspace.insert(n.to_be_bytes(), value(n, 0)).unwrap();
    }
    let (random, mut state) = (Random::new(3), vec![0; KEYS as usize]);
    let mut before = (keyspace.at(db.version()).unwrap(), state.clone());
    let mut answers = 0;
    for round in 1..=6 * KEYS {
        let n = random.below(KEYS);
        keyspace.insert(n.to_be_bytes(), value(n, round)).unwrap();
        state[n as usize] = round;
        if round % 20 != 0 {
            continue;
        }
        let stats = db.stats().unwrap().keyspaces;
        let past = stats.into_iter().find(|of| of.name == "past").unwrap();
        let (merge, splits) = (past.merge, past.past_indexes.len());
        let splitting = merge.as_ref().is_some_and(|merge| merge.full);
        if merge.is_none() && round % 1_000 == 0 {
            before = (keyspace.at(db.version()).unwrap(), state.clone());
        }
        for _ in 0..20 * u64::from(splitting) {
            let n = random.below(KEYS - 2);
            let found = before.0.range(n.to_be_bytes()..).unwrap().take(3);
            let found: Vec<_> = found.map(|entry| entry.unwrap().1).collect();
            let expected = (n..n + 3).map(|n| value(n, before.1[n as usize]).into_bytes());
            assert_eq!(found, expected.collect::<Vec<_>>());
            let found = before.0.get(n.to_be_bytes()).unwrap();
            assert_eq!(found, Some(value(n, before.1[n as usize]).into_bytes()));
            answers += 4;
        }
        if splits == 2 {
            return answers;
        }
    }
    panic!("fewer than two splits");
}

#[test]
fn versions_from_before_long_splits_are_whole() {
    let answers = read_beside_long_splits();
    assert!(answers > 1_000, "{answers}");
    let bug = || planted::with(Bug::SplitReadsTrimmed, read_beside_long_splits);
    assert!(std::panic::catch_unwind(bug).is_err());
}
