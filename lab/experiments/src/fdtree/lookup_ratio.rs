//! Fig. 6 (thesis 4.5): XM, DS and FC while W_l goes from 0 to 1.
//!
//! | panel | metric |
//! |---|---|
//! | a | `requests_per_second` |
//! | b, c | `update_mean_us`, `lookup_mean_us` |
//! | d, e | `update_max_us`, `lookup_max_us` |
//! | f | `lookup_p50_us` … `lookup_p999_us` represent the distribution |
//! | g | `update_deviation_us` |
//! | h–l | the same of `…_queued_…` |
//!
//! The rate of panel a counts to the end of the merges: the papers made ten million requests, of
//! which a merge that is cut off at the end is a small part.

use esker::Scheme;
use esker_lab_measure::scale::Scale;
use serde_json::Value;

use crate::Result;
use crate::experiment::series::{Point, worst_is_at_most};
use crate::experiment::{Experiment, Prediction, Series, Watch};
use crate::fdtree::alternate::{Place, Sizes, alternate};
use crate::fdtree::run::WRITTEN;

const SCHEMES: [Scheme; 3] = [Scheme::Xm, Scheme::Ds, Scheme::Fc];
/// A worst case that is far below another; the paper has 1 to 33.
const SHARE: f64 = 0.25;
/// Throughputs and means closer than this are equal.
const TIE: f64 = 0.1;
/// The same of lookups in memory and out of it, by eight threads.
const TIE_READ_ONLY: f64 = 0.15;
/// Peak over final space of a scheme that keeps the old tree until the new one is complete.
const DOUBLED: f64 = 1.8;
/// The most of a scheme that does not.
const NOT_DOUBLED: f64 = 1.5;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "lookup-ratio",
    figure: "CIKM Fig. 6, thesis Fig. 4.5",
    about: "throughput, response times and space of XM, DS and FC while W_l goes from 0 to 1",
    axis: "W_l",
    columns: &[
        "requests_per_second",
        "update_mean_us",
        "update_deviation_us",
        "update_max_us",
        "lookup_mean_us",
        "lookup_p999_us",
        "lookup_max_us",
        "peak_over_final",
        "merges",
        "control_max_us",
    ],
    predictions: &[
        Prediction {
            name: "fc-updates-do-not-wait-for-merges",
            claim: "the worst update of FC is at most a quarter of XM's and of DS's (d)",
            judge: fc_updates,
        },
        Prediction {
            name: "only-xm-lookups-wait-for-merges",
            claim: "the worst lookup of FC and of DS is at most a quarter of XM's (e)",
            judge: lookups,
        },
        Prediction {
            name: "fc-throughput-is-no-less",
            claim: "for the same work, merges included, FC's throughput is at least XM's and DS's, \
                    less a tenth, where merges make these wait (a)",
            judge: throughput,
        },
        Prediction {
            name: "fc-updates-are-fastest-on-average",
            claim: "with most requests lookups, FC's mean update is shorter than XM's and DS's (b)",
            judge: mean_updates,
        },
        Prediction {
            name: "fc-updates-deviate-least",
            claim: "the deviation of FC's updates is at most half of DS's (g)",
            judge: deviation,
        },
        Prediction {
            name: "read-only-is-equal",
            claim: "with lookups alone the mean lookups of all three are within 15 %, though \
                    during merges XM's take longer (c)",
            judge: read_only,
        },
        Prediction {
            name: "ds-doubles-space-and-fc-does-not",
            claim: "peak over final space is at least 1.8 with DS and at most 1.5 with FC",
            judge: space,
        },
    ],
    run,
};

const fn sizes(scale: Scale) -> (Sizes, &'static [u32]) {
    match scale {
        Scale::Tiny => (super::TINY, &[0, 60, 100]),
        Scale::Small => (super::SMALL, &[0, 40, 80, 100]),
        Scale::Full => (super::FULL, &[0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100]),
    }
}

