//! Figs. 1.2 and 5.7 (c, f): where the keys of each level lie under round robin.
//!
//! The axis is the place behind the level's cursor, in percent of the domain: the next merge takes
//! what lies at 0. The last level has no cursor, and begins at the domain's.

use esker_lab_measure::scale::Scale;
use esker_lab_result::Metrics;
use serde_json::Value;

use super::judge::Judged;
use super::model::Model;
use super::phases::{Plan, Run, plan, settings};
use super::policy::{Keys, RR, name};
use crate::Result;
use crate::experiment::{Experiment, Prediction, Series, Watch, metric};

/// Parts of the domain.
const BINS: usize = 25;
/// The percentage of a level's keys in each of them.
const SHARES: [&str; 3] = ["level_0_percent", "level_1_percent", "level_2_percent"];

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "merge-policies-keys",
    figure: "thesis Figs. 1.2, 5.7c, 5.7f",
    about: "the share of each level's keys along the domain, under RR",
    axis: "percent behind the cursor",
    columns: &SHARES,
    predictions: &[
        Prediction {
            name: "the-next-keys-are-the-densest",
            claim: "Figs. 1.2, 5.7c: where keys are uniform, the first quarter behind the cursor \
                    of levels 0 and 1 has at least 1.5 times the keys of the last quarter",
            judge: next_keys_are_densest,
        },
        Prediction {
            name: "the-last-level-is-even",
            claim: "Figs. 1.2, 5.7c: where keys are uniform, no part of the last level has 1.3 \
                    times the mean, and one of level 1 has",
            judge: last_level_is_even,
        },
        Prediction {
            name: "normal-keys-make-no-step",
            claim: "Fig. 5.7f: where keys are normal, neighbouring parts of levels 0 and 1 differ \
                    at least three times as much as where they are uniform",
            judge: normal_keys_make_no_step,
        },
    ],
    run,
};

fn run(scale: Scale, watch: &mut dyn Watch) -> Result<(Series, Value)> {
    // As in the thesis: 600 MB over 16.
    let plan = Plan { ratio: if scale == Scale::Tiny { 20.0 } else { 37.5 }, ..plan(scale) };
    let mut series = Series::default();
    for keys in Keys::ALL {
        let run = Run::steady(plan, keys, RR, watch)?;
        let parts = SHARES.iter().enumerate().map(|(level, _)| behind_cursor(&run.model, level));
        let parts: Vec<_> = parts.collect();
        for bin in 0..BINS {
            let mut metrics = Metrics::new();
            for (name, shares) in SHARES.iter().zip(&parts) {
                metric(&mut metrics, name, shares.get(bin).copied().unwrap_or(0.0));
            }
            series.add(name(keys, RR), (bin * 100 / BINS) as f64, metrics);
        }
        watch.says(&format!("{}: three levels counted", name(keys, RR)));
    }
    Ok((series, settings(&plan)))
}

/// The percentage of a level's keys in each part of the domain, from its cursor on.
fn behind_cursor(model: &Model, level: usize) -> Vec<f64> {
    let mut counts = model.distribution(level, BINS);
    let cursor = (u64::from(model.cursor(level)) * BINS as u64) >> 32;
    counts.rotate_left(cursor as usize % BINS);
    let all = counts.iter().sum::<u64>().max(1) as f64;
    counts.iter().map(|count| 100.0 * *count as f64 / all).collect()
}

fn shares(series: &Series, keys: Keys, metric: &str) -> std::result::Result<Vec<f64>, String> {
    let shares: std::result::Result<Vec<_>, _> =
        series.along(name(keys, RR)).map(|point| point.value(metric)).collect();
    let shares = shares?;
    if shares.len() < 4 { Err("it takes four parts".to_owned()) } else { Ok(shares) }
}

fn mean(shares: &[f64]) -> f64 {
    shares.iter().sum::<f64>() / shares.len().max(1) as f64
}

/// The difference of neighbours, on average, over the mean.
fn roughness(shares: &[f64]) -> f64 {
    let steps: Vec<_> =
        shares.iter().zip(shares.iter().skip(1)).map(|(one, next)| (next - one).abs()).collect();
    mean(&steps) / mean(shares).max(f64::MIN_POSITIVE)
}

