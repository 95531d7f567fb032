//! No prediction shows in a series without an effect: neither where all systems have the same, nor
//! where all times are the pauses of an idle thread.

use esker_lab_result::Metrics;
use proptest::prelude::*;

use super::*;
use crate::experiment::series::{CONTROL, CONTROL_FACTOR, MERGES};
use crate::experiment::{Prediction, Series, metric};
use crate::lsm::phases::{LAST_FULL, LEVELS, OCCUPANCY};

/// Everything that is compared.
const SYSTEMS: [&str; 130] = [
    "XM",
    "DS",
    "FC",
    "FC unshared",
    "planned",
    "sort",
    "one pass",
    "two passes",
    "G_U Full",
    "G_N Full",
    "G_U RR",
    "G_N RR",
    "G_U Partial",
    "G_N Partial",
    "G_U Mixed",
    "G_N Mixed",
    "G_U Test",
    "G_N Test",
    "G_U ~BLSM",
    "G_N ~BLSM",
    "G_U ~LDB",
    "G_N ~LDB",
    "G_U ~HLDB",
    "G_N ~HLDB",
    "MVBT 1000 each",
    "MVBT in five",
    "MVBT in eight",
    "MVBT in ten",
    "TMVBT 1000 each",
    "TMVBT in five",
    "TMVBT in eight",
    "TMVBT in ten",
    "BSMVBT 1000 each",
    "BSMVBT in five",
    "BSMVBT in eight",
    "BSMVBT in ten",
    "keyspace 1000 each",
    "one level 1000 each",
    "never split 1000 each",
    "BSMVBT, 1000 in ten",
    "BSMVBT, 1000 each of 10,000",
    "BSMVBT, 1000 each of 100,000",
    "BSMVBT, 1000 each of 1,000,000",
    "TMVBT, 1000 each of 1,000,000",
    "keyspace, 1000 each of 1,000,000",
    "FD+tree",
    "LSM",
    "random pages",
    "markers",
    "spans",
    "spans, as many to a page",
    "published",
    "LinkBench, rewritten",
    "LinkBench, patched",
    "LinkBench, Pull",
    "TPC-C, rewritten",
    "TPC-C, patched",
    "TPC-C, Pull",
    "three runs, rewritten",
    "three runs, patched",
    "Pull",
    "Pull in three runs",
    "RBJ",
    "WAL50",
    "WAL1000",
    "X-FTL",
    "MV-FTL",
    "page store",
    "page store, whole pages",
    "LA-tree",
    "LA-tree, whole scans",
    "LA-tree, no buffers",
    "FlashDB",
    "BFTL",
    "BFTL, all memory",
    "IPL",
    "B+tree",
    "ADAPT",
    "1 KiB",
    "4 KiB",
    "16 KiB",
    "64 KiB",
    "256 KiB",
    "LA-tree, blocks mapped",
    "LA-tree, whole scans, blocks mapped",
    "FlashDB, blocks mapped",
    "BFTL, blocks mapped",
    "BFTL, all memory, blocks mapped",
    "IPL, blocks mapped",
    "B+tree, blocks mapped",
    "LA-tree, 10 %",
    "FlashDB, 10 %",
    "BFTL, all memory, 10 %",
    "IPL, 10 %",
    "B+tree, 10 %",
    "LA-tree, 200 %",
    "FlashDB, 200 %",
    "BFTL, all memory, 200 %",
    "IPL, 200 %",
    "B+tree, 200 %",
    "LA-tree, 512 B",
    "FlashDB, 512 B",
    "BFTL, 512 B",
    "BFTL, all memory, 512 B",
    "IPL, 512 B",
    "B+tree, 512 B",
    "LA-tree, 2 KiB",
    "FlashDB, 2 KiB",
    "BFTL, 2 KiB",
    "BFTL, all memory, 2 KiB",
    "IPL, 2 KiB",
    "B+tree, 2 KiB",
    "LA-tree, 4 KiB",
    "FlashDB, 4 KiB",
    "BFTL, 4 KiB",
    "BFTL, all memory, 4 KiB",
    "IPL, 4 KiB",
    "B+tree, 4 KiB",
    "LA-tree, card",
    "FlashDB, card",
    "BFTL, card",
    "BFTL, all memory, card",
    "IPL, card",
    "B+tree, card",
    "LA-tree, 16 B",
    "ekv, 16 B",
    "sequential-storage, 16 B",
    "LA-tree, 64 B",
    "ekv, 64 B",
    "sequential-storage, 64 B",
];

