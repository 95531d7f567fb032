//! Things that full merges must not do: disturb a scan, take space without bound, miscount, keep a
//! store from being read when the device is full, or keep one from being read after a crash.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{
    self, Model, assert_sound, contents, copy, keeps_history, kind, only_for, options, schemes,
    without_history,
};
use esker::{Db, DbBuilder, Device, IndexKind, KeyspaceStats, Scheme};
use esker_device::Purpose;
use esker_device::memory::MemoryDevice;
use esker_device::sim::{Effect, Failure, Fault, FaultPlan, OpKind, SimDevice, SimImage};
use esker_device::wrap::{Hook, Step, StepKind, Wrapped};
use esker_testkit::random::Random;

fn key(number: u64) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

fn value(number: u64, round: u64) -> Vec<u8> {
    let text = format!("{number}-{round}-");
    text.bytes().cycle().take(60 + (number % 80) as usize).collect()
}

fn keyspace_stats(db: &Db) -> KeyspaceStats {
    let all = db.stats().unwrap().keyspaces;
    all.into_iter().find(|keyspace| keyspace.name == "k").unwrap()
}

/// Whether a full merge is under way.
fn merges_fully(stats: &KeyspaceStats) -> bool {
    stats.merge.as_ref().is_some_and(|merge| merge.full)
}

const MEMTABLE_BYTES: u64 = 64 << 10;

fn medium(device: &MemoryDevice) -> DbBuilder {
    Db::builder_on(Arc::new(device.clone())).memory_budget(1 << 20).log_segment_bytes(64 << 10)
}

fn keyspace(db: &Db) -> esker::Keyspace {
    db.keyspace("k", options().memtable_bytes(Some(MEMTABLE_BYTES))).unwrap()
}

/// Counts full merges by looking at a store after every write, which does one step.
#[derive(Default)]
struct Watch {
    finished: u64,
    merges: u64,
    /// Writes when the last finished full merge began, and when the present one did.
    began: (u64, u64),
    fully: bool,
}

impl Watch {
    fn look(&mut self, stats: &KeyspaceStats, writes: u64) {
        let with_data = stats.levels.iter().filter(|level| level.puts + level.tombstones > 0);
        if stats.merges > self.merges && (self.fully || with_data.count() <= 1) {
            self.finished += 1;
            // A merge that was never observed was done in one step.
            self.began.0 = if self.fully { self.began.1 } else { writes };
        }
        self.merges = stats.merges;
        let fully = merges_fully(stats);
        if fully && !self.fully {
            self.began.1 = writes;
        }
        self.fully = fully;
    }
}

const KEYS: u64 = 8000;

/// The space that a store used, in bytes, compared with the space that its versions need: those
/// that the scan sees, the newest ones when the last finished full merge began, and all written
/// since then.
#[derive(Debug, Default)]
struct Space {
    /// Writes before that merge, and how many keys had been overwritten by then.
    began: u64,
    kept: u64,
    /// Most that was in use beyond what was needed.
    excess: i64,
    /// Most that was needed, and the length of the file in the end.
    needed: u64,
    file: u64,
    /// The highest number of sorted runs.
    runs: u64,
}

impl Space {
    fn add(&mut self, stats: &esker::SpaceStats, needed: u64) {
        self.excess = self.excess.max(stats.allocated_bytes as i64 - needed as i64);
        self.needed = self.needed.max(needed);
        self.file = stats.data_file_bytes;
    }
}

/// Opens a scan, overwrites everything again and again until two full merges have begun and
/// ended, and reads the scan to its end.
fn a_scan_through_two_full_merges(scheme: Scheme) -> Space {
    let device = MemoryDevice::new();
    let db = medium(&device).inline_merges(1).scheme(scheme).open().unwrap();
    let keyspace = keyspace(&db);
    for number in 0..KEYS {
        keyspace.insert(key(number), value(number, 0)).unwrap();
    }
    db.compact().unwrap();
    let expected = contents(&keyspace);
    // As the scheme packs them: with units of one block, which a memtable as small as this one has,
    // publish points leave about half of the room in blocks unused.
    let bytes_of_an_entry = db.stats().unwrap().space.allocated_bytes / KEYS + 1;
    let mut scan = keyspace.iter().unwrap();
    let mut seen = Model::new();
    seen.extend(scan.by_ref().take(1000).map(Result::unwrap));
    let (mut watch, mut writes, mut space) = (Watch::default(), 0, Space::default());
    // The write that gave each key its first new version.
    let mut overwritten = BTreeMap::new();
    let random = &Random::new(scheme as u64);
    while watch.finished < 2 {
        let number = random.below(KEYS);
        writes += 1;
        overwritten.entry(number).or_insert(writes);
        keyspace.insert(key(number), value(number, writes)).unwrap();
        let stats = db.stats().unwrap();
        watch.look(&stats.keyspaces[0], writes);
        if watch.finished == 1 && seen.len() == 1000 {
            seen.extend(scan.by_ref().take(3000).map(Result::unwrap));
        }
        if watch.began.0 > space.began {
            space.began = watch.began.0;
            let kept = overwritten.values().filter(|write| **write <= space.began);
            space.kept = kept.count() as u64;
        }
        let since = (writes - space.began).saturating_sub(stats.keyspaces[0].memtable_entries);
        let needed = (KEYS + space.kept + since) * bytes_of_an_entry;
        space.add(&stats.space, needed);
        space.runs = space.runs.max(stats.keyspaces[0].sorted_runs);
        assert!(writes < 100 * KEYS, "no full merge ends");
    }
    seen.extend(scan.map(Result::unwrap));
    assert_eq!(seen.len(), expected.len());
    assert!(seen == expected, "the scan saw something else than its snapshot");
    assert_eq!(db.stats().unwrap().snapshots, 0);
    assert_sound(&db);
    println!("{scheme:?}: {space:?}, {bytes_of_an_entry} bytes an entry");
    space
}

