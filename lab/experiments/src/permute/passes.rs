//! Fig. 3.8: how many passes the permutations of an array's dimensions need.
//!
//! Most need one or two whatever the size; a sort, which cannot tell an easy permutation from a
//! hard one, needs more for all.

use esker_lab_measure::scale::Scale;
use esker_lab_result::Metrics;
use esker_permute::plan::passes::plan;
use serde_json::{Value, json};

use super::thesis::{ALPHA, BLOCK, RECORD, task, tpch};
use crate::Result;
use crate::experiment::{Experiment, Prediction, Series, Watch, go_on, metric};

/// Bytes of memory.
const MEMORY: u64 = 128 << 10;
/// Bytes of an address that a sort carries with each record.
const ADDRESS: u64 = 8;
const PLANNED: &str = "planned";
const SORT: &str = "sort";
const MEAN: &str = "mean_passes";
const MOST: &str = "most_passes";
/// The shares of permutations with each number of passes, in percent.
const SHARES: [&str; 4] = ["one_percent", "two_percent", "three_percent", "more_percent"];
/// The most growth of the mean while the array grows tenfold.
const FLAT: f64 = 1.25;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "permutation-passes",
    figure: "thesis Fig. 3.8",
    about: "passes of all 119 permutations of five dimensions in 128 KiB of memory",
    axis: "keys of parts",
    columns: &["one_percent", "two_percent", "three_percent", "more_percent", MEAN, MOST],
    predictions: &[
        Prediction {
            name: "most-permutations-are-easy",
            claim: "at every size at least half of the permutations take one or two passes, where \
                    a sort takes more",
            judge: most_are_easy,
        },
        Prediction {
            name: "size-hardly-matters",
            claim: "the mean at the largest size is at most 1.25 times that at the smallest, where \
                    a sort takes more passes",
            judge: size_hardly_matters,
        },
        Prediction {
            name: "sort-takes-more",
            claim: "at every size a sort takes more passes than permutations do in the mean, and \
                    no fewer than any of them",
            judge: sort_takes_more,
        },
    ],
    run,
};

fn run(scale: Scale, watch: &mut dyn Watch) -> Result<(Series, Value)> {
    let sizes: Vec<u64> = match scale {
        Scale::Tiny => vec![50],
        Scale::Small => vec![50, 150, 300, 500],
        Scale::Full => (1..=10).map(|step| 50 * step).collect(),
    };
    let orders = permutations(5);
    let mut series = Series::default();
    for parts in &sizes {
        let array = tpch(*parts);
        let mut counts = Vec::with_capacity(orders.len());
        // The tiny scale shows that it runs.
        let step = if scale == Scale::Tiny { 20 } else { 1 };
        for order in orders.iter().step_by(step) {
            go_on(watch)?;
            let (task, terms) = task(&array, order, MEMORY);
            counts.push(plan(&task, &terms).0.len());
        }
        series.add(PLANNED, *parts as f64, metrics(&counts));
        series.add(SORT, *parts as f64, metrics(&[sort_passes(array.iter().product())]));
        watch.says(&format!("{parts} keys of parts: {} permutations planned", counts.len()));
    }
    let settings = json!({
        "memory_bytes": MEMORY, "block_bytes": BLOCK, "record_bytes": RECORD, "alpha": ALPHA,
        "sizes": tpch(0), "parts": sizes,
    });
    Ok((series, settings))
}

/// All orders but the one that is there.
fn permutations(count: usize) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for _ in 0..count {
        let longer = all.iter().flat_map(|head: &Vec<usize>| {
            let left = (0..count).filter(|next| !head.contains(next));
            left.map(|next| [head.as_slice(), &[next]].concat())
        });
        all = longer.collect();
    }
    all.retain(|order| !order.is_sorted());
    all
}

/// The passes of a merge sort of records with their addresses: one that makes runs, then merges of
/// as many runs as there are blocks of memory but one.
fn sort_passes(records: u64) -> usize {
    let mut runs = (records * (RECORD + ADDRESS)).div_ceil(MEMORY);
    let mut passes = 1;
    while runs > 1 {
        runs = runs.div_ceil(MEMORY / BLOCK - 1);
        passes += 1;
    }
    passes
}

fn metrics(passes: &[usize]) -> Metrics {
    let mut metrics = Metrics::new();
    let share = |is_meant: &dyn Fn(usize) -> bool| {
        let meant = passes.iter().filter(|count| is_meant(**count)).count();
        100.0 * meant as f64 / passes.len() as f64
    };
    for (name, count) in SHARES.into_iter().zip(1..) {
        let is_last = count == SHARES.len();
        metric(&mut metrics, name, share(&|other| other == count || is_last && other > count));
    }
    let sum: usize = passes.iter().sum();
    metric(&mut metrics, MEAN, sum as f64 / passes.len() as f64);
    metric(&mut metrics, MOST, passes.iter().copied().max().unwrap_or(0) as f64);
    metrics
}

type Judged = std::result::Result<(), String>;

