//! Table 5: bytes written under LinkBench and TPC-C, by a tree that rewrites tables and by one that
//! patches them, with several bounds d on the dead share; beside them the product's LSM index.

use esker_lab_measure::scale::Scale;
use esker_lab_result::Metrics;
use esker_workload::linkbench::{Graph, Requests};
use esker_workload::tpcc::{Kind, Sizes};
use esker_workload::tpcc_rows::{self, Transactions};
use serde_json::{Value, json};

use super::compact::Settings;
use super::gate;
use super::subject::{
    DEAD, FLUSHED, GIGABYTES, INDEX, LOG, PATCHED, PATCHES, PER_BYTE, Plan, PullSubject, REST,
    REWRITTEN, RUNS, SCAN_PAGES, SPACE, Subject, TreeSubject, measure,
};
use super::tree::Options;
use crate::Result;
use crate::experiment::{Experiment, Prediction, Series, Watch};
use crate::fdtree::alternate::temporary;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "patch-compaction",
    figure: "MV-FTL Table 5",
    about: "bytes written with and without patch compaction, LinkBench and TPC-C",
    axis: "dead share d, in percent (0: tables are rewritten); of the last four, bytes of a record",
    columns: &[
        GIGABYTES, PER_BYTE, LOG, FLUSHED, REWRITTEN, PATCHED, INDEX, REST, PATCHES, DEAD, SPACE,
        SCAN_PAGES, RUNS,
    ],
    predictions: &[
        Prediction {
            name: "linkbench-writes-less",
            claim: "Table 5: with d of 50 %, patches write 30 to 50 % less under LinkBench (the \
                    paper 40.4 %)",
            judge: linkbench_writes_less,
        },
        Prediction {
            name: "tpcc-writes-less",
            claim: "Table 5: with d of 50 %, patches write 10 to 25 % less under TPC-C (the paper \
                    17.3 %)",
            judge: tpcc_writes_less,
        },
        Prediction {
            name: "linkbench-gains-more",
            claim: "Table 5: the share that LinkBench saves is at least 1.5 times TPC-C's (the \
                    paper 2.3 times)",
            judge: linkbench_gains_more,
        },
        Prediction {
            name: "space-is-bounded",
            claim: "patched tables take more space than rewritten ones, and at most 1 + d times \
                    as much, and of their records at most d are dead for each that lives",
            judge: space_is_bounded,
        },
        Prediction {
            name: "patches-pay-beside-pull",
            claim: "for records of 116, 400 or 1,016 bytes in three sorted runs over 100 \
                    memtables, patches write 20 % less than Pull in as many, and scans read at \
                    most 1/0.95 of the pages of rewritten tables",
            judge: gate::patches_pay,
        },
    ],
    run,
};

const LINKBENCH: [&str; 3] = ["LinkBench, rewritten", "LinkBench, patched", "LinkBench, Pull"];
const TPCC: [&str; 3] = ["TPC-C, rewritten", "TPC-C, patched", "TPC-C, Pull"];
/// The d that predictions are about, in percent.
const D: f64 = 50.0;
const LINKBENCH_SAVES: [f64; 2] = [0.30, 0.50];
const TPCC_SAVES: [f64; 2] = [0.10, 0.25];

/// The sizes of a run.
struct Run {
    options: Options,
    ids: u64,
    requests: u64,
    tpcc: Sizes,
    new_orders: u64,
    dead_percents: &'static [f64],
    scan_one_in: u64,
}

fn sizes(scale: Scale) -> Run {
    let (memtable_bytes, table_bytes) = match scale {
        Scale::Tiny => (32 << 10, 16 << 10),
        Scale::Small => (512 << 10, 256 << 10),
        Scale::Full => (4 << 20, 2 << 20),
    };
    let options = Options {
        page_bytes: 4096,
        memtable_bytes,
        runs: 4,
        level_1_bytes: 4 * memtable_bytes,
        ratio: 10,
        settings: Settings { dead_share: None, table_bytes },
    };
    let (ids, requests, tpcc, new_orders) = match scale {
        Scale::Tiny => (3_000, 20_000, Sizes::small(2), 500),
        Scale::Small => (100_000, 1_000_000, Sizes::full(1), 25_000),
        Scale::Full => (1_000_000, 10_000_000, Sizes::full(10), 250_000),
    };
    let dead_percents: &[f64] = match scale {
        Scale::Tiny | Scale::Full => &[0.0, D],
        Scale::Small => &[0.0, 25.0, D, 100.0],
    };
    let scan_one_in = if scale == Scale::Full { 64 } else { 16 };
    Run { options, ids, requests, tpcc, new_orders, dead_percents, scan_one_in }
}

