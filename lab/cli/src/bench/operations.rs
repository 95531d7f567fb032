//! `bench operations`: what transactions, compression, backups, a queue, large values and counters
//! cost.

use std::path::PathBuf;

use clap::Args;
use esker::IndexKind;
use esker_experiments::operations::{self, Case, Plan};
use esker_lab_result::Part;
use esker_terminal::exit::Failure;
use esker_terminal::kind::index_kind;
use esker_terminal::output::Output;
use esker_terminal::signals::Interrupt;
use esker_terminal::table::Table;

use super::{folder, keep, verdict};
use crate::measuring::{failure, known};

/// What can be typed after `bench operations`.
#[derive(Debug, Args)]
pub(crate) struct Operations {
    /// Only these cases, separated by commas: transaction, compression, backup, queue,
    /// large, counter
    #[arg(long, value_name = "CASES", value_delimiter = ',', value_parser = case)]
    case: Vec<Case>,
    /// Entries of 16 + 100 bytes that a store is loaded with
    #[arg(long, value_name = "N", default_value = "500000",
          value_parser = clap::value_parser!(u64).range(1_000..=1_000_000_000))]
    entries: u64,
    /// Memory budget of every store
    #[arg(long, value_name = "MIB", default_value = "16",
          value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    memory: u32,
    /// Index kind of every keyspace [default: fdtree]
    #[arg(long, value_name = "KIND", value_parser = index_kind())]
    index: Option<IndexKind>,
    /// Number of rounds in which the methods alternate
    #[arg(long, value_name = "N", default_value = "3",
          value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// Folder of the stores, which are removed at the end [default: a temporary folder]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Write all measurements to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn case(name: &str) -> Result<Case, String> {
    known(Case::parse(name), "cases", Case::ALL.into_iter().map(Case::as_str))
}

pub(super) fn run(args: &Operations) -> Result<(), Failure> {
    let interrupt = Interrupt::install()?;
    let place = folder(args.dir.as_deref())?;
    let plan = Plan {
        cases: if args.case.is_empty() { Case::ALL.to_vec() } else { args.case.clone() },
        entries: args.entries,
        budget_bytes: u64::from(args.memory) << 20,
        index: args.index.unwrap_or_default(),
        rounds: args.repeat,
        folder: place.path().to_owned(),
    };
    let found = operations::run(&plan, &mut |line| {
        eprintln!("esker: {line}");
        !interrupt.requested()
    });
    let mut found = found.map_err(failure)?;
    keep(args.json.as_deref(), &mut found)?;
    let mut output = Output::new();
    for case in &plan.cases {
        let name = case.as_str();
        output.line(&format!("{name}: {}", case.title()))?;
        output.line(&table(found.part(name)).to_string())?;
        for bar in found.verdicts.iter().filter(|bar| bar.part.as_deref() == Some(name)) {
            output.line(&verdict(bar))?;
        }
        output.line("")?;
    }
    output.flush()
}

/// A line a way, a column a metric that any of them has.
fn table(found: Part<'_>) -> Table {
    let mut metrics: Vec<&str> = Vec::new();
    for name in found.measured().flat_map(|way| &way.runs).flat_map(|run| run.keys()) {
        if !metrics.contains(&name.as_str()) {
            metrics.push(name);
        }
    }
    let headings: Vec<String> = metrics.iter().map(|metric| heading(metric)).collect();
    let headings = ["way"].into_iter().chain(headings.iter().map(String::as_str));
    let mut table = Table::new(&headings.collect::<Vec<_>>());
    for way in found.measured().map(|of| &of.system) {
        let cells = metrics.iter().map(|metric| cell(metric, found.median(way, metric)));
        table.row([way.clone()].into_iter().chain(cells));
    }
    table
}

const MIB: f64 = 1_048_576.0;

fn heading(metric: &str) -> String {
    match metric.rsplit_once('_') {
        Some((what, "bytes")) => format!("{what}, MiB"),
        Some((what, "us")) => format!("{what}, us"),
        Some((what, "rate")) => format!("{what}/s"),
        _ => metric.replace('_', " "),
    }
}

fn cell(metric: &str, value: Option<f64>) -> String {
    let Some(value) = value else { return "-".to_owned() };
    match metric.rsplit_once('_') {
        Some((_, "bytes")) => format!("{:.1}", value / MIB),
        Some((_, "rate")) => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_come_from_the_names() {
        assert_eq!((heading("read_bytes"), cell("read_bytes", Some(MIB))), {
            ("read, MiB".to_owned(), "1.0".to_owned())
        });
        assert_eq!(heading("load_rate"), "load/s");
        assert_eq!(cell("load_rate", Some(1234.5)), "1234");
        assert_eq!(cell("commit_us", Some(1.234)), "1.23");
        assert_eq!(cell("commit_us", None), "-");
        assert!(case("lz4").unwrap_err().contains("compression"));
    }
}
