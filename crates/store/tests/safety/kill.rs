//! A process that is killed while it writes loses no acknowledged write.

use std::path::Path;
use std::time::Duration;

use esker_testkit::counts::{Counts, budget};
use esker_testkit::kill::{self, Watcher};
use esker_testkit::random::Random;

const CYCLES: u64 = 100;
const FOLLOWED: u64 = 20;

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

/// The writer is another process, which is killed and followed by another writer, several times;
/// this process follows all of them.
#[test]
fn a_follower_sees_whole_batches_and_keeps_its_snapshots() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let random = Random::new(42);
    let mut counts = Counts::new("follow", "a process that is killed");
    let mut watcher: Option<Watcher> = None;
    // Longer on a machine that is busy.
    let is_enough =
        |watcher: &Option<Watcher>| watcher.as_ref().is_some_and(Watcher::has_seen_enough);
    for cycle in 0..FOLLOWED * budget() * 10 {
        if cycle >= FOLLOWED * budget() && is_enough(&watcher) {
            break;
        }
        let wait = Duration::from_micros(20_000 + random.below(200_000));
        let mut spawn = || kill::spawn_test("kill_child", &store);
        let mut meanwhile = || {
            let watcher = match &mut watcher {
                Some(watcher) => watcher,
                none => none.insert(Watcher::new(&store, 43)?),
            };
            watcher.look_for(wait)
        };
        if let Err(violation) = kill::cycle_with(&store, &mut spawn, &mut meanwhile) {
            panic!("{}", violation.at(format!("cycle {cycle}, {wait:?}")));
        }
        counts.add("cycles", 1);
    }
    let watcher = watcher.unwrap();
    counts.add("states seen", watcher.news);
    counts.add("snapshots compared", watcher.compared);
    counts.add("reads refused", watcher.refused);
    let Watcher { news, compared, refused, .. } = &watcher;
    assert!(watcher.has_seen_enough(), "{news} states, {compared} snapshots, {refused} refused");
    counts.record().unwrap();
}