fn run(scale: Scale, watch: &mut dyn Watch) -> Result<(Series, Value)> {
    let sizes = sizes(scale);
    let mut series = Series::default();
    gate::run(scale, &mut series, watch)?;
    // 45 of 100 transactions are New-Orders; the count is of all five.
    let transactions = sizes.new_orders * 100 / 45;
    let plan = |requests| Plan { warm_up: requests / 5, requests, scan_one_in: sizes.scan_one_in };
    let graph = Graph::new(1, sizes.ids);
    each(&sizes, LINKBENCH, &mut series, watch, |subject, watch| {
        let mut requests = Requests::new(2, graph).map(|request| request.rows);
        measure(subject, &plan(sizes.requests), &mut graph.rows(), &mut requests, watch)
    })?;
    each(&sizes, TPCC, &mut series, watch, |subject, watch| {
        let mut rows = tpcc_rows::rows(sizes.tpcc);
        let mut requests = Transactions::new(2, sizes.tpcc).map(|transaction| transaction.rows);
        measure(subject, &plan(transactions), &mut rows, &mut requests, watch)
    })?;
    let options = &sizes.options;
    let settings = json!({
        "memtable_bytes": options.memtable_bytes,
        "table_bytes": options.settings.table_bytes,
        "page_bytes": options.page_bytes,
        "level_0_tables": options.runs,
        "level_1_bytes": options.level_1_bytes,
        "level_ratio": options.ratio,
        "linkbench_ids": sizes.ids,
        "linkbench_requests": sizes.requests,
        "tpcc_warehouses": sizes.tpcc.warehouses,
        "tpcc_new_orders": new_orders(&sizes, transactions),
        "warm_up_percent": 20,
        "scan_one_in": sizes.scan_one_in,
    });
    Ok((series, settings))
}

/// New-Orders that commit among the transactions that count.
fn new_orders(sizes: &Run, transactions: u64) -> u64 {
    let all = Transactions::new(2, sizes.tpcc).skip(transactions as usize / 5);
    let counted = all.take(transactions as usize);
    counted.filter(|of| of.commits && of.kind == Kind::NewOrder).count() as u64
}

/// Measures the systems of a workload.
fn each(
    sizes: &Run,
    [rewritten, patched, pull]: [&str; 3],
    series: &mut Series,
    watch: &mut dyn Watch,
    work: impl Fn(&mut dyn Subject, &dyn Watch) -> Result<Metrics>,
) -> Result<()> {
    for percent in sizes.dead_percents {
        let mut options = sizes.options;
        options.settings.dead_share = (*percent > 0.0).then_some(percent / 100.0);
        let system = if *percent > 0.0 { patched } else { rewritten };
        let folder = temporary()?;
        let metrics = work(&mut TreeSubject::create(folder.path(), options)?, watch)?;
        note(series, system, *percent, metrics, watch);
    }
    let folder = temporary()?;
    let memtable_bytes = sizes.options.memtable_bytes;
    let metrics = work(&mut PullSubject::create(folder.path(), memtable_bytes)?, watch)?;
    note(series, pull, 0.0, metrics, watch);
    Ok(())
}

fn note(series: &mut Series, system: &str, at: f64, metrics: Metrics, watch: &mut dyn Watch) {
    let value = |name| metrics.get(name).copied().unwrap_or(0.0);
    let (gigabytes, per_byte) = (value(GIGABYTES), value(PER_BYTE));
    watch.says(&format!("{system}, d {at} %: {gigabytes:.3} GB, {per_byte:.2} bytes a byte"));
    series.add(system, at, metrics);
}

/// The share of bytes that patches save at a d.
fn saved(series: &Series, [rewritten, patched, _]: [&str; 3]) -> std::result::Result<f64, String> {
    let before = series.value(rewritten, 0.0, GIGABYTES)?;
    if before <= 0.0 {
        return Err(format!("{rewritten} wrote nothing"));
    }
    Ok(1.0 - series.value(patched, D, GIGABYTES)? / before)
}

fn saves(
    series: &Series,
    systems: [&str; 3],
    [least, most]: [f64; 2],
) -> std::result::Result<(), String> {
    let saved = saved(series, systems)?;
    if (least..=most).contains(&saved) {
        return Ok(());
    }
    let [saved, least, most] = [saved, least, most].map(|share| 100.0 * share);
    Err(format!("{saved:.1} % less, and not {least:.0} to {most:.0} %"))
}

