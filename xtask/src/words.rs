//! One language: words of this project that are no longer used, and the field's word for each.
//!
//! The words of a paper stay in the files that implement it, listed as exceptions. The glossary
//! (`docs/glossary.md`) explains what is used instead.

use crate::tree::File;
use crate::{Finding, Result, Tree};

/// A word that is no longer used.
#[derive(Clone, Copy, Debug)]
struct Word {
    /// Lower case, split so that this table does not find itself.
    parts: (&'static str, &'static str),
    /// The text to write instead.
    instead: &'static str,
    /// Beginnings of paths where it has another meaning.
    but: &'static [&'static str],
}

const fn word(
    head: &'static str,
    tail: &'static str,
    instead: &'static str,
    but: &'static [&'static str],
) -> Word {
    Word { parts: (head, tail), instead, but }
}

/// The folders in which SQLite's cache spill has its own name.
const CACHE_SPILL: &[&str] =
    &["crates/pages/", "bindings/sqlite/", "docs/", "crates/cli/", "lab/", "testing/"];

/// Every such word. A line is added when the last use has gone.
const WORDS: [Word; 14] = [
    word("spill", " run", "sorted run", &["docs/"]),
    word("is_sp", "illing", "is_flushing", &[]),
    word("begin_", "spill", "begin_flush", &[]),
    word("is_", "tight", "is_fully_compacted", &[]),
    word("lets_", "spill", "can_flush", &[]),
    word("takes_runs", "_apart", "consumes_runs_partially", &[]),
    word("merge", "params", "CompactionParams", &["docs/"]),
    word("merge", "stats", "CompactionStats", &["docs/"]),
    word("spi", "lls", "flushes, sorted runs", CACHE_SPILL),
    word("seq::sett", "led", "Seq::RESET", &["docs/decisions/"]),
    word("is_sett", "led", "is_quiescent, is_reset", &[]),
    word("put_", "apart", "write_blobs", &[]),
    word("so ", "much", "this many, this amount", &[]),
    word("by ", "turns", "interleaved, alternated", &[]),
];

/// Folders whose text is checked.
const FOLDERS: [&str; 3] = ["crates/", "bindings/", "docs/"];

/// Finds every line with a word that is no longer used.
pub fn check(tree: &Tree) -> Result<Vec<Finding>> {
    let is_checked = |file: &&File| {
        FOLDERS.iter().any(|folder| file.path.starts_with(folder))
            && !file.path.contains("/proptest-regressions/")
    };
    Ok(tree.files().filter(is_checked).flat_map(judge).collect())
}

fn judge(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    let applies = |word: &&Word| !word.but.iter().any(|path| file.path.starts_with(path));
    let words: Vec<_> = WORDS.iter().filter(applies).collect();
    for (line, text) in (1..).zip(file.text.lines()) {
        let text = text.to_lowercase();
        for word in &words {
            let old = [word.parts.0, word.parts.1].concat();
            if text.contains(&old) {
                let what = format!("\"{old}\": write \"{}\"", word.instead);
                findings.push(Finding { file: file.path.clone(), line, what });
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> usize {
        judge(&File { path: path.into(), text: text.into() }).len()
    }

    #[test]
    fn every_word_is_found_in_any_case_and_only_where_it_is_forbidden() {
        for word in WORDS {
            let old = [word.parts.0, word.parts.1].concat();
            assert_ne!(findings("crates/x.rs", &format!("a {old} b")), 0, "{old}");
            assert_ne!(findings("crates/x.rs", &old.to_uppercase()), 0, "{old}");
        }
        let old = ["spi", "lls"].concat();
        assert_eq!(findings("crates/pages/x.rs", &old), 0);
    }

    #[test]
    fn this_repository_has_none() {
        let tree = Tree::of_this_repository().unwrap();
        assert_eq!(check(&tree).unwrap(), []);
    }
}
