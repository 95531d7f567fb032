//! Scans of 100 entries from random keys, by one thread.

use std::time::{Duration, Instant};

use esker_lab_measure::latency::Latencies;
use esker_lab_result::Metrics;
use esker_workload::{entry, uniform};

use crate::stores::rows::{Run, insert};
use crate::{Error, Result};

/// Entries of a scan.
pub(super) const SCAN_ENTRIES: u64 = 100;
/// The number of scans that count for each one that does not.
pub(super) const WARM_UP_SHARE: u64 = 4;

pub(super) fn run(run: &Run<'_>) -> Result<Metrics> {
    run.store.wait_idle()?;
    scan_all(run, 1, run.sizes.scans / WARM_UP_SHARE)?;
    let (elapsed, latencies) = scan_all(run, 2, run.sizes.scans)?;
    let mut metrics = Metrics::new();
    latencies.summary().put_into(&mut metrics, "scan");
    insert(&mut metrics, "rate", Some(run.sizes.scans as f64 / elapsed.as_secs_f64()));
    Ok(metrics)
}

fn scan_all(run: &Run<'_>, round: u64, count: u64) -> Result<(Duration, Latencies)> {
    let requests = uniform::lookups(run.task.seed ^ round << 16, run.sizes.entries);
    let mut latencies = Latencies::default();
    let mut short = 0;
    let start = Instant::now();
    for (done, request) in (0..count).zip(requests) {
        let before = Instant::now();
        let seen = run.store.scan(&entry::key(request.number), SCAN_ENTRIES)?;
        latencies.record(before.elapsed());
        short += u64::from(seen < SCAN_ENTRIES);
        if done % 64 == 0 {
            run.tell.progress(done, count);
        }
    }
    let elapsed = start.elapsed();
    // Only a scan from one of the last keys may be short, and those are rarely drawn.
    if short > count / 10 + 1 {
        return Err(Error::Invalid(format!("{short} of {count} scans were short")));
    }
    Ok((elapsed, latencies))
}
