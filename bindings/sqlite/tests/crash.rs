//! Every legal state after a power cut opens, in SQLite over the VFS, as a state that was promised:
//! whole, as a plain SQLite made it, at least what was durable, at most what was begun. A second
//! opening finds the same, and what is in several files is in all of them or in none.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "common/simulated/mod.rs"]
mod simulated;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use esker_device::sim::{SimDevice, SimImage, Trace};
use esker_harness::counts::{Counts, budget};
use esker_harness::crash::limited;
use esker_pages::{Allocation, planted as pages};
use esker_sqlite::planted;

use simulated::disk::{self, Disk, SuperJournal, put_super_journal};
use simulated::judge::{Promise, before, judge, promise, super_journals};
use simulated::session::{Point, Session, connect, connect_read_only, prepared};
use simulated::steps::{Case, cases};

/// A kind of trace, with pages of some size, the two allocations alternately; now and then with a
/// thread that syncs and takes checkpoints during the transactions.
fn case(name: &str, seed: u64) -> Case {
    let mut case = cases().into_iter().find(|case| case.name == name).unwrap();
    case.page_size = (case.page_size << (seed % 3)).min(4096);
    case.options.relaxed_interval = (seed % 4 == 3).then_some(Duration::from_millis(1));
    case.over([Allocation::Slot, Allocation::Segment][(seed / 2 % 2) as usize])
}

/// Runs a trace on a disk that records.
fn record(case: &Case, seed: u64, folder: &Path) -> (Session, Trace) {
    let mut session = Session::start(case, &prepared(case, folder), folder);
    let device = session.disk.device.clone();
    device.record();
    device.mark(0);
    session.connection().unwrap();
    session.mark();
    session.hold();
    for step in case.steps(seed) {
        session.apply(&step).unwrap();
        session.mark();
    }
    session.judge_live();
    // Cut off here: nothing of the closing is in the trace.
    let trace = device.take_trace().unwrap();
    session.disconnect();
    (session, trace)
}

/// Opens what a crash left, on a disk that records, and crashes again: before the opening is over
/// the promise is the same, and afterwards it is what was seen.
fn crash_again(
    session: &Session,
    promise: &Promise<'_>,
    left: &SimImage,
    found: usize,
    seed: u64,
) -> u64 {
    let device = SimDevice::from_image(left);
    let disk = Disk::mount(device.clone(), &session.disk.folder, &session.case.options);
    device.record();
    let is_late = seed.is_multiple_of(2);
    let reader = is_late.then(|| connect_read_only(&disk, &session.case).unwrap());
    let connection = connect(&disk, &session.case).unwrap();
    device.mark(1);
    drop(reader);
    let trace = device.take_trace().unwrap();
    drop(connection);
    drop(disk);
    let seen = Point { visible: found, durable: found, ..promise.next.clone() };
    let mut judged = 0;
    let crashes = trace.for_each_crash(&limited(seed, 8), |state, device| -> Result<(), ()> {
        let promise = match state.acknowledged() {
            Some(_) => Promise { least: found, now: promise.now, next: &seen },
            None => Promise { ..*promise },
        };
        judge(session, &promise, &device.image(), 0);
        judged += 1;
        Ok(())
    });
    crashes.unwrap();
    judged
}

/// Judges what one crash left.
fn judge_left(
    session: &Session,
    promise: &Promise<'_>,
    left: &SimImage,
    journal: Option<&SuperJournal>,
    number: u64,
    counts: &mut Counts,
) {
    put_super_journal(&session.disk.folder, journal);
    let found = judge(session, promise, left, number);
    counts.add("judged", 1);
    if number.is_multiple_of(25) {
        counts.add("judged again", crash_again(session, promise, left, found, number));
    }
}

