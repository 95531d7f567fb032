//! Streams of overwrites and of lookups, by a schedule that does not wait for the store.

use std::time::Instant;

use esker_lab_measure::arrivals::{Driven, PATIENCE, Schedule, Window, drive};
use esker_lab_result::Metrics;
use esker_workload::{entry, uniform};

use crate::stores::rows::Run;
use crate::{Error, Result};

/// Seeds of the two streams differ from each other and from that of the load.
const WRITES: u64 = 0x0077_7269_7465;
const LOOKUPS: u64 = 0x6c6f_6f6b;

/// Ends the window when a stream failed, so that the other stream does not run for ever.
pub(super) fn ending<T>(window: &Window, result: Result<T>) -> Result<T> {
    if result.is_err() {
        window.end();
    }
    result
}

/// Overwrites at `rate` a second.
pub(super) fn write(run: &Run<'_>, rate: f64, window: &Window) -> Result<Driven> {
    let schedule = Schedule::new(Instant::now(), rate);
    let mut requests = uniform::Overwrite::new(run.task.seed ^ WRITES, run.sizes.entries);
    drive(&schedule, window, PATIENCE, |_| requests.next().map_or(Ok(()), |put| run.write(put)))
}

/// Looks keys up that are there.
pub(super) fn look_up(run: &Run<'_>, window: &Window) -> Result<Driven> {
    let schedule = Schedule::new(Instant::now(), run.sizes.lookup_rate);
    let mut requests = uniform::lookups(run.task.seed ^ LOOKUPS, run.sizes.entries);
    drive(&schedule, window, PATIENCE, |_| {
        let Some(request) = requests.next() else { return Ok(()) };
        match run.store.get(&entry::key(request.number))? {
            Some(_) => Ok(()),
            None => Err(Error::Invalid(format!("entry {} is lost", request.number))),
        }
    })
}

/// Puts the results of both into `metrics`.
pub(super) fn put_into(metrics: &mut Metrics, writes: &Driven, lookups: &Driven) {
    for (what, driven) in [("put", writes), ("get", lookups)] {
        driven.latencies.summary().put_into(metrics, what);
        metrics.insert(format!("{what}_abandoned"), driven.abandoned as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_stream_ends_the_window() {
        let window = Window::default();
        assert!(ending(&window, Ok(())).is_ok() && window.ended().is_none());
        let failed = ending::<()>(&window, Err(Error::Interrupted));
        assert!(failed.is_err() && window.ended().is_some());
    }
}
