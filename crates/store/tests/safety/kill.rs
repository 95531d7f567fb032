//! A process that is killed while it writes loses no acknowledged write.

use std::path::Path;
use std::time::Duration;

use esker_testkit::counts::{Counts, budget};
use esker_testkit::kill;
use esker_testkit::random::Random;

const CYCLES: u64 = 100;

#[test]
fn kill_child() {
    if let Some(path) = std::env::var_os(kill::CHILD_STORE) {
        kill::child(Path::new(&path)).unwrap();
    }
}

#[test]
fn a_killed_process_loses_nothing_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let random = Random::new(41);
    let mut counts = Counts::new("kill", "kill -9");
    let mut last = 0;
    for cycle in 0..CYCLES * budget() {
        let wait = Duration::from_micros(random.below(60_000));
        let mut spawn = || kill::spawn_test("kill_child", &store);
        match kill::cycle(&store, &mut spawn, wait) {
            Ok(acknowledged) => last = acknowledged,
            Err(violation) => panic!("{}", violation.at(format!("cycle {cycle}, {wait:?}"))),
        }
        counts.add("cycles", 1);
    }
    counts.add("batches acknowledged", last);
    counts.record().unwrap();
}
