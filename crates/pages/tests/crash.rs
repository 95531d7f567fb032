//! Every legal state after a power cut opens as a version that was promised, whole.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
#[path = "common/session.rs"]
mod session;
#[path = "common/subject.rs"]
mod subject;

use std::sync::Arc;

use common::*;
use esker_device::sim::{CrashOptions, Effect, Failure, Fault, FaultPlan, OpKind};
use esker_harness::counts::{Counts, budget};
use esker_harness::crash::{self, Recording, limited};
use esker_harness::violation::{Verdict, without_panic};
use esker_pages::planted::Bug;
use esker_pages::{Durability, Error, PageStore};
use session::Session;
use subject::{Case, nothing, options_of};

/// One crash state in this many is used and crashed again.
const AGAIN_ONE_IN: u64 = 40;

fn explore(seed: u64, limit: u64, counts: &mut Counts) -> Verdict {
    let case = Case { options: options_of(seed), is_late: seed.is_multiple_of(2) };
    let device = Arc::new(disk());
    drop(open(&device, &case.options).unwrap());
    let history = history(seed, 160, 40);
    let recording: Recording<Session> = crash::record(case, &device, &nothing(), &history)?;
    crash::explore(&recording, &limited(seed, limit), Some(AGAIN_ONE_IN), counts, |_| {})
}

#[test]
fn every_crash_leaves_a_version_that_was_promised() {
    let mut counts = Counts::new("page-store", "a power cut anywhere");
    for seed in 0..60 * budget() {
        let verdict = without_panic(|| explore(seed, 250, &mut counts));
        verdict.unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        counts.add("runs", 1);
    }
    assert!(counts.get("judged") > 10_000, "{counts:?}");
    counts.record().unwrap();
}

#[test]
fn planted_bugs_are_found() {
    // Those are found by tests of files, of full devices and of followers.
    let elsewhere = [
        Bug::HeadIsEnough,
        Bug::RemovalNotSynced,
        Bug::DecisionFindsNoRoom,
        Bug::HeldForgotten,
        Bug::CarriedAppliedTwice,
        Bug::NodesNotAdopted,
        Bug::FollowerFreesNewerDead,
        Bug::PinNotSeen,
        Bug::AskedNotReread,
        Bug::AskedStoredLate,
        Bug::TornStateBelieved,
        Bug::LaggardNotReloaded,
        Bug::DeadWritersLogWrittenOn,
        Bug::PreparedDecidedByOther,
        Bug::DoubtIgnored,
        Bug::UnlistedReused,
        Bug::AloneTooShort,
        Bug::UnsaidNotSaid,
    ];
    for bug in Bug::ALL.into_iter().filter(|bug| !elsewhere.contains(bug)) {
        let found = hunt(bug, 0..60, |seed, counts| explore(*seed, 150, counts));
        let mut counts = Counts::new("page-store-planted", format!("{bug:?}"));
        counts.add("histories until found", found.attempts);
        counts.add("judged until found", found.judged);
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
    let counts = crash::each(&trace, &CrashOptions::default(), |_, device| {
        let store = open(device, &options).unwrap();
        assert!(store.pin().version() >= 1);
        Ok(())
    });
    let counts = counts.unwrap_or_else(|violation| panic!("{violation}"));
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
        let crashes = crash::each(&trace, &limited(seed, 300), |state, device| {
            let read = open_read_only(device, &options_of(seed)).map(|store| store.pin().pages());
            let (read, opened_too) = (read.ok(), open(device, &options_of(seed)));
            assert_eq!(read, opened_too.as_ref().ok().map(|_| 0));
            match opened_too {
                Ok(store) => {
                    assert_eq!((store.pin().version(), store.pin().pages()), (0, 0));
                    opened += 1;
                }
                Err(Error::Foreign { .. }) if state.acknowledged().is_none() && seed > 2 => {}
                Err(error) => panic!("{error}"),
            }
            Ok(())
        });
        crashes.unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        assert!(opened > 5, "{opened}");
        judged += opened;
    }
    count("a power cut while a store is made", 5, judged);
}
