//! The results of an experiment as text: the points, then whether each expected shape appears.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use esker_experiments::experiment::{Findings, Point};
use esker_experiments::measure::process::machine;
use esker_terminal::table::Table;

/// Longer series are shown in this many rows, each with the maximum of each metric over the points
/// that it covers.
const ROWS_MAX: usize = 24;

pub(super) fn text(findings: &Findings) -> String {
    let (experiment, series) = (&findings.experiment, &findings.series);
    let mut text = String::new();
    let _ = writeln!(text, "{}: {} ({})", experiment.name, experiment.about, experiment.figure);
    let _ = writeln!(text, "machine: {}\nsettings: {}\n", machine(), findings.settings);
    let _ = writeln!(text, "{}\n", points(findings));
    if !series.totals.is_empty() {
        let _ = writeln!(text, "{}\n", totals(findings));
    }
    for outcome in &findings.outcomes {
        let verdict = if outcome.off.is_none() { "shows" } else { "DOES NOT SHOW" };
        let _ = writeln!(text, "{}: {verdict}\n  {}", outcome.name, outcome.claim);
        if let Some(off) = &outcome.off {
            let _ = writeln!(text, "  {off}");
        }
    }
    text
}

fn points(findings: &Findings) -> Table {
    let experiment = &findings.experiment;
    let mut heading = vec![experiment.axis, "system"];
    heading.extend(experiment.columns);
    let mut table = Table::new(&heading);
    let mut systems: Vec<&str> = Vec::new();
    for point in &findings.series.points {
        if !systems.contains(&point.system) {
            systems.push(point.system);
        }
    }
    let shown = systems.into_iter().flat_map(|system| {
        let points: Vec<_> = findings.series.along(system).collect();
        let each = points.len().div_ceil(ROWS_MAX).max(1);
        points.chunks(each).map(greatest).collect::<Vec<_>>()
    });
    let mut shown: Vec<_> = shown.collect();
    shown.sort_by(|a, b| a.at.total_cmp(&b.at));
    for point in shown {
        let mut cells = vec![number(Some(point.at)), point.system.to_owned()];
        let value = |name: &&str| point.metrics.get(*name).copied();
        cells.extend(experiment.columns.iter().map(|name| number(value(name))));
        table.row(cells);
    }
    table
}

/// One point for several: the first's place, the greatest of each metric.
fn greatest(points: &[&Point]) -> Point {
    let mut metrics: BTreeMap<String, f64> = BTreeMap::new();
    for (name, value) in points.iter().flat_map(|point| &point.metrics) {
        let most = metrics.entry(name.clone()).or_insert(f64::MIN);
        *most = most.max(*value);
    }
    let first = points.first();
    let (system, at) = first.map_or(("", 0.0), |point| (point.system, point.at));
    Point { system, at, metrics, ..Point::default() }
}

fn totals(findings: &Findings) -> Table {
    let totals = &findings.series.totals;
    let mut heading = vec!["whole runs"];
    heading.extend(totals.keys());
    let mut table = Table::new(&heading);
    let first = totals.values().next();
    for name in first.into_iter().flat_map(|point| point.metrics.keys()) {
        let mut cells = vec![name.clone()];
        cells.extend(totals.values().map(|point| number(point.metrics.get(name).copied())));
        table.row(cells);
    }
    table
}

/// Three digits that count.
fn number(value: Option<f64>) -> String {
    let Some(value) = value else { return "-".to_owned() };
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 100.0 => indicatif::HumanCount(value.max(0.0).round() as u64).to_string(),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_experiments::experiment::{Experiment, Outcome, Series};
    use esker_experiments::measure::scale::Scale;

    fn findings(points: usize) -> Findings {
        let mut series = Series::default();
        for place in 0..points {
            let longest = if place == 1 { 900.0 } else { 3.0 };
            let metrics = [("longest_us".to_owned(), longest)];
            series.add("FC", place as f64, metrics.into_iter().collect());
        }
        series.add_total("FC", [("merges".to_owned(), 7.0)].into_iter().collect());
        Findings {
            experiment: Experiment::named("stall").unwrap(),
            scale: Scale::Tiny,
            series,
            settings: serde_json::json!({}),
            outcomes: vec![
                Outcome { name: "a", claim: "it is", off: None },
                Outcome { name: "b", claim: "it is so", off: Some("it is not".to_owned()) },
            ],
        }
    }

    #[test]
    fn points_totals_and_verdicts_are_printed() {
        let text = text(&findings(3));
        let words: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(words.contains(&vec!["1.00", "FC", "900"]), "{text}");
        assert!(words.contains(&vec!["merges", "7.00"]), "{text}");
        assert!(text.contains("a: shows\n") && text.contains("b: DOES NOT SHOW\n"), "{text}");
        assert!(text.ends_with("  it is so\n  it is not\n"), "{text}");
    }

    #[test]
    fn a_long_series_is_shown_in_few_rows_with_its_peaks() {
        let text = text(&findings(1000));
        assert!(text.lines().count() < 50, "{text}");
        assert!(text.contains(" 900"), "{text}");
    }
}
