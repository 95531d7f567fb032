//! The scenarios with an LSM index: its merges are slices, each with a record and a view of its
//! own, and what a slice has taken of a run is gone of it.

use crate::runner::{hunt, schedules};
use std::sync::Arc;

use crate::subject::{FULL, KEYS, Subject, concurrently, with_lsm, with_packing};
use crate::{histories, merges};
use esker_index::Work;
use esker_substrate::planted::Bug;

/// More runs than may stand are merged into a level slice by slice, and a key is overwritten that
/// is in all of them: a reader that looks it up, or scans, meets runs that are gone in part.
fn lookups_during_slices_of_runs() {
    let subject = Subject::new();
    for _ in 0..3 {
        [1, 4, 7].into_iter().for_each(|key| subject.put(key));
        subject.complete(Work::Flush);
    }
    let visible = subject.snapshots().visible();
    let expected = subject.expected(visible);
    let merge = concurrently(&subject, |subject| {
        subject.complete(FULL);
        subject.complete(FULL);
    });
    for key in [4, 7, KEYS - 1, 4] {
        assert_eq!(subject.get(key), expected.get(&key).copied(), "key {key}");
    }
    assert_eq!(subject.scan(visible), expected);
    merge.join().unwrap();
    subject.assert_sound();
}

/// A merge writes to the space that the previous one freed: a scan by an older view still finds
/// everything.
fn scans_during_two_merges() {
    let subject = Subject::with(40);
    let visible = subject.snapshots().visible();
    let expected = subject.expected(visible);
    let merge = concurrently(&subject, |subject| {
        subject.complete(FULL);
        subject.complete(FULL);
    });
    assert_eq!(subject.scan(visible), expected);
    merge.join().unwrap();
    subject.assert_sound();
}

/// A level of blocks that leave a quarter empty is packed, while a flush and readers go on.
fn lookups_during_packing() {
    let subject = Arc::new(Subject::empty(4_096));
    (0..KEYS).for_each(|key| subject.put(key));
    subject.complete(FULL);
    let visible = subject.snapshots().visible();
    let expected = subject.expected(visible);
    let due = Work::Merge { full: false, with_memtable: false };
    histories::merge_during_a_flush(&subject, due, || {
        assert_eq!(subject.scan(visible), expected);
    });
    let report = subject.tree.merge_report().unwrap();
    assert!(report.counters.levels.iter().any(|level| level.blocks_packed > 0));
    subject.assert_sound();
}

#[test]
fn levels_are_packed_during_everything() {
    schedules("LSM: packing during a flush", 3_000, || with_packing(lookups_during_packing));
}

macro_rules! with_lsm {
    ($($test:ident: $name:literal, $runs:literal of $scenario:path,)*) => {
        $(#[test] fn $test() {
            schedules(concat!("LSM: ", $name), $runs, || with_lsm($scenario));
        })*
    };
}

with_lsm! {
    lookups_find_the_one_right_answer:
        "lookups during slices", 8_000 of merges::lookups,
    lookups_of_what_is_passed_find_it:
        "lookups of blocks being replaced", 2_000 of merges::lookups_of_what_is_passed,
    scans_of_what_is_passed_find_it:
        "scans of blocks being replaced", 1_000 of merges::scans_of_what_is_passed,
    scans_of_what_is_written_again_find_it:
        "scans of blocks whose place is taken", 1_000 of scans_during_two_merges,
    scans_see_their_moment:
        "scans during writes and slices", 5_000 of merges::scans_and_writes,
    snapshots_keep_what_they_see:
        "snapshots during slices that reclaim", 3_000 of merges::snapshots_and_reclaim,
    runs_that_are_gone_in_part_are_passed:
        "lookups during slices of runs", 4_000 of lookups_during_slices_of_runs,
    puts_deletes_and_lookups_have_an_order:
        "puts, deletes and lookups during slices", 6_000 of histories::writes_and_a_merge,
    lookups_never_go_back_in_time:
        "overwrites that are merged at once", 6_000 of histories::overwrites_that_are_merged,
    runs_are_older_than_what_is_frozen:
        "sorted runs below a frozen memtable", 4_000 of histories::runs_below_a_frozen_memtable,
    flushes_and_slices_go_on_during_each_other:
        "a flush during slices", 4_000 of histories::a_flush_and_a_merge,
    a_paused_index_owns_each_extent_once:
        "a pause during slices", 3_000 of histories::a_pause_during_a_merge,
    an_index_may_be_closed_during_a_merge:
        "a close during slices", 4_000 of histories::a_close_during_a_merge,
}

#[test]
fn finds_space_reused_under_a_reader() {
    hunt(Bug::QuarantineIgnored, 20_000, &[|| with_lsm(scans_during_two_merges)]);
}

#[test]
fn finds_the_number_read_before_the_view() {
    hunt(Bug::NumberBeforeView, 20_000, &[|| with_lsm(histories::overwrites_that_are_spilled)]);
}
