//! Overwrites at a high even rate, and lookups beside them, by a schedule that does not wait for
//! the store.
//!
//! A request's latency counts from the time at which it was due. The store merges as its writes
//! require it meanwhile; the window is long enough for several of its merges.

use std::thread;
use std::time::Duration;

use esker_lab_measure::arrivals::Window;
use esker_lab_measure::background::joined;
use esker_lab_result::Metrics;

use crate::stores::rows::streams::{ending, look_up, put_into, write};
use crate::stores::rows::{Run, insert};
use crate::{Error, Result};

/// Puts a second.
const PUTS: f64 = 80_000.0;
/// Puts in all, for each entry of the store.
const PUTS_PER_ENTRY: f64 = 2.0;
/// Pauses between two reports of progress.
const PAUSES: u64 = 100;

pub(super) fn run(run: &Run<'_>) -> Result<Metrics> {
    run.store.wait_idle()?;
    let length = Duration::from_secs_f64(run.sizes.entries as f64 * PUTS_PER_ENTRY / PUTS);
    let window = Window::default();
    let (writes, lookups) = thread::scope(|scope| {
        let writes = scope.spawn(|| ending(&window, write(run, PUTS, &window)));
        let lookups = scope.spawn(|| ending(&window, look_up(run, &window)));
        thread::sleep(run.sizes.lead_in);
        run.control.reset();
        window.begin();
        for pause in (0..PAUSES).take_while(|_| window.ended().is_none()) {
            thread::sleep(length / PAUSES as u32);
            run.tell.progress(pause + 1, PAUSES);
        }
        window.end();
        Ok::<_, Error>((joined(writes)?, joined(lookups)?))
    })?;
    let mut metrics = Metrics::new();
    put_into(&mut metrics, &writes, &lookups);
    insert(&mut metrics, "control_max_us", Some(run.control.longest_micros()));
    Ok(metrics)
}
