//! Writes and lookups while a full merge runs.
//!
//! One thread asks for a full merge of the loaded store; another overwrites at a given rate and a
//! third looks up at a modest one, both by a schedule that does not wait for the store. A scan
//! that has read half of the entries is held open, where the store can merge during a scan. Only
//! requests that were due between the merge's beginning and its end count. The space added includes
//! what the writes add; [`merge_space`](super::merge_space) has the merge alone.

use std::thread;
use std::time::{Duration, Instant};

use esker_lab_measure::arrivals::{Driven, Window};
use esker_lab_measure::background::joined;
use esker_lab_result::Metrics;

use crate::stores::rows::streams::{ending, look_up, put_into, write};
use crate::stores::rows::{Run, insert};
use crate::{Error, Result};

pub(super) fn run(run: &Run<'_>) -> Result<Metrics> {
    let half = run.sizes.entries / 2;
    let held = match run.store.compacts_during_scans() {
        true => Some(run.store.hold_scan(half)?),
        false => None,
    };
    let window = Window::default();
    let outcome = thread::scope(|scope| {
        let writes = scope.spawn(|| ending(&window, write(run, run.task.rate, &window)));
        let lookups = scope.spawn(|| ending(&window, look_up(run, &window)));
        thread::sleep(run.sizes.lead_in);
        run.control.reset();
        let before_bytes = run.peak.reset(&run.task.folder);
        window.begin();
        let start = Instant::now();
        let merged = run.store.compact();
        let merging = start.elapsed();
        window.end();
        let peak_bytes = run.peak.bytes(&run.task.folder);
        let gap = run.control.longest_micros();
        let (writes, lookups) = (joined(writes)?, joined(lookups)?);
        merged?;
        let space = (before_bytes, peak_bytes);
        Ok::<_, Error>(Outcome { merging, space, control_max_us: gap, writes, lookups })
    })?;
    let mut metrics = outcome.summary(run.sizes.live_bytes());
    insert(&mut metrics, "scan_held", Some(f64::from(u8::from(held.is_some()))));
    insert(&mut metrics, "put_rate_asked", Some(run.task.rate));
    drop(held);
    Ok(metrics)
}

/// The results of a run.
struct Outcome {
    merging: Duration,
    /// Bytes just before, and at most during it.
    space: (u64, u64),
    control_max_us: f64,
    writes: Driven,
    lookups: Driven,
}

impl Outcome {
    fn summary(&self, live_bytes: u64) -> Metrics {
        let (before, peak) = self.space;
        let added = peak.saturating_sub(before) as f64;
        let mut metrics = Metrics::from([
            ("merge_seconds".to_owned(), self.merging.as_secs_f64()),
            ("merged_bytes".to_owned(), live_bytes as f64),
            ("control_max_us".to_owned(), self.control_max_us),
            ("added_over_data".to_owned(), added / before.max(1) as f64),
        ]);
        put_into(&mut metrics, &self.writes, &self.lookups);
        metrics
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_of_what_happened() {
        let mut writes = Driven { abandoned: 2, ..Driven::default() };
        writes.latencies.record(Duration::from_micros(7));
        let outcome = Outcome {
            merging: Duration::from_millis(500),
            space: (200, 230),
            control_max_us: 9.0,
            writes,
            lookups: Driven::default(),
        };
        let metrics = outcome.summary(1000);
        assert_eq!(metrics["merge_seconds"], 0.5);
        assert_eq!(metrics["added_over_data"], 0.15);
        assert_eq!((metrics["put_max_us"], metrics["put_samples"]), (7.0, 1.0));
        assert_eq!((metrics["put_abandoned"], metrics["get_samples"]), (2.0, 0.0));
    }
}
