//! Puts by several threads; in this row buffered ones, by one thread, by four and by eight.
//!
//! Each number of threads makes the same number of overwrites in all. Nothing waits for compactions
//! in between, so that they continue during the puts of the next number of threads.

use std::time::{Duration, Instant};

use esker_lab_measure::latency::Latencies;
use esker_lab_result::Metrics;
use esker_peers::Durability;
use esker_workload::uniform::Overwrite;

use crate::Result;
use crate::stores::rows::together::together;
use crate::stores::rows::{PROGRESS_EVERY, Run, insert};

const THREADS: [u64; 3] = [1, 4, 8];

pub(super) fn run(run: &Run<'_>) -> Result<Metrics> {
    let mut metrics = Metrics::new();
    run.store.wait_idle()?;
    for threads in THREADS {
        let count = run.sizes.entries / threads;
        let (elapsed, latencies) = put_all(run, threads, count, Durability::Buffered)?;
        let rate = (count * threads) as f64 / elapsed.as_secs_f64();
        insert(&mut metrics, &format!("rate_{threads}"), Some(rate));
        latencies.summary().put_into(&mut metrics, &format!("put_{threads}"));
    }
    Ok(metrics)
}

/// Each of the threads makes `count` puts.
pub(super) fn put_all(
    run: &Run<'_>,
    threads: u64,
    count: u64,
    durability: Durability,
) -> Result<(Duration, Latencies)> {
    let seed = |writer| run.task.seed ^ ((threads << 8) + writer + 1);
    together(threads, &|writer| put(run, seed(writer), count, durability))
}

fn put(run: &Run<'_>, seed: u64, count: u64, durability: Durability) -> Result<Latencies> {
    let mut latencies = Latencies::default();
    for (done, request) in (0..count).zip(Overwrite::new(seed, run.sizes.entries)) {
        let start = Instant::now();
        run.write_with(request, durability)?;
        latencies.record(start.elapsed());
        if done % PROGRESS_EVERY == 0 {
            run.tell.progress(done, count);
        }
    }
    Ok(latencies)
}
