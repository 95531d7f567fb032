//! Figs. 5.1, 5.4 and 5.7 once more, on the LSM index itself: a store in a folder, whose writes run
//! the merges that they make due.
//!
//! Its level 0 is not memory but what memory has written out as runs, one of κ0 at a time. What is
//! written as runs does not count, as in the thesis; nor do nodes, which the thesis does not have.
//! Mixed is not among the policies: when it learns is its own affair there.

use esker::{Compaction, Db, IndexKind, Keyspace, KeyspaceOptions, LsmStats};
use esker_lab_measure::scale::Scale;
use esker_lab_result::Metrics;
use esker_workload::steady::Steady;
use esker_workload::{Kind, entry};
use serde_json::{Value, json};

use super::judge::{Judged, LESS, is_within};
use super::phases::{INTO, KEPT, LEVELS, OCCUPANCY, Plan, WRITES, plan};
use super::policy::{BLSM, Contender, FULL, HLDB, Keys, LDB, PARTIAL, RR, TEST, name};
use super::sizes::{PARTIAL_BELOW_FULL, TEST_TIPS, smallest};
use crate::experiment::{Experiment, Prediction, Series, Watch, go_on, metric};
use crate::fdtree::alternate::temporary;
use crate::{Error, Result};

/// Blocks written as runs, for each MB of requests.
const RUNS: &str = "runs_per_mb";
/// Bytes of nodes, as blocks, for each MB of requests.
const NODES: &str = "nodes_per_mb";
const CONTENDERS: [Contender; 7] = [FULL, RR, PARTIAL, TEST, BLSM, LDB, HLDB];
/// Bytes of a block.
const BLOCK_BYTES: f64 = 4096.0;
/// Bytes of an entry in a block, about.
const ENTRY_BYTES: u64 = 109;
/// Bytes of a key and its value.
const USER_BYTES: u64 = 4 + entry::VALUE_BYTES as u64;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "merge-policies-index",
    figure: "thesis Figs. 5.1, 5.4, 5.7",
    about: "blocks that the LSM index itself writes per MB of alternating insertions and deletions",
    axis: "index over runs",
    columns: &[WRITES, INTO[0], INTO[1], KEPT, RUNS, NODES, OCCUPANCY],
    predictions: &[
        PARTIAL_BELOW_FULL,
        TEST_TIPS,
        Prediction {
            name: "policies-have-their-order",
            claim: "Fig. 5.7: at the smallest size RR writes less than Full, and Partial less than \
                    RR where keys are normal, as much within 5 % where they are uniform",
            judge: policies_have_their_order,
        },
    ],
    run,
};

/// Bytes of the memtable, and the sizes of the index over what runs may hold.
fn sizes(scale: Scale) -> (u64, &'static [f64]) {
    match scale {
        Scale::Tiny => (64 << 10, &[12.5]),
        Scale::Small => (256 << 10, &[12.5, 37.5, 62.5, 80.0]),
        Scale::Full => (4 << 20, &[12.5, 25.0, 37.5, 50.0, 62.5, 80.0]),
    }
}

fn run(scale: Scale, watch: &mut dyn Watch) -> Result<(Series, Value)> {
    let (memtable_bytes, ratios) = sizes(scale);
    let mut series = Series::default();
    let mut kappa0_bytes = 0;
    for at in ratios {
        for keys in Keys::ALL {
            // The tiny scale shows that it runs.
            for contender in CONTENDERS.into_iter().take(if scale == Scale::Tiny { 1 } else { 7 }) {
                let folder = temporary()?;
                let merging = merging(contender);
                let builder = Db::builder(folder.path().join("index")).inline_merges(0);
                let db = builder.compaction(merging).open()?;
                let options = KeyspaceOptions::default().index(IndexKind::Lsm);
                let options = options.memtable_bytes(Some(memtable_bytes));
                let keyspace = db.keyspace("index", options)?;
                let mut subject = Subject { db, keyspace, requests: Steady::new(0, UNIFORM, 0) };
                kappa0_bytes = subject.lsm()?.runs_capacity_bytes;
                let metrics = subject.measure(*at, keys, watch)?;
                let system = name(keys, contender);
                let writes = metrics.get(WRITES).copied().unwrap_or(0.0);
                watch.says(&format!("{system} at {at} times runs: {writes:.0} blocks a MB"));
                series.add(system, *at, metrics);
                subject.db.close()?;
            }
        }
    }
    let plan = plan(scale);
    let settings = json!({
        "memtable_bytes": memtable_bytes,
        "kappa0_bytes": kappa0_bytes,
        "value_bytes": entry::VALUE_BYTES,
        "sigma": plan.sigma,
        "periods": plan.periods,
        "gamma": plan.sizes.params.gamma,
    });
    Ok((series, settings))
}

const UNIFORM: esker_workload::law::Law = esker_workload::law::Law::Uniform;

fn merging(contender: Contender) -> Compaction {
    let merging = Compaction::by(contender.policy);
    if contender.preserves { merging } else { merging.plain() }
}

/// A store under a policy.
struct Subject {
    db: Db,
    keyspace: Keyspace,
    requests: Steady,
}

impl Subject {
    fn lsm(&self) -> Result<LsmStats> {
        let stats = self.db.stats()?;
        let lsm = stats.keyspaces.into_iter().find_map(|keyspace| keyspace.lsm);
        lsm.ok_or_else(|| Error::Input("the store has no LSM index".to_owned()))
    }

