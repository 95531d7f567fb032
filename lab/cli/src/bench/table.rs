//! The results of a comparison as text: the targets first, then every row's figures side by side.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use esker_experiments::Name;
use esker_experiments::stores::rows::Row;
use esker_lab_result::{Bound, Findings, Outcome, Sense, Times, Verdict};
use esker_terminal::table::Table;
use serde_json::{Value, json};

/// The metrics that are printed, by row; the JSON has all.
const SHOWN: [(Row, &[&str]); 19] = [
    (Row::Load, &["rate", "put_rate", "written_per_byte", "peak_over_live", "resident_peak_bytes"]),
    (
        Row::Lookups,
        &["rate", "get_p50_us", "get_p999_us", "reads_per_lookup", "miss_rate", "reads_per_miss"],
    ),
    (Row::Scans, &["rate", "scan_p50_us", "scan_p999_us", "reads_per_scan"]),
    (Row::LongScans, &["rate", "scan_p50_us", "scan_p999_us", "reads_per_scan"]),
    (Row::Ycsb, &YCSB),
    (Row::Ycsb1000, &YCSB),
    (Row::Writers, &["rate_1", "rate_4", "rate_8", "put_8_p999_us"]),
    (
        Row::OpenLoop,
        &["put_p50_us", "put_p999_us", "put_max_us", "get_p50_us", "get_p999_us", "get_max_us"],
    ),
    (
        Row::Removals,
        &[
            "remove_p50_us",
            "remove_max_us",
            "apart_p50_us",
            "apart_p999_us",
            "first_p50_us",
            "first_max_us",
            "reads_per_first",
            "written_per_byte",
            "peak_over_live",
            "queue_rate",
            "queue_first_p50_us",
            "queue_first_p99_us",
        ],
    ),
    (Row::Values1000, &VALUES),
    (Row::Values4000, &VALUES),
    (Row::HotScans, &["rate", "scan_p50_us", "scan_p999_us", "written_per_byte"]),
    (
        Row::Durable,
        &["rate_1", "rate_8", "syncs_per_put_1", "syncs_per_put_8", "put_1_p50_us", "put_1_p99_us"],
    ),
    (
        Row::Merge,
        &[
            "merge_seconds",
            "put_samples",
            "put_p50_us",
            "put_p99_us",
            "put_p999_us",
            "put_max_us",
            "put_abandoned",
            "get_samples",
            "get_p50_us",
            "get_p99_us",
            "get_p999_us",
            "get_max_us",
            "control_max_us",
            "added_over_data",
        ],
    ),
    (Row::MergeSpace, &["merge_seconds", "added_over_data"]),
    (Row::Overwrite, &["rate", "written_per_byte", "peak_over_live", "merges"]),
    (Row::Mix, &["rate", "written_per_byte", "peak_over_live", "merges"]),
    (Row::Compact, &["before_over_live", "after_over_live"]),
    (Row::Reopen, &["open_seconds", "first_read_seconds", "occupied_bytes"]),
];

const YCSB: [&str; 6] = ["a_rate", "b_rate", "c_rate", "d_rate", "e_rate", "f_rate"];

const VALUES: [&str; 6] = [
    "load_written_per_byte",
    "overwrite_written_per_byte",
    "peak_over_live",
    "settled_over_live",
    "get_rate",
    "long_scan_rate",
];

/// The metrics of a simulated SSD, which every row has.
const DEVICE: [&str; 7] = [
    "device_written_bytes",
    "device_amplification",
    "device_programmed_bytes",
    "device_erases",
    "device_erases_of_block_max",
    "device_wear_spread",
    "device_used_share",
];

pub(super) fn text(found: &Findings) -> String {
    let mut text = String::new();
    let mut about: BTreeMap<&str, Value> = BTreeMap::from([("machine", json!(found.machine))]);
    about.extend(found.settings.iter().map(|(name, value)| (name.as_str(), value.clone())));
    for (name, value) in about {
        let _ = writeln!(text, "{name}: {value}");
    }
    for note in &found.notes {
        let _ = writeln!(text, "note: {note}");
    }
    let _ = writeln!(text, "\n{}", figures(found));
    if !found.verdicts.is_empty() {
        let _ = writeln!(text, "\n{}", verdicts(&found.verdicts));
    }
    for failure in found.failures() {
        let _ = writeln!(text, "failed: {failure}");
    }
    text
}

