//! The examples run, and print what they should: `cargo test` has built them next to this test.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;

/// The output of an example.
fn printed(name: &str) -> String {
    let here = std::env::current_exe().unwrap();
    let built = here.parent().and_then(Path::parent).unwrap().join("examples").join(name);
    let why = "build the examples: cargo test, or cargo build --examples";
    assert!(built.exists(), "{} is not there: {why}", built.display());
    let output = Command::new(built).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{name}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn sessions_expire() {
    let expected = "t-1 belongs to Some(\"ada\")\n1 expired; t-1: None, t-2: Some(\"alan\")\n";
    assert_eq!(printed("session_store"), expected);
}

#[test]
fn a_time_series_is_read_by_time() {
    let expected = "quarters of an hour: [20.12, 20.37, 20.62, 20.87]\n\
                    newest of 8: Some(-21.00)\n3000 let go, 600 left\n";
    assert_eq!(printed("time_series"), expected);
}

#[test]
fn a_queue_hands_out_each_job_once() {
    let expected = "job 1 was forgotten\nalone: 210, 0 left\nfour workers: 5050\n";
    assert_eq!(printed("queue"), expected);
}

#[test]
fn texts_are_found_by_their_words() {
    let expected = "written, one: [(\"arrays\", 2), (\"logs\", 2), (\"trees\", 2)]\n\
                    written, place: [(\"logs\", 2), (\"trees\", 2)]\n\
                    written: [(\"trees\", 1)]\nle…: {\"level\", \"levels\"}\n";
    assert_eq!(printed("inverted_index"), expected);
}

#[test]
fn money_is_neither_made_nor_lost() {
    assert!(printed("bank").starts_with("400 in all, "));
}

#[test]
fn the_first_steps_run() {
    printed("quickstart");
}
