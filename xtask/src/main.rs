//! `cargo xtask <task>`: see [`USAGE`].

use std::path::PathBuf;
use std::process::ExitCode;

use xtask::{CHECKS, Finding, Result, Tree, fingerprint, slowest, test_counts};

const USAGE: &str = "\
usage: cargo xtask <task>

  check                 every check of the house; the same ones run in `cargo test -p xtask`
  format-hash           the encoders' fingerprints, as docs/format/store.md records them
  format-hash --update  records them in docs/format/store.md
  test-counts           prints what the test suites counted in their last run, as tables
  slowest <log>         prints the slowest test suites of a log of `cargo test`, in seconds
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments.as_slice() {
        ["check"] => check(),
        ["format-hash"] => print_table(),
        ["format-hash", "--update"] => update_page(),
        ["test-counts"] => print_test_counts(),
        ["slowest", log] => print_slowest(log),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs every check; false when one found something.
fn check() -> Result<bool> {
    let tree = Tree::of_this_repository()?;
    let mut findings: Vec<Finding> = Vec::new();
    for check in CHECKS {
        let found = (check.run)(&tree)?;
        println!("{:>5}  {}", found.len(), check.name);
        findings.extend(found);
    }
    for finding in &findings {
        println!("{finding}");
    }
    Ok(findings.is_empty())
}

fn print_table() -> Result<bool> {
    print!("{}", fingerprint::table(&Tree::of_this_repository()?)?);
    Ok(true)
}

fn update_page() -> Result<bool> {
    let tree = Tree::of_this_repository()?;
    std::fs::write(tree.root().join(fingerprint::PAGE), fingerprint::updated_page(&tree)?)?;
    Ok(true)
}

fn print_test_counts() -> Result<bool> {
    let tree = Tree::of_this_repository()?;
    let folder = std::env::var_os("ESKER_COUNTS_DIR").map_or_else(
        || {
            let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
            target.unwrap_or_else(|| tree.root().join("target")).join("esker-counts")
        },
        PathBuf::from,
    );
    let counts = test_counts::read_counts(&folder)?;
    if counts.is_empty() {
        return Err(format!("no counts in {}: run `make test` first", folder.display()).into());
    }
    print!("{}", test_counts::tables(&counts));
    Ok(true)
}

fn print_slowest(log: &str) -> Result<bool> {
    // What a test prints may be no UTF-8.
    let bytes = std::fs::read(log).map_err(|error| format!("{log}: {error}"))?;
    print!("{}", slowest::table(&String::from_utf8_lossy(&bytes)));
    Ok(true)
}
