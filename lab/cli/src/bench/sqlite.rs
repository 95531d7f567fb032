//! `bench sqlite`: SQLite over the page store, compared with SQLite's own journal modes.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use esker_experiments::sqlite::mode::Mode;
use esker_experiments::sqlite::probe::Probe;
use esker_experiments::sqlite::{self, Plan, Workload};
use esker_lab_result::Findings;
use esker_terminal::exit::Failure;
use esker_terminal::output::Output;
use esker_terminal::progress;
use esker_terminal::signals::Interrupt;
use esker_terminal::table::Table;

use super::{folder, hear, keep, this_program, verdict};
use crate::measuring::{failure, known};

pub(super) const HELP: &str = "\
Measure SQLite over the page store, compared with SQLite's own journal modes

The same SQLite, linked in, on both sides. Modes take turns, each with a copy of one filled
database; afterwards each database is checked, by TPC-C's consistency conditions and by SQLite.

  esker          the VFS over the page store, each commit durable; processes share the database
  esker-one      the same with processes=one: one process has the database to itself
  esker-relaxed  the same with synchronous=NORMAL: durable soon, in order
  wal            journal_mode=WAL, synchronous=FULL: each commit durable
  wal-normal     journal_mode=WAL, synchronous=NORMAL: durable at checkpoints
  delete         journal_mode=DELETE, synchronous=FULL: SQLite's default

NOTPM are New-Order transactions committed in a minute, without think time. Latencies are those of
COMMIT alone, of transactions that write. KiB a transaction are bytes passed to calls that write,
logs, checkpoints and growing included, over committed transactions that write. Refused are
transactions and reads that found the database busy and waited for 5 seconds in vain; waits are
sleeps before. The page cache of the system serves all modes; each connection caches as much as
SQLite does by default.";

