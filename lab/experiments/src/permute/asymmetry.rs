//! Fig. 3.9: one pass that reads more than once against two passes, while memory shrinks.
//!
//! Where a read costs a sixteenth of a write, reading segments several times and keeping what
//! matches saves a pass down to small memories. Below, the reads cost more than a second pass.

use esker_lab_measure::scale::Scale;
use esker_lab_result::Metrics;
use esker_permute::pass::Pass;
use esker_permute::plan::one_pass::{Effort, best};
use esker_permute::plan::passes::{plan, plan_in};
use esker_permute::plan::price::{Figures, Mode, Terms};
use serde_json::{Value, json};

use super::thesis::{ALPHA, BLOCK, RECORD, task, tpch};
use crate::Result;
use crate::experiment::{Experiment, Prediction, Series, Watch, go_on, metric};

const ORDER: [usize; 5] = [4, 3, 2, 1, 0];
const PARTS: u64 = 100;
const ONE: &str = "one pass";
const TWO: &str = "two passes";
const PLANNED: &str = "planned";
const READ: &str = "million_read_costs";
const WRITTEN: &str = "million_blocks_written";
const COST: &str = "million_costs";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "filtered-reads",
    figure: "thesis Fig. 3.9",
    about: "the best single pass and the best two passes of a full reversal, a read at 1/16 of a \
            write",
    axis: "KiB of memory",
    columns: &["waste", READ, WRITTEN, COST],
    predictions: &[
        Prediction {
            name: "reads-grow-as-memory-shrinks",
            claim: "the single pass costs no less to read at each smaller memory, and more at the \
                    smallest than at the largest",
            judge: reads_grow,
        },
        Prediction {
            name: "two-passes-win-at-last",
            claim: "one pass is cheaper at the largest memory, two passes at the smallest",
            judge: two_win_at_last,
        },
        Prediction {
            name: "the-planner-takes-the-cheaper",
            claim: "no plan costs more than the cheaper of the two, each of which is the cheaper \
                    somewhere",
            judge: planner_takes_the_cheaper,
        },
    ],
    run,
};

fn run(scale: Scale, watch: &mut dyn Watch) -> Result<(Series, Value)> {
    let memories: &[u64] = match scale {
        Scale::Tiny => &[256],
        Scale::Small => &[256, 512, 1024, 2048],
        Scale::Full => &[256, 320, 384, 512, 768, 1024, 1536, 2048],
    };
    let mut series = Series::default();
    for memory in memories {
        go_on(watch)?;
        let (task, terms) = task(&tpch(PARTS), &ORDER, memory << 10);
        let mut add = |system, passes: &[Pass]| {
            series.add(system, *memory as f64, metrics(passes, &terms));
        };
        for (system, count) in [(ONE, 1), (TWO, 2)] {
            if let Some((passes, _)) = plan_in(count, &task, &terms) {
                add(system, &passes);
            }
        }
        add(PLANNED, &plan(&task, &terms).0);
        watch.says(&format!("{memory} KiB of memory planned"));
    }
    let settings = json!({
        "block_bytes": BLOCK, "record_bytes": RECORD, "alpha": ALPHA, "sizes": tpch(PARTS),
        "order": ORDER, "unfiltered_from_kib": unfiltered_kib(),
    });
    Ok((series, settings))
}

/// The least memory, to about a thirtieth, in which one pass reads everything once.
fn unfiltered_kib() -> u64 {
    let fits = |kib: &u64| {
        let (task, terms) = task(&tpch(PARTS), &ORDER, kib << 10);
        best(&task, &terms, Effort::Fine).is_some()
    };
    (1..=128).map(|step| 32 * step).find(fits).unwrap_or(0)
}

/// Reads and writes, in the cost of a written block.
fn metrics(passes: &[Pass], terms: &Terms) -> Metrics {
    let written = Terms { mode: Mode::Blocks { alpha: 0.0 }, ..*terms };
    let sum = |terms: &Terms| -> f64 {
        passes.iter().map(|pass| Figures::of(pass).price(terms)).sum::<f64>() / 1e6
    };
    let waste = passes.iter().map(|pass| pass.waste()).max().unwrap_or(0);
    let mut metrics = Metrics::new();
    metric(&mut metrics, "passes", passes.len() as f64);
    metric(&mut metrics, "waste", waste as f64);
    metric(&mut metrics, WRITTEN, sum(&written));
    metric(&mut metrics, READ, sum(terms) - sum(&written));
    metric(&mut metrics, COST, sum(terms));
    metrics
}