/// The metrics that any prediction asks for, those of the places aside.
const METRICS: [&str; 60] = [
    "longest_us",
    "insert_max_us",
    "requests_per_second",
    "merge_bytes_written",
    "update_mean_us",
    "update_deviation_us",
    "update_max_us",
    "lookup_mean_us",
    "lookup_max_us",
    "peak_over_final",
    "reads_per_lookup",
    "one_percent",
    "two_percent",
    "three_percent",
    "more_percent",
    "mean_passes",
    "most_passes",
    "million_read_costs",
    "million_blocks_written",
    "million_costs",
    "writes_per_mb",
    "into_1_per_mb",
    "into_2_per_mb",
    "kept_per_mb",
    "level_1_fill",
    "level_1_overlap",
    "level_0_percent",
    "level_1_percent",
    "level_2_percent",
    "unused",
    "writes_per_op",
    "forced_per_op",
    "sequential_percent",
    "pages_per_thousand_ops",
    "version_splits",
    "carried_per_live",
    "pages",
    "leaf_pages",
    "items",
    "height",
    "reads_per_action",
    "writes_per_action",
    "written_gb",
    "written_per_byte",
    "log_per_byte",
    "dead_percent",
    "space_per_live",
    "pages_per_scan",
    "sorted_runs",
    "pages_per_transaction",
    "entries_max",
    "seconds",
    "failed",
    "notpm",
    "device_micros",
    "synced_update_micros",
    "batched_update_micros",
    "hit_micros",
    "miss_micros",
    "range_micros",
];

/// The places of insertions into multiversion indexes.
const MULTIVERSION: &[(f64, f64)] =
    &[(1e3, 3.0), (5e3, 3.0), (8e3, 3.0), (1e4, 3.0), (1e5, 3.0), (1e6, 3.0)];

/// Lookups for each update, in percent.
const LOOKUPS: &[(f64, f64)] = &[
    (0.01, 3.0),
    (1.0, 3.0),
    (8.0, 3.0),
    (10.0, 3.0),
    (100.0, 3.0),
    (197.0, 3.0),
    (200.0, 3.0),
    (1000.0, 3.0),
];

/// Memory in KiB.
const MEMORY: &[(f64, f64)] =
    &[(32.0, 3.0), (64.0, 3.0), (128.0, 3.0), (256.0, 3.0), (512.0, 3.0), (1024.0, 3.0)];

/// Reads a second.
const READS: &[(f64, f64)] = &[(0.0, 3.0), (1.0, 3.0), (10.0, 3.0), (20.0, 3.0), (25.0, 3.0)];

/// d in percent, and bytes of records.
const PATCHES: &[(f64, f64)] =
    &[(0.0, 3.0), (25.0, 3.0), (50.0, 3.0), (116.0, 3.0), (400.0, 3.0), (1016.0, 3.0)];

/// The places where an experiment measures, each with the number of levels: places are the frame in
/// which an effect may show, and none themselves.
fn frame(experiment: &str) -> &'static [(f64, f64)] {
    match experiment {
        "lookup-ratio" => &[(0.0, 3.0), (0.4, 3.0), (0.8, 3.0), (1.0, 3.0)],
        "level-skipping" => &[(1.0, 4.0), (2.0, 3.0), (3.0, 2.0), (4.0, 1.0)],
        "latree-memory" => MEMORY,
        "latree-nand" | "latree-adapt" | "latree-btree" | "latree-ssd" | "latree-devices" => {
            LOOKUPS
        }
        "merge-policies-loosened" => &[(9.0, 4.0), (10.0, 3.0)],
        "merge-policies-load" => &[(12.0, 3.0), (40.0, 3.0), (80.0, 3.0), (90.0, 3.0)],
        "multiversion-inserts" | "multiversion-mixed" => MULTIVERSION,
        "patch-compaction" => PATCHES,
        "sqlite-pages" => &[(0.0, 3.0), (1.0, 3.0)],
        "sqlite-readers" | "sqlite-tpcc-readers" => READS,
        "sqlite-workers" => &[(1.0, 3.0), (2.0, 3.0), (20.0, 3.0)],
        "multiversion-published" => &[(0.0, 3.0), (50.0, 3.0), (100.0, 3.0)],
        _ => &[(12.5, 3.0), (20.0, 3.0), (50.0, 3.0), (82.0, 3.0), (106.0, 4.0)],
    }
}

