//! What the planner is measured against answers the same.

use std::fs;
use std::path::Path;

use esker_permute::baselines::{self, Baseline};
use esker_permute::job::Request;

use crate::budget;
use crate::oracle::{Case, Random};

/// Whether the baseline moves such records.
fn moved(folder: &Path, case: &Case, memory: u64, baseline: Baseline) -> bool {
    let (from, to) = (folder.join("from.npy"), folder.join(case.output_name()));
    let items = case.items();
    fs::write(&from, [case.header().encode(), items.clone()].concat()).unwrap();
    let mut request = Request::new(&from, case.pattern(), &to);
    request.memory = memory;
    request.sizes = case.sizes();
    request.force = true;
    match baselines::run(baseline, &request) {
        Ok(()) => {}
        Err(error) if error.to_string().starts_with("sort moves records") => return false,
        Err(error) => panic!("{baseline:?} {case:?}: {error}"),
    }
    let found = fs::read(&to).unwrap();
    assert!(found.ends_with(&case.expected(&items)), "{baseline:?} with {memory}: {case:?}");
    true
}

fn compare(baseline: Baseline, cases: u64, bytes: u64) {
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random::new(61);
    let mut count = 0;
    while count < cases * budget() {
        let case = Case::random(&mut random, bytes);
        let memory = (256 << 10) << random.below(4);
        count += u64::from(moved(folder.path(), &case, memory, baseline));
    }
}

#[test]
fn sorting_by_address_agrees_with_the_definition() {
    // Large enough for several merges in the least memory.
    compare(Baseline::Sort, 8, 2_000_000);
    compare(Baseline::Sort, 40, 100_000);
}

#[test]
fn a_cache_of_blocks_agrees_with_the_definition() {
    compare(Baseline::Lru, 80, 300_000);
}

#[test]
fn tiles_by_hand_agree_with_the_definition() {
    compare(Baseline::Tiled, 80, 300_000);
}
