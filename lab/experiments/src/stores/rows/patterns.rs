//! Bytes written where values are longer than those of the load, or keys have neighbours.
//!
//! Each row begins with an empty store, loads as many bytes as the load does, and goes on writing:
//! as many requests to warm up and twice as many to count, compactions complete before and after.
//! Where values are longer, what they then take is measured, and lookups and scans of 10,000.

use esker_lab_measure::space::occupied_bytes;
use esker_lab_result::Metrics;
use esker_peers::Durability;
use esker_workload::entry::{self, ENTRY_BYTES, KEY_BYTES};
use esker_workload::law::Law;
use esker_workload::steady::Steady;
use esker_workload::uniform::{self, Overwrite};
use esker_workload::{Kind, Request};

use crate::Result;
use crate::stores::rows::scans::LONG_ENTRIES;
use crate::stores::rows::{PROGRESS_EVERY, Run, grown, insert, lookups, scans, steady};

/// Keys around a mean that moves: σ is half a percent of all keys; 10,000 are drawn around each.
const MOVING: Law = Law::Normal { sigma: 0.005, group: 10_000 };

/// Of the lookups and the scans of the rows that read alone, a share.
const LOOKUP_SHARE: u64 = 4;
const SCAN_SHARE: u64 = 200;

/// The size of values, and the order in which entries come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    value_bytes: usize,
    order: Order,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// No two neighbouring requests have neighbouring keys; then they are overwritten at random.
    Scattered,
    /// Each key is greater than the one before it; overwriting begins with the least one again.
    Ascending,
    /// Keys near a mean that moves; then alternating insertions and deletions (G_N).
    Moving,
}

impl Pattern {
    /// Keys in their order, with the values of the load.
    pub const SEQUENTIAL: Self = Self { value_bytes: entry::VALUE_BYTES, order: Order::Ascending };
    /// Normal keys, with the values of the load.
    pub const MOVING: Self = Self { value_bytes: entry::VALUE_BYTES, order: Order::Moving };

    /// Values of `value_bytes` bytes.
    #[must_use]
    pub const fn scattered(value_bytes: usize) -> Self {
        Self { value_bytes, order: Order::Scattered }
    }

    const fn entry_bytes(&self) -> u64 {
        (KEY_BYTES + self.value_bytes) as u64
    }

    fn key(&self, number: u64) -> [u8; KEY_BYTES] {
        match self.order {
            Order::Scattered => entry::key(number),
            Order::Ascending | Order::Moving => entry::ordered_key(number),
        }
    }

    /// The load, and what comes after it, without end.
    fn requests(&self, seed: u64, entries: u64) -> Box<dyn Iterator<Item = Request>> {
        match self.order {
            Order::Scattered => {
                Box::new(uniform::load(entries).chain(Overwrite::new(seed, entries)))
            }
            Order::Ascending => {
                let pass =
                    move |version| (0..entries).map(move |number| Request::put(number, version));
                Box::new((0..).flat_map(pass))
            }
            Order::Moving => Box::new(Steady::new(seed, MOVING, entries)),
        }
    }
}

pub(super) fn run(run: &Run<'_>, pattern: &Pattern) -> Result<Metrics> {
    let entries = (run.sizes.entries * ENTRY_BYTES / pattern.entry_bytes()).max(1);
    let mut requests = pattern.requests(run.task.seed, entries);
    let mut metrics = Metrics::new();
    let loaded = written(run, pattern, &mut requests, entries)?;
    add(&mut metrics, "load", loaded);
    written(run, pattern, &mut requests, entries)?;
    run.peak.reset(&run.task.folder);
    let steady = written(run, pattern, &mut requests, 2 * entries)?;
    add(&mut metrics, "overwrite", steady);
    if pattern.order == Order::Scattered {
        let over = |bytes: u64| Some(bytes as f64 / (entries * pattern.entry_bytes()) as f64);
        insert(&mut metrics, "peak_over_live", over(run.peak.bytes(&run.task.folder)));
        insert(&mut metrics, "settled_over_live", over(occupied_bytes(&run.task.folder)));
        read(run, entries, &mut metrics)?;
    }
    Ok(metrics)
}

