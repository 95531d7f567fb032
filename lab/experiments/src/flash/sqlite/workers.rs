//! Figure 8: New-Orders a minute of TPC-C, with several workers.

use esker_lab_measure::scale::Scale;
use serde_json::Value;

use super::terminals::{self, Until};
use super::{NOTPM, Sizing, tpcc_readers};
use crate::Result;
use crate::experiment::{Experiment, Prediction, Series, Watch, go_on};
use crate::machine::mode::{Mode, System};

/// Workers.
const SMALL: [u32; 6] = [1, 2, 4, 8, 12, 20];

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "sqlite-workers",
    figure: "MV-FTL, figure 8",
    about: "New-Orders a virtual minute of TPC-C, by workers without thinking time",
    axis: "workers",
    columns: &[NOTPM, "worker_busy"],
    predictions: &[
        Prediction {
            name: "x-ftl-drops",
            claim: "with two workers X-FTL makes less than half of its New-Orders with one",
            judge: drops,
        },
        Prediction {
            name: "mv-ftl-is-gradual",
            claim: "at each number of workers from two on MV-FTL keeps a larger share of its \
                    New-Orders with one than X-FTL does, and with two at least 0.6",
            judge: gradual,
        },
        Prediction {
            name: "mv-ftl-is-best",
            claim: "MV-FTL makes the most New-Orders at each number of workers",
            judge: best,
        },
    ],
    run,
};

fn run(scale: Scale, watch: &mut dyn Watch) -> Result<(Series, Value)> {
    let sizing = Sizing::of(scale);
    let counts: Vec<u32> = match scale {
        Scale::Tiny => vec![1, 3],
        Scale::Small => SMALL.to_vec(),
        Scale::Full => (1..=20).collect(),
    };
    let filled = terminals::fill(sizing.tpcc)?;
    let mut series = Series::default();
    for workers in counts {
        for system in System::of_the_paper() {
            let name = system.name();
            go_on(watch)?;
            let until = Until::Seconds(sizing.seconds_on(system.board));
            let filled = filled.as_slice();
            let plan = terminals::Run { system, sizing, filled, workers, rate: 0, until };
            let (metrics, _) = terminals::run(plan)?;
            let notpm = metrics.get(NOTPM).copied().unwrap_or(0.0);
            watch.says(&format!("{name}, {workers} workers: {notpm:.0} NOTPM"));
            series.add(&name, f64::from(workers), metrics);
        }
    }
    Ok((series, tpcc_readers::settings(sizing, filled.len())))
}

type Judged = std::result::Result<(), String>;

fn kept(series: &Series, mode: Mode, at: f64) -> std::result::Result<f64, String> {
    let notpm = |at: f64| series.value(mode.name(), at, NOTPM);
    Ok(notpm(at)? / notpm(1.0)?)
}

fn drops(series: &Series) -> Judged {
    let (x, mv) = (kept(series, Mode::XFtl, 2.0)?, kept(series, Mode::MvFtl, 2.0)?);
    if x < 0.5 && mv >= 0.5 { Ok(()) } else { Err(format!("X-FTL keeps {x:.2}, MV-FTL {mv:.2}")) }
}

fn gradual(series: &Series) -> Judged {
    let two = kept(series, Mode::MvFtl, 2.0)?;
    if two.is_nan() || two < 0.6 {
        return Err(format!("with two MV-FTL keeps {two:.2}"));
    }
    for at in series.places(Mode::MvFtl.name()).into_iter().filter(|at| *at >= 2.0) {
        let (mv, x) = (kept(series, Mode::MvFtl, at)?, kept(series, Mode::XFtl, at)?);
        if mv <= x || mv.is_nan() || x.is_nan() {
            return Err(format!("with {at} MV-FTL keeps {mv:.2}, X-FTL {x:.2}"));
        }
    }
    Ok(())
}

fn best(series: &Series) -> Judged {
    for at in series.places(Mode::MvFtl.name()) {
        let own = series.value(Mode::MvFtl.name(), at, NOTPM)?;
        for mode in Mode::PAPER.into_iter().filter(|mode| *mode != Mode::MvFtl) {
            let other = series.value(mode.name(), at, NOTPM)?;
            if other >= own || own.is_nan() {
                return Err(format!("with {at} {} makes {other:.0}, MV-FTL {own:.0}", mode.name()));
            }
        }
    }
    series.value(Mode::MvFtl.name(), 2.0, NOTPM).map(drop)
}