type Judged = std::result::Result<(), String>;

/// The places where one pass was planned, from the least memory.
fn places(series: &Series) -> std::result::Result<Vec<f64>, String> {
    let mut places = series.places(ONE);
    places.sort_by(f64::total_cmp);
    if places.len() < 2 { Err("it takes two sizes of memory".to_owned()) } else { Ok(places) }
}

fn reads_grow(series: &Series) -> Judged {
    let places = places(series)?;
    let reads = places.iter().map(|at| series.value(ONE, *at, READ));
    let reads = reads.collect::<std::result::Result<Vec<f64>, String>>()?;
    let falls = reads.windows(2).all(|pair| pair[1] <= pair[0]);
    if falls && reads.first() > reads.last() {
        return Ok(());
    }
    Err(format!("from the least memory on, reads cost {reads:.2?} million blocks"))
}

fn two_win_at_last(series: &Series) -> Judged {
    let places = places(series)?;
    let costs = |at: f64| Ok((series.value(ONE, at, COST)?, series.value(TWO, at, COST)?));
    let costs = |at: Option<&f64>| -> std::result::Result<(f64, f64), String> {
        at.map_or_else(|| Err("no place".to_owned()), |at| costs(*at))
    };
    let (least, most) = (costs(places.first())?, costs(places.last())?);
    if least.1 < least.0 && most.0 < most.1 {
        return Ok(());
    }
    Err(format!("one and two passes cost {least:.2?} at the least memory, {most:.2?} at the most"))
}

fn planner_takes_the_cheaper(series: &Series) -> Judged {
    two_win_at_last(series)?;
    for at in places(series)? {
        let cheaper = series.value(ONE, at, COST)?.min(series.value(TWO, at, COST)?);
        let planned = series.value(PLANNED, at, COST)?;
        if planned > cheaper * 1.000_001 {
            return Err(format!(
                "at {at} KiB the plan costs {planned:.3}, one of them {cheaper:.3}"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::{Silent, series};

    /// Costs at 64 and 128 KiB.
    fn costs(one: [f64; 2], two: [f64; 2], planned: [f64; 2]) -> Series {
        let row = |cost| [(COST, cost), (READ, cost)];
        series(&[
            (ONE, 64.0, &row(one[0])),
            (ONE, 128.0, &row(one[1])),
            (TWO, 64.0, &row(two[0])),
            (TWO, 128.0, &row(two[1])),
            (PLANNED, 64.0, &row(planned[0])),
            (PLANNED, 128.0, &row(planned[1])),
        ])
    }

    #[test]
    fn reads_must_grow() {
        assert_eq!(reads_grow(&costs([3.0, 1.0], [2.0; 2], [2.0, 1.0])), Ok(()));
        assert!(reads_grow(&costs([3.0, 3.0], [2.0; 2], [2.0, 1.0])).is_err());
        assert!(reads_grow(&costs([1.0, 3.0], [2.0; 2], [2.0, 1.0])).is_err());
    }

    #[test]
    fn two_must_win_at_the_least_memory_alone() {
        assert_eq!(two_win_at_last(&costs([3.0, 1.0], [2.0; 2], [2.0, 1.0])), Ok(()));
        assert!(two_win_at_last(&costs([1.5, 1.0], [2.0; 2], [2.0, 1.0])).is_err());
        assert!(two_win_at_last(&costs([3.0, 2.5], [2.0; 2], [2.0, 1.0])).is_err());
    }

    #[test]
    fn a_plan_must_be_the_cheaper() {
        assert_eq!(planner_takes_the_cheaper(&costs([3.0, 1.0], [2.0; 2], [2.0, 1.0])), Ok(()));
        assert!(planner_takes_the_cheaper(&costs([3.0, 1.0], [2.0; 2], [2.1, 1.0])).is_err());
        let no_choice = planner_takes_the_cheaper(&costs([1.0; 2], [2.0; 2], [1.0; 2]));
        assert!(no_choice.unwrap_err().contains("cost"));
    }

    #[test]
    fn it_runs() {
        let (found, settings) = run(Scale::Tiny, &mut Silent).unwrap();
        assert!(found.value(PLANNED, 256.0, COST).unwrap() > 0.0);
        assert!(settings["unfiltered_from_kib"].as_u64().unwrap() > 0);
    }
}
