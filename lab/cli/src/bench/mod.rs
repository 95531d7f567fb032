//! `bench`: the comparison of `esker-experiments`, from the terminal.
//!
//! `watch` shows how far it is, `table` prints what came out. The process that this command
//! starts for each run is this command again, with `--child`.

mod history;
mod media;
mod operations;
mod permute;
mod sqlite;
mod table;
mod watch;

use std::fs;
use std::io::{self, IsTerminal, stderr};
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};
use esker::{Compaction, CompactionPolicy, IndexKind};
use esker_experiments::progress::Event;
use esker_experiments::stores::bench::{self, Plan, Program};
use esker_experiments::stores::child;
use esker_experiments::stores::rows::Row;
use esker_experiments::stores::sizes::Scale;
use esker_experiments::{Arrangement, Name};
use esker_lab_result::{Findings, Sense, Verdict};
use esker_terminal::exit::Failure;
use esker_terminal::kind::index_kind;
use esker_terminal::output::Output;
use esker_terminal::signals::Interrupt;
use indicatif::ProgressBar;

use self::watch::Watcher;
use crate::live;
use crate::measuring::{failure, known, write};

pub(crate) const HELP: &str = "\
Run benchmarks, also of other stores, and compare with targets

Each run has its own process and folder, and a control group that limits its memory including the
page cache, if the system permits. Runs of the systems alternate. At the full scale each system
needs about 4 GB.

Rows: load, lookups, scans, long-scans, hot-scans, ycsb, ycsb-1000, writers, open-loop, removals,
durable, merge, merge-space, overwrite, mix, values-1000, values-4000, sequential, moving-normal,
compact, reopen.

Systems: esker, and with the feature `peers` rocksdb (leveled compaction, two write buffers of a
quarter of the budget), rocksdb-eighths (four of an eighth), rocksdb-universal and
rocksdb-universal-eighths (the same with universal compaction), fjall, redb. Targets are compared
with the better of rocksdb and rocksdb-eighths, of those that are measured, and some with the best
of all four.

With --media, Esker's files are on a simulated SSD, and each row also shows what the flash did:
bytes that the store wrote, times the write amplification of the device, erases and wear.";

/// What can be typed after `bench`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Bench {
    #[command(subcommand)]
    what: Option<What>,
    /// Also measure the other stores of this build (feature `peers`)
    #[arg(long)]
    peers: bool,
    /// Sizes; the targets are for `full`, which takes one to two hours with four systems
    #[arg(long, value_enum, default_value = "small")]
    scale: ScaleName,
    /// Only these rows, separated by commas
    #[arg(long, value_name = "ROWS", value_delimiter = ',', value_parser = row)]
    rows: Vec<Row>,
    /// Only these systems, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = system)]
    systems: Vec<Name>,
    /// Index kind of Esker's keyspaces, also with `--live` [default: fdtree]
    #[arg(long, value_name = "KIND", value_parser = index_kind())]
    index: Option<IndexKind>,
    /// Compaction policy of LSM indexes [default: pull]
    #[arg(long, value_name = "POLICY", value_parser = policy(), conflicts_with = "live")]
    policy: Option<CompactionPolicy>,
    #[command(flatten)]
    media: media::Args,
    /// Write all measurements to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Folder of the stores, which are removed at the end [default: a temporary folder]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Writes per second during a full compaction [default: 70 % of RocksDB's load rate,
    /// leveled, with the write buffers that load faster]
    #[arg(long, value_name = "PER_SECOND", value_parser = rate)]
    rate: Option<f64>,
    /// Number of runs of each row and system [default: 1 to 7, by row and scale]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: Option<u32>,
    /// Draw a running store on the terminal instead of measuring; q quits
    ///
    /// Loads random entries into a temporary store, then overwrites and reads them during
    /// compaction for half a minute, or for 10 seconds if loading takes longer.
    #[arg(long, conflicts_with_all = [
        "peers", "scale", "rows", "systems", "media", "json", "dir", "rate", "repeat",
    ])]
    live: bool,
    /// With `--live`: entries of 16 + 100 bytes
    #[arg(long, value_name = "N", requires = "live", default_value = "1000000",
          value_parser = clap::value_parser!(u64).range(1..=10_000_000_000))]
    entries: u64,
    /// With `--live`: memory budget of the store
    #[arg(long, value_name = "MIB", requires = "live", default_value = "16",
          value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    memory: u32,
    /// One run, asked for by another process of this command
    #[arg(long, hide = true, value_name = "TASK", exclusive = true)]
    child: Option<String>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Measure keyspaces with history, compared with other ways of keeping every version
    #[command(long_about = history::HELP)]
    History(history::History),
    /// Measure transactions, compression, backups, a queue, large values and counters
    Operations(operations::Operations),
    /// Measure rearranging arrays, compared with copies and other methods
    Permute(permute::Permute),
    /// Measure SQLite over the page store, compared with SQLite's journal modes
    #[command(long_about = sqlite::HELP)]
    Sqlite(sqlite::Sqlite),
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ScaleName {
    /// A test that everything runs
    #[value(hide = true)]
    Tiny,
    /// 200,000 entries, 4 MiB of memory
    Small,
    /// 1 million entries, 16 MiB of memory
    Medium,
    /// 8 million entries, 32 MiB of memory
    LowMemory,
    /// 5 million entries, 64 MiB of memory
    Full,
}

