//! Results of `check` during merges: nothing about sound data, and the kind of each damage.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use common::back_up;
use esker::{Backup, Db, IndexKind, KeyspaceOptions, Merge};
use esker_device::memory::MemoryDevice;
use esker_substrate::planted::{Bug, with};
use esker_testkit::checks;
use esker_testkit::counts::{Counts, assert_passes, budget};
use esker_testkit::random::Random;
use esker_testkit::violation::Verdict;

fn histories(index: IndexKind, seeds: std::ops::Range<u64>) -> Verdict<Counts> {
    let mut counts = Counts::new("checks", format!("at every step, {index}"));
    for seed in seeds {
        checks::at_every_step(index, seed, &mut counts)?;
    }
    assert!(counts.get("checks during merges") > 0 || index == IndexKind::Lsm);
    Ok(counts)
}

#[test]
fn check_is_silent_at_every_step_of_merges_of_an_fd_tree() {
    assert_passes(histories(IndexKind::FdTree, 0..60 * budget()));
}

#[test]
fn check_is_silent_at_every_step_of_merges_of_an_lsm_index() {
    assert_passes(histories(IndexKind::Lsm, 0..40 * budget()));
}

/// One value that two entries have is named by the check of the store and of its backup.
#[test]
fn space_that_two_entries_have_is_named() {
    assert!(Bug::BESIDE_MERGES.contains(&Bug::ValueOwnedTwice));
    for index in IndexKind::ALL {
        let hunt = || histories(index, 0..20).unwrap_err();
        let violation = with(Bug::ValueOwnedTwice, hunt).to_string();
        assert!(violation.contains("two entries refer to the same space"), "{violation}");
    }
}

/// Keys as long as many blocks, a merge that stops at every step: what levels below the merge hold
/// is reached from both of its sides.
#[test]
fn blocks_that_both_sides_of_a_merge_lead_to_have_one_owner() {
    let long = |letter: u8, bytes: usize| {
        let mut key = [&b"user/"[..], &[letter]].concat();
        key.resize(bytes, b'k');
        key
    };
    for (key_bytes, steps) in [(65_536, 2), (65_535, 2), (40_000, 2), (40_000, 1), (3_000, 1)] {
        let (device, folder) = (MemoryDevice::new(), MemoryDevice::new());
        let db = Db::builder_on(Arc::new(device)).memory_budget(8 << 20).inline_merges(steps);
        let db = db.log_segment_bytes(16 << 10).open().unwrap();
        let options = KeyspaceOptions::default().inline_bytes_max(0).merge(Merge::Append);
        let keyspace = db.keyspace("k", options.memtable_bytes(Some(1024))).unwrap();
        for number in 0..12u8 {
            keyspace.insert(long(b'a' + number % 5, key_bytes), [number; 30]).unwrap();
            keyspace.insert(format!("s{number}"), [number; 30]).unwrap();
            let report = db.check().unwrap();
            assert!(report.is_ok(), "keys of {key_bytes}, {number}: {:?}", report.problems);
            back_up(&db, &folder).unwrap();
            let report = Backup::open_on(Arc::new(folder.clone())).unwrap().check().unwrap();
            assert!(report.is_ok(), "backup, keys of {key_bytes}: {:?}", report.problems);
        }
    }
}

/// Batches of random lengths, in several keyspaces: `check` counts what they say in the log, and
/// when all of it is in blocks, that.
fn counted(seed: u64) {
    let random = Random::new(seed);
    let db = Db::builder_on(Arc::new(MemoryDevice::new())).open().unwrap();
    let names = ["a", "b", "c"];
    let keyspaces = names.map(|name| db.keyspace(name, KeyspaceOptions::default()).unwrap());
    let mut model = std::collections::BTreeMap::new();
    let mut operations = 0;
    for _ in 0..1 + random.below(60) {
        let mut batch = db.batch();
        let mut said = std::collections::BTreeSet::new();
        for _ in 0..1 + random.below(9) {
            let at = random.index(keyspaces.len());
            let key = random.below(50).to_be_bytes();
            let is_put = random.percent(70);
            match is_put {
                true => batch.insert(&keyspaces[at], key, vec![7; random.index(300)]),
                false => batch.remove(&keyspaces[at], key),
            }
            model.insert((at, key), is_put);
            // Of a key the last operation of a batch counts, and is alone in the log.
            said.insert((at, key));
        }
        batch.commit().unwrap();
        operations += said.len() as u64;
    }
    let report = db.check().unwrap();
    assert_eq!((report.log_operations, report.entries), (operations, 0), "seed {seed}");
    assert!(report.log_bytes > operations, "seed {seed}");
    db.compact().unwrap();
    let entries = model.values().filter(|is_put| **is_put).count() as u64;
    assert_eq!(db.check().unwrap().entries, entries, "seed {seed}");
}

#[test]
fn check_counts_what_was_written() {
    (0..20 * budget()).for_each(counted);
    let hunt = || with(Bug::RecordsCounted, || (0..20).for_each(counted));
    assert!(std::panic::catch_unwind(hunt).is_err(), "a suite that cannot fail proves nothing");
}