/// The rows' figures, a column a system, and how Esker's compares with those of `rocksdb`.
fn figures(found: &Findings) -> Table {
    let ran = |system: &Name| found.measured.iter().any(|of| of.system == system.as_str());
    let systems: Vec<Name> = Name::ALL.into_iter().filter(ran).collect();
    let mut heading = vec!["medians"];
    heading.extend(systems.iter().map(|system| system.as_str()));
    heading.push("to rocksdb");
    let mut table = Table::new(&heading);
    for row in Row::ALL {
        let part = found.part(row.as_str());
        let shown = SHOWN.iter().find(|(of, _)| *of == row).map_or(&[][..], |(_, shown)| *shown);
        let mut rows = Vec::new();
        for metric in shown.iter().chain(&DEVICE) {
            let value = |system: &Name| part.median(system.as_str(), metric);
            if !systems.iter().any(|system| value(system).is_some()) {
                continue;
            }
            let mut cells = vec![format!("  {metric}")];
            cells.extend(systems.iter().map(|system| number(value(system))));
            cells.push(ratio(value(&Name::Esker), value(&Name::Rocksdb)));
            rows.push(cells);
        }
        if !rows.is_empty() || (part.is_there() && !shown.is_empty()) {
            table.row([format!("{}: {}", row.as_str(), row.title())]);
            rows.into_iter().for_each(|cells| table.row(cells));
        }
    }
    table
}

fn verdicts(judged: &[Verdict]) -> Table {
    let mut table = Table::new(&["bars", "esker", "must be", "verdict"]);
    for of in judged {
        let name = format!("{}: {}", of.part.as_deref().unwrap_or_default(), of.name);
        let outcome = match of.outcome {
            Outcome::Missed => "MISSED",
            outcome => outcome.as_str(),
        };
        let must = of.bound.as_ref().map_or_else(String::new, must);
        table.row([name, number(of.value), must, outcome.to_owned()]);
    }
    table
}

fn must(bound: &Bound) -> String {
    let sense = if bound.sense == Sense::AtLeast { "≥" } else { "≤" };
    let limit = number(bound.limit);
    let Some(Times { factor, system, or_control }) = &bound.times else {
        return format!("{sense} {limit}");
    };
    let control = if *or_control { ", or the idle thread's" } else { "" };
    format!("{sense} {limit} ({factor} × {system}{control})")
}

pub(super) fn ratio(ours: Option<f64>, theirs: Option<f64>) -> String {
    match (ours, theirs) {
        (Some(ours), Some(theirs)) if theirs != 0.0 => format!("{:.2}", ours / theirs),
        _ => String::new(),
    }
}

/// Three digits that count.
pub(super) fn number(value: Option<f64>) -> String {
    let Some(value) = value else { return "-".to_owned() };
    let size = value.abs();
    if size >= 100.0 {
        grouped(value)
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else if value == 0.0 || value == 1.0 {
        format!("{value}")
    } else if size >= 0.01 {
        format!("{value:.3}")
    } else {
        format!("{value:.5}")
    }
}

/// A whole number with commas between thousands.
fn grouped(value: f64) -> String {
    indicatif::HumanCount(value.max(0.0).round() as u64).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_experiments::Arrangement;
    use esker_experiments::stores::bars::judge;
    use esker_lab_result::Metrics;

    #[test]
    fn numbers_have_three_digits_that_count() {
        let shown = [12_345.6, 99.94, 5.0624, 0.0123, 0.00012, 1.0, 0.0].map(|n| number(Some(n)));
        assert_eq!(shown, ["12,346", "99.9", "5.062", "0.012", "0.00012", "1", "0"]);
        assert_eq!(number(None), "-");
    }

    #[test]
    fn a_row_is_compared_and_judged() {
        let mut found = Findings::default();
        for (system, rate) in [("esker", 150.0), ("rocksdb", 100.0)] {
            found.add(Some("load"), system, None, Metrics::from([("rate".to_owned(), rate)]));
        }
        found.add_failure(Some("load"), "redb", "no room".to_owned());
        found.verdicts = judge(&found, Arrangement::default());
        let text = text(&found);
        let line = |begin: &str| text.lines().find(|line| line.starts_with(begin)).unwrap();
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(line("  rate")), ["rate", "150", "100", "-", "1.50"]);
        assert!(line("load: entries/s, compactions included").ends_with("met"), "{text}");
        assert!(line("load: bytes per user byte").ends_with("unknown"), "{text}");
        assert_eq!(line("failed"), "failed: load of redb: no room");
    }
}