/// A series of an experiment in which a metric of a system at a place has the value that it is
/// given; `control` is the idle thread's longest gap.
fn frame_with(experiment: &str, control: f64, mut value: impl FnMut(&str, &str) -> f64) -> Series {
    let mut series = Series::default();
    for system in SYSTEMS {
        let mut total = Metrics::new();
        for (at, levels) in frame(experiment) {
            let mut metrics: Metrics =
                METRICS.map(|metric| (metric.to_owned(), value(system, metric))).into();
            for (name, value) in [
                (CONTROL, control),
                (MERGES, 1.0),
                (LEVELS, *levels),
                (OCCUPANCY, at / 110.0),
                (LAST_FULL, 1.0),
            ] {
                metric(&mut metrics, name, value);
            }
            total.extend(metrics.clone());
            series.add(system, *at, metrics);
        }
        series.add_total(system, total);
    }
    series
}

/// The predictions that show.
fn shown(predictions: &[Prediction], series: &Series) -> Vec<&'static str> {
    let shows = predictions.iter().filter(|prediction| (prediction.judge)(series).is_ok());
    shows.map(|prediction| prediction.name).collect()
}

#[test]
fn nothing_shows_where_all_systems_have_the_same() {
    let mut found = Vec::new();
    for experiment in EXPERIMENTS {
        for same in [0.0, 1.0, 50.0, 1e6] {
            let series = frame_with(experiment.name, same / CONTROL_FACTOR, |_, _| same);
            let shows = shown(experiment.predictions, &series);
            found.extend(shows.into_iter().map(|name| (experiment.name, name, same)));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64 * budget()))]
    #[test]
    fn nothing_shows_where_times_are_an_idle_threads(
        times in prop::collection::vec(0.01..=1.0f64, 64),
        control in 1.0..1e6f64,
        counted in 1.0..100.0f64,
    ) {
        let mut found = Vec::new();
        for experiment in EXPERIMENTS {
            let mut times = times.iter().cycle();
            let series = frame_with(experiment.name, control, |_, metric| {
                let share = times.next().copied().unwrap_or(1.0);
                if metric.ends_with("_us") { share * CONTROL_FACTOR * control } else { counted }
            });
            let shows = shown(experiment.predictions, &series);
            found.extend(shows.into_iter().map(|name| (experiment.name, name)));
        }
        prop_assert!(found.is_empty(), "{:?}", found);
    }
}

/// The factor by which a full run multiplies its cases.
fn budget() -> u32 {
    std::env::var("ESKER_TEST_BUDGET").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// A ratio of two worst cases, without a look at the idle thread, as one prediction had it.
fn unguarded(series: &Series) -> Result<(), String> {
    let worst = |system| series.value(system, 12.5, "update_max_us");
    if worst("FC unshared")? >= 0.5 * worst("DS")? { Ok(()) } else { Err("far".to_owned()) }
}

/// A share of nothing, as several had it.
fn share_of_nothing(series: &Series) -> Result<(), String> {
    let writes = |system| series.value(system, 12.5, "writes_per_mb");
    if writes("G_U Full")? > 0.6 * writes("G_U Partial")? { Err("more".to_owned()) } else { Ok(()) }
}

#[test]
fn a_prediction_without_a_guard_is_found() {
    let planted = |judge| [Prediction { name: "planted", claim: "", judge }];
    let idle = frame_with("ablation", 10.0, |_, _| 15.0);
    assert_eq!(shown(&planted(unguarded), &idle), ["planted"]);
    let nothing = frame_with("merge-policies", 0.0, |_, _| 0.0);
    assert_eq!(shown(&planted(share_of_nothing), &nothing), ["planted"]);
}
