//! LSM indexes by the thesis's policies.

use proptest::prelude::*;

use esker_format::meta::{IndexMeta, LsmLevel};
use esker_format::ptr::{SECTOR_BYTES, UNIT_BYTES};
use esker_substrate::error::Error;

use super::model::config;
use super::{Ask, Options, Subject, Work, gate, options};
use crate::RecordEdits;
use crate::lsm::policy::learn::Phase;
use crate::lsm::policy::{Params, Policy};
use crate::lsm::{Compaction, MergeReport};

/// Keys over which nothing is written in order.
fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn by(policy: Policy, params: Params, preserves: bool, memtable_bytes: u64) -> Subject {
    let merging = Compaction { policy, params, preserves, ..Compaction::DEFAULT };
    Subject::lsm(Options { compaction: merging, ..options(memtable_bytes) }, 1 << 24)
}

/// Writes `entries` entries over `keys` keys, and does the merges that are due after each memtable.
fn write(subject: &mut Subject, entries: u64, keys: u64) {
    for _ in 0..entries {
        let number = subject.next_seq;
        subject.write(&key(number.wrapping_mul(0x2545_f491_4f6c_dd1d) % keys), Some(&[7; 96]));
        if subject.tree.is_full() {
            subject.maintain();
        }
    }
}

fn report(subject: &Subject) -> MergeReport {
    subject.tree.merge_report().unwrap()
}

/// Blocks that merges have written, of all levels.
fn blocks_written(subject: &Subject) -> u64 {
    report(subject).counters.levels.iter().map(|level| level.blocks_written).sum()
}

/// With every policy the index has the number of levels that the data needs, none holds more than
/// it may, and no more than ω of any is empty, however small merges are.
#[test]
fn levels_keep_their_sizes_and_their_waste() {
    for policy in Policy::ALL {
        for (preserves, memtable_bytes) in [(true, 128), (false, 128), (true, 24), (false, 24)]
            .map(|(preserves, kib)| (preserves, kib * 1024))
        {
            let params = Params { gamma: 4.0, ..Params::DEFAULT };
            let mut subject = by(policy, params, preserves, memtable_bytes);
            for _ in 0..5 {
                write(&mut subject, 4_000, 16_000);
                subject.maintain();
                assert_sizes(&subject, policy);
                assert_waste(&subject, params.omega);
            }
            let levels = report(&subject).capacity_bytes.len();
            assert!(levels >= 3 || policy == Policy::Pull, "{policy}: {:?}", report(&subject));
            subject.verify_all();
        }
    }
}

fn assert_sizes(subject: &Subject, policy: Policy) {
    let (meta, report) = (subject.tree.meta(), report(subject));
    let levels = &meta.lsm().unwrap().levels;
    let inner = levels.iter().zip(&report.capacity_bytes).take(levels.len().saturating_sub(1));
    for (number, (level, capacity)) in inner.enumerate() {
        let bytes = level.units * UNIT_BYTES;
        assert!(bytes <= *capacity, "{policy}: {number} of {levels:?} {capacity}");
    }
}

/// No more than this share of any level is empty, and one block's.
fn assert_waste(subject: &Subject, most: f64) {
    for (number, (wasted, all)) in wasted_sectors(subject).into_iter().enumerate() {
        let most = most * all + SECTORS;
        assert!(wasted <= most, "{number}: {wasted} of {all} sectors of {:?}", report(subject));
    }
}

/// Sectors of a unit.
const SECTORS: f64 = (UNIT_BYTES / SECTOR_BYTES) as f64;

/// Sectors of each level that are empty, and all of them.
fn wasted_sectors(subject: &Subject) -> Vec<(f64, f64)> {
    let meta = subject.tree.meta();
    let of = |level: &LsmLevel| {
        let used = level.tree.levels.last().map_or(0, |data| data.counts.sectors) as f64;
        let all = level.units as f64 * SECTORS;
        (all - used, all)
    };
    meta.lsm().unwrap().levels.iter().map(of).collect()
}

