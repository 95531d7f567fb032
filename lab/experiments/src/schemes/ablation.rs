//! Fig. 9 (thesis 4.8): what FD+FC owes to its parts.
//!
//! FC without memory sharing keeps a frozen memtable whole until its merge is done; FC/TUP makes
//! every tuple visible by itself instead of a write unit at a time. DS and XM stand beside them,
//! because the paper compares with these.

use esker::Scheme;
use serde_json::Value;

use crate::error::Result;
use crate::experiment::series::{Point, worst_is_at_most};
use crate::experiment::{Experiment, Prediction, Series, Watch};
use crate::measure::scale::Scale;
use crate::schemes::alternate::{Place, Sizes, alternate};

const SCHEMES: [Scheme; 5] =
    [Scheme::Fc, Scheme::FcUnshared, Scheme::FcTuple, Scheme::Ds, Scheme::Xm];
/// FC's worst over that without sharing; the paper has 1 to 33.
const SHARE: f64 = 0.25;
/// How near the worst without sharing comes to that of DS.
const NEAR: f64 = 0.5;
/// FC/TUP's mean update over FC's; the paper has 12 at W_l 0.9.
const TUPLE_WISE: f64 = 2.0;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "ablation",
    figure: "CIKM Fig. 9, thesis Fig. 4.8",
    about: "FC without memory sharing, and FC that moves tuple by tuple",
    axis: "W_l",
    columns: &[
        "requests_per_second",
        "cpu_seconds",
        "update_mean_us",
        "update_p999_us",
        "update_max_us",
        "lookup_mean_us",
        "merges",
        "control_max_us",
    ],
    predictions: &[
        Prediction {
            name: "sharing-memory-ends-waits",
            claim: "the worst update of FC is at most a quarter of that without sharing (a)",
            judge: sharing,
        },
        Prediction {
            name: "without-sharing-fc-waits-like-ds",
            claim: "without sharing FC's worst update is at least half of DS's (a)",
            judge: unshared_is_near_ds,
        },
        Prediction {
            name: "tuple-wise-updates-wait-longer",
            claim: "the mean update of FC/TUP is at least twice FC's (b)",
            judge: tuple_wise_mean,
        },
        Prediction {
            name: "tuple-wise-is-worse-than-exclusive",
            claim: "the worst update of FC/TUP is longer than XM's (c)",
            judge: tuple_wise_worst,
        },
    ],
    run,
};

const fn sizes(scale: Scale) -> (Sizes, &'static [u32]) {
    match scale {
        Scale::Tiny => (super::TINY, &[60]),
        Scale::Small => (super::SMALL, &[80]),
        Scale::Full => (super::FULL, &[0, 20, 40, 60, 80, 90]),
    }
}

fn run(scale: Scale, watch: &mut dyn Watch) -> Result<(Series, Value)> {
    let (sizes, percents) = sizes(scale);
    let place = |lookup_percent: &u32| Place {
        at: f64::from(*lookup_percent) / 100.0,
        lookup_percent: *lookup_percent,
        sizes,
    };
    let places: Vec<_> = percents.iter().map(place).collect();
    Ok((alternate("ablation", &SCHEMES, &places, watch)?, sizes.to_json()))
}

type Judged = std::result::Result<(), String>;

/// FC and another system at the greatest W_l.
fn last<'a>(
    series: &'a Series,
    of: &str,
    than: &str,
) -> std::result::Result<[&'a Point; 2], String> {
    let at = series.places("FC").into_iter().fold(f64::NAN, f64::max);
    let point = |system: &str| {
        let found = series.points.iter().find(|point| point.system == system && point.at == at);
        found.ok_or_else(|| format!("{system} was not measured"))
    };
    Ok([point(of)?, point(than)?])
}

fn sharing(series: &Series) -> Judged {
    let [fc, unshared] = last(series, "FC", "FC unshared")?;
    worst_is_at_most(SHARE, fc, unshared, "update_max_us")
}

fn unshared_is_near_ds(series: &Series) -> Judged {
    ratio_at_least(NEAR, last(series, "FC unshared", "DS")?, "update_max_us")
}

fn tuple_wise_mean(series: &Series) -> Judged {
    ratio_at_least(TUPLE_WISE, last(series, "FC/TUP", "FC")?, "update_mean_us")
}

fn tuple_wise_worst(series: &Series) -> Judged {
    ratio_at_least(1.0, last(series, "FC/TUP", "XM")?, "update_max_us")
}

fn ratio_at_least(least: f64, [of, than]: [&Point; 2], metric: &str) -> Judged {
    let ratio = of.value(metric)? / than.value(metric)?;
    if ratio >= least {
        return Ok(());
    }
    let (system, other) = (of.system, than.system);
    Err(format!("{metric} of {system} is {ratio:.2} of {other}'s, and not {least:.2}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::{Silent, series};

    fn measured(metric: &str, systems: [(&'static str, f64); 2]) -> Series {
        let (control, merges) = (("control_max_us", 1.0), ("merges", 1.0));
        let rows = systems.map(|(system, value)| (system, 0.8, [(metric, value), control, merges]));
        let mut found = series(&rows.each_ref().map(|(s, at, m)| (*s, *at, &m[..])));
        if !found.points.iter().any(|point| point.system == "FC") {
            found.add("FC", 0.8, crate::measure::Metrics::new());
        }
        found
    }

    #[test]
    fn memory_sharing() {
        let worst = |a, b| measured("update_max_us", [a, b]);
        assert_eq!(sharing(&worst(("FC", 25.0), ("FC unshared", 100.0))), Ok(()));
        assert!(sharing(&worst(("FC", 26.0), ("FC unshared", 100.0))).is_err());
        assert_eq!(unshared_is_near_ds(&worst(("FC unshared", 50.0), ("DS", 100.0))), Ok(()));
        assert!(unshared_is_near_ds(&worst(("FC unshared", 49.0), ("DS", 100.0))).is_err());
    }

    #[test]
    fn tuple_wise_movement() {
        let mean = |tuple| measured("update_mean_us", [("FC/TUP", tuple), ("FC", 10.0)]);
        assert_eq!(tuple_wise_mean(&mean(20.0)), Ok(()));
        assert!(tuple_wise_mean(&mean(19.0)).unwrap_err().contains("1.90 of FC"));
        let worst = |tuple| measured("update_max_us", [("FC/TUP", tuple), ("XM", 10.0)]);
        assert_eq!(tuple_wise_worst(&worst(11.0)), Ok(()));
        assert!(tuple_wise_worst(&worst(9.0)).is_err());
    }

    #[test]
    fn it_runs() {
        let (found, _) = run(Scale::Tiny, &mut Silent).unwrap();
        assert_eq!(found.points.len(), SCHEMES.len());
        assert!(found.points.iter().all(|point| point.value("merges") >= Ok(1.0)));
    }
}