fn run(scale: Scale, watch: &mut dyn Watch) -> Result<(Series, Value)> {
    let (sizes, percents) = sizes(scale);
    // Lookups alone have no merge to wait for: a third of them give the same result.
    let requests = |percent| if percent == 100 { sizes.requests / 3 } else { sizes.requests };
    let place = |lookup_percent: &u32| Place {
        at: f64::from(*lookup_percent) / 100.0,
        lookup_percent: *lookup_percent,
        sizes: Sizes { requests: requests(*lookup_percent), ..sizes },
    };
    let places: Vec<_> = percents.iter().map(place).collect();
    Ok((alternate("lookup-ratio", &SCHEMES, &places, watch)?, sizes.to_json()))
}

type Judged = std::result::Result<(), String>;

/// The points of all three systems at every place that `of` picks; at least one.
fn at_each(
    series: &Series,
    of: impl Fn(f64) -> bool,
    mut judge: impl FnMut(&Point, &Point, &Point) -> Judged,
) -> Judged {
    let mut judged = 0;
    for fc in series.along("FC").filter(|point| of(point.at)) {
        let other = |system: &'static str| {
            let found = series.along(system).find(|point| point.at == fc.at);
            found.ok_or_else(|| format!("{system} at {} was not measured", fc.at))
        };
        judge(other("XM")?, other("DS")?, fc)?;
        judged += 1;
    }
    if judged > 0 { Ok(()) } else { Err("nothing was measured".to_owned()) }
}

const fn updates_there(at: f64) -> bool {
    at < 1.0
}

fn lookups_and_updates(at: f64) -> bool {
    at > 0.0 && at < 1.0
}

fn fc_updates(series: &Series) -> Judged {
    at_each(series, updates_there, |xm, ds, fc| {
        worst_is_at_most(SHARE, fc, xm, "update_max_us")?;
        worst_is_at_most(SHARE, fc, ds, "update_max_us")
    })
}

fn lookups(series: &Series) -> Judged {
    at_each(series, lookups_and_updates, |xm, ds, fc| {
        worst_is_at_most(SHARE, fc, xm, "lookup_max_us")?;
        worst_is_at_most(SHARE, ds, xm, "lookup_max_us")
    })
}

fn throughput(series: &Series) -> Judged {
    const RATE: &str = "requests_per_second";
    updates_wait_somewhere(series)?;
    at_each(
        series,
        |_| true,
        |xm, ds, fc| {
            let ours = fc.value(RATE)?;
            for other in [xm, ds] {
                same_work(fc, other)?;
                let theirs = other.value(RATE)?;
                if ours < theirs * (1.0 - TIE) {
                    let (ratio, system) = (ours / theirs, &other.system);
                    return Err(format!("at {}: FC's rate is {ratio:.2} of {system}'s", fc.at));
                }
            }
            Ok(())
        },
    )
}

/// Whether merges made updates of XM and of DS wait at some place: where they did not, rates show
/// nothing about merges.
fn updates_wait_somewhere(series: &Series) -> Judged {
    for system in ["XM", "DS"] {
        let waits = |point: &Point| point.waits_for_merges("update_max_us").is_ok();
        if !series.along(system).filter(|point| updates_there(point.at)).any(waits) {
            return Err(format!("no update of {system} waited longer than an idle thread"));
        }
    }
    Ok(())
}

/// Whether two systems wrote the same bytes while their throughput was measured.
fn same_work(of: &Point, than: &Point) -> Judged {
    let (ours, theirs) = (of.value(WRITTEN)?, than.value(WRITTEN)?);
    if (ours - theirs).abs() <= TIE * ours.max(theirs) {
        return Ok(());
    }
    let (at, system, other) = (of.at, &of.system, &than.system);
    Err(format!("at {at} the work is not equal: {system} wrote {ours:.0} and {other} {theirs:.0}"))
}

fn mean_updates(series: &Series) -> Judged {
    const MEAN: &str = "update_mean_us";
    let mixed = series.places("FC").into_iter().filter(|at| *at >= 0.5 && *at < 1.0);
    let last = mixed.fold(f64::NAN, f64::max);
    at_each(
        series,
        |at| at == last,
        |xm, ds, fc| {
            fc.saw_a_merge()?;
            let ours = fc.value(MEAN)?;
            for other in [xm, ds] {
                other.waits_for_merges("update_max_us")?;
                let theirs = other.value(MEAN)?;
                if ours >= theirs {
                    let (ratio, system) = (ours / theirs, &other.system);
                    return Err(format!("at {}: FC's mean is {ratio:.2} of {system}'s", fc.at));
                }
            }
            Ok(())
        },
    )
}

