//! Scans from the end, from every key down, at every step of merges under way and resumed; space
//! that a merge has freed is overwritten at once, and only top fences of the index are in memory.

use std::ops::Bound;

use esker_substrate::planted::{self, Bug};
use proptest::prelude::*;

use super::model::config;
use super::{Ask, BackgroundJob, Entries, HeldBlocks, ScanRequest, Step, Subject, here, options};

/// Entries of each scan.
const ENTRIES: usize = 4;
/// Each step starts from one key in this many, the next step from others.
const STRIDE: usize = 5;

/// A bottom of short entries with close keys, with gaps between groups of them, and above it levels
/// of blocks that hold one long entry each, of which many are in the same gap.
#[derive(Clone, Debug)]
struct Case {
    is_lsm: bool,
    memtable_kib: u64,
    /// Keys of the bottom between two gaps, and bytes of their values.
    bottom: (u16, u16),
    /// The entries written before each of these jobs.
    rounds: Vec<(Vec<Row>, Ask)>,
    /// The merge that is cut into steps.
    last: Ask,
    /// Whether a snapshot keeps the versions before the last round.
    keeps: bool,
    /// The store is reopened before each step of which the bit is set.
    reopens: u32,
}

/// Keys at some distance from each other.
#[derive(Clone, Copy, Debug)]
struct Row {
    first: u16,
    distance: u16,
    count: u8,
    value_bytes: u16,
}

/// Keys from one gap's begin to the next one's.
const CYCLE: u16 = 500;
const CYCLES: u16 = 5;
/// Keys of a gap that begin like those behind it.
const GAP: u16 = 60;

const fn in_gap((cycle, at): (u16, u16)) -> u16 {
    cycle * CYCLE + at
}

fn row() -> impl Strategy<Value = Row> {
    let bytes = prop_oneof![1 => 0u16..200, 1 => 1_000u16..3_000, 4 => 3_500u16..9_000];
    let distance = prop_oneof![3 => 1u16..9, 1 => 9u16..300];
    let first = prop_oneof![1 => 0..CYCLE * CYCLES, 2 => (0..CYCLES, 0..GAP).prop_map(in_gap)];
    (first, distance, 1u8..10, bytes).prop_map(|(first, distance, count, value_bytes)| Row {
        first,
        distance,
        count,
        value_bytes,
    })
}

