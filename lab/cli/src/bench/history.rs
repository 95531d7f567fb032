//! `bench history`: ways of keeping every version of a map.

use std::io;
use std::path::PathBuf;

use clap::Args;
use esker_experiments::Way;
use esker_experiments::versions::{self, Plan};
use esker_lab_result::{Findings, Part};
use esker_terminal::exit::Failure;
use esker_terminal::output::Output;
use esker_terminal::progress;
use esker_terminal::signals::Interrupt;
use esker_terminal::table::Table;

use super::{folder, hear, keep, table};
use crate::measuring::{failure, known};

pub(super) const HELP: &str = "\
Measure keyspaces with history, compared with other ways of keeping every version

Each system inserts the keys (16 bytes, values of 100 bytes), overwrites each of them several times
in random order, and is measured when its flushes and compactions are complete. Commits are
buffered, and made durable once a second.

  plain        a keyspace without history, the base of the ratios in parentheses
  esker        a keyspace with all history; --share sets its history_share
  never-split  the same with history_share 1.0: nothing is copied
  rocksdb      keys with an inverted version behind them and a prefix filter (feature `peers`)
  sqlite       a table, and a history table that triggers write; WAL, synchronous=NORMAL

`load get` and `load scan` are lookups and scans of 100 entries of the present, averaged over 24
moments of the second half of the load; `get` and `scan` are those after the load, the store
reopened. `at50` is the state when half of the overwrites were made. `first` are lookups with
nothing of the store in memory. Bytes written are those of the process, log included, over user
bytes. Reads are device reads of Esker, counted by itself.

Answers are compared with the workload and between the systems; a wrong one is an error.";

/// What can be typed after `bench history`.
#[derive(Debug, Args)]
pub(crate) struct History {
    /// Keys of 16 bytes, with values of 100 bytes
    #[arg(long, value_name = "N", default_value = "200000",
          value_parser = clap::value_parser!(u64).range(1_000..=1_000_000_000))]
    keys: u64,
    /// Overwrites of each key on average, each number measured separately, separated by commas
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_value = "10",
          value_parser = clap::value_parser!(u64).range(1..=10_000))]
    overwrites: Vec<u64>,
    /// Memory budget of every store
    #[arg(long, value_name = "MIB", default_value = "4",
          value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    memory: u32,
    /// Memory of the process, page cache included; 0 for no limit [default: 6 times the budget,
    /// and at least 40]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(0..=1 << 20))]
    limit: Option<u32>,
    /// Puts of each commit
    #[arg(long, value_name = "N", default_value = "1",
          value_parser = clap::value_parser!(u64).range(1..=10_000))]
    batch: u64,
    /// `history_share` of the system `esker`: 0.2 to 0.8 [default: 0.5]
    #[arg(long, value_name = "SHARE", value_parser = share)]
    share: Option<f64>,
    /// Only these systems, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = system)]
    systems: Vec<Way>,
    /// Number of rounds in which the systems alternate
    #[arg(long, value_name = "N", default_value = "1",
          value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// Seed of the random numbers
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    /// Folder of the stores, which are removed at the end [default: a temporary folder]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Write all measurements to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The least limit of memory: the process itself needs some of it.
const LIMIT_MIB_MIN: u32 = 40;

fn built() -> impl Iterator<Item = Way> {
    Way::ALL.into_iter().filter(|way| way.is_built())
}

fn system(name: &str) -> Result<Way, String> {
    let way = Way::parse(name);
    if way.is_some_and(|way| !way.is_built()) {
        return Err(format!("{name} is not built in: build with `--features peers`"));
    }
    known(way, "systems", built().map(Way::as_str))
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share: &f64| (0.2..=0.8).contains(share));
    share.ok_or_else(|| "a share is 0.2 to 0.8".to_owned())
}

/// The limit of memory in MiB, if there is one.
fn limit(args: &History) -> Option<u32> {
    let limit = args.limit.unwrap_or(args.memory.saturating_mul(6).max(LIMIT_MIB_MIN));
    Some(limit).filter(|limit| *limit > 0)
}

