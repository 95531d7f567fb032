//! Every mistake that only several threads find is found, by name.

use crate::runner::hunt;
use crate::{gaps, histories, merges, tails};
use esker_substrate::planted::{Bug, Mistake, Race};

macro_rules! bugs {
    ($($name:ident: $kind:ident::$bug:ident by $runs:literal of [$($body:path),+],)*) => {
        $(#[test] fn $name() { hunt($kind::$bug, $runs, &[$($body),+]); })*

        #[test]
        fn every_bug_has_its_test() {
            let hunted = [$(Mistake::from($kind::$bug)),*];
            let bugs = Bug::CONCURRENT.map(Mistake::from);
            assert_eq!(hunted.to_vec(), [&bugs[..], &Race::IN_INDEX.map(Mistake::from)].concat());
        }
    };
}

bugs! {
    finds_space_reused_under_a_reader:
        Bug::QuarantineIgnored by 20_000 of [merges::lookups_of_what_is_passed],
    finds_the_number_read_before_the_view:
        Bug::NumberBeforeView by 20_000 of [histories::overwrites_that_are_spilled],
    finds_space_freed_while_it_is_read:
        Race::ReclaimWhenRead by 20_000 of [merges::scans_of_what_is_passed],
    finds_a_wavefront_too_far:
        Race::WavefrontTooFar by 20_000 of [merges::lookups],
    finds_a_view_before_its_blocks:
        Race::ViewBeforeBlocks by 20_000 of [merges::lookups],
    finds_a_frozen_memtable_drained_in_place:
        Race::FrozenDrainedInPlace by 20_000 of [merges::lookups_of_what_was_frozen],
    finds_runs_searched_before_what_is_frozen:
        Race::RunsBeforeFrozen by 20_000 of [histories::runs_below_a_frozen_memtable],
    finds_a_scan_past_the_wavefront:
        Race::ScanPastWavefront by 20_000 of [merges::scans_and_writes],
    finds_tails_that_are_not_asked:
        Race::TailIgnored by 20_000 of [tails::lookups_during_a_resumed_merge],
    finds_a_freeze_without_a_barrier:
        Race::FreezeWithoutBarrier by 20_000 of [histories::writes_and_a_merge],
    finds_a_tag_too_early:
        Race::TaggedTooEarly by 20_000 of [merges::lookups_of_the_last_key],
    finds_puts_that_are_watched_too_late:
        Race::WatchedTooLate by 20_000 of [gaps::scans_of_a_front_that_moves],
}
