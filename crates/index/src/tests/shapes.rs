//! Trees of particular shapes.

use std::cell::Cell;
use std::cmp::Reverse;

use esker_device::Purpose;
use esker_format::data::Data;
use esker_format::ids::Seq;

use super::{Ask, Options, Scheme, Sizes, Subject, options};
use crate::run::tree::Tree;

fn numbered(number: u32) -> [u8; 16] {
    let mixed = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut key = [0; 16];
    key[..8].copy_from_slice(&mixed.to_be_bytes());
    key[8..12].copy_from_slice(&number.to_be_bytes());
    key
}

/// Many memtables of random keys: flushes, partial merges of every depth, full merges, fence-only
/// levels. Without memory for express fences every lookup takes the cascade.
fn grow(budget_bytes: u64) -> Subject {
    let mut subject = Subject::new(16 * 1024, budget_bytes);
    for number in 0..12_000u32 {
        subject.write(&numbered(number), Some(&[number as u8; 100]));
        subject.maintain();
    }
    subject
}

#[test]
fn a_growing_tree_uses_sorted_runs_upper_levels_and_fence_only_levels() {
    let mut subject = Subject::new(16 * 1024, 1024);
    let (mut several_runs, mut upper_levels, mut fence_only) = (false, false, false);
    for number in 0..12_000u32 {
        subject.write(&numbered(number), Some(&[number as u8; 100]));
        subject.maintain();
        let meta = subject.tree.meta();
        several_runs |= meta.sorted_runs.len() > 1;
        upper_levels |= meta.shape.k > 0 && meta.main.levels.len() > 1;
        fence_only |= meta.main.levels.iter().any(|level| level.counts.data_bytes() == 0);
    }
    assert!(several_runs && upper_levels && fence_only);
    for number in (0..12_000).step_by(7) {
        subject.verify_get(&numbered(number));
        subject.verify_get(&numbered(number + 1_000_000));
    }
    subject.verify_all();
}

#[test]
fn express_fences_are_loaded_after_enough_detours() {
    let mut subject = grow(1 << 24);
    subject.reopen();
    let before = subject.tree.stats().fence_memory_bytes;
    for number in 0..12_000 {
        subject.verify_get(&numbered(number));
    }
    assert!(subject.tree.stats().fence_memory_bytes > 3 * before);
    subject.verify_all();
}

/// Fences of the bottom level lie in blocks of data of the level above, so that loading them reads
/// those. Where the budget has memory for less than a quarter of them, an attempt reads no more
/// blocks than it needs to see this; where it has memory for a part, that part is held.
#[test]
fn fences_that_the_budget_cannot_hold_are_not_read_to_their_end() {
    let mut subject = Subject::new(256 * 1024, 1 << 26);
    let blocks = |subject: &Subject, from_bottom: usize| {
        let levels = &subject.tree.meta().main.levels;
        let level = levels.len().checked_sub(from_bottom).and_then(|at| levels.get(at));
        level.map_or(0, |level| level.counts.blocks)
    };
    let mut number = 0;
    while blocks(&subject, 1) < 4_500 || blocks(&subject, 2) < 1_500 {
        subject.write(&numbered(number), Some(&[number as u8; 3_000]));
        subject.maintain();
        number += 1;
    }
    let read_by = |subject: &mut Subject, lookups: u32| {
        let before = subject.device.counts()[Purpose::User].bytes_read;
        for number in 0..lookups {
            subject.verify_get(&numbered(number));
        }
        (subject.device.counts()[Purpose::User].bytes_read - before) / 4096
    };
    subject.reopen_with(1 << 26);
    read_by(&mut subject, 3_000);
    let fence_bytes = subject.tree.stats().fence_memory_bytes;
    let above = blocks(&subject, 2);
    let lookups = above as u32 / 4;
    let mut read_with = |budget_bytes: u64| {
        subject.reopen_with(budget_bytes);
        let read = read_by(&mut subject, lookups);
        (read, subject.tree.stats().fence_memory_bytes)
    };
    // Little more than the top fences fits: the first chunk tells, and no more is read.
    let (read, held) = read_with(fence_bytes * 8 / 3 / 3);
    assert!(held < fence_bytes / 3, "{held} of {fence_bytes}");
    assert!(read < u64::from(lookups) * 3 + above / 2, "{read} for {lookups}, {above} above");
    // Most of them fits, and is read once.
    let (read, held) = read_with(fence_bytes * 8 / 3 * 3 / 4);
    assert!(held > fence_bytes / 2 && held <= fence_bytes * 3 / 4, "{held} of {fence_bytes}");
    assert!(read < u64::from(lookups) * 3 + above, "{read} for {lookups}, {above} above");
}

