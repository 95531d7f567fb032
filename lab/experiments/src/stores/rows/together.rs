//! Threads that begin together.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use esker_lab_measure::background::joined;
use esker_lab_measure::latency::Latencies;

use crate::Result;

/// Calls `each` in that many threads with the number of the thread, and says how long it took
/// until the last one was done.
pub(super) fn together(
    threads: u64,
    each: &(dyn Fn(u64) -> Result<Latencies> + Sync),
) -> Result<(Duration, Latencies)> {
    let start_line = Barrier::new(threads as usize + 1);
    thread::scope(|scope| {
        let started: Vec<_> = (0..threads)
            .map(|number| {
                let start_line = &start_line;
                scope.spawn(move || {
                    start_line.wait();
                    each(number)
                })
            })
            .collect();
        start_line.wait();
        let start = Instant::now();
        let mut latencies = Latencies::default();
        for thread in started {
            latencies.add(&joined(thread)?);
        }
        Ok((start.elapsed(), latencies))
    })
}
