//! Loads that are killed, interrupted or refused room keep the beginning of their input.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Answer, Place, Running, command, dump, esker};

/// Lines whose keys sort as they are numbered, so that a prefix of the input is one of the dump.
fn lines(count: usize) -> String {
    (0..count).map(|number| format!("{number:08}\tvalue of {number}\n")).collect()
}

fn durable(report: &str) -> usize {
    let report: Value = serde_json::from_str(report).unwrap();
    usize::try_from(report["durable"].as_u64().unwrap()).unwrap()
}

/// The store holds the first so many lines and nothing else; answers how many.
#[track_caller]
fn stored_prefix(db: &str, input: &str) -> usize {
    let stored = dump(db);
    assert!(input.starts_with(&stored), "what is stored is no prefix of the input");
    stored.lines().count()
}

#[test]
fn a_killed_load_keeps_what_it_said_was_durable() {
    let input = lines(2_000_000);
    let files = Place::new();
    let file = files.write("input.tsv", &input);
    let rounds = ["buffered", "synced"].iter().cycle().take(6).enumerate();
    for (place, (round, durability)) in
        rounds.flat_map(|round| Place::of_each_kind().map(move |place| (place, round)))
    {
        let db = place.db();
        let arguments = ["load", &db, &file, "--json", "--durability", durability];
        let mut child = Running(command(arguments).spawn().unwrap());
        let mut reports = BufReader::new(child.0.stdout.take().unwrap());
        let mut last = String::new();
        for _ in 0..=round / 2 {
            last.clear();
            reports.read_line(&mut last).unwrap();
        }
        thread::sleep(Duration::from_millis(round as u64 * 17));
        child.0.kill().unwrap();
        child.0.wait().unwrap();
        // What it had already written to the pipe counts as said.
        let mut rest = String::new();
        reports.read_to_string(&mut rest).unwrap();
        let complete = rest.split_inclusive('\n').rfind(|line| line.ends_with('\n'));
        let said = durable(complete.unwrap_or(&last));

        assert!(said > 0, "killed before anything was durable");
        let stored = stored_prefix(&db, &input);
        assert!(stored >= said, "{stored} lines are stored and {said} were durable");
        esker(["check", &db]).stdout();
    }
}

/// Interrupts a load that waits for more input, after it stored what there was.
fn interrupt_while_waiting(signal: Signal) {
    for place in Place::of_each_kind() {
        let db = place.db();
        let mut child =
            Running(command(["load", &db, "--json"]).stdin(Stdio::piped()).spawn().unwrap());
        let mut stdin = child.0.stdin.take().unwrap();
        let mut reports = BufReader::new(child.0.stdout.take().unwrap()).lines();
        let input = lines(10);
        stdin.write_all(input.as_bytes()).unwrap();
        // Without an end of the input: the lines are stored because they are there.
        while durable(&reports.next().unwrap().unwrap()) < 10 {}

        kill_process(Pid::from_child(&child.0), signal).unwrap();
        let status = child.0.wait().unwrap();
        assert_eq!(status.code(), Some(130));
        let last: Value = serde_json::from_str(&reports.last().unwrap().unwrap()).unwrap();
        assert_eq!((&last["done"], &last["durable"]), (&false.into(), &10.into()));
        let mut stderr = String::new();
        child.0.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert_eq!(stderr, "esker: interrupted; everything up to line 10 is stored\n");
        assert_eq!(dump(&db), input);
        drop(stdin);
    }
}

#[test]
fn sigint_ends_a_waiting_load_cleanly() {
    interrupt_while_waiting(Signal::INT);
}

#[test]
fn sigterm_ends_a_waiting_load_cleanly() {
    interrupt_while_waiting(Signal::TERM);
}

#[test]
fn an_interrupted_load_keeps_what_it_said() {
    for place in Place::of_each_kind() {
        let db = place.db();
        let input = lines(2_000_000);
        let file = place.write("input.tsv", &input);
        let mut child = Running(command(["load", &db, &file, "--json"]).spawn().unwrap());
        let mut reports = BufReader::new(child.0.stdout.take().unwrap()).lines();
        reports.next().unwrap().unwrap();
        kill_process(Pid::from_child(&child.0), Signal::INT).unwrap();
        let last = reports.last().unwrap().unwrap();
        assert_eq!(child.0.wait().unwrap().code(), Some(130));
        assert_eq!(stored_prefix(&db, &input), durable(&last));
    }
}

/// A file size limit fails writes as a full device does.
#[test]
fn a_load_that_runs_out_of_room_keeps_what_it_said() {
    for place in Place::of_each_kind() {
        let db = place.db();
        let input = lines(400_000);
        let file = place.write("input.tsv", &input);
        let script = "trap '' XFSZ; ulimit -f 6000; exec \"$@\"";
        let output = Command::new("sh")
            .args(["-c", script, "sh", env!("CARGO_BIN_EXE_esker"), "load", &db, &file, "--json"])
            .output()
            .unwrap();
        let answer = Answer(output);
        answer.fails(5, &[]);
        let reports = String::from_utf8(answer.0.stdout.clone()).unwrap();
        let last = reports.lines().last().unwrap();
        assert!(last.contains("\"done\":false"), "{last}");
        assert!(stored_prefix(&db, &input) >= durable(last));
    }
}

#[cfg(feature = "lab")]
#[test]
fn an_interrupted_demo_leaves_nothing_behind() {
    let place = Place::new();
    let mut demo = command(["demo"]);
    demo.env("TMPDIR", place.path(""));
    let mut child = Running(demo.spawn().unwrap());
    let mut phases = BufReader::new(child.0.stdout.take().unwrap()).lines();
    phases.next().unwrap().unwrap();
    assert_eq!(std::fs::read_dir(place.path("")).unwrap().count(), 1);
    kill_process(Pid::from_child(&child.0), Signal::INT).unwrap();
    assert_eq!(child.0.wait().unwrap().code(), Some(130));
    assert_eq!(std::fs::read_dir(place.path("")).unwrap().count(), 0);
}
