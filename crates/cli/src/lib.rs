//! The `esker` command.
//!
//! Reading order: [`text`] (entries as lines, pure), `args` (the command line), `input` (a stream
//! that can be waited for while signals are noticed), then `commands`, one file per subcommand.
//! Failures, exit codes and the interface to the terminal are in `esker-terminal`; `demo`, `bench`
//! and `lab`, which feature `lab` adds, are in `esker-lab-cli`.
//!
//! The command does not know the store's file formats: it uses only the public API of `esker`.

mod args;
mod commands;
mod input;
pub mod text;

use std::process::ExitCode;

/// Runs the command line of this process and answers its exit code.
///
/// Results go to standard output, one line about a failure to standard error.
#[must_use]
pub fn run() -> ExitCode {
    let outcome = args::parse(std::env::args_os()).and_then(commands::run);
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            esker_terminal::exit::report(&failure);
            ExitCode::from(failure.code())
        }
    }
}
