//! Fig. 5.9: what policies have written when so much has been loaded.
//!
//! Mixed learns while it is loaded, from the moment on at which two windows cost the same within a
//! fifth. Test shows what it would write if it knew from the beginning that the last level holds
//! little.

use esker_lab_measure::scale::Scale;
use serde_json::Value;

use super::judge::{Judged, ends, is_within, places};
use super::phases::{INTO, LEVELS, OCCUPANCY, Run, WRITES, plan, settings};
use super::policy::{BLSM, FULL, Keys, LDB, MIXED, PARTIAL, RR, SEVEN, TEST, name};
use crate::Result;
use crate::experiment::{Experiment, Prediction, Series, Watch};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "merge-policies-load",
    figure: "thesis Fig. 5.9",
    about: "blocks written per MB of a load, from its beginning",
    axis: "loaded over memory",
    columns: &[WRITES, INTO[0], INTO[1], OCCUPANCY],
    predictions: &[
        Prediction {
            name: "mixed-loads-cheapest",
            claim: "small loads of uniform keys cost Mixed at least 35 % less than Full and 20 % \
                    less than Partial",
            judge: mixed_loads_cheapest,
        },
        Prediction {
            name: "what-mixed-saved-lasts",
            claim: "large loads of uniform keys still cost Mixed less than Partial, and at least \
                    25 % less than Full",
            judge: what_mixed_saved_lasts,
        },
        Prediction {
            name: "normal-loads-preserve-blocks",
            claim: "normal keys cost Full at least 15 % less than ~BLSM and RR at least 12 % less \
                    than ~LDB, at every size",
            judge: normal_loads_preserve_blocks,
        },
    ],
    run,
};

fn loads(scale: Scale) -> &'static [f64] {
    match scale {
        Scale::Tiny => &[8.0, 16.0],
        Scale::Small | Scale::Full => &[12.5, 25.0, 37.5, 50.0, 62.5, 75.0, 90.0],
    }
}

fn run(scale: Scale, watch: &mut dyn Watch) -> Result<(Series, Value)> {
    let plan = plan(scale);
    let mut series = Series::default();
    for keys in Keys::ALL {
        for contender in SEVEN.into_iter().chain([TEST]) {
            let mut run = Run::new(plan, keys, contender, u64::MAX);
            let (empty, mut loaded) = (run.model.counts(), 0);
            for at in loads(scale) {
                let requests = (at * plan.sizes.memory_records() as f64) as u64;
                run.perform(requests - loaded, watch)?;
                loaded = requests;
                series.add(name(keys, contender), *at, run.metrics(&empty, loaded));
            }
            watch.says(&format!("{}: {loaded} records loaded", name(keys, contender)));
        }
    }
    Ok((series, settings(&plan)))
}

fn mixed_loads_cheapest(series: &Series) -> Judged {
    let [first, _] = ends(&places(series, Keys::Uniform, MIXED)?)?;
    is_within(series, Keys::Uniform, first, [MIXED, FULL], [0.0, 0.65])?;
    is_within(series, Keys::Uniform, first, [MIXED, PARTIAL], [0.0, 0.8])
}

fn what_mixed_saved_lasts(series: &Series) -> Judged {
    let [_, last] = ends(&places(series, Keys::Uniform, MIXED)?)?;
    let levels = series.value(name(Keys::Uniform, MIXED), last, LEVELS)?;
    if levels != 3.0 {
        return Err(format!("there are {levels} levels"));
    }
    is_within(series, Keys::Uniform, last, [MIXED, FULL], [0.0, 0.75])?;
    is_within(series, Keys::Uniform, last, [MIXED, PARTIAL], [0.0, 0.99])
}

fn normal_loads_preserve_blocks(series: &Series) -> Judged {
    for at in places(series, Keys::Normal, FULL)? {
        is_within(series, Keys::Normal, at, [FULL, BLSM], [0.0, 0.85])?;
        is_within(series, Keys::Normal, at, [RR, LDB], [0.0, 0.88])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::Silent;
    use crate::lsm::judge::tests::wrote;
    use crate::lsm::policy::Contender;

    fn written(keys: Keys, rows: &[(Contender, [f64; 2])]) -> Series {
        let mut series = Series::default();
        for (contender, writes) in rows {
            for (at, writes) in [12.5, 90.0].into_iter().zip(writes) {
                wrote(&mut series, keys, *contender, at, &[(WRITES, *writes), (LEVELS, 3.0)]);
            }
        }
        series
    }

    fn uniform(mixed: [f64; 2]) -> Series {
        let others = [(FULL, [100.0, 200.0]), (PARTIAL, [80.0, 150.0]), (MIXED, mixed)];
        written(Keys::Uniform, &others)
    }

    #[test]
    fn mixed_must_load_cheapest() {
        assert_eq!(mixed_loads_cheapest(&uniform([60.0, 140.0])), Ok(()));
        assert!(mixed_loads_cheapest(&uniform([65.0, 140.0])).unwrap_err().contains("Partial"));
        assert!(mixed_loads_cheapest(&uniform([66.0, 140.0])).unwrap_err().contains("Full"));
    }

    #[test]
    fn savings_must_last() {
        assert_eq!(what_mixed_saved_lasts(&uniform([60.0, 140.0])), Ok(()));
        assert!(what_mixed_saved_lasts(&uniform([60.0, 150.0])).is_err());
        assert!(what_mixed_saved_lasts(&uniform([60.0, 151.0])).is_err());
    }

    #[test]
    fn normal_keys_must_preserve_blocks() {
        let normal = |full, rr| {
            let plain = [(BLSM, [100.0; 2]), (LDB, [100.0; 2])];
            written(Keys::Normal, &[&[(FULL, full), (RR, rr)], &plain[..]].concat())
        };
        assert_eq!(normal_loads_preserve_blocks(&normal([80.0; 2], [80.0; 2])), Ok(()));
        assert!(normal_loads_preserve_blocks(&normal([80.0, 86.0], [80.0; 2])).is_err());
        assert!(normal_loads_preserve_blocks(&normal([80.0; 2], [89.0, 80.0])).is_err());
    }

    #[test]
    fn it_runs() {
        let (found, _) = run(Scale::Tiny, &mut Silent).unwrap();
        assert_eq!(found.points.len(), 32);
        assert!(found.points.iter().all(|point| point.value(WRITES) > Ok(0.0)));
    }
}
