//! Planted bugs: each must be found by the suites, and the same attempt must pass without it.

use esker_flash::nand::Cut;
use esker_harness::planted::hunt;
use esker_harness::violation::{Oracle, Verdict, Violation};
use esker_latree::planted::{Bug, with};
use esker_latree::{Buffering, Scan};

use crate::common::{options, small_pages};
use crate::cuts::Trace;
use crate::history::Shape;
use crate::model::history;

fn violation(wrong: String) -> Violation {
    Violation::new(Oracle::ContentMatches, wrong)
}

fn is_found(bug: Bug, attempt: impl Fn(u64) -> Result<(), String>) {
    let found = hunt(
        0..8_u64,
        |body| -> Verdict { with(bug, body) },
        |seed, _| attempt(*seed).map_err(violation),
    );
    let found = found.unwrap_or_else(|violation| panic!("{bug:?}: {violation}"));
    eprintln!("{bug:?}: {} attempts, {}", found.attempts, found.violation);
}

/// Found by a history without cuts.
fn is_found_by_reads(bug: Bug, blocks: u32, keys: u64, levels: u8) {
    is_found(bug, |seed| {
        let shape = Shape { keys, value_bytes: 24, lookups: 20, removals: 33 };
        let options = options(24 << 10, levels, Scan::Sorted, Buffering::Adaptive);
        history(small_pages(blocks), options, &shape, seed, 30_000).map(drop)
    });
}

/// Found by cuts of the power.
fn is_found_by_cuts(bug: Bug) {
    is_found(bug, |seed| {
        let options = options(20 << 10, 1 + (seed % 3) as u8, Scan::Sorted, Buffering::Adaptive);
        Trace::new(seed, 4000, options)?.cuts(150).map(drop)
    });
}

#[test]
fn a_split_that_keeps_its_buffer_is_found() {
    is_found_by_reads(Bug::SplitKeepsBuffer, 96, 2500, 2);
}

#[test]
fn a_fragment_older_than_the_pool_is_found() {
    is_found_by_reads(Bug::FragmentOlderThanPool, 96, 2500, 1);
}

#[test]
fn a_part_that_is_moved_past_older_fragments_is_found() {
    // About as many buffers below as decide whether a part is moved down or flushed.
    is_found(Bug::PartPastFragments, |seed| {
        let shape = Shape { keys: 200 + 50 * seed, value_bytes: 24, lookups: 20, removals: 33 };
        let options = options(24 << 10, 1, Scan::Sorted, Buffering::Adaptive);
        history(small_pages(96), options, &shape, seed, 30_000).map(drop)
    });
}

#[test]
fn a_dead_fragment_that_is_copied_is_found() {
    is_found_by_reads(Bug::DeadFragmentCopied, 24, 4000, 2);
}

#[test]
fn a_forgotten_root_is_found() {
    is_found_by_cuts(Bug::RootForgotten);
}

#[test]
fn blocks_that_are_freed_early_are_found() {
    is_found_by_cuts(Bug::FreedEarly);
}

#[test]
fn forgotten_syncs_of_a_chip_with_a_cache_are_found() {
    is_found(Bug::SyncForgotten, |seed| {
        (10 * seed..10 * (seed + 1)).try_for_each(crate::file_chip::crash)
    });
}

#[test]
fn an_ignored_log_is_found() {
    is_found_by_cuts(Bug::LogIgnored);
    let options = options(20 << 10, 2, Scan::Sorted, Buffering::Adaptive);
    let trace = Trace::new(1, 4000, options).unwrap();
    trace.cut(400, Cut::Torn, None).unwrap();
}
