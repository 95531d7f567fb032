//! Which files enumerate the crashes and plan the faults of a simulated device.
//!
//! A loop over crashes or over failing operations that a crate writes for itself judges less than
//! the one of the harness, and no review shows it: crashes are enumerated by the harness alone.
//! Tests that need one fault of their own at a certain place are listed here.

use crate::source::Source;
use crate::tree::File;
use crate::{Finding, Result, Tree};

/// A name, and the folders and files that may have it.
struct Rule {
    name: &'static str,
    at_home: &'static [&'static str],
    /// Every one of these still has it.
    files: &'static [&'static str],
}

const RULES: [Rule; 2] = [
    Rule { name: "for_each_crash", at_home: &["testing/harness/", "crates/device/"], files: &[] },
    Rule {
        name: "FaultPlan",
        at_home: &["testing/", "crates/device/"],
        files: &[
            "bindings/sqlite/tests/faults.rs",
            "bindings/sqlite/tests/kept_locks.rs",
            "crates/pages/tests/crash.rs",
            "crates/pages/tests/faults.rs",
            "crates/pages/tests/store.rs",
            "crates/store/tests/kinds/backups.rs",
            "crates/store/tests/kinds/during_merges.rs",
            "crates/store/tests/kinds/limits.rs",
            "crates/substrate/src/log/tests.rs",
            "crates/substrate/src/log/tests/basics.rs",
            "crates/substrate/src/log/tests/crash.rs",
            "crates/substrate/src/manifest/tests.rs",
            "crates/substrate/src/manifest/tests/crash.rs",
            "crates/substrate/src/manifest/tests/damage.rs",
        ],
    },
];

/// Checks who enumerates crashes and plans faults, and that every file that is listed still does.
pub fn check(tree: &Tree) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for rule in &RULES {
        for file in tree.ending_in(&[".rs"]) {
            findings.extend(rule.judge(file)?);
        }
        let is_there = |path: &&&str| tree.ending_in(&[".rs"]).any(|file| file.path == ***path);
        findings
            .extend(rule.files.iter().filter(|path| !is_there(path)).map(|path| unneeded(path)));
    }
    Ok(findings)
}

impl Rule {
    fn judge(&self, file: &File) -> Result<Option<Finding>> {
        if self.at_home.iter().any(|folder| file.path.starts_with(folder)) {
            return Ok(None);
        }
        let source =
            Source::parse(&file.text).map_err(|error| format!("{}: {error}", file.path))?;
        let named = source.named.iter().find(|named| named.name == self.name);
        let is_listed = self.files.contains(&file.path.as_str());
        Ok(match named {
            Some(named) if !is_listed => Some(Finding {
                file: file.path.clone(),
                line: named.line,
                what: format!("{} is for testing/: use what testing/harness has", named.name),
            }),
            None if is_listed => Some(unneeded(&file.path)),
            _ => None,
        })
    }
}

fn unneeded(path: &str) -> Finding {
    let what = "need not be listed any more: take it from xtask/src/suites.rs".to_owned();
    Finding { file: path.to_owned(), line: 0, what }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Option<String> {
        let crashes = Rule { name: "for_each_crash", at_home: &["testing/harness/"], files: &[] };
        let faults = Rule { name: "FaultPlan", at_home: &["testing/"], files: &["c/tests/old.rs"] };
        let file = File { path: path.into(), text: text.into() };
        let mut findings =
            [crashes, faults].into_iter().filter_map(|rule| rule.judge(&file).unwrap());
        findings.next().map(|finding| finding.to_string())
    }

    #[test]
    fn a_private_enumeration_of_crashes_is_found() {
        for text in [
            "fn f() { trace.for_each_crash(&options, visit); }",
            "fn f() { Trace::for_each_crash(trace, &options, visit); }",
        ] {
            for path in ["c/tests/new.rs", "testing/testkit/src/crash.rs"] {
                let here = found(path, text);
                assert!(here.is_some_and(|what| what.starts_with(&format!("{path}:1: "))));
            }
            assert_eq!(found("testing/harness/src/crash.rs", text), None);
        }
    }

    #[test]
    fn faults_are_planned_in_files_that_are_listed() {
        for text in [
            "use esker_device::sim::{FaultPlan, OpKind};",
            "fn f() { device.set_faults(sim::FaultPlan::new()); }",
        ] {
            let here = found("c/tests/new.rs", text);
            assert!(here.is_some_and(|what| what.starts_with("c/tests/new.rs:1: ")), "{text}");
            assert_eq!(found("testing/testkit/src/lies.rs", text), None);
            assert_eq!(found("c/tests/old.rs", text), None);
        }
    }

    #[test]
    fn a_listed_file_that_plans_none_is_found() {
        let text = "use esker_device::sim::SimDevice; // FaultPlan\n";
        assert_eq!(found("c/tests/new.rs", text), None);
        let here = found("c/tests/old.rs", text);
        assert!(here.is_some_and(|what| what.contains("need not be listed")));
    }
}
