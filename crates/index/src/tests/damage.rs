//! Keys that damage puts out of reach, and keys that it does not.

use esker_device::{Caching, Device, Open, Purpose};
use esker_format::data::Value;
use esker_format::ids::Seq;
use esker_substrate::error::Error;

use super::{Ask, CheckSink, Subject, gate};

fn key(number: u32) -> Vec<u8> {
    format!("{number:06}").into_bytes()
}

fn subject() -> Subject {
    let mut subject = Subject::new(16 * 1024, 1 << 20);
    for number in 0..3000 {
        subject.write(&key(number), Some(&[7; 100]));
        subject.maintain();
    }
    subject.run(Ask::Full);
    subject
}

fn flip(device: &dyn Device, offset: u64) {
    let file = device.open("data", Open::Existing, Caching::Buffered).unwrap();
    let mut byte = [0];
    file.read_at(offset, &mut byte, Purpose::User).unwrap();
    file.write_at(offset, &[byte[0] ^ 0x40], Purpose::User).unwrap();
}

#[test]
fn damaged_top_fences_close_their_tree_and_nothing_else() {
    let mut subject = subject();
    subject.write(b"new", Some(b"in a sorted run"));
    subject.run(Ask::Flush);
    flip(subject.device.as_ref(), subject.tree.meta().main.top[0].offset() + 100);
    subject.reopen_unchecked();
    let visible = Seq(subject.visible());
    let found = subject.tree.get(b"new", || visible).unwrap();
    assert_eq!(found.and_then(Value::here).unwrap(), b"in a sorted run");
    assert!(matches!(subject.tree.get(&key(5), || visible), Err(Error::Corrupt { .. })));
    assert!(subject.tree.run(Ask::Full.work(), &gate, &mut |_, _| Ok(())).is_err());
    let mut sink = CheckSink::default();
    subject.tree.pause().check(&mut sink);
    assert!(!sink.problems.is_empty());
}

/// Every block of every level damaged in turn: each key is either readable or within the range
/// that a scan names, in both directions.
#[test]
fn scans_go_around_any_one_damaged_block() {
    let subject = subject();
    let levels = subject.tree.meta().main.levels.clone();
    let seq = subject.visible();
    let all = subject.expected_all(seq);
    for extent in levels.iter().flat_map(|level| &level.extents) {
        for unit in 0..extent.units {
            let offset = extent.offset() + unit * 4096 + 200;
            flip(subject.device.as_ref(), offset);
            let mut damaged = Subject::reopened_from(&subject);
            for reverse in [false, true] {
                let (found, ranges) = damaged.scan_around_damage(seq, reverse);
                assert_eq!(ranges.len(), 1, "{ranges:?}");
                let within = |key: &[u8]| {
                    let range = &ranges[0];
                    range.0.as_slice() <= key && range.1.as_ref().is_none_or(|to| key < to)
                };
                let mut outside = all.clone();
                outside.retain(|(key, _)| !within(key));
                assert_eq!(found, outside, "reverse {reverse}, offset {offset}, {ranges:?}");
            }
            damaged.snapshots.clear();
            flip(subject.device.as_ref(), offset);
        }
    }
}

/// An upper level with data and fences: a damaged block there is met twice, as a run of its own
/// and on the way to the level below, and both go around it.
#[test]
fn scans_go_around_damage_that_two_runs_meet() {
    let mixed = |number: u32| number.wrapping_mul(0x9e37_79b9).to_be_bytes();
    let mut subject = Subject::new(16 * 1024, 1024);
    for number in 0..12_000 {
        subject.write(&mixed(number), Some(&[number as u8; 100]));
        subject.maintain();
    }
    for number in (0..).step_by(7) {
        let counts = subject.tree.meta().main.levels[0].counts;
        if counts.data_entries() > 0 && counts.fences > 0 && counts.blocks > 6 {
            break;
        }
        subject.write(&mixed(number % 12_000), Some(&[7; 100]));
        subject.maintain();
    }
    subject.reopen_unchecked();
    let seq = subject.visible();
    let all = subject.expected_all(seq);
    let extents = subject.tree.meta().main.levels[0].extents.clone();
    for offset in extents.iter().flat_map(|e| (0..e.units).map(|unit| e.offset() + unit * 4096)) {
        flip(subject.device.as_ref(), offset + 200);
        let damaged = Subject::reopened_from(&subject);
        for reverse in [false, true] {
            let (mut found, ranges) = damaged.scan_around_damage(seq, reverse);
            let within = |key: &[u8]| {
                ranges.iter().any(|(from, to)| {
                    from.as_slice() <= key && to.as_ref().is_none_or(|to| key < to.as_slice())
                })
            };
            found.retain(|(key, _)| !within(key));
            let mut outside = all.clone();
            outside.retain(|(key, _)| !within(key));
            assert!(
                outside.len() > all.len() / 2,
                "reverse {reverse} {ranges:?} {} of {} at {offset}",
                outside.len(),
                all.len()
            );
            assert!(found == outside, "reverse {reverse}, offset {offset}");
        }
        flip(subject.device.as_ref(), offset + 200);
    }
}