impl From<ScaleName> for Scale {
    fn from(name: ScaleName) -> Self {
        match name {
            ScaleName::Tiny => Self::Tiny,
            ScaleName::Small => Self::Small,
            ScaleName::Medium => Self::Medium,
            ScaleName::LowMemory => Self::LowMemory,
            ScaleName::Full => Self::Full,
        }
    }
}

fn row(name: &str) -> Result<Row, String> {
    known(Row::parse(name), "rows", Row::ALL.into_iter().map(Row::as_str))
}

fn system(name: &str) -> Result<Name, String> {
    let built = |system: &Name| system.is_built();
    Name::parse(name).filter(built).ok_or_else(|| {
        let names: Vec<_> = Name::ALL.into_iter().filter(built).map(Name::as_str).collect();
        format!("this program has {}; `--features peers` builds the others in", names.join(", "))
    })
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| (1.0..=1e7).contains(rate));
    rate.ok_or_else(|| "a rate is 1 to 10,000,000 a second".to_owned())
}

pub(crate) fn run(args: &Bench) -> Result<(), Failure> {
    match &args.what {
        Some(What::History(args)) => return history::run(args),
        Some(What::Operations(args)) => return operations::run(args),
        Some(What::Permute(args)) => return permute::run(args),
        Some(What::Sqlite(args)) => return sqlite::run(args),
        None => {}
    }
    if let Some(task) = &args.child {
        return child::main(task).map_err(failure);
    }
    let index = args.index.unwrap_or_default();
    if args.live {
        let memory_bytes = u64::from(args.memory) << 20;
        let plan = live::bench::Plan { entries: args.entries, memory_bytes, index };
        return live::bench::run(plan);
    }
    let systems = systems(args)?;
    let policy = policy_of(args.policy, index)?;
    let media = args.media.media(&systems)?;
    let interrupt = Interrupt::install()?;
    // Inside the chosen folder, so that nothing of the user's is ever removed.
    let place = folder(args.dir.as_deref())?;
    let plan = Plan {
        scale: args.scale.into(),
        rows: if args.rows.is_empty() { Row::ALL.to_vec() } else { args.rows.clone() },
        systems,
        arrangement: Arrangement { index, policy },
        media,
        folder: place.path().to_owned(),
        rate: args.rate,
        repeats: args.repeat,
        program: this_program(&["bench", "--child"])?,
    };
    let mut found = bench::bench(&plan, &mut Watcher::new(interrupt)).map_err(failure)?;
    keep(args.json.as_deref(), &mut found)?;
    print(&found)?;
    let failed = found.failures().next();
    match failed {
        Some(line) => Err(Failure::System { what: "measure", source: io::Error::other(line) }),
        None => Ok(()),
    }
}

/// The policies by their names, which help and completions show.
fn policy() -> impl TypedValueParser<Value = CompactionPolicy> {
    PossibleValuesParser::new(CompactionPolicy::ALL.map(CompactionPolicy::name))
        .try_map(|name| name.parse::<Compaction>().map(|merging| merging.policy()))
}

