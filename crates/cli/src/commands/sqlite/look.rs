//! The contents of a store.

use esker_pages::{Error, Report, Stats, Version};
use esker_terminal::exit::Failure;
use esker_terminal::output::Output;
use esker_terminal::table::Table;
use indicatif::{HumanBytes, HumanCount};
use serde_json::{Map, Value, json};

use super::{Look, open_read_only};

pub(super) fn check(args: &Look) -> Result<(), Failure> {
    let checked = open_read_only(&args.store).and_then(|file| Ok(file.store.check()?));
    let mut output = Output::new();
    match checked {
        Ok(report) => {
            if args.json {
                output.json(&report_json(&report))?;
            } else {
                output.line(&report_line(&report))?;
            }
            output.flush()
        }
        Err(Failure::Pages(Error::Corrupt { file, offset, what })) => {
            if args.json {
                let problem = json!({ "file": file, "offset": offset, "what": what });
                output.json(&json!({ "ok": false, "problems": [problem] }))?;
            }
            output.flush()?;
            Err(Failure::Damaged(format!("{file}@{offset}: {what}")))
        }
        Err(failure) => Err(failure),
    }
}

fn report_line(report: &Report) -> String {
    let Report { versions, pages, nodes, accounted } = report;
    let [versions, pages, nodes] = [versions, pages, nodes].map(|count| HumanCount(*count));
    let space = if *accounted { "; no space is lost" } else { "" };
    format!("ok: {pages} pages, {nodes} nodes of the map, versions: {versions}{space}")
}

fn report_json(report: &Report) -> Value {
    let mut object = Map::from_iter([("ok".to_owned(), true.into())]);
    object.extend(numbers(report.fields()));
    object.insert("accounted".to_owned(), report.accounted.into());
    object.insert("problems".to_owned(), json!([]));
    object.into()
}

/// Numbers by name, as JSON has them.
pub(super) fn numbers<const N: usize>(
    fields: [(&str, u64); N],
) -> impl Iterator<Item = (String, Value)> {
    fields.map(|(name, number)| (name.to_owned(), number.into())).into_iter()
}

pub(super) fn stats(args: &Look) -> Result<(), Failure> {
    let file = open_read_only(&args.store)?;
    let (stats, versions) = (file.store.stats(), file.store.versions());
    let mut output = Output::new();
    if args.json {
        output.json(&stats_json(&stats, &versions))?;
    } else {
        output.line(&stats_table(&stats, &versions).to_string())?;
    }
    output.flush()
}

fn stats_table(stats: &Stats, versions: &[Version]) -> Table {
    let newest = versions.last();
    let (pages, page_size) = newest.map_or((0, 0), |newest| (newest.pages, newest.page_size));
    let bytes = |count| HumanBytes(count).to_string();
    let count = |count: u64| HumanCount(count).to_string();
    let mut table = Table::new(&["store", ""]);
    for (name, value) in [
        ("file", bytes(stats.file_bytes)),
        ("  in use", bytes(stats.used_bytes)),
        ("database", bytes(u64::from(pages) * u64::from(page_size))),
        ("  pages", count(pages.into())),
        ("  bytes of a page", count(page_size.into())),
        ("allocation", stats.allocation.name().to_owned()),
        ("version", newest.map_or(0, |newest| newest.version).to_string()),
        ("versions kept", count(stats.versions)),
        ("  pages only older ones need", count(stats.held_pages)),
        ("pages that no version needs", count(stats.dead_pages)),
        ("deltas in memory", bytes(stats.delta_bytes)),
        ("log since the last checkpoint", bytes(stats.log_bytes)),
    ] {
        table.row([name.to_owned(), value]);
    }
    table
}

fn stats_json(stats: &Stats, versions: &[Version]) -> Value {
    let mut object = Map::from_iter(numbers(stats.fields()));
    object.insert("allocation".to_owned(), stats.allocation.name().into());
    object.insert("written".to_owned(), Map::from_iter(numbers(stats.written.fields())).into());
    object.insert("newest".to_owned(), versions.last().map(version_json).into());
    object.into()
}

pub(super) fn versions(args: &Look) -> Result<(), Failure> {
    let file = open_read_only(&args.store)?;
    let versions = file.store.versions();
    let mut output = Output::new();
    if args.json {
        output.json(&versions.iter().map(version_json).collect())?;
    } else {
        output.line(&versions_table(&versions).to_string())?;
    }
    output.flush()
}

fn versions_table(versions: &[Version]) -> Table {
    let mut table = Table::new(&["version", "pages", "of bytes", "only here", "names"]);
    for version in versions {
        let names = version.names.join(" ");
        let [pages, page_size] = [version.pages, version.page_size].map(u64::from);
        let counts = [pages, page_size, version.held_pages].map(|n| HumanCount(n).to_string());
        table.row([version.version.to_string()].into_iter().chain(counts).chain([names]));
    }
    table
}

fn version_json(version: &Version) -> Value {
    let mut object = Map::from_iter(numbers(version.fields()));
    object.insert("names".to_owned(), version.names.clone().into());
    object.into()
}
