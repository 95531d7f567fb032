//! Writing on and on: what overwrite and mix have in common.
//!
//! The bytes written for a user byte swing with the merges that happen to fall into a window, so
//! that the window spans several periods of full merges, begins long after the load, and begins
//! and ends with compactions complete.

use std::time::Instant;

use esker_lab_measure::process::DeviceBytes;
use esker_lab_result::Metrics;
use esker_peers::Figures;
use esker_workload::Request;

use crate::Result;
use crate::stores::rows::{Run, grown, insert};

/// Counters at the beginning of a window.
#[derive(Debug)]
pub struct Counters {
    process: Option<DeviceBytes>,
    store: Figures,
}

impl Counters {
    /// Those of now, with the store's own.
    #[must_use]
    pub fn now(store: Figures) -> Self {
        Self { process: DeviceBytes::now(), store }
    }

    /// Adds what was written since then for each user byte: by the process, and by purpose where
    /// the store tells.
    pub fn written_since(&self, figures: &Figures, user_bytes: u64, metrics: &mut Metrics) {
        let per_byte = |bytes: f64| bytes / user_bytes.max(1) as f64;
        if let (Some(now), Some(before)) = (DeviceBytes::now(), self.process) {
            let written = now.since(before).written as f64;
            metrics.insert("written_per_byte".to_owned(), per_byte(written));
        }
        for name in figures.keys().filter(|name| name.starts_with("bytes_written_")) {
            let purpose = name.trim_start_matches("bytes_");
            let written = grown(&self.store, figures, name).map(per_byte);
            insert(metrics, &format!("{purpose}_per_byte"), written);
        }
        insert(metrics, "merges", grown(&self.store, figures, "merges"));
    }
}

/// Writes a warm-up and then what counts. `live_bytes` says what is there after the requests so
/// far.
pub(super) fn run<R: Iterator<Item = Request>>(
    run: &Run<'_>,
    mut requests: R,
    live_bytes: impl Fn(&R) -> u64,
) -> Result<Metrics> {
    run.write_all(requests.by_ref(), run.sizes.warm_up)?;
    run.store.wait_idle()?;
    run.store.persist()?;

    let before = Counters::now(run.store.figures()?);
    run.control.reset();
    run.peak.reset(&run.task.folder);
    let start = Instant::now();
    let user_bytes = run.write_all(requests.by_ref(), run.sizes.steady)?;
    let idle = run.store.wait_idle()?;
    let seconds = start.elapsed().saturating_sub(idle).as_secs_f64();
    run.store.persist()?;

    let peak_bytes = run.peak.bytes(&run.task.folder) as f64;
    let mut metrics = Metrics::from([
        ("rate".to_owned(), run.sizes.steady as f64 / seconds.max(1e-9)),
        ("peak_over_live".to_owned(), peak_bytes / live_bytes(&requests).max(1) as f64),
    ]);
    before.written_since(&run.store.figures()?, user_bytes, &mut metrics);
    insert(&mut metrics, "control_max_us", Some(run.control.longest_micros()));
    Ok(metrics)
}
