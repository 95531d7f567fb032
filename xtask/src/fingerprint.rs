//! docs/format keeps up with the encoders.
//!
//! The page ends in a table with one fingerprint for each file that decides bytes on the device:
//! a hash over the file's tokens, so that comments, layout and tests may change freely. Whoever
//! changes such a file reads the page, brings it up to date, and records the new fingerprint with
//! `cargo xtask format-hash --update`. The golden tests of `esker-format` compare the page's
//! example bytes with what the encoders really write; this table covers the code they do not run.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use xxhash_rust::xxh3::xxh3_64;

use crate::{Finding, Result, Tree};

/// The page.
pub const PAGE: &str = "docs/format/store.md";
/// The line after which the table stands, up to the end of the page.
pub const MARK: &str = "<!-- fingerprints: written by `cargo xtask format-hash --update` -->";
/// The folder whose files decide bytes.
const ENCODERS: &str = "crates/format/src/";
/// Files in it that decide none.
const SILENT: [&str; 2] = ["error.rs", "lib.rs"];

/// Finds encoders that changed after the page was last brought up to date.
pub fn check(tree: &Tree) -> Result<Vec<Finding>> {
    let Some(page) = tree.text(PAGE) else {
        let what = "the page is missing".to_string();
        return Ok(vec![Finding { file: PAGE.into(), line: 0, what }]);
    };
    let recorded = page.split_once(MARK).map_or("", |(_, table)| table);
    let current = table(tree)?;
    let stale = current.lines().filter(|row| !recorded.lines().any(|line| line == *row));
    let recorded_rows = recorded.lines().filter(|line| !line.is_empty());
    let gone = recorded_rows.filter(|line| !current.lines().any(|row| row == *line));
    let mut findings: Vec<_> = stale
        .chain(gone)
        .map(|row| Finding {
            file: PAGE.into(),
            line: 0,
            what: format!(
                "out of step with {}: bring the page up to date, then run \
                 `cargo xtask format-hash --update`",
                row.split('`').nth(1).unwrap_or(row),
            ),
        })
        .collect();
    findings.dedup();
    Ok(findings)
}

/// The page with today's fingerprints.
pub fn updated_page(tree: &Tree) -> Result<String> {
    let page = tree.text(PAGE).ok_or("docs/format/store.md is missing")?;
    let (text, _) =
        page.split_once(MARK).ok_or("docs/format/store.md has no mark for the table")?;
    Ok(format!("{text}{MARK}\n{}", table(tree)?))
}

/// Today's table.
pub fn table(tree: &Tree) -> Result<String> {
    let mut table = String::from("| file | fingerprint |\n|---|---|\n");
    for file in tree.ending_in(&[".rs"]) {
        let Some(name) = file.path.strip_prefix(ENCODERS) else { continue };
        if SILENT.contains(&name) || name.ends_with("tests.rs") {
            continue;
        }
        let hash = fingerprint(&file.text).map_err(|error| format!("{}: {error}", file.path))?;
        table.push_str(&format!("| `{}` | `{hash:016x}` |\n", file.path));
    }
    Ok(table)
}

/// A hash over the tokens of a file, without its documentation and its tests.
fn fingerprint(text: &str) -> Result<u64> {
    let mut file = syn::parse_file(text)?;
    file.items.retain(|item| !is_test(item));
    let mut words = Vec::new();
    collect_words(file.into_token_stream(), &mut words);
    Ok(xxh3_64(words.join(" ").as_bytes()))
}

fn is_test(item: &syn::Item) -> bool {
    let attributes = match item {
        syn::Item::Mod(module) => &module.attrs,
        syn::Item::Fn(function) => &function.attrs,
        _ => return false,
    };
    attributes.iter().any(|attribute| {
        let tokens = attribute.meta.to_token_stream().to_string();
        tokens == "test" || tokens == "cfg (test)"
    })
}

/// Every token as a word, except those of documentation, which is `#[doc = "…"]` to the parser.
fn collect_words(stream: TokenStream, words: &mut Vec<String>) {
    for token in stream {
        let TokenTree::Group(group) = token else {
            words.push(token.to_string());
            continue;
        };
        let first = group.stream().into_iter().next();
        if matches!(first, Some(TokenTree::Ident(ident)) if ident == "doc") {
            while words.pop_if(|word| *word == "#" || *word == "!").is_some() {}
            continue;
        }
        let (open, close) = match group.delimiter() {
            Delimiter::Parenthesis => ("(", ")"),
            Delimiter::Brace => ("{", "}"),
            Delimiter::Bracket => ("[", "]"),
            Delimiter::None => ("", ""),
        };
        words.push(open.into());
        collect_words(group.stream(), words);
        // rustfmt adds and drops these as lines break.
        words.pop_if(|word| *word == ",");
        words.push(close.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "//! Page.\n\n/// Doc.\npub const A: u8 = 1;\nm! { /// x\n B(u8, u8) }\n";

    #[test]
    fn comments_layout_and_tests_do_not_count() {
        let other = "//! Other.\npub const A:u8=1; // why\nm! { /// y\n /// z\n B(u8, u8,) }\n\
                     #[cfg(test)]\nmod tests {}\n#[test]\nfn t() {}\n";
        assert_eq!(fingerprint(BASE).unwrap(), fingerprint(other).unwrap());
    }

    #[test]
    fn every_token_counts() {
        for changed in
            ["pub const A: u8 = 2;\nm! { B(u8, u8) }", "pub const A: u8 = 1;\nm! { B(u8, u16) }"]
        {
            assert_ne!(fingerprint(BASE).unwrap(), fingerprint(changed).unwrap());
        }
    }

    #[test]
    fn the_fingerprint_is_the_same_everywhere() {
        assert_eq!(fingerprint("pub const A: u8 = 1;").unwrap(), 0xfd5e_dedf_cdee_2aeb);
    }

    #[test]
    fn an_encoder_that_changed_is_found_until_the_page_is_updated() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let check_now = || check(&Tree::read(folder.path()).unwrap()).unwrap();
        write("crates/format/src/key.rs", "pub const A: u8 = 1;");
        assert_eq!(check_now().len(), 1, "no page");
        write(PAGE, &format!("text\n{MARK}\n"));
        assert!(!check_now().is_empty(), "no table");
        let update = || write(PAGE, &updated_page(&Tree::read(folder.path()).unwrap()).unwrap());
        update();
        assert_eq!(check_now(), []);
        write("crates/format/src/key.rs", "pub const A: u8 = 2;");
        assert_eq!(check_now().len(), 1, "changed");
        update();
        std::fs::remove_file(folder.path().join("crates/format/src/key.rs")).unwrap();
        write("crates/format/src/ids.rs", "");
        assert_eq!(check_now().len(), 2, "one gone, one new");
    }
}
