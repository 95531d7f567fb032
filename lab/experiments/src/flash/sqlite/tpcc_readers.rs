//! Figure 7: New-Orders a minute of TPC-C, with readers of the status.

use esker_lab_measure::scale::Scale;
use serde_json::{Value, json};

use super::terminals::{self, Until};
use super::{NOTPM, PATIENCE, Sizing, is_near};
use crate::Result;
use crate::experiment::{Experiment, Prediction, Series, Watch, go_on};
use crate::machine::mode::{Mode, System};

/// Reads a second.
const SMALL: [u32; 6] = [0, 1, 5, 10, 20, 25];

/// The paper's New-Orders a minute, on average over all numbers of readers.
const PAPER: [(Mode, f64); 3] =
    [(Mode::MvFtl, 689.0), (Mode::Wal1000, 269.0), (Mode::Wal50, 245.0)];

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "sqlite-tpcc-readers",
    figure: "MV-FTL, figure 7",
    about: "New-Orders a virtual minute of TPC-C, by reads of the status each second",
    axis: "reads a second",
    columns: &[NOTPM, "worker_busy", "reads", "reader_busy"],
    predictions: &[
        Prediction {
            name: "mv-ftl-gains",
            claim: "MV-FTL's New-Orders over those of WAL1000 and of WAL50 are within a quarter \
                    of the paper's 2.56 and 2.81 (689, 269 and 245 a minute)",
            judge: gains,
        },
        Prediction {
            name: "mv-ftl-is-flat",
            claim: "MV-FTL's fewest New-Orders are at least 0.9 of its most, X-FTL's at most 0.7",
            judge: flat,
        },
        Prediction {
            name: "x-ftl-falls",
            claim: "X-FTL's New-Orders fall from each number of readers to the next",
            judge: falls,
        },
    ],
    run,
};

fn run(scale: Scale, watch: &mut dyn Watch) -> Result<(Series, Value)> {
    let sizing = Sizing::of(scale);
    let rates: Vec<u32> = match scale {
        Scale::Tiny => vec![0, 10],
        Scale::Small => SMALL.to_vec(),
        Scale::Full => (0..=25).collect(),
    };
    let filled = terminals::fill(sizing.tpcc)?;
    let mut series = Series::default();
    for rate in &rates {
        for system in System::of_the_paper() {
            let name = system.name();
            go_on(watch)?;
            let until = Until::Seconds(sizing.seconds_on(system.board));
            let filled = filled.as_slice();
            let plan = terminals::Run { system, sizing, filled, workers: 1, rate: *rate, until };
            let (metrics, _) = terminals::run(plan)?;
            let notpm = metrics.get(NOTPM).copied().unwrap_or(0.0);
            watch.says(&format!("{name}, {rate} reads a second: {notpm:.0} NOTPM"));
            series.add(&name, f64::from(*rate), metrics);
        }
    }
    Ok((series, settings(sizing, filled.len())))
}

/// The settings of runs of TPC-C by the clock.
pub(super) fn settings(sizing: Sizing, bytes: usize) -> Value {
    json!({
        "tpcc_items": sizing.tpcc.items,
        "tpcc_customers": sizing.tpcc.customers,
        "tpcc_database_bytes": bytes,
        "virtual_seconds": sizing.seconds,
        "device_mib": 8 * sizing.mib_per_die,
        "patience_seconds": PATIENCE.as_secs(),
    })
}

type Judged = std::result::Result<(), String>;

fn notpm(series: &Series, mode: Mode) -> std::result::Result<Vec<f64>, String> {
    let places = series.places(mode.name());
    if places.len() < 2 {
        return Err("too few places".to_owned());
    }
    places.into_iter().map(|at| series.value(mode.name(), at, NOTPM)).collect()
}

fn gains(series: &Series) -> Judged {
    let mean =
        |mode: Mode| notpm(series, mode).map(|all| all.iter().sum::<f64>() / all.len() as f64);
    let [(base, of_base), others @ ..] = PAPER;
    let own = mean(base)?;
    let mut off = Vec::new();
    for (mode, of_mode) in others {
        let (found, paper) = (own / mean(mode)?, of_base / of_mode);
        if !is_near(found, paper) {
            off.push(format!("{found:.2} times those of {}, the paper {paper:.2}", mode.name()));
        }
    }
    if off.is_empty() { Ok(()) } else { Err(off.join("; ")) }
}

fn flat(series: &Series) -> Judged {
    let spread = |mode: Mode| {
        let all = notpm(series, mode)?;
        let most = all.iter().copied().fold(0.0, f64::max);
        Ok::<f64, String>(all.iter().copied().fold(f64::INFINITY, f64::min) / most)
    };
    let (mv, x) = (spread(Mode::MvFtl)?, spread(Mode::XFtl)?);
    if mv >= 0.9 && x <= 0.7 {
        return Ok(());
    }
    Err(format!("MV-FTL's fewest are {mv:.2} of its most, X-FTL's {x:.2}"))
}

fn falls(series: &Series) -> Judged {
    let all = notpm(series, Mode::XFtl)?;
    if all.windows(2).all(|pair| matches!(pair, [before, after] if after < before)) {
        return Ok(());
    }
    Err(format!("{all:.0?}"))
}
