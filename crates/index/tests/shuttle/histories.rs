//! Reads and writes during merges: what was seen must have an order.

use std::sync::Arc;

use crate::runner::schedules;
use crate::subject::{FULL, FULL_ALONE, KEYS, Subject, concurrently};
use esker_index::{BackgroundJob, Step, Work};

/// Puts and deletes of a few keys during a merge, and lookups of them.
pub fn writes_and_a_merge() {
    let subject = Subject::new();
    let writer = concurrently(&subject, |subject| {
        subject.put(4);
        subject.delete(9);
        subject.put(4);
        subject.put(9);
    });
    let merge = concurrently(&subject, |subject| subject.complete(FULL));
    for key in [4, 9, 4, 9] {
        subject.get(key);
    }
    writer.join().unwrap();
    merge.join().unwrap();
    subject.assert_sound();
}

/// The merge is requested by a writer, so that it drops what has just been overwritten, and
/// keeps what is older for a snapshot: a reader with a number from between finds that.
pub fn overwrites_that_are_merged() {
    let subject = Subject::new();
    let snapshot = subject.snapshots().register();
    let merge = concurrently(&subject, |subject| {
        subject.put(4);
        subject.put(9);
        subject.put(4);
        subject.complete(FULL);
        subject.put(4);
    });
    for key in [4, 9, 4, 4] {
        subject.get(key);
    }
    merge.join().unwrap();
    drop(snapshot);
    subject.history.assert_linearizable();
}

/// A flush keeps only the newest version of each key: a reader with a number from before must
/// have a view from before. A full merge would hide the mistake, because it resets the numbers of
/// what is left.
pub fn overwrites_that_are_spilled() {
    let subject = Subject::new();
    let flush = concurrently(&subject, |subject| {
        subject.put(4);
        subject.put(4);
        subject.complete(Work::Flush);
    });
    for _ in 0..3 {
        subject.get(4);
    }
    flush.join().unwrap();
    subject.history.assert_linearizable();
}

/// An older sorted run and the frozen memtable hold versions of the same keys.
pub fn runs_below_a_frozen_memtable() {
    let subject = Subject::new();
    subject.complete(Work::Flush);
    [0, 3, 9].into_iter().for_each(|key| subject.put(key));
    let expected = subject.expected(subject.snapshots().visible());
    let merge = concurrently(&subject, |subject| subject.complete(FULL));
    for key in [9, 0, 6] {
        assert_eq!(subject.get(key), expected.get(&key).copied(), "key {key}");
    }
    assert_eq!(subject.scan(subject.snapshots().visible()), expected);
    merge.join().unwrap();
}

/// A flush runs during a merge, and both during lookups.
pub fn a_flush_and_a_merge() {
    let subject = Subject::new();
    subject.complete(Work::Flush);
    merge_during_a_flush(&subject, FULL_ALONE, || ());
    subject.assert_sound();
}

/// A merge, with a flush, lookups and something else during it.
pub fn merge_during_a_flush(subject: &Arc<Subject>, work: Work, also: impl FnOnce()) {
    let merge = concurrently(subject, move |subject| subject.complete(work));
    let flush = concurrently(subject, |subject| {
        subject.put(3);
        subject.complete(Work::Flush);
        subject.delete(8);
    });
    for key in [3, 8, 3] {
        subject.get(key);
    }
    also();
    flush.join().unwrap();
    merge.join().unwrap();
}

/// Two threads ask for a merge, and both step whatever is under way.
pub fn two_merges_asked_for_at_once() {
    let subject = Subject::new();
    let ask = |subject: &Subject| {
        subject.put(5);
        subject.begin(FULL);
        subject.finish();
        assert_eq!(subject.step(BackgroundJob::Flush), Step::Idle);
    };
    let (one, two) = (concurrently(&subject, ask), concurrently(&subject, ask));
    subject.get(5);
    subject.get(KEYS - 1);
    one.join().unwrap();
    two.join().unwrap();
    subject.finish();
    assert!(!subject.tree.is_merging());
    subject.assert_sound();
}

/// Whatever the merge is doing, an index that was paused stands still, owns each extent once, and
/// goes on afterwards.
pub fn a_pause_during_a_merge() {
    let subject = Subject::new();
    let merge = concurrently(&subject, |subject| subject.complete(FULL));
    let pause = concurrently(&subject, |subject| {
        let paused = subject.tree.pause();
        let mut extents = paused.extents();
        extents.sort_unstable();
        for pair in extents.windows(2) {
            assert!(pair[0].end() <= pair[1].start, "{pair:?} overlap");
        }
        subject.get(2);
    });
    subject.get(2);
    merge.join().unwrap();
    pause.join().unwrap();
    subject.assert_sound();
}

/// An index that is closed in the middle of a merge lets go of everything, and the merge ends.
pub fn a_close_during_a_merge() {
    let subject = Subject::empty(1200);
    (0..KEYS).for_each(|key| subject.put(key));
    subject.complete(FULL);
    let subject = Arc::new(subject);
    let merge = concurrently(&subject, |subject| {
        if subject.begin(FULL_ALONE) {
            while subject.step(BackgroundJob::Merge) == Step::More {}
        }
    });
    let close = concurrently(&subject, |subject| subject.tree.close());
    merge.join().unwrap();
    close.join().unwrap();
    subject.tree.collect().unwrap();
    assert!(subject.tree.is_quiescent());
    for key in 0..KEYS {
        let found = subject.tree.get(&[key], || subject.snapshots().visible());
        assert_eq!(found.unwrap(), None, "nothing is left of an index that was closed");
    }
}

#[test]
fn puts_deletes_and_lookups_have_an_order() {
    schedules("puts, deletes and lookups during a merge", 26_000, writes_and_a_merge);
}

#[test]
fn lookups_never_go_back_in_time() {
    schedules("overwrites that are merged at once", 26_000, overwrites_that_are_merged);
}

#[test]
fn lookups_during_a_flush_never_go_back_in_time() {
    schedules("overwrites that are flushed at once", 16_000, overwrites_that_are_spilled);
}

#[test]
fn runs_are_older_than_what_is_frozen() {
    schedules("sorted runs below a frozen memtable", 12_000, runs_below_a_frozen_memtable);
}

#[test]
fn flushes_and_merges_run_concurrently() {
    schedules("a flush during a merge", 14_000, a_flush_and_a_merge);
}

#[test]
fn two_may_ask_for_a_merge() {
    schedules("two merges asked for at once", 10_000, two_merges_asked_for_at_once);
}

#[test]
fn a_paused_index_owns_each_extent_once() {
    schedules("a pause during a merge", 8_000, a_pause_during_a_merge);
}

#[test]
fn an_index_may_be_closed_during_a_merge() {
    schedules("a close during a merge", 16_000, a_close_during_a_merge);
}
