//! Planted bugs: each must be found by the suites, and the same attempt must pass without it.

use esker_flash::ftl::{mvftl, xftl};
use esker_flash::nand::Cut;
use esker_flash::planted::{Bug, with};
use esker_harness::planted::hunt;
use esker_harness::violation::{Oracle, Verdict, Violation};

use crate::cuts::Explorer;
use crate::layer::{Flash, Layer};
use crate::reads::history;

fn violation(wrong: String) -> Violation {
    Violation::new(Oracle::ContentMatches, wrong)
}

/// The bug is found by reads, or else by cuts of the power.
fn found<L: Layer>(bug: Bug, by_cuts: bool) {
    let attempt = |seed: u64| -> Verdict {
        if by_cuts {
            let mut explorer = Explorer::new(seed, &[Cut::Torn], 8);
            return explorer.every_cut::<L>(150).map_err(violation);
        }
        history::<L>(seed, 1500).map(drop).map_err(violation)
    };
    let found = hunt(0..8, |body| with(bug, body), |seed, _| attempt(*seed));
    let found = found.unwrap_or_else(|violation| panic!("{}, {bug:?}: {violation}", L::NAME));
    eprintln!("{}, {bug:?}: {} attempts, {}", L::NAME, found.attempts, found.violation);
}

fn all_are_found<L: Layer>() {
    found::<L>(Bug::CommitBeforeData, true);
    found::<L>(Bug::OrphanJoinsNext, true);
    found::<L>(Bug::GcForgetsVersion, false);
    found::<L>(Bug::GcForgetsOwner, false);
    found::<L>(Bug::TrimKept, true);
    found::<L>(Bug::ReserveUsed, false);
}

#[test]
fn planted_bugs_of_mvftl_are_found() {
    all_are_found::<mvftl::MvFtl<Flash>>();
}

#[test]
fn planted_bugs_of_xftl_are_found() {
    all_are_found::<xftl::XFtl<Flash>>();
}
