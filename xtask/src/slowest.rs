//! The slowest test suites of a run, from the output of `cargo test`.
//!
//! Cargo names a runner by its path in the package, without the package:
//! `Running tests/crash.rs (target/debug/deps/crash-0123456789abcdef)`. The package is that of the
//! last unit tests before, which Cargo runs first for each package.

use std::fmt::Write as _;

/// The suites that [`table`] lists, at most.
pub const LISTED_MAX: usize = 10;

/// One test runner: its name, and the seconds that its tests took.
#[derive(Clone, Debug, PartialEq)]
pub struct Suite {
    /// `package: path`, or the path alone where the output does not show the package.
    pub name: String,
    /// Seconds, as the runner prints them; of documentation tests the sum of all their runs.
    pub seconds: f64,
}

/// The runners of a log that have printed a result, in the order of the log. A log of several calls
/// of `cargo test` has a runner for each of them.
#[must_use]
pub fn suites(log: &str) -> Vec<Suite> {
    let mut suites: Vec<Suite> = Vec::new();
    // The unit tests' crate, and the runner that has not yet printed a result.
    let (mut package, mut next) = (None, None);
    for line in log.lines().map(str::trim) {
        if line.starts_with("Finished `") {
            package = None;
        } else if let Some((path, binary)) = runner(line) {
            if path.starts_with("unittests ") {
                package = Some(binary);
            }
            next = Some(package.map_or(path.to_owned(), |package| format!("{package}: {path}")));
        } else if line.starts_with("Doc-tests ") {
            next = Some(line.to_owned());
        } else if let Some(seconds) = seconds(line) {
            match (next.take(), suites.last_mut()) {
                (Some(name), _) => suites.push(Suite { name, seconds }),
                (None, Some(last)) => last.seconds += seconds,
                (None, None) => {}
            }
        }
    }
    suites
}

/// The path and the crate of `Running <path> (<folder>/<crate>-<hash>)`.
fn runner(line: &str) -> Option<(&str, &str)> {
    let (path, binary) = line.strip_prefix("Running ")?.strip_suffix(')')?.split_once(" (")?;
    let name = binary.rsplit(['/', '\\']).next()?;
    Some((path, name.rsplit_once('-').map_or(name, |(name, _hash)| name)))
}

/// The seconds of `test result: …; finished in <seconds>s`.
fn seconds(line: &str) -> Option<f64> {
    let (_, time) = line.strip_prefix("test result: ")?.rsplit_once("finished in ")?;
    time.strip_suffix('s')?.parse().ok()
}

/// The slowest suites of a log, one a line, the slowest first; empty when no runner has printed a
/// result.
#[must_use]
pub fn table(log: &str) -> String {
    let mut suites = suites(log);
    suites.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    suites.truncate(LISTED_MAX);
    let mut page = String::new();
    for (at, suite) in suites.iter().enumerate() {
        if at == 0 {
            let _ = writeln!(page, "The slowest test suites, in seconds:");
        }
        let _ = writeln!(page, "{:>9.2}  {}", suite.seconds, suite.name);
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
   Compiling esker v0.1.0
    Finished `test` profile [unoptimized + debuginfo] target(s) in 1m 02s
     Running unittests src/lib.rs (target/debug/deps/esker-0123456789abcdef)

running 1 test
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.25s

     Running tests/crash.rs (/target dir (1)/debug/deps/crash-0123456789abcdef)
test a ... FAILED
test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 71.50s

     Running unittests src/lib.rs (target/debug/deps/esker_index-0123456789abcdef)
error: test failed, to rerun pass `-p esker-index --lib`
     Running tests/kinds_lsm.rs (target/debug/deps/kinds_lsm-0123456789abcdef)
test result: ok. 9 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 8.00s
   Doc-tests esker_index
test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.50s
    Finished `test` profile [unoptimized + debuginfo] target(s) in 5.00s
     Running tests/shuttle/main.rs (target/debug/deps/shuttle-0123456789abcdef)
test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 100.00s
";

    #[test]
    fn the_slowest_suite_is_first_and_has_its_package() {
        let expected = "The slowest test suites, in seconds:
   100.00  tests/shuttle/main.rs
    71.50  esker: tests/crash.rs
     8.00  esker_index: tests/kinds_lsm.rs
     1.50  Doc-tests esker_index
     0.25  esker: unittests src/lib.rs
";
        assert_eq!(table(LOG), expected);
    }

    #[test]
    fn ten_are_listed_at_most_and_a_log_without_results_lists_none() {
        assert_eq!(table(&LOG.repeat(3)).lines().count(), 1 + LISTED_MAX);
        assert_eq!(table("error: could not compile `esker`"), "");
        assert_eq!(table("test result: ok. 1 passed; finished in 1.00s"), "");
    }
}
