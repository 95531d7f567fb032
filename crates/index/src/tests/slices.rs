//! The properties of an LSM index beyond those of every index.

use std::ops::Bound;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use proptest::prelude::*;

use esker_device::Purpose;
use esker_format::meta::{IndexMeta, LsmLevel};
use esker_substrate::error::Error;

use super::model::config;
use super::{Ask, BackgroundJob, CheckSink, ID, Index, Step, Subject, env, options};

fn loaded(keys: u32) -> Subject {
    let mut subject = Subject::lsm(options(4 * 1024), 1 << 20);
    for number in 0..keys {
        let key = number.wrapping_mul(0x9e37_79b9).to_be_bytes();
        subject.write(&key, Some(&[number as u8; 100]));
        subject.maintain();
    }
    subject
}

/// Nothing is left to do where nothing is left, regardless of earlier contents.
#[test]
fn an_empty_index_is_fully_compacted() {
    let mut subject = loaded(200);
    subject.remove_range(b"", None);
    subject.run(Ask::Flush);
    subject.run(Ask::Full);
    assert!(subject.tree.is_fully_compacted(true));
    assert!(!subject.tree.begin(Ask::Full.work(), &super::gate).unwrap());
}

/// Wherever slices have ended: a scan from a key down begins with that key's newest version, and
/// one from a key up too.
#[test]
fn scans_begin_at_the_borders_of_slices() {
    let mut subject = Subject::lsm(options(4 * 1024), 1 << 20);
    for value in [&[1; 100][..], &[2; 100]] {
        // No border can be between two of these keys.
        for number in 0..500u32 {
            subject.write(&number.to_be_bytes(), Some(value));
            subject.maintain();
        }
    }
    subject.run(Ask::Flush);
    let all = subject.expected_all(subject.visible());
    subject.begin(Ask::Full);
    let mut slices = 0;
    while subject.step(BackgroundJob::Merge) == Step::More {
        slices += 1;
        for entry in &all {
            let only = Bound::Included(entry.0.as_slice());
            for reverse in [false, true] {
                let found = subject.scan_all(subject.visible(), (only, only), reverse, 3);
                assert_eq!(found, std::slice::from_ref(entry), "after {slices} slices");
            }
        }
    }
    assert!(slices > 3, "{slices} slices");
}

/// Blocks of long entries go down although those of other runs and of the level are between their
/// borders, because no other has keys between their own: almost nothing is written.
#[test]
fn blocks_move_between_the_keys_of_others() {
    let mut subject = Subject::lsm(options(256 * 1024), 1 << 22);
    let key = |number: u32| number.wrapping_mul(0x9e37_79b9).to_be_bytes();
    let value = vec![3; 3_900];
    for number in 0..600 {
        subject.write(&key(number), Some(&value));
        subject.maintain();
    }
    subject.run(Ask::Merge);
    let written = |subject: &Subject, purpose| {
        let counts = subject.device.counts();
        counts.iter().find(|(of, _)| *of == purpose).unwrap().1.bytes_written
    };
    let merged = written(&subject, Purpose::Merge);
    for number in 600..700 {
        subject.write(&key(number), Some(&value));
    }
    subject.run(Ask::Flush);
    subject.tree.begin(Ask::Merge.work(), &super::gate).unwrap();
    subject.complete();
    subject.verify_all();
    subject.check();
    let merged = written(&subject, Purpose::Merge) - merged;
    assert!(merged < 100 * 4_096, "{merged} bytes for a hundred entries");
}

/// Blocks of keys overwritten in order have newer versions of every key of the blocks below: they
/// replace them. While a snapshot sees the older ones, both are written.
#[test]
fn what_is_overwritten_in_order_goes_down_as_it_is() {
    let mut subject = Subject::lsm(options(512 * 1024), 1 << 22);
    let level = |subject: &Subject| {
        let levels = subject.tree.merge_report().unwrap().counters.levels;
        levels.last().copied().unwrap_or_default()
    };
    let overwrite = |subject: &mut Subject, version: u8| {
        let before = level(subject);
        for number in 0..20_000u64 {
            // Of different lengths: blocks begin at other keys each time.
            let value = vec![version; 60 + usize::from(version) * 7];
            subject.write(&number.to_be_bytes(), Some(&value));
            subject.maintain();
        }
        subject.run(Ask::Flush);
        subject.begin(Ask::Merge);
        subject.complete();
        subject.verify_all();
        subject.check();
        let now = level(subject);
        (now.blocks_written - before.blocks_written, now.blocks_kept - before.blocks_kept)
    };
    overwrite(&mut subject, 1);
    let (written, kept) = overwrite(&mut subject, 2);
    assert!(written * 5 < kept, "{written} written, {kept} kept");
    let snapshot = subject.snapshots().register();
    subject.snapshots.push(snapshot);
    let (written, kept) = overwrite(&mut subject, 3);
    assert!(kept * 5 < written, "{written} written, {kept} kept");
    subject.snapshots.clear();
    overwrite(&mut subject, 4);
}

