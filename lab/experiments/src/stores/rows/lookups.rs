//! Random lookups of keys that are there, by two threads that do nothing else; then some of keys
//! that are not there.

use std::time::{Duration, Instant};

use esker_lab_measure::latency::Latencies;
use esker_lab_measure::process::DeviceBytes;
use esker_lab_result::Metrics;
use esker_workload::{entry, uniform};

use crate::stores::rows::together::together;
use crate::stores::rows::{PROGRESS_EVERY, Run, grown, insert};
use crate::{Error, Result};

const THREADS: u64 = 2;
/// The number of other lookups for each lookup of an absent key.
const MISSES: u64 = 4;

pub(super) fn run(run: &Run<'_>) -> Result<Metrics> {
    run.store.wait_idle()?;
    read_all(run, 1, run.sizes.lookups_warm_up, run.sizes.entries)?;
    let (figures, process) = (run.store.figures()?, DeviceBytes::now());
    run.control.reset();
    let (elapsed, latencies) = read_all(run, 2, run.sizes.lookups, run.sizes.entries)?;
    let after = run.store.figures()?;

    let lookups = (run.sizes.lookups / THREADS * THREADS) as f64;
    let mut metrics = Metrics::new();
    latencies.summary().put_into(&mut metrics, "get");
    insert(&mut metrics, "rate", Some(lookups / elapsed.as_secs_f64()));
    let reads = grown(&figures, &after, "reads_user").map(|reads| reads / lookups);
    insert(&mut metrics, "reads_per_lookup", reads);
    if let (Some(now), Some(before)) = (DeviceBytes::now(), process) {
        let bytes = now.since(before).read as f64 / lookups;
        insert(&mut metrics, "bytes_read_per_lookup", Some(bytes));
    }
    let misses = run.sizes.lookups / MISSES / THREADS * THREADS;
    let (elapsed, _) = together(THREADS, &|thread| miss(run, thread, misses / THREADS))?;
    insert(&mut metrics, "miss_rate", Some(misses as f64 / elapsed.as_secs_f64()));
    let missed = grown(&after, &run.store.figures()?, "reads_user");
    insert(&mut metrics, "reads_per_miss", missed.map(|reads| reads / misses as f64));
    Ok(metrics)
}

/// Looks keys up that were never written, all over those that were.
fn miss(run: &Run<'_>, thread: u64, count: u64) -> Result<Latencies> {
    for number in (0..count).map(|number| run.sizes.entries + number * THREADS + thread) {
        if run.store.get(&entry::key(number))?.is_some() {
            return Err(Error::Invalid(format!("entry {number} was never written")));
        }
    }
    Ok(Latencies::default())
}

/// Looks up `count` of the first `entries` keys in all, and says how long that took.
pub(super) fn read_all(
    run: &Run<'_>,
    round: u64,
    count: u64,
    entries: u64,
) -> Result<(Duration, Latencies)> {
    let seed = |reader| run.task.seed ^ ((round << 8) + reader + 1);
    together(THREADS, &|reader| read(run, seed(reader), count / THREADS, entries))
}

fn read(run: &Run<'_>, seed: u64, count: u64, entries: u64) -> Result<Latencies> {
    let mut latencies = Latencies::default();
    for (done, request) in (0..count).zip(uniform::lookups(seed, entries)) {
        let start = Instant::now();
        let found = run.store.get(&entry::key(request.number))?;
        latencies.record(start.elapsed());
        if found.is_none() {
            return Err(Error::Invalid(format!("entry {} is lost", request.number)));
        }
        if done % PROGRESS_EVERY == 0 {
            run.tell.progress(done, count);
        }
    }
    Ok(latencies)
}
