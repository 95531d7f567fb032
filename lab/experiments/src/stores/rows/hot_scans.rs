//! Scans of 100 entries that all begin in a tenth of the keys, beside overwrites of any key.
//!
//! One thread does both in turn, so that every system has the same requests in the same order.
//! The rate is that of scans by the time spent in scans; what merges take from them is in it.

use std::time::{Duration, Instant};

use esker_lab_measure::latency::Latencies;
use esker_lab_result::Metrics;
use esker_workload::entry::KEY_BYTES;
use esker_workload::random::Random;
use esker_workload::uniform::Overwrite;

use crate::stores::rows::scans::{SCAN_ENTRIES, WARM_UP_SHARE};
use crate::stores::rows::steady::Counters;
use crate::stores::rows::{Run, insert, user_bytes_of};
use crate::{Error, Result};

/// Overwrites between two scans.
const WRITES: usize = 50;
/// The share of the keys in which scans begin: the first of so many parts.
const PARTS: u64 = 10;
/// The seed of the scans differs from that of the overwrites.
const SCANS: u64 = 0x0068_6f74;

pub(super) fn run(run: &Run<'_>) -> Result<Metrics> {
    let mut requests = Requests::new(run);
    let warm_up = run.sizes.scans / WARM_UP_SHARE;
    requests.perform(run, warm_up)?;
    let before = Counters::now(run.store.figures()?);
    run.control.reset();
    let done = requests.perform(run, run.sizes.scans)?;
    run.store.wait_idle()?;
    run.store.persist()?;
    let mut metrics = Metrics::new();
    before.written_since(&run.store.figures()?, done.user_bytes, &mut metrics);
    done.scans.summary().put_into(&mut metrics, "scan");
    insert(&mut metrics, "rate", Some(run.sizes.scans as f64 / done.scanning.as_secs_f64()));
    insert(&mut metrics, "seconds", Some(done.elapsed.as_secs_f64()));
    insert(&mut metrics, "control_max_us", Some(run.control.longest_micros()));
    Ok(metrics)
}

/// The requests of a run, from where the last ones ended.
struct Requests {
    writes: Overwrite,
    scans: Random,
}

/// What some of them took.
#[derive(Default)]
struct Done {
    user_bytes: u64,
    scans: Latencies,
    scanning: Duration,
    elapsed: Duration,
}

impl Requests {
    const fn new(run: &Run<'_>) -> Self {
        Self {
            writes: Overwrite::new(run.task.seed, run.sizes.entries),
            scans: Random::new(run.task.seed ^ SCANS),
        }
    }

    fn perform(&mut self, run: &Run<'_>, scans: u64) -> Result<Done> {
        let mut done = Done::default();
        let start = Instant::now();
        for number in 0..scans {
            for request in self.writes.by_ref().take(WRITES) {
                run.write(request)?;
                done.user_bytes += user_bytes_of(request);
            }
            let first = hot_key(self.scans.below(u64::MAX / PARTS));
            let before = Instant::now();
            let seen = run.store.scan(&first, SCAN_ENTRIES)?;
            let took = before.elapsed();
            if seen < SCAN_ENTRIES {
                return Err(Error::Invalid(format!("a scan found {seen} entries")));
            }
            done.scans.record(took);
            done.scanning += took;
            if number % 16 == 0 {
                run.tell.progress(number, scans);
            }
        }
        done.elapsed = start.elapsed();
        Ok(done)
    }
}

/// The least key whose first eight bytes are these.
fn hot_key(first: u64) -> [u8; KEY_BYTES] {
    (u128::from(first) << 64).to_be_bytes()
}
