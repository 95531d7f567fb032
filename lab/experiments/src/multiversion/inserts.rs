//! Figure 6: insertions.
//!
//! The head of the bulk-split tree is merged at commits alone, because nothing uncommitted may be
//! in a level. In five, eight or ten transactions of many operations it therefore grows beyond its
//! leaves, and beyond the memory that the other trees have: equal memory is what transactions of
//! 1000 operations compare.

use esker_lab_measure::scale::Scale;
use serde_json::Value;

use super::bulk::Options;
use super::judge::{Judged, counted, is_within, last_two, places, ratio};
use super::measure::{COLUMNS, FORCED, Plan, SPACE, System, WRITES, measure, settings, sizes};
use super::workload::{Mix, Shape};
use crate::Result;
use crate::experiment::{Experiment, Prediction, Series, Watch};

/// Pages in memory: the head and as many again.
pub const MEMORY_PAGES: usize = 128;
/// The control: all of the bulk-split tree below the head is one level.
pub const ONE_LEVEL: &str = "one level 1000 each";
/// The store's keyspace with history, in the same memory.
pub const KEYSPACE: &str = "keyspace 1000 each";
/// The least pages that TMVBT writes for each one of the keyspace.
const KEYSPACE_GAIN_MIN: f64 = 20.0;
/// The most that pages written per operation may grow by where operations grow tenfold.
const GROWTH_MAX: f64 = 4.0;

/// Figure 6's order.
pub const BULK_SPLIT_BELOW: Prediction = Prediction {
    name: "bulk-split-writes-less",
    claim: "beyond the paper's sizes BSMVBT writes at most half the pages that TMVBT writes, and \
            more of them one behind the other",
    judge: bulk_split_writes_less,
};

/// The product compared with the trees.
pub const KEYSPACE_BELOW: Prediction = Prediction {
    name: "a-keyspace-writes-a-twentieth",
    claim: "beyond the paper's sizes, of transactions of 1000 operations, TMVBT writes at least 20 \
            times the pages that a keyspace with history writes, and takes at least as many",
    judge: keyspace_writes_a_twentieth,
};

/// The paper's gain at the paper's size.
pub const GAIN_OF_THE_PAPER: Prediction = Prediction {
    name: "the-papers-gain",
    claim: "Figs. 6 and 7: at 5, 8 and 10 transactions of 1000 operations TMVBT writes 1.1 to 1.3 \
            times the pages that BSMVBT writes, if transactions write what they changed",
    judge: gain_of_the_paper,
};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "multiversion-inserts",
    figure: "Bulk Split Fig. 6",
    about: "pages written and read by insertions into indexes that keep all versions",
    axis: "insertions",
    columns: COLUMNS,
    predictions: &[
        BULK_SPLIT_BELOW,
        GAIN_OF_THE_PAPER,
        KEYSPACE_BELOW,
        Prediction {
            name: "the-gain-grows",
            claim: "of 1000 insertions each, TMVBT over BSMVBT in pages written is at the largest \
                    size at least twice what it is at the smallest",
            judge: gain_grows,
        },
        Prediction {
            name: "levels-grow-slowly",
            claim: "where insertions grow tenfold, pages written by BSMVBT per insertion grow at \
                    most fourfold",
            judge: levels_grow_slowly,
        },
        Prediction {
            name: "one-level-does-not",
            claim: "control: with one level instead of several they grow more than that",
            judge: one_level_does_not,
        },
        Prediction {
            name: "long-transactions-save-pages",
            claim: "in ten transactions TMVBT takes at most 0.8 of the pages of MVBT at the \
                    largest size; of 1000 insertions each the two are within 5 %",
            judge: long_transactions_save_pages,
        },
    ],
    run,
};

/// The most insertions of the control: each of its merges writes all entries.
const ONE_LEVEL_MAX: u64 = 1_000_000;

