//! Range deletes: the oldest part of a time series, then ranges that do not touch. Then a queue.
//!
//! The series holds as many entries as the load. Fifty times a fiftieth is appended and the
//! oldest fiftieth removed by one range; then the first entry is read, which has to pass what was
//! removed. Then 3,000 ranges are removed that do not touch, with a put before each. The queue
//! holds 5,000 entries, through which 20,000 go, one at a time: the first is found and removed, and
//! one is appended.

use std::time::Instant;

use esker_lab_measure::latency::Latencies;
use esker_lab_result::Metrics;
use esker_peers::Durability;
use esker_workload::entry::{self, ENTRY_BYTES};

use crate::stores::rows::{PROGRESS_EVERY, Run, grown, insert, steady};
use crate::{Error, Result};

/// The series is removed in so many parts.
const PARTS: u64 = 50;
/// Ranges that do not touch.
const APART: u64 = 3_000;
/// Entries of a queue, and those that go through it.
const QUEUE: u64 = 5_000;
const PASSING: u64 = 20_000;
/// Greater than every key.
const BEHIND_ALL: [u8; 17] = [0xff; 17];

pub(super) fn run(run: &Run<'_>) -> Result<Metrics> {
    let mut metrics = Metrics::new();
    series(run, &mut metrics)?;
    run.store.remove_range(&[], &BEHIND_ALL)?;
    apart(run, &mut metrics)?;
    run.store.remove_range(&[], &BEHIND_ALL)?;
    queue(run, &mut metrics)?;
    Ok(metrics)
}

fn series(run: &Run<'_>, metrics: &mut Metrics) -> Result<()> {
    let part = (run.sizes.entries / PARTS).max(1);
    let entries = part * PARTS;
    append(run, 0, entries)?;
    run.store.wait_idle()?;
    let figures = run.store.figures()?;
    let before = steady::Counters::now(figures.clone());
    run.peak.reset(&run.task.folder);
    let (mut removals, mut firsts) = (Latencies::default(), Latencies::default());
    for number in 0..PARTS {
        append(run, entries + number * part, part)?;
        let oldest = entry::ordered_key((number + 1) * part);
        let start = Instant::now();
        run.store.remove_range(&[], &oldest)?;
        removals.record(start.elapsed());
        find_first(run, &mut firsts)?;
        run.tell.progress(number, PARTS);
    }
    let peak_bytes = run.peak.bytes(&run.task.folder) as f64;
    let reads = grown(&figures, &run.store.figures()?, "reads_user");
    insert(metrics, "reads_per_first", reads.map(|reads| reads / PARTS as f64));
    run.store.wait_idle()?;
    run.store.persist()?;
    let user_bytes = entries * ENTRY_BYTES;
    insert(metrics, "peak_over_live", Some(peak_bytes / user_bytes as f64));
    before.written_since(&run.store.figures()?, user_bytes, metrics);
    removals.summary().put_into(metrics, "remove");
    firsts.summary().put_into(metrics, "first");
    Ok(())
}

fn apart(run: &Run<'_>, metrics: &mut Metrics) -> Result<()> {
    let entries = (run.sizes.entries / 10).max(4 * APART);
    let part = entries / APART;
    append(run, 0, entries)?;
    let mut removals = Latencies::default();
    for number in 0..APART {
        append(run, entries + number, 1)?;
        let [from, to] = [number * part, (number + 1) * part - 1].map(entry::ordered_key);
        let start = Instant::now();
        run.store.remove_range(&from, &to)?;
        removals.record(start.elapsed());
    }
    removals.summary().put_into(metrics, "apart");
    Ok(())
}

fn find_first(run: &Run<'_>, firsts: &mut Latencies) -> Result<()> {
    let start = Instant::now();
    let seen = run.store.scan(&[], 1)?;
    firsts.record(start.elapsed());
    if seen == 1 { Ok(()) } else { Err(Error::Invalid("there is no first entry".to_owned())) }
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
        find_first(run, &mut firsts)?;
        run.store.delete(&entry::ordered_key(number))?;
        append(run, QUEUE + number, 1)?;
    }
    insert(metrics, "queue_rate", Some(PASSING as f64 / start.elapsed().as_secs_f64()));
    firsts.summary().put_into(metrics, "queue_first");
    Ok(())
}
