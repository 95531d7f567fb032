//! The LA-tree's table of existing schemes on raw flash: device time of an operation.
//!
//! The slides' microseconds are a metric beside ours: their chip has 128 MiB and a million updates,
//! their traces are not public, and the slides do not say what memory their comparators use. Ours
//! all have the same.

use esker_lab_measure::scale::Scale;
use serde_json::{Value, json};

use super::chips::CHIP;
use super::measure::{
    COLLECTION, ERASES, MEMORY_BYTES, MICROS, PROGRAMS, PUBLISHED, READS, SEED, Setup, measure_all,
};
use super::table::{
    BFTL, BFTL_IN_MEMORY, FLASH_DB, IPL, OURS, PLACES, Row, Times, WAREHOUSES, cases, is_synthetic,
    updates,
};
use crate::Result;
use crate::experiment::{Experiment, Prediction, Series, Watch};

/// What the slides have.
const TABLE: [Row; 4] = [
    (OURS, [113.0, 254.0, 163.0, 119.0, 31.0]),
    (FLASH_DB, [1270.0, 844.0, 1385.0, 550.0, 111.0]),
    (BFTL, [1322.0, 2073.0, 1478.0, 862.0, 69.0]),
    (IPL, [2489.0, 1702.0, 2205.0, 999.0, 115.0]),
];

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
            judge: |series| times(series).gains(PLACES[0], 3.0),
        },
        Prediction {
            name: "a-fifth-with-many-lookups",
            claim: "with 200 lookups for 100 updates it takes at least 1.2 times (published: 3.3)",
            judge: |series| times(series).gains(PLACES[1], 1.2),
        },
        Prediction {
            name: "it-is-ahead-on-all-workloads",
            claim: "on all five workloads the LA-tree takes less time than FlashDB, BFTL and IPL, \
                    as far as they work in the memory",
            judge: |series| times(series).is_ahead(),
        },
    ],
    run,
};

fn times(series: &Series) -> Times<'_> {
    Times { series, suffix: "" }
}

fn setup(scale: Scale, place: f64) -> Setup {
    let per_block = if is_synthetic(place) { 400 } else { 200 };
    Setup::paper(updates(scale), (updates(scale) / per_block).max(64) as u32)
}

fn run(scale: Scale, watch: &mut dyn Watch) -> Result<(Series, Value)> {
    let (series, refused) = measure_all(cases("", &TABLE, |place| setup(scale, place)), watch)?;
    let settings = json!({
        "chip": CHIP,
        "memory_bytes": MEMORY_BYTES,
        "updates": updates(scale),
        "blocks_synthetic": setup(scale, 10.0).blocks,
        "blocks_others": setup(scale, 8.0).blocks,
        "warehouses": WAREHOUSES,
        "seed": SEED,
        "refused": refused,
    });
    Ok((series, settings))
}

fn order_is_the_papers(series: &Series) -> std::result::Result<(), String> {
    let times = times(series);
    for place in [PLACES[0], PLACES[1]] {
        let of = |system| times.of(system, place);
        let (la_tree, flash_db) = (of(OURS)?, of(FLASH_DB)?);
        let others = of(BFTL)?.min(of(BFTL_IN_MEMORY)?).min(of(IPL)?);
        if !(0.0 < la_tree && la_tree < flash_db && flash_db < others) {
            return Err(format!("{place} %: {la_tree:.1}, {flash_db:.1}, {others:.1} us"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::table::SYSTEMS;
    use super::super::table::tests::series;
    use super::*;
    use crate::experiment::tests::Silent;

    #[test]
    fn predictions_can_fail() {
        assert_eq!(order_is_the_papers(&series("", [1.0, 2.0, 3.0, 3.0])), Ok(()));
        assert!(order_is_the_papers(&series("", [1.0, 3.0, 2.0, 4.0])).is_err());
        assert!(order_is_the_papers(&series("", [2.0, 1.0, 3.0, 3.0])).is_err());
    }

    #[test]
    fn it_runs() {
        let (found, settings) = run(Scale::Tiny, &mut Silent).unwrap();
        // The tables of BFTL with all of the memory fill the tiny chip.
        let refused = settings["refused"].as_array().unwrap();
        assert!(refused.iter().all(|why| why.as_str().unwrap().starts_with(BFTL_IN_MEMORY)));
        assert_eq!(found.points.len() + refused.len(), PLACES.len() * SYSTEMS.len());
        let own: Vec<_> = found.along(OURS).collect();
        assert_eq!(own.len(), PLACES.len());
        // The others keep all of it in memory.
        assert!(own.iter().all(|point| point.value(MICROS).unwrap() > 0.0));
    }
}
