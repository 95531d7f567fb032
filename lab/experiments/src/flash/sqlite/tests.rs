use super::*;
use crate::experiment::Experiment;
use crate::experiment::tests::Silent;
use crate::machine::mode::Mode;

fn tiny(experiment: &Experiment) -> crate::experiment::Series {
    (experiment.run)(Scale::Tiny, &mut Silent).unwrap().0
}

#[test]
fn every_experiment_runs_and_repeats() {
    let all =
        [pages::EXPERIMENT, readers::EXPERIMENT, tpcc_readers::EXPERIMENT, workers::EXPERIMENT];
    for experiment in all {
        let found = tiny(&experiment);
        let ours = if experiment.name == "sqlite-pages" { Mode::OURS.len() } else { 0 };
        assert_eq!(found.points.len(), 2 * (Mode::PAPER.len() + ours), "{}", experiment.name);
        assert_eq!(found, tiny(&experiment), "{}", experiment.name);
    }
}
