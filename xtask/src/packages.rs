//! The parts that a package must have to be published, and those that it must keep to itself.
//!
//! `cargo publish` accepts a package without licence texts, without a page on docs.rs that builds,
//! or with features that are meant for tests alone; users find out afterwards.

use std::path::Path;

use serde_json::Value;

use crate::edges::{array, is_ours, metadata, text};
use crate::{Finding, Result, Tree};

/// The texts that every published package has in its own folder, as links to those of the root.
const LICENCES: [&str; 2] = ["LICENSE-MIT", "LICENSE-APACHE"];
/// Features for tests and comparisons: no promise holds for them, and their names begin with `_`.
const PRIVATE: [&str; 3] = ["baselines", "planted", "shuttle"];
/// The most keywords and the most categories that crates.io accepts.
const KEYWORDS_MAX: usize = 5;

/// Checks the manifest and the licence texts of every package that is published.
pub fn check(tree: &Tree) -> Result<Vec<Finding>> {
    let metadata = metadata(tree)?;
    let mut findings = judge(&metadata);
    for (folder, _) in published(&metadata) {
        let folder = Path::new(&folder).strip_prefix(tree.root())?.to_path_buf();
        for name in LICENCES {
            let path = folder.join(name);
            let own = std::fs::read(tree.root().join(&path)).ok();
            if own.is_none() || own != std::fs::read(tree.root().join(name)).ok() {
                let what = format!("it is not the text of {name}: ln -s ../../{name}");
                findings.push(Finding { file: path.display().to_string(), line: 0, what });
            }
        }
    }
    Ok(findings)
}

/// The published packages in the output of `cargo metadata`, each with its folder.
fn published(metadata: &Value) -> impl Iterator<Item = (String, &Value)> {
    array(metadata, "packages").iter().filter(|package| is_published(package)).map(|package| {
        let manifest = text(package, "manifest_path");
        (manifest.trim_end_matches("/Cargo.toml").to_owned(), package)
    })
}

/// `publish` is an empty list where it is off, and null where nothing was said.
fn is_published(package: &Value) -> bool {
    package.get("publish").is_none_or(Value::is_null)
}

/// The parts that the published packages lack, or show and should not.
fn judge(metadata: &Value) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (folder, package) in published(metadata) {
        let mut find = |what: String| {
            findings.push(Finding { file: format!("{folder}/Cargo.toml"), line: 0, what });
        };
        for field in ["description", "license", "repository", "documentation", "readme"] {
            if text(package, field).is_empty() {
                find(format!("a published package has a {field}"));
            }
        }
        for field in ["keywords", "categories"] {
            if !(1..=KEYWORDS_MAX).contains(&array(package, field).len()) {
                find(format!("a published package has 1 to {KEYWORDS_MAX} {field}"));
            }
        }
        if package.pointer("/metadata/docs/rs/targets").is_none() {
            find("a published package names the targets of its documentation".into());
        }
        for feature in package.get("features").and_then(Value::as_object).into_iter().flatten() {
            if PRIVATE.contains(&feature.0.as_str()) {
                find(format!("the feature {0} is private: name it _{0}", feature.0));
            }
            let is_default = feature.0 == "default";
            if is_default && feature.1.as_array().is_some_and(|on| on.iter().any(|on| on == "lab"))
            {
                find("the lab is no default of what is published".into());
            }
        }
        judge_dependencies(metadata, package, &mut find);
    }
    findings
}

/// A dependency on a package that is not published must have no version, and be for tests alone.
fn judge_dependencies(metadata: &Value, package: &Value, find: &mut impl FnMut(String)) {
    for dependency in array(package, "dependencies") {
        let name = text(dependency, "name");
        let is_there = published(metadata).any(|(_, other)| text(other, "name") == name);
        if !is_ours(name) || is_there {
            continue;
        }
        if text(dependency, "kind") != "dev" || text(dependency, "req") != "*" {
            find(format!("{name} is not published: only tests may use it, without a version"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn package() -> Value {
        json!({
            "name": "esker", "manifest_path": "crates/store/Cargo.toml", "publish": null,
            "description": "d", "license": "l", "repository": "r", "documentation": "d",
            "readme": "README.md", "keywords": ["k"], "categories": ["c"],
            "metadata": {"docs": {"rs": {"targets": ["t"]}}},
            "features": {"default": ["zstd"], "zstd": [], "_planted": []},
            "dependencies": [
                {"name": "esker-testkit", "kind": "dev", "req": "*"},
                {"name": "thiserror", "kind": null, "req": "^2"},
            ],
        })
    }

    fn findings(change: impl Fn(&mut Value)) -> Vec<String> {
        let mut package = package();
        change(&mut package);
        let testkit = json!({"name": "esker-testkit", "publish": []});
        let found = judge(&json!({"packages": [package, testkit]}));
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_complete_package_is_left_alone() {
        assert_eq!(findings(|_| ()), [""; 0]);
        assert_eq!(findings(|package| package["publish"] = json!([])), [""; 0]);
    }

    #[test]
    fn what_is_missing_is_found() {
        for field in ["description", "license", "repository", "documentation", "readme"] {
            let found = findings(|package| package[field] = Value::Null);
            let expected = format!("crates/store/Cargo.toml: a published package has a {field}");
            assert_eq!(found, [expected]);
        }
        assert_eq!(findings(|package| package["keywords"] = json!([])).len(), 1);
        assert_eq!(findings(|package| package["categories"] = json!([1, 2, 3, 4, 5, 6])).len(), 1);
        assert_eq!(findings(|package| package["metadata"] = Value::Null).len(), 1);
    }

    #[test]
    fn what_is_for_tests_alone_stays_out_of_what_is_published() {
        assert_eq!(findings(|package| package["features"]["planted"] = json!([])).len(), 1);
        assert_eq!(findings(|package| package["features"]["default"] = json!(["lab"])).len(), 1);
        let dependency = |kind: Value, req: &str| {
            findings(|package| {
                package["dependencies"][0] =
                    json!({"name": "esker-testkit", "kind": kind, "req": req});
            })
        };
        assert_eq!(dependency(json!("dev"), "^0.1.0").len(), 1);
        assert_eq!(dependency(Value::Null, "*").len(), 1);
    }
}
