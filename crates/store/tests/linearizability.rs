//! Reads, writes, batches and scans of many threads each happen at one moment, while merges and
//! flushes run in threads of their own, and across crashes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker::{CompactionStats, Db, Device, Scheme};
use esker_device::memory::MemoryDevice;
use esker_device::sim::{CrashModel, SimDevice, SimImage, Survivors, Trace, Unwritten};
use esker_testkit::counts::{Counts, assert_passes, budget};
use esker_testkit::kill;
use esker_testkit::linear::drive::{self, Plan, Shared};
use esker_testkit::linear::stacks::merged;
use esker_testkit::linear::{ABSENT, Base, Cut, History, Serial, register};
use esker_testkit::random::Random;
use esker_testkit::verify;
use esker_testkit::violation::Verdict;

const THREADS: u32 = 8;
/// Few enough that threads write the same keys all the time.
const FEW: u32 = 5;
/// Enough that merges have something to do.
const MANY: u32 = 1500;

fn open(device: Arc<dyn Device>, scheme: Scheme) -> Db {
    drive::small(Db::builder_on(device)).scheme(scheme).open().unwrap()
}

/// Both checks of a history that began at `base`, and that of what was merged in it.
fn check<'a>(
    base: &'a Base,
    history: &'a History,
    shared: &Shared,
    counts: &mut Counts,
) -> Verdict<Serial<'a>> {
    let serial = Serial::check(base, history)?;
    let stood = shared.stacks.take();
    serial.stacks_fit(&stood)?;
    counts.add("merged versions", stood.len() as u64);
    for (key, operations) in &history.by_key() {
        let initial = base.state.get(key).copied().unwrap_or(ABSENT);
        register::check(*key, initial, operations)?;
    }
    counts.add("operations", history.len() as u64);
    counts.add("commits", history.commits.len() as u64);
    counts.add("reads", history.reads.len() as u64);
    let scans = history.reads.iter().filter(|read| read.width() > 1).count();
    counts.add("reads of many keys", scans as u64);
    Ok(serial)
}

/// Finished merges, in the whole life of the store.
fn merges(db: &Db) -> u64 {
    db.stats().unwrap().keyspaces.iter().map(|keyspace| keyspace.merges).sum()
}

/// Whether a merge is under way that is so `far`.
fn is_merging(db: &Db, far: impl Fn(&CompactionStats) -> bool) -> bool {
    let keyspaces = db.stats().unwrap().keyspaces;
    keyspaces.iter().any(|keyspace| keyspace.merge.as_ref().is_some_and(&far))
}

/// One run of threads on a store in memory.
fn threads(scheme: Scheme, keys: u32, operations: u64, seed: u64, counts: &mut Counts) -> Verdict {
    let db = open(Arc::new(MemoryDevice::new()), scheme);
    let shared = Shared::default();
    let plan = Plan { threads: THREADS, keys, operations, synced_percent: 5, seed };
    let (mut history, ()) = drive::run(&db, &plan, &shared, || ())?;
    history.reads.push(drive::read_all(&db, keys, &shared)?);
    let base = Base::default();
    let serial = check(&base, &history, &shared, counts)?;
    assert_eq!(serial.last(), db.visible_seq());
    verify::check(&db)?;
    counts.add("merges", merges(&db));
    let stats = db.stats().unwrap();
    assert!(stats.keyspaces.iter().all(|keyspace| keyspace.stalled.is_none()));
    Ok(())
}

fn runs(case: &str, schemes: &[Scheme], keys: u32, operations: u64) -> Verdict<Counts> {
    let mut counts = Counts::new("linearizability", case);
    for seed in 0..budget() {
        for scheme in schemes {
            threads(*scheme, keys, operations, seed, &mut counts)
                .map_err(|violation| violation.at(format!("{case}, {scheme:?}, seed {seed}")))?;
        }
    }
    // Nearly all of them are full: the stores are smaller than a few memtables.
    assert!(counts.get("merges") > 20 * schemes.len() as u64, "{}", counts.line());
    Ok(counts)
}

#[test]
fn operations_on_few_keys_happen_at_one_moment() {
    assert_passes(runs("few keys", &[Scheme::Fc], FEW, 3000));
}

#[test]
fn operations_on_many_keys_happen_at_one_moment() {
    assert_passes(runs("many keys", &[Scheme::Fc], MANY, 3000));
}

#[test]
fn operations_happen_at_one_moment_under_every_scheme() {
    assert_passes(runs("every scheme", &Scheme::ALL[1..], 60, 700));
}

/// The number of times that a merge under way is looked for before the crash comes anyway.
const PATIENCE: u32 = 5_000;

/// The kind of crash that ends a run.
#[derive(Clone, Copy, Debug)]
enum Crash {
    /// Everything survives that was handed to the system.
    Killed,
    /// Nothing survives that was not synced.
    PowerCut,
    /// Some of what was not synced survives, sector by sector.
    Torn,
}

