//! Full merges that keep blocks of the bottom as they are.

use esker_device::Purpose;
use proptest::prelude::*;

use super::model::config;
use super::{Ask, BackgroundJob, Options, Scheme, Step, Subject, options};

fn key(number: u64) -> Vec<u8> {
    [&number.to_be_bytes()[..], b"key"].concat()
}

fn value(number: u64) -> Vec<u8> {
    vec![number as u8; 100]
}

/// Writes ascending keys, `from` the first, and does the work that is due.
fn load(subject: &mut Subject, from: u64, count: u64) {
    for number in from..from + count {
        subject.write(&key(number), Some(&value(number)));
        if subject.tree.due().is_some() {
            subject.maintain();
        }
    }
}

fn merge_bytes(subject: &Subject) -> u64 {
    subject.device.counts()[Purpose::Merge].bytes_written
}

/// Bytes that merges wrote for each byte of payload.
fn cost_of(scheme: Scheme, write: impl Fn(u64) -> u64) -> f64 {
    let mut subject = Subject::with(Options { scheme, ..options(64 * 1024) }, 1 << 24);
    let (mut merges, count) = (0, 20_000);
    for number in 0..count {
        subject.write(&key(write(number)), Some(&value(number)));
        if subject.tree.due().is_some() {
            subject.maintain();
        }
        merges = subject.tree.meta().merges;
    }
    assert!(merges > 4, "{merges}");
    (0..count).step_by(97).for_each(|number| subject.verify_get(&key(write(number))));
    merge_bytes(&subject) as f64 / (count * 111) as f64
}

/// The scheme without memory sharing writes the same blocks, and keeps none.
#[test]
fn ascending_keys_are_written_once_by_full_merges() {
    let (with, without) = (cost_of(Scheme::Fc, |n| n), cost_of(Scheme::FcUnshared, |n| n));
    println!("ascending: {with:.3} and {without:.3} bytes written by merges per byte of payload");
    assert!(with * 2.2 < without, "{with:.3} {without:.3}");
}

#[test]
fn keys_without_order_are_merged_as_before() {
    let scatter = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let (with, without) = (cost_of(Scheme::Fc, scatter), cost_of(Scheme::FcUnshared, scatter));
    println!("scattered: {with:.3} and {without:.3} bytes written by merges per byte of payload");
    assert!((with / without - 1.0).abs() < 0.01, "{with:.3} {without:.3}");
}

/// One entry in the middle of hundreds of blocks that may stay: a full merge rewrites its block,
/// those up to where a run may begin, and fences.
#[test]
fn one_entry_does_not_cost_the_bottom() {
    let mut subject = Subject::with(options(16 * 1024), 1 << 24);
    load(&mut subject, 0, 8_000);
    subject.run(Ask::Full);
    let before = merge_bytes(&subject);
    subject.write(&key(4_000), Some(b"another"));
    subject.run(Ask::Full);
    let written = merge_bytes(&subject) - before;
    let bottom = subject.tree.stats().levels.last().map_or(0, |level| level.bytes);
    assert!(written * 3 < bottom, "{written} of {bottom}");
    subject.verify_all();
    // An older version that a snapshot sees keeps its number: everything is written.
    let snapshot = subject.snapshots().register();
    subject.snapshots.push(snapshot);
    subject.write(&key(4_000), None);
    subject.run(Ask::Full);
    let before = merge_bytes(&subject);
    subject.snapshots.clear();
    subject.write(&key(7), Some(b"seven"));
    subject.run(Ask::Full);
    assert!(merge_bytes(&subject) - before > bottom / 10 * 9);
    subject.verify_all();
}

/// A merge of a bottom whose second half stays, cut after every step: each time the store is opened
/// again, the merge resumes, and has lost and freed nothing.
#[test]
fn a_merge_that_keeps_blocks_goes_on_after_a_crash_at_every_step() {
    let count = |subject: &mut Subject| {
        let mut steps = 0;
        while subject.step(BackgroundJob::Merge) == Step::More {
            steps += 1;
        }
        steps
    };
    let prepared = || {
        let mut subject = Subject::with(options(16 * 1024), 1 << 24);
        load(&mut subject, 0, 4_000);
        subject.run(Ask::Full);
        for number in (0..40).chain([900, 901, 2_000]) {
            subject.write(&key(number), Some(b"again"));
        }
        (4_000..4_060).for_each(|number| subject.write(&key(number), Some(b"new")));
        subject.begin(Ask::Full);
        subject
    };
    let all = count(&mut prepared());
    assert!(all > 3, "{all}");
    for crash_at in 1..=all {
        for then in [0, 1, 2] {
            let mut subject = prepared();
            (0..crash_at).for_each(|_| assert_eq!(subject.step(BackgroundJob::Merge), Step::More));
            subject.reopen();
            for _ in 0..then {
                subject.step(BackgroundJob::Merge);
            }
            subject.reopen();
            subject.verify_all();
            subject.complete();
            subject.run(Ask::Full);
            subject.verify_all();
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    /// That many keys behind all others.
    Append(u8),
    /// One somewhere: a value, or a tombstone.
    Touch(u16, bool),
    Snapshot,
    Release,
    Full,
    Step(u8),
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        10 => any::<u8>().prop_map(Op::Append),
        2 => (any::<u16>(), any::<bool>()).prop_map(|(number, put)| Op::Touch(number, put)),
        1 => Just(Op::Snapshot),
        2 => Just(Op::Release),
        2 => Just(Op::Full),
        4 => (1u8..6).prop_map(Op::Step),
        1 => Just(Op::Reopen),
    ]
}

proptest! {
    #![proptest_config(config(20))]

    #[test]
    fn mostly_ascending_histories(ops in proptest::collection::vec(op(), 1..80)) {
        let mut subject = Subject::with(options(8 * 1024), 1 << 22);
        load(&mut subject, 0, 1_200);
        let mut end = 1_200;
        for op in ops {
            match op {
                Op::Append(count) => {
                    for number in end..end + u64::from(count) {
                        subject.write(&key(number), Some(&value(number)));
                        if subject.tree.is_full() {
                            subject.go_on(1);
                        }
                    }
                    end += u64::from(count);
                }
                Op::Touch(number, put) => {
                    let key = key(u64::from(number) % end);
                    subject.write(&key, put.then_some(&b"touched"[..]));
                    subject.verify_get(&key);
                }
                Op::Snapshot if subject.snapshots.len() < 3 => {
                    let snapshot = subject.snapshots().register();
                    subject.snapshots.push(snapshot);
                }
                Op::Snapshot => {}
                Op::Release => subject.snapshots.truncate(subject.snapshots.len() / 2),
                Op::Full => {
                    subject.complete();
                    subject.begin(Ask::Full);
                }
                Op::Step(steps) => subject.go_on(steps),
                Op::Reopen => subject.reopen(),
            }
        }
        subject.verify_all();
        subject.complete();
        subject.run(Ask::Full);
        subject.verify_all();
    }
}
