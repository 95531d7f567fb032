//! Random load by one writer into an empty store, until nothing is left to merge.
//!
//! The rate includes the wait at the end, so that deferred work counts. Bytes written are those of
//! the process, log included, from the first put until every compaction is complete and durable.

use std::time::{Duration, Instant};

use esker_lab_result::Metrics;
use esker_workload::uniform;

use crate::Result;
use crate::stores::rows::{Run, insert, steady};

pub(super) fn run(run: &Run<'_>) -> Result<Metrics> {
    let before = steady::Counters::now(run.store.figures()?);
    run.peak.reset(&run.task.folder);
    let start = Instant::now();
    let user_bytes = run.write_all(uniform::load(run.sizes.entries), run.sizes.entries)?;
    let putting = start.elapsed();
    let idle = run.store.wait_idle()?;
    let total = start.elapsed().saturating_sub(idle);
    run.store.persist()?;
    let peak_bytes = run.peak.bytes(&run.task.folder);

    let mut metrics = summary(run.sizes.entries, putting, total, peak_bytes, user_bytes);
    before.written_since(&run.store.figures()?, user_bytes, &mut metrics);
    insert(&mut metrics, "control_max_us", Some(run.control.longest_micros()));
    Ok(metrics)
}

fn summary(
    entries: u64,
    putting: Duration,
    total: Duration,
    peak_bytes: u64,
    user_bytes: u64,
) -> Metrics {
    let rate = |time: Duration| entries as f64 / time.as_secs_f64().max(1e-9);
    Metrics::from([
        ("rate".to_owned(), rate(total)),
        ("put_rate".to_owned(), rate(putting)),
        ("peak_over_live".to_owned(), peak_bytes as f64 / user_bytes.max(1) as f64),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_at_the_end_counts() {
        let (putting, total) = (Duration::from_secs(2), Duration::from_secs(4));
        let metrics = summary(1000, putting, total, 150, 100);
        assert_eq!(metrics["rate"], 250.0);
        assert_eq!(metrics["put_rate"], 500.0);
        assert_eq!(metrics["peak_over_live"], 1.5);
    }
}
