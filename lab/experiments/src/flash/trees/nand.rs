//! The LA-tree's table of existing schemes on raw flash: device time of an operation.
//!
//! The places are the lookups for each update, in percent, which also tell the five workloads
//! apart. The slides' microseconds are a metric beside ours: their chip has 128 MiB and a million
//! updates, their traces are not public, and the slides do not say what memory their comparators
//! use. Ours all have the same.

use esker_flashtrees::rivals::Rival;
use esker_flashtrees::workload::Workload;
use esker_lab_measure::scale::Scale;
use esker_latree::{Buffering, Scan};
use serde_json::{Value, json};

use super::measure::{
    CHIP, COLLECTION, ERASES, MEMORY_BYTES, MICROS, PROGRAMS, READS, SEED, Sizing, System,
};
use crate::Result;
use crate::experiment::{Experiment, Prediction, Series, Watch, go_on, metric};

/// Microseconds of the slides.
const PUBLISHED: &str = "published_micros";
const LA_TREE: &str = "LA-tree";
const FLASH_DB: &str = "FlashDB";
const BFTL: &str = "BFTL";
const BFTL_IN_MEMORY: &str = "BFTL, all memory";
const IPL: &str = "IPL";
/// What the LA-tree is compared with.
const RIVALS: [&str; 4] = [FLASH_DB, BFTL, BFTL_IN_MEMORY, IPL];
/// Each system, and what the slides have for it at each place.
const SYSTEMS: [(&str, System, Option<[f64; 5]>); 7] = [
    (
        LA_TREE,
        System::LaTree(Scan::Sorted, Buffering::Adaptive),
        Some([113.0, 254.0, 163.0, 119.0, 31.0]),
    ),
    ("LA-tree, whole scans", System::LaTree(Scan::Whole, Buffering::Adaptive), None),
    (FLASH_DB, System::Rival(Rival::FlashDb), Some([1270.0, 844.0, 1385.0, 550.0, 111.0])),
    (BFTL, System::Rival(Rival::Bftl), Some([1322.0, 2073.0, 1478.0, 862.0, 69.0])),
    (BFTL_IN_MEMORY, System::Rival(Rival::BftlOfBudget), None),
    (IPL, System::Rival(Rival::Ipl), Some([2489.0, 1702.0, 2205.0, 999.0, 115.0])),
    ("B+tree", System::Rival(Rival::BTree), None),
];
/// Lookups for each update in percent: synthetic ones, radar, Customer and Order of TPC-C.
const PLACES: [f64; 5] = [10.0, 200.0, 0.01, 8.0, 197.0];
const WAREHOUSES: u64 = 10;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "latree-nand",
    figure: "slides, table of existing schemes: NAND",
    about: "device time of an operation of trees on raw flash, by workload: synthetic 10 and \
            200, radar 0.01, Customer 8, Order 197",
    axis: "lookups per update, %",
    columns: &[MICROS, PUBLISHED, READS, PROGRAMS, COLLECTION, ERASES],
    predictions: &[
        Prediction {
            name: "the-order-is-the-papers",
            claim: "with 10 and 200 lookups for 100 updates the LA-tree takes less time than \
                    FlashDB, and FlashDB less than BFTL and IPL",
            judge: order_is_the_papers,
        },
        Prediction {
            name: "three-times-with-few-lookups",
            claim: "with 10 lookups for 100 updates the best of FlashDB, BFTL and IPL takes at \
                    least 3 times the LA-tree's time (published: 11.2 times)",
            judge: |series| gain(series, PLACES[0], 3.0),
        },
        Prediction {
            name: "a-fifth-with-many-lookups",
            claim: "with 200 lookups for 100 updates it takes at least 1.2 times (published: 3.3)",
            judge: |series| gain(series, PLACES[1], 1.2),
        },
        Prediction {
            name: "it-is-ahead-on-all-workloads",
            claim: "on all five workloads the LA-tree takes less time than FlashDB, BFTL and IPL, \
                    as far as they work in the memory",
            judge: is_ahead,
        },
    ],
    run,
};

fn workload(place: f64) -> Workload {
    match place {
        8.0 => Workload::customer(SEED, WAREHOUSES),
        197.0 => Workload::order(SEED, WAREHOUSES),
        0.01 => Workload::radar(SEED),
        ltu => Workload::synthetic(SEED, ltu / 100.0),
    }
}

/// A third of synthetic updates removes a key; the others mostly add one, and need more room.
fn sizing(scale: Scale, place: f64) -> Sizing {
    let updates = match scale {
        Scale::Tiny => 6_000,
        Scale::Small => 300_000,
        Scale::Full => 1_000_000,
    };
    let per_block = if [10.0, 200.0].contains(&place) { 400 } else { 200 };
    Sizing { updates, blocks: (updates / per_block).max(64) as u32 }
}

