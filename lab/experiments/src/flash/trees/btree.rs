//! The LA-tree compared with a B+tree in the same memory, from few lookups to many.
//!
//! There are two of them: one that writes changed nodes when they leave its cache, and the
//! LA-tree that applies each update at once, as the slides have it.

use esker_flashtrees::rivals::Rival;
use esker_lab_measure::scale::Scale;
use esker_latree::{Buffering, Scan};
use serde_json::{Value, json};

use super::chips::CHIP;
use super::measure::{
    COLLECTION, ERASES, LA_TREE, MEMORY_BYTES, MICROS, PROGRAMS, READS, SEED, Setup, System,
    by_lookups, measure_all,
};
use super::table::{B_TREE, OURS, updates};
use crate::Result;
use crate::experiment::{Experiment, Prediction, Series, Watch};

const SYSTEMS: [(&str, System); 3] = [
    (OURS, LA_TREE),
    (B_TREE, System::Rival(Rival::BTree)),
    ("LA-tree, no buffers", System::LaTree(Scan::Sorted, Buffering::Off)),
];
/// Lookups for each update, in percent.
const PLACES: [f64; 6] = [0.01, 1.0, 10.0, 100.0, 200.0, 1000.0];

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "latree-btree",
    figure: "slides, plot: LA-tree against B+tree",
    about: "device time of an operation of the LA-tree and of a B+tree with the same memory",
    axis: "lookups per update, %",
    columns: &[MICROS, READS, PROGRAMS, COLLECTION, ERASES],
    predictions: &[
        Prediction {
            name: "it-takes-no-more-time",
            claim: "with up to 200 lookups for 100 updates the LA-tree takes at most the time of \
                    the B+tree, with 1000 at most 1.05 times that, and with 0.01 at most a half",
            judge: takes_no_more,
        },
        Prediction {
            name: "the-gain-shrinks-with-lookups",
            claim: "the gain over the B+tree shrinks from each share of lookups to the next",
            judge: gain_shrinks,
        },
    ],
    run,
};

fn run(scale: Scale, watch: &mut dyn Watch) -> Result<(Series, Value)> {
    let updates = updates(scale);
    let setup = Setup::paper(updates, (updates / 400).max(64) as u32);
    let (series, refused) = measure_all(by_lookups(&SYSTEMS, &PLACES, setup), watch)?;
    let settings = json!({
        "chip": CHIP,
        "memory_bytes": MEMORY_BYTES,
        "updates": setup.updates,
        "blocks": setup.blocks,
        "seed": SEED,
        "refused": refused,
    });
    Ok((series, settings))
}

/// The times of the LA-tree and of the B+tree at a place, and the LA-tree's over the other.
fn ratio(series: &Series, place: f64) -> std::result::Result<f64, String> {
    let of = |system| series.value(system, place, MICROS);
    let (own, other) = (of(OURS)?, of(B_TREE)?);
    if own > 0.0 && other > 0.0 { Ok(own / other) } else { Err("no time passed".to_owned()) }
}

fn takes_no_more(series: &Series) -> std::result::Result<(), String> {
    let mut more = Vec::new();
    for place in PLACES {
        let most = match place {
            0.01 => 0.5,
            1000.0 => 1.05,
            _ => 1.0,
        };
        let found = ratio(series, place)?;
        if found > most {
            more.push(format!("{found:.2} at {place} %"));
        }
    }
    if more.is_empty() {
        Ok(())
    } else {
        Err(format!("times of the B+tree's: {}", more.join(", ")))
    }
}

fn gain_shrinks(series: &Series) -> std::result::Result<(), String> {
    for pair in PLACES.windows(2) {
        let [before, after] = pair else { continue };
        let (few, many) = (ratio(series, *before)?, ratio(series, *after)?);
        if many <= few {
            return Err(format!("{few:.2} of its time at {before} %, {many:.2} at {after} %"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::Silent;
    use esker_lab_result::Metrics;

    fn series(ratios: [f64; 6]) -> Series {
        let mut series = Series::default();
        for (place, ratio) in PLACES.into_iter().zip(ratios) {
            for (name, micros) in [(OURS, 10.0 * ratio), (B_TREE, 10.0)] {
                series.add(name, place, Metrics::from([(MICROS.to_owned(), micros)]));
            }
        }
        series
    }

    #[test]
    fn predictions_can_fail() {
        assert_eq!(takes_no_more(&series([0.5, 0.5, 0.6, 0.9, 1.0, 1.05])), Ok(()));
        assert!(takes_no_more(&series([0.5, 0.5, 0.6, 0.9, 1.01, 1.0])).is_err());
        assert!(takes_no_more(&series([0.6, 0.6, 0.6, 0.9, 1.0, 1.0])).is_err());
        assert_eq!(gain_shrinks(&series([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])), Ok(()));
        assert!(gain_shrinks(&series([0.1, 0.2, 0.3, 0.3, 0.5, 0.6])).is_err());
    }

    #[test]
    fn it_runs() {
        let (found, _) = run(Scale::Tiny, &mut Silent).unwrap();
        assert_eq!(found.points.len(), PLACES.len() * SYSTEMS.len());
        // The B+tree keeps all of it in memory.
        assert!(found.along(OURS).all(|point| point.value(MICROS).unwrap() > 0.0));
    }
}
