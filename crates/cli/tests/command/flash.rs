//! `flash sim`, from outside.

use std::io::Write;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Place, Running, command, esker};

/// A device of 4 MiB, which is simulated in no time.
const SMALL: [&str; 6] = ["flash", "sim", "--preset", "slc512", "--blocks", "256"];

fn sim(arguments: &[&str]) -> crate::support::Answer {
    esker([&SMALL, arguments].concat())
}

fn run_of(report: &Value) -> &Value {
    &report["runs"][0]
}

const MSR: &str = "\
128166372003061629,web,0,Write,0,4096,41286
128166372016382155,web,0,Write,8192,512,1963
128166372026382245,web,0,Read,0,4096,1835
";

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let arguments = ["--workload", "zipf:0.99", "--qd", "8", "--gc", "d-choices:4", "--json"];
    let seeded = |seed| sim(&[&arguments[..], &["--seed", seed]].concat()).stdout().to_vec();
    assert_eq!(seeded("1"), seeded("1"));
    assert_ne!(seeded("1"), seeded("2"));
}

#[test]
fn a_report_has_causes_wear_and_latencies() {
    let report = sim(&["--workload", "mixed:30", "--qd", "4", "--json"]).json();
    let run = run_of(&report);
    let programs = &run["nand"]["programs"];
    let count = |value: &Value| value.as_u64().unwrap();
    assert_eq!(programs["host"], run["host"]["pages_written"]);
    assert_eq!(
        count(&programs["total"]),
        ["host", "gc", "map", "commit", "wear"]
            .iter()
            .map(|cause| count(&programs[cause]))
            .sum::<u64>()
    );
    let factor = run["write_amplification"].as_f64().unwrap();
    let expected = count(&programs["total"]) as f64 / count(&programs["host"]) as f64;
    assert!(factor > 2.0 && (factor - expected).abs() < 1e-9);
    assert!(count(&run["wear"]["erases_max"]) >= count(&run["wear"]["erases_min"]));
    let write = &run["latency_ns"]["write"];
    let percentiles = ["p50", "p90", "p95", "p99", "p99_9", "p99_99", "max"];
    let values: Vec<_> = percentiles.iter().map(|name| count(&write[name])).collect();
    assert!(values.is_sorted() && values[0] >= 200_000, "{values:?}");
    assert_eq!(run["latency_ns"]["trim"], Value::Null);
    let untimed = sim(&["--json"]).json();
    assert_eq!(run_of(&untimed)["latency_ns"], Value::Null);
    assert_eq!(run_of(&untimed)["run"]["workload"], "randwrite");
}

#[test]
fn greedy_collection_is_as_good_as_the_closed_form() {
    // One die of 512 blocks of 128 pages.
    let text = ["flash", "sim", "--preset", "slc512", "--blocks=512", "--pages=128", "--json"];
    let report = esker([&text[..], &["--sweep", "op=14,28"]].concat()).json();
    for (at, expected) in [(0, 4.25), (1, 2.48)] {
        let factor = report["runs"][at]["write_amplification"].as_f64().unwrap();
        assert!((factor / expected - 1.0).abs() < 0.06, "{factor} for {expected}");
    }
}

#[test]
fn every_layer_runs() {
    let sweep = ["--sweep", "ftl=page,dftl,xftl,mv", "--op", "28", "--blocks", "512", "--json"];
    let device = ["flash", "sim", "--preset", "slc512", "--pages", "64"];
    let report = esker([&device[..], &sweep].concat()).json();
    for run in report["runs"].as_array().unwrap() {
        let factor = run["write_amplification"].as_f64().unwrap();
        assert!((1.5..9.0).contains(&factor), "{}: {factor}", run["run"]["ftl"]);
    }
}

#[test]
fn traces_of_every_format_are_replayed() {
    let place = Place::new();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(MSR.as_bytes()).unwrap();
    let fio =
        "fio version 2 iolog\nf add\nf open\nf write 0 4096\nf write 8192 512\nf read 0 4096\n";
    let blkparse = "\
8,0 1 1 0.0 7 D W 0 + 8 [a]
8,0 1 2 0.1 7 D W 16 + 1 [a]
8,0 1 3 0.2 7 D R 0 + 8 [a]
";
    let mqsim = "0 0 0 8 0\n5 0 16 1 0\n9 0 0 8 1\n";
    for (format, name, content) in [
        ("msr", "a.csv", MSR.as_bytes()),
        ("msr", "a.csv.gz", &gzip.finish().unwrap()),
        ("fio", "a.fio", fio.as_bytes()),
        ("blkparse", "a.txt", blkparse.as_bytes()),
        ("mqsim", "a.trace", mqsim.as_bytes()),
    ] {
        let trace = format!("{format}:{}", place.write(name, content));
        let report = sim(&["--trace", &trace, "--fresh", "--timed", "--json"]).json();
        let host = &run_of(&report)["host"];
        assert_eq!((&host["pages_written"], &host["pages_read"]), (&9.into(), &8.into()), "{name}");
        assert_eq!(host["unmapped_pages_read"], 0);
        assert_eq!(run_of(&report)["run"]["trace"], trace.as_str());
    }
}

