//! LSM indexes by the thesis's policies.

use esker_format::ptr::UNIT_BYTES;

use super::super::lsm::policy::learn::Phase;
use super::super::lsm::policy::{Params, Policy};
use super::super::lsm::{MergeReport, Merging};
use super::{Ask, Options, Subject, options};

/// Keys over which nothing is written in order.
fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn by(policy: Policy, params: Params, preserves: bool, memtable_bytes: u64) -> Subject {
    let merging = Merging { policy, params, preserves };
    Subject::lsm(Options { merging, ..options(memtable_bytes) }, 1 << 24)
}

/// Writes so many entries over so many keys, and merges what is due after each memtable.
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

/// With every policy there are as many levels as the data needs, none holds more than it may, and
/// not much of any is empty.
#[test]
fn levels_keep_their_sizes_and_their_waste() {
    for policy in Policy::ALL.into_iter().filter(|policy| *policy != Policy::Pull) {
        for preserves in [true, false] {
            let params = Params { gamma: 4.0, ..Params::DEFAULT };
            let mut subject = by(policy, params, preserves, 128 * 1024);
            for _ in 0..5 {
                write(&mut subject, 4_000, 16_000);
                assert_sound(&subject, policy, params.omega);
            }
            assert!(report(&subject).capacity_bytes.len() >= 3, "{policy}: {:?}", report(&subject));
            subject.verify_all();
        }
    }
}

fn assert_sound(subject: &Subject, policy: Policy, omega: f64) {
    let (meta, report) = (subject.tree.meta(), report(subject));
    let levels = &meta.lsm.as_deref().unwrap().levels;
    for (number, (level, capacity)) in levels.iter().zip(&report.capacity_bytes).enumerate() {
        let bytes = level.units * UNIT_BYTES;
        let is_last = number + 1 == levels.len();
        assert!(is_last || bytes <= *capacity, "{policy}: {number} of {levels:?} {capacity}");
        let sectors = level.tree.levels.last().map_or(0, |data| data.counts.sectors);
        let waste = (level.units * 8).saturating_sub(sectors) as f64;
        let most = omega * level.units as f64 * 8.0 + 4.0 * 8.0;
        assert!(waste <= most, "{policy}: {waste} of {} units of {number}", level.units);
    }
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

/// Plain merges leave no block as it is; the others leave some.
#[test]
fn plain_merges_open_every_block() {
    let kept = |preserves| {
        let mut subject = by(Policy::ChooseBest, Params::DEFAULT, preserves, 24 * 1024);
        for number in 0..3_000u64 {
            subject.write(&number.to_be_bytes(), Some(&[7; 96]));
            subject.maintain();
        }
        subject.run(Ask::Spill);
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
    subject.options.merging.policy = Policy::Pull;
    subject.reopen();
    write(&mut subject, 1_000, 3_000);
    subject.verify_all();
}
