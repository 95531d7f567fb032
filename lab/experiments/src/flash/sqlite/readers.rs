//! Figure 6: the time of the RL script, with readers of the status.

use esker_lab_measure::scale::Scale;
use serde_json::{Value, json};

use super::{FAILED, PATIENCE, SECONDS, SameRows, Sizing, script};
use crate::Result;
use crate::experiment::{Experiment, Prediction, Series, Watch, go_on};
use crate::machine::mode::{Mode, System};

/// Reads a second.
const SMALL: [u32; 9] = [0, 1, 4, 7, 10, 14, 17, 20, 25];

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "sqlite-readers",
    figure: "MV-FTL, figure 6",
    about: "virtual seconds of the RL script, by reads of the status each second",
    axis: "reads a second",
    columns: &[SECONDS, FAILED, "reads", "reader_busy"],
    predictions: &[
        Prediction {
            name: "no-journal-saves-time",
            claim: "without readers both WAL modes take 1.15 to 1.75 times as long as MV-FTL and \
                    X-FTL (the paper 1.3 to 1.4), RBJ 2.25 to 3.75 times (the paper 3)",
            judge: saves_time,
        },
        Prediction {
            name: "x-ftl-is-slightly-ahead",
            claim: "up to 1 read a second X-FTL takes less time than MV-FTL, by at most a tenth",
            judge: slightly_ahead,
        },
        Prediction {
            name: "x-ftl-falls-behind",
            claim: "above 3 reads a second X-FTL takes longer than MV-FTL, ever longer",
            judge: falls_behind,
        },
        Prediction {
            name: "x-ftl-falls-behind-wal",
            claim: "above 13 reads a second X-FTL takes longer than WAL1000, below it takes less",
            judge: falls_behind_wal,
        },
        Prediction {
            name: "x-ftl-fails",
            claim: "above 20 reads a second X-FTL gives up waiting for its lock, and not up to 20",
            judge: fails,
        },
        Prediction {
            name: "rbj-is-worst",
            claim: "RBJ takes longest, at any number of reads",
            judge: worst,
        },
        Prediction {
            name: "mv-ftl-is-flat",
            claim: "MV-FTL's longest time is at most 1.1 times its shortest, X-FTL's more than 1.5",
            judge: flat,
        },
    ],
    run,
};

fn run(scale: Scale, watch: &mut dyn Watch) -> Result<(Series, Value)> {
    let sizing = Sizing::of(scale);
    let rates: Vec<u32> = match scale {
        Scale::Tiny => vec![0, 14],
        Scale::Small => SMALL.to_vec(),
        Scale::Full => (0..=25).collect(),
    };
    let mut series = Series::default();
    let mut same = SameRows::default();
    for rate in &rates {
        for system in System::of_the_paper() {
            go_on(watch)?;
            let name = system.name();
            let (metrics, print) = script::run(system, sizing, *rate)?;
            if let Some(print) = print {
                same.check(&name, print)?;
            }
            let seconds = metrics.get(SECONDS).copied().unwrap_or(0.0);
            watch.says(&format!("{name}, {rate} reads a second: {seconds:.2} s"));
            series.add(&name, f64::from(*rate), metrics);
        }
    }
    let settings = json!({
        "rl_rows": sizing.rl.many,
        "scans": sizing.rl.scans,
        "lookups": sizing.rl.lookups,
        "device_mib": 8 * sizing.mib_per_die,
        "patience_seconds": PATIENCE.as_secs(),
    });
    Ok((series, settings))
}

type Judged = std::result::Result<(), String>;

fn seconds(series: &Series, mode: Mode, at: f64) -> std::result::Result<f64, String> {
    match series.value(mode.name(), at, FAILED)? {
        0.0 => series.value(mode.name(), at, SECONDS),
        // It would take for ever.
        _ => Ok(f64::INFINITY),
    }
}