pub(super) fn run(args: &History) -> Result<(), Failure> {
    let interrupt = Interrupt::install()?;
    let place = folder(args.dir.as_deref())?;
    let is_chosen = |way: &Way| args.systems.is_empty() || args.systems.contains(way);
    let mut overwrites = args.overwrites.clone();
    overwrites.sort_unstable();
    overwrites.dedup();
    let plan = Plan {
        systems: built().filter(is_chosen).collect(),
        keys: args.keys,
        overwrites,
        batch: args.batch,
        budget_bytes: u64::from(args.memory) << 20,
        limit_bytes: limit(args).map(|mib| u64::from(mib) << 20),
        share: args.share,
        rounds: args.repeat,
        seed: args.seed,
        folder: place.path().to_owned(),
    };
    let bar = progress::bar(Some(100), "{msg:<40} {wide_bar} {percent:>3} %  {elapsed}");
    let found = versions::run(&plan, &mut |event| {
        hear(&bar, event);
        !interrupt.requested()
    });
    bar.finish_and_clear();
    let mut found = found.map_err(failure)?;
    keep(args.json.as_deref(), &mut found)?;
    print(&plan, &found)?;
    match found.failures().next() {
        Some(line) => Err(Failure::System { what: "measure", source: io::Error::other(line) }),
        None => Ok(()),
    }
}

fn print(plan: &Plan, found: &Findings) -> Result<(), Failure> {
    let mut output = Output::new();
    for note in &found.notes {
        output.line(&format!("note: {note}"))?;
    }
    for overwrites in &plan.overwrites {
        let part = format!("{overwrites} overwrites");
        output.line(&figures(&plan.systems, &part, found.part(&part)).to_string())?;
        output.line("")?;
    }
    output.flush()
}

/// Counts that say nothing in relation to another system.
const COUNTS: [&str; 3] = ["levels", "merges", "sorted_runs"];
/// Sums of answers are for comparison alone.
const HIDDEN: &str = "answers";

/// The metrics, a column a system, with ratios to the keyspace without history.
fn figures(systems: &[Way], title: &str, part: Part<'_>) -> Table {
    let heading = [title].into_iter().chain(systems.iter().map(|way| way.as_str()));
    let mut table = Table::new(&heading.collect::<Vec<_>>());
    let value = |way: Way, metric: &str| part.median(way.as_str(), metric);
    for metric in metrics(part) {
        let base = value(Way::Plain, &metric).filter(|_| !COUNTS.contains(&metric.as_str()));
        let cells = systems.iter().map(|way| {
            let of = value(*way, &metric);
            let ratio = table::ratio(of, base.filter(|_| *way != Way::Plain));
            let number = table::number(of);
            if ratio.is_empty() { number } else { format!("{number} ({ratio})") }
        });
        table.row([metric.replace('_', " ")].into_iter().chain(cells));
    }
    table
}

/// The metrics of a part that are not 0 everywhere, those of the load first, those of the past
/// last.
fn metrics(part: Part<'_>) -> Vec<String> {
    let all = part.measured().flat_map(|of| &of.runs).flatten();
    let shown = all.filter(|(name, value)| **value != 0.0 && !name.ends_with(HIDDEN));
    let mut names: Vec<String> = shown.map(|(name, _)| name.clone()).collect();
    let order = |name: &String| {
        let groups = ["history", "at", "scan", "get", "first", "load"];
        let group = groups.into_iter().position(|group| name.starts_with(group));
        (std::cmp::Reverse(group.unwrap_or(groups.len())), name.clone())
    };
    names.sort_by_cached_key(order);
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_lab_result::Metrics;

    #[test]
    fn ratios_are_to_the_keyspace_without_history() {
        let mut found = Findings::default();
        let metrics = |get: f64, past: Option<f64>| {
            let past = past.map(|past| ("at10_get_rate".to_owned(), past));
            let get = ("get_rate".to_owned(), get);
            let answers = ("past_answers".to_owned(), 1.0);
            [Some(get), past, Some(answers)].into_iter().flatten().collect::<Metrics>()
        };
        found.add(Some("p"), "plain", None, metrics(200.0, None));
        found.add(Some("p"), "esker", None, metrics(150.0, Some(50.0)));
        let table = figures(&[Way::Plain, Way::Esker], "p", found.part("p")).to_string();
        let lines: Vec<Vec<&str>> =
            table.lines().map(|line| line.split_whitespace().collect()).collect();
        let row = |words: &[&str]| lines.iter().position(|line| line == words);
        let get = row(&["get", "rate", "200", "150", "(0.75)"]);
        let past = row(&["at10", "get", "rate", "-", "50.0"]);
        assert!(get.is_some() && past.is_some() && get < past, "{table}");
        assert!(!table.contains("answers"));
    }

    #[test]
    fn unknown_systems_and_shares_are_refused() {
        assert_eq!(system("never-split"), Ok(Way::NeverSplit));
        assert!(system("fossil").unwrap_err().contains("sqlite"));
        assert!(share("1.0").is_err() && share("0.2").is_ok());
    }
}
