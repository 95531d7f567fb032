//! The page of the papers tells the truth: what it names exists, and it names every figure, table
//! and algorithm of the papers, and every experiment. The catalog of the laboratory lists them all.

use std::collections::BTreeSet;

use crate::tree::File;
use crate::{Finding, Result, Tree};

/// The page.
pub const PAGE: &str = "docs/papers.md";
/// The folder of the experiments, each a constant with a name.
const EXPERIMENTS: &str = "lab/experiments/src/";
const EXPERIMENT: &str = "pub const EXPERIMENT: Experiment = Experiment {";
/// The file that lists them.
const CATALOG: &str = "lab/experiments/src/catalog.rs";
/// The text before an experiment's name on the page.
const COMMAND: &str = "esker lab run ";
/// Folders in which a path of the page begins.
const FOLDERS: [&str; 7] =
    ["crates/", "bindings/", "lab/", "testing/", "docs/", "xtask/", "scripts/"];
/// The texts that a row's second cell may have, and whether the row then names a place.
const STATUSES: [(&str, bool); 5] =
    [("here", true), ("changed", true), ("part", true), ("not built", false), ("drawing", false)];

/// A section of the page that must have rows: its heading, and labels with their numbers.
type Section = (&'static str, &'static [(&'static str, u32, u32)]);

const SECTIONS: [Section; 7] = [
    ("FD+tree (CIKM 2012)", &[("Fig. ", 1, 9)]),
    (
        "Thesis, chapters 1 and 3: permuting",
        &[("Fig. 1.", 1, 2), ("Fig. 3.", 1, 10), ("Fig. A.", 1, 4), ("Algorithm ", 1, 10)],
    ),
    (
        "Thesis, chapter 4: concurrency control",
        &[("Fig. 4.", 1, 9), ("Fig. B.", 1, 5), ("Algorithm ", 14, 16)],
    ),
    (
        "Thesis, chapter 5: merge policies",
        &[("Fig. 5.", 1, 12), ("Algorithm ", 11, 13), ("Policy ", 1, 4)],
    ),
    ("LA-tree (VLDB 2009)", &[]),
    ("Bulk Split multiversion tree", &[("Fig. ", 1, 8), ("Algorithm ", 1, 3)]),
    ("MV-FTL (TKDE 2017)", &[("Fig. ", 1, 10), ("Table ", 1, 5), ("Algorithm ", 1, 3)]),
];

/// A row of a table: its section, line, first cell, second and the rest.
struct Row<'a> {
    section: &'a str,
    line: usize,
    cells: Vec<&'a str>,
}

/// Finds what the page says of something that is not there, and what it leaves out.
pub fn check(tree: &Tree) -> Result<Vec<Finding>> {
    let Some(page) = tree.text(PAGE) else {
        return Ok(vec![finding(0, "the page is missing".to_owned())]);
    };
    let mut findings = Vec::new();
    let experiments = experiments(tree);
    let mut named = BTreeSet::new();
    for (line, span) in spans(page) {
        if let Some(name) = span.strip_prefix(COMMAND) {
            named.insert(name);
            if !experiments.contains(name) {
                findings.push(finding(line, format!("there is no experiment {name}")));
            }
        } else if let Some(what) = missing(tree, span) {
            findings.push(finding(line, what));
        }
    }
    for name in experiments.iter().filter(|name| !named.contains(*name)) {
        findings.push(finding(0, format!("the experiment {name} has no row")));
    }
    judge_rows(&rows(page), &mut findings);
    findings.extend(unlisted(tree));
    Ok(findings)
}

/// Experiments that the catalog leaves out, each by the name of its module.
fn unlisted(tree: &Tree) -> impl Iterator<Item = Finding> {
    let catalog = tree.text(CATALOG).unwrap_or_default();
    let files = tree.files().filter(|file| file.path.starts_with(EXPERIMENTS));
    let experiments = files.filter(|file| experiment_name(&file.text).is_some());
    let is_unlisted = move |file: &&File| {
        let module = file.path.rsplit('/').next().unwrap_or_default().trim_end_matches(".rs");
        !catalog.contains(&format!("{module}::EXPERIMENT"))
    };
    experiments.filter(is_unlisted).map(|file| Finding {
        file: file.path.clone(),
        line: 0,
        what: format!("the experiment is not in {CATALOG}"),
    })
}

fn finding(line: usize, what: String) -> Finding {
    Finding { file: PAGE.to_owned(), line, what }
}

/// The names that `esker lab list` knows.
fn experiments(tree: &Tree) -> BTreeSet<&str> {
    let files = tree.files().filter(|file| file.path.starts_with(EXPERIMENTS));
    files.filter_map(|file| experiment_name(&file.text)).collect()
}

fn experiment_name(source: &str) -> Option<&str> {
    let (_, body) = source.split_once(EXPERIMENT)?;
    let (_, after) = body.split_once("name: \"")?;
    Some(after.split_once('"')?.0)
}

/// The texts between backquotes, each with its line.
fn spans(page: &str) -> Vec<(usize, &str)> {
    let of_line = |(line, text)| {
        let text: &str = text;
        text.split('`').skip(1).step_by(2).map(move |span| (line, span))
    };
    (1..).zip(page.lines()).flat_map(of_line).collect()
}

/// The part that is missing of a path, or of `path::test`; nothing of other spans.
fn missing(tree: &Tree, span: &str) -> Option<String> {
    if !FOLDERS.iter().any(|folder| span.starts_with(folder)) {
        return None;
    }
    let (path, test) =
        span.split_once("::").map_or((span, None), |(path, test)| (path, Some(test)));
    if !tree.root().join(path).exists() {
        return Some(format!("{path} does not exist"));
    }
    let test = test?;
    let has = tree.text(path).is_some_and(|text| text.contains(&format!("fn {test}(")));
    (!has).then(|| format!("{path} has no test {test}"))
}

/// The rows of all tables but their heads, section by section.
fn rows(page: &str) -> Vec<Row<'_>> {
    let (mut section, mut found, mut is_head) = ("", Vec::new(), true);
    for (line, text) in (1..).zip(page.lines()) {
        if let Some(heading) = text.strip_prefix("## ") {
            section = heading;
        }
        let Some(row) = text.strip_prefix('|').and_then(|row| row.strip_suffix('|')) else {
            is_head = true;
            continue;
        };
        let is_rule = row.chars().all(|sign| "-|: ".contains(sign));
        if !is_head && !is_rule {
            found.push(Row { section, line, cells: row.split('|').map(str::trim).collect() });
        }
        is_head = false;
    }
    found
}

fn judge_rows(rows: &[Row<'_>], findings: &mut Vec<Finding>) {
    for row in rows.iter().filter(|row| SECTIONS.iter().any(|(of, _)| *of == row.section)) {
        let [_, status, rest @ ..] = row.cells.as_slice() else {
            findings.push(finding(row.line, "a row has three cells".to_owned()));
            continue;
        };
        let known = STATUSES.iter().find(|(name, _)| name == status);
        match known {
            None => findings.push(finding(row.line, format!("{status:?} is no status"))),
            Some((_, true)) if !rest.iter().any(|cell| names_a_place(cell)) => {
                findings.push(finding(row.line, "the row names no place".to_owned()));
            }
            Some(_) => {}
        }
    }
    for (section, labels) in SECTIONS {
        let here: Vec<_> = rows.iter().filter(|row| row.section == section).collect();
        if here.is_empty() {
            findings.push(finding(0, format!("the section {section:?} has no rows")));
        }
        let wanted = labels.iter().flat_map(|(label, first, last)| {
            (*first..=*last).map(move |number| format!("{label}{number}:"))
        });
        for label in wanted {
            if !here.iter().any(|row| row.cells.iter().take(1).any(|c| c.starts_with(&label))) {
                findings.push(finding(0, format!("{section} has no row for {label}")));
            }
        }
    }
}

/// Whether a cell has a path, an experiment or a link.
fn names_a_place(cell: &str) -> bool {
    cell.contains("](") || cell.contains("`esker ") || cell.contains('/') && cell.contains('`')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A repository of one experiment, one file with a test, this catalog and this page.
    fn tree(page: &str, catalog: &str) -> (tempfile::TempDir, Tree) {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(PAGE, page);
        write("crates/a/tests/b.rs", "#[test]\nfn holds() {}\n");
        write("lab/experiments/src/c.rs", &format!("{EXPERIMENT}\n    name: \"c-d\",\n}}\n"));
        write(CATALOG, catalog);
        let tree = Tree::read(folder.path()).unwrap();
        (folder, tree)
    }

    /// A page on which every section has every row.
    fn whole() -> String {
        let mut page = "`esker lab run c-d`\n".to_owned();
        for (section, labels) in SECTIONS {
            page += &format!("## {section}\n| what | status | where |\n|---|---|---|\n");
            page += "| all | here | `crates/a/tests/b.rs::holds` |\n";
            for (label, first, last) in labels {
                for number in *first..=*last {
                    page += &format!("| {label}{number}: x | not built | |\n");
                }
            }
        }
        page
    }

    fn found(page: &str) -> Vec<String> {
        let (_folder, tree) = tree(page, "[c::EXPERIMENT]");
        check(&tree).unwrap().into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn a_page_that_is_true_passes() {
        assert_eq!(found(&whole()), [""; 0]);
    }

    #[test]
    fn what_is_not_there_is_found() {
        let with = |row: &str| found(&format!("{}{row}\n", whole()));
        assert_eq!(with("`crates/a/gone.rs`"), ["crates/a/gone.rs does not exist"]);
        assert_eq!(with("`crates/a/tests/b.rs::fails`"), ["crates/a/tests/b.rs has no test fails"]);
        assert_eq!(with("`esker lab run e`"), ["there is no experiment e"]);
        assert_eq!(with("| f | planned | |"), ["\"planned\" is no status"]);
        assert_eq!(with("| f | here | somewhere |"), ["the row names no place"]);
        assert_eq!(with("`make test`"), [""; 0]);
    }

    #[test]
    fn an_experiment_that_is_not_in_the_catalog_is_found() {
        let (_folder, tree) = tree(&whole(), "[d::EXPERIMENT]");
        let found: Vec<String> = check(&tree).unwrap().iter().map(ToString::to_string).collect();
        let expected = format!("lab/experiments/src/c.rs: the experiment is not in {CATALOG}");
        assert_eq!(found, [expected]);
    }

    #[test]
    fn what_is_left_out_is_found() {
        let page = whole().replace("| Fig. 5.7: x | not built | |\n", "");
        let what = "Thesis, chapter 5: merge policies has no row for Fig. 5.7:";
        assert_eq!(found(&page), [what]);
        let page = whole().replace("esker lab run c-d", "esker lab");
        assert_eq!(found(&page), ["the experiment c-d has no row"]);
        assert_eq!(found("").len(), 1 + 7 + 100);
    }
}