/// The additional space that a merge may take: what is written between two records (half of κ0,
/// which is less than half of the memtable), and two extents of 16 KiB, not full, for each of its
/// levels.
const INTERVAL_BYTES: i64 = MEMTABLE_BYTES as i64 / 2 + 6 * (16 << 10);
/// The space that each run takes in addition to its entries: a block of top fences, and a last
/// block that is not full.
const RUN_BYTES: i64 = 2 * 4096;

#[test]
fn a_scan_through_two_full_merges_costs_its_versions_and_one_interval() {
    if !without_history("every version stays") {
        return;
    }
    if !only_for(IndexKind::FdTree, "the bound is that of merges that record their progress") {
        return;
    }
    let spaces = Scheme::ALL.map(|scheme| (scheme, a_scan_through_two_full_merges(scheme)));
    for (scheme, space) in spaces {
        let files = (space.file, space.needed + space.needed * 2 / 5);
        match scheme {
            // The bound means something: a scheme that frees space at the end alone exceeds it.
            Scheme::Ds | Scheme::Xm | Scheme::FdTree => {
                assert!(files.0 > files.1, "{scheme:?}: {space:?}")
            }
            _ => {
                let bound = INTERVAL_BYTES + space.runs as i64 * RUN_BYTES;
                assert!(space.excess <= bound, "{scheme:?}: {space:?}");
                assert!(files.0 <= files.1, "{scheme:?}: {space:?}");
            }
        }
    }
}

/// The same with merges in threads: here the moment at which a merge began is not known.
#[test]
fn a_scan_does_not_change_while_threads_merge() {
    let device = MemoryDevice::new();
    let db = medium(&device).open().unwrap();
    let keyspace = keyspace(&db);
    for number in 0..KEYS {
        keyspace.insert(key(number), value(number, 0)).unwrap();
    }
    let expected = contents(&keyspace);
    let mut scans: Vec<_> = (0..3).map(|_| keyspace.iter().unwrap()).collect();
    let mut seen = vec![Model::new(); 3];
    seen[0].extend(scans[0].by_ref().take(10).map(Result::unwrap));
    seen[1].extend(scans[1].by_ref().rev().take(4000).map(Result::unwrap));
    for round in 1..=2 {
        for number in 0..KEYS {
            let number = number * 4999 % KEYS;
            if number.is_multiple_of(3) {
                keyspace.remove(key(number)).unwrap();
            } else {
                keyspace.insert(key(number), value(number, round)).unwrap();
            }
        }
        let merges = keyspace_stats(&db).merges;
        keyspace.compact().unwrap();
        assert!(keyspace_stats(&db).merges > merges);
        seen[2].extend(scans[2].by_ref().take(2000).map(Result::unwrap));
    }
    for (scan, seen) in scans.into_iter().zip(&mut seen) {
        seen.extend(scan.map(Result::unwrap));
        assert!(*seen == expected, "a scan saw something else than its snapshot");
    }
    assert_sound(&db);
}

/// Every version ever written, newest first within a key.
#[derive(Default)]
struct Versions(BTreeMap<Vec<u8>, Vec<(u64, bool)>>);

impl Versions {
    fn write(&mut self, key: &[u8], seq: u64, is_put: bool) {
        self.0.entry(key.to_vec()).or_default().insert(0, (seq, is_put));
    }