fn places(series: &Series) -> std::result::Result<Vec<f64>, String> {
    let places = series.places(PLANNED);
    if places.is_empty() { Err("nothing was planned".to_owned()) } else { Ok(places) }
}

fn most_are_easy(series: &Series) -> Judged {
    for at in places(series)? {
        let easy = series.value(PLANNED, at, SHARES[0])? + series.value(PLANNED, at, SHARES[1])?;
        if series.value(SORT, at, MOST)? <= series.value(PLANNED, at, MEAN)?.max(2.0) {
            return Err(format!("at {at} a sort takes no more"));
        }
        if easy < 50.0 {
            return Err(format!("at {at} only {easy:.0} % take one or two passes"));
        }
    }
    Ok(())
}

fn size_hardly_matters(series: &Series) -> Judged {
    let places = places(series)?;
    let least = places.iter().copied().fold(f64::INFINITY, f64::min);
    let most = places.iter().copied().fold(0.0, f64::max);
    if most <= least {
        return Err("it takes two sizes".to_owned());
    }
    let (small, large) = (series.value(PLANNED, least, MEAN)?, series.value(PLANNED, most, MEAN)?);
    let sort = |at| series.value(SORT, at, MOST);
    let (sort_small, sort_large) = (sort(least)?, sort(most)?);
    if sort_large <= sort_small {
        return Err(format!("a sort takes {sort_small} and {sort_large} passes"));
    }
    if large <= FLAT * small {
        return Ok(());
    }
    Err(format!("the mean grew from {small:.2} to {large:.2} passes"))
}

fn sort_takes_more(series: &Series) -> Judged {
    for at in places(series)? {
        let sort = series.value(SORT, at, MOST)?;
        let (mean, most) = (series.value(PLANNED, at, MEAN)?, series.value(PLANNED, at, MOST)?);
        if sort <= mean || sort < most {
            return Err(format!("at {at} a sort takes {sort}, permutations {mean:.2} to {most}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::{Silent, series};

    /// A sort takes a pass more for the larger one.
    fn planned(shares: [f64; 2], means: [f64; 2], sort: f64) -> Series {
        let row = |mean, share| [(SHARES[0], share), (SHARES[1], 0.0), (MEAN, mean), (MOST, 3.0)];
        series(&[
            (PLANNED, 50.0, &row(means[0], shares[0])),
            (PLANNED, 500.0, &row(means[1], shares[1])),
            (SORT, 50.0, &[(MOST, sort)]),
            (SORT, 500.0, &[(MOST, sort + 1.0)]),
        ])
    }

    #[test]
    fn half_must_be_easy() {
        assert_eq!(most_are_easy(&planned([50.0, 60.0], [2.0, 2.0], 4.0)), Ok(()));
        assert!(most_are_easy(&planned([50.0, 49.0], [2.0, 2.0], 4.0)).is_err());
        let sort = most_are_easy(&planned([50.0, 60.0], [2.0, 2.0], 2.0));
        assert!(sort.unwrap_err().contains("no more"));
    }

    #[test]
    fn the_mean_must_stay() {
        assert_eq!(size_hardly_matters(&planned([50.0; 2], [2.0, 2.5], 4.0)), Ok(()));
        assert!(size_hardly_matters(&planned([50.0; 2], [2.0, 2.6], 4.0)).is_err());
        let mut alike = planned([50.0; 2], [2.0, 2.5], 4.0);
        alike.points[3].metrics.insert(MOST.to_owned(), 4.0);
        assert!(size_hardly_matters(&alike).unwrap_err().contains("a sort takes"));
        assert!(size_hardly_matters(&series(&[(PLANNED, 1.0, &[(MEAN, 1.0)])])).is_err());
    }

    #[test]
    fn a_sort_must_take_more() {
        assert_eq!(sort_takes_more(&planned([50.0; 2], [2.0, 2.5], 3.0)), Ok(()));
        assert!(sort_takes_more(&planned([50.0; 2], [2.0, 2.5], 2.9)).is_err());
        assert!(sort_takes_more(&planned([50.0; 2], [3.0, 3.0], 3.0)).is_err());
    }

    #[test]
    fn sorts_are_counted_by_hand() {
        // 128 KiB hold 8,192 pairs and merge 31 runs at once.
        assert_eq!([8192, 8193, 31 * 8192, 31 * 8192 + 1].map(sort_passes), [1, 2, 2, 3]);
    }

    #[test]
    fn there_are_119_orders() {
        let all = permutations(5);
        assert_eq!(
            (all.len(), &all[0], &all[118]),
            (119, &vec![0, 1, 2, 4, 3], &vec![4, 3, 2, 1, 0])
        );
    }

    #[test]
    fn it_runs() {
        let (found, settings) = run(Scale::Tiny, &mut Silent).unwrap();
        assert!(found.value(PLANNED, 50.0, MEAN).unwrap() >= 1.0);
        assert_eq!(settings["memory_bytes"], 131_072);
    }
}
