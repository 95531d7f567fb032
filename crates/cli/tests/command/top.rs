//! `top` shows a store that this process writes meanwhile, and one that no process has open.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Place, Running, command, esker, while_written};
use crate::terminal::Terminal;

/// Ten times a second, this is a minute.
const LINES_MAX: usize = 600;

fn object(line: &str) -> Value {
    serde_json::from_str(line).unwrap()
}

#[test]
fn a_store_that_is_written_is_shown_at_work() {
    for place in Place::of_each_kind() {
        while_written(&place, |db| {
            let (before, begun) = (db.version(), Instant::now());
            let arguments = ["top", &place.db(), "--json", "--count", "4", "--interval", "0.2"];
            let answer = esker(arguments);
            let ticks: Vec<Value> = answer.text().lines().map(object).collect();
            assert_eq!(ticks.len(), 4);
            let versions: Vec<u64> =
                ticks.iter().map(|tick| tick["version"].as_u64().unwrap()).collect();
            // What was passed on before it began is there, and nothing is made up.
            assert!(versions[0] >= before && versions[3] <= db.version(), "{versions:?}");
            assert!(versions.is_sorted_by(|a, b| a < b), "{versions:?}");
            assert!(ticks[0]["per_second"]["operations"].is_null());
            let mut all_seconds = 0.0;
            for (tick, pair) in ticks[1..].iter().zip(versions.windows(2)) {
                let rate = tick["per_second"]["operations"].as_f64().unwrap();
                let seconds = tick["seconds"].as_f64().unwrap();
                let added = (pair[1] - pair[0]) as f64;
                assert!((rate * seconds - added).abs() < 0.01, "{rate}, {seconds} and {added}");
                all_seconds += seconds;
            }
            // The first view may be late, and the last not early.
            let longest = begun.elapsed().as_secs_f64();
            assert!(all_seconds > 0.3 && all_seconds < longest, "{all_seconds} of {longest}");
            let last = &ticks[3];
            assert!(last["lag"]["operations"].is_u64() && last["refresh_seconds"].is_f64());
            assert!(last["space"]["log_bytes"].as_u64().unwrap() > 0);
            let keyspace = &last["keyspaces"][0];
            assert_eq!(
                (&keyspace["name"], &keyspace["index"]),
                (&"default".into(), &place.kind().name().into(),)
            );
            // Some of the log may have been read that is not visible yet.
            let entries = keyspace["entries_estimate"].as_u64().unwrap();
            assert!((versions[3]..=db.version()).contains(&entries), "{entries} of {versions:?}");
            // Only the writer knows these.
            for unknown in ["next", "merge", "stalled", "flushing", "kept_versions", "lsm"] {
                assert!(keyspace.get(unknown).is_none(), "{unknown}");
            }
        });
        // Where nothing is written, all that was read is visible.
        let tick = object(esker(["top", &place.db(), "--json", "--count", "1"]).text());
        assert_eq!(tick["keyspaces"][0]["entries_estimate"], tick["version"]);
    }
}

#[test]
fn an_interrupt_ends_it_with_success() {
    let place = Place::new();
    let db = place.load("a\t1\nb\t2\n");
    for (signal, interval) in [(Signal::INT, "0.1"), (Signal::TERM, "3600")] {
        let arguments = ["top", &db, "--interval", interval];
        let mut child = Running(command(arguments).spawn().unwrap());
        let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
        let line = lines.next().unwrap().unwrap();
        assert!(line.starts_with("2 operations, -/s, "), "{line}");
        kill_process(Pid::from_child(&child.0), signal).unwrap();
        assert_eq!(child.0.wait().unwrap().code(), Some(0));
        assert!(lines.all(|line| line.unwrap().starts_with("2 operations, 0/s, ")));
    }
}

#[test]
fn a_closed_pipe_ends_it_with_success() {
    let place = Place::new();
    let db = place.load("a\t1\n");
    let mut child = Running(command(["top", &db, "--interval", "0.1"]).spawn().unwrap());
    drop(child.0.stdout.take());
    assert_eq!(child.0.wait().unwrap().code(), Some(0));
}

#[test]
fn it_keeps_nobody_from_writing_and_sees_the_next_writer() {
    let place = Place::new();
    let db = place.load("a\t1\n");
    let arguments = ["top", &db, "--json", "--interval", "0.1"];
    let mut child = Running(command(arguments).spawn().unwrap());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    let mut next = || object(&lines.next().unwrap().unwrap());
    assert_eq!(next()["version"], 1);
    for version in 2..5 {
        esker(["put", &db, "b", "2"]).stdout();
        esker(["compact", &db]).stdout();
        // Lines from before are still on their way.
        assert!((0..LINES_MAX).any(|_| {
            let tick = next();
            tick["version"] == version && tick["keyspaces"][0]["memtable_entries"] == 0
        }));
    }
}

#[test]
fn a_terminal_shows_one_view_after_the_other_in_its_place() {
    let place = Place::new();
    let db = place.load("a\t1\nb\t2\n");
    esker(["compact", &db]).stdout();
    let arguments = ["top", &db, "--interval", "0.1", "--count", "3"];
    let (status, text) = Terminal::run(&arguments, "xterm", (100, 30)).end("tombstones");
    assert_eq!(status.code(), Some(0), "{text}");
    let count = |part| text.matches(part).count();
    assert_eq!((count("\x1b[2J"), count("\x1b[H"), count("operations")), (1, 3, 3), "{text}");
    assert!(["default", "fdtree", "data file", "log"].iter().all(|part| text.contains(part)));
    let (_, text) = Terminal::run(&arguments, "xterm", (20, 4)).end("\x1b[J");
    let frame = text.split("\x1b[H").last().unwrap();
    assert_eq!(frame.matches('\n').count(), 3, "{text}");

    let (status, text) = Terminal::run(&arguments, "dumb", (100, 30)).end("operations");
    assert_eq!((status.code(), text.lines().count()), (Some(0), 3), "{text}");
    assert!(!text.contains('\x1b'), "{text}");

    let endless = ["top", &db];
    let mut terminal = Terminal::run(&endless, "xterm", (100, 30));
    terminal.wait_for("operations");
    // What is typed is not read.
    terminal.keyboard.write_all(b"q").unwrap();
    terminal.signal(Signal::INT);
    assert_eq!(terminal.end("").0.code(), Some(0));
}

#[test]
fn what_cannot_be_shown_is_refused() {
    let place = Place::new();
    let db = place.load("a\t1\n");
    for interval in ["0", "0.05", "3601", "NaN", "soon"] {
        esker(["top", &db, "--interval", interval]).fails(2, &["--interval", interval]);
    }
    esker(["top", &db, "--count", "0"]).fails(2, &["--count", "0"]);
    let missing = place.path("nothing").into_os_string().into_string().unwrap();
    let answer = command(["top", &missing]).stdin(Stdio::null()).output().unwrap();
    crate::support::Answer(answer).fails(2, &["no store", &missing]);
    assert!(!place.path("nothing").exists());
}