    /// Puts and tombstones that a full merge leaves when these numbers can be seen: of each key
    /// the newest version at or before each number; a tombstone only above an older version.
    fn after_a_full_merge(&self, numbers: &[u64]) -> (u64, u64) {
        let mut left = (0, 0);
        for versions in self.0.values() {
            let seen_at = |number: &u64| versions.iter().position(|(seq, _)| seq <= number);
            let mut kept: Vec<usize> = numbers.iter().filter_map(seen_at).collect();
            kept.sort_unstable();
            kept.dedup();
            // From the oldest on.
            let mut older = false;
            for at in kept.into_iter().rev() {
                match versions[at].1 {
                    true => left.0 += 1,
                    false if older => left.1 += 1,
                    false => continue,
                }
                older = true;
            }
        }
        left
    }
}

/// N∆ and N∇ as the index counts them: over all levels and runs.
fn counted(stats: &KeyspaceStats) -> (u64, u64) {
    assert_eq!((stats.sorted_runs, stats.memtable_entries), (0, 0));
    let puts = stats.levels.iter().map(|level| level.puts).sum();
    (puts, stats.levels.iter().map(|level| level.tombstones).sum())
}

/// Overwrites, deletes, deletes of what is not there; snapshots that come and go; kills.
fn counters(scheme: Scheme, seed: u64) -> u64 {
    let random = &Random::new(seed);
    let mut device = MemoryDevice::new();
    let open = |device: &MemoryDevice| {
        common::threaded(device).inline_merges(2).scheme(scheme).open().unwrap()
    };
    let mut db = open(&device);
    let mut keyspace = common::tiny(&db, "k");
    let (mut versions, mut snapshots) = (Versions::default(), Vec::new());
    let (mut watch, mut walked) = (Watch::default(), 0);
    for round in 0..3000 {
        let key = key(random.below(300));
        let is_put = random.below(5) < 3;
        match is_put {
            true => keyspace.insert(&key, value(round, round)).unwrap(),
            false => keyspace.remove(&key).unwrap(),
        }
        versions.write(&key, db.visible_seq(), is_put);
        watch.look(&keyspace_stats(&db), round);
        if watch.finished > walked {
            // The walk compares what every block holds with what is recorded.
            walked = watch.finished;
            assert_sound(&db);
        }
        match random.below(400) {
            0 if snapshots.len() < 3 => snapshots.push(db.snapshot().unwrap()),
            1 if !snapshots.is_empty() => drop(snapshots.swap_remove(0)),
            2 => {
                snapshots.clear();
                device = copy(&device);
                (db, watch.fully) = (open(&device), false);
                keyspace = common::tiny(&db, "k");
            }
            3..6 => {
                db.compact().unwrap();
                let mut numbers: Vec<_> = snapshots.iter().map(esker::Snapshot::seq).collect();
                numbers.push(db.visible_seq());
                let expected = versions.after_a_full_merge(&numbers);
                assert_eq!(counted(&keyspace_stats(&db)), expected, "round {round} of {seed}");
                assert_sound(&db);
                walked += 1;
                watch.finished = walked;
                watch.fully = false;
            }
            _ => {}
        }
    }
    walked
}

#[test]
fn puts_and_tombstones_are_counted_right_after_every_full_merge() {
    if !without_history("every version stays") {
        return;
    }
    for scheme in schemes() {
        let walked: u64 = (0..3).map(|seed| counters(scheme, seed)).sum();
        assert!(walked > 50, "{scheme:?}: only {walked} full merges were looked at");
    }
}

/// A store of one level and a memtable that a full merge will rewrite.
fn before_a_merge() -> (SimImage, Model) {
    let device = Arc::new(SimDevice::new());
    let db = on_sim(Arc::clone(&device) as _).inline_merges(0).open().unwrap();
    let options = options().memtable_bytes(Some(64 << 10));
    let keyspace = db.keyspace("k", options).unwrap();
    // A slice of an LSM index writes all that it has in a few pieces: there have to be several.
    let entries = if kind() == IndexKind::Lsm { 3_600 } else { 600 };
    for number in 0..entries {
        keyspace.insert(key(number), value(number, 1)).unwrap();
    }
    // Its file is cut to what it holds.
    db.compact().unwrap();
    for number in 0..200 {
        keyspace.insert(key(number * (entries / 200)), value(number, 2)).unwrap();
    }
    assert_eq!(keyspace_stats(&db).memtable_entries, 200);
    let model = contents(&keyspace);
    db.close().unwrap();
    (device.image(), model)
}

fn on_sim(device: Arc<dyn Device>) -> DbBuilder {
    Db::builder_on(device).memory_budget(1 << 20).log_segment_bytes(16 << 10)
}

/// The two ways in which merges run.
fn in_both_modes(device: Arc<dyn Device>, threads: bool) -> Db {
    let builder = on_sim(device);
    let builder = if threads { builder } else { builder.inline_merges(0) };
    builder.create(false).open().unwrap()
}