/// Lookups by two threads, and scans by one, each after some that do not count.
fn read(run: &Run<'_>, entries: u64, metrics: &mut Metrics) -> Result<()> {
    let lookups = run.sizes.lookups / LOOKUP_SHARE;
    lookups::read_all(run, 1, lookups, entries)?;
    let before = run.store.figures()?;
    let (elapsed, latencies) = lookups::read_all(run, 2, lookups, entries)?;
    let reads = grown(&before, &run.store.figures()?, "reads_user");
    insert(metrics, "reads_per_lookup", reads.map(|reads| reads / lookups as f64));
    insert(metrics, "get_rate", Some(lookups as f64 / elapsed.as_secs_f64()));
    latencies.summary().put_into(metrics, "get");
    let scans = (run.sizes.scans / SCAN_SHARE).max(1);
    let scan_entries = LONG_ENTRIES.min(entries / 20);
    let (elapsed, _) = scans::scan_all(run, 1, (scan_entries, entries), scans)?;
    insert(metrics, "long_scan_rate", Some(scans as f64 / elapsed.as_secs_f64()));
    Ok(())
}

/// Does a number of requests and completes compactions: what was written for each user byte.
fn written(
    run: &Run<'_>,
    pattern: &Pattern,
    requests: &mut dyn Iterator<Item = Request>,
    count: u64,
) -> Result<Metrics> {
    let before = steady::Counters::now(run.store.figures()?);
    let mut value = vec![0; pattern.value_bytes];
    let mut user_bytes = 0;
    for (done, request) in (0..count).zip(requests) {
        let key = pattern.key(request.number);
        if request.kind == Kind::Delete {
            run.store.delete(&key)?;
            user_bytes += KEY_BYTES as u64;
        } else {
            entry::fill_value(&mut value, run.task.seed, request.number, request.version);
            run.store.put(&key, &value, Durability::Buffered)?;
            user_bytes += pattern.entry_bytes();
        }
        if done % PROGRESS_EVERY == 0 {
            run.tell.progress(done, count);
        }
    }
    run.store.wait_idle()?;
    run.store.persist()?;
    let mut metrics = Metrics::new();
    before.written_since(&run.store.figures()?, user_bytes, &mut metrics);
    Ok(metrics)
}

fn add(metrics: &mut Metrics, phase: &str, of_phase: Metrics) {
    metrics.extend(of_phase.into_iter().map(|(name, value)| (format!("{phase}_{name}"), value)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ascending_keys_begin_again_behind_the_last() {
        let numbers = Pattern::SEQUENTIAL.requests(1, 3).take(5).map(|request| request.number);
        assert_eq!(numbers.collect::<Vec<_>>(), [0, 1, 2, 0, 1]);
        assert!(Pattern::SEQUENTIAL.key(1) < Pattern::SEQUENTIAL.key(2));
    }

    #[test]
    fn whatever_is_loaded_is_put_once_before_anything_else() {
        for pattern in [Pattern::scattered(9), Pattern::SEQUENTIAL, Pattern::MOVING] {
            let loaded: Vec<_> = pattern.requests(1, 500).take(500).collect();
            assert!(loaded.iter().all(|request| request.kind == Kind::Put));
            let keys: BTreeSet<_> = loaded.iter().map(|it| pattern.key(it.number)).collect();
            assert_eq!(keys.len(), 500);
        }
        let later = Pattern::MOVING.requests(1, 500).skip(500).take(100);
        assert_eq!(later.filter(|request| request.kind == Kind::Delete).count(), 50);
    }

    #[test]
    fn longer_values_are_as_many_bytes() {
        assert_eq!(Pattern::scattered(1_000).entry_bytes(), 1_016);
    }
}
