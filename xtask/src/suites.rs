//! Which files enumerate the crashes and the faults of a simulated device: those of the harness.
//!
//! A loop over crashes or over failing operations that a crate writes for itself judges less than
//! the one of the harness, and no review shows it. Files that still have one, or that plan single
//! faults, are listed here; the list only gets shorter.

use crate::source::Source;
use crate::tree::File;
use crate::{Finding, Result, Tree};

/// What enumerates crashes, and what plans faults.
const NAMES: [&str; 2] = ["for_each_crash", "FaultPlan"];

/// Folders whose files may name them: the harness with the suites over it, and the device itself.
const AT_HOME: [&str; 2] = ["testing/", "crates/device/"];

/// Other files that still name them.
const EXEMPT: [&str; 17] = [
    "bindings/sqlite/tests/crash.rs",
    "bindings/sqlite/tests/faults.rs",
    "bindings/sqlite/tests/kept_locks.rs",
    "crates/pages/tests/crash.rs",
    "crates/pages/tests/faults.rs",
    "crates/pages/tests/store.rs",
    "crates/pages/tests/zeros.rs",
    "crates/store/tests/kinds/backups.rs",
    "crates/store/tests/kinds/during_merges.rs",
    "crates/store/tests/kinds/large_values.rs",
    "crates/store/tests/kinds/limits.rs",
    "crates/substrate/src/log/tests.rs",
    "crates/substrate/src/log/tests/basics.rs",
    "crates/substrate/src/log/tests/crash.rs",
    "crates/substrate/src/manifest/tests.rs",
    "crates/substrate/src/manifest/tests/crash.rs",
    "crates/substrate/src/manifest/tests/damage.rs",
];

/// Checks who enumerates crashes and faults, and that every exemption is still needed.
pub fn check(tree: &Tree) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for file in tree.ending_in(&[".rs"]) {
        findings.extend(judge(file, &EXEMPT)?);
    }
    let is_there = |path: &&&str| tree.ending_in(&[".rs"]).any(|file| file.path == ***path);
    findings.extend(EXEMPT.iter().filter(|path| !is_there(path)).map(|path| unneeded(path)));
    Ok(findings)
}

fn judge(file: &File, exempt: &[&str]) -> Result<Option<Finding>> {
    if AT_HOME.iter().any(|folder| file.path.starts_with(folder)) {
        return Ok(None);
    }
    let source = Source::parse(&file.text).map_err(|error| format!("{}: {error}", file.path))?;
    let named = source.named.iter().find(|named| NAMES.contains(&named.name.as_str()));
    let is_exempt = exempt.contains(&file.path.as_str());
    Ok(match named {
        Some(named) if !is_exempt => Some(Finding {
            file: file.path.clone(),
            line: named.line,
            what: format!("{} is for testing/: use what testing/harness has", named.name),
        }),
        None if is_exempt => Some(unneeded(&file.path)),
        _ => None,
    })
}

fn unneeded(path: &str) -> Finding {
    let what = "needs no exemption any more: take it from xtask/src/suites.rs".to_owned();
    Finding { file: path.to_owned(), line: 0, what }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Option<String> {
        let file = File { path: path.into(), text: text.into() };
        judge(&file, &["c/tests/old.rs"]).unwrap().map(|finding| finding.to_string())
    }

    #[test]
    fn a_private_enumeration_is_found() {
        for text in [
            "fn f() { trace.for_each_crash(&options, visit); }",
            "fn f() { Trace::for_each_crash(trace, &options, visit); }",
            "use esker_device::sim::{FaultPlan, OpKind};",
            "fn f() { device.set_faults(sim::FaultPlan::new()); }",
        ] {
            let here = found("c/tests/new.rs", text);
            assert!(here.is_some_and(|what| what.starts_with("c/tests/new.rs:1: ")), "{text}");
            assert_eq!(found("testing/harness/src/crash.rs", text), None);
            assert_eq!(found("crates/device/src/sim.rs", text), None);
            assert_eq!(found("c/tests/old.rs", text), None);
        }
    }

    #[test]
    fn an_exemption_ends_with_its_reason() {
        let text = "use esker_device::sim::SimDevice; // FaultPlan\n";
        assert_eq!(found("c/tests/new.rs", text), None);
        let here = found("c/tests/old.rs", text);
        assert!(here.is_some_and(|what| what.contains("no exemption")));
    }
}
