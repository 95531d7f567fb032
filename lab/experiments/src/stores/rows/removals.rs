//! A time series whose oldest part is removed by range while new entries arrive, then a queue.
//!
//! The series holds as many entries as the load. Fifty times a fiftieth is appended and the
//! oldest fiftieth removed by one range; then the first entry is read, which has to pass what was
//! removed. The queue holds 5,000 entries, through which 20,000 go, one at a time: the first is
//! found and removed, and one is appended.

use std::time::Instant;

use esker_lab_measure::latency::Latencies;
use esker_lab_result::Metrics;
use esker_peers::Durability;
use esker_workload::entry;

use crate::stores::rows::{PROGRESS_EVERY, Run, insert, steady, user_bytes_of};
use crate::{Error, Result};
use esker_workload::Request;

/// The series is removed in so many parts.
const PARTS: u64 = 50;
/// Entries of a queue, and those that go through it.
const QUEUE: u64 = 5_000;
const PASSING: u64 = 20_000;

pub(super) fn run(run: &Run<'_>) -> Result<Metrics> {
    let part = (run.sizes.entries / PARTS).max(1);
    let entries = part * PARTS;
    append(run, 0, entries)?;
    run.store.wait_idle()?;
    let before = steady::Counters::now(run.store.figures()?);
    run.peak.reset(&run.task.folder);
    let (mut removals, mut firsts) = (Latencies::default(), Latencies::default());
    for number in 0..PARTS {
        append(run, entries + number * part, part)?;
        let oldest = entry::ordered_key((number + 1) * part);
        let start = Instant::now();
        run.store.remove_range(&[], &oldest)?;
        removals.record(start.elapsed());
        let start = Instant::now();
        let seen = run.store.scan(&[], 1)?;
        firsts.record(start.elapsed());
        if seen != 1 {
            return Err(Error::Invalid("the series has no first entry".to_owned()));
        }
        run.tell.progress(number, PARTS);
    }
    let peak_bytes = run.peak.bytes(&run.task.folder) as f64;
    run.store.wait_idle()?;
    run.store.persist()?;
    let user_bytes = entries * user_bytes_of(Request::put(0, 0));
    let mut metrics =
        Metrics::from([("peak_over_live".to_owned(), peak_bytes / user_bytes as f64)]);
    before.written_since(&run.store.figures()?, user_bytes, &mut metrics);
    removals.summary().put_into(&mut metrics, "remove");
    firsts.summary().put_into(&mut metrics, "first");
    run.store.remove_range(&[], &[0xff; 17])?;
    queue(run, &mut metrics)?;
    Ok(metrics)
}

fn append(run: &Run<'_>, first: u64, count: u64) -> Result<()> {
    for number in first..first + count {
        let value = entry::value(run.task.seed, number, 0);
        run.store.put(&entry::ordered_key(number), &value, Durability::Buffered)?;
        if number % PROGRESS_EVERY == 0 {
            run.tell.progress(number - first, count);
        }
    }
    Ok(())
}

fn queue(run: &Run<'_>, metrics: &mut Metrics) -> Result<()> {
    append(run, 0, QUEUE)?;
    let (mut firsts, start) = (Latencies::default(), Instant::now());
    for number in 0..PASSING {
        let before = Instant::now();
        let seen = run.store.scan(&[], 1)?;
        firsts.record(before.elapsed());
        if seen != 1 {
            return Err(Error::Invalid("the queue has no first entry".to_owned()));
        }
        run.store.delete(&entry::ordered_key(number))?;
        append(run, QUEUE + number, 1)?;
    }
    insert(metrics, "queue_rate", Some(PASSING as f64 / start.elapsed().as_secs_f64()));
    firsts.summary().put_into(metrics, "queue_first");
    Ok(())
}
