//! After a power cut at any moment a store holds what it promised.

use std::collections::HashSet;

use esker::{Compaction, CompactionParams, CompactionPolicy, IndexKind, Scheme};
use esker_testkit::counts::{Counts, assert_passes, budget};
use esker_testkit::history::Op;
use esker_testkit::violation::Verdict;
use esker_testkit::{concurrent, crash, scenario};

macro_rules! traces {
    ($($name:ident: $make:ident,)*) => {
        $(#[test] fn $name() { assert_passes(crash::run(scenario::$make)); })*

        #[test]
        fn every_trace_has_its_test() {
            assert_eq!([$(stringify!($make)),*].len(), scenario::CRASH_TRACES.len());
        }
    };
}

traces! {
    creation_survives_power_cuts: creation,
    loading_survives_power_cuts: load,
    appending_survives_power_cuts: appends,
    overwriting_survives_power_cuts: overwrite,
    deleting_survives_power_cuts: deletes,
    overflowing_memtables_survive_power_cuts: overflow,
    snapshots_during_merges_survive_power_cuts: snapshots,
    log_segments_in_reuse_survive_power_cuts: log_recycling,
    a_new_manifest_survives_power_cuts: manifest_roll,
    keyspaces_that_come_and_go_survive_power_cuts: keyspaces,
    closing_survives_power_cuts: closing,
    large_values_survive_power_cuts: large_values,
    a_full_device_survives_power_cuts: full_device,
    transactions_survive_power_cuts: transactions,
    values_that_expire_survive_power_cuts: expiry,
    ranges_that_are_removed_survive_power_cuts: ranges,
    ranges_removed_over_ranges_survive_power_cuts: ranges_over_ranges,
    compressed_blocks_survive_power_cuts: compressed,
    compressed_blocks_that_stay_survive_power_cuts: compressed_appends,
    blobs_survive_power_cuts: blobs,
    blobs_on_a_full_device_survive_power_cuts: blobs_full,
    blobs_in_the_log_alone_survive_power_cuts: blobs_synced,
    operands_survive_power_cuts: operands,
    runs_that_are_merged_in_part_survive_power_cuts: slices,
    keyspaces_with_history_survive_power_cuts: versions,
    copies_of_what_is_live_survive_power_cuts: splits,
    versions_that_are_given_up_survive_power_cuts: retention,
    everything_at_once_survives_power_cuts: mixed,
}

#[test]
fn a_run_repeats_event_by_event() {
    let trace = || crash::record_scenario(&scenario::mixed(0)).unwrap().trace;
    assert!(trace() == trace());
}

/// Histories whose sizes are random too; 239 and 442 once lost keys in merges.
#[test]
fn random_histories_survive_power_cuts() {
    assert_passes(random_histories([239, 442].into_iter().chain(1_000..1_000 + 25 * budget())));
}

fn random_histories(seeds: impl Iterator<Item = u64>) -> Verdict<Counts> {
    let mut counts = Counts::new("crash", "random histories");
    let mut distinct = HashSet::new();
    for seed in seeds {
        let mut scenario = scenario::random(seed);
        if seed >= 1_000 && seed % 3 == 2 {
            scenario.config.index = IndexKind::Lsm;
        }
        crash::run_once(&scenario, 60, &mut distinct, &mut counts)
            .map_err(|violation| violation.at(format!("seed {seed}")))?;
    }
    counts.add("distinct", distinct.len() as u64);
    Ok(counts)
}

#[test]
fn every_trace_of_an_lsm_index_survives_power_cuts() {
    assert_passes(lsm_indexes());
}

fn lsm_indexes() -> Verdict<Counts> {
    let mut counts = Counts::new("crash", "LSM indexes");
    let mut distinct = HashSet::new();
    for make in scenario::CRASH_TRACES {
        let mut scenario = make(0);
        scenario.config.index = IndexKind::Lsm;
        crash::run_once(&scenario, 400 * budget(), &mut distinct, &mut counts)
            .map_err(|violation| violation.at(format!("{} as an LSM index", scenario.name)))?;
    }
    counts.add("distinct", distinct.len() as u64);
    Ok(counts)
}

#[test]
fn lsm_indexes_by_merge_policies_survive_power_cuts() {
    assert_passes(merge_policies());
}

/// Parts of many slices, levels that are packed between them, and thresholds that are learnt
/// meanwhile.
fn merge_policies() -> Verdict<Counts> {
    let mut counts = Counts::new("crash", "merge policies");
    let mut distinct = HashSet::new();
    let (best, mixed, full) =
        (CompactionPolicy::ChooseBest, CompactionPolicy::Mixed, CompactionPolicy::Full);
    for (policy, omega) in [(best, 0.2), (mixed, 0.02), (full, 0.0)] {
        for make in [scenario::overwrite, scenario::mixed, scenario::slices] {
            let mut scenario = make(0);
            scenario.config.index = IndexKind::Lsm;
            let params = CompactionParams { gamma: 2.0, omega, ..CompactionParams::default() };
            scenario.config.compaction = Compaction::by(policy).params(params);
            crash::run_once(&scenario, 200 * budget(), &mut distinct, &mut counts)
                .map_err(|violation| violation.at(format!("{} by {policy}", scenario.name)))?;
        }
    }
    counts.add("distinct", distinct.len() as u64);
    assert!(counts.get("blocks packed") > 0, "power was cut while levels were packed");
    Ok(counts)
}

#[test]
fn merges_for_scans_survive_power_cuts() {
    assert_passes(merges_for_scans());
}

/// Everything is scanned again and again, so that ranges are merged for scans between others.
fn merges_for_scans() -> Verdict<Counts> {
    let mut counts = Counts::new("crash", "merges for scans");
    let mut distinct = HashSet::new();
    let mut scenario = scenario::slices(0);
    scenario.config.compaction = Compaction::default().adaptive(u64::MAX);
    let parts = scenario.ops.chunks(30).map(<[Op]>::to_vec);
    scenario.ops = parts.flat_map(|part| part.into_iter().chain([Op::Compare])).collect();
    crash::run_once(&scenario, 400 * budget(), &mut distinct, &mut counts)?;
    counts.add("distinct", distinct.len() as u64);
    Ok(counts)
}

#[test]
fn every_scheme_survives_power_cuts() {
    assert_passes(every_scheme());
}

fn every_scheme() -> Verdict<Counts> {
    let mut counts = Counts::new("crash", "every scheme");
    for scheme in Scheme::ALL {
        // An LSM index has one scheme.
        let makes = scenario::CRASH_TRACES.into_iter();
        for make in makes.filter(|make| make(0).config.index == IndexKind::FdTree) {
            crash::glance(make, scheme, 100 * budget(), &mut counts)
                .map_err(|violation| violation.at(format!("{} as {scheme:?}", make(0).name)))?;
        }
    }
    Ok(counts)
}

#[test]
fn commits_of_several_writers_survive_power_cuts() {
    assert_passes(several_writers());
}

fn several_writers() -> Verdict<Counts> {
    let mut counts = Counts::new("crash", "several writers");
    let mut distinct = HashSet::new();
    for seed in 0..6 * budget() {
        let recording = concurrent::record(seed).map_err(|v| v.at(format!("seed {seed}")))?;
        counts.add("runs", 1);
        counts.add("device events", recording.trace.len() as u64);
        crash::explore(&recording, 500, &mut distinct, &mut counts)
            .map_err(|violation| violation.at(format!("seed {seed}")))?;
    }
    counts.add("distinct", distinct.len() as u64);
    Ok(counts)
}
