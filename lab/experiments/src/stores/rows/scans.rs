//! Scans of 100 entries from random keys, by one thread; and long ones, of 10,000.

use std::time::{Duration, Instant};

use esker_lab_measure::latency::Latencies;
use esker_lab_result::Metrics;
use esker_workload::{entry, uniform};

use crate::stores::rows::{Run, grown, insert};
use crate::{Error, Result};

/// Entries of a scan.
pub(super) const SCAN_ENTRIES: u64 = 100;
/// Entries of a long one, for which fewer are made.
pub(super) const LONG_ENTRIES: u64 = 10_000;
const LONG_SHARE: u64 = 50;
/// The number of scans that count for each one that does not.
pub(super) const WARM_UP_SHARE: u64 = 4;

pub(super) fn run(run: &Run<'_>) -> Result<Metrics> {
    run_with(run, SCAN_ENTRIES, run.sizes.scans)
}

/// Of as many entries as there are, where those are fewer.
pub(super) fn run_long(run: &Run<'_>) -> Result<Metrics> {
    let length = LONG_ENTRIES.min(run.sizes.entries / 20);
    run_with(run, length, (run.sizes.scans / LONG_SHARE).max(1))
}

fn run_with(run: &Run<'_>, length: u64, count: u64) -> Result<Metrics> {
    run.store.wait_idle()?;
    let of = (length, run.sizes.entries);
    scan_all(run, 1, of, count / WARM_UP_SHARE)?;
    let before = run.store.figures()?;
    let (elapsed, latencies) = scan_all(run, 2, of, count)?;
    let after = run.store.figures()?;
    let mut metrics = Metrics::new();
    latencies.summary().put_into(&mut metrics, "scan");
    insert(&mut metrics, "rate", Some(count as f64 / elapsed.as_secs_f64()));
    let reads = grown(&before, &after, "reads_user").map(|reads| reads / count as f64);
    insert(&mut metrics, "reads_per_scan", reads);
    Ok(metrics)
}

/// Makes `count` scans of `length` entries, from any of the first `entries` keys.
pub(super) fn scan_all(
    run: &Run<'_>,
    round: u64,
    (length, entries): (u64, u64),
    count: u64,
) -> Result<(Duration, Latencies)> {
    let requests = uniform::lookups(run.task.seed ^ round << 16, entries);
    let mut latencies = Latencies::default();
    let mut short = 0;
    let start = Instant::now();
    for (done, request) in (0..count).zip(requests) {
        let before = Instant::now();
        let seen = run.store.scan(&entry::key(request.number), length)?;
        latencies.record(before.elapsed());
        short += u64::from(seen < length);
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
