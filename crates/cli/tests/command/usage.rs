//! Mistakes in the command line, and the help that there is.

use crate::support::{Place, esker};

/// The commands that feature `lab` adds.
const LAB: [&str; 3] = ["demo", "bench", "lab"];

#[test]
fn mistakes_are_one_line_and_exit_2() {
    let nothing: [&str; 0] = [];
    esker(nothing).fails(2, &["--help"]);
    esker(["frobnicate"]).fails(2, &["frobnicate"]);
    esker(["--frob"]).fails(2, &["--frob"]);
    esker(["get"]).fails(2, &["<DB>", "<KEY>", "esker get --help"]);
    esker(["get", "db"]).fails(2, &["<KEY>"]);
    esker(["get", "db", "k", "more"]).fails(2, &["more"]);
    esker(["scan", "db", "--limit", "many"]).fails(2, &["many", "--limit"]);
    esker(["scan", "db", "--limit", "-1"]).fails(2, &["-1"]);
    esker(["load", "db", "--format", "csv"]).fails(2, &["csv", "tsv", "jsonl"]);
    esker(["load", "db", "--durability", "never"]).fails(2, &["never", "buffered", "synced"]);
    esker(["completions", "tcsh"]).fails(2, &["tcsh"]);
    esker(["get", "db", "k\n\u{1b}[2J", "a\nb"]).fails(2, &[]);
}

#[test]
fn a_value_with_a_forgotten_quote_is_not_repeated() {
    let place = Place::new();
    for extra in ["hunter2", "--hunter2", "-Hunter2"] {
        let answer = esker(["put", &place.db(), "password", "correct", extra]);
        answer.fails(2, &["quote"]);
        assert!(!answer.stderr().contains("unter2"));
    }
    assert!(!place.path("db").exists());
}

#[test]
fn every_option_is_documented() {
    assert!(esker(["--help"]).text().contains("Examples:"));
    assert!(esker(["--version"]).text().starts_with("esker "));
    let help = esker(["--help"]).text().to_owned();
    for name in LAB {
        let is_listed = help.lines().any(|line| line.split_whitespace().next() == Some(name));
        assert_eq!(is_listed, cfg!(feature = "lab"), "{name}");
    }
    let lab: &[&str] = if cfg!(feature = "lab") { &LAB } else { &[] };
    for name in [
        "put",
        "get",
        "del",
        "scan",
        "load",
        "dump",
        "history",
        "changes",
        "diff",
        "versions",
        "pin",
        "unpin",
        "set-history",
        "erase",
        "keyspaces",
        "stats",
        "top",
        "check",
        "compact",
        "permute",
        "flash",
        "completions",
    ]
    .iter()
    .chain(lab)
    {
        let help = esker([*name, "--help"]).text().to_owned();
        let mut lines = help.lines().skip_while(|line| *line != "Options:").skip(1).peekable();
        while let Some(line) = lines.next() {
            if line.trim_start().starts_with('-') {
                let described_here = line.trim_start().contains("  ");
                let described_below =
                    lines.peek().is_some_and(|next| next.starts_with("          "));
                assert!(described_here || described_below, "{name}: {line}");
            }
        }
        assert_eq!(esker(["help", *name]).text(), help);
    }
}

#[test]
fn completions_are_scripts() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(esker(["completions", shell]).text().contains("esker"), "{shell}");
    }
}