fn next_keys_are_densest(series: &Series) -> Judged {
    for metric in SHARES.iter().take(2) {
        let shares = shares(series, Keys::Uniform, metric)?;
        let quarter = shares.len() / 4;
        // The part with the cursor itself is half before it.
        let behind = shares.iter().skip(1).take(quarter).copied().collect::<Vec<_>>();
        let before = shares.iter().rev().take(quarter).copied().collect::<Vec<_>>();
        let (behind, before) = (mean(&behind), mean(&before));
        if behind <= 1.5 * before {
            return Err(format!("{metric}: {behind:.2} behind the cursor, {before:.2} before it"));
        }
    }
    Ok(())
}

/// The densest part of a level, over the mean.
fn densest(series: &Series, metric: &str) -> std::result::Result<f64, String> {
    let shares = shares(series, Keys::Uniform, metric)?;
    let most = shares.iter().copied().fold(0.0, f64::max);
    let mean = mean(&shares);
    if mean > 0.0 { Ok(most / mean) } else { Err(format!("{metric}: the level is empty")) }
}

fn last_level_is_even(series: &Series) -> Judged {
    const EVEN: f64 = 1.3;
    let [_, level_1, last] = SHARES.map(|metric| densest(series, metric));
    let (level_1, last) = (level_1?, last?);
    if level_1 < EVEN {
        return Err(format!("level 1 is even too: its densest part has {level_1:.2} of the mean"));
    }
    if last < EVEN { Ok(()) } else { Err(format!("one part has {last:.2} of the mean")) }
}

fn normal_keys_make_no_step(series: &Series) -> Judged {
    for metric in SHARES.iter().take(2) {
        let [uniform, normal] = Keys::ALL.map(|keys| shares(series, keys, metric));
        let (uniform, normal) = (roughness(&uniform?), roughness(&normal?));
        if normal <= 3.0 * uniform {
            return Err(format!("{metric}: neighbours differ by {normal:.2} and {uniform:.2}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::Silent;
    use crate::lsm::judge::tests::wrote;

    /// Eight parts of each level: a step of uniform keys, the given ones of normal keys.
    fn parts(level_1: [f64; 8], last: [f64; 8], normal: [f64; 8]) -> Series {
        let mut series = Series::default();
        for bin in 0..8 {
            let at = bin as f64;
            let uniform =
                [(SHARES[0], level_1[bin]), (SHARES[1], level_1[bin]), (SHARES[2], last[bin])];
            wrote(&mut series, Keys::Uniform, RR, at, &uniform);
            let normal = [(SHARES[0], normal[bin]), (SHARES[1], normal[bin]), (SHARES[2], 1.0)];
            wrote(&mut series, Keys::Normal, RR, at, &normal);
        }
        series
    }

    const STEP: [f64; 8] = [5.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0];
    const SPIKES: [f64; 8] = [1.0, 9.0, 1.0, 9.0, 1.0, 9.0, 1.0, 9.0];

    #[test]
    fn a_step_must_show() {
        assert_eq!(next_keys_are_densest(&parts(STEP, [5.0; 8], SPIKES)), Ok(()));
        let even = parts([5.0; 8], [5.0; 8], SPIKES);
        assert!(next_keys_are_densest(&even).unwrap_err().contains("level_0"));
    }

    #[test]
    fn the_last_level_must_be_even() {
        assert_eq!(last_level_is_even(&parts(STEP, [5.0; 8], SPIKES)), Ok(()));
        assert!(last_level_is_even(&parts(STEP, STEP, SPIKES)).unwrap_err().contains("1.60"));
        let all = parts([5.0; 8], [5.0; 8], SPIKES);
        assert!(last_level_is_even(&all).unwrap_err().contains("level 1 is even too"));
        assert!(last_level_is_even(&parts(STEP, [0.0; 8], SPIKES)).unwrap_err().contains("empty"));
    }

    #[test]
    fn normal_keys_must_be_rougher() {
        assert_eq!(normal_keys_make_no_step(&parts(STEP, [5.0; 8], SPIKES)), Ok(()));
        assert!(normal_keys_make_no_step(&parts(STEP, [5.0; 8], STEP)).is_err());
        assert!(normal_keys_make_no_step(&parts([5.0; 8], [5.0; 8], [5.0; 8])).is_err());
    }

    #[test]
    fn it_runs() {
        let (found, _) = run(Scale::Tiny, &mut Silent).unwrap();
        assert_eq!(found.points.len(), 2 * BINS);
        for metric in SHARES {
            let sum: f64 = shares(&found, Keys::Uniform, metric).unwrap().iter().sum();
            assert!((sum - 100.0).abs() < 1e-6);
        }
    }
}
