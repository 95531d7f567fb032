//! Figs. 5.2, 5.3, 5.5 and 5.6: what each level costs, how full level 1 is and how well merges into
//! it are chosen, in an index that fills a fifth of level 2 and in one that nearly fills it.

use esker_lab_measure::scale::Scale;
use serde_json::Value;

use super::judge::{Judged, counted};
use super::phases::{FILL, INTO, OVERLAP, Plan, WRITES, measure, plan, settings};
use super::policy::{Contender, FULL, Keys, MIXED, PARTIAL, RR, TEST, name};
use crate::Result;
use crate::experiment::{Experiment, Prediction, Series, Watch};

/// The thesis's 20 and 90 MB over 1; at 90, versions that are not gone yet make some policies'
/// level 2 overflow here.
const SMALL: f64 = 20.0;
const LARGE: f64 = 82.0;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "merge-policies-levels",
    figure: "thesis Figs. 5.2, 5.3, 5.5, 5.6",
    about: "blocks written into each level per MB, uniform keys, three levels",
    axis: "index over memory",
    columns: &[WRITES, INTO[0], INTO[1], FILL, OVERLAP],
    predictions: &[
        Prediction {
            name: "the-last-level-costs-less",
            claim: "Fig. 5.2: at 20 level 2 costs Full and Partial at most 0.6 of level 1",
            judge: last_level_costs_less,
        },
        Prediction {
            name: "level-1-costs-full-and-partial-alike",
            claim: "Fig. 5.2: at 20 level 1 costs Partial what it costs Full, within 10 %, and \
                    Test less",
            judge: level_1_costs_alike,
        },
        Prediction {
            name: "test-has-room-and-a-choice",
            claim: "Fig. 5.3: RR and Partial keep level 1 at least 90 % full, Full and Test at \
                    most 60 %; a block out of memory overlaps least blocks of it under Test",
            judge: test_has_room_and_a_choice,
        },
        Prediction {
            name: "an-empty-level-pays-for-full-merges",
            claim: "Fig. 5.5: at 20 Test's level 2 costs what Full's does, within 10 %, its level \
                    1 at most 0.7 of Full's and Partial's, and both together least",
            judge: an_empty_level_pays,
        },
        Prediction {
            name: "a-full-last-level-does-not-pay",
            claim: "Fig. 5.6: at 82 Test saves less at level 1, compared with Partial, than it \
                    spends at level 2",
            judge: a_full_level_does_not_pay,
        },
    ],
    run,
};

fn run(scale: Scale, watch: &mut dyn Watch) -> Result<(Series, Value)> {
    let plan = plan(scale);
    let mut series = Series::default();
    for at in [SMALL, LARGE] {
        for contender in [FULL, RR, PARTIAL, TEST, MIXED] {
            let plan = Plan { ratio: at, ..plan };
            let metrics = measure(plan, Keys::Uniform, contender, watch)?;
            series.add(name(Keys::Uniform, contender), at, metrics);
        }
    }
    Ok((series, settings(&plan)))
}

/// A figure, or what is missing.
type Found = std::result::Result<f64, String>;

fn of(series: &Series, contender: Contender, at: f64, metric: &str) -> Found {
    counted(series, name(Keys::Uniform, contender), at, metric)
}

fn last_level_costs_less(series: &Series) -> Judged {
    for contender in [FULL, PARTIAL] {
        let (one, two) =
            (of(series, contender, SMALL, INTO[0])?, of(series, contender, SMALL, INTO[1])?);
        if two > 0.6 * one {
            return Err(format!(
                "{:?}: level 1 costs {one:.0}, level 2 {two:.0}",
                contender.policy
            ));
        }
    }
    Ok(())
}

fn level_1_costs_alike(series: &Series) -> Judged {
    let [full, partial] = [FULL, PARTIAL].map(|which| of(series, which, SMALL, INTO[0]));
    let (full, partial) = (full?, partial?);
    let test = of(series, TEST, SMALL, INTO[0])?;
    if test > 0.9 * full {
        return Err(format!("it costs Test as much: {test:.0} and {full:.0}"));
    }
    if (partial / full - 1.0).abs() <= 0.1 {
        return Ok(());
    }
    Err(format!("it costs Full {full:.0} and Partial {partial:.0}"))
}

fn test_has_room_and_a_choice(series: &Series) -> Judged {
    for (contender, [least, most]) in
        [(FULL, [0.0, 0.6]), (TEST, [0.0, 0.6]), (RR, [0.9, 1.1]), (PARTIAL, [0.9, 1.1])]
    {
        let fill = of(series, contender, SMALL, FILL)?;
        if !(least..=most).contains(&fill) {
            return Err(format!("{:?} keeps level 1 {fill:.2} full", contender.policy));
        }
    }
    let test = of(series, TEST, SMALL, OVERLAP)?;
    for contender in [FULL, RR, PARTIAL] {
        let overlap = of(series, contender, SMALL, OVERLAP)?;
        if overlap <= test {
            let policy = contender.policy;
            return Err(format!("{policy:?} overlaps {overlap:.2} blocks, Test {test:.2}"));
        }
    }
    Ok(())
}

