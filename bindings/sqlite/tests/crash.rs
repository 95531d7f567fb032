//! Every legal state after a power cut opens, in SQLite over the VFS, as a state that was promised:
//! whole, as a plain SQLite made it, at least what was durable, at most what was begun. A second
//! opening finds the same, and what is in several files is in all of them or in none.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "common/simulated/mod.rs"]
mod simulated;

use std::sync::Arc;
use std::time::Duration;

use esker_device::sim::SimDevice;
use esker_harness::counts::{Counts, budget};
use esker_harness::crash::{self, limited};
use esker_harness::violation::Verdict;
use esker_pages::{Allocation, planted as pages};
use esker_sqlite::planted;

use simulated::session::{Base, Session};
use simulated::steps::{Case, Step, cases};
use simulated::subject::judged;

/// One crash state in this many is used and crashed again.
const AGAIN_ONE_IN: u64 = 25;

/// A kind of trace, with pages of some size, the two allocations alternately; now and then with a
/// thread that syncs and takes checkpoints during the transactions.
fn case(name: &str, seed: u64) -> Case {
    let mut case = cases().into_iter().find(|case| case.name == name).unwrap();
    case.page_size = (case.page_size << (seed % 3)).min(4096);
    case.options.relaxed_interval = (seed % 4 == 3).then_some(Duration::from_millis(1));
    case.over([Allocation::Slot, Allocation::Segment][(seed / 2 % 2) as usize])
}

/// Runs a trace and judges `limit` of the states that a crash may leave.
fn explore(case: &Case, seed: u64, limit: u64, counts: &mut Counts) -> Verdict {
    let mut steps = vec![Step::Hold];
    steps.extend(case.steps(seed));
    judged(case, seed, || {
        let (base, image) = Base::prepared(case);
        let disk = Arc::new(SimDevice::from_image(&image));
        let recording = crash::record::<Session>(case.clone(), &disk, &base, &steps)?;
        counts.add("traces", 1);
        counts.add("device events", recording.trace.len() as u64);
        crash::explore(&recording, &limited(seed, limit), Some(AGAIN_ONE_IN), counts, |_| {})
    })
}

/// Several traces of one kind.
fn check_all(name: &str, traces: u64, limit: u64) {
    let mut counts = Counts::new("sqlite-crash", name);
    for seed in 0..traces * budget() {
        let verdict = explore(&case(name, seed), seed, limit, &mut counts);
        verdict.unwrap_or_else(|violation| panic!("{violation}"));
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
            let is_found = explore(&case(name, seed), seed, 60, &mut counts).is_err();
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
