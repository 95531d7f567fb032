//! Single puts that return when the device has them: by one thread, then by eight together.

use std::time::{Duration, Instant};

use esker_lab_measure::latency::Latencies;
use esker_lab_result::Metrics;
use esker_peers::Durability;
use esker_workload::uniform::Overwrite;

use crate::Result;
use crate::stores::rows::together::together;
use crate::stores::rows::{Run, grown, insert};

pub(super) fn run(run: &Run<'_>) -> Result<Metrics> {
    let mut metrics = Metrics::new();
    for threads in [1u64, 8] {
        let count = run.sizes.durable_puts / threads * threads;
        let before = run.store.figures()?;
        let (elapsed, latencies) = put_all(run, threads, count / threads, Durability::Synced)?;
        let after = run.store.figures()?;
        let rate = count as f64 / elapsed.as_secs_f64();
        insert(&mut metrics, &format!("rate_{threads}"), Some(rate));
        let syncs = grown(&before, &after, "syncs_log").map(|syncs| syncs / count as f64);
        insert(&mut metrics, &format!("syncs_per_put_{threads}"), syncs);
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
        if done % 64 == 0 {
            run.tell.progress(done, count);
        }
    }
    Ok(latencies)
}