/// With memory for about half of the fences: lookups, absent keys and scans, beside merges, after
/// them, and after an opening.
#[test]
fn levels_of_which_a_part_of_the_fences_is_in_memory() {
    let budget_bytes = 60_000 * 8 / 3;
    let mut subject = Subject::new(256 * 1024, budget_bytes);
    let lacks_some = |subject: &Subject| {
        let view = subject.tree.views.load();
        let trees = view.parts.iter().flat_map(|part| part.trees());
        let known = |tree: &Tree| {
            let levels = (1..tree.height()).filter_map(|level| tree.known_fences(level));
            let lacking = levels.filter(|fences| fences.iter().next().is_some());
            lacking.filter(|fences| !fences.is_complete()).count()
        };
        trees.map(|(tree, _)| known(tree)).sum::<usize>() > 0
    };
    let (mut beside, mut after) = (0, 0);
    for number in 0..7_000u32 {
        subject.write(&numbered(number % 5_000), Some(&[number as u8; 3_000]));
        // Steps of merges take long here: each is checked.
        if (6_000..6_200).contains(&number) {
            subject.go_on(1)
        } else {
            subject.maintain()
        }
        if number % 20 == 19 && number > 3_000 {
            let is_merging = subject.tree.stats().merge.is_some();
            let lacks = usize::from(lacks_some(&subject));
            *(if is_merging { &mut beside } else { &mut after }) += lacks;
            for step in 0..10 {
                subject.verify_get(&numbered(number * 31 / 7 * step % 5_000));
                subject.verify_get(&numbered(5_000 + number * step));
            }
        }
    }
    assert!(beside > 3 && after > 3, "{beside} times beside a merge, {after} times without one");
    subject.reopen_with(budget_bytes);
    for number in 0..5_000 {
        subject.verify_get(&numbered(number));
    }
    assert!(lacks_some(&subject));
    subject.verify_all();
}

#[test]
fn deleting_everything_shrinks_the_tree_to_nothing() {
    let mut subject = grow(1 << 24);
    for number in 0..12_000 {
        subject.write(&numbered(number), None);
        subject.maintain();
    }
    subject.run(Ask::Full);
    assert!(subject.tree.meta().main.levels.is_empty());
    assert_eq!(subject.tree.meta().extents().count(), 0);
    subject.verify_all();
}

#[test]
fn a_key_overwritten_ten_thousand_times_under_a_snapshot() {
    let mut subject = Subject::new(8 * 1024, 1 << 20);
    subject.write(b"before", Some(b"1"));
    subject.write(b"key", Some(b"first"));
    let early = subject.snapshots().register();
    subject.snapshots.push(early);
    for number in 0..10_000u32 {
        subject.write(b"key", Some(&number.to_le_bytes()));
        if number % 100 == 0 && subject.snapshots.len() < 60 {
            let snapshot = subject.snapshots().register();
            subject.snapshots.push(snapshot);
        }
        subject.maintain();
    }
    subject.verify_all();
    subject.run(Ask::Full);
    subject.verify_all();
    subject.snapshots.clear();
    subject.run(Ask::Full);
    subject.verify_all();
    let versions: u64 = subject.tree.stats().levels.iter().map(|level| level.puts).sum();
    assert_eq!(versions, 2);
}

