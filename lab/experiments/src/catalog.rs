//! The catalog: every experiment that `esker lab` runs, and nothing else names them all.

use crate::experiment::Experiment;
use crate::fdtree::{ablation, index_size, level_skipping, lookup_ratio, stall};
use crate::flash::index_on_ssd;
use crate::flash::sqlite::{pages, readers, tpcc_readers, workers};
use crate::flash::trees::{adapt, btree, devices, memory, nand, peers, ssd};
use crate::lsm::{adaptive, index, keys, levels, load, loosened, payload, sizes, spread};
use crate::multiversion::{head_leaves, inserts, mixed, published};
use crate::patch::written;
use crate::permute::{asymmetry, passes};

/// Every experiment.
pub const EXPERIMENTS: [Experiment; 33] = [
    stall::EXPERIMENT,
    lookup_ratio::EXPERIMENT,
    ablation::EXPERIMENT,
    index_size::EXPERIMENT,
    level_skipping::EXPERIMENT,
    passes::EXPERIMENT,
    asymmetry::EXPERIMENT,
    sizes::EXPERIMENT,
    keys::EXPERIMENT,
    levels::EXPERIMENT,
    load::EXPERIMENT,
    payload::EXPERIMENT,
    spread::EXPERIMENT,
    loosened::EXPERIMENT,
    index::EXPERIMENT,
    adaptive::EXPERIMENT,
    inserts::EXPERIMENT,
    mixed::EXPERIMENT,
    head_leaves::EXPERIMENT,
    published::EXPERIMENT,
    index_on_ssd::EXPERIMENT,
    nand::EXPERIMENT,
    adapt::EXPERIMENT,
    btree::EXPERIMENT,
    memory::EXPERIMENT,
    ssd::EXPERIMENT,
    devices::EXPERIMENT,
    peers::EXPERIMENT,
    written::EXPERIMENT,
    readers::EXPERIMENT,
    tpcc_readers::EXPERIMENT,
    workers::EXPERIMENT,
    pages::EXPERIMENT,
];

/// The experiment of this name.
#[must_use]
pub fn named(name: &str) -> Option<Experiment> {
    EXPERIMENTS.into_iter().find(|experiment| experiment.name == name)
}

#[cfg(test)]
mod committed;
#[cfg(test)]
mod vacuous;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Series;
    use esker_lab_result::Outcome;

    #[test]
    fn names_are_unique_and_found() {
        for experiment in EXPERIMENTS {
            assert_eq!(named(experiment.name).unwrap().figure, experiment.figure);
            assert!(!experiment.predictions.is_empty());
        }
        assert!(named("x").is_none());
    }

    #[test]
    fn nothing_shows_in_an_empty_series() {
        for experiment in EXPERIMENTS {
            for verdict in experiment.judge(&Series::default()) {
                let is_off = verdict.outcome == Outcome::Missed && verdict.why.is_some();
                assert!(is_off, "{}: {}", experiment.name, verdict.name);
            }
        }
    }
}
