//! Random histories.

use std::ops::Bound;

use proptest::prelude::*;

use esker_format::block::Codec;

use super::{Ask, BackgroundJob, Options, Scheme, Sizes, Subject, options};
use crate::lsm::Compaction;
use crate::lsm::policy::{Params, Policy};

#[derive(Clone, Debug)]
enum Op {
    Put(u16, u16),
    Delete(u16),
    Append(u16, u8),
    AppendMany(u16, u8),
    Blind(bool),
    RemoveRange(u16, u16),
    RemoveRest(u16),
    PutMany(u16, u8),
    Snapshot,
    Release(u8),
    Flush,
    Merge,
    Full,
    Begin(Ask),
    Step(BackgroundJob, u8),
    Reopen,
    VerifyAll,
    /// Between two keys, which are among those asked for or not; from the upper end down.
    Scan(u16, u16, [bool; 2], bool),
    Compress(Codec),
}

fn codec() -> impl Strategy<Value = Codec> {
    proptest::sample::select(Codec::ALL.as_slice())
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        7 => (any::<u16>(), 0u16..900).prop_map(|(key, len)| Op::Put(key, len)),
        1 => (any::<u16>(), proptest::sample::select(vec![1_000, 2_100, 4_000, 5_000]))
            .prop_map(|(key, len)| Op::Put(key, len)),
        5 => any::<u16>().prop_map(Op::Delete),
        8 => (any::<u16>(), 0u8..90).prop_map(|(key, len)| Op::Append(key, len)),
        3 => (any::<u16>(), any::<u8>()).prop_map(|(key, count)| Op::AppendMany(key, count)),
        1 => any::<bool>().prop_map(Op::Blind),
        4 => (any::<u16>(), any::<u16>()).prop_map(|(a, b)| Op::RemoveRange(a, b)),
        1 => any::<u16>().prop_map(Op::RemoveRest),
        6 => (any::<u16>(), any::<u8>()).prop_map(|(key, count)| Op::PutMany(key, count)),
        1 => Just(Op::Snapshot),
        1 => any::<u8>().prop_map(Op::Release),
        1 => Just(Op::Flush),
        1 => Just(Op::Merge),
        1 => Just(Op::Full),
        1 => prop_oneof![Just(Ask::Flush), Just(Ask::Merge), Just(Ask::MergeAlone), Just(Ask::Full)]
            .prop_map(Op::Begin),
        3 => (prop_oneof![Just(BackgroundJob::Flush), Just(BackgroundJob::Merge)], 1u8..6)
            .prop_map(|(which, steps)| Op::Step(which, steps)),
        1 => Just(Op::Reopen),
        1 => Just(Op::VerifyAll),
        1 => codec().prop_map(Op::Compress),
        4 => (any::<u16>(), any::<u16>(), any::<[bool; 2]>(), any::<bool>())
            .prop_map(|(a, b, ends, reverse)| Op::Scan(a, b, ends, reverse)),
    ]
}

/// Keys of all kinds: the empty one, prefixes of each other, shared prefixes, all-ones bytes,
/// and long ones that make blocks with few fences.
fn key(number: u16) -> Vec<u8> {
    let n = number % 600;
    match n % 7 {
        0 => vec![0xff; usize::from(n % 40)],
        1 => format!("/usr/share/doc/{n:05}").into_bytes(),
        2 => vec![b'a'; usize::from(n % 90)],
        3 => n.to_be_bytes().repeat(usize::from(n % 5) + 1),
        4 if n % 60 == 4 => vec![b'q'; 3000 + usize::from(n)],
        _ => n.to_be_bytes().to_vec(),
    }
}

