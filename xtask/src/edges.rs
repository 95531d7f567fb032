//! Which crate may use which: the arrows of ARCHITECTURE.md, checked twice.
//!
//! `cargo metadata` shows what a crate could use; the paths in its sources show what it does use.
//! The second catches a test-only dependency that leaks into `src/` behind a `cfg`, one index kind
//! that reaches into another, and a kind that is named by what all kinds stand on.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use crate::source::Source;
use crate::tree::File;
use crate::{Finding, Result, Tree};

/// A crate of the workspace and those it may use.
#[derive(Clone, Copy, Debug)]
pub struct Arrow {
    /// Package name.
    pub package: &'static str,
    /// Its folder.
    pub folder: &'static str,
    /// Packages it may use in `src/`.
    pub may_use: &'static [&'static str],
    /// Packages its `tests/`, `examples/` and `benches/` may use besides.
    pub tests_may_use: &'static [&'static str],
}

const TESTKIT: &[&str] = &["esker-harness", "esker-testkit", "esker-device", "esker-format"];

/// Every crate of the workspace.
pub const ARROWS: &[Arrow] = &[
    Arrow { package: "esker-format", folder: "crates/format", may_use: &[], tests_may_use: &[] },
    Arrow {
        package: "esker-device",
        folder: "crates/device",
        may_use: &[],
        // Itself with its planted bugs.
        tests_may_use: &["esker-device"],
    },
    Arrow {
        package: "esker-substrate",
        folder: "crates/substrate",
        may_use: &["esker-format", "esker-device"],
        tests_may_use: TESTKIT,
    },
    Arrow {
        package: "esker-index",
        folder: "crates/index",
        may_use: &["esker-format", "esker-device", "esker-substrate"],
        tests_may_use: TESTKIT,
    },
    Arrow {
        package: "esker",
        folder: "crates/store",
        may_use: &["esker-format", "esker-device", "esker-substrate", "esker-index"],
        tests_may_use: TESTKIT,
    },
    Arrow {
        package: "esker-pages",
        folder: "crates/pages",
        may_use: &["esker-format", "esker-device"],
        // Itself with its planted bugs.
        tests_may_use: &["esker-pages", "esker-harness"],
    },
    Arrow {
        package: "esker-permute",
        folder: "crates/permute",
        may_use: &["esker-device"],
        tests_may_use: &["esker-permute", "esker-testkit"],
    },
    Arrow {
        package: "esker-flash",
        folder: "crates/flash",
        may_use: &["esker-device"],
        // Itself with its planted bugs.
        tests_may_use: &["esker-flash", "esker-harness"],
    },
    Arrow {
        package: "esker-latree",
        folder: "crates/latree",
        // Both optional: the core needs neither.
        may_use: &["esker-flash", "esker-device"],
        // Itself with its planted bugs.
        tests_may_use: &["esker-latree", "esker-harness", "esker-device"],
    },
    Arrow {
        package: "esker-cli",
        folder: "crates/cli",
        may_use: &[
            "esker",
            "esker-flash",
            "esker-latree",
            "esker-pages",
            "esker-permute",
            "esker-terminal",
            "esker-lab-cli",
        ],
        tests_may_use: TESTKIT,
    },
    Arrow {
        package: "esker-terminal",
        folder: "crates/terminal",
        may_use: &["esker", "esker-pages"],
        tests_may_use: &[],
    },
    Arrow {
        package: "esker-c",
        folder: "bindings/c",
        may_use: &["esker"],
        // Itself, as another crate would.
        tests_may_use: &["esker-c"],
    },
    Arrow {
        package: "esker-sqlite",
        folder: "bindings/sqlite",
        may_use: &["esker-pages"],
        // Itself with its planted bugs.
        tests_may_use: &["esker-sqlite", "esker-harness", "esker-device"],
    },
    Arrow {
        package: "esker-python",
        folder: "bindings/python",
        may_use: &["esker", "esker-flash", "esker-permute"],
        tests_may_use: &[],
    },
    Arrow {
        package: "esker-harness",
        folder: "testing/harness",
        may_use: &["esker-device"],
        tests_may_use: &[],
    },
    Arrow {
        package: "esker-testkit",
        folder: "testing/testkit",
        may_use: &[
            "esker-format",
            "esker-device",
            "esker-substrate",
            "esker-index",
            "esker",
            "esker-harness",
        ],
        tests_may_use: &[],
    },
    Arrow { package: "esker-workload", folder: "lab/workload", may_use: &[], tests_may_use: &[] },
    Arrow { package: "esker-peers", folder: "lab/peers", may_use: &["esker"], tests_may_use: &[] },
    Arrow { package: "esker-lab-result", folder: "lab/result", may_use: &[], tests_may_use: &[] },
    Arrow {
        package: "esker-lab-measure",
        folder: "lab/measure",
        may_use: &["esker", "esker-peers", "esker-lab-result"],
        tests_may_use: &[],
    },
    Arrow {
        package: "esker-flashtrees",
        folder: "lab/flashtrees",
        may_use: &["esker-flash", "esker-latree", "esker-workload"],
        tests_may_use: &[],
    },
    Arrow {
        package: "esker-experiments",
        folder: "lab/experiments",
        // The index for its merge policies, of which the lab has a model; the page store and its
        // device for tables that are patched.
        may_use: &[
            "esker",
            "esker-device",
            "esker-flash",
            "esker-flashtrees",
            "esker-format",
            "esker-index",
            "esker-latree",
            "esker-permute",
            "esker-lab-measure",
            "esker-lab-result",
            "esker-pages",
            "esker-peers",
            "esker-sqlite",
            "esker-workload",
        ],
        tests_may_use: &["esker-harness"],
    },
    Arrow {
        package: "esker-lab-cli",
        folder: "lab/cli",
        may_use: &[
            "esker",
            "esker-terminal",
            "esker-experiments",
            "esker-lab-measure",
            "esker-lab-result",
        ],
        tests_may_use: &[],
    },
    Arrow { package: "xtask", folder: "xtask", may_use: &[], tests_may_use: &[] },
];

