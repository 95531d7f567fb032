//! Figure 8: insertions by the leaves of the head tree.

use esker_lab_measure::scale::Scale;
use serde_json::Value;

use super::bulk::Options;
use super::inserts::is_a_twentieth;
use super::judge::{Judged, counted, places};
use super::measure::{COLUMNS, Plan, System, WRITES, measure, settings};
use super::workload::{Mix, Shape};
use crate::Result;
use crate::experiment::{Experiment, Prediction, Series, Watch};

/// The control: a tree without a head, in the same memory.
pub const CONTROL: &str = "TMVBT, 1000 each of 1,000,000";
/// The store's keyspace with history, in the same memory.
const KEYSPACE: &str = "keyspace, 1000 each of 1,000,000";
/// The leaves from which on that memory is enough for a store: 256 KiB.
const KEYSPACE_LEAVES_MIN: usize = 32;
/// The size at which levels matter.
const LARGE: &str = "BSMVBT, 1000 each of 1,000,000";

/// The insertions that are measured: names, shapes, numbers and leaves.
type Row = (&'static str, Shape, u64, &'static [usize]);
const TINY: [Row; 1] = [("BSMVBT, 1000 each of 10,000", Shape::ThousandEach, 10_000, &[2, 8, 32])];
const ROWS: [Row; 4] = [
    ("BSMVBT, 1000 in ten", Shape::In(10), 1000, &[1, 2, 4, 8]),
    ("BSMVBT, 1000 each of 10,000", Shape::ThousandEach, 10_000, &[2, 4, 8, 16, 32, 64]),
    ("BSMVBT, 1000 each of 100,000", Shape::ThousandEach, 100_000, LEAVES),
    (LARGE, Shape::ThousandEach, 1_000_000, LEAVES),
];
const LEAVES: &[usize] = &[8, 16, 32, 64, 128, 256, 512];

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "multiversion-head-leaves",
    figure: "Bulk Split Fig. 8",
    about: "pages written by insertions into the bulk-split tree, by the leaves of its head",
    axis: "leaves of the head tree",
    columns: COLUMNS,
    predictions: &[
        Prediction {
            name: "more-leaves-write-less",
            claim: "Fig. 8: every doubling of the head's leaves saves pages of a million \
                    insertions, and the most leaves write at most half of what the fewest do",
            judge: |series| falls(series, LARGE),
        },
        Prediction {
            name: "at-the-papers-size-too",
            claim: "Fig. 8: so it is for ten transactions of 1000 insertions",
            judge: |series| falls(series, "BSMVBT, 1000 each of 10,000"),
        },
        Prediction {
            name: "memory-alone-does-not",
            claim: "control: where the head's leaves save half of the pages, TMVBT in the same \
                    memory saves less than half",
            judge: memory_alone_does_not,
        },
        Prediction {
            name: "a-keyspace-writes-a-twentieth",
            claim: "in the same memory TMVBT writes at least 20 times the pages that a keyspace \
                    with history writes, and takes at least as many",
            judge: |series| is_a_twentieth(series, [KEYSPACE, CONTROL], &places(series, KEYSPACE)?),
        },
    ],
    run,
};

fn run(scale: Scale, watch: &mut dyn Watch) -> Result<(Series, Value)> {
    let rows: &[Row] = if scale == Scale::Tiny { &TINY } else { &ROWS };
    let mut series = Series::default();
    for (name, shape, operations, leaves) in rows {
        for head_leaves in *leaves {
            let options = Options { head_leaves: *head_leaves, ..Options::USUAL };
            let bulk = System::Bulk(options);
            add(&mut series, name, bulk, (*shape, *operations, *head_leaves), watch)?;
            if *name == LARGE {
                let tree = System::Tmvbt;
                add(&mut series, CONTROL, tree, (*shape, *operations, *head_leaves), watch)?;
            }
            if *name == LARGE && *head_leaves >= KEYSPACE_LEAVES_MIN {
                let store = System::Keyspace;
                add(&mut series, KEYSPACE, store, (*shape, *operations, *head_leaves), watch)?;
            }
        }
    }
    Ok((series, settings(scale, &Options::USUAL, "twice the leaves")))
}

fn add(
    series: &mut Series,
    name: &str,
    system: System,
    (shape, operations, leaves): (Shape, u64, usize),
    watch: &mut dyn Watch,
) -> Result<()> {
    let memory_pages = 2 * leaves;
    let plan = Plan { system, operations, shape, mix: Mix::Inserts, memory_pages };
    let metrics = measure(&plan, watch)?;
    watch.says(&format!("{name} with {leaves} leaves"));
    series.add(name, leaves as f64, metrics);
    Ok(())
}

/// Pages written with the most leaves over those with the fewest, if every step saves some.
fn saved(series: &Series, system: &str) -> std::result::Result<f64, String> {
    let places = places(series, system)?;
    let mut writes = Vec::with_capacity(places.len());
    for at in places {
        writes.push(counted(series, system, at, WRITES)?);
    }
    if writes.iter().zip(writes.iter().skip(1)).any(|(less, more)| more >= less) {
        return Err(format!("{system} does not write less with every step: {writes:.4?}"));
    }
    match (writes.first(), writes.last()) {
        (Some(first), Some(last)) => Ok(last / first),
        _ => Err(format!("{system} was not measured")),
    }
}

fn falls(series: &Series, system: &str) -> Judged {
    let saved = saved(series, system)?;
    if saved <= 0.5 { Ok(()) } else { Err(format!("{system} writes {saved:.3} with the most")) }
}

fn memory_alone_does_not(series: &Series) -> Judged {
    falls(series, LARGE)?;
    match falls(series, CONTROL) {
        Ok(()) => Err(format!("it shows for {CONTROL}, too")),
        Err(why) if why.contains("measured") || why.contains("nothing") => Err(why),
        Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::judge::tests::rows;
    use super::super::measure::SPACE;
    use super::*;

    fn series(large: [f64; 3], control: [f64; 3]) -> Series {
        let small = "BSMVBT, 1000 each of 10,000";
        let mut all = Vec::new();
        for at in 0..3 {
            all.extend([
                (LARGE, at as f64, vec![large[at], 1.0]),
                (CONTROL, at as f64, vec![control[at], 1.0]),
                (KEYSPACE, at as f64, vec![0.1, 1.0]),
                (small, at as f64, vec![large[at], 1.0]),
            ]);
        }
        let all: Vec<_> = all.iter().map(|(n, at, v)| (*n, *at, v.as_slice())).collect();
        rows(&[WRITES, SPACE], &all)
    }

    #[test]
    fn leaves_must_save_and_memory_must_not() {
        let shown = |series: &Series| {
            let verdicts = EXPERIMENT.judge(series);
            verdicts.iter().map(|verdict| verdict.why.is_none()).collect::<Vec<_>>()
        };
        let (no, yes) = (false, true);
        assert_eq!(shown(&series([3.0, 2.0, 1.0], [3.0, 2.9, 2.8])), [yes; 4]);
        assert_eq!(shown(&series([3.0, 2.0, 1.0], [3.0, 2.0, 1.0])), [yes, yes, no, no]);
        assert_eq!(shown(&series([3.0, 3.1, 1.0], [3.0, 2.9, 2.8])), [no, no, no, yes]);
        assert_eq!(shown(&series([3.0, 2.9, 2.8], [3.0, 2.9, 1.9])), [no; 4]);
        assert_eq!(shown(&series([3.0, 2.0, 1.0], [0.0; 3])), [yes, yes, no, no]);
    }
}
