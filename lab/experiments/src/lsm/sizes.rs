//! Figs. 5.1, 5.4, 5.7 and 5.8 (a): what policies write as the index grows.

use esker_lab_measure::scale::Scale;
use serde_json::Value;

use super::judge::{Judged, LESS, counted, crossover, ends, is_within, places, ratio};
use super::phases::{
    FILL, INTO, LAST_FULL, LEVELS, OCCUPANCY, Plan, WRITES, measure, plan, settings,
};
use super::policy::{BLSM, FULL, HLDB, Keys, LDB, MIXED, PARTIAL, RR, SEVEN, TEST, name};
use crate::Result;
use crate::experiment::{Experiment, Prediction, Series, Watch};

/// Figure 5.1.
pub const PARTIAL_BELOW_FULL: Prediction = Prediction {
    name: "partial-writes-less-than-full",
    claim: "Fig. 5.1: with three levels Partial writes less than Full at every size, and \
            saves more of it where keys are normal",
    judge: partial_writes_less,
};

/// Figure 5.4.
pub const TEST_TIPS: Prediction = Prediction {
    name: "test-tips",
    claim: "Fig. 5.4: Test writes less than Partial at the smallest size and more at the \
            largest of three levels, and tips sooner where keys are normal",
    judge: test_tips,
};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "merge-policies",
    figure: "thesis Figs. 5.1, 5.4, 5.7, 5.8a",
    about: "blocks written per MB of alternating insertions and deletions, as the index grows",
    axis: "index over memory",
    columns: &[WRITES, INTO[0], INTO[1], INTO[2], OCCUPANCY, FILL, LAST_FULL],
    predictions: &[
        PARTIAL_BELOW_FULL,
        TEST_TIPS,
        Prediction {
            name: "mixed-writes-least-while-the-last-level-is-empty",
            claim: "Fig. 5.7: at the smallest size Mixed writes at least 30 % less than Full and \
                    20 % less than Partial",
            judge: mixed_writes_least,
        },
        Prediction {
            name: "policies-have-their-order",
            claim: "Fig. 5.7: at the smallest size Mixed < Partial < RR < Full; where keys are \
                    uniform, RR is within 5 % of Partial",
            judge: policies_have_their_order,
        },
        Prediction {
            name: "mixed-is-partial-when-the-last-level-is-full",
            claim: "Fig. 5.7: at the largest size of three levels Mixed writes what Partial does, \
                    within 3 %, and at least 20 % less than Full",
            judge: mixed_becomes_partial,
        },
        Prediction {
            name: "a-level-more-writes-less",
            claim: "Fig. 5.7: where a level is added, Full and Mixed write at least 5 % less than \
                    at the size before, and Mixed less than Partial",
            judge: a_level_more_writes_less,
        },
        Prediction {
            name: "skew-preserves-blocks",
            claim: "Fig. 5.7: at the smallest size Full, RR and Partial write what ~BLSM, ~LDB and \
                    ~HLDB do, within 5 %, where keys are uniform, and less where they are normal",
            judge: skew_preserves_blocks,
        },
        Prediction {
            name: "thresholds-are-those-of-the-keys",
            claim: "Fig. 5.8a: full merges into the last level become dearer at an occupancy of \
                    0.52 +- 0.1 for uniform and 0.35 +- 0.1 for normal keys, and Mixed learns so",
            judge: thresholds_are_those_of_the_keys,
        },
    ],
    run,
};

fn ratios(scale: Scale) -> &'static [f64] {
    match scale {
        Scale::Tiny => &[12.0, 70.0],
        Scale::Small => &[12.5, 25.0, 37.5, 50.0, 62.5, 75.0, 82.0, 106.0],
        Scale::Full => &[12.5, 25.0, 37.5, 43.75, 50.0, 62.5, 75.0, 82.0, 106.0, 115.0, 125.0],
    }
}

