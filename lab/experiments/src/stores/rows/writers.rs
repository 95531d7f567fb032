//! Buffered puts by one thread, by four and by eight: whether threads that write keep each other
//! from it.
//!
//! Each number of threads makes as many overwrites in all, and compactions that are left are not
//! waited for before the next: all numbers of threads have what the one before left.

use esker_lab_result::Metrics;
use esker_peers::Durability;

use crate::Result;
use crate::stores::rows::{Run, durable, insert};

const THREADS: [u64; 3] = [1, 4, 8];

pub(super) fn run(run: &Run<'_>) -> Result<Metrics> {
    let mut metrics = Metrics::new();
    run.store.wait_idle()?;
    for threads in THREADS {
        let count = run.sizes.entries / threads;
        let (elapsed, latencies) = durable::put_all(run, threads, count, Durability::Buffered)?;
        let rate = (count * threads) as f64 / elapsed.as_secs_f64();
        insert(&mut metrics, &format!("rate_{threads}"), Some(rate));
        latencies.summary().put_into(&mut metrics, &format!("put_{threads}"));
    }
    Ok(metrics)
}