/// The crates that make up the library, and how many others they may depend on directly.
const LIBRARY: [&str; 5] =
    ["esker-format", "esker-device", "esker-substrate", "esker-index", "esker"];
const LIBRARY_DEPENDENCIES_MAX: usize = 15;

/// The index kinds; none may name another, and what they stand on names none.
const INDEX_KINDS: [&str; 5] = ["fdtree", "lsm", "latree", "multiversion", "btree"];

/// The places where kinds may be named together: where they are made, and the tests of all of them.
const NAMES_INDEX_KINDS: [&str; 2] = ["/src/kind/registry.rs", "/src/tests/"];

/// Checks the dependencies declared in the crates' manifests.
pub fn check_manifests(tree: &Tree) -> Result<Vec<Finding>> {
    let metadata = metadata(tree)?;
    let mut findings = judge_metadata(&metadata);
    findings.extend(judge_dependency_count(&metadata));
    Ok(findings)
}

/// The answer of `cargo metadata` about the packages of the workspace.
pub(crate) fn metadata(tree: &Tree) -> Result<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(tree.root())
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The edges in the output of `cargo metadata` that no arrow allows.
#[must_use]
pub fn judge_metadata(metadata: &Value) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in array(metadata, "packages") {
        let name = text(package, "name");
        let Some(arrow) = ARROWS.iter().find(|arrow| arrow.package == name) else {
            findings.push(Finding {
                file: "Cargo.toml".into(),
                line: 0,
                what: format!(
                    "package {name} has no arrow in xtask/src/edges.rs: decide its place"
                ),
            });
            continue;
        };
        for dependency in array(package, "dependencies") {
            let used = text(dependency, "name");
            let only_for_tests = text(dependency, "kind") == "dev";
            if is_ours(used) && !allowed(arrow, used, only_for_tests) {
                findings.push(Finding {
                    file: format!("{}/Cargo.toml", arrow.folder),
                    line: 0,
                    what: format!("{name} may not depend on {used}"),
                });
            }
        }
    }
    findings
}

/// A finding when the library depends on too many crates of others.
fn judge_dependency_count(metadata: &Value) -> Option<Finding> {
    let used: BTreeSet<&str> = array(metadata, "packages")
        .iter()
        .filter(|package| LIBRARY.contains(&text(package, "name")))
        .flat_map(|package| array(package, "dependencies"))
        .filter(|dependency| text(dependency, "kind") != "dev")
        .map(|dependency| text(dependency, "name"))
        .filter(|name| !is_ours(name))
        .collect();
    let count = used.len();
    (count > LIBRARY_DEPENDENCIES_MAX).then(|| Finding {
        file: "Cargo.toml".into(),
        line: 0,
        what: format!(
            "the library has {count} direct dependencies; the limit is {LIBRARY_DEPENDENCIES_MAX}"
        ),
    })
}

/// Checks the crates and index kinds named in the sources.
pub fn check_sources(tree: &Tree) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for file in tree.ending_in(&[".rs"]) {
        if let Some(arrow) = owner(&file.path) {
            findings.extend(judge_source(arrow, file)?);
        }
    }
    Ok(findings)
}