proptest! {
    #![proptest_config(config(12))]

    /// For all writes, with every policy and in merges of every size, no more than ω of a level is
    /// empty when nothing is due, and one block's.
    #[test]
    fn no_more_than_omega_is_empty(
        policy in proptest::sample::select(Policy::ALL.as_slice()),
        omega in 0.15..0.5,
        gamma in 2.0..8.0,
        memtable_kib in 8u64..96,
        batches in proptest::collection::vec((1usize..480, 1u64..9_000, 0u64..800), 3..20),
    ) {
        let params = Params { gamma, omega, ..Params::DEFAULT };
        let mut subject = by(policy, params, true, memtable_kib * 1024);
        for (value_bytes, keys, entries) in batches {
            for _ in 0..entries {
                let key = key(subject.next_seq % keys);
                let is_put = !subject.next_seq.is_multiple_of(11);
                subject.write(&key, is_put.then_some(&vec![7; value_bytes][..]));
                if subject.tree.is_full() {
                    subject.maintain();
                }
            }
            subject.maintain();
            assert_waste(&subject, omega);
        }
        subject.verify_all();
    }
}

/// Blocks that packing has written, of all levels.
fn blocks_packed(subject: &Subject) -> u64 {
    report(subject).counters.levels.iter().map(|level| level.blocks_packed).sum()
}

fn blocks_kept(subject: &Subject) -> u64 {
    report(subject).counters.levels.iter().map(|level| level.blocks_kept).sum()
}

/// With an ω of 0 any empty part is too much: merges still end, and pack seldom. Levels above the
/// last are packed too, with their tombstones and the versions that snapshots see.
#[test]
fn what_cannot_be_packed_better_is_seldom_tried() {
    let params = Params { gamma: 4.0, omega: 0.0, ..Params::DEFAULT };
    let mut subject = by(Policy::RoundRobin, params, false, 256 * 1024);
    write(&mut subject, 30_000, 30_000);
    let snapshot = subject.snapshots().register();
    subject.snapshots.push(snapshot);
    for number in 0..3_000 {
        subject.write(&key(number * 7), None);
    }
    write(&mut subject, 30_000, 30_000);
    subject.maintain();
    let levels = report(&subject).counters.levels;
    let inner = levels.iter().take(levels.len() - 1).map(|level| level.blocks_packed);
    assert!(inner.sum::<u64>() > 0, "{levels:?}");
    let (packed, written) = (blocks_packed(&subject), blocks_written(&subject));
    assert!(packed > 0 && packed * 5 < written, "{packed} of {written} blocks");
    subject.verify_all();
}

/// Values of 4,096 bytes leave a quarter of their units empty however they are packed, those of
/// 9,000 too: regardless of what is written to such a level, and of how often it is opened, it is
/// not written again for that. Nor do merges open its blocks for it: they stay.
#[test]
fn long_values_are_not_packed_without_gain() {
    for (policy, value_bytes) in
        [(Policy::Pull, 4_096), (Policy::Pull, 9_000), (Policy::Mixed, 4_096)]
    {
        let params = Params { gamma: 4.0, ..Params::DEFAULT };
        let mut subject = by(policy, params, true, 256 * 1024);
        let entries = 12_000_000 / value_bytes as u64;
        for number in 0..3 * entries {
            let key = key(number.wrapping_mul(0x2545_f491_4f6c_dd1d) % entries);
            subject.write(&key, Some(&vec![7; value_bytes]));
            if subject.tree.is_full() {
                subject.maintain();
            }
        }
        subject.maintain();
        let (packed, written) = (blocks_packed(&subject), blocks_written(&subject));
        let kept = blocks_kept(&subject);
        let counts = format!("{packed} packed, {written} written, {kept} kept");
        assert!(packed * 5 < written, "{policy}, {value_bytes}: {counts}");
        assert!(kept * 5 > written, "{policy}, {value_bytes}: {counts}");
        let wasted = wasted_sectors(&subject);
        let (wasted, all) = wasted[wasted.len() - 1];
        assert!(wasted > 0.2 * all, "{wasted} of {all} sectors: nothing is tried");
        subject.reopen();
        subject.maintain();
        let again = blocks_packed(&subject);
        assert!(again < 300, "{again} blocks: eight windows of a level are enough");
        subject.verify_all();
    }
}