fn deviation(series: &Series) -> Judged {
    const DEVIATION: &str = "update_deviation_us";
    at_each(series, updates_there, |_, ds, fc| {
        fc.saw_a_merge()?;
        ds.waits_for_merges("update_max_us")?;
        let (ours, theirs) = (fc.value(DEVIATION)?, ds.value(DEVIATION)?);
        if ours <= theirs / 2.0 {
            return Ok(());
        }
        Err(format!("at {}: FC's deviation is {:.2} of DS's", fc.at, ours / theirs))
    })
}

fn read_only(series: &Series) -> Judged {
    const MEAN: &str = "lookup_mean_us";
    let ends = |points: [&Point; 3]| -> std::result::Result<(f64, f64), String> {
        let means = points.map(|point| point.value(MEAN));
        means.into_iter().try_fold((f64::MAX, 0.0f64), |(least, most), mean| {
            let mean = mean?;
            Ok((least.min(mean), most.max(mean)))
        })
    };
    let mut differ = false;
    at_each(series, lookups_and_updates, |xm, ds, fc| {
        let (least, most) = ends([xm, ds, fc])?;
        differ |=
            most > least * (1.0 + TIE_READ_ONLY) && xm.waits_for_merges("lookup_max_us").is_ok();
        Ok(())
    })?;
    if !differ {
        return Err("means do not differ during merges either".to_owned());
    }
    at_each(
        series,
        |at| at == 1.0,
        |xm, ds, fc| {
            let (least, most) = ends([xm, ds, fc])?;
            if most <= least * (1.0 + TIE_READ_ONLY) {
                return Ok(());
            }
            Err(format!("the slowest mean lookup is {:.2} of the fastest", most / least))
        },
    )
}

