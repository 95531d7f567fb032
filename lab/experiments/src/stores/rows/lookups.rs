//! Random lookups of keys that are there, by two threads that do nothing else; then some of keys
//! that are not there, for what these read.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use esker_lab_measure::background::joined;
use esker_lab_measure::latency::Latencies;
use esker_lab_measure::process::DeviceBytes;
use esker_lab_result::Metrics;
use esker_workload::{entry, uniform};

use crate::stores::rows::{PROGRESS_EVERY, Run, grown, insert};
use crate::{Error, Result};

const THREADS: u64 = 2;
/// The number of other lookups for each lookup of an absent key.
const MISSES: u64 = 4;

pub(super) fn run(run: &Run<'_>) -> Result<Metrics> {
    run.store.wait_idle()?;
    read_all(run, 1, run.sizes.lookups_warm_up)?;
    let (figures, process) = (run.store.figures()?, DeviceBytes::now());
    run.control.reset();
    let (elapsed, latencies) = read_all(run, 2, run.sizes.lookups)?;
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
    let misses = run.sizes.lookups / MISSES;
    miss(run, misses)?;
    let missed = grown(&after, &run.store.figures()?, "reads_user");
    insert(&mut metrics, "reads_per_miss", missed.map(|reads| reads / misses as f64));
    Ok(metrics)
}

/// Looks keys up that were never written, all over those that were.
fn miss(run: &Run<'_>, count: u64) -> Result<()> {
    for number in (run.sizes.entries..).take(usize::try_from(count).unwrap_or(usize::MAX)) {
        if run.store.get(&entry::key(number))?.is_some() {
            return Err(Error::Invalid(format!("entry {number} was never written")));
        }
    }
    Ok(())
}

/// Looks up `count` keys in all, and says how long that took.
fn read_all(run: &Run<'_>, round: u64, count: u64) -> Result<(Duration, Latencies)> {
    let together = Barrier::new(THREADS as usize + 1);
    thread::scope(|scope| {
        let readers: Vec<_> = (0..THREADS)
            .map(|reader| {
                let together = &together;
                let seed = run.task.seed ^ ((round << 8) + reader + 1);
                scope.spawn(move || {
                    together.wait();
                    read(run, seed, count / THREADS)
                })
            })
            .collect();
        together.wait();
        let start = Instant::now();
        let mut latencies = Latencies::default();
        for reader in readers {
            latencies.add(&joined(reader)?);
        }
        Ok((start.elapsed(), latencies))
    })
}

fn read(run: &Run<'_>, seed: u64, count: u64) -> Result<Latencies> {
    let mut latencies = Latencies::default();
    for (done, request) in (0..count).zip(uniform::lookups(seed, run.sizes.entries)) {
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
