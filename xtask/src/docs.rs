//! The pages tell the truth: links lead somewhere, the README's example is the tested one, and
//! every dependency has its reason.

use std::path::Path;

use crate::{Finding, Result, Tree};

/// The page with the reasons.
const REASONS: &str = "docs/decisions/dependencies.md";
/// Whose documentation holds the tested copy of the README's example.
const LIBRARY: &str = "crates/store/src/lib.rs";

/// Finds links of Markdown pages to files that are not there.
pub fn check_links(tree: &Tree) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for page in tree.ending_in(&[".md"]) {
        let folder = Path::new(&page.path).parent().unwrap_or(Path::new(""));
        for (line, target) in links(&page.text) {
            let file = target.split('#').next().unwrap_or_default();
            let elsewhere = target.contains("://") || target.starts_with("mailto:");
            if !elsewhere && !file.is_empty() && !tree.root().join(folder).join(file).exists() {
                let what = format!("the link to {target} leads nowhere");
                findings.push(Finding { file: page.path.clone(), line, what });
            }
        }
    }
    Ok(findings)
}

/// The targets of `[text](target)` outside code, with their lines.
fn links(page: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut in_code = false;
    for (line, text) in (1..).zip(page.lines()) {
        if text.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        let mut rest = if in_code { "" } else { text };
        while let Some((_, after)) = rest.split_once("](") {
            let (target, after) = after.split_once(')').unwrap_or((after, ""));
            found.push((line, target));
            rest = after;
        }
    }
    found
}

/// Finds external dependencies that the page of reasons does not name.
pub fn check_dependency_reasons(tree: &Tree) -> Result<Vec<Finding>> {
    let manifest = tree.text("Cargo.toml").ok_or("Cargo.toml is missing")?;
    let Some(page) = tree.text(REASONS) else {
        let what = "the page is missing".to_string();
        return Ok(vec![Finding { file: REASONS.into(), line: 0, what }]);
    };
    let unexplained = external_dependencies(manifest)
        .filter(|name| !page.contains(&format!("`{name}`")))
        .map(|name| Finding {
            file: REASONS.into(),
            line: 0,
            what: format!("`{name}` is a dependency without a reason"),
        });
    Ok(unexplained.collect())
}

/// The names in `[workspace.dependencies]`, our own crates excluded.
fn external_dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    manifest
        .lines()
        .skip_while(|line| *line != "[workspace.dependencies]")
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split_once(" = "))
        .filter(|(_, value)| !value.contains("path ="))
        .map(|(name, _)| name.trim())
}

/// Finds a README whose first Rust example is not the first one of the library's documentation.
pub fn check_readme_example(tree: &Tree) -> Result<Vec<Finding>> {
    let readme = tree.text("README.md").ok_or("README.md is missing")?;
    let Some(library) = tree.text(LIBRARY) else {
        let what = "the library is missing".to_string();
        return Ok(vec![Finding { file: LIBRARY.into(), line: 0, what }]);
    };
    let shown = rust_example(readme.lines());
    let tested = rust_example(library.lines().map_while(inner_doc));
    if shown.is_some() && shown == tested {
        return Ok(Vec::new());
    }
    let what = format!("the first Rust example differs from the one that {LIBRARY} tests");
    Ok(vec![Finding { file: "README.md".into(), line: 0, what }])
}

fn inner_doc(line: &str) -> Option<&str> {
    line.strip_prefix("//! ").or_else(|| line.strip_prefix("//!"))
}

/// The first Rust code block, without the lines that rustdoc hides. A block without a language is
/// Rust to rustdoc.
fn rust_example<'a>(lines: impl Iterator<Item = &'a str>) -> Option<Vec<&'a str>> {
    let mut block = None;
    for line in lines {
        let fence = line.strip_prefix("```");
        match (&mut block, fence) {
            (None, Some(language)) => {
                let is_rust = matches!(language, "" | "no_run") || language.starts_with("rust");
                block = Some((is_rust, Vec::new()));
            }
            (Some((true, shown)), Some(_)) => return Some(std::mem::take(shown)),
            (Some((false, _)), Some(_)) => block = None,
            (Some((true, shown)), None) if line != "#" && !line.starts_with("# ") => {
                shown.push(line);
            }
            (_, None) => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_outside_code() {
        let page = "see [a](a.md) and [b](b/c.md#d)\n```\n[x](y)\n```\n[e](https://e.org)\n";
        assert_eq!(links(page), [(1, "a.md"), (1, "b/c.md#d"), (5, "https://e.org")]);
    }

    #[test]
    fn own_crates_need_no_reason() {
        let manifest =
            "[workspace.dependencies]\nesker = { path = \"x\" }\n\nclap = \"4\"\n[a]\nb = 1\n";
        assert_eq!(external_dependencies(manifest).collect::<Vec<_>>(), ["clap"]);
    }

    #[test]
    fn the_first_example_is_compared_without_hidden_lines() {
        let readme = "text\n```sh\nls\n```\n```rust\nlet a = 1;\n```\n";
        let docs =
            "//! text\n//!\n//! ```no_run\n//! # fn main() {\n//! let a = 1;\n//! ```\nmod x;\n";
        let shown = rust_example(readme.lines());
        assert_eq!(shown, Some(vec!["let a = 1;"]));
        assert_eq!(shown, rust_example(docs.lines().map_while(inner_doc)));
        assert_eq!(rust_example("```rust\nunfinished".lines()), None);
    }
}
