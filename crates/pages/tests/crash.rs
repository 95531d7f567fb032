//! Every legal state after a power cut opens as a version that was promised, whole.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;
#[path = "common/session.rs"]
mod session;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::*;
use esker_device::sim::{
    CrashOptions, CrashState, Effect, Failure, Fault, FaultPlan, OpKind, SimDevice,
};
use esker_harness::counts::{Counts, budget};
use esker_harness::crash::{self, Again, Judged, Promise, Recording, Subject, limited};
use esker_harness::violation::{Verdict, without_panic};
use esker_pages::planted::{self, Bug};
use esker_pages::{Durability, Error, Options, PageStore, Result};
use session::{Point, Session};

/// One crash state in this many is used and crashed again.
const AGAIN_ONE_IN: u64 = 40;

/// How a store is opened. One that begins late is opened to be read at first.
pub struct Case {
    options: Options,
    is_late: bool,
}

/// What was written.
pub struct Model {
    versions: BTreeMap<u64, Contents>,
    prepared: Vec<(u64, Contents)>,
}

impl Subject for Session {
    type Case = Case;
    type Op = Op;
    type Point = Point;
    type Model = Model;
    type Error = Error;

    fn open(case: &Case, disk: &Arc<SimDevice>, known: &Point) -> Result<Self> {
        let open = if case.is_late { open_late } else { open };
        let store = open(disk, &case.options)?;
        let mut session = Self::over(store, SimDevice::clone(disk), case.options.clone())?;
        session.names = known.names.clone();
        Ok(session)
    }

    fn apply(&mut self, op: &Op) -> Verdict<Result<()>> {
        Ok(Self::apply(self, op))
    }

    fn observe(&self) -> Point {
        self.point()
    }

    fn is_more(now: &Point, last: &Point) -> bool {
        now.differs(last)
    }

    fn into_model(self) -> Model {
        let Self { versions, prepared, store, writer, pins, .. } = self;
        drop((writer, pins, store));
        Model { versions, prepared }
    }

    fn check(
        recording: &Recording<Self>,
        promise: &Promise<'_, Point>,
        disk: &Arc<SimDevice>,
    ) -> Verdict<Option<Point>> {
        let judge = Judge { options: &recording.case.options, model: &recording.model, promise };
        let (known, is_prepared) = judge.judge(disk);
        Ok((!is_prepared).then_some(known))
    }

    fn again(case: &Case, seed: u64) -> Again<Self> {
        let case = Case { options: case.options.clone(), is_late: seed.is_multiple_of(2) };
        Again { case, ops: history(seed, 30, 40), options: limited(seed, 24) }
    }
}

/// Judges what a crash left.
struct Judge<'a> {
    options: &'a Options,
    model: &'a Model,
    promise: &'a Promise<'a, Point>,
}

impl Judge<'_> {
    /// The oldest version that may be found.
    fn least(&self) -> u64 {
        // What was handed to the system survives where the system does.
        let Promise { now, is_whole, .. } = self.promise;
        if *is_whole { now.visible } else { now.durable }
    }

    /// Opens what a crash left and judges it. Gives back what is there, and whether a transaction
    /// was prepared.
    fn judge(&self, device: &SimDevice) -> (Point, bool) {
        let read = self.judge_read_only(device);
        let store = open(device, self.options).unwrap();
        let found = self.judge_store(&store);
        let prepared = store.prepared();
        assert_eq!((found, prepared.is_some()), read, "who reads sees something else");
        drop(store);
        let store = open(device, self.options).unwrap();
        assert_eq!((store.pin().version(), store.prepared()), (found, prepared));
        self.judge_prepared(&store, found);
        store.check().unwrap();
        drop(store);
        let again = open(device, self.options).unwrap();
        let found = again.pin().version();
        self.works_on(&again);
        let names = self.names_of(&again);
        (Point { durable: found, visible: found, names }, read.1)
    }

    /// Opens what a crash left to read it: everything is there, and nothing is written. A writer
    /// that opens it afterwards finds the same. Says which version is there, and whether one is
    /// prepared.
    fn judge_read_only(&self, device: &SimDevice) -> (u64, bool) {
        device.record();
        let mut read = None;
        for commits in [true, false] {
            let store = open_read_only(device, self.options).unwrap();
            let found = self.judge_store(&store);
            assert!(matches!(store.begin(&store.pin()), Err(Error::ReadOnly { .. })));
            read = Some((found, store.prepared().is_some()));
            self.judge_decided(&store, found, commits);
            store.check().unwrap();
            store.close().unwrap();
        }
        assert_eq!(device.take_trace().unwrap().len(), 0, "an opening to read has written");
        let image = SimDevice::from_image(&device.image());
        let late = open_late(&image, self.options).unwrap();
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
            assert_eq!(read_all(&store.pin()).unwrap(), self.model.versions[&found]);
        }
    }

    /// Compares what is read with the model, and opens twice without a write in between.
    fn judge_store(&self, store: &PageStore) -> u64 {
        let snapshot = store.pin();
        let found = snapshot.version();
        let most = self.promise.next.visible;
        assert!(found >= self.least(), "{found} is before {}", self.least());
        assert!(found <= most, "{found} is past {most}");
        assert_eq!(read_all(&snapshot).unwrap(), self.model.versions[&found], "version {found}");
        self.names_of(store);
        assert!(store.check().unwrap().accounted);
        found
    }

    fn names_of(&self, store: &PageStore) -> Names {
        let mut names = Names::new();
        for n in 0..3 {
            let Promise { now, next, .. } = self.promise;
            let (now, next) = (now.names.get(&n), next.names.get(&n));
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
        let mut candidates =
            self.model.prepared.iter().filter(|(version, _)| *version == found + 1);
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

fn explore(seed: u64, limit: u64) -> u64 {
    let case = Case { options: options_of(seed), is_late: seed.is_multiple_of(2) };
    let device = Arc::new(disk());
    drop(open(&device, &case.options).unwrap());
    let nothing = Point { durable: 0, visible: 0, names: Names::new() };
    let mut judged = Judged::default();
    let verdict = without_panic(|| {
        let recording: Recording<Session> =
            crash::record(case, &device, nothing, &history(seed, 160, 40))?;
        crash::explore(&recording, &limited(seed, limit), AGAIN_ONE_IN, &mut judged)
    });
    verdict.unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    judged.states
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
    let visit = |state: &CrashState<'_>, device: &Arc<SimDevice>| -> std::result::Result<(), ()> {
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
        let visit = |state: &CrashState<'_>,
                     device: &Arc<SimDevice>|
         -> std::result::Result<(), ()> {
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
