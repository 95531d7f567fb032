//! Fig. 7 (thesis 4.6): FC and DS while the index grows.
//!
//! A full merge of DS takes as long as the index is large, and updates wait for its end. In the
//! paper a run has as many requests as the index has entries; here all runs have the same number.

use esker::Scheme;
use esker_lab_measure::scale::Scale;
use serde_json::{Value, json};

use crate::Result;
use crate::experiment::series::{CONTROL, CONTROL_FACTOR};
use crate::experiment::{Experiment, Prediction, Series, Watch};
use crate::fdtree::alternate::{Place, Sizes, alternate};

const SCHEMES: [Scheme; 2] = [Scheme::Ds, Scheme::Fc];
const WORST: &str = "update_max_us";
/// The least growth of DS's worst update, as a share of the growth of the index. In the paper it
/// grew by 20 while the index grew by 9.
const GROWS: f64 = 0.5;
/// The most growth of FC's while the index grows by four and more.
const FLAT: f64 = 2.0;
const LOOKUP_PERCENT: u32 = 80;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "index-size",
    figure: "CIKM Fig. 7, thesis Fig. 4.6",
    about: "worst updates of FC and DS while the index grows, at W_l 0.8",
    axis: "entries loaded",
    columns: &[
        "requests_per_second",
        "update_mean_us",
        "update_max_us",
        "lookup_mean_us",
        "lookup_max_us",
        "peak_over_final",
        "merges",
        "control_max_us",
    ],
    predictions: &[
        Prediction {
            name: "fc-worst-stays-flat",
            claim: "FC's worst update at the largest index is at most twice that at the smallest, \
                    and DS's is more",
            judge: fc_stays_flat,
        },
        Prediction {
            name: "ds-worst-grows",
            claim: "DS's worst update grows at least half as fast as the index",
            judge: ds_grows,
        },
    ],
    run,
};

fn places(scale: Scale) -> (Sizes, Vec<u64>) {
    match scale {
        Scale::Tiny => (super::TINY, vec![5_000, 20_000]),
        Scale::Small => (super::SMALL, vec![1_250_000, 2_500_000, 5_000_000]),
        Scale::Full => {
            (super::FULL, [10, 30, 50, 70, 90].map(|millions| millions * 1_000_000).to_vec())
        }
    }
}

fn run(scale: Scale, watch: &mut dyn Watch) -> Result<(Series, Value)> {
    let (sizes, preloads) = places(scale);
    let place = |preload: &u64| Place {
        at: *preload as f64,
        lookup_percent: LOOKUP_PERCENT,
        sizes: Sizes { preload: *preload, ..sizes },
    };
    let places: Vec<_> = preloads.iter().map(place).collect();
    let mut settings = sizes.to_json();
    if let Some(preload) = settings.get_mut("preload") {
        *preload = json!(preloads);
    }
    Ok((alternate("index-size", &SCHEMES, &places, watch)?, settings))
}

type Judged = std::result::Result<(), String>;

/// The worst updates at the smallest and at the largest index, the control there, and how much
/// the index grew.
fn ends(series: &Series, system: &str) -> std::result::Result<(f64, f64, f64, f64), String> {
    let sizes = series.places(system);
    let least = sizes.iter().copied().fold(f64::INFINITY, f64::min);
    let most = sizes.iter().copied().fold(0.0, f64::max);
    if most <= least {
        return Err(format!("{system} needs indexes of two sizes"));
    }
    for point in series.along(system) {
        point.saw_a_merge()?;
    }
    let worst = |at| series.value(system, at, WORST);
    Ok((worst(least)?, worst(most)?, series.value(system, most, CONTROL)?, most / least))
}

fn fc_stays_flat(series: &Series) -> Judged {
    let (small, large, control, growth) = ends(series, "FC")?;
    // That FC's stays says something where DS's does not.
    let (ds_small, ds_large, ds_control, _) = ends(series, "DS")?;
    if ds_large <= CONTROL_FACTOR * ds_control || ds_large <= FLAT * ds_small {
        return Err(format!("DS's worst update stays too: {ds_small:.0} and {ds_large:.0} µs"));
    }
    if large <= (FLAT * small).max(CONTROL_FACTOR * control) {
        return Ok(());
    }
    let ratio = large / small;
    Err(format!("FC's worst update grew {ratio:.1}-fold while the index grew {growth:.0}-fold"))
}

fn ds_grows(series: &Series) -> Judged {
    let (small, large, control, growth) = ends(series, "DS")?;
    if large <= CONTROL_FACTOR * control {
        return Err(format!("DS's worst update of {large:.0} µs is no more than an idle thread's"));
    }
    let ratio = large / small;
    if ratio >= GROWS * growth {
        return Ok(());
    }
    Err(format!("DS's worst update grew {ratio:.1}-fold while the index grew {growth:.0}-fold"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::series::MERGES;
    use crate::experiment::tests::{Silent, series};

    fn measured(system: &'static str, small: f64, large: f64, control: f64) -> Series {
        let (control, merges) = ((CONTROL, control), (MERGES, 1.0));
        series(&[
            (system, 1000.0, &[(WORST, small), control, merges]),
            (system, 8000.0, &[(WORST, large), control, merges]),
        ])
    }

    /// FC, next to a DS whose worst update grows to `ds_large`.
    fn combined(fc: Series, ds_large: f64) -> Series {
        let ds = measured("DS", 10.0, ds_large, 10.0);
        let points = fc.points.into_iter().chain(ds.points).collect();
        Series { points, ..Series::default() }
    }

    #[test]
    fn fc_may_double() {
        let flat = |large, control, ds_large| {
            fc_stays_flat(&combined(measured("FC", 10.0, large, control), ds_large))
        };
        assert_eq!(flat(20.0, 1.0, 80.0), Ok(()));
        assert!(flat(21.0, 1.0, 80.0).unwrap_err().contains("2.1-fold"));
        assert_eq!(flat(21.0, 14.0, 80.0), Ok(()));
        assert!(flat(20.0, 1.0, 20.0).unwrap_err().contains("DS's"));
        assert!(flat(20.0, 1.0, 15.0).unwrap_err().contains("DS's"));
        assert!(fc_stays_flat(&measured("FC", 10.0, 20.0, 1.0)).is_err());
    }

    #[test]
    fn ds_must_grow() {
        assert_eq!(ds_grows(&measured("DS", 10.0, 40.0, 1.0)), Ok(()));
        assert!(ds_grows(&measured("DS", 10.0, 39.0, 1.0)).is_err());
        assert!(ds_grows(&measured("DS", 10.0, 80.0, 60.0)).is_err());
        assert!(ds_grows(&series(&[("DS", 1.0, &[(WORST, 1.0), (CONTROL, 1.0)])])).is_err());
        let mut idle = measured("DS", 10.0, 40.0, 1.0);
        idle.points[1].metrics.insert(MERGES.to_owned(), 0.0);
        assert!(ds_grows(&idle).unwrap_err().contains("no merge"));
    }

    #[test]
    fn it_runs() {
        let (found, settings) = run(Scale::Tiny, &mut Silent).unwrap();
        assert_eq!(found.places("FC"), [5_000.0, 20_000.0]);
        assert!(found.value("DS", 20_000.0, "update_samples").unwrap() > 500.0);
        assert_eq!(settings["preload"][1], 20_000);
    }
}
