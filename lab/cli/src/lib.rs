//! The commands of the laboratory: `esker demo`, `esker bench` and `esker lab`.
//!
//! The `esker` command mounts them behind its feature `lab`. Reading order: [`demo`] (a real task
//! from end to end), [`mod@bench`] (the comparisons, with targets), [`lab`] (the experiments of the
//! papers), `live` (a store at work, drawn on the terminal), `measuring` (what the commands that
//! measure have in common). What is not here: the measurements
//! (`esker-experiments`), failures and output (`esker-terminal`).

pub mod bench;
pub mod demo;
pub mod lab;
mod live;
mod measuring;

use clap::Subcommand;
use esker_terminal::exit::Failure;

/// A command of the laboratory with its arguments.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Index the files of a folder in a new store, verify every answer, print measurements
    Demo(demo::Demo),
    /// Run benchmarks, also of other stores, and compare with targets
    #[command(long_about = bench::HELP)]
    Bench(Box<bench::Bench>),
    /// Run the experiments of the papers and report which results are reproduced
    Lab(lab::Lab),
}

/// Runs a command.
///
/// # Errors
/// Those of the command, with their exit codes.
pub fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Demo(args) => demo::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Lab(args) => lab::run(args),
    }
}
