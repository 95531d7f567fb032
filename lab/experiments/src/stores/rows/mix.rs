//! Steady mix: half overwrites, a quarter new keys, a quarter deletions.

use esker_lab_result::Metrics;
use esker_workload::entry::ENTRY_BYTES;
use esker_workload::uniform::Mix;

use crate::Result;
use crate::stores::rows::{Run, steady};

pub(super) fn run(run: &Run<'_>) -> Result<Metrics> {
    let requests = Mix::new(run.task.seed, run.sizes.entries);
    steady::run(run, requests, |mix| mix.live() * ENTRY_BYTES)
}
