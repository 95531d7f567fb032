//! Range tombstones: when they are retired, and what is kept until then.

use super::{Ask, Subject, gate, options};
use crate::read::range_tombstones::MERGE_REMOVALS;

fn key(number: u32) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

/// A fully merged tree of `keys` keys.
fn filled(keys: u32) -> Subject {
    let mut subject = Subject::new(32 * 1024, 1 << 24);
    for number in 0..keys {
        subject.write(&key(number), Some(&[7; 100]));
        subject.maintain();
    }
    subject.run(Ask::Full);
    subject
}

fn entries(subject: &Subject) -> u64 {
    let meta = subject.tree.meta();
    let trees = meta.sorted_runs.iter().chain([&meta.main]);
    trees.flat_map(|tree| &tree.levels).map(|level| level.counts.data_entries()).sum()
}

#[test]
fn a_full_merge_leaves_nothing_of_what_was_removed() {
    let mut subject = filled(2000);
    subject.remove_range(&key(100), Some(&key(1900)));
    subject.verify_all();
    assert_eq!(subject.tree.removals(), 1);
    subject.run(Ask::Full);
    assert_eq!((subject.tree.removals(), entries(&subject)), (0, 200));
    assert!(subject.tree.meta().removed.is_empty());
    subject.verify_all();
}

#[test]
fn a_snapshot_keeps_a_removal_until_it_ends() {
    let mut subject = filled(600);
    let snapshot = subject.snapshots().register();
    subject.snapshots.push(snapshot);
    subject.remove_range(&key(0), None);
    subject.write(&key(5), Some(b"again"));
    subject.run(Ask::Full);
    // The first key of the range has a tombstone, over what the snapshot sees.
    assert_eq!((subject.tree.removals(), entries(&subject)), (1, 602));
    subject.verify_all();
    subject.reopen();
    subject.verify_all();
    subject.run(Ask::Full);
    assert_eq!((subject.tree.removals(), entries(&subject)), (0, 1));
    subject.verify_all();
}

#[test]
fn a_removal_of_which_the_memtable_has_older_versions_is_not_forgotten() {
    let mut subject = filled(600);
    subject.write(&key(7), Some(b"in the memtable"));
    subject.remove_range(&key(0), Some(&key(50)));
    let alone = super::Work::Merge { full: true, with_memtable: false };
    subject.tree.run(alone, &gate, &mut |_, _| Ok(())).unwrap();
    assert_eq!(subject.tree.removals(), 1);
    subject.verify_all();
    subject.run(Ask::Full);
    assert_eq!((subject.tree.removals(), entries(&subject)), (0, 550));
    subject.verify_all();
}

#[test]
fn what_is_removed_during_a_merge_stays_removed_after_it() {
    let mut subject = filled(2000);
    (0..50).for_each(|number| subject.write(&key(number), Some(b"new")));
    subject.begin(Ask::Full);
    subject.step(super::BackgroundJob::Merge);
    subject.remove_range(&key(10), Some(&key(1500)));
    subject.write(&key(20), Some(b"newer"));
    subject.verify_all();
    subject.complete();
    assert_eq!(subject.tree.removals(), 1);
    subject.verify_all();
    subject.run(Ask::Full);
    assert_eq!((subject.tree.removals(), entries(&subject)), (0, 511));
    subject.verify_all();
}

#[test]
fn a_merge_cut_off_by_a_crash_leaves_the_removal_to_the_next() {
    let mut subject = filled(4000);
    subject.remove_range(&key(1000), Some(&key(3000)));
    subject.begin(Ask::Full);
    for _ in 0..3 {
        subject.step(super::BackgroundJob::Merge);
    }
    subject.reopen();
    subject.verify_all();
    subject.complete();
    subject.verify_all();
    subject.run(Ask::Full);
    assert_eq!((subject.tree.removals(), entries(&subject)), (0, 2000));
    subject.verify_all();
}

#[test]
fn many_removals_make_a_full_merge_due_and_only_once_for_a_snapshot() {
    let mut subject = filled(3000);
    let snapshot = subject.snapshots().register();
    subject.snapshots.push(snapshot);
    let remove = |subject: &mut Subject, from: u32| {
        for number in (from..from + 2100).step_by(2) {
            subject.remove_range(&key(number), Some(&key(number + 1)));
        }
    };
    remove(&mut subject, 0);
    assert!(subject.tree.due().is_some());
    subject.maintain();
    assert_eq!(subject.tree.removals(), 1050);
    assert_eq!(subject.tree.due(), None);
    subject.snapshots.clear();
    subject.maintain();
    assert_eq!(subject.tree.removals(), 0);
    subject.verify_all();
}

/// Does what is due until nothing is, and returns how often something was.
fn works_due(subject: &Subject) -> u32 {
    let mut works = 0;
    while let Some(work) = subject.tree.due() {
        subject.tree.run(work, &gate, &mut |_, _| Ok(())).unwrap();
        works += 1;
        assert!(works < 10, "{work:?} is due for ever");
    }
    works
}

/// They are in a memtable that has room for more.
#[test]
fn work_that_range_tombstones_make_due_retires_them() {
    let lsm = Subject::lsm(options(16 << 20), 64 << 20);
    let fdtree = Subject::new(16 << 20, 64 << 20);
    for (mut subject, flushes) in [(fdtree, 0), (lsm, 1)] {
        let keys = MERGE_REMOVALS as u32;
        (0..keys).for_each(|number| subject.write(&key(number), Some(&[7; 100])));
        subject.run(Ask::Flush);
        works_due(&subject);
        for number in 0..keys {
            assert_eq!(subject.tree.due(), None, "{number}");
            subject.remove_range(&key(number), Some(&key(number + 1)));
        }
        assert_eq!(works_due(&subject), 1 + flushes);
        assert_eq!((subject.tree.removals(), entries(&subject)), (0, 0));
        subject.check();
        subject.verify_all();
    }
}

/// A merge that was not full, or a snapshot, has left them.
#[test]
fn range_tombstones_of_an_empty_index_are_retired() {
    let lsm = Subject::lsm(options(64 << 10), 1 << 20);
    let fdtree = Subject::new(64 << 10, 1 << 20);
    for mut subject in [fdtree, lsm] {
        let snapshot = subject.snapshots().register();
        subject.snapshots.push(snapshot);
        subject.remove_range(&key(0), Some(&key(9)));
        subject.run(Ask::Flush);
        subject.run(Ask::MergeAlone);
        subject.run(Ask::Full);
        assert_eq!((subject.tree.removals(), entries(&subject)), (1, 0));
        assert!(!subject.tree.is_fully_compacted(false));
        subject.snapshots.clear();
        subject.run(Ask::Full);
        assert_eq!((subject.tree.removals(), entries(&subject)), (0, 0));
        assert!(subject.tree.meta().removed.is_empty());
        assert!(subject.tree.is_fully_compacted(true));
        subject.reopen();
        assert_eq!(subject.tree.removals(), 0);
        subject.check();
    }
}
