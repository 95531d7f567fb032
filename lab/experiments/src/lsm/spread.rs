//! Fig. 5.11: what policies write by the spread of normal keys.

use esker_lab_measure::scale::Scale;
use serde_json::Value;

use super::judge::{Judged, LESS, counted, ends, is_within, places};
use super::phases::{INTO, KEPT, Plan, WRITES, measure, plan, settings};
use super::policy::{BLSM, Contender, FULL, HLDB, Keys, LDB, MIXED, PARTIAL, RR, SEVEN, name};
use crate::Result;
use crate::experiment::{Experiment, Prediction, Series, Watch};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "merge-policies-spread",
    figure: "thesis Fig. 5.11",
    about: "blocks written per MB by the spread of normal keys, index of 19 times memory",
    axis: "percent within a deviation",
    columns: &[WRITES, INTO[0], INTO[1], KEPT],
    predictions: &[
        Prediction {
            name: "plain-full-and-round-robin-do-not-care",
            claim: "~BLSM and ~LDB write the same at every spread, within 5 %; ~HLDB does not",
            judge: plain_do_not_care,
        },
        Prediction {
            name: "narrow-keys-are-cheap-to-choose-and-to-keep",
            claim: "~HLDB writes at least 10 % less at the smallest spread than at the largest, \
                    and Partial less than ~HLDB there",
            judge: narrow_keys_are_cheap,
        },
        Prediction {
            name: "wide-keys-preserve-nothing",
            claim: "at the largest spread Full, RR and Partial write what ~BLSM, ~LDB and ~HLDB \
                    do, within 5 %; at the smallest Full writes less",
            judge: wide_keys_preserve_nothing,
        },
        Prediction {
            name: "mixed-stays-ahead",
            claim: "at the largest spread Mixed writes at least 15 % less than any other",
            judge: mixed_stays_ahead,
        },
    ],
    run,
};

/// The shares of the domain that lie within one σ of the mean, in percent.
fn spreads(scale: Scale) -> &'static [f64] {
    match scale {
        Scale::Tiny => &[0.05, 20.0],
        Scale::Small | Scale::Full => &[0.005, 0.02, 0.1, 0.5, 2.0, 5.0, 20.0],
    }
}

fn run(scale: Scale, watch: &mut dyn Watch) -> Result<(Series, Value)> {
    let plan = Plan { ratio: 18.75, ..plan(scale) };
    let mut series = Series::default();
    for percent in spreads(scale) {
        for contender in SEVEN {
            let plan = Plan { sigma: percent / 200.0, ..plan };
            let metrics = measure(plan, Keys::Normal, contender, watch)?;
            series.add(name(Keys::Normal, contender), *percent, metrics);
        }
    }
    Ok((series, settings(&plan)))
}

/// The least and the most that a policy writes, over all spreads.
fn range(series: &Series, contender: Contender) -> std::result::Result<[f64; 2], String> {
    let system = name(Keys::Normal, contender);
    let places = places(series, Keys::Normal, contender)?;
    ends(&places)?;
    places.into_iter().try_fold([f64::INFINITY, 0.0f64], |[least, most], at| {
        let writes = counted(series, system, at, WRITES)?;
        Ok([least.min(writes), most.max(writes)])
    })
}

fn plain_do_not_care(series: &Series) -> Judged {
    let [least, most] = range(series, HLDB)?;
    if most <= 1.05 * least {
        return Err(format!("~HLDB does not care either: {least:.0} to {most:.0}"));
    }
    for contender in [BLSM, LDB] {
        let [least, most] = range(series, contender)?;
        if most > 1.05 * least {
            let system = name(Keys::Normal, contender);
            return Err(format!("{system} writes between {least:.0} and {most:.0}"));
        }
    }
    Ok(())
}

fn narrow_keys_are_cheap(series: &Series) -> Judged {
    let [narrow, wide] = ends(&places(series, Keys::Normal, HLDB)?)?;
    let writes = |at| counted(series, name(Keys::Normal, HLDB), at, WRITES);
    let less = writes(narrow)? / writes(wide)?;
    if less > 0.9 {
        return Err(format!("~HLDB writes {less:.3} of it"));
    }
    is_within(series, Keys::Normal, narrow, [PARTIAL, HLDB], LESS)
}

fn wide_keys_preserve_nothing(series: &Series) -> Judged {
    let [narrow, wide] = ends(&places(series, Keys::Normal, FULL)?)?;
    // That wide keys preserve nothing says something where narrow ones do.
    is_within(series, Keys::Normal, narrow, [FULL, BLSM], LESS)?;
    for pair in [[FULL, BLSM], [RR, LDB], [PARTIAL, HLDB]] {
        is_within(series, Keys::Normal, wide, pair, [0.95, 1.05])?;
    }
    Ok(())
}

fn mixed_stays_ahead(series: &Series) -> Judged {
    let [_, wide] = ends(&places(series, Keys::Normal, MIXED)?)?;
    for other in SEVEN.into_iter().filter(|other| *other != MIXED) {
        is_within(series, Keys::Normal, wide, [MIXED, other], [0.0, 0.85])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::Silent;
    use crate::lsm::judge::tests::wrote;

    /// The writes of each policy at the smallest and the largest spread.
    fn rows(change: impl Fn(Contender) -> Option<[f64; 2]>) -> Series {
        let mut series = Series::default();
        for contender in SEVEN {
            let usual = match contender {
                MIXED => [50.0, 80.0],
                PARTIAL => [60.0, 100.0],
                HLDB => [80.0, 100.0],
                FULL | RR => [70.0, 100.0],
                _ => [100.0, 100.0],
            };
            let writes = change(contender).unwrap_or(usual);
            for (at, writes) in [0.005, 20.0].into_iter().zip(writes) {
                wrote(&mut series, Keys::Normal, contender, at, &[(WRITES, writes)]);
            }
        }
        series
    }

    #[test]
    fn each_shape_can_show_and_can_fail() {
        let other = |which: Contender, values: [f64; 2]| {
            rows(move |contender| (contender == which).then_some(values))
        };
        for verdict in EXPERIMENT.judge(&rows(|_| None)) {
            assert_eq!(verdict.why, None, "{}", verdict.name);
        }
        assert!(plain_do_not_care(&other(LDB, [94.0, 100.0])).unwrap_err().contains("LDB"));
        let nobody = other(HLDB, [100.0, 100.0]);
        assert!(plain_do_not_care(&nobody).unwrap_err().contains("HLDB"));
        let nothing = other(FULL, [100.0, 100.0]);
        assert!(wide_keys_preserve_nothing(&nothing).unwrap_err().contains("at 0.005"));
        assert!(narrow_keys_are_cheap(&other(HLDB, [91.0, 100.0])).is_err());
        assert!(narrow_keys_are_cheap(&other(PARTIAL, [80.0, 100.0])).is_err());
        assert!(wide_keys_preserve_nothing(&other(RR, [70.0, 94.0])).is_err());
        assert!(mixed_stays_ahead(&other(MIXED, [50.0, 86.0])).is_err());
    }

    #[test]
    fn it_runs() {
        let (found, _) = run(Scale::Tiny, &mut Silent).unwrap();
        assert_eq!(found.points.len(), 14);
    }
}
