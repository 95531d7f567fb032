//! The page store as the subject of crashes and faults.

#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step is a failed test")]

use std::collections::BTreeMap;
use std::sync::Arc;

use super::common::*;
use super::session::{Point, Session};
use esker_device::sim::{Effect, Failure, OpKind, SimDevice};
use esker_harness::counts::Counts;
use esker_harness::crash::{Again, Crash, Promise, Subject, limited};
use esker_harness::faults::{Case as Fault, Effects, Ending, Failing, Left};
use esker_harness::violation::{Oracle, Verdict, ensure};
use esker_pages::{Durability, Error, Options, PageStore, Result};

/// How a store is opened. One that begins late is opened to be read at first.
#[derive(Clone)]
pub struct Case {
    pub options: Options,
    pub is_late: bool,
}

/// What was written.
pub struct Model {
    versions: BTreeMap<u64, Contents>,
    prepared: Vec<(u64, Contents)>,
    doubtful_names: Vec<u8>,
    /// Whether the store was open at the end, and accepted writes.
    is_sound: bool,
}

impl Subject for Session {
    type Case = Case;
    type Op = Op;
    type Point = Point;
    type Base = Point;
    type Model = Model;
    type Error = Error;

    fn open(case: &Case, disk: &Arc<SimDevice>, base: &Point) -> Result<Self> {
        let open = if case.is_late { open_late } else { open };
        let store = open(disk, &case.options)?;
        let mut session = Self::over(store, SimDevice::clone(disk), case.options.clone())?;
        session.names = base.names.clone();
        Ok(session)
    }

    fn known(base: &Point) -> Point {
        base.clone()
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
        let is_sound = self.store.is_some() && !self.is_poisoned();
        let Self { versions, prepared, doubtful_names, store, writer, pins, .. } = self;
        drop((writer, pins, store));
        Model { versions, prepared, doubtful_names, is_sound }
    }

    fn check(
        crash: &Crash<'_, Self>,
        disk: &Arc<SimDevice>,
        _: &mut Counts,
    ) -> Verdict<Vec<Option<Point>>> {
        let Crash { case, model, promise, .. } = crash;
        let (known, is_prepared) = Judge { options: &case.options, model, promise }.judge(disk);
        Ok(vec![(!is_prepared).then_some(known)])
    }

    fn again(case: &Case, seed: u64) -> Again<Self> {
        let case = Case { options: case.options.clone(), is_late: seed.is_multiple_of(2) };
        Again { case, ops: history(seed, 30, 40), options: limited(seed, 24) }
    }
}

impl Failing for Session {
    const KINDS: &'static [OpKind] = &[OpKind::Read, OpKind::Write, OpKind::Sync];
    const EFFECTS: Effects = Effects {
        power_off: true,
        on_write: &[
            (Effect::ShortWrite { bytes: 1, failure: Failure::Io }, false),
            (Effect::ShortWrite { bytes: 512, failure: Failure::Io }, false),
            (Effect::ShortWrite { bytes: 700, failure: Failure::Io }, false),
        ],
        on_read: &[],
    };
    const ERRORS_MAX: u64 = 4;
    const ENDINGS: &'static [Ending] =
        &[Ending::Killed, Ending::Closed, Ending::PowerCut, Ending::PowerCutSome];

    fn may_answer(error: &Error, _: Fault) -> Verdict {
        let is_refusal = matches!(error, Error::InvalidArgument(_) | Error::Stale { .. });
        ensure(!is_refusal, Oracle::ErrorsSurface, || format!("the answer is: {error}"))
    }

    fn after_error(&mut self, op: &Op, _: Fault) -> Verdict<bool> {
        if let Op::PinNamed(n) | Op::UnpinNamed(n) = op {
            self.doubtful_names.push(*n);
        }
        self.writer = None;
        Ok(self.store.is_some())
    }

    fn is_poisoned(&self) -> bool {
        self.store.as_ref().is_some_and(|store| store.poisoned().is_some())
    }

    /// What is readable stays readable, poisoned or not, unless a failed sync dropped it.
    fn look(&mut self, fault: Fault, _: u64) -> Verdict {
        if let Some(store) = &self.store
            && fault.kind != OpKind::Read
            && fault.effect != Effect::PowerOff
            && !fault.drops()
        {
            assert_eq!(read_all(&store.pin()).unwrap(), *self.contents());
        }
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        self.writer = None;
        self.pins.clear();
        (self.unfinished, self.squeeze) = (None, None);
        self.store.take().map_or(Ok(()), PageStore::close)
    }

    fn judge_left(left: &Left<'_, Self>, disk: &Arc<SimDevice>) -> Verdict {
        let Left { case, fault, ending, run, .. } = left;
        let store = match open(disk, &case.options) {
            Ok(store) => store,
            // It was not made yet: what is left may look like another's file.
            Err(Error::Foreign { .. }) if run.is_none() => return Ok(()),
            Err(error) => panic!("{error}"),
        };
        if let Some((model, end)) = run {
            judge_failed(&store, model, end, !ending.is_power_cut());
        }
        if store.prepared().is_some() {
            store.decide(fault.nth.is_multiple_of(2)).unwrap();
        }
        assert!(store.check().unwrap().accounted);
        Ok(())
    }
}

/// Judges what a run left in which something failed.
fn judge_failed(store: &PageStore, model: &Model, end: &Point, is_newest: bool) {
    let snapshot = store.pin();
    let found = snapshot.version();
    assert!(found >= end.durable, "{found} is before {}", end.durable);
    let contents = read_all(&snapshot).unwrap();
    let mut attempted = model.prepared.iter().filter(|(version, _)| *version == found);
    let is_known = model.versions.get(&found) == Some(&contents);
    let is_attempt = attempted.any(|(_, tried)| *tried == contents);
    assert!(is_known || is_attempt, "version {found} is not what was written");
    if model.is_sound && is_newest {
        assert_eq!(found, end.visible);
    }
    for (n, (version, contents)) in &end.names {
        if !model.doubtful_names.contains(n) {
            let snapshot = store.at_named(&name(*n)).unwrap();
            assert_eq!((snapshot.version(), &read_all(&snapshot).unwrap()), (*version, contents));
        }
    }
}

/// The point of a new store.
pub fn nothing() -> Point {
    Point { durable: 0, visible: 0, names: Names::new() }
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

pub fn options_of(seed: u64) -> Options {
    let mut options = small_of(seed % 7);
    options.page_size = 512 << (seed % 3);
    options.delta_bytes *= seed % 2;
    // With a thread that takes checkpoints concurrently with the commits.
    options.relaxed_interval = (seed % 4 == 3).then_some(std::time::Duration::from_millis(1));
    options
}
