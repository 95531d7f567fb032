//! The `esker` command.
//!
//! Reading order: [`text`] (entries as lines, pure), `args` (the command line), `exit` (failures
//! and their exit codes), `output`, `progress` and `signals` (the interface to the terminal),
//! `input` (a stream that can be waited for while signals are noticed), then `commands`, one file
//! per subcommand.
//!
//! The command does not know the store's file formats: it uses only the public API of `esker`.

mod args;
mod commands;
mod exit;
mod input;
mod output;
mod progress;
mod signals;
mod table;
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
            exit::report(&failure);
            ExitCode::from(failure.code())
        }
    }
}
