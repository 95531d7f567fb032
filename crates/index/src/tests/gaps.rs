//! Gaps: scans from the front of a queue pass a bounded number of removed keys.

use std::ops::Bound;

use esker_format::data::Data;
use esker_format::ids::{Moment, Seq};
use esker_substrate::planted::{self, Bug};
use esker_substrate::snapshots::At;

use super::{Index, Subject, gate, here, options};
use crate::{BackgroundJob, ScanBatch, ScanRequest, Work};

const MEMTABLE: u64 = 16 * 1024;
const MEMORY: u64 = 1 << 20;

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn batch_of(tree: &Index, at: At, upper: Bound<&[u8]>) -> ScanBatch {
    let (lower, reverse, skip_damaged) = (Bound::Unbounded, false, false);
    let (entries_max, bytes_max) = (1, usize::MAX);
    let request = ScanRequest { at, lower, upper, reverse, entries_max, bytes_max, skip_damaged };
    tree.scan(&request).unwrap()
}

/// The first key as of now, and how many versions were passed before it.
fn first(subject: &Subject) -> (Option<Vec<u8>>, usize) {
    let batch = batch_of(&subject.tree, subject.at(subject.visible()), Bound::Unbounded);
    let passed = batch.passed;
    (here(batch.entries).next().map(|(key, _)| key), passed)
}

/// 4,000 entries go through a queue of 500, then it is emptied and asked for more.
fn empties_a_queue(mut subject: Subject) {
    let mut passed = Vec::new();
    for number in 0..4_000 {
        subject.write(&key(number), Some(&[7; 20]));
        if number >= 500 {
            let (found, versions) = first(&subject);
            assert_eq!(found.as_deref(), Some(&key(number - 500)[..]));
            subject.write(&key(number - 500), None);
            passed.push(versions);
        }
        if subject.tree.is_full() {
            subject.maintain();
        }
    }
    for number in 3_500..4_000 {
        let (found, versions) = first(&subject);
        assert_eq!(found.as_deref(), Some(&key(number)[..]));
        subject.write(&key(number), None);
        passed.push(versions);
    }
    for _ in 0..10 {
        let (found, versions) = first(&subject);
        assert_eq!(found, None);
        passed.push(versions);
    }
    // Another put, in the gap that goes to the end of all keys.
    subject.write(&key(900), Some(&[7; 20]));
    assert_eq!(first(&subject).0.as_deref(), Some(&key(900)[..]));
    let many = passed.iter().filter(|versions| **versions > 40).count();
    assert!(many <= 2, "{many} scans passed more than 40 versions: {passed:?}");
}

#[test]
fn scans_pass_few_removed_keys() {
    empties_a_queue(Subject::new(MEMTABLE, MEMORY));
    empties_a_queue(Subject::lsm(options(MEMTABLE), MEMORY));
}

/// A merge that is interrupted by scans, and continues.
#[test]
fn gaps_stay_while_a_merge_moves_the_keys() {
    for mut subject in [Subject::new(MEMTABLE, MEMORY), Subject::lsm(options(MEMTABLE), MEMORY)] {
        for number in 0..300 {
            subject.write(&key(number), Some(&[7; 20]));
        }
        subject.run(super::Ask::Merge);
        for number in 0..200 {
            subject.write(&key(number), None);
        }
        for _ in 0..3 {
            assert_eq!(first(&subject).0.as_deref(), Some(&key(200)[..]));
        }
        subject.tree.begin(Work::Merge { full: true, with_memtable: true }, &gate).unwrap();
        let mut number = 100;
        loop {
            let step = subject.tree.step(BackgroundJob::Merge, &mut |_, _| Ok(())).unwrap();
            number -= 1;
            subject.write(&key(number), Some(&[8]));
            assert_eq!(first(&subject).0.as_deref(), Some(&key(number)[..]));
            if step != crate::Step::More {
                break;
            }
        }
        subject.verify_all();
    }
}

/// An index that takes the memtable of an older opening over has versions in it that are not
/// visible yet, and that it was not given: they are not missed.
#[test]
fn what_a_shared_memtable_has_is_not_missed() {
    let mut subject = Subject::new(1 << 20, MEMORY);
    for number in 0..100 {
        subject.write(&key(number), Some(&[7]));
        subject.write(&key(number), None);
    }
    let seen = subject.visible();
    subject.tree.insert(&key(50), Seq(seen + 1), Data::Put(&[8]));
    let meta = (*subject.tree.meta()).clone();
    let next = subject.tree.open_again(meta, subject.options);
    next.take_over(&subject.tree);
    for _ in 0..3 {
        let found = batch_of(&next, subject.at(seen), Bound::Unbounded);
        assert!(found.entries.is_empty());
    }
    subject.snapshots().publish(Seq(seen + 1));
    let found = batch_of(&next, subject.at(seen + 1), Bound::Unbounded).entries;
    assert_eq!(here(found).next().map(|(key, _)| key).as_deref(), Some(&key(50)[..]));
}

#[test]
fn finds_a_shared_memtable_whose_numbers_are_not_known() {
    let test = what_a_shared_memtable_has_is_not_missed;
    let hunt = || planted::with(Bug::SharedNotCounted, test);
    assert!(std::panic::catch_unwind(hunt).is_err());
}

/// A reader of an earlier moment than the gap is of sees what expired later.
#[test]
fn what_expires_is_in_no_gap_of_an_earlier_moment() {
    let subject = Subject::new(1 << 20, MEMORY);
    for number in 0..100 {
        subject.tree.insert(&key(number), Seq(number + 1), Data::PutUntil(Moment(10), &[7]));
    }
    subject.snapshots().publish(Seq(100));
    let at = |now| At { seq: Seq(100), now: Moment(now) };
    let count = |now| batch_of(&subject.tree, at(now), Bound::Unbounded).entries.len();
    assert_eq!([count(9), count(10), count(10), count(10)], [1, 0, 0, 0]);
    assert_eq!([count(9), count(10), count(11)], [1, 0, 0]);
    // It is put again, without an expiry.
    subject.tree.insert(&key(30), Seq(101), Data::Put(&[8]));
    subject.snapshots().publish(Seq(101));
    assert_eq!(count(11), 0, "as of the number before");
    let found = batch_of(&subject.tree, At { seq: Seq(101), now: Moment(11) }, Bound::Unbounded);
    assert_eq!(found.entries.len(), 1);
}

/// Bounds that end before the end of the gap, at it and behind it.
#[test]
fn scans_whose_end_is_in_the_gap_find_nothing() {
    for mut subject in [Subject::new(MEMTABLE, MEMORY), Subject::lsm(options(MEMTABLE), MEMORY)] {
        for number in 0..200 {
            subject.write(&key(number), Some(&[7; 20]));
        }
        subject.run(super::Ask::Merge);
        for number in 0..100 {
            subject.write(&key(number), None);
        }
        for _ in 0..3 {
            assert_eq!(first(&subject).0.as_deref(), Some(&key(100)[..]));
        }
        let at = subject.at(subject.visible());
        let count = |upper| {
            let batch = batch_of(&subject.tree, at, upper);
            assert_eq!(batch.passed, 0);
            batch.entries.len()
        };
        let (within, end) = (key(50), key(100));
        assert_eq!(count(Bound::Included(&within)), 0);
        assert_eq!(count(Bound::Excluded(&end)), 0);
        assert_eq!(count(Bound::Included(&end)), 1);
    }
}
