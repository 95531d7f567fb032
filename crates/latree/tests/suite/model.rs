//! Histories without power cuts.

use esker_flash::Nand;
use esker_harness::random::Random;
use esker_latree::{Buffering, Options, Scan, Stats};

use crate::common::{Flash, Tree, large_pages, options, small_pages};
use crate::history::{Model, Shape, apply, apply_to_model, compare, step};

/// Runs a history; answers the tree for what is asked of it.
pub fn history(
    chip: Flash,
    options: Options,
    shape: &Shape,
    seed: u64,
    steps: usize,
) -> Result<(Stats, Tree), String> {
    let random = Random::new(seed);
    let mut tree = Tree::create(chip, options.clone()).map_err(|error| error.to_string())?;
    let mut model = Model::new();
    for at in 0..steps {
        let step = step(&random, shape);
        apply(&mut tree, &model, &step)
            .map_err(|what| format!("seed {seed}, step {at}: {what}"))?;
        apply_to_model(&mut model, &step);
        if at % (steps / 4 + 1) == steps / 4 {
            compare(&mut tree, &model).map_err(|what| format!("seed {seed}, at {at}: {what}"))?;
        }
    }
    compare(&mut tree, &model).map_err(|what| format!("seed {seed}, at its end: {what}"))?;
    tree.sync().map_err(|error| error.to_string())?;
    let stats = tree.stats();
    let mut again = Tree::open(tree.into_chip(), options).map_err(|error| error.to_string())?;
    compare(&mut again, &model).map_err(|what| format!("seed {seed}, opened again: {what}"))?;
    Ok((stats, again))
}

fn erases_a_block(chip: &Flash) -> f64 {
    let total = chip.0.counters().total().erases;
    total as f64 / f64::from(chip.0.geometry().blocks())
}

#[test]
fn every_mode_is_a_map_on_small_pages() {
    for (at, scan) in [Scan::Whole, Scan::Sorted].into_iter().enumerate() {
        for levels in 1..=3 {
            for buffering in [Buffering::Adaptive, Buffering::Fixed(2048), Buffering::Off] {
                let shape = Shape { keys: 2500, value_bytes: 24, lookups: 40, removals: 33 };
                let options = options(24 << 10, levels, scan, buffering);
                let seed = 10 * u64::from(levels) + at as u64;
                let found = history(small_pages(96), options.clone(), &shape, seed, 12_000);
                found.unwrap_or_else(|what| panic!("{options:?}: {what}"));
            }
        }
    }
}

#[test]
fn every_mode_is_a_map_on_large_pages() {
    for levels in 1..=3 {
        for buffering in [Buffering::Adaptive, Buffering::Fixed(16 << 10)] {
            let shape = Shape { keys: 20_000, value_bytes: 100, lookups: 20, removals: 33 };
            let options = options(128 << 10, levels, Scan::Sorted, buffering);
            let found = history(large_pages(48), options.clone(), &shape, levels.into(), 20_000);
            found.unwrap_or_else(|what| panic!("{options:?}: {what}"));
        }
    }
}

#[test]
fn collection_is_reached_many_times_over() {
    for lookups in [1, 50, 90] {
        let shape = Shape { keys: 4000, value_bytes: 24, lookups, removals: 33 };
        let options = options(24 << 10, 2, Scan::Sorted, Buffering::Adaptive);
        let steps = 70_000 * 100 / (100 - lookups as usize).max(20);
        let (stats, tree) = history(small_pages(22), options, &shape, 77, steps).unwrap();
        let erases = erases_a_block(tree.chip());
        eprintln!("{lookups} % lookups: {stats:?}");
        let (least, greatest) = (stats.erases_least, stats.erases_greatest);
        assert!(stats.collected_blocks > 20, "{stats:?}");
        assert!(stats.moved_fragments + stats.collected_empties > 0, "{stats:?}");
        assert!(erases > 3.0, "{erases} erases a block at {lookups} % lookups");
        assert!(greatest - least <= 40, "{least} to {greatest} erases at {lookups} % lookups");
    }
}

#[test]
fn a_history_repeats_from_its_seed() {
    let shape = Shape { keys: 2500, value_bytes: 24, lookups: 30, removals: 33 };
    let options = options(24 << 10, 2, Scan::Sorted, Buffering::Adaptive);
    let run = || {
        let (stats, tree) = history(small_pages(96), options.clone(), &shape, 5, 6000).unwrap();
        (stats, *tree.chip().0.counters())
    };
    assert_eq!(run(), run());
}