fn run(scale: Scale, watch: &mut dyn Watch) -> Result<(Series, Value)> {
    let plan = plan(scale);
    let mut series = Series::default();
    for at in ratios(scale) {
        for keys in Keys::ALL {
            for contender in SEVEN.into_iter().chain([TEST]) {
                let plan = Plan { ratio: *at, ..plan };
                series.add(name(keys, contender), *at, measure(plan, keys, contender, watch)?);
            }
        }
    }
    Ok((series, settings(&plan)))
}

/// The places of three levels, and those of more.
fn by_levels(series: &Series, keys: Keys) -> std::result::Result<[Vec<f64>; 2], String> {
    let mut found = [Vec::new(), Vec::new()];
    for at in places(series, keys, PARTIAL)? {
        let levels = series.value(name(keys, PARTIAL), at, LEVELS)?;
        let [three, more] = &mut found;
        if levels <= 3.0 { three.push(at) } else { more.push(at) }
    }
    Ok(found)
}

fn partial_writes_less(series: &Series) -> Judged {
    let mut savings = [0.0; 2];
    for (keys, saved) in Keys::ALL.into_iter().zip(&mut savings) {
        let [three, _] = by_levels(series, keys)?;
        for at in &three {
            is_within(series, keys, *at, [PARTIAL, FULL], LESS)?;
            *saved += (1.0 - ratio(series, keys, *at, PARTIAL, FULL)?) / three.len() as f64;
        }
    }
    let [uniform, normal] = savings;
    if normal > uniform {
        return Ok(());
    }
    Err(format!("it saves {uniform:.3} of uniform keys and {normal:.3} of normal ones"))
}

fn tips_at(series: &Series, keys: Keys) -> std::result::Result<f64, String> {
    let [three, _] = by_levels(series, keys)?;
    let [first, last] = ends(&three)?;
    is_within(series, keys, first, [TEST, PARTIAL], LESS)?;
    is_within(series, keys, last, [TEST, PARTIAL], [1.0, f64::INFINITY])?;
    crossover(series, keys, &three, [TEST, PARTIAL])
}

fn test_tips(series: &Series) -> Judged {
    let (uniform, normal) = (tips_at(series, Keys::Uniform)?, tips_at(series, Keys::Normal)?);
    if normal < uniform {
        return Ok(());
    }
    Err(format!("it tips at {uniform:.2} for uniform and at {normal:.2} for normal keys"))
}

pub(super) fn smallest(series: &Series, keys: Keys) -> std::result::Result<f64, String> {
    let [three, _] = by_levels(series, keys)?;
    three.first().copied().ok_or_else(|| "there are no three levels anywhere".to_owned())
}

fn mixed_writes_least(series: &Series) -> Judged {
    for keys in Keys::ALL {
        let at = smallest(series, keys)?;
        is_within(series, keys, at, [MIXED, FULL], [0.0, 0.7])?;
        is_within(series, keys, at, [MIXED, PARTIAL], [0.0, 0.8])?;
    }
    Ok(())
}

fn policies_have_their_order(series: &Series) -> Judged {
    for keys in Keys::ALL {
        let at = smallest(series, keys)?;
        is_within(series, keys, at, [MIXED, PARTIAL], LESS)?;
        let partial = if keys == Keys::Uniform { [0.95, 1.05] } else { LESS };
        is_within(series, keys, at, [PARTIAL, RR], partial)?;
        is_within(series, keys, at, [RR, FULL], LESS)?;
    }
    Ok(())
}

fn mixed_becomes_partial(series: &Series) -> Judged {
    for keys in Keys::ALL {
        let [three, _] = by_levels(series, keys)?;
        let [_, last] = ends(&three)?;
        is_within(series, keys, last, [MIXED, PARTIAL], [0.97, 1.03])?;
        is_within(series, keys, last, [MIXED, FULL], [0.0, 0.8])?;
    }
    Ok(())
}