/// One key whose versions fill several blocks, above and below other levels.
#[test]
fn versions_of_one_key_span_blocks_and_levels() {
    let mut subject = Subject::new(64 * 1024, 1024);
    for round in 0..6u8 {
        for number in 0..40u8 {
            subject.write(b"k", Some(&[round ^ number; 900]));
            let snapshot = subject.snapshots().register();
            subject.snapshots.push(snapshot);
            subject.write(&[b'a' + number % 26, round], Some(&[number; 300]));
        }
        subject.run(if round % 2 == 0 { Ask::Merge } else { Ask::Flush });
        subject.verify_all();
    }
    subject.run(Ask::Full);
    subject.verify_all();
}

/// The fences of a key's many blocks carry numbers, and blocks of fences begin inside the key.
#[test]
fn versions_of_one_key_span_blocks_of_fences() {
    let mut subject = Subject::new(64 * 1024, 1024);
    for number in 0..4_000u16 {
        subject.write(b"key", Some(&number.to_le_bytes().repeat(600)));
        subject.maintain();
        let snapshot = subject.snapshots().register();
        subject.snapshots.push(snapshot);
    }
    subject.write(b"kex", Some(b"before"));
    subject.write(b"kez", Some(b"behind"));
    subject.run(Ask::Full);
    assert!(subject.tree.stats().levels.len() > 1);
    for key in [&b"kex"[..], b"key", b"kez", b"keyz"] {
        subject.verify_get(key);
    }
}

#[test]
fn the_largest_keys_and_values() {
    let mut subject = Subject::new(64 * 1024, 1 << 20);
    for number in 0..12u8 {
        let key = vec![number; esker_format::KEY_BYTES_MAX];
        subject.write(&key, Some(&vec![number; esker_format::VALUE_BYTES_MAX]));
        subject.write(&key[..60_000], Some(b"short"));
        subject.write(&[number, 1], None);
        subject.maintain();
    }
    subject.verify_all();
    subject.run(Ask::Full);
    subject.verify_all();
}

/// A scan's snapshot sees what it saw through overwrites and merges of every kind, from every
/// key on.
#[test]
fn a_snapshot_is_scanned_while_everything_is_overwritten() {
    let mut subject = Subject::new(4096, 1 << 20);
    let key = |number: u32| format!("{number:04}").into_bytes();
    for number in 0..1000 {
        subject.write(&key(number), Some(&[7; 50]));
        subject.maintain();
    }
    let snapshot = subject.snapshots().register();
    let seq = snapshot.seq().0;
    subject.snapshots.push(snapshot);
    let expected = subject.expected_all(seq);
    for number in 0..1000 {
        subject.write(&key(number), Some(&[8; 50]));
        subject.maintain();
        subject.write(&[&key(number)[..], b"+"].concat(), Some(&[9; 50]));
        subject.maintain();
        if number % 100 == 0 {
            subject.run(Ask::Full);
        }
        let from = key(number);
        let bounds = (std::ops::Bound::Excluded(from.as_slice()), std::ops::Bound::Unbounded);
        let rest = &expected[number as usize + 1..];
        assert_eq!(subject.scan_all(seq, bounds, false, 1024), rest, "behind {number}");
    }
    subject.verify_all();
}

