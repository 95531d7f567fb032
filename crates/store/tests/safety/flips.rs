//! Damage to any byte is never answered as data, never turns into an older state, and is named.

use esker::Scheme;
use esker_testkit::counts::{Counts, budget, settle};
use esker_testkit::flips::{self, stores, stores::Specimen};
use esker_testkit::violation::Verdict;

fn examine(specimen: Verdict<Specimen>, suite: fn(&Specimen) -> Verdict<Counts>) {
    settle(specimen.and_then(|specimen| suite(&specimen)));
}

macro_rules! specimens {
    ($($store:ident: $bytes:ident, $units:ident;)*) => {
        $(
            #[test]
            fn $bytes() {
                examine(stores::$store(), flips::every_byte);
            }

            #[test]
            fn $units() {
                examine(stores::$store(), flips::units_and_lengths);
            }
        )*
    };
}

specimens! {
    clean: every_byte_of_a_clean_store, every_unit_and_length_of_a_clean_store;
    dirty_log: every_byte_of_a_killed_store, every_unit_and_length_of_a_killed_store;
    versions: every_byte_under_snapshots, every_unit_and_length_under_snapshots;
    spills: every_byte_of_spill_runs, every_unit_and_length_of_spill_runs;
}

/// The largest of the stores, of kinds of blocks that the others have too: one byte in four, and
/// every byte from a budget of four on.
#[test]
fn bytes_of_many_levels() {
    let stride = usize::try_from(4 / budget().clamp(1, 4)).unwrap_or(1);
    settle(stores::levels().and_then(|levels| flips::bytes_of(&levels, |_| true, stride)));
}

#[test]
fn every_unit_and_length_of_many_levels() {
    examine(stores::levels(), flips::units_and_lengths);
}

#[test]
fn every_unit_and_length_of_levels_in_a_row() {
    examine(stores::levels_in_a_row(), flips::units_and_lengths);
}

#[test]
fn bytes_of_the_manifest_of_a_merge() {
    let manifest =
        |specimen: &Specimen| flips::bytes_of(specimen, |file| file.starts_with("manifest"), 48);
    examine(stores::merging(Scheme::Fc), manifest);
}

#[test]
fn every_unit_and_length_within_a_merge_of_every_scheme() {
    // The others have nothing on the device before a merge is done.
    for scheme in [Scheme::Fc, Scheme::FcUnshared, Scheme::FcTuple] {
        examine(stores::merging(scheme), flips::units_and_lengths);
    }
}

#[test]
fn files_of_other_stores_and_other_times() {
    let all = stores::all().unwrap();
    for (specimen, other) in all.iter().zip(all.iter().cycle().skip(1)) {
        settle(flips::foreign_files(specimen, other));
    }
}