fn ask() -> impl Strategy<Value = Ask> {
    prop_oneof![
        3 => Just(Ask::Merge),
        1 => Just(Ask::MergeAlone),
        2 => Just(Ask::Flush),
        1 => Just(Ask::Full),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    let rounds = proptest::collection::vec((proptest::collection::vec(row(), 1..4), ask()), 2..6);
    let last = prop_oneof![3 => Just(Ask::Merge), 1 => Just(Ask::MergeAlone), 3 => Just(Ask::Full)];
    let bottom = (60u16..160, 100u16..300);
    let reopens = (any::<u32>(), any::<u32>()).prop_map(|(a, b)| a & b);
    (any::<bool>(), 2u64..5, bottom, rounds, last, any::<bool>(), reopens).prop_map(
        |(is_lsm, memtable_kib, bottom, rounds, last, keeps, reopens)| Case {
            is_lsm,
            memtable_kib,
            bottom,
            rounds,
            last,
            keeps,
            reopens,
        },
    )
}

/// Short keys, and some that share much with their neighbours.
fn key(number: u16) -> Vec<u8> {
    match number % 5 {
        0 => format!("{number:05}/{}", "deep/".repeat(usize::from(number % 17))).into_bytes(),
        _ => format!("{number:05}").into_bytes(),
    }
}

fn scan(subject: &Subject, from: Bound<&[u8]>, reverse: bool) -> Entries {
    let (mut all, mut bound) = (Vec::new(), from.map(<[u8]>::to_vec));
    let mut held = HeldBlocks::default();
    while all.len() < ENTRIES {
        let start = bound.as_ref().map(Vec::as_slice);
        let request = ScanRequest {
            at: subject.at(subject.visible()),
            lower: if reverse { Bound::Unbounded } else { start },
            upper: if reverse { start } else { Bound::Unbounded },
            reverse,
            entries_max: ENTRIES - all.len(),
            bytes_max: 1 << 20,
            skip_damaged: false,
        };
        let found = subject.tree.scan_on(&request, &mut held).unwrap();
        all.extend(here(found.entries));
        match found.resume {
            None => break,
            Some(resume) => bound = resume,
        }
    }
    all
}

/// Scans both ways from every key that there is and from between them, against the model; and the
/// whole, against itself the other way.
fn scans_from_keys(subject: &Subject, step: u32) {
    let all = subject.expected_all(subject.visible());
    let mut reversed = all.clone();
    reversed.reverse();
    for (at, (key, _)) in all.iter().enumerate().skip(step as usize % STRIDE).step_by(STRIDE) {
        let between = [key.as_slice(), &[0]].concat();
        for (from, skipped) in [(Bound::Included(key), 0), (Bound::Excluded(key), 1)] {
            let from = from.map(Vec::as_slice);
            let down: Vec<_> = all[..=at].iter().rev().skip(skipped).take(ENTRIES).collect();
            assert_eq!(scan(subject, from, true).iter().collect::<Vec<_>>(), down, "{from:?} down");
            let up: Vec<_> = all[at..].iter().skip(skipped).take(ENTRIES).collect();
            assert_eq!(scan(subject, from, false).iter().collect::<Vec<_>>(), up, "{from:?} up");
        }
        let down: Vec<_> = all[..=at].iter().rev().take(ENTRIES).collect();
        let found = scan(subject, Bound::Excluded(&between), true);
        assert_eq!(found.iter().collect::<Vec<_>>(), down, "{between:?} down");
    }
    let whole = |reverse| {
        let bounds = (Bound::Unbounded, Bound::Unbounded);
        subject.scan_all(subject.visible(), bounds, reverse, 7)
    };
    assert_eq!(whole(false), all);
    assert_eq!(whole(true), reversed);
}

fn prepared(case: &Case) -> Subject {
    let options = options(case.memtable_kib << 10);
    let mut subject =
        if case.is_lsm { Subject::lsm(options, 1024) } else { Subject::with(options, 1024) };
    subject.scribbles = true;
    let (dense, bytes) = case.bottom;
    for number in 0..CYCLE * CYCLES {
        // A long value begins a block, whose fence is the shortest key that separates it from the
        // one before the gap: others are between that and its first entry.
        match (number % CYCLE).checked_sub(GAP) {
            Some(0) => subject.write(&key(number), Some(&[number as u8; 5_000])),
            Some(at) if at < dense => {
                subject.write(&key(number), Some(&vec![number as u8; usize::from(bytes)]));
            }
            _ => {}
        }
    }
    subject.run(Ask::Full);
    for (round, (writes, ask)) in case.rounds.iter().enumerate() {
        if case.keeps && round + 1 == case.rounds.len() {
            let snapshot = subject.snapshots().register();
            subject.snapshots.push(snapshot);
        }
        for row in writes {
            for number in 0..u16::from(row.count) {
                let value = vec![number as u8 ^ round as u8; usize::from(row.value_bytes)];
                let number = row.first.wrapping_add(number * row.distance) % (CYCLE * CYCLES);
                subject.write(&key(number), Some(&value));
            }
        }
        if round + 1 < case.rounds.len() {
            subject.run(*ask);
        }
    }
    subject
}

/// The steps that were taken.
fn steps_of(case: &Case) -> u32 {
    let mut subject = prepared(case);
    subject.begin(case.last);
    let mut steps = 0;
    loop {
        if case.reopens >> (steps % 32) & 1 == 1 {
            subject.reopen();
            // Without a record nothing has begun.
            if !subject.tree.is_merging() {
                subject.begin(case.last);
            }
        }
        scans_from_keys(&subject, steps);
        // The state after a crash at this point, with nothing cached.
        scans_from_keys(&Subject::reopened_from(&subject), steps);
        if subject.step(BackgroundJob::Merge) != Step::More || steps > 40 {
            break;
        }
        steps += 1;
    }
    subject.complete();
    scans_from_keys(&subject, steps);
    steps
}

/// Long entries in the gap before a bottom block: the blocks above it that hold one of them each
/// all begin with a duplicate of its fence.
fn many_duplicates(last: Ask, reopens: u32) -> Case {
    let row = Row { first: 1_001, distance: 4, count: 5, value_bytes: 5_000 };
    let rounds = vec![
        (vec![row], Ask::Merge),
        (vec![Row { first: 3, count: 2, ..row }, Row { first: 2_003, count: 2, ..row }], last),
    ];
    let (is_lsm, memtable_kib, bottom) = (false, 3, (150, 290));
    Case { is_lsm, memtable_kib, bottom, rounds, last, keeps: false, reopens }
}

#[test]
fn scans_stop_at_duplicates_that_a_merge_has_passed() {
    for reopens in [0, 0x5555_5555] {
        let steps = steps_of(&many_duplicates(Ask::Full, reopens));
        assert!(steps > 5, "{steps}");
    }
}

#[test]
fn scans_past_the_floor_are_found() {
    assert!(Bug::BESIDE_MERGES.contains(&Bug::FloorIgnored));
    let hunt = || planted::with(Bug::FloorIgnored, || steps_of(&many_duplicates(Ask::Full, 0)));
    let found = std::panic::catch_unwind(hunt).unwrap_err();
    let message = found.downcast_ref::<String>().cloned().unwrap_or_default();
    assert!(message.contains("Corrupt"), "{message}");
}

proptest! {
    #![proptest_config(config(24))]

    #[test]
    fn scans_go_down_from_every_key_during_merges(case in case()) {
        steps_of(&case);
    }
}
