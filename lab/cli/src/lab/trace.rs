//! `lab trace`: what SQLite makes a host do to its device, as a trace for `esker flash sim`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use esker_experiments::flash::sqlite::trace::{Plan, Recorded, Workload, record};
use esker_experiments::machine::mode::Mode;
use esker_terminal::exit::Failure;
use esker_terminal::output::Output;
use serde_json::json;

use super::ScaleName;
use crate::measuring::failure;

pub(super) const HELP: &str = "\
Record what SQLite makes its host do to the device, as a trace

SQLite runs on a simulated machine with ext4, in virtual time: the trace has the content of files,
the file system's journal and its metadata, with their times, as blktrace would see them. The first
rows of TPC-C are not in it. The same options give the same trace, byte for byte.";

pub(super) const EXAMPLES: &str = "\
Examples:
  esker lab trace --out wal.trace --journal wal
  esker flash sim --preset jasmine --blocks 128 --trace esker:wal.trace --timed";

#[derive(Debug, Args)]
pub(super) struct Trace {
    /// File of the trace, which is replaced
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// How SQLite keeps its transactions
    #[arg(long, value_enum, default_value = "wal")]
    journal: Journal,
    /// What is run
    #[arg(long, value_enum, default_value = "tpcc")]
    workload: Kind,
    /// Sizes, as of the experiment sqlite-pages
    #[arg(long, value_enum, default_value = "small")]
    scale: ScaleName,
    /// Print what was recorded as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Journal {
    /// A rollback journal, deleted at each commit
    Delete,
    /// A write-ahead log, with a checkpoint at 1,000 pages
    Wal,
    /// The same, at 50 pages
    #[value(name = "wal-50")]
    Wal50,
    /// The page store
    Esker,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    /// TPC-C, one warehouse
    Tpcc,
    /// The steps of SQLite's speed test
    Rl,
}

pub(super) fn run(args: &Trace) -> Result<(), Failure> {
    let mode = match args.journal {
        Journal::Delete => Mode::Rbj,
        Journal::Wal => Mode::Wal1000,
        Journal::Wal50 => Mode::Wal50,
        Journal::Esker => Mode::PageStore,
    };
    let workload = match args.workload {
        Kind::Tpcc => Workload::Tpcc,
        Kind::Rl => Workload::Rl,
    };
    let plan = Plan { mode, workload, scale: args.scale.into() };
    let made = record(plan, &args.out).map_err(failure)?;
    print(args, &made)
}

fn print(args: &Trace, made: &Recorded) -> Result<(), Failure> {
    let mut output = Output::new();
    if args.json {
        output.json(&json!({
            "trace": args.out.to_string_lossy(),
            "operations": made.operations,
            "transactions": made.transactions,
            "blocks_per_transaction": made.blocks_per_transaction,
            "device_mib": made.device_mib,
        }))?;
        return output.flush();
    }
    output.line(&format!(
        "recorded {} operations of {} transactions in {}: {:.2} blocks of 4 KiB written for each, \
         on a device of {} MiB",
        made.operations,
        made.transactions,
        args.out.display(),
        made.blocks_per_transaction,
        made.device_mib,
    ))?;
    output.flush()
}