fn linkbench_writes_less(series: &Series) -> std::result::Result<(), String> {
    saves(series, LINKBENCH, LINKBENCH_SAVES)
}

fn tpcc_writes_less(series: &Series) -> std::result::Result<(), String> {
    saves(series, TPCC, TPCC_SAVES)
}

fn linkbench_gains_more(series: &Series) -> std::result::Result<(), String> {
    let (linkbench, tpcc) = (saved(series, LINKBENCH)?, saved(series, TPCC)?);
    if tpcc > 0.0 && linkbench >= 1.5 * tpcc {
        return Ok(());
    }
    Err(format!("LinkBench saves {:.1} %, TPC-C {:.1} %", 100.0 * linkbench, 100.0 * tpcc))
}

fn space_is_bounded(series: &Series) -> std::result::Result<(), String> {
    for [rewritten, patched, _] in [LINKBENCH, TPCC] {
        let before = series.value(rewritten, 0.0, SPACE)?;
        let places = series.places(patched);
        if places.is_empty() {
            return Err(format!("{patched} was not measured"));
        }
        for percent in places {
            let space = series.value(patched, percent, SPACE)? / before;
            let dead = series.value(patched, percent, DEAD)?;
            if !(space > 1.0 && space <= 1.0 + percent / 100.0) {
                return Err(format!("{patched} at {percent}: {space:.3} of the space"));
            }
            if !(dead > 0.0 && dead <= percent) {
                return Err(format!("{patched} at {percent}: {dead:.1} % are dead"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::{Silent, series};

    /// Gigabytes of patches under LinkBench and TPC-C, where rewriting writes 10; their space over
    /// that of rewritten tables, and their dead.
    fn measured(linkbench: f64, tpcc: f64, space: f64, dead: f64) -> Series {
        let before = [(GIGABYTES, 10.0), (SPACE, 1.1)];
        let of = |gigabytes| [(GIGABYTES, gigabytes), (SPACE, 1.1 * space), (DEAD, dead)];
        series(&[
            (LINKBENCH[0], 0.0, &before),
            (TPCC[0], 0.0, &before),
            (LINKBENCH[1], D, &of(linkbench)),
            (TPCC[1], D, &of(tpcc)),
        ])
    }

    #[test]
    fn each_shape_can_show_and_can_fail() {
        let published = measured(10.0 * 4.23 / 7.10, 10.0 * 10.65 / 12.88, 1.2, 20.0);
        for judge in
            [linkbench_writes_less, tpcc_writes_less, linkbench_gains_more, space_is_bounded]
        {
            assert_eq!(judge(&published), Ok(()));
            assert!(judge(&Series::default()).is_err());
        }
        assert!(linkbench_writes_less(&measured(7.1, 8.0, 1.2, 1.0)).is_err());
        assert!(linkbench_writes_less(&measured(4.9, 8.0, 1.2, 1.0)).is_err());
        assert!(tpcc_writes_less(&measured(6.0, 9.1, 1.2, 1.0)).is_err());
        assert!(tpcc_writes_less(&measured(6.0, 7.4, 1.2, 1.0)).is_err());
        assert!(linkbench_gains_more(&measured(6.0, 7.0, 1.2, 1.0)).is_err());
        assert!(linkbench_gains_more(&measured(6.0, 10.5, 1.2, 1.0)).is_err());
        assert!(space_is_bounded(&measured(6.0, 8.0, 1.51, 1.0)).is_err());
        assert!(space_is_bounded(&measured(6.0, 8.0, 1.0, 1.0)).is_err());
        assert!(space_is_bounded(&measured(6.0, 8.0, 1.2, 51.0)).is_err());
        assert!(space_is_bounded(&measured(6.0, 8.0, 1.2, 0.0)).is_err());
    }

    #[test]
    fn it_runs() {
        let (found, _) = run(Scale::Tiny, &mut Silent).unwrap();
        assert_eq!(found.points.len(), 2 * 3 + 3 * 4);
        for point in &found.points {
            let least = if point.system == gate::PULL_IN_THREE { 2.0 } else { 1.0 };
            assert!(point.value(PER_BYTE) > Ok(least), "{point:?}");
            assert!(point.value(RUNS) >= Ok(1.0), "{point:?}");
        }
        for [rewritten, patched, _] in [LINKBENCH, TPCC] {
            let patches = |system, at| found.value(system, at, PATCHES).unwrap();
            assert_eq!(patches(rewritten, 0.0), 0.0);
            assert!(patches(patched, D) > 5.0, "{patched}");
        }
    }
}