fn a_level_more_writes_less(series: &Series) -> Judged {
    for keys in Keys::ALL {
        let [three, more] = by_levels(series, keys)?;
        let (Some(before), Some(after)) = (three.last(), more.first()) else {
            return Err("no size adds a level".to_owned());
        };
        for contender in [FULL, MIXED] {
            let system = name(keys, contender);
            let writes = |at: f64| counted(series, system, at, WRITES);
            let (less, writes) = (writes(*after)? / writes(*before)?, writes(*after)?);
            if less > 0.95 {
                return Err(format!(
                    "at {after} {system} writes {writes:.0}, {less:.3} of {before}"
                ));
            }
        }
        is_within(series, keys, *after, [MIXED, PARTIAL], LESS)?;
    }
    Ok(())
}

fn skew_preserves_blocks(series: &Series) -> Judged {
    for keys in Keys::ALL {
        let at = smallest(series, keys)?;
        let bounds = if keys == Keys::Uniform { [0.95, 1.05] } else { LESS };
        for pair in [[FULL, BLSM], [RR, LDB], [PARTIAL, HLDB]] {
            is_within(series, keys, at, pair, bounds)?;
        }
    }
    Ok(())
}

fn thresholds_are_those_of_the_keys(series: &Series) -> Judged {
    for (keys, threshold) in Keys::ALL.into_iter().zip([0.52, 0.35]) {
        let found = tips_at(series, keys)?;
        if (found - threshold).abs() > 0.1 {
            return Err(format!("it is {found:.3} for {}", name(keys, TEST)));
        }
        let [three, _] = by_levels(series, keys)?;
        for at in three {
            let excess = ratio(series, keys, at, TEST, PARTIAL)? - 1.0;
            let is_full = series.value(name(keys, MIXED), at, LAST_FULL)? > 0.0;
            // Where both cost the same, either is right.
            if excess.abs() > 0.02 && is_full != (excess < 0.0) {
                return Err(format!("{} learns the dearer one at {at}", name(keys, MIXED)));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lsm::judge::tests::wrote;
    use crate::lsm::policy::Contender;

    /// The writes of a policy at 10, 40, 80 and 110; at the last there are four levels.
    type Writes = [f64; 4];

    fn usual(keys: Keys, contender: Contender) -> Writes {
        let is_normal = keys == Keys::Normal;
        match contender {
            FULL if is_normal => [95.0, 140.0, 200.0, 150.0],
            RR if is_normal => [92.0, 105.0, 130.0, 160.0],
            PARTIAL if is_normal => [80.0, 90.0, 120.0, 150.0],
            HLDB if is_normal => [82.0, 95.0, 125.0, 155.0],
            LDB if is_normal => [97.0, 110.0, 140.0, 160.0],
            MIXED if is_normal => [60.0, 90.0, 120.0, 110.0],
            TEST if is_normal => [60.0, 95.0, 150.0, 110.0],
            FULL | BLSM => [100.0, 150.0, 220.0, 160.0],
            TEST => [65.0, 98.0, 165.0, 120.0],
            MIXED => [65.0, 98.0, 140.0, 120.0],
            _ => [90.0, 110.0, 140.0, 160.0],
        }
    }

    fn rows(change: impl Fn(Keys, Contender) -> Option<Writes>) -> Series {
        let mut series = Series::default();
        for keys in Keys::ALL {
            for contender in SEVEN.into_iter().chain([TEST]) {
                let writes = change(keys, contender).unwrap_or(usual(keys, contender));
                for (at, writes) in [10.0, 40.0, 80.0, 110.0].into_iter().zip(writes) {
                    let (levels, occupancy) =
                        if at > 100.0 { (4.0, 0.1) } else { (3.0, at / 100.0) };
                    let is_full = at < 40.0 || at < 80.0 && keys == Keys::Uniform || at > 100.0;
                    let metrics = [
                        (WRITES, writes),
                        (LEVELS, levels),
                        (OCCUPANCY, occupancy),
                        (LAST_FULL, f64::from(u8::from(is_full))),
                    ];
                    wrote(&mut series, keys, contender, at, &metrics);
                }
            }
        }
        series
    }

    fn but(keys: Keys, which: Contender, writes: Writes) -> Series {
        rows(move |of, contender| (of == keys && contender == which).then_some(writes))
    }

    #[test]
    fn every_shape_can_show() {
        for verdict in EXPERIMENT.judge(&rows(|_, _| None)) {
            assert_eq!(verdict.why, None, "{}", verdict.name);
        }
    }

    #[test]
    fn partial_must_write_less_and_gain_from_skew() {
        let dear = but(Keys::Uniform, PARTIAL, [90.0, 151.0, 140.0, 160.0]);
        assert!(partial_writes_less(&dear).unwrap_err().contains("at 40"));
        let blind = but(Keys::Normal, PARTIAL, [94.0, 138.0, 197.0, 150.0]);
        assert!(partial_writes_less(&blind).unwrap_err().contains("it saves"));
    }

    #[test]
    fn test_must_tip_and_sooner_for_normal_keys() {
        let never = but(Keys::Uniform, TEST, [65.0, 98.0, 139.0, 120.0]);
        assert!(test_tips(&never).is_err());
        let late = but(Keys::Normal, TEST, [60.0, 70.0, 121.0, 110.0]);
        assert!(test_tips(&late).unwrap_err().contains("tips at"));
    }

    #[test]
    fn mixed_must_write_least_and_policies_have_their_order() {
        let dear = but(Keys::Uniform, MIXED, [71.0, 98.0, 140.0, 120.0]);
        assert!(mixed_writes_least(&dear).unwrap_err().contains("Full"));
        let dear = but(Keys::Normal, MIXED, [65.0, 90.0, 120.0, 110.0]);
        assert!(mixed_writes_least(&dear).unwrap_err().contains("Partial"));
        let apart = but(Keys::Uniform, RR, [96.0, 110.0, 140.0, 160.0]);
        assert!(policies_have_their_order(&apart).unwrap_err().contains("RR"));
        let dear = but(Keys::Normal, RR, [96.0, 105.0, 130.0, 160.0]);
        assert!(policies_have_their_order(&dear).unwrap_err().contains("Full"));
    }

    #[test]
    fn mixed_must_become_partial_and_gain_from_a_level() {
        let other = but(Keys::Uniform, MIXED, [65.0, 98.0, 145.0, 120.0]);
        assert!(mixed_becomes_partial(&other).unwrap_err().contains("Partial"));
        let none = but(Keys::Normal, FULL, [95.0, 140.0, 200.0, 191.0]);
        assert!(a_level_more_writes_less(&none).unwrap_err().contains("0.955"));
        let three = Series { points: rows(|_, _| None).points, ..Series::default() };
        let fewer = three.points.into_iter().filter(|point| point.at < 100.0).collect();
        let three = Series { points: fewer, ..Series::default() };
        assert!(a_level_more_writes_less(&three).unwrap_err().contains("no size"));
    }

    #[test]
    fn skew_must_preserve_blocks() {
        let even = but(Keys::Uniform, FULL, [94.0, 150.0, 220.0, 160.0]);
        assert!(skew_preserves_blocks(&even).unwrap_err().contains("BLSM"));
        let nothing = but(Keys::Normal, PARTIAL, [82.0, 90.0, 120.0, 150.0]);
        assert!(skew_preserves_blocks(&nothing).unwrap_err().contains("HLDB"));
    }

    #[test]
    fn thresholds_must_be_the_theses_and_learnt() {
        let late = but(Keys::Uniform, TEST, [65.0, 98.0, 141.0, 120.0]);
        assert!(thresholds_are_those_of_the_keys(&late).unwrap_err().contains("G_U"));
        let mut series = rows(|_, _| None);
        for point in &mut series.points {
            point.metrics.insert(LAST_FULL.to_owned(), 1.0);
        }
        let found = thresholds_are_those_of_the_keys(&series).unwrap_err();
        assert!(found.contains("learns the dearer one"), "{found}");
    }
}
