//! Bytes written where values are longer than those of the load, or keys have neighbours.
//!
//! Each row begins with an empty store, loads as many bytes as the load does, and overwrites: once
//! to warm up and twice to count, settled before and after.

use esker_workload::Request;
use esker_workload::entry::{self, ENTRY_BYTES, KEY_BYTES};
use esker_workload::uniform::{self, Overwrite};

use esker_peers::Durability;

use crate::error::Result;
use crate::measure::Metrics;
use crate::measure::rows::{PROGRESS_EVERY, Run, steady};

/// How entries look, and in which order they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    value_bytes: usize,
    order: Order,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// No two neighbouring requests have neighbouring keys.
    Scattered,
    /// Each key is greater than the one before it; overwriting begins with the least one again.
    Ascending,
}

impl Pattern {
    /// Keys in their order, with the values of the load.
    pub const SEQUENTIAL: Self = Self { value_bytes: entry::VALUE_BYTES, order: Order::Ascending };

    /// Values of so many bytes.
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
            Order::Ascending => entry::ordered_key(number),
        }
    }

    fn overwrites(&self, seed: u64, entries: u64) -> Box<dyn Iterator<Item = Request>> {
        match self.order {
            Order::Scattered => Box::new(Overwrite::new(seed, entries)),
            Order::Ascending => {
                let again = (1..).flat_map(move |version| {
                    (0..entries).map(move |number| Request::put(number, version))
                });
                Box::new(again)
            }
        }
    }
}

pub(super) fn run(run: &Run<'_>, pattern: &Pattern) -> Result<Metrics> {
    let entries = (run.sizes.entries * ENTRY_BYTES / pattern.entry_bytes()).max(1);
    let mut metrics = Metrics::new();
    let loaded = written(run, pattern, uniform::load(entries), entries)?;
    add(&mut metrics, "load", loaded);
    let mut overwrites = pattern.overwrites(run.task.seed, entries);
    written(run, pattern, overwrites.by_ref().take(entries as usize), entries)?;
    let steady = written(run, pattern, overwrites, 2 * entries)?;
    add(&mut metrics, "overwrite", steady);
    Ok(metrics)
}

/// Does so many requests and settles: what was written for each user byte.
fn written(
    run: &Run<'_>,
    pattern: &Pattern,
    requests: impl Iterator<Item = Request>,
    count: u64,
) -> Result<Metrics> {
    let before = steady::Counters::now(run.store)?;
    let mut value = vec![0; pattern.value_bytes];
    for (done, request) in (0..count).zip(requests) {
        entry::fill_value(&mut value, run.task.seed, request.number, request.version);
        run.store.put(&pattern.key(request.number), &value, Durability::Buffered)?;
        if done % PROGRESS_EVERY == 0 {
            run.tell.progress(done, count);
        }
    }
    run.store.settle()?;
    run.store.persist()?;
    let mut metrics = Metrics::new();
    before.written_since(run.store, count * pattern.entry_bytes(), &mut metrics)?;
    Ok(metrics)
}

fn add(metrics: &mut Metrics, phase: &str, of_phase: Metrics) {
    metrics.extend(of_phase.into_iter().map(|(name, value)| (format!("{phase}_{name}"), value)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ascending_keys_begin_again_behind_the_last() {
        let numbers = Pattern::SEQUENTIAL.overwrites(1, 3).take(5).map(|request| request.number);
        assert_eq!(numbers.collect::<Vec<_>>(), [0, 1, 2, 0, 1]);
        assert!(Pattern::SEQUENTIAL.key(1) < Pattern::SEQUENTIAL.key(2));
    }

    #[test]
    fn longer_values_are_as_many_bytes() {
        assert_eq!(Pattern::scattered(1_000).entry_bytes(), 1_016);
    }
}
