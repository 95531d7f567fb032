//! Random histories read as the model, and the invariants hold after every step.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::*;
use esker_flash::ftl::{Dftl, Options, PageMapped, Policy};
use esker_flash::planted::Bug;
use esker_harness::counts::{Counts, budget};
use esker_harness::violation::{Verdict, without_panic};

fn case(random: &Random) -> (Flash, Options) {
    let policies = [Policy::Greedy, Policy::CostBenefit, Policy::DChoices(2), Policy::Fifo];
    let options = Options {
        spare_permille: random.below(500) as u32,
        policy: policies[random.index(policies.len())],
        reserve_blocks: 1 + random.below(3) as u32,
        wear_spread: [2, 20, 100][random.index(3)],
        streams: 1 + random.below(3) as u32,
        seed: random.bits(),
    };
    let blocks = 9 + random.below(10) as u32;
    (flash(1 + random.below(4) as u32, blocks, 2 + random.below(14) as u32), options)
}

fn run<L: Layer>(seed: u64, steps: usize, counts: &mut Counts) -> Verdict {
    let random = Random::new(seed);
    let (flash, options) = case(&random);
    let mut layer = L::format(flash, &options).map_err(|error| unexpected(&error))?;
    let mut model = Model::new(layer.logical_pages());
    let history = history(&random, layer.logical_pages(), steps);
    for (at, op) in history.into_iter().enumerate() {
        let place = format!("step {at}, {op:?} of {options:?}");
        let verdict = model.run(&mut layer, op).map_err(|error| unexpected(&error).at(&place))?;
        verdict.and_then(|()| check(&layer)).map_err(|violation| violation.at(&place))?;
        counts.add("judged", 1);
    }
    model.judge(&mut layer)?;
    layer.flush().map_err(|error| unexpected(&error))?;
    let flash = layer.flash().clone();
    let mut again = L::recover(flash, &options).map_err(|error| unexpected(&error))?;
    check(&again)?;
    counts.add("collections", layer.counters().total().erases);
    model.judge(&mut again)
}

fn histories<L: Layer>() {
    let mut counts = Counts::new("flash", format!("{}: random histories", L::NAME));
    for seed in 0..60 * budget() {
        let verdict = without_panic(|| run::<L>(seed, 600, &mut counts));
        passes(seed, verdict);
        counts.add("runs", 1);
    }
    assert!(counts.get("collections") > 2_000, "{counts:?}");
    counts.record().unwrap();
}

#[test]
fn histories_of_the_page_mapped_layer_read_as_the_model() {
    histories::<PageMapped<Flash>>();
}

#[test]
fn histories_of_dftl_read_as_the_model() {
    histories::<Dftl<Flash>>();
}

#[test]
fn planted_bugs_are_found() {
    for bug in [Bug::GcForgetsOwner, Bug::ReserveUsed, Bug::TrimKept] {
        hunt("flash-planted-model", bug, 0..60, |seed, counts| {
            run::<PageMapped<Flash>>(*seed, 600, counts)
        });
    }
}
