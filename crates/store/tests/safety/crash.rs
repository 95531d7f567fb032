//! After a power cut at any moment a store holds what it promised.

use std::collections::HashSet;

use esker_testkit::counts::{Counts, budget};
use esker_testkit::crash::{self, Effort};
use esker_testkit::scenario::{self, Make};

fn survives(make: Make) {
    match crash::run(make) {
        Ok(counts) => counts.record().unwrap(),
        Err(violation) => panic!("{violation}"),
    }
}

macro_rules! traces {
    ($($name:ident: $make:ident,)*) => {
        $(#[test] fn $name() { survives(scenario::$make); })*

        #[test]
        fn every_trace_has_its_test() {
            assert_eq!([$(stringify!($make)),*].len(), scenario::CRASH_TRACES.len());
        }
    };
}

traces! {
    creation_survives_power_cuts: creation,
    loading_survives_power_cuts: load,
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
    let mut counts = Counts::new("crash", "random histories");
    let mut images = HashSet::new();
    for seed in [239, 442].into_iter().chain(1_000..1_000 + 40 * budget()) {
        let effort = Effort { images: 60, nested: true };
        let scenario = scenario::random(seed);
        if let Err(violation) = crash::run_once(&scenario, effort, &mut images, &mut counts) {
            panic!("{}", violation.at(format!("seed {seed}")));
        }
    }
    counts.add("distinct", images.len() as u64);
    counts.record().unwrap();
}
