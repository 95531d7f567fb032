//! A power cut anywhere leaves everything that was flushed, and nothing that was not written.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::*;
use esker_flash::ftl::{Dftl, Options, PageMapped, Policy};
use esker_flash::planted::Bug;
use esker_harness::counts::{Counts, budget};
use esker_harness::violation::{Verdict, without_panic};

/// A device and its options, of those that short histories fill and collect again and again.
fn case(seed: u64) -> (Flash, Options) {
    let policy = [Policy::Greedy, Policy::CostBenefit, Policy::DChoices(3), Policy::Fifo];
    let options = Options {
        spare_permille: [70, 400, 140][seed as usize % 3],
        policy: policy[seed as usize % policy.len()],
        reserve_blocks: 2 + seed as u32 % 2,
        wear_spread: [100, 3][seed as usize % 2],
        streams: 1 + seed as u32 / 2 % 3,
        seed,
    };
    let flash = match seed % 3 {
        0 => flash(2, 10, 4),
        1 => flash(1, 9, 6),
        _ => flash(3, 9, 5),
    };
    (flash, options)
}

fn explore<L: Layer>(seed: u64, steps: usize, counts: &mut Counts) -> Verdict {
    let (flash, options) = case(seed);
    let pages = L::format(flash.clone(), &options).unwrap().logical_pages();
    let history = history(&Random::new(seed), pages, steps);
    crash::explore::<L>(flash, &options, &history, seed, counts)
}

/// Short histories of many devices.
fn every_cut<L: Layer>() {
    let mut counts = Counts::new("flash", format!("{}: a power cut anywhere", L::NAME));
    for seed in 0..24 * budget() {
        let verdict = without_panic(|| explore::<L>(seed, 200, &mut counts));
        passes(seed, verdict);
        counts.add("steps", 200);
    }
    assert!(counts.get("judged") > 10_000, "{counts:?}");
    assert!(counts.get("judged within them") > 5_000, "{counts:?}");
    // A recovery of the page-mapped layer writes nothing.
    assert_eq!(counts.get("cuts of a recovery") > 1_000, L::RECOVERY_WRITES, "{counts:?}");
    counts.record().unwrap();
}

#[test]
fn every_cut_of_the_page_mapped_layer_is_survived() {
    every_cut::<PageMapped<Flash>>();
}

/// One history, of 20,000 steps with a budget of 4 or more.
fn every_cut_of_a_long_history<L: Layer>(seed: u64) {
    let steps = if budget() < 4 { 5_000 } else { 20_000 };
    let mut counts = Counts::new("flash", format!("{}: a power cut anywhere, long", L::NAME));
    let verdict = explore::<L>(seed, steps, &mut counts);
    passes(seed, verdict);
    counts.add("steps", steps as u64);
    counts.record().unwrap();
}

#[test]
fn every_cut_of_a_long_history_of_the_page_mapped_layer_is_survived() {
    every_cut_of_a_long_history::<PageMapped<Flash>>(2);
}

#[test]
fn every_cut_of_dftl_is_survived() {
    every_cut::<Dftl<Flash>>();
}

#[test]
fn every_cut_of_a_long_history_of_dftl_is_survived() {
    every_cut_of_a_long_history::<Dftl<Flash>>(2);
}

fn planted_bugs<L: Layer>() {
    for bug in Bug::OF_EVERY_LAYER {
        hunt("flash-planted", bug, 0..40, |seed, counts| explore::<L>(*seed, 200, counts));
    }
}

#[test]
fn planted_bugs_of_the_page_mapped_layer_are_found() {
    planted_bugs::<PageMapped<Flash>>();
}

#[test]
fn planted_bugs_of_dftl_are_found() {
    planted_bugs::<Dftl<Flash>>();
}