fn space(series: &Series) -> Judged {
    const PEAK: &str = "peak_over_final";
    at_each(series, updates_there, |_, ds, fc| {
        ds.saw_a_merge()?;
        fc.saw_a_merge()?;
        let (ds, ours) = (ds.value(PEAK)?, fc.value(PEAK)?);
        if ds >= DOUBLED && ours <= NOT_DOUBLED {
            return Ok(());
        }
        Err(format!("at {}: DS peaks at {ds:.2} of the final space, FC at {ours:.2}", fc.at))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::series::MERGES;
    use crate::experiment::tests::{Silent, series};

    /// XM, DS and FC at W_l 0.8; merges make XM and DS wait.
    fn measured(metric: &str, xm: f64, ds: f64, fc: f64) -> Series {
        waiting(metric, [xm, ds, fc], 1000.0)
    }

    /// The same, where the worst cases of XM and DS are so long.
    fn waiting(metric: &str, values: [f64; 3], longest: f64) -> Series {
        let worst = [longest, longest, 1.0];
        let mut found = Series::default();
        for ((system, value), worst) in ["XM", "DS", "FC"].into_iter().zip(values).zip(worst) {
            let mut metrics = esker_lab_result::Metrics::new();
            for (name, value) in [
                ("update_max_us", worst),
                ("lookup_max_us", worst),
                ("control_max_us", 1.0),
                (MERGES, 1.0),
                (WRITTEN, 100.0),
                (metric, value),
            ] {
                metrics.insert(name.to_owned(), value);
            }
            found.add(system, 0.8, metrics);
        }
        found
    }

    fn change(mut series: Series, system: &str, metric: &str, value: f64) -> Series {
        let points = series.points.iter_mut().filter(|point| point.system == system);
        for point in points {
            point.metrics.insert(metric.to_owned(), value);
        }
        series
    }

    #[test]
    fn worst_cases() {
        assert_eq!(fc_updates(&measured("update_max_us", 400.0, 400.0, 100.0)), Ok(()));
        assert!(fc_updates(&measured("update_max_us", 400.0, 390.0, 100.0)).is_err());
        assert!(fc_updates(&measured("update_max_us", 390.0, 400.0, 100.0)).is_err());
        assert_eq!(lookups(&measured("lookup_max_us", 400.0, 100.0, 100.0)), Ok(()));
        assert!(lookups(&measured("lookup_max_us", 400.0, 101.0, 1.0)).is_err());
        assert!(lookups(&measured("lookup_max_us", 400.0, 1.0, 101.0)).is_err());
    }

    #[test]
    fn averages() {
        let rate = |xm, ds, fc| throughput(&measured("requests_per_second", xm, ds, fc));
        assert_eq!(rate(100.0, 80.0, 91.0), Ok(()));
        assert!(rate(100.0, 80.0, 89.0).is_err());
        assert!(rate(80.0, 100.0, 89.0).is_err());
        let equal = measured("requests_per_second", 100.0, 80.0, 100.0);
        let less = change(equal.clone(), "FC", WRITTEN, 66.0);
        assert!(throughput(&less).unwrap_err().contains("not equal"));
        let idle = waiting("requests_per_second", [100.0, 80.0, 100.0], 1.5);
        assert!(throughput(&idle).unwrap_err().contains("idle"));
        assert!(throughput(&change(equal, "DS", MERGES, 0.0)).is_err());
        let mean = |xm, ds, fc| mean_updates(&measured("update_mean_us", xm, ds, fc));
        assert_eq!(mean(3.0, 2.0, 1.0), Ok(()));
        assert!(mean(3.0, 2.0, 2.0).unwrap_err().contains("1.00 of DS"));
        let deviates = |ds, fc| deviation(&measured("update_deviation_us", 1.0, ds, fc));
        assert_eq!(deviates(10.0, 5.0), Ok(()));
        assert!(deviates(10.0, 5.1).is_err());
        for judge in [mean_updates, deviation] {
            let metrics = ["update_mean_us", "update_deviation_us"];
            let shows = measured(metrics[0], 3.0, 2.0, 1.0);
            let shows = change(change(shows, "DS", metrics[1], 10.0), "FC", metrics[1], 1.0);
            assert_eq!(judge(&shows), Ok(()));
            let noise = change(shows.clone(), "DS", "update_max_us", 1.5);
            assert!(judge(&noise).unwrap_err().contains("idle"));
            assert!(judge(&change(shows, "FC", MERGES, 0.0)).unwrap_err().contains("no merge"));
        }
    }

    #[test]
    fn lookups_alone_must_be_equal() {
        let read = |slowest: f64, merging: Series| {
            let of = |system, mean| (system, 1.0, [("lookup_mean_us", mean)]);
            let rows = [of("XM", 10.0), of("DS", slowest), of("FC", 10.5)];
            let alone = series(&rows.each_ref().map(|(s, at, m)| (*s, *at, &m[..])));
            let points = merging.points.into_iter().chain(alone.points).collect();
            read_only(&Series { points, ..Series::default() })
        };
        let merging = || measured("lookup_mean_us", 30.0, 10.0, 10.0);
        assert_eq!(read(11.4, merging()), Ok(()));
        assert!(read(11.6, merging()).is_err());
        let alike = measured("lookup_mean_us", 10.0, 10.0, 10.0);
        assert!(read(11.4, alike).unwrap_err().contains("do not differ"));
        let noise = waiting("lookup_mean_us", [30.0, 10.0, 10.0], 1.5);
        assert!(read(11.4, noise).unwrap_err().contains("do not differ"));
    }

    #[test]
    fn space_is_judged_from_both_sides() {
        assert_eq!(space(&measured("peak_over_final", 2.0, 1.9, 1.4)), Ok(()));
        assert!(space(&measured("peak_over_final", 2.0, 1.7, 1.4)).is_err());
        assert!(space(&measured("peak_over_final", 2.0, 1.9, 1.6)).is_err());
        let none = change(measured("peak_over_final", 2.0, 1.9, 1.4), "FC", MERGES, 0.0);
        assert!(space(&none).unwrap_err().contains("no merge"));
    }

    #[test]
    fn it_runs() {
        let (found, _) = run(Scale::Tiny, &mut Silent).unwrap();
        assert_eq!(found.points.len(), 9);
        for system in ["XM", "DS", "FC"] {
            assert!(found.value(system, 0.0, "merges").unwrap() >= 1.0);
            assert_eq!(found.value(system, 1.0, "update_samples"), Ok(0.0));
            assert_eq!(found.value(system, 1.0, "lookup_absent"), Ok(0.0));
        }
    }
}