/// The policy that was asked for, which an FD+tree has none of.
fn policy_of(
    asked: Option<CompactionPolicy>,
    index: IndexKind,
) -> Result<CompactionPolicy, Failure> {
    match asked {
        Some(policy) if index != IndexKind::Lsm => {
            let what = format!("--policy {policy} is for LSM indexes: say --index lsm, too");
            Err(Failure::Input(what))
        }
        asked => Ok(asked.unwrap_or_default()),
    }
}

/// Writes everything measured to the file that was asked for, if one was.
fn keep(path: Option<&Path>, found: &mut Findings) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    found.command = command_line(std::env::args().skip(1));
    write(path, found)
}

/// The command that measures the same again: its arguments without places of files.
fn command_line(arguments: impl Iterator<Item = String>) -> String {
    let mut line = "esker".to_owned();
    let mut arguments = arguments.peekable();
    while let Some(argument) = arguments.next() {
        let name = argument.split('=').next().unwrap_or_default();
        if !["--json", "--dir"].contains(&name) {
            line.push(' ');
            line.push_str(&argument);
        } else if name == argument {
            arguments.next();
        }
    }
    line
}

fn systems(args: &Bench) -> Result<Vec<Name>, Failure> {
    let built: Vec<Name> = Name::ALL.into_iter().filter(|system| system.is_built()).collect();
    if !args.systems.is_empty() {
        let chosen = |system: &Name| args.systems.contains(system);
        return Ok(built.into_iter().filter(chosen).collect());
    }
    if !args.peers {
        return Ok(vec![Name::Esker]);
    }
    if built.len() == 1 {
        let text = "no peers are built in: build with `--features peers`, as \
                    lab/peers/README.md tells";
        return Err(Failure::Input(text.to_owned()));
    }
    Ok(built)
}

fn folder(wanted: Option<&Path>) -> Result<tempfile::TempDir, Failure> {
    let refused = |source| Failure::System { what: "make a folder for the stores", source };
    let mut builder = tempfile::Builder::new();
    builder.prefix("esker-bench-");
    match wanted {
        None => builder.tempdir().map_err(refused),
        Some(path) => {
            fs::create_dir_all(path).map_err(refused)?;
            builder.tempdir_in(path).map_err(refused)
        }
    }
}

/// This program with arguments before the task of a process.
fn this_program(arguments: &[&str]) -> Result<Program, Failure> {
    let path = std::env::current_exe()
        .map_err(|source| Failure::System { what: "find this program's file", source })?;
    Ok(Program { path, arguments: arguments.iter().map(ToString::to_string).collect() })
}

fn print(found: &Findings) -> Result<(), Failure> {
    let mut output = Output::new();
    output.bytes(table::text(found).as_bytes())?;
    output.flush()
}

/// Shows how far a comparison is.
fn hear(bar: &ProgressBar, event: Event<'_>) {
    match event {
        Event::Progress(what, part) => {
            if bar.message() != what {
                bar.reset();
                bar.set_message(what.to_owned());
            }
            bar.set_position((part * 100.0) as u64);
        }
        Event::Done(line) if stderr().is_terminal() => bar.suspend(|| eprintln!("esker: {line}")),
        Event::Done(line) => eprintln!("esker: {line}"),
    }
}

/// A bar as a line.
fn verdict(bar: &Verdict) -> String {
    let side = bar.bound.as_ref().map_or(Sense::AtMost, |bound| bound.sense).as_str();
    let limit = bar.bound.as_ref().and_then(|bound| bound.limit);
    let limit = limit.map_or_else(|| "-".to_owned(), |limit| limit.to_string());
    let value = bar.value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
    format!("{:<46}{value:>7}  must be {side} {limit}  {}", bar.name, bar.outcome.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_a_line() {
        let bar = verdict(&Verdict::at_least("x over y", Some(2.0), 1.5));
        assert!(bar.ends_with("2.00  must be at least 1.5  met"), "{bar}");
        let bar = verdict(&Verdict::at_least("x over y", None, 1.5));
        assert!(bar.ends_with("-  must be at least 1.5  unknown"), "{bar}");
    }

    #[test]
    fn a_command_has_no_places_of_files() {
        let typed = ["bench", "--json", "a.json", "--rows=load", "--dir=b", "--repeat", "3"];
        let line = command_line(typed.iter().map(ToString::to_string));
        assert_eq!(line, "esker bench --rows=load --repeat 3");
    }
}
