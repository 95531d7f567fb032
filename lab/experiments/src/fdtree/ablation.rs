//! Fig. 9 (thesis 4.8): what FD+FC owes to its parts.
//!
//! FC without memory sharing keeps a frozen memtable whole until its merge is done. DS and XM are
//! measured next to them, because the paper compares with these.
//!
//! Panels b and c are of FD+FC/TUP, which moves one tuple at a time. That scheme is not built.

use esker::Scheme;
use esker_lab_measure::scale::Scale;
use serde_json::Value;

use crate::Result;
use crate::experiment::series::{Point, worst_is_at_most};
use crate::experiment::{Experiment, Prediction, Series, Watch};
use crate::fdtree::alternate::{Place, Sizes, alternate};

const SCHEMES: [Scheme; 4] = [Scheme::Fc, Scheme::FcUnshared, Scheme::Ds, Scheme::Xm];
/// FC's worst over that without sharing; the paper has 1 to 33.
const SHARE: f64 = 0.25;
/// The least ratio of the worst update without sharing to that of DS.
const NEAR: f64 = 0.5;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "ablation",
    figure: "CIKM Fig. 9a, thesis Fig. 4.8a",
    about: "FC without memory sharing",
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
            claim: "without sharing FC's worst update is at least half of DS's, and both wait \
                    longer than an idle thread (a)",
            judge: unshared_is_near_ds,
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
    let [unshared, ds] = last(series, "FC unshared", "DS")?;
    let worst = |point: &Point| point.waits_for_merges("update_max_us");
    let ratio = worst(unshared)? / worst(ds)?;
    if ratio >= NEAR {
        return Ok(());
    }
    Err(format!("the worst update without sharing is {ratio:.2} of DS's, and not {NEAR:.2}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::{Silent, series};

    fn worst(systems: [(&'static str, f64); 2]) -> Series {
        let metric = "update_max_us";
        let (control, merges) = (("control_max_us", 1.0), ("merges", 1.0));
        let rows = systems.map(|(system, value)| (system, 0.8, [(metric, value), control, merges]));
        let mut found = series(&rows.each_ref().map(|(s, at, m)| (*s, *at, &m[..])));
        if !found.points.iter().any(|point| point.system == "FC") {
            found.add("FC", 0.8, esker_lab_result::Metrics::new());
        }
        found
    }

    #[test]
    fn memory_sharing() {
        let shared = |fc, unshared| sharing(&worst([("FC", fc), ("FC unshared", unshared)]));
        assert_eq!(shared(25.0, 100.0), Ok(()));
        assert!(shared(26.0, 100.0).is_err());
        assert!(shared(0.1, 1.5).unwrap_err().contains("idle"));
    }

    /// Two worst cases that are both the machine's are near each other, and show nothing.
    #[test]
    fn without_sharing_updates_must_wait() {
        let near =
            |unshared, ds| unshared_is_near_ds(&worst([("FC unshared", unshared), ("DS", ds)]));
        assert_eq!(near(50.0, 100.0), Ok(()));
        assert!(near(49.0, 100.0).unwrap_err().contains("0.49"));
        assert!(near(1.5, 1.5).unwrap_err().contains("idle"));
        assert!(near(1.5, 3.0).unwrap_err().contains("FC unshared"));
        assert!(near(3.0, 1.5).unwrap_err().contains("DS"));
    }

    #[test]
    fn it_runs() {
        let (found, _) = run(Scale::Tiny, &mut Silent).unwrap();
        assert_eq!(found.points.len(), SCHEMES.len());
        assert!(found.points.iter().all(|point| point.value("merges") >= Ok(1.0)));
    }
}