/// The levels and the bytes of blocks that merges wrote for `memtables` memtables, under sizes of
/// the papers with γ = 3.
fn grown_under(scheme: Scheme, memtables: u32) -> (Vec<(u8, u64)>, u64) {
    let sizes = Sizes::Fixed { growth: 3 };
    let mut subject = Subject::with(Options { scheme, sizes, ..options(16 * 1024) }, 1 << 24);
    let (mut merges, mut number) = (0, 0);
    while merges < memtables {
        subject.write(&numbered(number), Some(&[number as u8; 100]));
        number += 1;
        merges += u32::from(subject.tree.due().is_some());
        subject.maintain();
    }
    subject.verify_all();
    let levels = subject.tree.stats().levels;
    let levels = levels.iter().map(|level| (level.rank, level.puts)).collect();
    (levels, subject.device.counts()[Purpose::Merge].bytes_written)
}

/// By hand: 9 memtables of n entries. Both write n and 2n to level 1 for the first two of three.
/// For the third FD+tree writes 3n, then 6n, then 9n; an FD-tree the same and 3n each time before
/// it, and 9n to level 2 before those to level 3. That is 27n and 45n, and fences.
#[test]
fn one_pass_over_all_levels_writes_less_than_two_levels_at_a_time() {
    let (levels, two_at_a_time) = grown_under(Scheme::FdTree, 9);
    let (tight, at_once) = grown_under(Scheme::Xm, 9);
    let puts = tight.last().unwrap().1;
    assert_eq!(levels, [(1, 0), (2, 0), (3, puts)]);
    assert_eq!(tight, [(3, puts)]);
    let ratio = two_at_a_time as f64 / at_once as f64;
    assert!((1.5..1.9).contains(&ratio), "{two_at_a_time} to {at_once}: {ratio:.2}");
}

/// No merge is due for tombstones, and no level is numbered down: what an FD-tree held shows.
#[test]
fn an_fd_tree_stays_as_deep_as_it_was() {
    let sizes = Sizes::Fixed { growth: 3 };
    let options = Options { scheme: Scheme::FdTree, sizes, ..options(16 * 1024) };
    let mut subject = Subject::with(options, 1024);
    for number in 0..3_000 {
        subject.write(&numbered(number), Some(&[7; 100]));
        subject.maintain();
    }
    let depth = |subject: &Subject| subject.tree.stats().levels.last().map(|level| level.rank);
    let before = depth(&subject);
    assert!(before >= Some(3), "{before:?}");
    for number in 0..2_990 {
        subject.write(&numbered(number), None);
        subject.maintain();
    }
    subject.run(Ask::Full);
    assert_eq!(depth(&subject), before);
    subject.verify_all();
    let puts: u64 = subject.tree.stats().levels.iter().map(|level| level.puts).sum();
    assert_eq!(puts, 10);
}

/// A writer that comes between the planning of a merge and the freezing of the memtable, each time
/// with half of the existing amount.
#[test]
fn what_writers_add_while_a_merge_is_planned_fits_too() {
    for scheme in Scheme::TIGHT {
        let sizes = Sizes::Fixed { growth: 4 };
        let mut subject = Subject::with(Options { scheme, sizes, ..options(16 * 1024) }, 1 << 20);
        (0..4_000).for_each(|number| subject.write(&numbered(number), Some(&[0; 100])));
        subject.run(Ask::Full);
        subject.write(&numbered(4_000), Some(&[0; 100]));
        let next = Cell::new(4_001);
        let gate = |body: &mut dyn FnMut()| {
            for number in next.get()..(next.get() / 2 * 3).min(9_000) {
                subject.tree.insert(
                    &numbered(number),
                    Seq(u64::from(number) + 1),
                    Data::Put(&[0; 100]),
                );
                next.set(number + 1);
            }
            body();
        };
        assert!(subject.tree.begin(Ask::Merge.work(), &gate).unwrap());
        for number in 4_001..next.get() {
            let (key, seq) = (numbered(number).to_vec(), Reverse(u64::from(number) + 1));
            subject.history.insert((key, seq), Some(vec![0; 100]));
        }
        subject.next_seq = u64::from(next.get()) + 1;
        subject.snapshots().publish(Seq(u64::from(next.get())));
        subject.complete();
        subject.verify_all();
    }
}
