//! Merge operands: which are joined, by which merge, and which are not.

use std::ops::Bound;

use esker_format::action::KeyRange;
use esker_format::data::{Data, Value};
use esker_format::ids::Seq;

use super::{Ask, BackgroundJob, Subject};
use crate::Step;

fn key(number: u32) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

fn entries(subject: &Subject) -> u64 {
    let meta = subject.tree.meta();
    let trees = meta.sorted_runs.iter().chain([&meta.main]);
    trees.flat_map(|tree| &tree.levels).map(|level| level.counts.data_entries()).sum()
}

fn subject() -> Subject {
    Subject::new(1 << 20, 1 << 24)
}

fn snapshot(subject: &mut Subject) {
    let snapshot = subject.snapshots().register();
    subject.snapshots.push(snapshot);
}

#[test]
fn a_flush_combines_what_no_snapshot_distinguishes() {
    let mut subject = subject();
    (0..5).for_each(|at| subject.append(b"k", &[b'a' + at]));
    snapshot(&mut subject);
    (5..9).for_each(|at| subject.append(b"k", &[b'a' + at]));
    subject.write(b"other", Some(b"x"));
    subject.verify_all();
    subject.run(Ask::Flush);
    assert_eq!(entries(&subject), 3, "one on each side of the snapshot, and the other key");
    subject.verify_all();
    subject.snapshots.clear();
    subject.run(Ask::Full);
    assert_eq!(entries(&subject), 2);
    subject.verify_all();
    assert!(subject.tree.is_fully_compacted(true), "{:?}", subject.tree.meta());
}

#[test]
fn a_scan_within_a_flush_counts_every_operand_once() {
    let mut subject = Subject::new(1 << 20, 1 << 24);
    for round in 0..3_u8 {
        (0..20_000).for_each(|number| subject.append(&key(number), &[round]));
    }
    subject.begin(Ask::Flush);
    let mut steps = 0;
    while subject.step(BackgroundJob::Flush) == Step::More {
        steps += 1;
        let (visible, all) = (subject.visible(), (Bound::Unbounded, Bound::Unbounded));
        let expected = subject.expected_all(visible);
        for reverse in [false, true] {
            let mut found = subject.scan_all(visible, all, reverse, 1000);
            if reverse {
                found.reverse();
            }
            assert!(found == expected, "after step {steps}, reverse {reverse}");
        }
    }
    assert!(steps > 2, "{steps}");
}

#[test]
fn operands_become_values_at_the_bottom() {
    let mut subject = subject();
    subject.write(b"gone", Some(b"old"));
    subject.write(b"value", Some(b"old"));
    subject.run(Ask::Full);
    subject.append(b"alone", b"1");
    subject.append(b"value", b"2");
    subject.write(b"gone", None);
    subject.append(b"gone", b"3");
    subject.run(Ask::Flush);
    subject.verify_all();
    subject.run(Ask::Full);
    subject.verify_all();
    assert_eq!(entries(&subject), 3);
    let level = subject.tree.meta().main.levels.last().unwrap().clone();
    assert!(crate::build::preserve::is_reset(&level), "all are values: {level:?}");
}

#[test]
fn what_a_merge_cannot_join_it_carries() {
    let mut subject = subject();
    subject.write(b"k", Some(b"v"));
    subject.run(Ask::Full);
    subject.is_blind = true;
    for at in 0..6 {
        subject.append(b"k", &[b'a' + at]);
        subject.run(if at % 2 == 0 { Ask::Flush } else { Ask::Full });
        subject.verify_all();
    }
    assert_eq!(entries(&subject), 7);
    subject.reopen();
    subject.verify_all();
    subject.is_blind = false;
    subject.run(Ask::Full);
    assert_eq!(entries(&subject), 1);
    subject.verify_all();
}

#[test]
fn what_does_not_fit_in_a_block_is_not_combined() {
    let mut subject = subject();
    let long = vec![b'x'; 200 << 10];
    subject.write(b"k", Some(&long));
    subject.append(b"k", &long);
    subject.append(b"k", b"short");
    subject.run(Ask::Full);
    assert_eq!(entries(&subject), 2, "the operands, and what they would make too long");
    subject.verify_all();
}

#[test]
fn operands_over_a_removed_range_are_the_value() {
    let mut subject = subject();
    (0..100).for_each(|number| subject.write(&key(number), Some(b"old")));
    subject.run(Ask::Full);
    subject.remove_range(&key(10), Some(&key(90)));
    subject.append(&key(20), b"1");
    subject.verify_all();
    snapshot(&mut subject);
    subject.append(&key(20), b"2");
    subject.append(&key(5), b"3");
    subject.run(Ask::Flush);
    subject.verify_all();
    subject.snapshots.clear();
    subject.run(Ask::Full);
    subject.verify_all();
    assert_eq!((entries(&subject), subject.tree.removals()), (21, 0));
}

#[test]
fn a_get_that_a_removal_and_an_operand_overtake_sees_both_or_neither() {
    let mut subject = subject();
    subject.write(b"k", Some(b"removed"));
    subject.give_operator(true);
    let tree = &subject.tree;
    // The view is loaded by then.
    let found = tree.get(b"k", || {
        tree.remove_ranges(&[(KeyRange { begin: b"a", end: Some(b"z") }, Seq(2))]);
        tree.insert(b"k", Seq(3), Data::Operand(b"new"));
        subject.snapshots().publish(Seq(3));
        Seq(3)
    });
    let found = found.unwrap().and_then(Value::here);
    assert!(found == Some(b"removed".to_vec()) || found == Some(b"new".to_vec()), "{found:?}");
}
