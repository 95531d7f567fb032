use super::*;
use crate::experiment::Experiment;
use crate::experiment::tests::{Silent, series};
use crate::machine::mode::{Mode, System};

fn tiny(experiment: &Experiment) -> crate::experiment::Series {
    (experiment.run)(Scale::Tiny, &mut Silent).unwrap().0
}

#[test]
fn every_experiment_runs_and_repeats() {
    let all =
        [pages::EXPERIMENT, readers::EXPERIMENT, tpcc_readers::EXPERIMENT, workers::EXPERIMENT];
    for experiment in all {
        let found = tiny(&experiment);
        let is_pages = experiment.name == "sqlite-pages";
        let systems = if is_pages {
            Mode::PAPER.len() + Mode::OURS.len()
        } else {
            System::of_the_paper().count()
        };
        assert_eq!(found.points.len(), 2 * systems, "{}", experiment.name);
        assert_eq!(found, tiny(&experiment), "{}", experiment.name);
    }
}

type Row<'a> = (&'a str, f64, &'a [(&'a str, f64)]);

/// Rows with their metrics.
type Rows<const N: usize> = [(&'static str, f64, [(&'static str, f64); N])];

/// The predictions that do not show.
fn off(experiment: &Experiment, rows: &[Row<'_>]) -> Vec<String> {
    let verdicts = experiment.judge(&series(rows));
    verdicts.into_iter().filter(|of| of.why.is_some()).map(|of| of.name).collect()
}

#[test]
fn the_papers_pages_show_and_others_do_not() {
    let row = |mode: &'static str, at: f64, pages: f64, entries: f64| {
        (mode, at, [(PAGES, pages), (ENTRIES, entries)])
    };
    let paper = [
        row("MV-FTL", 0.0, 12.92, 590.0),
        row("X-FTL", 0.0, 12.91, 0.0),
        row("WAL1000", 0.0, 21.72, 0.0),
        row("WAL50", 0.0, 22.10, 0.0),
        row("RBJ", 0.0, 42.32, 0.0),
        row("page store", 0.0, 9.0, 0.0),
        row("page store, whole pages", 0.0, 12.0, 0.0),
        row("MV-FTL", 1.0, 17.08, 60.0),
        row("X-FTL", 1.0, 16.48, 0.0),
        row("WAL1000", 1.0, 35.47, 0.0),
        row("WAL50", 1.0, 40.93, 0.0),
        row("RBJ", 1.0, 65.03, 0.0),
        row("page store", 1.0, 8.0, 0.0),
        row("page store, whole pages", 1.0, 12.0, 0.0),
    ];
    let judged = |rows: &Rows<2>| {
        let rows: Vec<Row<'_>> = rows.iter().map(|(name, at, of)| (*name, *at, &of[..])).collect();
        off(&pages::EXPERIMENT, &rows)
    };
    assert_eq!(judged(&paper), [""; 0]);
    let mut changed = paper;
    (changed[0].2[1].1, changed[9].2[0].1) = (601.0, 17.0);
    assert_eq!(
        judged(&changed),
        [
            "tpcc-pages-are-near",
            "modes-have-the-papers-order",
            "deltas-save-pages",
            "diffs-are-short"
        ]
    );
}

#[test]
fn the_papers_new_orders_show_and_others_do_not() {
    let rows = |x: [f64; 2], mv: f64| -> Box<Rows<1>> {
        let at = |name, at, notpm| (name, at, [(NOTPM, notpm)]);
        Box::new([
            at("MV-FTL", 0.0, mv),
            at("MV-FTL", 25.0, 680.0),
            at("WAL1000", 0.0, 269.0),
            at("WAL1000", 25.0, 269.0),
            at("WAL50", 0.0, 245.0),
            at("WAL50", 25.0, 245.0),
            at("X-FTL", 0.0, x[0]),
            at("X-FTL", 25.0, x[1]),
        ])
    };
    let judged = |rows: Box<Rows<1>>| {
        let rows: Vec<Row<'_>> = rows.iter().map(|(name, at, of)| (*name, *at, &of[..])).collect();
        off(&tpcc_readers::EXPERIMENT, &rows)
    };
    assert_eq!(judged(rows([700.0, 200.0], 700.0)), [""; 0]);
    assert_eq!(judged(rows([700.0, 710.0], 700.0)), ["mv-ftl-is-flat", "x-ftl-falls"]);
    assert_eq!(judged(rows([700.0, 200.0], 1_200.0)), ["mv-ftl-gains", "mv-ftl-is-flat"]);
}

#[test]
fn the_papers_times_and_shares_show_and_others_do_not() {
    let times = |at: f64, x: f64, has_failed: f64| {
        let one = |name, seconds, failed| (name, at, [(SECONDS, seconds), (FAILED, failed)]);
        [
            one("MV-FTL", 100.0, 0.0),
            one("X-FTL", x, has_failed),
            one("WAL1000", 135.0, 0.0),
            one("WAL50", 138.0, 0.0),
            one("RBJ", 300.0, 0.0),
        ]
    };
    let judged = |of: &[[f64; 3]]| {
        let rows: Vec<_> = of.iter().flat_map(|[at, x, failed]| times(*at, *x, *failed)).collect();
        let rows: Vec<Row<'_>> = rows.iter().map(|(name, at, of)| (*name, *at, &of[..])).collect();
        off(&readers::EXPERIMENT, &rows)
    };
    let shows = [[0.0, 98.0, 0.0], [1.0, 99.0, 0.0], [10.0, 120.0, 0.0], [14.0, 160.0, 0.0]];
    let last = [25.0, 10.0, 1.0];
    assert_eq!(judged(&[&shows[..], &[last]].concat()), [""; 0]);
    let flat = [[0.0, 101.0, 0.0], [10.0, 101.0, 0.0], [14.0, 101.0, 0.0], [25.0, 101.0, 0.0]];
    let wanted =
        ["x-ftl-is-slightly-ahead", "x-ftl-falls-behind-wal", "x-ftl-fails", "mv-ftl-is-flat"];
    assert_eq!(judged(&flat), wanted);
}
