//! Counts of what each suite did, for the page that is generated from them.
//!
//! One line of JSON for each case in the file `<suite>.jsonl`: suite, case, and the counts in the
//! order in which they were added. The folder is `ESKER_COUNTS_DIR`, or `esker-counts` in the
//! target folder. A case that runs again is written again; readers take the last line of a case.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::violation::Verdict;

/// The counts of one case of a suite.
#[derive(Clone, Debug)]
pub struct Counts {
    suite: &'static str,
    case: String,
    counts: Map<String, Value>,
}

impl Counts {
    /// No counts yet.
    pub fn new(suite: &'static str, case: impl Into<String>) -> Self {
        Self { suite, case: case.into(), counts: Map::new() }
    }

    /// Adds `by` to the count `name`, which appears even when it stays 0.
    pub fn add(&mut self, name: &str, by: u64) {
        let sum = self.get(name).saturating_add(by);
        self.counts.insert(name.to_owned(), sum.into());
    }

    /// The count `name`, 0 when nothing was added.
    #[must_use]
    pub fn get(&self, name: &str) -> u64 {
        self.counts.get(name).and_then(Value::as_u64).unwrap_or(0)
    }

    /// The line of this case.
    #[must_use]
    pub fn line(&self) -> String {
        let (suite, case, counts) = (self.suite, &self.case, &self.counts);
        json!({ "suite": suite, "case": case, "counts": counts }).to_string()
    }

    /// Appends the line to the suite's file and prints it, so that it is in the test's output.
    ///
    /// # Errors
    /// When the folder or the file cannot be written.
    pub fn record(&self) -> std::io::Result<()> {
        let line = self.line();
        println!("{line}");
        append(&folder(), self.suite, &line)
    }
}

/// Ends a test: records what a suite counted, or fails with the promise that it found broken.
///
/// # Panics
/// When a promise is broken, or the counts cannot be written.
#[track_caller]
pub fn assert_passes(verdict: Verdict<Counts>) {
    let recorded = match verdict {
        Ok(counts) => counts.record().map_err(|error| error.to_string()),
        Err(violation) => Err(violation.to_string()),
    };
    assert!(recorded.is_ok(), "{}", recorded.err().unwrap_or_default());
}

fn append(folder: &Path, suite: &str, line: &str) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let path = folder.join(format!("{suite}.jsonl"));
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
    // One write, so that lines of parallel tests do not mix.
    file.write_all(format!("{line}\n").as_bytes())
}

fn folder() -> PathBuf {
    if let Some(folder) = std::env::var_os("ESKER_COUNTS_DIR") {
        return PathBuf::from(folder);
    }
    // Test binaries live in <target>/<profile>/deps.
    let binary = std::env::current_exe().unwrap_or_default();
    let target = binary.ancestors().nth(3).unwrap_or(Path::new("target"));
    target.join("esker-counts")
}

/// The amount of work that the suites should do: the value of `ESKER_TEST_BUDGET`, 1 by default.
/// Sizes are multiplied by it.
#[must_use]
pub fn budget() -> u64 {
    let value = std::env::var("ESKER_TEST_BUDGET").ok().and_then(|value| value.parse().ok());
    value.filter(|budget| *budget > 0).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_json_and_keeps_the_order_of_counts() {
        let mut counts = Counts::new("crash", "load \"x\"");
        counts.add("generated", 7);
        counts.add("distinct", 0);
        counts.add("generated", 3);
        let line =
            r#"{"suite":"crash","case":"load \"x\"","counts":{"generated":10,"distinct":0}}"#;
        assert_eq!(counts.line(), line);
        assert_eq!(counts.get("generated"), 10);
    }
}