impl Crash {
    fn draw(random: &Random) -> Self {
        [Self::Killed, Self::PowerCut, Self::Torn][random.index(3)]
    }

    fn image(self, trace: &Trace, random: &Random) -> SimImage {
        let unwritten = [Unwritten::Zeros, Unwritten::Garbage, Unwritten::OldData];
        let model = CrashModel {
            ordered: random.percent(20),
            unwritten: unwritten[random.index(3)],
            honours_syncs: true,
        };
        match self {
            Self::Killed => trace.crash_image(0, &Survivors::everything(), &model),
            Self::PowerCut => trace.crash_image(0, &Survivors::nothing(), &model),
            Self::Torn => trace.crash_image(0, &Survivors::Random(random.bits()), &model),
        }
    }
}

/// Waits until this number of stamps has been taken, and most times for a merge, and takes an image
/// of the device.
fn crash(
    db: &Db,
    device: &SimDevice,
    shared: &Shared,
    random: &Random,
    stamps: u64,
) -> (Cut, SimImage) {
    let crash = Crash::draw(random);
    let end = shared.clock.stamp() + stamps;
    while shared.clock.stamp() < end {
        std::thread::sleep(Duration::from_micros(random.below(500)));
    }
    // Two records of its progress, or so.
    let far = |merge: &CompactionStats| merge.written_bytes > 16 << 10;
    let mut patience = if random.percent(75) { PATIENCE } else { 0 };
    while patience > 0 && !is_merging(db, far) {
        patience -= 1;
    }
    let durable = db.durable_seq();
    let before = shared.clock.stamp();
    // A trace begins with the disk as it is, what is pending included.
    device.record();
    let after = shared.clock.stamp();
    let trace = device.take_trace().unwrap();
    let image = crash.image(&trace, random);
    // What the old store does from here on, the new one does not know of.
    shared.stop.store(true, Ordering::Relaxed);
    (Cut { before, after, durable, keeps_all: matches!(crash, Crash::Killed) }, image)
}

/// Runs threads, takes an image of the device while they run, goes on with the image, and again.
fn lives(seed: u64, keys: u32, count: u64, counts: &mut Counts) -> Verdict {
    let random = Random::new(seed);
    let shared = Shared::default();
    let mut base = Base::default();
    let mut device = Arc::new(SimDevice::new());
    let mut db = open(Arc::clone(&device) as _, Scheme::Fc);
    for life in 0..count {
        let merged_before = merges(&db);
        let synced_percent = [2, 10, 40][random.index(3)];
        let seed = seed * 1000 + life;
        let plan = Plan { threads: THREADS, keys, operations: u64::MAX, synced_percent, seed };
        shared.stop.store(false, Ordering::Relaxed);
        let stamps = 200 + random.below(3000);
        let mut reads = vec![drive::read_all(&db, keys, &shared)?];
        let (mut history, (cut, image)) =
            drive::run(&db, &plan, &shared, || crash(&db, &device, &shared, &random, stamps))?;
        reads.push(drive::read_all(&db, keys, &shared)?);
        history.reads.append(&mut reads);
        let serial = check(&base, &history, &shared, counts)
            .map_err(|v| v.at(format!("life {life}, before")))?;
        counts.add("merges", merges(&db) - merged_before);
        let scheme = Scheme::TIGHT[random.index(Scheme::TIGHT.len())];
        let next_device = Arc::new(SimDevice::from_image(&image));
        let next = open(Arc::clone(&next_device) as _, scheme);
        let number = next.visible_seq();
        let next_base = serial
            .cut_off(number, &cut)
            .map_err(|v| v.at(format!("life {life}, opened as {scheme:?} after {cut:?}")))?;
        counts.add("crashes", 1);
        counts.add("numbers lost", serial.last().saturating_sub(number));
        counts.add("crashes within merges", u64::from(is_merging(&next, |_| true)));
        if life % 4 == 3 {
            verify::check(&next)?;
        }
        base = next_base;
        (db, device) = (next, next_device);
    }
    Ok(())
}

#[test]
fn histories_go_on_across_crashes() {
    let mut counts = Counts::new("linearizability", "across crashes");
    let verdict = (0..2 * budget()).try_for_each(|seed| {
        let keys = [FEW, MANY][seed as usize % 2];
        lives(seed, keys, 24, &mut counts).map_err(|v| v.at(format!("seed {seed}")))
    });
    assert_passes(verdict.map(|()| counts));
}

/// The output of a killed process: the commits that were acknowledged, by their numbers, and for
/// each thread the one that was under way.
#[derive(Default)]
struct Reported {
    acknowledged: BTreeMap<u64, Writes>,
    under_way: BTreeMap<u32, Writes>,
}

type Writes = Vec<(u32, u64)>;

