//! Reads at every number while what is live is copied, and what it is copied from becomes a past
//! index.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use esker_format::ids::Seq;
use esker_index::Work;

use crate::runner::{hunt, schedules};
use crate::subject::{FULL_ALONE, KEYS, Subject, any_key, concurrently, with_history};
use esker_substrate::planted::Bug;

/// Every key written three times and one of them deleted: the next full merge splits.
fn subject() -> Arc<Subject> {
    let subject = Subject::empty(1200);
    for round in 0..3 {
        (0..KEYS).for_each(|key| subject.put(key));
        if round == 1 {
            subject.delete(5);
        }
        subject.complete(Work::Flush);
        if round < 2 {
            subject.complete(FULL_ALONE);
        }
    }
    assert!(subject.tree.past_indexes().is_empty());
    Arc::new(subject)
}

fn split(subject: &Subject) {
    subject.complete(FULL_ALONE);
    assert_eq!(subject.tree.past_indexes().len(), 1, "everything was overwritten");
    // Nothing may be written where the past is.
    subject.complete(FULL_ALONE);
}

/// A scan as of any number finds what was there, wherever the split stands.
pub fn scans_of_the_past() {
    let subject = subject();
    let visible = subject.snapshots().visible();
    let merge = concurrently(&subject, split);
    for seq in [visible.0, visible.0 - 1, visible.0 / 2].map(Seq) {
        assert_eq!(subject.scan(seq), subject.expected(seq), "at {seq}");
    }
    let seq = Seq(visible.0 - 3);
    assert_eq!(subject.scan_back(seq), subject.expected(seq), "back at {seq}");
    merge.join().unwrap();
    subject.assert_sound();
}

/// So do lookups, and the walk from version to version of a key.
pub fn lookups_of_the_past() {
    let subject = subject();
    let visible = subject.snapshots().visible();
    let merge = concurrently(&subject, split);
    for key in [any_key(), 5] {
        for seq in (1..=visible.0).rev().step_by(5).map(Seq) {
            let expected = subject.expected(seq).get(&key).copied();
            assert_eq!(subject.get_at(key, seq), expected, "key {key} at {seq}");
            let expected = subject.expected_version(key, seq);
            assert_eq!(subject.version(key, seq), expected, "versions of key {key} at {seq}");
        }
    }
    merge.join().unwrap();
    subject.assert_sound();
}

/// A version that somebody has pinned stays, and one that cannot be pinned is gone.
pub fn pins_of_what_is_given_up() {
    let subject = subject();
    let visible = subject.snapshots().visible();
    split(&subject);
    let times = Arc::new(AtomicUsize::new(0));
    let give_up = |times: Arc<AtomicUsize>| {
        move |subject: &Subject| {
            let no_blobs = |_: Seq| Vec::new();
            let given_up = subject.tree.drop_past(Seq::MAX, no_blobs, &mut |_, _| Ok(()));
            times.fetch_add(given_up.unwrap().into(), Ordering::Relaxed);
        }
    };
    let other = concurrently(&subject, give_up(Arc::clone(&times)));
    let again = give_up(Arc::clone(&times));
    let drop = concurrently(&subject, move |subject| {
        (0..2).for_each(|_| again(subject));
        // Writes where the past was.
        (0..KEYS).for_each(|key| subject.put(key));
        subject.complete(Work::Flush);
    });
    let seq = Seq(visible.0 / 2);
    if subject.tree.pin_version(seq) {
        assert_eq!(subject.scan(seq), subject.expected(seq), "at {seq}");
        assert_eq!(subject.scan_back(seq), subject.expected(seq), "back at {seq}");
        subject.tree.unpin_version(seq);
    } else {
        assert!(subject.tree.oldest_version().is_some());
    }
    drop.join().unwrap();
    other.join().unwrap();
    assert!(times.load(Ordering::Relaxed) <= 1, "there is one past index");
    subject.assert_sound();
}

#[test]
fn pinned_versions_stay() {
    schedules("pins of what is given up", 6_000, || with_history(pins_of_what_is_given_up));
}

#[test]
fn finds_versions_that_are_given_up_under_a_pin() {
    hunt(Bug::DroppedUnderPin, 4_000, &[|| with_history(pins_of_what_is_given_up)]);
}

#[test]
fn finds_past_indexes_that_are_given_up_twice() {
    hunt(Bug::DroppedTwice, 4_000, &[|| with_history(pins_of_what_is_given_up)]);
}

#[test]
fn scans_of_the_past_see_it_during_a_split() {
    schedules("scans of the past during a split", 8_000, || with_history(scans_of_the_past));
}

#[test]
fn lookups_of_the_past_see_it_during_a_split() {
    schedules("lookups of the past during a split", 6_000, || with_history(lookups_of_the_past));
}

#[test]
fn finds_readers_of_the_past_in_a_copy_of_now() {
    hunt(Bug::SplitReadsNewSide, 2_000, &[|| with_history(scans_of_the_past)]);
}

#[test]
fn finds_a_split_that_frees_what_it_has_copied() {
    hunt(Bug::SplitFreesInputs, 2_000, &[|| with_history(scans_of_the_past)]);
}