/// Deletes everything, and sees that the space comes back and can be used again.
fn empty_it(db: &Db, model: &Model) {
    let keyspace = db.open_keyspace("k").unwrap().unwrap();
    let before = db.stats().unwrap().space.allocated_bytes;
    for key in model.keys() {
        keyspace.remove(key).unwrap();
    }
    db.compact().unwrap();
    assert!(keyspace.first().unwrap().is_none());
    let after = db.stats().unwrap().space.allocated_bytes;
    // Every version stays.
    if keeps_history() {
        return;
    }
    assert!(after < before / 4, "{after} of {before} bytes are still in use");
    for number in 0..300 {
        keyspace.insert(key(number), value(number, 9)).unwrap();
    }
    db.compact().unwrap();
    assert_eq!(contents(&keyspace).len(), 300);
    assert_sound(db);
}

/// Refuses one write of a full merge for want of room, or all from one on, and empties the store.
fn refuse(image: &SimImage, model: &Model, fault: Fault, threads: bool) -> bool {
    let device = Arc::new(SimDevice::from_image(image));
    let mut db = in_both_modes(Arc::clone(&device) as _, threads);
    device.set_faults(FaultPlan::new().with(fault));
    let merged = db.compact();
    let keyspace = db.open_keyspace("k").unwrap().unwrap();
    // Regardless of the end of the merge, the store is read while nothing can be written.
    assert!(contents(&keyspace) == *model);
    for (key, value) in model.iter().step_by(50) {
        assert_eq!(keyspace.get(key).unwrap().as_ref(), Some(value));
    }
    device.set_faults(FaultPlan::new());
    if db.stats().unwrap().poisoned.is_some() {
        drop(keyspace);
        drop(db);
        db = in_both_modes(Arc::clone(&device) as _, threads);
        let keyspace = db.open_keyspace("k").unwrap().unwrap();
        assert!(contents(&keyspace) == *model);
    }
    empty_it(&db, model);
    merged.is_err()
}

#[test]
fn a_store_without_room_for_a_write_of_a_merge_is_read_and_emptied() {
    let (image, model) = before_a_merge();
    for threads in [false, true] {
        let device = Arc::new(SimDevice::from_image(&image));
        let db = in_both_modes(Arc::clone(&device) as _, threads);
        let count = |kind| device.op_count_of(kind);
        let before = [OpKind::Write, OpKind::Preallocate].map(count);
        db.compact().unwrap();
        let after = [OpKind::Write, OpKind::Preallocate].map(count);
        drop(db);
        let mut refused = 0;
        for (at, kind) in [OpKind::Write, OpKind::Preallocate].into_iter().enumerate() {
            assert!(kind == OpKind::Preallocate || after[at] - before[at] > 20);
            for nth in 0..after[at] - before[at] {
                let fault = Fault::new(Effect::Fail(Failure::NoSpace)).on(kind).nth(nth);
                refused += u64::from(refuse(&image, &model, fault.clone(), threads));
                refused += u64::from(refuse(&image, &model, fault.sticky(), threads));
            }
        }
        assert!(refused > 20, "only {refused} merges were refused");
    }
}

/// Fills the device up at a merge's write: from then on it has not a byte more than is in use.
#[derive(Debug)]
struct FillsUp {
    device: Arc<SimDevice>,
    /// Writes of merges until then.
    left: AtomicU64,
}

impl Hook for FillsUp {
    fn before(&self, step: Step) {
        let merges = step.kind == StepKind::Write && step.purpose == Purpose::Merge;
        if merges && self.left.fetch_sub(1, Ordering::Relaxed) == 0 {
            let used = self.device.files().values().map(Vec::len).sum::<usize>();
            self.device.set_capacity_bytes(used as u64);
        }
    }
}

/// The real thing: something else takes all the room that is left while a merge runs.
#[test]
fn a_store_whose_device_fills_up_within_a_merge_is_emptied() {
    let (image, model) = before_a_merge();
    for threads in [false, true] {
        for nth in 0.. {
            let device = Arc::new(SimDevice::from_image(&image));
            let fills_up = FillsUp { device: Arc::clone(&device), left: nth.into() };
            let wrapped = Wrapped::around(Arc::clone(&device) as _, fills_up);
            let db = in_both_modes(Arc::new(wrapped.clone()), threads);
            // It began while there was room, and has reserved what it needs.
            db.compact().unwrap();
            let keyspace = db.open_keyspace("k").unwrap().unwrap();
            assert!(contents(&keyspace) == model);
            if wrapped.hook().left.load(Ordering::Relaxed) < u64::MAX / 2 {
                assert!(nth > 10, "the merge wrote {nth} times");
                break;
            }
            empty_it(&db, &model);
        }
    }
}
