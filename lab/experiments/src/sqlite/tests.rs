use esker_lab_result::Outcome;

use super::*;

use super::probe::Probe;

fn plan(folder: &Path, workload: Workload) -> Plan {
    Plan {
        modes: Mode::ALL.to_vec(),
        workload,
        is_small: true,
        warehouses: 2,
        workers: 3,
        processes: 0,
        reader_processes: 0,
        kills: 0,
        program: None,
        readers: 100,
        held_reader: false,
        warmup: Duration::from_millis(100),
        duration: Duration::from_secs(1),
        rounds: 1,
        cache_mib: 1,
        seed: 1,
        folder: folder.to_owned(),
    }
}

fn value(found: &Findings, mode: Mode, metric: &str) -> f64 {
    let value = found.whole().median(mode.as_str(), metric);
    value.unwrap_or_else(|| panic!("{mode:?} has no {metric}"))
}

#[test]
fn every_mode_does_transactions_and_ours_refuses_none() {
    let folder = tempfile::tempdir().unwrap();
    let mut done = 0;
    let found = run(&plan(folder.path(), Workload::Tpcc), &mut |event| {
        done += usize::from(matches!(event, Event::Done(_)));
        true
    });
    let found = found.unwrap();
    assert_eq!(done, Mode::ALL.len());
    for mode in Mode::ALL {
        assert!(value(&found, mode, "commits") > 0.0, "{mode:?}");
        assert!(value(&found, mode, "bytes_written") > 0.0, "{mode:?}");
        assert!(value(&found, mode, "commit_max_micros") > 0.0, "{mode:?}");
        assert!(value(&found, mode, bars::CONTROL) > 1_000.0, "{mode:?}");
        if mode.is_esker() {
            assert!(value(&found, mode, "reads") > 10.0, "{mode:?}");
            assert_eq!(value(&found, mode, "reader_busy"), 0.0, "{mode:?}");
            assert_eq!(value(&found, mode, "reader_waits"), 0.0, "{mode:?}");
            assert_eq!(value(&found, mode, "writer_busy"), 0.0, "{mode:?}");
        }
    }
    assert!(value(&found, Mode::Esker, "syncs") > 0.0);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    assert_eq!(found.verdicts.last().unwrap().outcome, Outcome::Met);
}

#[test]
fn a_held_reader_keeps_its_snapshot_and_blocks_no_writer() {
    let folder = tempfile::tempdir().unwrap();
    let modes = vec![Mode::Esker, Mode::Wal];
    let held = Plan { modes, held_reader: true, ..plan(folder.path(), Workload::Tpcc) };
    let found = run(&held, &mut |_| true).unwrap();
    assert!(value(&found, Mode::Esker, "new_orders") > 0.0);
    assert_eq!(value(&found, Mode::Esker, "writer_busy"), 0.0);
}

#[test]
fn the_script_leaves_the_same_rows_in_every_mode() {
    let folder = tempfile::tempdir().unwrap();
    let found = run(&plan(folder.path(), Workload::Rl), &mut |_| true).unwrap();
    let first = value(&found, Mode::Esker, "fingerprint");
    for mode in Mode::ALL {
        assert_eq!(value(&found, mode, "fingerprint"), first);
        assert!(value(&found, mode, "step_13_seconds") > 0.0);
    }
}

#[test]
fn whoever_is_asked_to_stop_stops_and_leaves_nothing() {
    for stop_at in [0, 1, 3, 6] {
        let folder = tempfile::tempdir().unwrap();
        let mut left = stop_at;
        let stopped = run(&plan(folder.path(), Workload::Tpcc), &mut |_| {
            left -= 1;
            left >= 0
        });
        assert!(matches!(stopped, Err(Error::Interrupted)), "{stopped:?}");
        assert!(!folder.path().join("esker").exists());
    }
}

#[test]
fn bars_are_met_by_what_is_measured() {
    let run = |notpm: f64, bytes: f64| -> Metrics {
        let metrics = [
            ("notpm", notpm),
            ("bytes_written_per_transaction", bytes),
            ("reader_busy", 0.0),
            ("writer_busy", 0.0),
        ];
        metrics.map(|(name, value)| (name.to_owned(), value)).into()
    };
    // The time of a rewriting write, and the longest commits of Esker and of WAL, in microseconds.
    let found = |rewriting_micros, commits: Option<[f64; 2]>| {
        let mut found = Findings::default();
        Probe { growing_micros: 400.0, rewriting_micros }.record(&mut found);
        let runs = [(Mode::Esker, run(2_000.0, 35.0)), (Mode::Wal, run(1_000.0, 101.0))];
        for (at, (mode, mut run)) in runs.into_iter().enumerate() {
            if let Some(longest) = commits {
                let metrics = [("commit_max_micros", longest[at]), (bars::CONTROL, 100.0)];
                run.extend(metrics.map(|(name, value)| (name.to_owned(), value)));
            }
            found.add(None, mode.as_str(), None, run);
        }
        found
    };
    let verdicts = |found: &Findings| -> Vec<&str> {
        let bars = bars::bars(found, Workload::Tpcc);
        bars.iter().map(|bar| bar.outcome.as_str()).collect()
    };
    let expected = ["missed", "unknown", "unknown", "met", "unknown", "met"];
    assert_eq!(verdicts(&found(100.0, None)), expected);
    let dear = verdicts(&found(200.0, None))[0];
    assert_eq!(dear, "met", "where rewriting is not so cheap, 1.3 is enough");
    let commits = |ours, theirs| verdicts(&found(200.0, Some([ours, theirs])))[2];
    assert_eq!(commits(200.0, 2_000.0), "met");
    assert_eq!(commits(15.0, 150.0), "unknown", "an idle thread was off for as long");
    let mut refused = found(200.0, None);
    let relaxed = Metrics::from([("writer_busy".to_owned(), 1.0)]);
    refused.add(None, Mode::EskerRelaxed.as_str(), None, relaxed);
    assert_eq!(verdicts(&refused)[5], "missed");
}

#[test]
fn ratios_are_those_of_the_rounds() {
    let mut found = Findings::default();
    for (mode, notpm) in [
        (Mode::Esker, 300.0),
        (Mode::Wal, 100.0),
        (Mode::Esker, 30.0),
        (Mode::Wal, 10.0),
        (Mode::Esker, 8.0),
        (Mode::Wal, 8.0),
    ] {
        found.add(None, mode.as_str(), None, [("notpm".to_owned(), notpm)].into());
    }
    let runs = found.whole();
    assert_eq!(runs.ratio("esker", "wal", "notpm"), Some(3.0));
    assert_eq!(runs.ratio("esker", "delete", "notpm"), None);
    assert_eq!(runs.median("wal", "notpm"), Some(10.0));
}