/// A record whose write has failed may be on the device: its blocks must not be touched by a thread
/// that had begun to continue before the failure was known.
#[test]
fn blocks_of_a_record_in_doubt_are_not_written_over() {
    let mut subject = loaded(600);
    subject.run(Ask::Flush);
    subject.tree.begin(Ask::Full.work(), &super::gate).unwrap();
    let (tree, poison) = (&subject.tree, &subject.env.poison);
    let mut recorded: Option<IndexMeta> = None;
    let commits = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let failed = tree.step(BackgroundJob::Merge, &mut |meta, _| {
            recorded = Some(meta.clone());
            let (begun, begins) = mpsc::channel();
            let commits = &commits;
            scope.spawn(move || {
                begun.send(()).unwrap();
                tree.step(BackgroundJob::Merge, &mut |_, _| {
                    commits.fetch_add(1, Ordering::Relaxed);
                    poison.check()
                })
            });
            begins.recv().unwrap();
            // It waits for its turn by then.
            std::thread::sleep(Duration::from_millis(50));
            Err(poison.set(Error::Invalid { what: "nobody knows".into() }))
        });
        assert!(failed.is_err());
    });
    assert_eq!(commits.into_inner(), 1, "the other thread had nothing to go on with");
    let meta = recorded.unwrap();
    let taken = subject.tree.taken_runs();
    let floor = subject.env.blocks.next_generation();
    let env = env(&subject.device, Some((&meta, &taken, floor)), 1 << 20);
    let tree = Index::open(env, ID, meta, subject.options);
    let mut sink = CheckSink::default();
    tree.pause().check(&mut sink);
    // The owner of the space was not kept.
    sink.problems.retain(|problem| !problem.what.starts_with("an entry refers to space"));
    assert_eq!(sink.problems, []);
}

/// The recorded space of a level is the space that `check` counts.
#[test]
fn wrong_units_are_found() {
    let subject = loaded(900);
    subject.check();
    let sound = subject.tree.meta();
    let open = |change: fn(&mut IndexMeta)| {
        let mut meta = (*sound).clone();
        change(&mut meta);
        let floor = subject.env.blocks.next_generation();
        let env = env(&subject.device, Some((&sound, &subject.tree.taken_runs(), floor)), 1 << 20);
        let tree = Index::open(env, ID, meta, subject.options);
        let tree = tree.with_values(subject.tree.taken_runs());
        let mut sink = CheckSink::default();
        tree.pause().check(&mut sink);
        sink.problems.into_iter().map(|problem| problem.what).collect::<Vec<_>>()
    };
    fn last(meta: &mut IndexMeta) -> &mut LsmLevel {
        meta.lsm_mut().unwrap().levels.last_mut().unwrap()
    }
    assert_eq!(open(|_| ()), [""; 0]);
    for found in [open(|meta| last(meta).units += 1), open(|meta| last(meta).node_units -= 1)] {
        assert!(found.len() == 1 && found[0].starts_with("a level has"), "{found:?}");
    }
}

proptest! {
    #![proptest_config(config(40))]

    /// Few keys with more versions than a block holds, kept by snapshots: slices end between user
    /// keys, so that a lookup finds the version that it asks for, wherever slices end.
    #[test]
    fn versions_stay_together(
        writes in proptest::collection::vec((0u8..12, 0usize..700, 0u8..8), 20..160),
    ) {
        let mut subject = Subject::lsm(options(2 * 1024), 1 << 20);
        for (key, len, then) in writes {
            subject.write(&[b'k', key], Some(&vec![key; len]));
            match then {
                0 | 1 if subject.snapshots.len() < 12 => {
                    let snapshot = subject.snapshots().register();
                    subject.snapshots.push(snapshot);
                }
                2 if !subject.snapshots.is_empty() => drop(subject.snapshots.remove(0)),
                _ => {}
            }
            subject.go_on(1);
            subject.verify_get(&[b'k', key]);
        }
        subject.complete();
        subject.verify_all();
        subject.run(Ask::Full);
        subject.verify_all();
    }
}
