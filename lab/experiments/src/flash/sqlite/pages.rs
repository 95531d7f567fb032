//! Figure 9: pages that the host writes for each transaction that writes.
//!
//! The paper counts by `blktrace`, in pages that it does not define; here they are blocks of 4 KiB,
//! Linux's pages. Two of them are a page of SQLite.

use esker_lab_measure::scale::Scale;
use serde_json::{Value, json};

use super::terminals::{self, Until};
use super::{ENTRIES, PAGES, SameRows, Sizing, is_near, script};
use crate::Result;
use crate::experiment::{Experiment, Prediction, Series, Watch, go_on};
use crate::machine::board::Board;
use crate::machine::mode::{Mode, System};

/// The places on the axis.
const RL: f64 = 0.0;
const TPCC: f64 = 1.0;

/// The paper's pages for each transaction, of the RL script and of TPC-C.
const PAPER: [(Mode, [f64; 2]); 5] = [
    (Mode::MvFtl, [12.92, 17.08]),
    (Mode::XFtl, [12.91, 16.48]),
    (Mode::Wal1000, [21.72, 35.47]),
    (Mode::Wal50, [22.10, 40.93]),
    (Mode::Rbj, [42.32, 65.03]),
];

/// The most mappings that the paper saw.
const ENTRIES_MAX: f64 = 600.0;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "sqlite-pages",
    figure: "MV-FTL, figure 9",
    about: "blocks of 4 KiB that SQLite's host writes for each transaction, by workload",
    axis: "workload: 0 RL, 1 TPC-C",
    columns: &[
        PAGES,
        "data_per_transaction",
        "journal_per_transaction",
        "metadata_per_transaction",
        "programs_per_transaction",
        "erases",
        ENTRIES,
        "largest_transaction",
    ],
    predictions: &[
        Prediction {
            name: "rl-pages-are-near",
            claim: "under RL each mode's pages over MV-FTL's are within a quarter of the paper's \
                    (X-FTL 1.00, WAL1000 1.68, WAL50 1.71, RBJ 3.28)",
            judge: |series| near(series, 0),
        },
        Prediction {
            name: "tpcc-pages-are-near",
            claim: "under TPC-C, too (X-FTL 0.96, WAL1000 2.08, WAL50 2.40, RBJ 3.81)",
            judge: |series| near(series, 1),
        },
        Prediction {
            name: "modes-have-the-papers-order",
            claim: "MV-FTL and X-FTL write the fewest pages, then WAL1000, WAL50 and RBJ",
            judge: order,
        },
        Prediction {
            name: "deltas-save-pages",
            claim: "our page store writes at most 0.65 of WAL1000's pages under RL, 0.35 under \
                    TPC-C; without deltas it writes more than with them",
            judge: deltas_save_pages,
        },
        Prediction {
            name: "diffs-are-short",
            claim: "MV-FTL's diffs never have more than 600 mappings at one time",
            judge: short_diffs,
        },
    ],
    run,
};

fn run(scale: Scale, watch: &mut dyn Watch) -> Result<(Series, Value)> {
    let sizing = Sizing::of(scale);
    let mut series = Series::default();
    let filled = terminals::fill(sizing.tpcc)?;
    let (mut of_rl, mut of_tpcc) = (SameRows::default(), SameRows::default());
    for mode in Mode::PAPER.into_iter().chain(Mode::OURS) {
        let system = System { mode, board: Board::Jasmine };
        let name = mode.name();
        let mut says = |workload: &str, metrics: &esker_lab_result::Metrics| {
            let pages = metrics.get(PAGES).copied().unwrap_or(0.0);
            watch.says(&format!("{name}, {workload}: {pages:.2} pages a transaction"));
        };
        let (metrics, print) = script::run(system, sizing, 0)?;
        of_rl.check(name, print.unwrap_or(-1.0))?;
        says("RL", &metrics);
        series.add(name, RL, metrics);
        let until = Until::Transactions(sizing.transactions);
        let filled = filled.as_slice();
        let plan = terminals::Run { system, sizing, filled, workers: 1, rate: 0, until };
        let (metrics, print) = terminals::run(plan)?;
        of_tpcc.check(name, print)?;
        says("TPC-C", &metrics);
        series.add(name, TPCC, metrics);
        go_on(watch)?;
    }
    let settings = json!({
        "rl_rows": sizing.rl.many,
        "tpcc_items": sizing.tpcc.items,
        "tpcc_customers": sizing.tpcc.customers,
        "tpcc_transactions": sizing.transactions,
        "tpcc_database_bytes": filled.len(),
        "device_mib": 8 * sizing.mib_per_die,
    });
    Ok((series, settings))
}

