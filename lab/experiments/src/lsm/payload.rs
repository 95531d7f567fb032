//! Figs. 5.10 and 5.8 (b): what policies write by the size of values.

use esker_lab_measure::scale::Scale;
use serde_json::Value;

use super::judge::{Judged, counted, ends, is_within, places, ratio};
use super::phases::{INTO, KEPT, LAST_FULL, Plan, UNUSED, WRITES, measure, plan, settings, slots};
use super::policy::{
    BLSM, Contender, FULL, HLDB, Keys, LDB, MIXED, PARTIAL, RR, SEVEN, TEST, name,
};
use crate::Result;
use crate::experiment::{Experiment, Prediction, Series, Watch};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "merge-policies-payload",
    figure: "thesis Figs. 5.8b, 5.10",
    about: "blocks written per MB by the size of values, index of 19 times memory",
    axis: "value bytes",
    columns: &[WRITES, INTO[0], INTO[1], KEPT, LAST_FULL, UNUSED],
    predictions: &[
        Prediction {
            name: "mixed-writes-least-with-small-values",
            claim: "Fig. 5.10: with the smallest values of uniform keys Mixed writes at least 25 % \
                    less than Full and 15 % less than Partial",
            judge: mixed_writes_least,
        },
        Prediction {
            name: "large-values-are-not-rewritten",
            claim: "Fig. 5.10: with values of a block, merges from level 1 to 2 write at most 2 % \
                    of what they write where blocks are not preserved",
            judge: large_values_are_not_rewritten,
        },
        Prediction {
            name: "large-values-make-policies-alike",
            claim: "Fig. 5.10: there Full, RR and Mixed write what Partial does, within 5 %, and \
                    with the smallest values Mixed less than Full",
            judge: large_values_make_alike,
        },
        Prediction {
            name: "without-preservation-nothing-is-gained",
            claim: "Fig. 5.10: there each of ~BLSM, ~LDB and ~HLDB writes at least twice what \
                    Full, RR and Partial do",
            judge: without_preservation,
        },
        Prediction {
            name: "full-merges-gain-only-with-small-values",
            claim: "Fig. 5.8b: full merges into the last level are at least 10 % cheaper than \
                    partial ones with the smallest values, and within 5 % with the largest",
            judge: full_gains_with_small_values,
        },
    ],
    run,
};

fn values(scale: Scale) -> &'static [usize] {
    match scale {
        Scale::Tiny => &[100, 4000],
        Scale::Small | Scale::Full => &[25, 100, 250, 500, 1000, 2000, 4000],
    }
}

fn run(scale: Scale, watch: &mut dyn Watch) -> Result<(Series, Value)> {
    // As in the thesis: 300 MB over 16.
    let plan = Plan { ratio: 18.75, ..plan(scale) };
    let mut series = Series::default();
    for value_bytes in values(scale) {
        let slots = slots(*value_bytes);
        let mut plan = Plan { value_bytes: *value_bytes, ..plan };
        plan.sizes.slots = slots;
        // Few records make a period short.
        plan.periods *= (40 / slots as u64).clamp(1, 10);
        for keys in Keys::ALL {
            for contender in SEVEN.into_iter().chain([TEST]) {
                let metrics = measure(plan, keys, contender, watch)?;
                series.add(name(keys, contender), *value_bytes as f64, metrics);
            }
        }
    }
    Ok((series, settings(&plan)))
}

fn sizes(series: &Series, keys: Keys) -> std::result::Result<[f64; 2], String> {
    ends(&places(series, keys, PARTIAL)?)
}

fn mixed_writes_least(series: &Series) -> Judged {
    let [small, _] = sizes(series, Keys::Uniform)?;
    is_within(series, Keys::Uniform, small, [MIXED, FULL], [0.0, 0.75])?;
    is_within(series, Keys::Uniform, small, [MIXED, PARTIAL], [0.0, 0.85])
}

/// Policies, and the same without preservation.
const PAIRS: [[Contender; 2]; 3] = [[FULL, BLSM], [RR, LDB], [PARTIAL, HLDB]];

