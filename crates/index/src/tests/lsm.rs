//! LSM indexes of several levels.

use super::{Ask, Subject, options};

fn key(number: u64) -> Vec<u8> {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec()
}

fn value(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(12)
}

/// Levels with blocks.
fn levels(subject: &Subject) -> usize {
    subject.tree.stats().levels.iter().filter(|level| level.blocks > 0).count()
}

/// Data of a few hundred memtables.
fn large() -> Subject {
    let mut subject = Subject::lsm(options(2 * 1024), 1 << 20);
    let mut most = 0;
    for number in 0..4_000 {
        subject.write(&key(number), Some(&value(number)));
        if subject.tree.is_full() {
            subject.maintain();
            most = most.max(levels(&subject));
        }
    }
    assert!(most >= 2, "{:#?}", subject.tree.stats());
    subject
}

#[test]
fn several_levels_answer_like_one() {
    let mut subject = large();
    subject.verify_all();
    subject.reopen();
    let snapshot = subject.snapshots().register();
    subject.snapshots.push(snapshot);
    for number in (0..6_000).step_by(3) {
        let new = value(number + 1);
        subject.write(&key(number), Some(&new).filter(|_| number % 2 == 0).map(Vec::as_slice));
        if subject.tree.is_full() {
            subject.maintain();
        }
    }
    subject.verify_all();
    subject.snapshots.clear();
    subject.run(Ask::Flush);
    subject.run(Ask::Full);
    assert_eq!(levels(&subject), 1);
    subject.verify_all();
}

/// Deleted data frees its space without a request, although tombstones are small.
#[test]
fn deleting_everything_leaves_little() {
    let mut subject = large();
    let blocks = |subject: &Subject| -> u64 {
        subject.tree.stats().levels.iter().map(|level| level.blocks).sum()
    };
    let before = blocks(&subject);
    for number in 0..4_000 {
        subject.write(&key(number), None);
        if subject.tree.is_full() {
            subject.maintain();
        }
    }
    subject.run(Ask::Flush);
    subject.maintain();
    assert!(blocks(&subject) * 2 < before, "{} of {before} blocks are left", blocks(&subject));
    subject.verify_all();
}

/// Keys that ascend are written once, as a run: its blocks become the last level's.
#[test]
fn blocks_move_where_nothing_else_is() {
    let mut subject = Subject::lsm(options(128 * 1024), 1 << 22);
    for number in 0..12_000u64 {
        subject.write(&number.to_be_bytes(), Some(&value(number)));
        if subject.tree.is_full() {
            subject.maintain();
        }
    }
    subject.run(Ask::Flush);
    subject.maintain();
    let counts = subject.device.counts();
    let written = |purpose| counts.iter().find(|(of, _)| *of == purpose).unwrap().1.bytes_written;
    let (runs, merges) =
        (written(esker_device::Purpose::Flush), written(esker_device::Purpose::Merge));
    assert!(merges * 2 < runs, "{merges} bytes merged, {runs} in runs");
    subject.verify_all();
}