fn at(workload: usize) -> f64 {
    if workload == 0 { RL } else { TPCC }
}

fn near(series: &Series, workload: usize) -> std::result::Result<(), String> {
    let pages = |mode: Mode| series.value(mode.name(), at(workload), PAGES);
    let of_paper = |mode: Mode| {
        let found = PAPER.iter().find(|(of, _)| *of == mode);
        found.and_then(|(_, pages)| pages.get(workload)).copied().unwrap_or(0.0)
    };
    let base = pages(Mode::MvFtl)?;
    let mut off = Vec::new();
    for (mode, _) in PAPER {
        let (found, paper) = (pages(mode)? / base, of_paper(mode) / of_paper(Mode::MvFtl));
        if !is_near(found, paper) {
            off.push(format!("{} {found:.2} times MV-FTL's, the paper {paper:.2}", mode.name()));
        }
    }
    if !off.is_empty() {
        return Err(off.join("; "));
    }
    // The control: RBJ in the place of WAL must not be near.
    let control = pages(Mode::Rbj)? / base;
    let wal = of_paper(Mode::Wal50) / of_paper(Mode::MvFtl);
    if is_near(control, wal) { Err(format!("RBJ {control:.2} times, too")) } else { Ok(()) }
}

fn order(series: &Series) -> std::result::Result<(), String> {
    for workload in [0, 1] {
        let pages = |mode: Mode| series.value(mode.name(), at(workload), PAGES);
        let (mv, x) = (pages(Mode::MvFtl)?, pages(Mode::XFtl)?);
        let row = [mv.max(x), pages(Mode::Wal1000)?, pages(Mode::Wal50)?, pages(Mode::Rbj)?];
        // "Not more" would hold of equal numbers, which show no order.
        if !row.windows(2).all(|pair| matches!(pair, [less, more] if less < more)) {
            return Err(format!("workload {workload}: {row:.2?}"));
        }
    }
    Ok(())
}

fn deltas_save_pages(series: &Series) -> std::result::Result<(), String> {
    for (workload, most) in [(0, 0.65), (1, 0.35)] {
        let pages = |mode: Mode| series.value(mode.name(), at(workload), PAGES);
        let (own, whole) = (pages(Mode::PageStore)?, pages(Mode::WholePages)?);
        let share = own / pages(Mode::Wal1000)?;
        if share.is_nan() || share > most || whole <= own {
            return Err(format!(
                "workload {workload}: {own:.2} pages, {share:.2} of WAL1000's; {whole:.2} whole"
            ));
        }
    }
    Ok(())
}

fn short_diffs(series: &Series) -> std::result::Result<(), String> {
    for place in [RL, TPCC] {
        let most = series.value(Mode::MvFtl.name(), place, ENTRIES)?;
        if !(1.0..=ENTRIES_MAX).contains(&most) {
            return Err(format!("workload {place}: {most} mappings"));
        }
    }
    // The control has no transactions.
    match series.value(Mode::Rbj.name(), RL, ENTRIES)? {
        0.0 => Ok(()),
        most => Err(format!("RBJ has {most} mappings, too")),
    }
}
