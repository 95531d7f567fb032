//! The `esker` command.
//!
//! Reading order: [`text`] (entries as lines, pure), `args` (what can be typed), `exit` (what can
//! go wrong, and the exit code of each), `output`, `progress` and `signals` (the edges to the
//! terminal), `input` (a stream that can be waited for without going deaf to signals), then
//! `commands`, one file a subcommand.
//!
//! The command holds no knowledge of the store's files: it stands on the public API of `esker`
//! only.

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
