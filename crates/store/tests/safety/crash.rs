//! After a power cut at any moment a store holds what it promised.

use esker_testkit::crash;
use esker_testkit::scenario::{self, Scenario};

fn survives(scenario: &Scenario) {
    match crash::run(scenario) {
        Ok(counts) => counts.record().unwrap(),
        Err(violation) => panic!("{violation}"),
    }
}

macro_rules! traces {
    ($($(#[$doc:meta])* $name:ident: $scenario:ident,)*) => {
        $($(#[$doc])* #[test] fn $name() { survives(&scenario::$scenario()); })*

        #[test]
        fn every_trace_has_its_test() {
            assert_eq!([$(stringify!($scenario)),*].len(), scenario::crash_traces().len());
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
    let trace = || crash::record_scenario(&scenario::mixed()).unwrap().trace;
    assert!(trace() == trace());
}