fn an_empty_level_pays(series: &Series) -> Judged {
    let [test, full] = [TEST, FULL].map(|which| of(series, which, SMALL, INTO[1]));
    let (test, full) = (test?, full?);
    if (test / full - 1.0).abs() > 0.1 {
        return Err(format!("level 2 costs Test {test:.0} and Full {full:.0}"));
    }
    for contender in [FULL, PARTIAL] {
        for (metric, share) in [(INTO[0], 0.7), (WRITES, 1.0)] {
            let (test, other) =
                (of(series, TEST, SMALL, metric)?, of(series, contender, SMALL, metric)?);
            if test > share * other {
                let policy = contender.policy;
                return Err(format!("{metric}: Test {test:.0}, {policy:?} {other:.0}"));
            }
        }
    }
    Ok(())
}

fn a_full_level_does_not_pay(series: &Series) -> Judged {
    let less = |metric| -> Found {
        Ok(of(series, PARTIAL, LARGE, metric)? - of(series, TEST, LARGE, metric)?)
    };
    let (saved, spent) = (less(INTO[0])?, -less(INTO[1])?);
    if saved > 0.0 && saved < spent {
        return Ok(());
    }
    Err(format!("Test saves {saved:.0} at level 1 and spends {spent:.0} more at level 2"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::Silent;
    use crate::lsm::judge::tests::wrote;

    /// Full, Partial and Test at a place: what levels 1 and 2 cost them.
    fn costs(at: f64, full: [f64; 2], partial: [f64; 2], test: [f64; 2]) -> Series {
        let mut series = Series::default();
        for (which, [one, two], fill, overlap) in [
            (FULL, full, 0.5, 5.0),
            (PARTIAL, partial, 0.97, 5.0),
            (RR, partial, 0.97, 5.0),
            (TEST, test, 0.5, 2.5),
        ] {
            let sum = one + two;
            let metrics =
                [(INTO[0], one), (INTO[1], two), (WRITES, sum), (FILL, fill), (OVERLAP, overlap)];
            wrote(&mut series, Keys::Uniform, which, at, &metrics);
        }
        series
    }

    fn thesis() -> Series {
        costs(SMALL, [10.0, 5.0], [10.0, 3.0], [6.0, 5.2])
    }

    #[test]
    fn level_2_must_cost_less() {
        assert_eq!(last_level_costs_less(&thesis()), Ok(()));
        let other = costs(SMALL, [10.0, 7.0], [10.0, 3.0], [6.0, 5.0]);
        assert!(last_level_costs_less(&other).unwrap_err().contains("Full"));
        let nothing = costs(SMALL, [0.0; 2], [0.0; 2], [0.0; 2]);
        assert!(last_level_costs_less(&nothing).unwrap_err().contains("is 0"));
        assert!(an_empty_level_pays(&nothing).unwrap_err().contains("is 0"));
    }

    #[test]
    fn level_1_must_cost_alike() {
        assert_eq!(level_1_costs_alike(&thesis()), Ok(()));
        let other = costs(SMALL, [10.0, 5.0], [12.0, 3.0], [6.0, 5.0]);
        assert!(level_1_costs_alike(&other).unwrap_err().contains("12"));
        let other = costs(SMALL, [10.0, 5.0], [10.0, 3.0], [10.0, 5.0]);
        assert!(level_1_costs_alike(&other).unwrap_err().contains("Test"));
    }

    #[test]
    fn test_must_have_room_and_a_choice() {
        assert_eq!(test_has_room_and_a_choice(&thesis()), Ok(()));
        let mut other = thesis();
        other.points[0].metrics.insert(FILL.to_owned(), 0.9);
        assert!(test_has_room_and_a_choice(&other).unwrap_err().contains("Full keeps"));
        let mut other = thesis();
        other.points[1].metrics.insert(OVERLAP.to_owned(), 2.0);
        assert!(test_has_room_and_a_choice(&other).unwrap_err().contains("overlaps 2.00"));
    }

    #[test]
    fn room_must_pay_at_20() {
        assert_eq!(an_empty_level_pays(&thesis()), Ok(()));
        let dear = costs(SMALL, [10.0, 5.0], [10.0, 3.0], [6.0, 7.0]);
        assert!(an_empty_level_pays(&dear).unwrap_err().contains("level 2 costs"));
        let little = costs(SMALL, [10.0, 5.0], [10.0, 3.0], [9.0, 5.0]);
        assert!(an_empty_level_pays(&little).is_err());
    }

    #[test]
    fn room_must_not_pay_at_82() {
        let large = |test| costs(LARGE, [10.0, 20.0], [10.0, 11.0], test);
        assert_eq!(a_full_level_does_not_pay(&large([6.0, 20.0])), Ok(()));
        assert!(a_full_level_does_not_pay(&large([6.0, 14.0])).is_err());
        assert!(a_full_level_does_not_pay(&large([11.0, 20.0])).is_err());
    }

    #[test]
    fn it_runs() {
        let (found, _) = run(Scale::Tiny, &mut Silent).unwrap();
        assert_eq!(found.points.len(), 10);
        assert_eq!(EXPERIMENT.judge(&found).len(), 5);
    }
}
