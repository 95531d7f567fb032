//! Figure 7: insertions and deletions.

use esker_lab_measure::scale::Scale;
use serde_json::Value;

use super::bulk::Options;
use super::inserts::{BULK_SPLIT_BELOW, GAIN_OF_THE_PAPER, KEYSPACE_BELOW, add, figure, plan};
use super::judge::{Judged, counted, last_two};
use super::measure::{CARRIED, COLUMNS, SPLITS, System, settings, sizes};
use super::workload::{Mix, Shape};
use crate::Result;
use crate::experiment::{Experiment, Prediction, Series, Watch};

/// The control: a bulk-split tree that never splits versions.
pub const NEVER: &str = "never split 1000 each";
/// The most entries that the present carries for each key that is there.
const CARRIED_MAX: f64 = 2.5;
/// The tree that is compared with it.
const SPLIT: &str = "BSMVBT 1000 each";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "multiversion-mixed",
    figure: "Bulk Split Fig. 7",
    about: "pages written and read by insertions and deletions, in indexes that keep all versions",
    axis: "operations",
    columns: COLUMNS,
    predictions: &[
        BULK_SPLIT_BELOW,
        GAIN_OF_THE_PAPER,
        KEYSPACE_BELOW,
        Prediction {
            name: "splits-bound-what-the-present-carries",
            claim: "at the largest size BSMVBT has split versions, and the levels of the current \
                    root have at most 2.5 entries for each key that is there, and at most 0.8 \
                    of those without splits",
            judge: splits_bound,
        },
        Prediction {
            name: "without-splits-it-carries-more",
            claim: "control: without version splits there are more than 2.5",
            judge: never_carries_more,
        },
    ],
    run,
};

fn run(scale: Scale, watch: &mut dyn Watch) -> Result<(Series, Value)> {
    let mut series = Series::default();
    let mix = Mix::InsertsAndDeletes;
    figure(&mut series, mix, scale, watch)?;
    let never = System::Bulk(Options { dead_share: 2.0, ..Options::USUAL });
    for operations in sizes(scale) {
        add(&mut series, NEVER, plan(never, *operations, Shape::ThousandEach, mix), watch)?;
    }
    Ok((series, settings(scale, &Options::USUAL, "128")))
}

/// What the present carries at the largest size, with splits and without.
fn carried(series: &Series) -> std::result::Result<[f64; 2], String> {
    let [_, at] = last_two(series, NEVER)?;
    let splits = counted(series, SPLIT, at, SPLITS)?;
    if splits < 1.0 || series.value(NEVER, at, SPLITS)? > 0.0 {
        return Err(format!("at {at} there are {splits} splits"));
    }
    Ok([counted(series, SPLIT, at, CARRIED)?, counted(series, NEVER, at, CARRIED)?])
}

fn splits_bound(series: &Series) -> Judged {
    let [split, never] = carried(series)?;
    if split <= CARRIED_MAX && split <= 0.8 * never {
        return Ok(());
    }
    Err(format!("{split:.2} entries a key are carried, without splits {never:.2}"))
}

fn never_carries_more(series: &Series) -> Judged {
    let [_, never] = carried(series)?;
    if never > CARRIED_MAX {
        return Ok(());
    }
    Err(format!("without splits {never:.2} entries a key are carried"))
}

#[cfg(test)]
mod tests {
    use super::super::judge::tests::rows;
    use super::*;

    fn series(splits: [f64; 2], carried: [f64; 2]) -> Series {
        let [split, never] = [0, 1].map(|at| [splits[at], carried[at]]);
        let all: Vec<(&str, f64, &[f64])> = [1.0, 2.0]
            .into_iter()
            .flat_map(|at| [(SPLIT, at, &split[..]), (NEVER, at, &never[..])])
            .collect();
        rows(&[SPLITS, CARRIED], &all)
    }

    #[test]
    fn splits_must_bound_what_is_carried() {
        let both =
            |series: &Series| [splits_bound(series).is_ok(), never_carries_more(series).is_ok()];
        assert_eq!(both(&series([3.0, 0.0], [1.5, 4.0])), [true, true]);
        assert_eq!(both(&series([3.0, 0.0], [2.6, 4.0])), [false, true]);
        assert_eq!(both(&series([3.0, 0.0], [1.5, 1.6])), [false, false]);
        assert_eq!(both(&series([0.0, 0.0], [1.5, 4.0])), [false, false]);
        assert_eq!(both(&series([3.0, 1.0], [1.5, 4.0])), [false, false]);
    }
}
