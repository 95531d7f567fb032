//! A tick as a view for a terminal, as a line, and as an object. The tables of keyspaces and of
//! levels are those of `stats`.

use std::time::Duration;

use esker::Stats;
use esker_terminal::exit::one_line;
use esker_terminal::table::Table;
use serde_json::{Value, json};

use super::super::stats::{bytes, content_as_json, count, keyspaces_table, levels_table};
use super::tick::{Rates, Tick};

const UNKNOWN: &str = "-";

/// All that is known, for a terminal.
pub(super) fn view(title: &str, tick: &Tick, rates: Option<&Rates>) -> String {
    let stats = shown(&tick.stats);
    let tables = [figures(title, tick, rates), keyspaces_table(&stats), levels_table(&stats)];
    let texts = tables.iter().filter(|table| !table.is_empty()).map(ToString::to_string);
    texts.collect::<Vec<_>>().join("\n\n")
}

fn figures(title: &str, tick: &Tick, rates: Option<&Rates>) -> Table {
    let space = &tick.stats.space;
    let mut table = Table::new(&[&one_line(title), "now", "a second"]);
    let mut row = |name: &str, now: String, rate: String| table.row([name.to_owned(), now, rate]);
    row("operations", count(tick.version), operations_rate(rates));
    row("  not visible yet", behind(tick), String::new());
    match tick.caught_up_in {
        Some(length) => row("caught up in", time(length), String::new()),
        None => row("caught up last", format!("{} ago", since(tick)), String::new()),
    }
    row("data file", bytes(space.data_file_bytes), growth(rates.map(|rates| rates.data_bytes)));
    row("  allocated", bytes(space.allocated_bytes), String::new());
    row("  free", bytes(space.free_bytes), String::new());
    row("log", bytes(space.log_bytes), growth(rates.map(|rates| rates.log_bytes)));
    table
}

/// The most important figures.
pub(super) fn line(tick: &Tick, rates: Option<&Rates>) -> String {
    let space = &tick.stats.space;
    let late = match tick.caught_up_in {
        Some(_) => String::new(),
        None => format!(", caught up {} ago", since(tick)),
    };
    format!(
        "{} operations, {}/s, {} not visible yet{late}; data {}, {}/s; log {}, {}/s",
        count(tick.version),
        operations_rate(rates),
        behind(tick),
        bytes(space.data_file_bytes),
        growth(rates.map(|rates| rates.data_bytes)),
        bytes(space.log_bytes),
        growth(rates.map(|rates| rates.log_bytes)),
    )
}

pub(super) fn as_json(tick: &Tick, rates: Option<&Rates>) -> Value {
    let space = &tick.stats.space;
    let lag = tick.lag.map(|lag| {
        json!({
            "operations": lag.operations,
            "seconds_since_refresh": lag.since_refresh.as_secs_f64(),
        })
    });
    json!({
        "version": tick.version,
        "lag": lag,
        "refresh_seconds": tick.caught_up_in.map(|length| length.as_secs_f64()),
        "seconds": rates.map(|rates| rates.seconds),
        "per_second": {
            "operations": rates.map(|rates| rates.operations),
            "data_file_bytes": rates.map(|rates| rates.data_bytes),
            "log_bytes": rates.map(|rates| rates.log_bytes),
        },
        "space": {
            "data_file_bytes": space.data_file_bytes,
            "allocated_bytes": space.allocated_bytes,
            "free_bytes": space.free_bytes,
            "log_bytes": space.log_bytes,
        },
        "keyspaces": tick.stats.keyspaces.iter().map(content_as_json).collect::<Vec<_>>(),
    })
}

/// The same with names that are safe on any terminal.
fn shown(stats: &Stats) -> Stats {
    let mut stats = stats.clone();
    for keyspace in &mut stats.keyspaces {
        keyspace.name = one_line(&keyspace.name);
    }
    stats
}

fn behind(tick: &Tick) -> String {
    let operations = tick.lag.and_then(|lag| lag.operations);
    operations.map_or_else(|| UNKNOWN.to_owned(), count)
}

/// The time since it has caught up.
fn since(tick: &Tick) -> String {
    tick.lag.map_or_else(|| UNKNOWN.to_owned(), |lag| time(lag.since_refresh))
}

fn operations_rate(rates: Option<&Rates>) -> String {
    rates.map_or_else(|| UNKNOWN.to_owned(), |rates| count(rates.operations.round() as u64))
}

/// Bytes with their sign.
fn growth(rate: Option<f64>) -> String {
    let Some(rate) = rate else { return UNKNOWN.to_owned() };
    let sign = if rate < 0.0 { "-" } else { "+" };
    format!("{sign}{}", bytes(rate.abs().round() as u64))
}

fn time(length: Duration) -> String {
    format!("{length:.1?}")
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use esker::KeyspaceStats;

    use super::*;

    const RATES: Rates =
        Rates { seconds: 1.0, operations: 1234.4, data_bytes: -2048.0, log_bytes: 0.0 };

    #[test]
    fn a_line_has_rates_where_they_are_known() {
        let tick = Tick::sample(Instant::now(), 0, 5000);
        assert_eq!(
            line(&tick, None),
            "5,000 operations, -/s, - not visible yet; data 1.00 MiB, -/s; log 4.88 MiB, -/s"
        );
        let mut late = tick.clone();
        late.caught_up_in = None;
        assert!(line(&late, None).contains("- not visible yet, caught up - ago; data "));
        let text = line(&tick, Some(&RATES));
        assert!(text.starts_with("5,000 operations, 1,234/s, "), "{text}");
        assert!(text.contains("data 1.00 MiB, -2.00 KiB/s; log 4.88 MiB, +0 B/s"), "{text}");
    }

    #[test]
    fn names_drive_no_terminal() {
        let mut tick = Tick::sample(Instant::now(), 0, 7);
        let mut keyspace = KeyspaceStats::default();
        keyspace.name = "a\u{1b}[2Jb".to_owned();
        tick.stats.keyspaces.push(keyspace);
        let text = view("a\nb", &tick, Some(&RATES));
        assert!(!text.contains('\u{1b}') && text.starts_with("a\\nb "), "{text}");
        assert!(text.contains("\nkeyspace ") && text.contains("-2.00 KiB"), "{text}");
    }
}