/// The crate whose folder holds `path`.
fn owner(path: &str) -> Option<&'static Arrow> {
    ARROWS
        .iter()
        .find(|arrow| path.strip_prefix(arrow.folder).is_some_and(|inside| inside.starts_with('/')))
}

fn judge_source(arrow: &Arrow, file: &File) -> Result<Vec<Finding>> {
    let source = Source::parse(&file.text).map_err(|error| format!("{}: {error}", file.path))?;
    let inside = file.path.strip_prefix(arrow.folder).unwrap_or_default();
    let only_for_tests = is_only_for_tests(inside);
    let mut findings = Vec::new();
    for path in &source.paths {
        let used = path.first.replace('_', "-");
        let itself = used == arrow.package;
        let is_package = ARROWS.iter().any(|arrow| arrow.package == used);
        if is_package && !itself && !allowed(arrow, &used, only_for_tests) {
            findings.push(Finding {
                file: file.path.clone(),
                line: path.line,
                what: format!("{} may not use {used} here", arrow.package),
            });
        }
    }
    findings.extend(
        judge_index_kinds(arrow, inside, &source).into_iter().map(|(line, what)| Finding {
            file: file.path.clone(),
            line,
            what,
        }),
    );
    Ok(findings)
}

/// Whether a file of a package is compiled for tests alone: `src` has modules of tests, too.
fn is_only_for_tests(inside: &str) -> bool {
    !inside.starts_with("/src/") || inside.contains("/tests/") || inside.ends_with("/tests.rs")
}

/// The lines at which a file of the index crate names a kind that it may not name, each with the
/// fault.
///
/// Every segment of a path counts, not only those behind `crate`: `super::super::lsm` and
/// `crate::{lsm, tree}` lead there too. So do fields: whoever asks a record for its `lsm` knows the
/// kinds apart.
fn judge_index_kinds(arrow: &Arrow, inside: &str, source: &Source) -> Vec<(usize, String)> {
    let is_exempt = NAMES_INDEX_KINDS.iter().any(|exempt| inside.starts_with(exempt));
    if arrow.package != "esker-index" || !inside.starts_with("/src/") || is_exempt {
        return Vec::new();
    }
    let kind = index_kind(inside);
    let mut findings = Vec::new();
    if kind.is_some() {
        let what = "a kind passes `index()` on, and uses the index through KindContext alone";
        findings.extend(source.calls_of_index.iter().map(|line| (*line, what.to_owned())));
    }
    for named in &source.named {
        let other = INDEX_KINDS.iter().find(|other| **other == named.name);
        let Some(other) = other.filter(|other| kind != Some(**other)) else { continue };
        let what = match kind {
            Some(kind) => {
                format!("index kind {kind} may not use {other}: share what both stand on")
            }
            None => format!("what all index kinds stand on may not name {other}: ask the kind"),
        };
        if findings.last() != Some(&(named.line, what.clone())) {
            findings.push((named.line, what));
        }
    }
    findings
}

/// Which index kind a file inside the index crate belongs to.
fn index_kind(inside: &str) -> Option<&'static str> {
    let inside = inside.strip_prefix("/src/")?;
    let head = inside.split('/').next()?.trim_end_matches(".rs");
    INDEX_KINDS.into_iter().find(|kind| *kind == head)
}

fn allowed(arrow: &Arrow, used: &str, only_for_tests: bool) -> bool {
    arrow.may_use.contains(&used) || (only_for_tests && arrow.tests_may_use.contains(&used))
}

pub(crate) fn is_ours(package: &str) -> bool {
    package == "esker" || package == "xtask" || package.starts_with("esker-")
}

pub(crate) fn array<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

