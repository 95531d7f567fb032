//! The space that a full merge adds on the device while a scan is held open, without concurrent
//! writes: everything added is the merge's.

use std::time::Instant;

use esker_lab_result::Metrics;

use crate::Result;
use crate::stores::rows::Run;

pub(super) fn run(run: &Run<'_>) -> Result<Metrics> {
    run.store.wait_idle()?;
    let held = run.store.hold_scan(run.sizes.entries / 2)?;
    let before_bytes = run.peak.reset(&run.task.folder);
    let start = Instant::now();
    run.store.compact()?;
    let seconds = start.elapsed().as_secs_f64();
    let peak_bytes = run.peak.bytes(&run.task.folder);
    drop(held);
    let mut metrics = summary(before_bytes, peak_bytes);
    metrics.insert("merge_seconds".to_owned(), seconds);
    Ok(metrics)
}

fn summary(before_bytes: u64, peak_bytes: u64) -> Metrics {
    let added = peak_bytes.saturating_sub(before_bytes) as f64;
    Metrics::from([
        ("before_bytes".to_owned(), before_bytes as f64),
        ("added_over_data".to_owned(), added / before_bytes.max(1) as f64),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_a_share_of_what_was_there() {
        assert_eq!(summary(400, 500)["added_over_data"], 0.25);
        assert_eq!(summary(400, 300)["added_over_data"], 0.0);
    }
}
