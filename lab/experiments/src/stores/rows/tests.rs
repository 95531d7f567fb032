//! Every row against Esker, in this process, at a scale of seconds. `reopen` needs a process to
//! kill, and is tested with the command.

use esker_peers::Arrangement;

use super::*;
use crate::stores::child::perform;
use crate::stores::sizes::Scale;

struct Silent;

impl Tell for Silent {
    fn progress(&self, done: u64, total: u64) {
        assert!(done <= total);
    }

    fn ready(&self) {}
}

fn measure(row: Row, folder: &std::path::Path) -> Metrics {
    let task = Task {
        row,
        system: Name::Esker,
        arrangement: Arrangement::default(),
        media: None,
        scale: Scale::Tiny,
        folder: folder.to_owned(),
        seed: 1,
        rate: 20_000.0,
        group: None,
        crash: false,
    };
    perform(&task, &Silent).unwrap()
}

#[test]
fn names_are_read_back() {
    assert!(Row::ALL.iter().all(|row| Row::parse(row.as_str()) == Some(*row)));
    assert_eq!(Row::parse("x"), None);
}

#[test]
fn every_row_measures_what_it_names() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let load = measure(Row::Load, folder);
    assert!(load["rate"] > 100.0 && load["rate"] <= load["put_rate"], "{load:?}");
    assert!(load["peak_over_live"] > 1.0, "{load:?}");
    assert!(load["written_log_per_byte"] > 1.0, "{load:?}");

    let lookups = measure(Row::Lookups, folder);
    assert!(lookups["get_samples"] == 2000.0 && lookups["rate"] > 100.0, "{lookups:?}");
    assert!(lookups["reads_per_lookup"] <= 1.1, "{lookups:?}");
    assert!(lookups["reads_per_miss"] < 0.5, "{lookups:?}");
    assert!(measure(Row::Scans, folder)["scan_samples"] == 100.0);
    let long = measure(Row::LongScans, folder);
    assert!(long["scan_samples"] == 2.0 && long["reads_per_scan"] >= 1.0, "{long:?}");
    let ycsb = measure(Row::Ycsb, folder);
    assert!(["a", "b", "c", "d", "e", "f"].map(|of| ycsb[&format!("{of}_rate")]) > [1.0; 6]);
    let writers = measure(Row::Writers, folder);
    assert!([1, 4, 8].iter().all(|of| writers[&format!("rate_{of}")] > 100.0), "{writers:?}");
    let open = measure(Row::OpenLoop, folder);
    assert!(open["put_samples"] > 1_000.0 && open["put_abandoned"] == 0.0, "{open:?}");
    assert!(open["get_samples"] > 10.0 && open["get_abandoned"] == 0.0, "{open:?}");
    let hot = measure(Row::HotScans, folder);
    assert!(hot["scan_samples"] == 100.0 && hot["written_log_per_byte"] > 1.0, "{hot:?}");

    let durable = measure(Row::Durable, folder);
    assert!((0.99..=1.05).contains(&durable["syncs_per_put_1"]), "{durable:?}");
    assert!(durable["syncs_per_put_8"] <= 1.05, "{durable:?}");

    let merge = measure(Row::Merge, folder);
    assert!(merge["merge_seconds"] > 0.0 && merge["scan_held"] == 1.0, "{merge:?}");
    assert!(merge["put_samples"] > 0.0 && merge["put_abandoned"] == 0.0, "{merge:?}");
    assert!(measure(Row::MergeSpace, folder)["added_over_data"] >= 0.0);

    let compact = measure(Row::Compact, folder);
    assert!(compact["after_over_live"] > 1.0, "{compact:?}");
}

#[test]
fn rows_that_load_their_own_entries_measure_what_they_name() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    let removals = measure(Row::Removals, &place("removals"));
    assert!(removals["remove_samples"] == 50.0 && removals["first_samples"] == 50.0);
    assert!(removals["apart_samples"] == 3_000.0 && removals["reads_per_first"] >= 0.0);
    assert!(removals["queue_first_samples"] == 20_000.0, "{removals:?}");
    let records = measure(Row::Ycsb1000, &place("ycsb"));
    assert!(records["e_rate"] > 1.0 && records["a_rate"] > 1.0, "{records:?}");
    let values = measure(Row::Values1000, &place("values"));
    assert!(values["settled_over_live"] >= 1.0 && values["get_rate"] > 1.0, "{values:?}");
}

#[test]
fn steady_rows_count_only_what_follows_the_warm_up() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    measure(Row::Load, &a);
    let overwrite = measure(Row::Overwrite, &a);
    // The log alone has every user byte of the window, and not those of the warm-up besides.
    assert!((1.0..6.0).contains(&overwrite["written_log_per_byte"]), "{overwrite:?}");
    assert!(overwrite["peak_over_live"] > 1.0 && overwrite["merges"] >= 1.0, "{overwrite:?}");
    measure(Row::Load, &b);
    let mix = measure(Row::Mix, &b);
    assert!((1.0..6.0).contains(&mix["written_log_per_byte"]), "{mix:?}");
}
