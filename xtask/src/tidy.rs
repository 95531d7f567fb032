//! Sizes, words and attributes: the rules of CONTRIBUTING.md that a machine can hold up.

use crate::source::Source;
use crate::tree::File;
use crate::{Finding, Result, Tree};

/// Longest file, in lines, tests included.
pub const FILE_LINES_MAX: usize = 600;
/// Longest line, in columns.
pub const LINE_COLUMNS_MAX: usize = 100;
/// Longest function, in lines from its signature to its closing brace.
pub const FUNCTION_LINES_MAX: usize = 70;

/// Files that columns are counted in; prose wraps where it likes.
const CODE: [&str; 4] = [".rs", ".sh", "Makefile", ".ci/run"];
/// The folders in which the keyword `unsafe` is allowed.
const UNSAFE_FOLDERS: [&str; 2] = ["crates/device/src/", "bindings/"];
/// Words that must not be committed, with what to do instead. They are split so that this table
/// does not find itself.
const BANNED: [(&str, &str, &str); 7] = [
    ("TO", "DO", "write it, or put the limit in docs/limits"),
    ("FIX", "ME", "fix it, or put the limit in docs/limits"),
    ("XX", "X", "say what is meant"),
    ("HA", "CK", "say what it works around and why"),
    ("/ro", "ot/", "no paths of one machine"),
    ("/ho", "me/", "no paths of one machine"),
    ("<<<<", "<<<", "finish the merge"),
];

/// Runs every rule over every text file.
pub fn check(tree: &Tree) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for file in tree.files().filter(|file| file.path != "Cargo.lock") {
        judge_text(file, &mut findings);
        if file.path.ends_with(".rs") {
            let source =
                Source::parse(&file.text).map_err(|error| format!("{}: {error}", file.path))?;
            judge_source(file, &source, &mut findings);
        }
    }
    Ok(findings)
}

fn judge_text(file: &File, findings: &mut Vec<Finding>) {
    let mut find =
        |line, what: String| findings.push(Finding { file: file.path.clone(), line, what });
    let counts_columns = CODE.iter().any(|ending| file.path.ends_with(ending));
    let mut lines = 0;
    for (line, text) in (1..).zip(file.text.lines()) {
        lines = line;
        let columns = text.chars().count();
        if counts_columns && columns > LINE_COLUMNS_MAX {
            find(line, format!("{columns} columns; the limit is {LINE_COLUMNS_MAX}"));
        }
        if text.ends_with([' ', '\t']) {
            find(line, "white space at the end of the line".into());
        }
        for (head, tail, instead) in BANNED {
            let word = [head, tail].concat();
            if text.contains(&word) {
                find(line, format!("{word}: {instead}"));
            }
        }
    }
    if file.path.ends_with(".rs") && lines > FILE_LINES_MAX {
        find(
            0,
            format!("{lines} lines; the limit is {FILE_LINES_MAX}: what second idea moved in?"),
        );
    }
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        find(lines, "no line feed at the end of the file".into());
    }
}

fn judge_source(file: &File, source: &Source, findings: &mut Vec<Finding>) {
    let mut find =
        |line, what: String| findings.push(Finding { file: file.path.clone(), line, what });
    for function in &source.functions {
        if function.lines > FUNCTION_LINES_MAX {
            let (name, lines) = (&function.name, function.lines);
            find(
                function.line,
                format!("{name} has {lines} lines; the limit is {FUNCTION_LINES_MAX}"),
            );
        }
    }
    // What several test binaries share is dead code in those that use another part of it; an
    // expectation would fail in the rest.
    let shared_by_tests = file.path.contains("/tests/common/");
    for silencer in &source.silencers {
        if silencer.kind == "allow" && !shared_by_tests {
            find(silencer.line, "use #[expect(…, reason = …)] instead of allow".into());
        } else if !silencer.arguments.contains("reason =") {
            find(silencer.line, format!("this {} gives no reason", silencer.kind));
        }
    }
    if !UNSAFE_FOLDERS.iter().any(|folder| file.path.starts_with(folder)) {
        for line in &source.unsafe_lines {
            find(*line, format!("unsafe is for {} only", UNSAFE_FOLDERS.join(" and ")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        let file = File { path: path.into(), text: text.into() };
        let mut findings = Vec::new();
        judge_text(&file, &mut findings);
        if path.ends_with(".rs") {
            judge_source(&file, &Source::parse(text).unwrap(), &mut findings);
        }
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_tidy_file_passes() {
        assert!(findings("a.rs", "fn f() {}\n").is_empty());
        assert!(findings("a.rs", "").is_empty());
    }

    #[test]
    fn sizes_have_limits() {
        let at_limit = format!("//{}\n", "é".repeat(LINE_COLUMNS_MAX - 2));
        assert!(findings("a.rs", &at_limit).is_empty());
        let past_limit = at_limit.replacen('é', "éé", 1);
        assert_eq!(findings("a.rs", &past_limit).len(), 1);
        assert!(findings("a.md", &past_limit).is_empty());

        assert!(findings("a.rs", &"//\n".repeat(FILE_LINES_MAX)).is_empty());
        assert_eq!(findings("a.rs", &"//\n".repeat(FILE_LINES_MAX + 1)).len(), 1);

        let function = |lines: usize| format!("fn f() {{\n{}}}\n", "f();\n".repeat(lines - 2));
        assert!(findings("a.rs", &function(FUNCTION_LINES_MAX)).is_empty());
        assert_eq!(findings("a.rs", &function(FUNCTION_LINES_MAX + 1)).len(), 1);
    }

    #[test]
    fn words_and_line_ends_are_found() {
        let word = ["TO", "DO"].concat();
        assert_eq!(findings("a.md", &format!("\n{word}: x\n")).len(), 1);
        assert_eq!(findings("a.md", "x \n"), ["a.md:1: white space at the end of the line"]);
        assert_eq!(findings("a.md", "x"), ["a.md:1: no line feed at the end of the file"]);
    }

    #[test]
    fn silencers_need_reasons_and_unsafe_its_place() {
        assert_eq!(findings("a.rs", "#[allow(dead_code)]\nfn f() {}\n").len(), 1);
        assert_eq!(findings("a.rs", "#[expect(dead_code)]\nfn f() {}\n").len(), 1);
        let with_reason = "#![allow(dead_code, reason = \"r\")]\n";
        assert_eq!(findings("a/tests/model.rs", with_reason).len(), 1);
        assert!(findings("a/tests/common/mod.rs", with_reason).is_empty());
        assert!(findings("a.rs", "#[expect(dead_code, reason = \"r\")]\nfn f() {}\n").is_empty());
        assert_eq!(findings("crates/store/src/a.rs", "fn f() { unsafe {} }\n").len(), 1);
        assert!(findings("crates/device/src/a.rs", "fn f() { unsafe {} }\n").is_empty());
    }
}
