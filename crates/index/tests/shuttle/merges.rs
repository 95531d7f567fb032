//! Reads during merges and flushes: what they must see is known beforehand.

use crate::runner::schedules;
use crate::subject::{FULL, FULL_ALONE, KEYS, Subject, any_key, concurrently};
use esker_index::Work;

/// Without writers every lookup has one right answer, wherever the merge stands.
pub fn lookups() {
    let subject = Subject::new();
    let expected = subject.expected(subject.snapshots().visible());
    let merge = concurrently(&subject, |subject| subject.complete(FULL));
    for key in [any_key(), any_key(), any_key(), KEYS - 1] {
        assert_eq!(subject.get(key), expected.get(&key).copied(), "key {key}");
    }
    merge.join().unwrap();
}

/// At the end of a merge the last key's side changes for good, and what lies behind it has none.
pub fn lookups_of_the_last_key() {
    let keys = 2 * KEYS;
    let subject = Subject::with(keys);
    let merge = concurrently(&subject, |subject| {
        subject.complete(FULL);
        // Writes where the first merge has read.
        subject.complete(FULL_ALONE);
    });
    for _ in 0..2 {
        assert_eq!(subject.get(keys - 1), Some(u64::from(keys)));
        assert_eq!(subject.get(keys - 4), Some(u64::from(keys - 3)));
        assert_eq!(subject.get(keys), None);
    }
    merge.join().unwrap();
    subject.assert_sound();
}

/// Nothing is cached, and the merge is long enough to write where it has read before.
pub fn lookups_of_what_is_passed() {
    let subject = Subject::with(60);
    let expected = subject.expected(subject.snapshots().visible());
    let merge = concurrently(&subject, |subject| subject.complete(FULL));
    for key in [4, 1, 10] {
        assert_eq!(subject.get(key), expected.get(&key).copied(), "key {key}");
    }
    merge.join().unwrap();
}

/// The same for scans, whose batches begin and end anywhere.
pub fn scans_of_what_is_passed() {
    let subject = Subject::with(40);
    let visible = subject.snapshots().visible();
    let expected = subject.expected(visible);
    let merge = concurrently(&subject, |subject| subject.complete(FULL));
    assert_eq!(subject.scan(visible), expected);
    assert_eq!(subject.scan_back(visible), expected);
    merge.join().unwrap();
}

/// A frozen memtable of several leaves is given back leaf by leaf: a reader with an older view has
/// all of it still.
pub fn lookups_of_what_was_frozen() {
    let subject = std::sync::Arc::new(Subject::empty(40 << 10));
    (0..4).for_each(|key| subject.put(key));
    subject.complete(FULL);
    (0..4).for_each(|key| subject.put(key));
    let merge = concurrently(&subject, |subject| subject.complete(FULL));
    for key in [0, 1, 0, 2] {
        assert_eq!(subject.get(key), Some(u64::from(key) + 5), "key {key}");
    }
    merge.join().unwrap();
}

/// A scan sees its moment, however merges and writes go on.
pub fn scans_and_writes() {
    let subject = Subject::new();
    let snapshot = subject.snapshots().register();
    let expected = subject.expected(snapshot.seq());
    assert_eq!(expected.len(), usize::from(KEYS));
    let merge = concurrently(&subject, |subject| {
        subject.put(2);
        subject.complete(FULL);
        subject.delete(7);
        subject.complete(Work::Flush);
    });
    assert_eq!(subject.scan(snapshot.seq()), expected);
    merge.join().unwrap();
    assert_eq!(subject.scan_back(snapshot.seq()), expected);
}

/// A snapshot taken at any moment keeps what it sees, though everything is overwritten and
/// merged twice, and lets go of it afterwards.
pub fn snapshots_and_reclaim() {
    let subject = Subject::new();
    let merge = concurrently(&subject, |subject| {
        subject.put(3);
        subject.complete(FULL);
        subject.delete(4);
        subject.put(3);
        subject.complete(FULL);
    });
    let reader = concurrently(&subject, |subject| {
        let snapshot = subject.snapshots().register();
        let expected = subject.expected(snapshot.seq());
        assert_eq!(subject.scan(snapshot.seq()), expected);
        assert_eq!(subject.scan(snapshot.seq()), expected);
    });
    merge.join().unwrap();
    reader.join().unwrap();
    subject.complete(FULL);
    subject.assert_sound();
}

#[test]
fn lookups_find_the_one_right_answer() {
    schedules("lookups during a merge", 34_000, lookups);
}

#[test]
fn the_last_key_is_found_when_a_merge_ends() {
    schedules("the last key when a merge ends", 4_000, lookups_of_the_last_key);
}

#[test]
fn lookups_of_passing_blocks_find_them() {
    schedules("lookups of blocks being passed", 3_000, lookups_of_what_is_passed);
}

#[test]
fn scans_of_passing_blocks_find_them() {
    schedules("scans of blocks being passed", 3_000, scans_of_what_is_passed);
}

#[test]
fn a_frozen_memtable_stays_whole_for_old_views() {
    schedules("lookups of a frozen memtable", 4_000, lookups_of_what_was_frozen);
}

#[test]
fn scans_see_their_moment() {
    schedules("scans during writes and merges", 14_000, scans_and_writes);
}

#[test]
fn snapshots_keep_what_they_see() {
    schedules("snapshots during merges that reclaim", 6_000, snapshots_and_reclaim);
}
