use super::*;

fn plan(folder: &Path, workload: Workload) -> Plan {
    Plan {
        modes: Mode::ALL.to_vec(),
        workload,
        is_small: true,
        warehouses: 2,
        workers: 3,
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

fn value(found: &Found, mode: Mode, metric: &str) -> f64 {
    found.median(mode, metric).unwrap_or_else(|| panic!("{mode:?} has no {metric}"))
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
    assert_eq!(bars::bars(&found).last().unwrap().is_met(), Some(true));
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
    let folder = tempfile::tempdir().unwrap();
    let run = |mode, notpm: f64, bytes: f64| {
        let metrics = [
            ("notpm", notpm),
            ("bytes_written_per_transaction", bytes),
            ("reader_busy", 0.0),
            ("writer_busy", 0.0),
        ];
        let metrics = metrics.map(|(name, value)| (name.to_owned(), value)).into();
        Run { mode, round: 1, metrics }
    };
    let probe = Probe { growing_micros: 400.0, rewriting_micros: 100.0 };
    let runs = vec![run(Mode::Esker, 2_000.0, 35.0), run(Mode::Wal, 1_000.0, 101.0)];
    let mut found = Found { plan: plan(folder.path(), Workload::Tpcc), probe, runs };
    let verdicts =
        |found: &Found| -> Vec<&str> { bars::bars(found).iter().map(Bar::verdict).collect() };
    assert_eq!(verdicts(&found), ["missed", "unknown", "unknown", "met", "unknown", "met"]);
    found.probe.rewriting_micros = 200.0;
    assert_eq!(verdicts(&found)[0], "met", "where rewriting is not so cheap, 1.3 is enough");
    let mut commits = |ours: f64, theirs: f64| {
        for (run, longest) in found.runs.iter_mut().zip([ours, theirs]) {
            let metrics = [("commit_max_micros", longest), (bars::CONTROL, 100.0)];
            run.metrics.extend(metrics.map(|(name, value)| (name.to_owned(), value)));
        }
        verdicts(&found)[2]
    };
    assert_eq!(commits(200.0, 2_000.0), "met");
    assert_eq!(commits(15.0, 150.0), "unknown", "an idle thread was off for as long");
    found.runs.push(run(Mode::EskerRelaxed, 0.0, 0.0));
    found.runs[2].metrics.insert("writer_busy".to_owned(), 1.0);
    assert_eq!(verdicts(&found)[5], "missed");
}

#[test]
fn ratios_are_those_of_the_rounds() {
    let run =
        |mode, round, notpm| Run { mode, round, metrics: [("notpm".to_owned(), notpm)].into() };
    let runs = vec![
        run(Mode::Esker, 1, 300.0),
        run(Mode::Wal, 1, 100.0),
        run(Mode::Esker, 2, 30.0),
        run(Mode::Wal, 2, 10.0),
        run(Mode::Esker, 3, 8.0),
        run(Mode::Wal, 3, 8.0),
    ];
    let folder = Path::new("nowhere");
    let plan = plan(folder, Workload::Tpcc);
    let found = Found { plan, probe: Probe::default(), runs };
    assert_eq!(found.ratio(Mode::Esker, Mode::Wal, "notpm"), Some(3.0));
    assert_eq!(found.ratio(Mode::Esker, Mode::Delete, "notpm"), None);
    assert_eq!(found.median(Mode::Wal, "notpm"), Some(10.0));
}
