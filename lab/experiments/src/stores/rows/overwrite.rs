//! Steady overwrite: keys drawn evenly from those loaded.

use esker_workload::uniform::Overwrite;

use crate::error::Result;
use crate::measure::Metrics;
use crate::measure::rows::{Run, steady};

pub(super) fn run(run: &Run<'_>) -> Result<Metrics> {
    let requests = Overwrite::new(run.task.seed, run.sizes.entries);
    steady::run(run, requests, |_| run.sizes.live_bytes())
}