/// Runs a trace and judges `limit` of the states that a crash may leave.
fn explore(case: &Case, seed: u64, limit: u64, counts: &mut Counts) {
    let folder = tempfile::tempdir().unwrap();
    let (session, trace) = record(case, seed, folder.path());
    counts.add("traces", 1);
    counts.add("device events", trace.len() as u64);
    let mut number = 0;
    let crashes = trace.for_each_crash(&limited(seed, limit), |state, device| {
        let Some(promise) = promise(&session, state) else { return Ok(()) };
        let left = device.image();
        for journal in super_journals(&session, state) {
            number += 1;
            counts.add("with a super-journal", journal.is_some().into());
            let judging = AssertUnwindSafe(|| {
                judge_left(&session, &promise, &left, journal.as_ref(), number, counts);
            });
            catch_unwind(judging)
                .map_err(|_| format!("{}\n{}, seed {seed}: {state}", before(state), case.name))?;
        }
        Ok(())
    });
    crashes.unwrap_or_else(|place: String| panic!("{place}"));
    assert_eq!(disk::panics(), 0, "what is tested has panicked");
}

/// Several traces of one kind.
fn check_all(name: &str, traces: u64, limit: u64) {
    let mut counts = Counts::new("sqlite-crash", name);
    for seed in 0..traces * budget() {
        explore(&case(name, seed), seed, limit, &mut counts);
    }
    counts.record().unwrap();
    assert!(counts.get("judged") >= traces * limit / 2, "{counts:?}");
}

#[test]
fn small_transactions() {
    check_all("small transactions", 10, 100);
}

#[test]
fn transactions_that_spill() {
    check_all("spilled", 10, 100);
}

#[test]
fn savepoints_and_rollbacks() {
    check_all("savepoints", 10, 100);
}

#[test]
fn vacuum_with_another_page_size() {
    check_all("vacuum", 10, 100);
}

#[test]
fn versions_with_names() {
    check_all("pinned", 10, 100);
}

#[test]
fn relaxed_commits_are_lost_from_the_end() {
    check_all("relaxed", 10, 100);
}

#[test]
fn two_files_in_one_transaction() {
    check_all("attached", 10, 100);
}

#[test]
fn two_files_that_become_shorter() {
    check_all("attached, cut", 10, 100);
}

#[test]
fn three_files_that_become_shorter() {
    check_all("three", 10, 60);
}

/// Traces that should meet a bug, until one does: how many states were judged.
fn hunt(names: &[&str]) -> Option<u64> {
    let mut judged = 0;
    for seed in 0..16 {
        for name in names {
            let mut counts = Counts::new("sqlite-planted", "");
            let hunt = AssertUnwindSafe(|| explore(&case(name, seed), seed, 60, &mut counts));
            let is_found = catch_unwind(hunt).is_err();
            judged += counts.get("judged");
            if is_found {
                return Some(judged);
            }
        }
    }
    None
}

/// A suite that cannot fail proves nothing.
#[test]
fn planted_bugs_are_found() {
    use pages::Bug as Below;
    use planted::Bug as Here;
    let ordinary = ["small transactions", "spilled", "pinned"];
    let mut hidden = Vec::new();
    let mut judge = |bug: String, judged: Option<u64>| match judged {
        Some(judged) => {
            let mut counts = Counts::new("sqlite-planted", bug);
            counts.add("judged until found", judged);
            counts.record().unwrap();
        }
        None => hidden.push(bug),
    };
    for bug in [
        Below::AcknowledgedBeforeSync,
        Below::PagesNotVerified,
        Below::OlderReadersIgnored,
        Below::SpilledNotSynced,
        Below::ReusedBeforeCheckpoint,
    ] {
        judge(format!("{bug:?}"), pages::with(bug, || hunt(&ordinary)));
    }
    let bug = Below::PreparedNotCarried;
    judge(format!("{bug:?}"), pages::with(bug, || hunt(&["attached"])));
    for bug in [Here::CommittedAtSync, Here::DecidedBlindly, Here::NotPrepared] {
        judge(format!("{bug:?}"), planted::with(bug, || hunt(&["attached"])));
    }
    let bug = Here::CutRefused;
    judge(format!("{bug:?}"), planted::with(bug, || hunt(&["attached, cut"])));
    assert!(hidden.is_empty(), "{hidden:?} were not found");
}
