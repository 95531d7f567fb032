//! Steady overwrite: keys drawn evenly from those loaded.

use esker_lab_result::Metrics;
use esker_workload::uniform::Overwrite;

use crate::Result;
use crate::stores::rows::{Run, steady};

pub(super) fn run(run: &Run<'_>) -> Result<Metrics> {
    let requests = Overwrite::new(run.task.seed, run.sizes.entries);
    steady::run(run, requests, |_| run.sizes.live_bytes())
}