fn apply(subject: &mut Subject, op: &Op) {
    match op {
        Op::Put(number, len) => {
            let value = number.to_le_bytes().repeat(usize::from(*len) / 2);
            subject.write(&key(*number), Some(&value));
        }
        Op::Delete(number) => subject.write(&key(*number), None),
        Op::Append(number, len) => {
            subject.append(&key(*number), &vec![b'a' + *len % 26; usize::from(*len)]);
        }
        Op::AppendMany(number, count) => {
            // Some keys again and again, with others in between.
            for at in 0..u16::from(*count) {
                subject.append(&key(number.wrapping_add(at % 5)), &at.to_le_bytes());
            }
        }
        Op::Blind(is_blind) => subject.is_blind = *is_blind,
        Op::RemoveRange(a, b) => {
            let (a, b) = (key(*a), key(*b));
            let (begin, end) = if a < b { (a, b) } else { (b, a) };
            if begin < end {
                subject.remove_range(&begin, Some(&end));
            }
        }
        Op::RemoveRest(begin) => subject.remove_range(&key(*begin), None),
        Op::PutMany(first, count) => {
            for number in 0..u16::from(*count) {
                let value = vec![*count; usize::from(number % 200)];
                subject.write(&key(first.wrapping_add(number)), Some(&value));
            }
        }
        Op::Snapshot if subject.snapshots.len() < 4 => {
            let snapshot = subject.snapshots().register();
            subject.snapshots.push(snapshot);
        }
        Op::Snapshot => {}
        Op::Release(which) if !subject.snapshots.is_empty() => {
            let index = usize::from(*which) % subject.snapshots.len();
            subject.snapshots.swap_remove(index);
        }
        Op::Release(_) => {}
        Op::Flush => subject.run(Ask::Flush),
        Op::Merge => subject.run(Ask::Merge),
        Op::Full => subject.run(Ask::Full),
        Op::Begin(ask) => subject.begin(*ask),
        Op::Step(which, steps) => {
            for _ in 0..*steps {
                subject.step(*which);
            }
        }
        Op::Reopen => subject.reopen(),
        Op::VerifyAll => subject.verify_all(),
        Op::Compress(codec) => subject.tree.set_codec(*codec),
        Op::Scan(a, b, [has_a, has_b], reverse) => {
            let (a, b) = (key(*a), key(*b));
            let bound = |key, has| if has { Bound::Included(key) } else { Bound::Excluded(key) };
            let bounds = (bound(a.as_slice(), *has_a), bound(b.as_slice(), *has_b));
            let seq = subject.visible();
            let mut expected = subject.expected_all(seq);
            let is_behind = |key: &Vec<u8>| *key > a || *has_a && *key == a;
            let is_before = |key: &Vec<u8>| *key < b || *has_b && *key == b;
            expected.retain(|(key, _)| is_behind(key) && is_before(key));
            if *reverse {
                expected.reverse();
            }
            assert_eq!(subject.scan_all(seq, bounds, *reverse, 11), expected);
        }
    }
}

/// A history in which merges are cut into steps between the operations: `pace` gives the number of
/// steps after each, and a pace of 0 completes everything at once.
fn history(ops: &[Op], options: Options, budget_bytes: u64, pace: u8) {
    history_of(&mut Subject::with(options, budget_bytes), ops, pace);
}

fn history_of(subject: &mut Subject, ops: &[Op], pace: u8) {
    for op in ops {
        apply(subject, op);
        match pace {
            0 => subject.maintain(),
            steps => subject.go_on(steps),
        }
    }
    subject.verify_all();
    subject.run(Ask::Full);
    subject.verify_all();
}

/// Cases for a test of `cases` at budget 1.
pub(super) fn config(cases: u32) -> ProptestConfig {
    let budget = std::env::var("ESKER_TEST_BUDGET").ok().and_then(|b| b.parse().ok()).unwrap_or(1);
    ProptestConfig {
        cases: cases.saturating_mul(budget),
        max_shrink_iters: 2000,
        ..Default::default()
    }
}

proptest! {
    #![proptest_config(config(60))]

    #[test]
    fn with_express_fences(
        ops in proptest::collection::vec(op(), 1..120),
        pace in 0u8..4,
        codec in codec(),
    ) {
        history(&ops, Options { codec, ..options(24 * 1024) }, 1 << 24, pace);
    }

    #[test]
    fn through_the_levels(
        ops in proptest::collection::vec(op(), 1..120),
        pace in 0u8..4,
        codec in codec(),
    ) {
        history(&ops, Options { codec, ..options(24 * 1024) }, 1024, pace);
    }

    #[test]
    fn with_a_tiny_memtable(
        ops in proptest::collection::vec(op(), 1..60),
        pace in 0u8..4,
        codec in codec(),
    ) {
        history(&ops, Options { codec, ..options(2 * 1024) }, 1024, pace);
    }

    #[test]
    fn as_an_lsm_index(
        ops in proptest::collection::vec(op(), 1..120),
        pace in 0u8..4,
        codec in codec(),
        tiny: bool,
    ) {
        let (memtable, budget) = if tiny { (2 * 1024, 1024) } else { (24 * 1024, 1 << 24) };
        let mut subject = Subject::lsm(Options { codec, ..options(memtable) }, budget);
        history_of(&mut subject, &ops, pace);
    }

    #[test]
    fn under_every_merge_policy(
        ops in proptest::collection::vec(op(), 1..120),
        pace in 0u8..4,
        policy in 0..Policy::ALL.len(),
        preserves: bool,
        gamma in 2.0..4.0f64,
        delta in 0.01..0.5f64,
        read_worth_bytes in prop_oneof![Just(0), Just(4096), Just(u64::MAX)],
    ) {
        let params = Params { gamma, delta, ..Params::DEFAULT };
        let policy = Policy::ALL[policy];
        let merging = Compaction { policy, params, read_worth_bytes, preserves };
        let mut subject = Subject::lsm(Options { compaction: merging, ..options(2 * 1024) }, 1024);
        history_of(&mut subject, &ops, pace);
    }

    #[test]
    fn under_every_scheme(
        ops in proptest::collection::vec(op(), 1..60),
        pace in 0u8..3,
        scheme in 0..Scheme::ALL.len(),
        fixed: bool,
        codec in codec(),
    ) {
        let sizes = if fixed { Sizes::Fixed { growth: 3 } } else { Sizes::Cost };
        let scheme = Scheme::ALL[scheme];
        history(&ops, Options { scheme, sizes, codec, ..options(12 * 1024) }, 1 << 22, pace);
    }
}
