//! Every legal state after a power cut opens as a version that was promised, whole.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;
#[path = "common/session.rs"]
mod session;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::*;
use esker_device::sim::{
    CrashOptions, CrashState, Effect, Failure, Fault, FaultPlan, OpKind, SimDevice, SimImage, Trace,
};
use esker_harness::counts::{Counts, budget};
use esker_harness::crash::{Promise, limited};
use esker_pages::planted::{self, Bug};
use esker_pages::{Durability, Error, Options, PageStore};
use session::{Point, Session};

/// A run and what was known at each mark of its trace.
struct Recording {
    options: Options,
    trace: Trace,
    points: Vec<Point>,
    versions: BTreeMap<u64, Contents>,
    prepared: Vec<(u64, Contents)>,
    end: Point,
}

/// Runs `ops` on a disk that records. `known` is what is known before. One that begins late is
/// opened to be read at first.
fn record(
    device: &SimDevice,
    options: &Options,
    ops: &[Op],
    known: Point,
    is_late: bool,
) -> Recording {
    device.record();
    device.mark(0);
    let mut points = vec![known];
    let open = if is_late { open_late } else { open };
    let store = open(device, options).unwrap();
    let mut session = Session::over(store, device.clone(), options.clone()).unwrap();
    session.names = points[0].names.clone();
    let mut reach = |session: &Session, always: bool| {
        let point = session.point();
        if always || point.differs(points.last().unwrap()) {
            device.mark(points.len() as u64);
            points.push(point);
        }
    };
    reach(&session, true);
    for op in ops {
        session.apply(op).unwrap();
        reach(&session, false);
    }
    let end = session.point();
    let Session { versions, prepared, store, writer, pins, .. } = session;
    // Dropped like this, nothing of the closing is in the trace.
    let trace = device.take_trace().unwrap();
    drop((writer, pins, store));
    Recording { options: options.clone(), trace, points, versions, prepared, end }
}

/// What may be found after a crash.
type Expected<'a> = Promise<'a, Point>;

/// The oldest version that may be found.
fn least(expected: &Expected<'_>) -> u64 {
    // What was handed to the system survives where the system does.
    if expected.is_whole { expected.now.visible } else { expected.now.durable }
}

