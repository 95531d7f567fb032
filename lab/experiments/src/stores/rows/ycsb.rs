//! YCSB's workloads A to F, in the order A, B, C, F, D, E, by two threads on one store.
//!
//! Records are those of the load, or of 1,000 bytes, of which as many bytes are loaded first.
//! Each workload runs to the end of its requests; what compactions take from it is in its rate.

use std::time::{Duration, Instant};

use esker_lab_measure::latency::Latencies;
use esker_lab_result::Metrics;
use esker_peers::Durability;
use esker_workload::entry::{self, ENTRY_BYTES, KEY_BYTES};
use esker_workload::uniform;
use esker_workload::ycsb::{Request, Requests, Workload, Zipf};

use crate::stores::rows::together::together;
use crate::stores::rows::{PROGRESS_EVERY, Run, grown, insert};
use crate::{Error, Result};

const THREADS: u64 = 2;

/// Runs the workloads on the store that was loaded.
pub(super) fn run(run: &Run<'_>) -> Result<Metrics> {
    Records { run, entries: run.sizes.entries, value_bytes: entry::VALUE_BYTES }.all()
}

/// Loads records with values of `value_bytes`, as many bytes as the load has, and runs them.
pub(super) fn run_with_values(run: &Run<'_>, value_bytes: usize) -> Result<Metrics> {
    let entries = (run.sizes.entries * ENTRY_BYTES / (KEY_BYTES + value_bytes) as u64).max(2);
    let records = Records { run, entries, value_bytes };
    for (done, request) in (0..entries).zip(uniform::load(entries)) {
        records.put(request.number, request.version)?;
        if done % PROGRESS_EVERY == 0 {
            run.tell.progress(done, entries);
        }
    }
    records.all()
}

struct Records<'a> {
    run: &'a Run<'a>,
    entries: u64,
    value_bytes: usize,
}

impl Records<'_> {
    fn all(&self) -> Result<Metrics> {
        self.run.store.wait_idle()?;
        let (zipf, mut metrics) = (Zipf::new(self.entries), Metrics::new());
        for workload in Workload::ALL {
            let name = workload.as_str();
            let count = self.count(workload);
            let before = self.run.store.figures()?;
            let (elapsed, latencies) = self.perform(workload, zipf, count)?;
            let after = self.run.store.figures()?;
            let reads = grown(&before, &after, "reads_user").map(|reads| reads / count as f64);
            insert(&mut metrics, &format!("{name}_rate"), rate(count, elapsed));
            insert(&mut metrics, &format!("{name}_reads"), reads);
            latencies.summary().put_into(&mut metrics, name);
        }
        Ok(metrics)
    }

    /// The requests of a workload: as many as lookups, or scans, of the other rows.
    const fn count(&self, workload: Workload) -> u64 {
        let sizes = &self.run.sizes;
        let count = if matches!(workload, Workload::E) { sizes.scans } else { sizes.lookups };
        count / THREADS * THREADS
    }

    /// What `count` requests took.
    fn perform(&self, of: Workload, zipf: Zipf, count: u64) -> Result<(Duration, Latencies)> {
        together(THREADS, &|thread| {
            let seed = self.run.task.seed ^ (1 + thread) << 32;
            let requests = Requests::new(of, zipf, (thread, THREADS), seed);
            self.perform_in_turn(requests, count / THREADS)
        })
    }

    fn perform_in_turn(&self, requests: Requests, count: u64) -> Result<Latencies> {
        let mut latencies = Latencies::default();
        for (done, request) in (0..count).zip(requests) {
            let start = Instant::now();
            self.perform_one(request)?;
            latencies.record(start.elapsed());
            if done % PROGRESS_EVERY == 0 {
                self.run.tell.progress(done, count);
            }
        }
        Ok(latencies)
    }

    fn perform_one(&self, request: Request) -> Result<()> {
        match request {
            Request::Lookup(number) => self.get(number),
            Request::Update(number, version) => self.put(number, version),
            Request::Insert(number) => self.put(number, 0),
            Request::Scan(number, entries) => {
                self.run.store.scan(&entry::key(number), entries)?;
                Ok(())
            }
            Request::Modify(number, version) => {
                self.get(number)?;
                self.put(number, version)
            }
        }
    }

    fn get(&self, number: u64) -> Result<()> {
        let found = self.run.store.get(&entry::key(number))?;
        match found {
            Some(value) if value.len() == self.value_bytes => Ok(()),
            _ => Err(Error::Invalid(format!("record {number} is lost"))),
        }
    }

    fn put(&self, number: u64, version: u64) -> Result<()> {
        let mut value = vec![0; self.value_bytes];
        entry::fill_value(&mut value, self.run.task.seed, number, version);
        Ok(self.run.store.put(&entry::key(number), &value, Durability::Buffered)?)
    }
}

fn rate(count: u64, elapsed: Duration) -> Option<f64> {
    Some(count as f64 / elapsed.as_secs_f64())
}