fn saves_time(series: &Series) -> Judged {
    for base in [Mode::MvFtl, Mode::XFtl] {
        let own = seconds(series, base, 0.0)?;
        let of = |mode: Mode| seconds(series, mode, 0.0).map(|other| other / own);
        for (mode, range) in
            [(Mode::Wal1000, 1.15..1.75), (Mode::Wal50, 1.15..1.75), (Mode::Rbj, 2.25..3.75)]
        {
            let found = of(mode)?;
            if !range.contains(&found) {
                return Err(format!("{} takes {found:.2} of {}", mode.name(), base.name()));
            }
        }
    }
    Ok(())
}

fn slightly_ahead(series: &Series) -> Judged {
    let places = series.places(Mode::XFtl.name());
    for at in places.into_iter().filter(|at| *at <= 1.0) {
        let found = seconds(series, Mode::XFtl, at)? / seconds(series, Mode::MvFtl, at)?;
        if !(0.9..1.0).contains(&found) {
            return Err(format!("at {at} X-FTL takes {found:.3} of MV-FTL"));
        }
    }
    seconds(series, Mode::XFtl, 0.0).map(drop)
}

fn falls_behind(series: &Series) -> Judged {
    let mut before = 1.0;
    let places = series.places(Mode::XFtl.name());
    for at in places.into_iter().filter(|at| *at > 3.0) {
        let found = seconds(series, Mode::XFtl, at)? / seconds(series, Mode::MvFtl, at)?;
        if found < before || found <= 1.0 {
            return Err(format!("at {at} X-FTL takes {found:.3} of MV-FTL"));
        }
        before = found;
    }
    if before > 1.0 { Ok(()) } else { Err("no place above 3 was measured".to_owned()) }
}

fn falls_behind_wal(series: &Series) -> Judged {
    let (mut above, mut below) = (0, 0);
    for at in series.places(Mode::XFtl.name()) {
        let found = seconds(series, Mode::XFtl, at)? / seconds(series, Mode::Wal1000, at)?;
        let is_right = if at > 13.0 { found > 1.0 } else { found < 1.0 };
        if !is_right {
            return Err(format!("at {at} X-FTL takes {found:.3} of WAL1000"));
        }
        *(if at > 13.0 { &mut above } else { &mut below }) += 1;
    }
    if above > 0 && below > 0 { Ok(()) } else { Err("too few places".to_owned()) }
}

fn fails(series: &Series) -> Judged {
    let mut failures = 0;
    for at in series.places(Mode::XFtl.name()) {
        let has_failed = series.value(Mode::XFtl.name(), at, FAILED)? > 0.0;
        if has_failed != (at > 20.0) {
            let what = if has_failed { "gives up" } else { "does not give up" };
            return Err(format!("at {at} X-FTL {what}"));
        }
        failures += u32::from(has_failed);
    }
    if failures > 0 { Ok(()) } else { Err("no place above 20 was measured".to_owned()) }
}

fn worst(series: &Series) -> Judged {
    let places = series.places(Mode::Rbj.name());
    if places.len() < 2 {
        return Err("too few places".to_owned());
    }
    for at in places {
        let rbj = seconds(series, Mode::Rbj, at)?;
        if rbj.is_infinite() {
            return Err(format!("at {at} RBJ gives up"));
        }
        for mode in Mode::PAPER.into_iter().filter(|mode| *mode != Mode::Rbj) {
            let other = seconds(series, mode, at)?;
            // One that gave up has no time.
            if other.is_finite() && other >= rbj {
                return Err(format!("at {at} {} takes {other:.2} s, RBJ {rbj:.2}", mode.name()));
            }
        }
    }
    Ok(())
}

fn flat(series: &Series) -> Judged {
    let spread = |mode: Mode| -> std::result::Result<f64, String> {
        let places = series.places(mode.name());
        let found: std::result::Result<Vec<f64>, String> =
            places.into_iter().map(|at| seconds(series, mode, at)).collect();
        let found = found?;
        let least = found.iter().copied().fold(f64::INFINITY, f64::min);
        Ok(found.iter().copied().fold(0.0, f64::max) / least)
    };
    let (mv, x) = (spread(Mode::MvFtl)?, spread(Mode::XFtl)?);
    if mv <= 1.1 && x > 1.5 {
        return Ok(());
    }
    Err(format!("MV-FTL's longest time is {mv:.2} times its shortest, X-FTL's {x:.2}"))
}