impl Recording {
    fn expected(&self, state: &CrashState<'_>) -> Option<Expected<'_>> {
        Promise::at(state, 0, &self.points, &self.end)
    }

    /// Opens what a crash left and judges it. Gives back what is there.
    fn judge(&self, state: &CrashState<'_>, device: &SimDevice) -> Point {
        let expected = self.expected(state).unwrap();
        let read = self.judge_read_only(device, &expected);
        let store = open(device, &self.options).unwrap();
        let found = self.judge_store(&store, &expected);
        let prepared = store.prepared();
        assert_eq!((found, prepared.is_some()), read, "who reads sees something else");
        drop(store);
        let store = open(device, &self.options).unwrap();
        assert_eq!((store.pin().version(), store.prepared()), (found, prepared));
        self.judge_prepared(&store, found);
        store.check().unwrap();
        drop(store);
        let again = open(device, &self.options).unwrap();
        let found = again.pin().version();
        self.works_on(&again);
        let names = self.names_of(&again, &expected);
        Point { durable: found, visible: found, names }
    }

    /// Opens what a crash left to read it: everything is there, and nothing is written. A writer
    /// that opens it afterwards finds the same. Says which version is there, and whether one is
    /// prepared.
    fn judge_read_only(&self, device: &SimDevice, expected: &Expected<'_>) -> (u64, bool) {
        device.record();
        let mut read = None;
        for commits in [true, false] {
            let store = open_read_only(device, &self.options).unwrap();
            let found = self.judge_store(&store, expected);
            assert!(matches!(store.begin(&store.pin()), Err(Error::ReadOnly { .. })));
            read = Some((found, store.prepared().is_some()));
            self.judge_decided(&store, found, commits);
            store.check().unwrap();
            store.close().unwrap();
        }
        assert_eq!(device.take_trace().unwrap().len(), 0, "an opening to read has written");
        let image = SimDevice::from_image(&device.image());
        let late = open_late(&image, &self.options).unwrap();
        self.judge_decided(&late, read.unwrap().0, true);
        self.works_on(&late);
        read.unwrap()
    }

    /// What is prepared is there or not as it is decided.
    fn judge_decided(&self, store: &PageStore, found: u64, commits: bool) {
        if commits {
            return self.judge_prepared(store, found);
        }
        if store.prepared().is_some() {
            store.decide(false).unwrap();
            assert_eq!(read_all(&store.pin()).unwrap(), self.versions[&found]);
        }
    }

    /// Compares what is read with the model, and opens twice without a write in between.
    fn judge_store(&self, store: &PageStore, expected: &Expected<'_>) -> u64 {
        let snapshot = store.pin();
        let found = snapshot.version();
        assert!(found >= least(expected), "{found} is before {}", least(expected));
        assert!(found <= expected.next.visible, "{found} is past {}", expected.next.visible);
        assert_eq!(read_all(&snapshot).unwrap(), self.versions[&found], "version {found}");
        self.names_of(store, expected);
        assert!(store.check().unwrap().accounted);
        found
    }

    fn names_of(&self, store: &PageStore, expected: &Expected<'_>) -> Names {
        let mut names = Names::new();
        for n in 0..3 {
            let (now, next) = (expected.now.names.get(&n), expected.next.names.get(&n));
            match store.at_named(&name(n)) {
                Ok(snapshot) => {
                    let there = (snapshot.version(), read_all(&snapshot).unwrap());
                    assert!(now == Some(&there) || next == Some(&there), "{n}");
                    names.insert(n, there);
                }
                Err(_) => assert!(now.is_none() || next.is_none(), "{n} is gone"),
            }
        }
        names
    }

    /// A prepared transaction waits for its decision, and is there or not as decided.
    fn judge_prepared(&self, store: &PageStore, found: u64) {
        let Some(name) = store.prepared() else { return };
        assert_eq!(name, b"super-journal");
        let refused = store.begin(&store.pin()).unwrap_err();
        assert!(matches!(refused, Error::Busy | Error::ReadOnly { .. }), "{refused}");
        let mut candidates = self.prepared.iter().filter(|(version, _)| *version == found + 1);
        store.decide(true).unwrap();
        let contents = read_all(&store.pin()).unwrap();
        assert_eq!(store.pin().version(), found + 1);
        assert!(candidates.any(|(_, prepared)| *prepared == contents));
    }

    fn works_on(&self, store: &PageStore) {
        let base = store.pin();
        let mut contents = read_all(&base).unwrap();
        let mut writer = store.begin(&base).unwrap();
        for page in [0, 7, 30] {
            writer.write(page, 3, b"after the crash").unwrap();
            contents.write(page, 3, b"after the crash");
        }
        let snapshot = writer.commit(Durability::Full).unwrap();
        assert_eq!(read_all(&snapshot).unwrap(), contents);
        assert_eq!(read_all(&base).unwrap().pages.len(), base.pages() as usize);
    }
}

fn options_of(seed: u64) -> Options {
    let mut options = small_of(seed % 7);
    options.page_size = 512 << (seed % 3);
    options.delta_bytes *= seed % 2;
    // With a thread that takes checkpoints concurrently with the commits.
    options.relaxed_interval = (seed % 4 == 3).then_some(std::time::Duration::from_millis(1));
    options
}

/// Opens, works and crashes again, within the recovery too.
fn crash_again(recording: &Recording, image: &SimImage, known: Point, seed: u64) {
    let device = SimDevice::from_image(image);
    if open(&device, &recording.options).unwrap().prepared().is_some() {
        return;
    }
    let device = SimDevice::from_image(image);
    let ops = history(seed, 30, 40);
    let is_late = seed.is_multiple_of(2);
    let mut again = record(&device, &recording.options, &ops, known, is_late);
    let found = *again.versions.keys().next().unwrap();
    again.points[0] = Point { durable: found, visible: found, ..again.points[0].clone() };
    again
        .trace
        .for_each_crash(&limited(seed, 24), |state, device| -> Result<(), ()> {
            if state.acknowledged().is_some() {
                again.judge(state, device);
            }
            Ok(())
        })
        .unwrap();
}

fn explore(seed: u64, limit: u64) -> u64 {
    let options = options_of(seed);
    let device = disk();
    drop(open(&device, &options).unwrap());
    let ops = history(seed, 160, 40);
    let nothing = Point { durable: 0, visible: 0, names: Names::new() };
    let recording = record(&device, &options, &ops, nothing, seed.is_multiple_of(2));
    let mut judged = 0;
    let counts = recording.trace.for_each_crash(&limited(seed, limit), |state, device| {
        if state.acknowledged().is_none() {
            return Ok(());
        }
        judged += 1;
        let image = device.image();
        let judge = || {
            let known = recording.judge(state, &SimDevice::from_image(&image));
            if judged % 40 == 0 {
                let first = SimDevice::from_image(&image);
                let version = open(&first, &recording.options).unwrap().pin().version();
                let known = Point { durable: version, visible: version, ..known };
                crash_again(&recording, &image, known, state.digest);
            }
        };
        let judged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(judge));
        judged.map_err(|_| format!("seed {seed}: {state}"))
    });
    counts.unwrap_or_else(|place| panic!("{place}"));
    judged
}