#[test]
fn a_sweep_is_a_table_or_one_report_a_point() {
    let place = Place::new();
    let file = place.path("out.json").into_os_string().into_string().unwrap();
    let sweep = ["--sweep", "op=7,28", "--sweep", "gc=greedy,fifo", "--json", &file];
    let answer = sim(&sweep);
    let lines: Vec<_> = answer.text().lines().collect();
    let table: Vec<_> = lines[lines.len() - 5..].iter().map(|l| l.split_whitespace()).collect();
    let starts: Vec<Vec<_>> = table.into_iter().map(|words| words.take(2).collect()).collect();
    let expected = [["op", "gc"], ["7", "greedy"], ["7", "fifo"], ["28", "greedy"], ["28", "fifo"]];
    assert_eq!(starts, expected);
    let report: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let runs = report["runs"].as_array().unwrap();
    assert_eq!((runs.len(), &report["version"]), (4, &1.into()));
    let settings: Vec<_> =
        runs.iter().map(|run| (&run["run"]["op_percent"], &run["run"]["gc"])).collect();
    assert_eq!(settings[2], (&28.0.into(), &"greedy".into()));
    // Each run of a sweep is what it is alone.
    let alone = sim(&["--op", "28", "--json"]).json();
    assert_eq!(alone["runs"][0], runs[2]);
}

#[test]
fn mistakes_are_one_line_that_says_what_there_is() {
    let place = Place::new();
    let bad = place.write("bad.csv", format!("{MSR}1,web,0,Reed,0,4096,1\n"));
    let newer = place.write("newer", b"esktrace\x07\0\0\0\xff");
    let beyond = place.write("beyond.csv", "1,web,0,Write,4194304,512,1\n");
    let missing = place.path("missing").into_os_string().into_string().unwrap();
    let trace = |format: &str, path: &str| format!("{format}:{path}");
    let fresh = |arguments: &[&str]| sim(&[arguments, &["--fresh"]].concat());
    esker(["flash", "sim", "--preset", "optane"]).fails(2, &["optane", "mqsim, femu, jasmine"]);
    sim(&["--ftl", "best"]).fails(2, &["best", "page"]);
    sim(&["--gc", "lazy"]).fails(2, &["lazy", "cost-benefit"]);
    sim(&["--workload", "burst"]).fails(2, &["burst", "zipf:THETA"]);
    sim(&["--trace", "a.csv"]).fails(2, &["a.csv", "FORMAT:FILE", "msr, blkparse"]);
    sim(&["--blocks", "0"]).fails(2, &["blocks"]);
    sim(&["--page-size", "100"]).fails(2, &["pages of 100 bytes"]);
    sim(&["--op", "-3"]).fails(2, &["-3"]);
    sim(&["--sweep", "op"]).fails(2, &["op=7,14,28"]);
    sim(&["--sweep", "speed=1,2"]).fails(2, &["speed", "page-size"]);
    sim(&["--timed"]).fails(2, &["recorded times"]);
    sim(&["--workload", "randwrite", "--trace", "msr:a"]).fails(2, &["--trace", "--workload"]);
    sim(&["--request-pages", "100000"]).fails(2, &["100000 pages", "larger"]);
    esker(["flash", "sim", "--preset", "slc512", "--blocks", "3"]).fails(2, &["3 blocks"]);
    fresh(&["--trace", &trace("msr", &missing)]).fails(2, &["missing", "cannot open"]);
    fresh(&["--trace", &trace("msr", &bad)]).fails(2, &["bad.csv:4:", "Reed"]);
    fresh(&["--trace", &trace("esker", &newer)]).fails(2, &["version 7", "up to version 1"]);
    fresh(&["--trace", &trace("msr", &beyond)]).fails(2, &["request 1", "4194816", "wrap"]);
    sim(&["--fresh", "--wrap", "--trace", &trace("msr", &beyond)]).stdout();
    sim(&["--json", &format!("{missing}/report.json")]).fails(5, &["report.json"]);
}