    fn perform(&mut self, requests: u64, watch: &dyn Watch) -> Result<()> {
        go_on(watch)?;
        for request in self.requests.by_ref().take(requests as usize) {
            let key = entry::small_key(request.number);
            match request.kind {
                Kind::Delete => self.keyspace.remove(key)?,
                _ => self.keyspace.insert(key, entry::value(1, request.number, request.version))?,
            }
        }
        Ok(())
    }

    /// Builds an index of `at` times κ0, and counts what its steady state writes.
    fn measure(&mut self, at: f64, keys: Keys, watch: &dyn Watch) -> Result<Metrics> {
        let memory = self.lsm()?.runs_capacity_bytes / ENTRY_BYTES;
        let plan = plan(Scale::Small);
        let law = Plan { ratio: at, ..plan }.law_of(keys, memory);
        let entries = (at * memory as f64) as u64;
        self.requests = Steady::new(1, law, entries);
        let period = (memory as f64 * plan.sizes.params.gamma) as u64;
        self.perform(entries + 2 * period, watch)?;
        self.until_emptied(2 * period, memory / 8, watch)?;
        let before = self.lsm()?;
        self.perform(plan.periods * period, watch)?;
        let requests = plan.periods * period + self.until_emptied(2 * period, memory / 8, watch)?;
        Ok(metrics(&before, &self.lsm()?, requests))
    }

    /// Goes on until the level above the last holds half of what it did a moment ago, or less.
    fn until_emptied(&mut self, most: u64, step: u64, watch: &dyn Watch) -> Result<u64> {
        let (step, mut done, mut before) = (step.max(1), 0, 0);
        while done < most {
            self.perform(step, watch)?;
            done += step;
            let lsm = self.lsm()?;
            let held = lsm.levels.iter().rev().nth(1).map_or(0, |level| level.bytes);
            if held < before / 2 {
                break;
            }
            before = held;
        }
        Ok(done)
    }
}

/// The metrics of the writes between two moments, in `requests` requests.
fn metrics(before: &LsmStats, after: &LsmStats, requests: u64) -> Metrics {
    let megabytes = (requests * USER_BYTES) as f64 / 1e6;
    let sum = |stats: &LsmStats, of: fn(&esker::LsmWrites) -> u64| -> u64 {
        stats.levels.iter().map(|level| of(&level.written)).sum()
    };
    let since = |of: fn(&esker::LsmWrites) -> u64| {
        sum(after, of).saturating_sub(sum(before, of)) as f64 / megabytes
    };
    let runs = after.runs_written.blocks_written - before.runs_written.blocks_written;
    let mut metrics = Metrics::new();
    metric(&mut metrics, WRITES, since(|written| written.blocks_written));
    metric(&mut metrics, KEPT, since(|written| written.blocks_kept));
    metric(&mut metrics, NODES, since(|written| written.node_bytes_written) / BLOCK_BYTES);
    metric(&mut metrics, RUNS, runs as f64 / megabytes);
    // Where a level was put in, there is no telling which one wrote what.
    if before.levels.len() == after.levels.len() {
        for ((now, then), name) in after.levels.iter().zip(&before.levels).zip(INTO) {
            let blocks = now.written.blocks_written.saturating_sub(then.written.blocks_written);
            metric(&mut metrics, name, blocks as f64 / megabytes);
        }
    }
    let last = after.levels.last();
    let held = last.map_or(0, |level| level.bytes) as f64;
    let capacity = last.and_then(|level| level.capacity_bytes).unwrap_or(u64::MAX) as f64;
    metric(&mut metrics, OCCUPANCY, held / capacity);
    metric(&mut metrics, LEVELS, (after.levels.len() + 1) as f64);
    metrics
}

fn policies_have_their_order(series: &Series) -> Judged {
    for keys in Keys::ALL {
        let at = smallest(series, keys)?;
        let partial = if keys == Keys::Uniform { [0.95, 1.05] } else { LESS };
        is_within(series, keys, at, [PARTIAL, RR], partial)?;
        is_within(series, keys, at, [RR, FULL], LESS)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::Silent;
    use crate::lsm::judge::tests::wrote;

    #[test]
    fn policies_must_have_their_order() {
        let series = |rr: f64| {
            let mut series = Series::default();
            for keys in Keys::ALL {
                for (which, writes) in [(PARTIAL, 90.0), (RR, rr), (FULL, 100.0)] {
                    wrote(&mut series, keys, which, 10.0, &[(WRITES, writes), (LEVELS, 3.0)]);
                }
            }
            series
        };
        assert_eq!(policies_have_their_order(&series(92.0)), Ok(()));
        assert!(policies_have_their_order(&series(99.0)).unwrap_err().contains("G_U"));
        assert!(policies_have_their_order(&series(101.0)).is_err());
        assert!(policies_have_their_order(&series(100.0)).is_err());
    }

    #[test]
    fn it_runs() {
        let (found, _) = run(Scale::Tiny, &mut Silent).unwrap();
        assert_eq!(found.points.len(), 2);
        for point in &found.points {
            assert!(point.value(WRITES) > Ok(100.0), "{point:?}");
            assert_eq!(point.value(LEVELS), Ok(3.0), "{point:?}");
        }
    }
}