fn large_values_are_not_rewritten(series: &Series) -> Judged {
    for keys in Keys::ALL {
        let [_, large] = sizes(series, keys)?;
        for [preserving, plain] in PAIRS {
            let writes = |which| series.value(name(keys, which), large, INTO[1]);
            let theirs = counted(series, name(keys, plain), large, INTO[1])?;
            let ours = writes(preserving)?;
            if ours > 0.02 * theirs {
                let system = name(keys, preserving);
                return Err(format!("{system} writes {ours:.0} into level 2, not {theirs:.0}"));
            }
        }
    }
    Ok(())
}

fn large_values_make_alike(series: &Series) -> Judged {
    for keys in Keys::ALL {
        let [small, large] = sizes(series, keys)?;
        // That they are alike says something where small values make them differ.
        let differ = ratio(series, keys, small, MIXED, FULL)?;
        if differ > 0.95 {
            return Err(format!("small values make them alike too: Mixed {differ:.3} of Full"));
        }
        for contender in [FULL, RR, MIXED] {
            is_within(series, keys, large, [contender, PARTIAL], [0.95, 1.05])?;
        }
    }
    Ok(())
}

fn without_preservation(series: &Series) -> Judged {
    for keys in Keys::ALL {
        let [_, large] = sizes(series, keys)?;
        for [preserving, plain] in PAIRS {
            is_within(series, keys, large, [plain, preserving], [2.0, f64::INFINITY])?;
        }
    }
    Ok(())
}

fn full_gains_with_small_values(series: &Series) -> Judged {
    let [small, large] = sizes(series, Keys::Uniform)?;
    let [small, large] = [small, large].map(|at| ratio(series, Keys::Uniform, at, TEST, PARTIAL));
    let (small, large) = (small?, large?);
    if small <= 0.9 && (large - 1.0).abs() <= 0.05 {
        return Ok(());
    }
    Err(format!("they cost {small:.3} and {large:.3} of partial ones"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::Silent;
    use crate::lsm::judge::tests::wrote;

    /// The writes of each policy with the smallest and the largest values, and into level 2 there.
    fn rows(change: impl Fn(Contender) -> Option<[f64; 3]>) -> Series {
        let mut series = Series::default();
        for keys in Keys::ALL {
            for contender in SEVEN.into_iter().chain([TEST]) {
                let usual = match contender {
                    MIXED | TEST => [70.0, 10.0, 0.0],
                    PARTIAL => [90.0, 10.0, 0.0],
                    FULL | RR => [100.0, 10.0, 0.0],
                    _ => [100.0, 100.0, 50.0],
                };
                let [small, large, into_2] = change(contender).unwrap_or(usual);
                wrote(&mut series, keys, contender, 25.0, &[(WRITES, small), (INTO[1], 1.0)]);
                wrote(&mut series, keys, contender, 4000.0, &[(WRITES, large), (INTO[1], into_2)]);
            }
        }
        series
    }

    #[test]
    fn each_shape_can_show_and_can_fail() {
        let usual = rows(|_| None);
        let other = |which: Contender, values: [f64; 3]| {
            rows(move |contender| (contender == which).then_some(values))
        };
        for verdict in EXPERIMENT.judge(&usual) {
            assert_eq!(verdict.why, None, "{}", verdict.name);
        }
        assert!(mixed_writes_least(&other(MIXED, [77.0, 10.0, 0.0])).is_err());
        let rewriting = other(RR, [100.0, 10.0, 2.0]);
        assert!(large_values_are_not_rewritten(&rewriting).unwrap_err().contains("RR"));
        assert!(large_values_make_alike(&other(FULL, [100.0, 11.0, 0.0])).is_err());
        let alike = other(MIXED, [100.0, 10.0, 0.0]);
        assert!(large_values_make_alike(&alike).unwrap_err().contains("alike too"));
        let nothing = other(LDB, [100.0, 100.0, 0.0]);
        assert!(large_values_are_not_rewritten(&nothing).unwrap_err().contains("is 0"));
        assert!(without_preservation(&other(LDB, [100.0, 19.0, 10.0])).is_err());
        assert!(full_gains_with_small_values(&other(TEST, [85.0, 10.0, 0.0])).is_err());
        assert!(full_gains_with_small_values(&other(TEST, [70.0, 11.0, 0.0])).is_err());
    }

    #[test]
    fn it_runs() {
        let (found, _) = run(Scale::Tiny, &mut Silent).unwrap();
        assert_eq!(found.points.len(), 32);
    }
}
