//! Counters that are counted up: by merge operands, and by reading and writing in a transaction.
//!
//! One key is counted up again and again, and many are in an order without end. Each way has a
//! keyspace of its own in one store, and they take turns every hundred steps: a merge that comes
//! disturbs both. What reading costs afterwards is measured before anything is merged away.

use esker::{Db, Keyspace, KeyspaceOptions, Merge};
use esker_lab_result::{Metrics, Part, Verdict};
use esker_workload::entry;

use super::{Bench, metrics, timed, wait_idle};
use crate::Result;

/// Counters of the case with many.
const MANY: u64 = 100_000;
/// Steps in a turn.
const TURN: u64 = 100;
/// Reads that are measured.
const READS: u64 = 1000;

const HOT: &str = "one key";
const SPREAD: &str = "many keys";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Merge,
    Transaction,
}

impl Way {
    const ALL: [Self; 2] = [Self::Merge, Self::Transaction];

    fn name(self, keys: &str) -> String {
        match self {
            Self::Merge => format!("{keys}, merge"),
            Self::Transaction => format!("{keys}, transaction"),
        }
    }

    /// Counts a key up.
    fn step(self, db: &Db, keyspace: &Keyspace, key: &[u8]) -> Result<()> {
        match self {
            Self::Merge => keyspace.merge(key, 1_u64.to_le_bytes())?,
            Self::Transaction => db.transact(|tx| -> esker::Result<()> {
                let count = tx.get(keyspace, key)?.and_then(|count| count.try_into().ok());
                let count = count.map_or(0, u64::from_le_bytes).wrapping_add(1);
                tx.insert(keyspace, key, count.to_le_bytes())
            })?,
        }
        Ok(())
    }
}

struct Store {
    db: Db,
    keyspaces: [Keyspace; Way::ALL.len()],
}

pub(super) fn round(bench: &Bench<'_>) -> Result<Vec<(String, Metrics)>> {
    let many = MANY.min(bench.plan.entries);
    let mut found = Vec::new();
    for (name, keys) in [(HOT, 1), (SPREAD, many)] {
        let options = || KeyspaceOptions::default().index(bench.plan.index).merge(Merge::Add);
        let (db, merged) = bench.store("store", options())?;
        let written = db.keyspace("written", options())?;
        let store = Store { db, keyspaces: [merged, written] };
        found.extend(counted(bench, &store, name, keys)?);
        let Store { db, keyspaces } = store;
        drop(keyspaces);
        db.close()?;
        bench.remove("store")?;
    }
    Ok(found)
}

/// Counts up `keys` keys by all ways, then reads them.
fn counted(
    bench: &Bench<'_>,
    store: &Store,
    name: &str,
    keys: u64,
) -> Result<Vec<(String, Metrics)>> {
    // All keys are there before anything counts.
    for keyspace in &store.keyspaces {
        (0..keys).try_for_each(|key| keyspace.insert(entry::key(key), 0_u64.to_le_bytes()))?;
    }
    wait_idle(&store.db)?;
    let turns = (bench.plan.entries / TURN).max(1);
    let ways = || Way::ALL.into_iter().zip(&store.keyspaces);
    let (mut steps, mut reads) = ([0.0; Way::ALL.len()], [0.0; Way::ALL.len()]);
    // A prime stride visits every key before any comes again.
    let key = |number: u64| entry::key(number.wrapping_mul(7919) % keys);
    for turn in 0..turns {
        for ((way, keyspace), seconds) in ways().zip(&mut steps) {
            let mut numbers = turn * TURN..(turn + 1) * TURN;
            let step = |number| way.step(&store.db, keyspace, &key(number));
            *seconds += timed(|| numbers.try_for_each(step))?.0;
        }
    }
    for ((_, keyspace), seconds) in ways().zip(&mut reads) {
        let read = |number| -> Result<()> { Ok(keyspace.get(key(number)).map(drop)?) };
        *seconds = timed(|| (0..READS).try_for_each(read))?.0;
    }
    let micros = |seconds: f64, count: u64| seconds * 1e6 / count as f64;
    let seconds = steps.into_iter().zip(reads);
    let of_way = |(way, (steps, reads)): (Way, (f64, f64))| {
        let steps = micros(steps, turns * TURN);
        (way.name(name), metrics([("step_us", steps), ("get_us", micros(reads, READS))]))
    };
    Ok(Way::ALL.into_iter().zip(seconds).map(of_way).collect())
}

pub(super) fn bars(found: Part<'_>) -> Vec<Verdict> {
    let ratio =
        |keys: &str| found.ratio(&Way::Merge.name(keys), &Way::Transaction.name(keys), "step_us");
    vec![
        Verdict::at_most("one counter: merge over transaction", ratio(HOT), 1.0),
        Verdict::at_most("many counters: merge over transaction", ratio(SPREAD), 1.0),
    ]
}