fn run(scale: Scale, watch: &mut dyn Watch) -> Result<(Series, Value)> {
    let (mut series, mut refused) = (Series::default(), Vec::new());
    for (index, place) in PLACES.into_iter().enumerate() {
        for (name, system, published) in SYSTEMS {
            go_on(watch)?;
            // Tables that do not fit the memory are a finding, and not the end of the others.
            match system.measure(workload(place), sizing(scale, place)) {
                Ok(mut metrics) => {
                    let micros = metrics.get(MICROS).copied().unwrap_or(0.0);
                    if let Some(of) = published.and_then(|of| of.get(index).copied()) {
                        metric(&mut metrics, PUBLISHED, of);
                    }
                    watch.says(&format!("{name}, {place} %: {micros:.1} us"));
                    series.add(name, place, metrics);
                }
                Err(error) => {
                    watch.says(&format!("{name}, {place} %: {error}"));
                    refused.push(format!("{name} at {place} %: {error}"));
                }
            }
        }
    }
    let settings = json!({
        "chip": CHIP,
        "memory_bytes": MEMORY_BYTES,
        "updates": sizing(scale, 10.0).updates,
        "blocks_synthetic": sizing(scale, 10.0).blocks,
        "blocks_others": sizing(scale, 8.0).blocks,
        "warehouses": WAREHOUSES,
        "seed": SEED,
        "refused": refused,
    });
    Ok((series, settings))
}

fn order_is_the_papers(series: &Series) -> std::result::Result<(), String> {
    for place in [PLACES[0], PLACES[1]] {
        let of = |system| series.value(system, place, MICROS);
        let (la_tree, flash_db) = (of(LA_TREE)?, of(FLASH_DB)?);
        let others = of(BFTL)?.min(of(BFTL_IN_MEMORY)?).min(of(IPL)?);
        if !(0.0 < la_tree && la_tree < flash_db && flash_db < others) {
            return Err(format!("{place} %: {la_tree:.1}, {flash_db:.1}, {others:.1} us"));
        }
    }
    Ok(())
}

/// The least time of the others at a place: of those that work in the memory there.
fn best_rival(series: &Series, place: f64) -> std::result::Result<f64, String> {
    let found = RIVALS.iter().filter_map(|system| series.value(system, place, MICROS).ok());
    let best = found.fold(f64::INFINITY, f64::min);
    if best.is_finite() { Ok(best) } else { Err(format!("no other was measured at {place} %")) }
}

fn gain(series: &Series, place: f64, least: f64) -> std::result::Result<(), String> {
    let (rival, own) = (best_rival(series, place)?, series.value(LA_TREE, place, MICROS)?);
    if own > 0.0 && rival >= least * own {
        return Ok(());
    }
    Err(format!("{rival:.1} and {own:.1} us: {:.2} times", rival / own))
}

fn is_ahead(series: &Series) -> std::result::Result<(), String> {
    for place in PLACES {
        let (rival, own) = (best_rival(series, place)?, series.value(LA_TREE, place, MICROS)?);
        if !(0.0 < own && own < rival) {
            return Err(format!("{place} %: {own:.1} us, the best of the others {rival:.1}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::Silent;
    use esker_lab_result::Metrics;

    fn series(la_tree: f64, flash_db: f64, others: f64) -> Series {
        let mut series = Series::default();
        for place in PLACES {
            for (name, micros) in [(LA_TREE, la_tree), (FLASH_DB, flash_db)]
                .into_iter()
                .chain([BFTL, BFTL_IN_MEMORY, IPL].map(|name| (name, others)))
            {
                series.add(name, place, Metrics::from([(MICROS.to_owned(), micros)]));
            }
        }
        series
    }

    #[test]
    fn predictions_can_fail() {
        assert_eq!(order_is_the_papers(&series(1.0, 2.0, 3.0)), Ok(()));
        assert!(order_is_the_papers(&series(1.0, 3.0, 2.0)).is_err());
        assert!(order_is_the_papers(&series(2.0, 1.0, 3.0)).is_err());
        assert_eq!(gain(&series(1.0, 3.0, 4.0), 10.0, 3.0), Ok(()));
        assert!(gain(&series(1.0, 4.0, 2.9), 10.0, 3.0).is_err());
        assert_eq!(is_ahead(&series(1.0, 2.0, 1.1)), Ok(()));
        assert!(is_ahead(&series(1.0, 2.0, 1.0)).is_err());
    }

    #[test]
    fn it_runs() {
        let (found, settings) = run(Scale::Tiny, &mut Silent).unwrap();
        // The tables of BFTL with all of the memory fill the tiny chip.
        let refused = settings["refused"].as_array().unwrap();
        assert!(refused.iter().all(|why| why.as_str().unwrap().starts_with(BFTL_IN_MEMORY)));
        assert_eq!(found.points.len() + refused.len(), PLACES.len() * SYSTEMS.len());
        let own: Vec<_> = found.along(LA_TREE).collect();
        assert_eq!(own.len(), PLACES.len());
        // The others keep all of it in memory.
        assert!(own.iter().all(|point| point.value(MICROS).unwrap() > 0.0));
    }
}