/// The three trees.
#[must_use]
pub const fn trees() -> [(&'static str, System); 3] {
    [("MVBT", System::Mvbt), ("TMVBT", System::Tmvbt), ("BSMVBT", System::Bulk(Options::USUAL))]
}

fn run(scale: Scale, watch: &mut dyn Watch) -> Result<(Series, Value)> {
    let mut series = Series::default();
    figure(&mut series, Mix::Inserts, scale, watch)?;
    let one_level = System::Bulk(Options { ratio: 1 << 40, ..Options::USUAL });
    for operations in sizes(scale).iter().filter(|operations| **operations <= ONE_LEVEL_MAX) {
        let shape = Shape::ThousandEach;
        add(&mut series, ONE_LEVEL, plan(one_level, *operations, shape, Mix::Inserts), watch)?;
    }
    Ok((series, settings(scale, &Options::USUAL, "128")))
}

/// A plan with the usual memory.
#[must_use]
pub const fn plan(system: System, operations: u64, shape: Shape, mix: Mix) -> Plan {
    Plan { system, operations, shape, mix, memory_pages: MEMORY_PAGES }
}

/// Measures all three trees in all shapes, and a keyspace in transactions of 1000.
///
/// # Errors
/// Those of the runs.
pub fn figure(series: &mut Series, mix: Mix, scale: Scale, watch: &mut dyn Watch) -> Result<()> {
    for shape in Shape::ALL {
        for operations in shape.of_the_paper().iter().chain(sizes(scale)) {
            for (name, system) in trees() {
                let name = format!("{name} {}", shape.name());
                add(series, &name, plan(system, *operations, shape, mix), watch)?;
            }
        }
    }
    let shape = Shape::ThousandEach;
    for operations in shape.of_the_paper().iter().chain(sizes(scale)) {
        add(series, KEYSPACE, plan(System::Keyspace, *operations, shape, mix), watch)?;
    }
    Ok(())
}

/// Makes a run and adds it.
///
/// # Errors
/// Those of the run.
pub fn add(series: &mut Series, name: &str, plan: Plan, watch: &mut dyn Watch) -> Result<()> {
    let metrics = measure(&plan, watch)?;
    let writes = metrics.get(WRITES).copied().unwrap_or_default();
    watch.says(&format!("{name}: {writes:.4} pages written for each of {}", plan.operations));
    series.add(name, plan.operations as f64, metrics);
    Ok(())
}

/// The names of two trees in a shape.
fn pair(trees: [&str; 2], shape: Shape) -> [String; 2] {
    trees.map(|tree| format!("{tree} {}", shape.name()))
}

fn bulk_split_writes_less(series: &Series) -> Judged {
    for shape in Shape::ALL {
        let [bulk, tree] = pair(["BSMVBT", "TMVBT"], shape);
        let beyond = |at: &f64| *at > 10_000.0;
        let large: Vec<f64> = places(series, &bulk)?.into_iter().filter(beyond).collect();
        if large.is_empty() {
            return Err(format!("{bulk} was measured at the paper's sizes alone"));
        }
        for at in large {
            is_within(series, [&bulk, &tree], at, WRITES, [0.0, 0.5])?;
            let sequential = |of: &str| counted(series, of, at, super::measure::SEQUENTIAL);
            if sequential(&bulk)? <= sequential(&tree)? {
                return Err(format!("at {at}: {tree} writes as much in sequence as {bulk}"));
            }
        }
    }
    Ok(())
}

fn keyspace_writes_a_twentieth(series: &Series) -> Judged {
    let tree = "TMVBT 1000 each";
    let beyond = |at: &f64| *at > 10_000.0;
    let large: Vec<f64> = places(series, KEYSPACE)?.into_iter().filter(beyond).collect();
    if large.is_empty() {
        return Err(format!("{KEYSPACE} was measured at the paper's sizes alone"));
    }
    is_a_twentieth(series, [KEYSPACE, tree], &large)
}

/// Whether a keyspace writes a twentieth of what a tree writes, and takes no more, at the places.
///
/// # Errors
/// The first difference, in a line.
pub fn is_a_twentieth(series: &Series, [keyspace, tree]: [&str; 2], places: &[f64]) -> Judged {
    for at in places {
        is_within(series, [tree, keyspace], *at, WRITES, [KEYSPACE_GAIN_MIN, f64::INFINITY])?;
        is_within(series, [keyspace, tree], *at, SPACE, [0.0, 1.0])?;
    }
    Ok(())
}

fn gain_of_the_paper(series: &Series) -> Judged {
    for at in Shape::ThousandEach.of_the_paper() {
        let [bulk, tree] = pair(["BSMVBT", "TMVBT"], Shape::ThousandEach);
        is_within(series, [&tree, &bulk], *at as f64, FORCED, [1.1, 1.3])?;
    }
    Ok(())
}

fn gain_grows(series: &Series) -> Judged {
    let [bulk, tree] = pair(["BSMVBT", "TMVBT"], Shape::ThousandEach);
    let places = places(series, &tree)?;
    let gain = |at: Option<&f64>| {
        let at = at.ok_or_else(|| "nothing was measured".to_owned())?;
        ratio(series, [&tree, &bulk], *at, WRITES)
    };
    let (small, large) = (gain(places.first())?, gain(places.last())?);
    if large >= 2.0 * small {
        return Ok(());
    }
    Err(format!("TMVBT writes {small:.2} times as much at the smallest size, {large:.2} at most"))
}

/// How pages written per insertion grow between the last two sizes.
fn growth(series: &Series, system: &str) -> std::result::Result<f64, String> {
    let [before, last] = last_two(series, system)?;
    let writes = |at| counted(series, system, at, WRITES);
    Ok(writes(last)? / writes(before)?)
}

fn levels_grow_slowly(series: &Series) -> Judged {
    let growth = growth(series, "BSMVBT 1000 each")?;
    let grows = growth > 1.0 && growth <= GROWTH_MAX;
    if grows { Ok(()) } else { Err(format!("they grow {growth:.2}-fold")) }
}

fn one_level_does_not(series: &Series) -> Judged {
    let growth = growth(series, ONE_LEVEL)?;
    if growth > GROWTH_MAX { Ok(()) } else { Err(format!("they grow {growth:.2}-fold, too")) }
}

fn long_transactions_save_pages(series: &Series) -> Judged {
    for (shape, bounds) in [(Shape::In(10), [0.0, 0.8]), (Shape::ThousandEach, [0.95, 1.05])] {
        let [transactional, single] = pair(["TMVBT", "MVBT"], shape);
        let [_, last] = last_two(series, &single)?;
        is_within(series, [&transactional, &single], last, SPACE, bounds)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::judge::tests::rows;
    use super::super::measure::SEQUENTIAL;
    use super::*;

    const METRICS: [&str; 4] = [WRITES, FORCED, SEQUENTIAL, SPACE];
    const AT: [f64; 5] = [5000.0, 8000.0, 10_000.0, 100_000.0, 1_000_000.0];

    /// Pages written by a tree at each of the places.
    fn usual(tree: &str) -> [f64; 5] {
        match tree {
            "BSMVBT" => [0.01, 0.01, 0.01, 0.03, 0.07],
            "one level" => [0.01, 0.01, 0.01, 0.03, 0.3],
            "keyspace" => [0.01, 0.01, 0.01, 0.02, 0.04],
            _ => [0.012, 0.012, 0.012, 0.5, 1.0],
        }
    }

    fn series(change: impl Fn(&str, &str) -> Option<[f64; 4]>) -> Series {
        let mut all = Vec::new();
        for tree in ["MVBT", "TMVBT", "BSMVBT", "one level", "keyspace"] {
            for shape in Shape::ALL.map(Shape::name) {
                let space = if (tree, shape) == ("TMVBT", "in ten") { 7.0 } else { 10.0 };
                let sequential = if tree == "BSMVBT" { 98.0 } else { 1.0 };
                for (at, writes) in AT.into_iter().zip(usual(tree)) {
                    let forced = writes;
                    let usual = [writes, forced, sequential, space];
                    let values = change(tree, shape).unwrap_or(usual).to_vec();
                    all.push((format!("{tree} {shape}"), at, values));
                }
            }
        }
        let of = |(name, at, values): &(String, f64, Vec<f64>)| (name.clone(), *at, values.clone());
        let all: Vec<_> = all.iter().map(of).collect();
        let all: Vec<_> = all.iter().map(|(n, at, v)| (n.as_str(), *at, v.as_slice())).collect();
        rows(&METRICS, &all)
    }

    #[test]
    fn every_shape_can_show() {
        for verdict in EXPERIMENT.judge(&series(|_, _| None)) {
            assert_eq!(verdict.why, None, "{}", verdict.name);
        }
    }

    #[test]
    fn every_shape_can_be_missed() {
        let same = EXPERIMENT.judge(&series(|_, _| Some([1.0, 1.0, 1.0, 1.0])));
        assert!(same.iter().all(|verdict| verdict.why.is_some()));
        let dear = series(|tree, _| (tree == "BSMVBT").then_some([2.0, 2.0, 98.0, 10.0]));
        assert!(bulk_split_writes_less(&dear).unwrap_err().contains("BSMVBT 1000 each is"));
        let written = series(|tree, _| (tree == "keyspace").then_some([0.04, 0.0, 0.0, 10.0]));
        assert!(keyspace_writes_a_twentieth(&written).unwrap_err().contains("12.500 of keyspace"));
        let roomy = series(|tree, _| (tree == "keyspace").then_some([0.01, 0.0, 0.0, 11.0]));
        assert!(keyspace_writes_a_twentieth(&roomy).unwrap_err().contains("pages_per_thousand"));
        let scattered = series(|tree, _| (tree == "BSMVBT").then_some([0.1, 0.1, 0.5, 10.0]));
        assert!(bulk_split_writes_less(&scattered).unwrap_err().contains("in sequence"));
        let even = series(|tree, _| (tree == "MVBT").then_some([1.0, 1.0, 1.0, 8.0]));
        assert!(long_transactions_save_pages(&even).unwrap_err().contains("TMVBT in ten"));
        assert!(gain_of_the_paper(&dear).is_err());
        let flat = series(|tree, _| (tree == "TMVBT").then_some([1.0, 1.0, 1.0, 10.0]));
        assert!(gain_grows(&flat).unwrap_err().contains("100.00 times"));
    }
}
