//! Slices for scans: what scans of a range pay for runs makes its merge due.

use std::ops::Bound;

use esker_format::ptr::UNIT_BYTES;

use super::{Options, Subject, options};
use crate::ScanRequest;
use crate::lsm::Compaction;
use crate::lsm::policy::Policy;

const MEMTABLE: u64 = 64 * 1024;
/// Less than a range of keys that is merged, so that scans read.
const CACHE: u64 = 32 << 10;
/// Keys of one range.
const HOT: std::ops::Range<u64> = 5_000..5_600;

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// An index of 40,000 keys, each written twice in no order, with runs.
fn filled(policy: Policy, read_worth_bytes: u64) -> Subject {
    let compaction = Compaction { policy, read_worth_bytes, ..Compaction::DEFAULT };
    let mut subject = Subject::lsm(Options { compaction, ..options(MEMTABLE) }, CACHE);
    for number in 0..80_000_u64 {
        subject.write(&key(number * 7_919 % 40_000), Some(&[number as u8; 60]));
        if subject.tree.is_full() {
            subject.maintain();
        }
    }
    subject
}

/// Where scan `number` begins.
const fn hot(number: u64) -> u64 {
    HOT.start + number * 7_919 % (HOT.end - HOT.start)
}

/// Scans ten entries.
fn scan(subject: &Subject, from: u64) -> usize {
    let lower = key(from);
    let request = ScanRequest {
        at: subject.at(subject.visible()),
        lower: Bound::Included(&lower),
        upper: Bound::Unbounded,
        reverse: false,
        entries_max: 10,
        bytes_max: 1 << 20,
        skip_damaged: false,
    };
    subject.tree.scan(&request).unwrap().entries.len()
}

/// Runs whose keys at `number` are not merged.
fn runs_at(subject: &Subject, number: u64) -> usize {
    let meta = subject.tree.meta();
    let key = key(number);
    let has = |gone: &Vec<esker_format::action::KeyRangeBuf>| {
        let is_in = |range: &esker_format::action::KeyRangeBuf| {
            range.begin.as_slice() <= &key[..]
                && range.end.as_ref().is_none_or(|end| &key[..] < end.as_slice())
        };
        !gone.iter().any(is_in)
    };
    meta.lsm().unwrap().gone.iter().filter(|gone| has(gone)).count()
}

#[test]
fn a_range_that_is_scanned_often_is_merged_and_others_are_not() {
    for policy in [Policy::Pull, Policy::RoundRobin] {
        let mut subject = filled(policy, UNIT_BYTES);
        let [before, cold] = [HOT.start, 30_000].map(|at| runs_at(&subject, at));
        // Round robin leaves levels instead.
        assert!(policy != Policy::Pull || (before > 1 && cold > 0), "{before}, {cold} runs");
        let mut merges = 0;
        for number in 0..4_000_u64 {
            assert_eq!(scan(&subject, hot(number)), 10);
            if subject.tree.is_due_for_scans() {
                merges += 1;
                subject.maintain();
                assert!(!subject.tree.is_due_for_scans());
            }
        }
        assert!((1..=2).contains(&merges), "{policy}: {merges}, without runs scans pay nothing");
        assert_eq!((runs_at(&subject, HOT.end), runs_at(&subject, 30_000)), (0, cold), "{policy}");
        subject.verify_all();
        subject.check();
    }
}

/// Without scans nothing is different, to the byte; without a worth of reads scans change nothing.
#[test]
fn without_scans_or_without_a_worth_nothing_is_merged_for_them() {
    let (off, on) = (filled(Policy::Pull, 0), filled(Policy::Pull, UNIT_BYTES));
    assert_eq!(off.tree.meta(), on.tree.meta());
    (0..4_000).for_each(|number| assert_eq!(scan(&off, hot(number)), 10));
    assert!(!off.tree.is_due_for_scans());
}

/// The less a read is worth, the later.
#[test]
fn a_merge_waits_until_it_would_have_paid() {
    let mut scans = Vec::new();
    for read_worth_bytes in [u64::MAX, UNIT_BYTES / 10, UNIT_BYTES / 100] {
        let mut subject = filled(Policy::Pull, read_worth_bytes);
        // Something asks whether work is due: with that the ranges are made.
        subject.maintain();
        let first = (0_u64..100_000).find(|number| {
            let _entries = scan(&subject, hot(*number));
            subject.tree.is_due_for_scans()
        });
        scans.push(first.unwrap());
    }
    // A merge of a block costs 1, 11 and 101 reads.
    let [free, tenth, hundredth] = scans[..] else { panic!() };
    let is_dear = (tenth * 7..tenth * 12).contains(&hundredth);
    assert!(free < tenth && is_dear, "{scans:?}");
}