/// Records a small store to `name`, and answers the report and the trace's bytes.
fn record(place: &Place, name: &str, arguments: &[&str]) -> (Value, Vec<u8>) {
    let file = place.path(name).into_os_string().into_string().unwrap();
    let small = ["flash", "record", "--memory", "1", "--out", &file, "--json"];
    let report = esker([&small, arguments].concat()).json();
    (report, std::fs::read(file).unwrap())
}

#[test]
fn a_store_is_recorded_and_replayed() {
    let place = Place::new();
    for index in ["fdtree", "lsm"] {
        let arguments = ["--index", index, "--entries=50000", "--workload=mixed:20"];
        let (report, bytes) = record(&place, "a", &arguments);
        assert_eq!(record(&place, "b", &arguments).1, bytes);
        let number = |value: &Value| value.as_u64().unwrap();
        let written = &report["bytes_written"];
        assert!(number(&written["log"]) > 50_000 * 4 * 100, "{report}");
        for purpose in ["flush", "merge", "manifest"] {
            assert!(number(&written[purpose]) > 0, "{purpose}: {report}");
        }
        assert!(number(&report["bytes_read"]) > 0 && number(&report["flushes"]) > 0);
        let trace = format!("esker:{}", place.path("a").display());
        let mib = (number(&report["end_bytes"]) / (1 << 20) + 1).to_string();
        let device = ["--preset=slc512", "--blocks", "65536", "--trace", &trace, "--fresh"];
        let sim = |more: &[&str]| esker([&["flash", "sim", "--json"], more].concat()).json();
        let replayed = sim(&device);
        let all: u64 = written.as_object().unwrap().values().map(number).sum();
        assert_eq!(number(&replayed["runs"][0]["host"]["bytes_written"]), all);
        // A device that the store fills.
        let full = ["--preset=femu", "--pages=64", "--trace", &trace, "--fresh", "--capacity"];
        let runs = sim(&[&full[..], &[&mib, "--sweep", "placement=none,purpose"]].concat());
        let factor = |at: usize| runs["runs"][at]["write_amplification"].as_f64().unwrap();
        let is_better = if index == "lsm" { factor(0) > factor(1) } else { factor(0) >= factor(1) };
        assert!(is_better && factor(1) >= 1.0, "{index}: {} {}", factor(0), factor(1));
        assert_eq!((&runs["runs"][1]["run"]["streams"]), &5);
        // What has one stream says so.
        let one = ["flash", "sim", "--ftl=dftl", "--placement=purpose"];
        let text = esker([&one, &full[..], &["64"]].concat());
        assert!(text.text().contains("placement purpose (this layer has one stream)"));
    }
}

#[test]
fn other_recordings() {
    let place = Place::new();
    let pages = ["--store", "pages", "--entries", "2000", "--ops", "3000", "--workload=zipf:0.9"];
    let (report, bytes) = record(&place, "a", &pages);
    assert_eq!(record(&place, "b", &pages).1, bytes);
    assert!(report["flushes"].as_u64().unwrap() >= 5000 / 8, "{report}");
    let folder = place.path("files").into_os_string().into_string().unwrap();
    let (timed, _) =
        record(&place, "c", &["--timed", "--entries=20000", "--ops=1000", "--dir", &folder]);
    assert_eq!(timed["requests"], 21_000);
    assert!(std::fs::read_dir(&folder).unwrap().count() > 2);
    let trace = format!("esker:{}", place.path("c").display());
    let arguments = ["flash", "sim", "--preset=femu", "--fresh", "--timed", "--json", "--trace"];
    let replayed = esker([&arguments[..], &[&trace]].concat()).json();
    assert!(replayed["runs"][0]["simulated_ns"].as_u64().unwrap() > 0);
    let text = esker(["flash", "record", "--entries=10", "--out", &trace[6..]]);
    assert!(text.text().contains("50 requests") && text.text().contains("--capacity"));

    let out = &trace[6..];
    let refused = |arguments: &[&str]| {
        esker([&["flash", "record", "--entries=10", "--out", out], arguments].concat())
    };
    refused(&["--dir", &folder]).fails(2, &["files", "not empty"]);
    refused(&["--workload=burst"]).fails(2, &["burst", "zipf:THETA"]);
    refused(&["--store=pages", "--index=lsm"]).fails(2, &["--index", "--store kv"]);
    refused(&["--page-size=100"]).fails(2, &["100", "4096"]);
    esker(["flash", "record", "--out", "/nowhere/at/all"]).fails(5, &["/nowhere/at/all"]);
    sim(&["--placement=purpose"]).fails(2, &["placement", "flash record"]);
    let msr = format!("msr:{}", place.write("a.csv", MSR));
    sim(&["--placement=purpose", "--trace", &msr]).fails(2, &["placement", "flash record"]);
    sim(&["--placement=level"]).fails(2, &["level", "streams:1"]);
}