pub(crate) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn source_findings(path: &str, text: &str) -> Vec<String> {
        let file = File { path: path.into(), text: text.into() };
        let findings = judge_source(owner(path).unwrap(), &file).unwrap();
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_kind_that_goes_round_its_context_is_found() {
        for text in ["fn f(c: C) { c.index().views.load(); }", "fn f(c: C) { c.index().meta(); }"] {
            assert_eq!(source_findings("crates/index/src/lsm/walk.rs", text).len(), 1, "{text}");
        }
        let passes_on = "fn f(c: C) { merge(c.index()); }";
        assert!(source_findings("crates/index/src/lsm/walk.rs", passes_on).is_empty());
    }

    #[test]
    fn an_edge_against_the_arrows_is_found() {
        let metadata = json!({"packages": [{"name": "esker-device", "dependencies": [
            {"name": "thiserror", "kind": null},
            {"name": "esker-format", "kind": null},
        ]}]});
        let findings: Vec<_> = judge_metadata(&metadata).iter().map(ToString::to_string).collect();
        let expected = "crates/device/Cargo.toml: esker-device may not depend on esker-format";
        assert_eq!(findings, [expected]);
    }

    #[test]
    fn the_testkit_and_the_harness_are_for_tests_only() {
        let edge = |kind: Value| {
            judge_metadata(&json!({"packages": [{"name": "esker", "dependencies": [
                {"name": "esker-testkit", "kind": kind},
                {"name": "esker-harness", "kind": kind},
            ]}]}))
        };
        assert_eq!(edge(json!("dev")), []);
        assert_eq!(edge(Value::Null).len(), 2);
    }

    #[test]
    fn the_library_has_few_dependencies() {
        let metadata = |count: usize| {
            let of_others = (0..count).map(|n| json!({"name": format!("d{n}"), "kind": null}));
            let mut all: Vec<Value> = of_others.collect();
            all.push(json!({"name": "esker-format", "kind": null}));
            all.push(json!({"name": "only-for-tests", "kind": "dev"}));
            json!({"packages": [
                {"name": "esker", "dependencies": all},
                {"name": "esker-index", "dependencies": all},
            ]})
        };
        assert_eq!(judge_dependency_count(&metadata(LIBRARY_DEPENDENCIES_MAX)), None);
        assert!(judge_dependency_count(&metadata(LIBRARY_DEPENDENCIES_MAX + 1)).is_some());
    }

    #[test]
    fn a_package_without_an_arrow_is_found() {
        let metadata = json!({"packages": [{"name": "esker-new", "dependencies": []}]});
        assert_eq!(judge_metadata(&metadata).len(), 1);
    }

    #[test]
    fn a_source_against_the_arrows_is_found_in_src_and_in_tests() {
        let text = "use esker_testkit::model;";
        let found = source_findings("crates/store/src/db.rs", text);
        assert_eq!(found, ["crates/store/src/db.rs:1: esker may not use esker-testkit here"]);
        for tests in ["tests/model.rs", "src/open/tests.rs", "src/open/tests/model.rs"] {
            assert!(source_findings(&format!("crates/store/{tests}"), text).is_empty(), "{tests}");
        }
        assert_eq!(source_findings("crates/format/src/key.rs", "type X = esker::Db;").len(), 1);
        assert!(source_findings("crates/store/examples/a.rs", "use esker::Db;").is_empty());
    }

    #[test]
    fn index_kinds_do_not_use_each_other() {
        let text = "use crate::fdtree::run; use crate::shared;";
        assert_eq!(source_findings("crates/index/src/lsm/level.rs", text).len(), 1);
        assert_eq!(source_findings("crates/index/src/lsm.rs", text).len(), 1);
        assert!(source_findings("crates/index/src/fdtree/level.rs", text).is_empty());
        assert!(source_findings("crates/store/src/open.rs", text).is_empty());
    }

    #[test]
    fn what_index_kinds_stand_on_names_none() {
        let ways = [
            "use crate::lsm::Run;",
            "use super::lsm::Run;",
            "use crate::{lsm, tree};",
            "use super::super::{tree::{Tree}, lsm as other};",
            "fn f(_: lsm::Run) {}",
            "fn f(meta: &Meta) -> bool { meta.lsm.is_some() }",
            "fn f(meta: &Meta) { assert!(crate::lsm::is_it(meta)); }",
        ];
        for text in ways {
            let found = |path: &str| source_findings(path, text);
            let expected = "crates/index/src/read/view.rs:1: what all index kinds stand on may not \
                            name lsm: ask the kind";
            assert_eq!(found("crates/index/src/read/view.rs"), [expected], "{text}");
            let expected = "crates/index/src/fdtree/level.rs:1: index kind fdtree may not use lsm: \
                            share what both stand on";
            assert_eq!(found("crates/index/src/fdtree/level.rs"), [expected], "{text}");
            assert_eq!(found("crates/index/src/lib.rs").len(), 1, "{text}");
            assert!(found("crates/index/src/lsm/level.rs").is_empty(), "{text}");
            assert!(found("crates/index/src/kind/registry.rs").is_empty(), "{text}");
            assert!(found("crates/index/src/tests/lsm.rs").is_empty(), "{text}");
            assert!(found("crates/index/benches/merge.rs").is_empty(), "{text}");
        }
        let modules = "pub mod lsm; fn f(lsm: &[u8]) -> usize { 0..lsm.len() }";
        assert!(source_findings("crates/index/src/lib.rs", modules).is_empty());
    }
}