#[test]
fn every_crash_leaves_a_version_that_was_promised() {
    let mut judged = 0;
    for seed in 0..60 * budget() {
        judged += explore(seed, 250);
    }
    assert!(judged > 10_000, "{judged}");
    count("a power cut anywhere", 60 * budget(), judged);
}

/// A suite that cannot fail proves nothing.
#[test]
fn planted_bugs_are_found() {
    // Those are found by tests of files and of full devices.
    let elsewhere = [Bug::HeadIsEnough, Bug::RemovalNotSynced, Bug::DecisionFindsNoRoom];
    for bug in Bug::ALL.into_iter().filter(|bug| !elsewhere.contains(bug)) {
        let is_found = |seed| {
            let hunt = || planted::with(bug, || explore(seed, 150));
            std::panic::catch_unwind(hunt).is_err()
        };
        let found = (0..60).find(|seed| is_found(*seed));
        let seed = found.unwrap_or_else(|| panic!("{bug:?} was not found"));
        let mut counts = Counts::new("page-store-planted", format!("{bug:?}"));
        counts.add("histories until found", seed + 1);
        counts.record().unwrap();
    }
}

/// A process that dies may leave a superblock that is not durable. An opening that goes by it must
/// not write over what the one before leads to until it is.
#[test]
fn an_opening_makes_durable_what_it_found() {
    let device = disk();
    let options = options_of(0);
    let write = |store: &PageStore, byte: u8| {
        let mut writer = store.begin(&store.pin()).unwrap();
        writer.write(0, 0, &[byte; 512]).unwrap();
        writer.commit(Durability::Full).unwrap();
    };
    let store = open(&device, &options).unwrap();
    write(&store, 1);
    let fault = Fault::new(Effect::Fail(Failure::Io)).on(OpKind::Sync).nth(1);
    device.set_faults(FaultPlan::new().with(fault));
    assert!(store.checkpoint().is_err(), "the superblock is written, and its sync fails");
    drop(store);
    device.set_faults(FaultPlan::new());
    device.record();
    let store = open(&device, &options).unwrap();
    write(&store, 2);
    let trace = device.take_trace().unwrap();
    drop(store);
    let visit = |state: &CrashState<'_>, device: &Arc<SimDevice>| -> Result<(), ()> {
        let store = open(device, &options).unwrap_or_else(|error| panic!("{state}: {error}"));
        assert!(store.pin().version() >= 1, "{state}");
        Ok(())
    };
    let counts = trace.for_each_crash(&CrashOptions::default(), visit).unwrap();
    assert!(counts.visited > 8, "{counts:?}");
}

/// A crash while a store is made leaves nothing, or a store; what a growing file holds where its
/// contents were lost may look like another's file before anything was promised.
#[test]
fn a_store_is_made_or_not() {
    let mut judged = 0;
    for seed in 0..5 {
        let device = disk();
        device.record();
        let store = open(&device, &options_of(seed)).unwrap();
        device.mark(1);
        let trace = device.take_trace().unwrap();
        drop(store);
        let mut opened = 0;
        let visit = |state: &CrashState<'_>, device: &Arc<SimDevice>| -> Result<(), ()> {
            let read = open_read_only(device, &options_of(seed)).map(|store| store.pin().pages());
            let (read, opened_too) = (read.ok(), open(device, &options_of(seed)));
            assert_eq!(read, opened_too.as_ref().ok().map(|_| 0), "{state}");
            match opened_too {
                Ok(store) => {
                    assert_eq!((store.pin().version(), store.pin().pages()), (0, 0));
                    opened += 1;
                }
                Err(Error::Foreign { .. }) if state.acknowledged().is_none() && seed > 2 => {}
                Err(error) => panic!("{state}: {error}"),
            }
            Ok(())
        };
        trace.for_each_crash(&limited(seed, 300), visit).unwrap();
        assert!(opened > 5, "{opened}");
        judged += opened;
    }
    count("a power cut while a store is made", 5, judged);
}
