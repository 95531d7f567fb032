//! Failures of device operations: after any of them, a store keeps what it promised and reports
//! what happened.

use esker::{IndexKind, Scheme};
use esker_testkit::counts::{Counts, assert_passes, budget};
use esker_testkit::full::emptied::Trial;
use esker_testkit::full::{self, Then};
use esker_testkit::random::Random;
use esker_testkit::scenario;
use esker_testkit::{faults, lies};

/// Stores that are filled and emptied, and the sizes of their devices.
const TRIALS: u64 = 40;
const LARGER_TRIALS: u64 = 4;
const FULL_BYTES: std::ops::Range<u64> = 1200 << 10..4 << 20;

fn survives(workload: usize) {
    assert_passes(faults::run(&scenario::fault_workloads()[workload]));
}

#[test]
fn loading_survives_every_failing_operation() {
    survives(0);
}

#[test]
fn overwriting_and_merging_survives_every_failing_operation() {
    survives(1);
}

#[test]
fn deleting_and_underflow_merges_survive_every_failing_operation() {
    survives(2);
}

#[test]
fn snapshots_and_merges_survive_every_failing_operation() {
    survives(3);
}

#[test]
fn keyspaces_that_come_and_go_survive_every_failing_operation() {
    survives(4);
}

#[test]
fn values_that_expire_survive_every_failing_operation() {
    survives(6);
}

#[test]
fn transactions_survive_every_failing_operation() {
    survives(5);
}

#[test]
fn ranges_that_are_removed_survive_every_failing_operation() {
    survives(7);
}

#[test]
fn compressed_blocks_survive_every_failing_operation() {
    survives(8);
}

#[test]
fn blobs_survive_every_failing_operation() {
    survives(9);
}

#[test]
fn operands_survive_every_failing_operation() {
    survives(10);
}

#[test]
fn keyspaces_with_history_survive_every_failing_operation() {
    survives(11);
}

#[test]
fn past_indexes_survive_every_failing_operation() {
    survives(12);
}

#[test]
fn giving_versions_up_survives_every_failing_operation() {
    survives(13);
}

#[test]
fn every_scheme_survives_failing_operations() {
    for scheme in &Scheme::ALL[1..] {
        for mut workload in scenario::fault_workloads() {
            workload.config.scheme = *scheme;
            let case = format!("{} as {scheme:?}", workload.name);
            assert_passes(faults::run_some(&workload, &case, 4));
        }
    }
}

#[test]
fn an_lsm_index_survives_failing_operations() {
    for mut workload in scenario::fault_workloads() {
        workload.config.index = IndexKind::Lsm;
        let case = format!("{} as an LSM index", workload.name);
        assert_passes(faults::run_some(&workload, &case, 6));
    }
}

#[test]
fn every_workload_has_its_test() {
    assert_eq!(scenario::fault_workloads().len(), 14);
}

#[test]
fn lying_devices_are_found_out() {
    for workload in [1, 3] {
        assert_passes(lies::run(&scenario::fault_workloads()[workload]));
    }
}

#[test]
fn lying_devices_are_found_out_below_an_lsm_index() {
    let mut workload = scenario::fault_workloads().swap_remove(1);
    workload.name = "overwriting an LSM index";
    workload.config.index = IndexKind::Lsm;
    assert_passes(lies::run(&workload));
}

/// Random stores that are filled and emptied.
fn are_emptied(case: &str, trials: u64, trial: impl Fn(u64) -> Trial) {
    let mut counts = Counts::new("full", format!("emptied: {case}"));
    let result = (0..trials * budget()).try_for_each(|seed| {
        counts.add("stores", 1);
        trial(seed).run(&mut counts)
    });
    assert_passes(result.map(|()| counts));
}

/// On devices of a range of sizes.
fn small(index: IndexKind) -> impl Fn(u64) -> Trial {
    let sizes = FULL_BYTES.end - FULL_BYTES.start;
    move |seed| {
        let capacity_bytes = FULL_BYTES.start + Random::new(seed ^ 0x512e).below(sizes);
        Trial::random(index, capacity_bytes, seed)
    }
}

#[test]
fn a_full_store_is_emptied() {
    are_emptied("fdtree", TRIALS, small(IndexKind::FdTree));
}

#[test]
fn a_full_store_of_an_lsm_index_is_emptied() {
    are_emptied("lsm", TRIALS, small(IndexKind::Lsm));
}

#[test]
fn a_larger_full_store_is_emptied() {
    are_emptied("fdtree, larger", LARGER_TRIALS, |seed| Trial::larger(IndexKind::FdTree, seed));
}

#[test]
fn a_larger_full_store_of_an_lsm_index_is_emptied() {
    are_emptied("lsm, larger", LARGER_TRIALS, |seed| Trial::larger(IndexKind::Lsm, seed));
}

/// Range deletes while a snapshot exists renew the manifest's file; free units are not adjacent.
#[test]
fn full_stores_that_were_not_emptied_once_are_emptied() {
    for (index, seed) in [(IndexKind::FdTree, 246), (IndexKind::Lsm, 252)] {
        let mut counts = Counts::new("full", format!("emptied: {index:?} {seed}"));
        assert_passes(small(index)(seed).run(&mut counts).map(|()| counts));
    }
}

fn fills_up(index: IndexKind, then: Then) {
    // A store that has come to need an LSM index has written its manifest twice.
    let least = if index == IndexKind::Lsm { 640 } else { 400 };
    for kibibytes in [400, 500, 640, 900, 1500, 3000].into_iter().filter(|size| *size >= least) {
        for value_bytes in [100].into_iter().chain(scenario::LONG_VALUES).chain([3000]) {
            assert_passes(full::fill_up(index, kibibytes << 10, value_bytes, then));
        }
    }
}

#[test]
fn a_full_store_keeps_what_it_accepted_and_opens() {
    fills_up(IndexKind::FdTree, Then::Open);
}

#[test]
fn a_full_store_of_an_lsm_index_keeps_what_it_accepted_and_opens() {
    fills_up(IndexKind::Lsm, Then::Open);
}
