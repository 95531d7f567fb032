//! Backups: a restored store equals what was backed up, regardless of what happens meanwhile.

use esker_testkit::backups;
use esker_testkit::counts::{Counts, assert_passes};
use esker_testkit::violation::Verdict;

fn suite(case: &str, run: impl FnOnce(&mut Counts) -> Verdict) {
    let mut counts = Counts::new("backups", case);
    assert_passes(run(&mut counts).map(|()| counts));
}

#[test]
fn random_histories_are_restored_as_they_were() {
    suite("random histories", backups::histories);
}

#[test]
fn stores_that_end_badly_again_and_again_have_good_backups() {
    suite("stores that end badly", backups::lives::histories);
}

#[test]
fn backups_at_every_step_of_merges_are_restored() {
    suite("steps of merges", backups::compaction::at_every_step);
}

#[test]
fn backups_survive_power_cuts() {
    suite("power cuts during backups", backups::crash::of_backups);
}

#[test]
fn restoring_survives_power_cuts() {
    suite("power cuts during a restoring", backups::crash::of_restoring);
}

#[test]
fn backups_survive_failing_operations_of_their_device() {
    suite("failing operations of the backup", backups::faults::of_the_backup);
}

#[test]
fn backups_survive_failing_operations_of_the_store() {
    suite("failing operations of the store", backups::faults::of_the_source);
}

#[test]
fn restoring_survives_failing_operations() {
    suite("failing operations of a restoring", backups::faults::of_restoring);
}

#[test]
fn damage_to_a_backup_is_named() {
    suite("flipped bytes", backups::flips::bytes);
}

#[test]
fn heads_that_are_zeros() {
    suite("heads that are zeros", backups::flips::heads);
}

#[test]
fn what_is_left_of_a_finished_backup_is_not_removed() {
    suite("files lost or cut", backups::losses::of_files);
}

#[test]
fn first_backups_survive_failing_operations() {
    suite("failing operations of a first backup", backups::faults::of_a_first_backup);
}