/// Packing that never finds space stops no merges.
#[test]
fn what_cannot_be_packed_stops_no_merges() {
    let params = Params { omega: 0.0, ..Params::DEFAULT };
    let mut subject = by(Policy::Pull, params, true, 24 * 1024);
    let mut refused = 0;
    while subject.next_seq < 8_000 {
        subject.write(&key(subject.next_seq % 3_000), Some(&[7; 96]));
        let tree = &subject.tree;
        while let Some(work) = Some(()).filter(|()| tree.is_full()).and_then(|()| tree.due()) {
            assert!(tree.begin(work, &gate).unwrap());
            let mut commit = |meta: &IndexMeta, _: &RecordEdits| {
                // All that overflows here takes something out of runs.
                let gone = |meta: &IndexMeta| meta.lsm().unwrap().gone.clone();
                if work == Work::Flush || gone(meta) != gone(&tree.meta()) {
                    return Ok(());
                }
                refused += 1;
                Err(Error::Full { what: "a test".into() })
            };
            tree.complete(&mut commit).unwrap();
        }
    }
    assert!(refused > 0);
    assert_eq!(blocks_packed(&subject), 0);
    let report = report(&subject);
    assert!(subject.tree.meta().sorted_runs.len() < 16 && report.counters.records_entered > 4_000);
    subject.verify_all();
}

/// With uniform keys, choosing writes less than full merges; where the last level holds little,
/// choosing out of memory alone writes least (the thesis, 5.3.4).
#[test]
fn choosing_the_best_writes_fewer_blocks_than_taking_all() {
    let written = |policy, keys| {
        let mut subject = by(policy, Params { gamma: 6.0, ..Params::DEFAULT }, true, 256 * 1024);
        write(&mut subject, 2 * keys, keys);
        let before = blocks_written(&subject);
        write(&mut subject, 3 * keys, keys);
        blocks_written(&subject) - before
    };
    let policies = [Policy::Test, Policy::ChooseBest, Policy::Full];
    let [test, best, full] = policies.map(|policy| written(policy, 12_000));
    assert!(test < best && best < full, "{test} {best} {full}");
}

/// Where the last level is nearly full, a slightly smaller γ adds one that is nearly empty, and
/// full merges write less (the thesis, 5.5.5).
#[test]
fn a_loosened_last_level_makes_full_merges_cheaper() {
    let keys = 12_000;
    let index = |params| by(Policy::Full, params, true, 48 * 1024);
    let written = |params| {
        let mut subject = index(params);
        write(&mut subject, 2 * keys, keys);
        let before = blocks_written(&subject);
        write(&mut subject, 4 * keys, keys);
        (blocks_written(&subject) - before, report(&subject).capacity_bytes.len())
    };
    let kappa0_bytes = report(&index(Params::DEFAULT)).runs_capacity_bytes;
    let entry_bytes = 8 + 96 + 30;
    let loosened = Params::DEFAULT.loosened(keys * entry_bytes, kappa0_bytes);
    let (plain, loosened) = (written(Params::DEFAULT), written(loosened));
    assert_eq!((plain.1, loosened.1), (2, 3), "levels");
    assert!(loosened.0 * 10 < plain.0 * 9, "{loosened:?} {plain:?} blocks");
}

/// Plain merges leave no block as it is; the others leave some.
#[test]
fn plain_merges_open_every_block() {
    let kept = |preserves| {
        let mut subject = by(Policy::ChooseBest, Params::DEFAULT, preserves, 24 * 1024);
        for number in 0..3_000u64 {
            subject.write(&number.to_be_bytes(), Some(&[7; 96]));
            subject.maintain();
        }
        subject.run(Ask::Flush);
        subject.maintain();
        report(&subject).counters.levels.iter().map(|level| level.blocks_kept).sum::<u64>()
    };
    assert_eq!(kept(false), 0);
    assert!(kept(true) > 0);
}

/// Mixed learns in a steady state; a last level that holds little is merged into fully. What it
/// has learnt is in force again when the index is opened.
#[test]
fn what_was_learnt_is_kept() {
    let params = Params { gamma: 6.0, ..Params::DEFAULT };
    let mut subject = by(Policy::Mixed, params, true, 64 * 1024);
    let learning = |subject: &Subject| report(subject).learning;
    let mut memtables = 0;
    while learning(&subject).is_none_or(|known| known.phase != Phase::Learnt) {
        write(&mut subject, 300, 3_000);
        memtables += 1;
        assert!(memtables < 400, "{:?}", learning(&subject));
    }
    let learnt = learning(&subject).unwrap();
    assert!(learnt.thresholds().is_last_full, "{learnt:?}");
    subject.reopen();
    assert_eq!(learning(&subject), Some(learnt));
    subject.options.compaction.policy = Policy::Pull;
    subject.reopen();
    write(&mut subject, 1_000, 3_000);
    subject.verify_all();
}
