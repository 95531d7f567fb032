//! `lab`: the experiments of `esker-experiments`, from the terminal.
//!
//! `table` prints what came out; progress goes to standard error, a line a run. `trace` records
//! SQLite on the machine of the experiments.

mod table;
mod trace;

use std::io::{Write, stderr};
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use esker_experiments::catalog::{self, EXPERIMENTS};
use esker_experiments::experiment::{Experiment, Watch};
use esker_lab_measure::scale::Scale;
use esker_terminal::exit::Failure;
use esker_terminal::output::Output;
use esker_terminal::signals::Interrupt;
use esker_terminal::table::Table;

use crate::measuring::{failure, known, write};

/// What can be typed after `lab`.
#[derive(Debug, Args)]
pub struct Lab {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the experiments with their measurements and predictions
    List,
    /// Run an experiment and report which predictions hold
    Run(Run),
    #[command(long_about = trace::HELP, after_help = trace::EXAMPLES)]
    Trace(trace::Trace),
}

#[derive(Debug, Args)]
struct Run {
    /// Name of the experiment, from `esker lab list`
    #[arg(value_parser = experiment)]
    experiment: Experiment,
    /// Sizes; docs/results/README.md compares them with the sizes of the papers
    #[arg(long, value_enum, default_value = "small")]
    scale: ScaleName,
    /// Write all measurements to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ScaleName {
    /// A test that everything runs
    #[value(hide = true)]
    Tiny,
    /// Minutes
    Small,
    /// Hours; some experiments have the sizes of the paper
    Full,
}

impl From<ScaleName> for Scale {
    fn from(name: ScaleName) -> Self {
        match name {
            ScaleName::Tiny => Self::Tiny,
            ScaleName::Small => Self::Small,
            ScaleName::Full => Self::Full,
        }
    }
}

fn experiment(name: &str) -> Result<Experiment, String> {
    known(catalog::named(name), "experiments", EXPERIMENTS.iter().map(|one| one.name))
}

pub(crate) fn run(args: &Lab) -> Result<(), Failure> {
    match &args.command {
        Command::List => list(),
        Command::Run(args) => measure(args),
        Command::Trace(args) => trace::run(args),
    }
}

fn list() -> Result<(), Failure> {
    let mut output = Output::new();
    let mut table = Table::new(&["experiment", "redraws", "must show"]);
    for experiment in EXPERIMENTS {
        let names = experiment.predictions.iter().map(|prediction| prediction.name);
        let mut names = names.map(ToOwned::to_owned);
        let first = names.next().unwrap_or_default();
        table.row([experiment.name.to_owned(), experiment.figure.to_owned(), first]);
        names.for_each(|name| table.row([String::new(), String::new(), name]));
    }
    output.bytes(format!("{table}\n").as_bytes())?;
    output.flush()
}

fn measure(args: &Run) -> Result<(), Failure> {
    let mut watcher = Watcher { interrupt: Interrupt::install()? };
    let findings = args.experiment.find(args.scale.into(), &mut watcher).map_err(failure)?;
    if let Some(path) = &args.json {
        write(path, &findings)?;
    }
    let mut output = Output::new();
    output.bytes(table::text(&args.experiment, &findings).as_bytes())?;
    output.flush()
}

struct Watcher {
    interrupt: Interrupt,
}

impl Watch for Watcher {
    fn says(&mut self, line: &str) {
        // Progress that cannot be written is no reason to stop.
        let _ = writeln!(stderr(), "{line}");
    }

    fn is_interrupted(&self) -> bool {
        self.interrupt.requested()
    }
}
