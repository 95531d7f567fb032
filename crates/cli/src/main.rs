//! The `esker` command; everything is in the library of this package, where tests reach it.

use std::process::ExitCode;

fn main() -> ExitCode {
    esker_cli::run()
}
