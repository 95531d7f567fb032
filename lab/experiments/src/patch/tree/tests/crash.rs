//! Power cuts anywhere in a history of flushes, patches and rewrites.

use super::super::*;
use super::{Map, budget, check, contents, key, open, small, step};
use esker_device::Device;
use esker_device::sim::SimDevice;
use esker_harness::counts::Counts as Suite;
use esker_harness::crash::{self, limited};
use esker_harness::violation::{Oracle, Verdict, ensure};
use esker_workload::Random;

/// Writes in a history, and how many of them are made durable at a time.
const STEPS: usize = 400;
const SYNC_EVERY: usize = 20;

/// A memtable so small that a short history has many flushes.
fn tiny(share: Option<f64>) -> Options {
    Options { memtable_bytes: 800, runs: 2, ..small(share) }
}

/// What a tree has, its memtable included.
fn all(tree: &Tree) -> Map {
    let mut all = contents(&mut tree.view());
    for (key, value) in &tree.memtable {
        match value {
            Some(value) => all.insert(key.clone(), value.clone()),
            None => all.remove(key),
        };
    }
    all
}

/// Records a history on a disk and judges crashes of it: what is there is what was written up to a
/// moment, not before the last that was acknowledged; and the tree works on. Says how many tables
/// were patched, and how many crashes were judged.
fn explore(seed: u64, share: Option<f64>, limit: u64, syncs: bool) -> Verdict<(u64, u64)> {
    let disk = Arc::new(SimDevice::new());
    drop(open(&*disk, tiny(share)));
    disk.sync_dir().unwrap();
    disk.record();
    let mut tree = open(&*disk, tiny(share));
    let (mut map, mut random) = (Map::new(), Random::new(seed));
    let mut states = vec![map.clone()];
    for at in 1..=STEPS {
        let (written, value) = step(&mut random);
        tree.write(&written, value.as_deref()).unwrap();
        match value {
            Some(value) => map.insert(written, value),
            None => map.remove(&written),
        };
        states.push(map.clone());
        if at % SYNC_EVERY == 0 {
            if syncs {
                tree.sync().unwrap();
            }
            disk.mark(at as u64);
        }
    }
    let patches = tree.written.compacted.patches;
    let trace = disk.take_trace().unwrap();
    drop(tree);
    let counted = crash::each(&trace, &limited(seed, limit), |state, disk| {
        let least = state.acknowledged().unwrap_or(0) as usize;
        let mut tree = open(&**disk, tiny(share));
        check(&tree);
        let found = all(&tree);
        let is_there = states.iter().skip(least).any(|state| *state == found);
        ensure(is_there, Oracle::AcknowledgedIsThere, || format!("nothing from {least} on"))?;
        // It works on, and what it then writes survives the next opening.
        let mut random = Random::new(state.digest);
        let mut map = found;
        for _ in 0..40 {
            let (written, value) = step(&mut random);
            tree.write(&written, value.as_deref()).unwrap();
            match value {
                Some(value) => map.insert(written, value),
                None => map.remove(&written),
            };
        }
        tree.sync().unwrap();
        drop(tree);
        let tree = open(&**disk, tiny(share));
        check(&tree);
        ensure(all(&tree) == map, Oracle::ContentMatches, || "after the crash".to_owned())
    })?;
    Ok((patches, counted.visited))
}

#[test]
fn a_power_cut_leaves_what_was_written_up_to_a_moment() {
    let mut suite = Suite::new("patched-tables", "a power cut anywhere");
    for seed in 0..10 * budget() {
        for share in [None, Some(0.5), Some(3.0)] {
            let (patches, judged) = explore(seed, share, 60, true)
                .unwrap_or_else(|violation| panic!("seed {seed}, {share:?}: {violation}"));
            suite.add("runs", 1);
            suite.add("patches", patches);
            suite.add("judged", judged);
        }
    }
    assert!(suite.get("judged") > 1_000 && suite.get("patches") > 20, "{suite:?}");
    suite.record().unwrap();
}

/// The test finds a log that is acknowledged before it is durable.
#[test]
fn an_acknowledgement_without_a_sync_is_found() {
    let found = (0..5).any(|seed| explore(seed, Some(0.5), 60, false).is_err());
    assert!(found);
    assert_eq!(key(7), b"key 007");
}