/// What can be typed after `bench sqlite`.
#[derive(Debug, Args)]
pub(crate) struct Sqlite {
    /// These modes, separated by commas
    #[arg(long, value_name = "MODES", value_delimiter = ',', value_parser = mode,
          default_value = "esker,wal,delete")]
    mode: Vec<Mode>,
    /// Workload
    #[arg(long, value_enum, default_value = "tpcc")]
    workload: WorkloadName,
    /// Number of rows; a warehouse has about 100 MB at the full scale
    #[arg(long, value_enum, default_value = "full")]
    scale: ScaleName,
    /// Measured time of each run of TPC-C
    #[arg(long, value_name = "SECONDS", default_value = "30",
          value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: u32,
    /// Warm-up of each run of TPC-C
    #[arg(long, value_name = "SECONDS", default_value = "5",
          value_parser = clap::value_parser!(u32).range(0..=86_400))]
    warmup: u32,
    /// Threads that run TPC-C transactions, each with a connection; of each process
    #[arg(long, value_name = "N", default_value = "1",
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    workers: u32,
    /// Processes that run TPC-C transactions, with --workers threads each; 0 is this process
    #[arg(long, value_name = "N", default_value = "0",
          value_parser = clap::value_parser!(u32).range(0..=64))]
    processes: u32,
    /// Further processes that read a table of one row, each --readers times a second
    #[arg(long, value_name = "N", default_value = "0",
          value_parser = clap::value_parser!(u32).range(0..=64))]
    reader_processes: u32,
    /// Kill one of these processes N times, at random, start another one for it, and check TPC-C's
    /// conditions each time
    #[arg(long, value_name = "N", default_value = "0", requires = "processes",
          value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    kills: u32,
    /// Reads per second of a table of one row, by another connection
    #[arg(long, value_name = "N", default_value = "10",
          value_parser = clap::value_parser!(u32).range(0..=100_000))]
    readers: u32,
    /// Hold a snapshot of the initial state during TPC-C
    #[arg(long)]
    held_reader: bool,
    /// Warehouses of TPC-C
    #[arg(long, value_name = "N", default_value = "1",
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    warehouses: u32,
    /// Number of rounds in which the modes alternate
    #[arg(long, value_name = "N", default_value = "1",
          value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// Cache of each connection; 2 is SQLite's default
    #[arg(long, value_name = "MIB", default_value = "2",
          value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    cache: u32,
    /// Seed of the random numbers
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    /// Folder of the databases, which are removed at the end [default: a temporary folder]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Omit the comparison with targets, which a short run cannot judge
    #[arg(long)]
    no_bars: bool,
    /// Write all measurements to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// A process of a run, started by another process of this command
    #[arg(long, hide = true, value_name = "TASK", exclusive = true)]
    child: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum WorkloadName {
    /// TPC-C with all five transactions
    Tpcc,
    /// The thirteen steps of SQLite's speed test
    Rl,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ScaleName {
    /// A test that everything runs
    Small,
    /// The sizes of TPC-C and of the speed test
    Full,
}

fn mode(name: &str) -> Result<Mode, String> {
    known(Mode::parse(name), "modes", Mode::ALL.into_iter().map(Mode::as_str))
}

pub(super) fn run(args: &Sqlite) -> Result<(), Failure> {
    if let Some(task) = &args.child {
        return sqlite::processes::main(task).map_err(failure);
    }
    let interrupt = Interrupt::install()?;
    let place = folder(args.dir.as_deref())?;
    let plan = Plan {
        modes: args.mode.clone(),
        workload: match args.workload {
            WorkloadName::Tpcc => Workload::Tpcc,
            WorkloadName::Rl => Workload::Rl,
        },
        is_small: args.scale == ScaleName::Small,
        warehouses: args.warehouses,
        workers: args.workers,
        processes: args.processes,
        reader_processes: args.reader_processes,
        kills: args.kills,
        program: Some(this_program(&["bench", "sqlite", "--child"])?),
        readers: args.readers,
        held_reader: args.held_reader,
        warmup: Duration::from_secs(args.warmup.into()),
        duration: Duration::from_secs(args.seconds.into()),
        rounds: args.repeat,
        cache_mib: args.cache,
        seed: args.seed,
        folder: place.path().to_owned(),
    };
    let bar = progress::bar(Some(100), "{msg:<40} {wide_bar} {percent:>3} %  {elapsed}");
    let found = sqlite::run(&plan, &mut |event| {
        hear(&bar, event);
        !interrupt.requested()
    });
    bar.finish_and_clear();
    let mut found = found.map_err(failure)?;
    keep(args.json.as_deref(), &mut found)?;
    let mut output = Output::new();
    output.line(&table(&plan, &found).to_string())?;
    output.line("")?;
    for line in rates(&plan, &found) {
        output.line(&line)?;
    }
    output.line("")?;
    output.line(&disk(&found))?;
    for bar in found.verdicts.iter().filter(|_| !args.no_bars) {
        output.line(&verdict(bar))?;
    }
    output.flush()
}

/// A column: its heading, the metric, what one unit of it is, and digits behind the point.
type Column = (&'static str, &'static str, f64, usize);

const COLUMNS: [Column; 11] = [
    ("commits/s", "commits_per_second", 1.0, 0),
    ("p50 ms", "commit_p50_micros", 1e3, 3),
    ("p99 ms", "commit_p99_micros", 1e3, 3),
    ("max ms", "commit_max_micros", 1e3, 1),
    ("KiB/tx", "bytes_written_per_transaction", 1024.0, 1),
    ("syncs/tx", "syncs_per_transaction", 1.0, 3),
    ("refused", "writer_busy", 1.0, 0),
    ("waits", "writer_waits", 1.0, 0),
    ("reads refused", "reader_busy", 1.0, 0),
    ("waits", "reader_waits", 1.0, 0),
    ("MiB at most", "file_peak_bytes", 1_048_576.0, 0),
];

fn table(plan: &Plan, found: &Findings) -> Table {
    let first = match plan.workload {
        Workload::Tpcc => ("NOTPM", "notpm", 1.0, 0),
        Workload::Rl => ("seconds", "seconds", 1.0, 2),
    };
    let columns = || [first].into_iter().chain(COLUMNS);
    let heading: Vec<&str> = ["mode"].into_iter().chain(columns().map(|column| column.0)).collect();
    let mut table = Table::new(&heading);
    for mode in &plan.modes {
        let cell = |(_, metric, unit, digits): Column| {
            let value = found.whole().median(mode.as_str(), metric);
            value.map_or_else(|| "-".to_owned(), |value| format!("{:.digits$}", value / unit))
        };
        table.row([mode.as_str().to_owned()].into_iter().chain(columns().map(cell)));
    }
    table
}

/// Columns of the longest bar.
const WIDTH: f64 = 50.0;

/// The rate of each mode, as a bar.
fn rates(plan: &Plan, found: &Findings) -> Vec<String> {
    let (metric, unit) = match plan.workload {
        Workload::Tpcc => ("notpm", "New-Orders a minute"),
        Workload::Rl => ("commits_per_second", "commits a second"),
    };
    let modes = &plan.modes;
    let rate = |mode: &Mode| found.whole().median(mode.as_str(), metric).unwrap_or(0.0);
    let most = modes.iter().map(rate).fold(1e-9, f64::max);
    let line = |mode: &Mode| {
        let (name, rate) = (mode.as_str(), rate(mode));
        let bar = "█".repeat((rate / most * WIDTH).round() as usize);
        format!("{name:<14}{bar} {rate:.0} {unit}")
    };
    modes.iter().map(line).collect()
}

fn disk(found: &Findings) -> String {
    let probe = Probe::of(found);
    format!(
        "4 KiB and fdatasync here: {:.0} us where the file grows, {:.0} us over written blocks \
         ({:.1} times)",
        probe.growing_micros,
        probe.rewriting_micros,
        probe.ratio()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_mode_lists_the_known_ones() {
        assert_eq!(mode("wal-normal"), Ok(Mode::WalNormal));
        assert!(mode("off").unwrap_err().contains("esker-relaxed"));
    }
}
