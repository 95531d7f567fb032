//! Damage to any byte is never answered as data, never turns into an older state, and is named.

use esker::Scheme;
use esker_substrate::planted::{Bug, with};
use esker_testkit::counts::{Counts, assert_passes, budget};
use esker_testkit::flips::{self, stores, stores::Specimen};
use esker_testkit::violation::{Oracle, Verdict};

fn examine(specimen: Verdict<Specimen>, suite: fn(&Specimen) -> Verdict<Counts>) {
    assert_passes(specimen.and_then(|specimen| suite(&specimen)));
}

/// Of the bytes of a store one in `stride` is flipped, all of them from a budget of `stride` on.
fn one_byte_in(stride: u64, specimen: Verdict<Specimen>) {
    let stride = usize::try_from(stride / budget().clamp(1, stride)).unwrap_or(1);
    assert_passes(specimen.and_then(|specimen| flips::bytes_of(&specimen, |_| true, stride)));
}

macro_rules! specimens {
    ($($store:ident, $stride:literal: $bytes:ident, $units:ident;)*) => {
        $(
            #[test]
            fn $bytes() {
                one_byte_in($stride, stores::$store());
            }

            #[test]
            fn $units() {
                examine(stores::$store(), flips::units_and_lengths);
            }
        )*
    };
}

// Of the first every byte is flipped in every run. The others have blocks and records of its kinds,
// and the last is the largest.
specimens! {
    clean, 1: bytes_of_a_clean_store, every_unit_and_length_of_a_clean_store;
    dirty_log, 4: bytes_of_a_killed_store, every_unit_and_length_of_a_killed_store;
    versions, 4: bytes_under_snapshots, every_unit_and_length_under_snapshots;
    past_indexes, 4: bytes_of_past_indexes, every_unit_and_length_of_past_indexes;
    sorted_runs, 4: bytes_of_sorted_runs, every_unit_and_length_of_sorted_runs;
    levels, 8: bytes_of_many_levels, every_unit_and_length_of_many_levels;
    slices, 8: bytes_of_an_lsm_index, every_unit_and_length_of_an_lsm_index;
    compressed, 24: bytes_of_blocks_with_lz4, every_unit_and_length_of_blocks_with_lz4;
    blobs, 24: bytes_of_blobs, every_unit_and_length_of_blobs;
    long_values, 24: bytes_of_long_values, every_unit_and_length_of_long_values;
    operands, 4: bytes_of_operands, every_unit_and_length_of_operands;
    packed, 24: bytes_of_blocks_with_zstd, every_unit_and_length_of_blocks_with_zstd;
}

#[test]
fn every_unit_and_length_of_levels_in_a_row() {
    examine(stores::levels_in_a_row(), flips::units_and_lengths);
}

#[test]
fn bytes_of_the_manifest_of_a_merge() {
    let manifest =
        |specimen: &Specimen| flips::bytes_of(specimen, |file| file.starts_with("manifest"), 48);
    examine(stores::mid_merge(Scheme::Fc), manifest);
}

#[test]
fn every_unit_and_length_within_a_merge_of_every_scheme() {
    // The others have nothing on the device before a merge is done.
    for scheme in [Scheme::Fc, Scheme::FcUnshared, Scheme::FcTuple] {
        examine(stores::mid_merge(scheme), flips::units_and_lengths);
    }
}

/// The remains of a store are never taken for the beginning of a new one.
#[test]
fn heads_that_are_zeros_and_files_that_are_missing() {
    for specimen in [stores::clean(), stores::dirty_log(), stores::blobs(), stores::young()] {
        examine(specimen, flips::heads_and_files);
    }
}

#[test]
fn a_store_that_is_taken_for_the_beginning_of_one_is_found() {
    for specimen in [stores::clean(), stores::young()] {
        let specimen = specimen.unwrap();
        let hunt = || with(Bug::RemainsAreNew, || flips::heads_and_files(&specimen));
        assert_eq!(hunt().unwrap_err().oracle, Oracle::NoSilentRollback, "{}", specimen.name);
    }
}

#[test]
fn files_of_other_stores_and_other_times() {
    let all = stores::all().unwrap();
    for (specimen, other) in all.iter().zip(all.iter().cycle().skip(1)) {
        assert_passes(flips::foreign_files(specimen, other));
    }
}