impl Reported {
    /// Adds a line: `I thread key:version…` before a commit, `A thread number` after it. Returns
    /// `None` for any other line.
    fn add_line(&mut self, line: &str) -> Option<()> {
        let (kind, rest) = line.split_once(' ')?;
        let (thread, rest) = rest.split_once(' ')?;
        let thread = thread.parse().ok()?;
        match kind {
            "I" => {
                let write = |text: &str| {
                    let (key, version) = text.split_once(':')?;
                    Some((key.parse().ok()?, version.parse().ok()?))
                };
                self.under_way.insert(thread, rest.split(',').map(write).collect::<Option<_>>()?);
            }
            "A" => {
                let writes = self.under_way.remove(&thread)?;
                self.acknowledged.insert(rest.parse().ok()?, writes);
            }
            _ => {}
        }
        Some(())
    }

    /// Whether some order of the commits leads from `base` to `found`: the acknowledged ones at
    /// their numbers, and in the holes between them those that were under way.
    fn explains(&self, base: &Base, found: &Base) -> bool {
        let open: Vec<_> = self.under_way.values().collect();
        self.leads_on(base.number, &mut base.state.clone(), &open, found)
    }

    fn leads_on(
        &self,
        last: u64,
        state: &mut BTreeMap<u32, u64>,
        open: &[&Writes],
        found: &Base,
    ) -> bool {
        if last >= found.number {
            state.retain(|_, version| *version != ABSENT);
            return last == found.number && *state == found.state;
        }
        let next = self.acknowledged.range(last + 1..).next();
        if let Some((number, writes)) = next
            && number - writes.len() as u64 == last
        {
            state.extend(writes.iter().copied());
            return self.leads_on(*number, state, open, found);
        }
        (0..open.len()).any(|at| {
            let mut rest = open.to_vec();
            let writes = rest.swap_remove(at);
            let mut state = state.clone();
            state.extend(writes.iter().copied());
            let end = last + writes.len() as u64;
            next.is_none_or(|(number, _)| end < *number)
                && self.leads_on(end, &mut state, &rest, found)
        })
    }
}

const KEYS_OF_KILLED: u32 = 30;

fn open_folder(path: &Path) -> Db {
    drive::small(Db::builder(path)).open().unwrap()
}

#[test]
fn child_that_is_killed() {
    let Some(path) = std::env::var_os(kill::CHILD_STORE) else { return };
    let db = open_folder(Path::new(&path));
    let keyspaces = drive::keyspaces(&db).unwrap();
    // Above all versions that an earlier process wrote: each used a number.
    let versions = AtomicU64::new(db.visible_seq() << 20);
    let say = |line: String| {
        let mut pipe = std::io::stdout().lock();
        writeln!(pipe, "{line}").and_then(|()| pipe.flush()).unwrap();
    };
    say(String::new());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (db, keyspaces, versions) = (&db, &keyspaces, &versions);
            scope.spawn(move || {
                let random = Random::new(u64::from(thread) ^ db.visible_seq() << 8);
                loop {
                    let mut writes = BTreeMap::new();
                    for _ in 0..=random.below(4) {
                        let version = versions.fetch_add(1, Ordering::Relaxed) + 1;
                        let version = match random.below(100) {
                            0..20 => ABSENT,
                            20..50 => merged(version),
                            _ => version,
                        };
                        writes.insert(random.below(2 * u64::from(KEYS_OF_KILLED)) as u32, version);
                    }
                    let writes: Writes = writes.into_iter().collect();
                    let text: Vec<_> = writes.iter().map(|(k, v)| format!("{k}:{v}")).collect();
                    say(format!("I {thread} {}", text.join(",")));
                    let batch = drive::batch(db, keyspaces, KEYS_OF_KILLED, &writes);
                    say(format!("A {thread} {}", batch.commit().unwrap()));
                }
            });
        }
    });
}

#[test]
fn commits_of_a_killed_process_are_explained_by_one_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let random = Random::new(43);
    let mut counts = Counts::new("linearizability", "kill -9");
    let mut base = Base::default();
    for cycle in 0..20 * budget() {
        let mut child = kill::spawn_test("child_that_is_killed", &path).unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut reported = Reported::default();
        while reported.acknowledged.is_empty() {
            let _ours = reported.add_line(&lines.next().unwrap());
        }
        std::thread::sleep(Duration::from_micros(random.below(60_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        for line in lines {
            let _ours = reported.add_line(&line);
        }
        let db = open_folder(&path);
        let read = drive::read_all(&db, KEYS_OF_KILLED, &Shared::default()).unwrap();
        let found = Base { number: db.visible_seq(), state: read.seen.into_iter().collect() };
        let last = reported.acknowledged.last_key_value().map_or(0, |(number, _)| *number);
        assert!(found.number >= last, "cycle {cycle}: {last} was acknowledged");
        assert!(reported.explains(&base, &found), "cycle {cycle}: no order explains what is there");
        verify::check(&db).unwrap();
        counts.add("crashes", 1);
        counts.add("commits", reported.acknowledged.len() as u64);
        base = found;
    }
    counts.record().unwrap();
}