/// One die of 4 blocks cannot hold data; the other two devices can.
#[test]
fn a_run_of_a_sweep_that_fails_leaves_the_reports_of_the_others() {
    let run = |more: &[&str]| {
        let arguments = ["--sweep", "blocks=256,4,512", "--warm-up", "0.1", "--ops", "100"];
        let output = command([&SMALL, &arguments[..], more].concat()).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), error.lines().count()), (Some(2), 1), "{error}");
        let words = ["1 of 3 runs", "blocks=4: ", "4 blocks in a die"];
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
        String::from_utf8(output.stdout).unwrap()
    };
    let text = run(&[]);
    assert!(text.contains("\n256") && text.contains("\n512"), "{text}");
    assert!(text.contains("blocks=4: no report: "), "{text}");
    let report: Value = serde_json::from_str(&run(&["--json"])).unwrap();
    let runs = report["runs"].as_array().unwrap();
    assert!(runs[0]["write_amplification"].is_number() && runs[2]["device"].is_object());
    assert_eq!(runs[1]["sweep"], "blocks=4");
    assert!(runs[1]["error"].as_str().unwrap().contains("4 blocks in a die"));
}

/// 8 GB are more than the 2 GB that a limit leaves.
#[cfg(target_os = "linux")]
#[test]
fn a_device_that_does_not_fit_into_memory_is_refused() {
    let sizes = "--channels 1 --dies 1 --planes 1 --blocks 1000000 --pages 1000";
    let limited = format!("ulimit -v 2000000; exec \"$0\" flash sim {sizes}");
    let mut shell = std::process::Command::new("sh");
    let output = shell.args(["-c", &limited, env!("CARGO_BIN_EXE_esker")]).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), error.lines().count()), (Some(2), 1), "{error}");
    assert!(error.contains("bytes of memory") && error.contains("fewer blocks"), "{error}");
}

#[test]
fn every_option_has_a_line_of_help() {
    every_option_is_described("sim");
    every_option_is_described("record");
}

fn every_option_is_described(command: &str) {
    let help = esker(["flash", command, "--help"]).text().to_owned();
    assert!(help.contains("Examples:"));
    let mut lines = help.lines().skip_while(|line| *line != "Options:").skip(1).peekable();
    while let Some(line) = lines.next() {
        if line.trim_start().starts_with("--") {
            let is_described = lines.peek().is_some_and(|next| next.starts_with("          "));
            assert!(is_described, "{line}");
        }
    }
}

#[test]
fn an_interrupt_ends_a_long_run_at_once() {
    let arguments = ["flash", "sim", "--preset", "femu", "--warm-up", "1000"];
    let mut child = Running(command(arguments).spawn().unwrap());
    thread::sleep(Duration::from_millis(500));
    kill_process(Pid::from_child(&child.0), Signal::INT).unwrap();
    assert_eq!(child.0.wait().unwrap().code(), Some(130));
}

#[test]
fn a_long_trace_takes_no_memory() {
    let arguments = [&SMALL[..], &["--trace", "msr:/dev/stdin", "--fresh", "--timed"]].concat();
    let mut child = Running(command(arguments).stdin(Stdio::piped()).spawn().unwrap());
    let mut stdin = child.0.stdin.take().unwrap();
    // 40 MB.
    let lines = MSR.repeat(10_000);
    let writer = thread::spawn(move || {
        for _ in 0..30 {
            stdin.write_all(lines.as_bytes()).unwrap();
        }
    });
    let status = format!("/proc/{}/status", child.0.id());
    let mut peak_kib = 0;
    while child.0.try_wait().unwrap().is_none() {
        let found = std::fs::read_to_string(&status).unwrap_or_default();
        let line = found.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let resident = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
        peak_kib = peak_kib.max(resident.unwrap_or(0));
        thread::sleep(Duration::from_millis(1));
    }
    writer.join().unwrap();
    assert!(child.0.wait().unwrap().success());
    assert!(peak_kib > 0 && peak_kib < 24 << 10, "{peak_kib} KiB");
}
