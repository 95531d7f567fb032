//! The results of an experiment as text: the points, then whether each expected shape appears.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use esker_experiments::experiment::{Experiment, Point, Series};
use esker_lab_result::{Findings, Outcome};
use esker_terminal::table::Table;
use serde_json::Value;

/// Longer series are shown in this many rows, each with the maximum of each metric over the points
/// that it covers.
const ROWS_MAX: usize = 24;

pub(super) fn text(experiment: &Experiment, findings: &Findings) -> String {
    let series = Series::from(findings);
    let mut text = String::new();
    let _ = writeln!(text, "{}: {} ({})", experiment.name, experiment.about, experiment.figure);
    // The scale is in the command.
    let mut settings = findings.settings.clone();
    settings.shift_remove("scale");
    let settings = Value::Object(settings);
    let _ = writeln!(text, "machine: {}\nsettings: {settings}\n", findings.machine);
    let _ = writeln!(text, "{}\n", points(experiment, &series));
    if !series.totals.is_empty() {
        let _ = writeln!(text, "{}\n", totals(&series));
    }
    for verdict in &findings.verdicts {
        let shows = if verdict.outcome == Outcome::Met { "shows" } else { "DOES NOT SHOW" };
        let _ = writeln!(text, "{}: {shows}", verdict.name);
        for line in verdict.claim.iter().chain(&verdict.why) {
            let _ = writeln!(text, "  {line}");
        }
    }
    text
}

fn points(experiment: &Experiment, series: &Series) -> Table {
    let mut heading = vec![experiment.axis, "system"];
    heading.extend(experiment.columns);
    let mut table = Table::new(&heading);
    let mut systems: Vec<&str> = Vec::new();
    for point in &series.points {
        if !systems.contains(&point.system.as_str()) {
            systems.push(&point.system);
        }
    }
    let shown = systems.into_iter().flat_map(|system| {
        let points: Vec<_> = series.along(system).collect();
        let each = points.len().div_ceil(ROWS_MAX).max(1);
        points.chunks(each).map(greatest).collect::<Vec<_>>()
    });
    let mut shown: Vec<_> = shown.collect();
    shown.sort_by(|a, b| a.at.total_cmp(&b.at));
    for point in shown {
        let mut cells = vec![number(Some(point.at)), point.system.clone()];
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
    let (system, at) = first.map_or(("", 0.0), |point| (&point.system, point.at));
    Point { system: system.to_owned(), at, metrics, ..Point::default() }
}

fn totals(series: &Series) -> Table {
    let totals = &series.totals;
    let mut heading = vec!["whole runs"];
    heading.extend(totals.keys().map(String::as_str));
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
    use esker_lab_result::Verdict;

    fn findings(points: usize) -> Findings {
        let mut series = Series::default();
        for place in 0..points {
            let longest = if place == 1 { 900.0 } else { 3.0 };
            let metrics = [("longest_us".to_owned(), longest)];
            series.add("FC", place as f64, metrics.into_iter().collect());
        }
        series.add_total("FC", [("merges".to_owned(), 7.0)].into_iter().collect());
        let mut findings = Findings::default();
        series.record(&mut findings);
        findings.verdicts = vec![
            Verdict::prediction("a", "it is", Ok(())),
            Verdict::prediction("b", "it is so", Err("it is not".to_owned())),
        ];
        findings
    }

    fn shown(points: usize) -> String {
        text(&esker_experiments::catalog::named("stall").unwrap(), &findings(points))
    }

    #[test]
    fn points_totals_and_verdicts_are_printed() {
        let text = shown(3);
        let words: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(words.contains(&vec!["1.00", "FC", "900"]), "{text}");
        assert!(words.contains(&vec!["merges", "7.00"]), "{text}");
        assert!(text.contains("a: shows\n") && text.contains("b: DOES NOT SHOW\n"), "{text}");
        assert!(text.ends_with("  it is so\n  it is not\n"), "{text}");
    }

    #[test]
    fn a_long_series_is_shown_in_few_rows_with_its_peaks() {
        let text = shown(1000);
        assert!(text.lines().count() < 50, "{text}");
        assert!(text.contains(" 900"), "{text}");
    }
}
