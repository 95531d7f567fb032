//! Single puts that return when the device has them: by one thread, then by eight together.

use esker_lab_result::Metrics;
use esker_peers::Durability;

use crate::Result;
use crate::stores::rows::writers::put_all;
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
