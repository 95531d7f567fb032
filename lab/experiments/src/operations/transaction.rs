//! Ten puts in a transaction, next to the same in a batch.
//!
//! All ways write the same keys of one store, over and over, so that little is merged, and take
//! turns every hundred commits: a merge that comes disturbs all of them.

use esker::{Batch, Db, Durability, Keyspace, KeyspaceOptions, Transaction};
use esker_lab_result::{Metrics, Part, Verdict};
use esker_workload::entry;

use super::{Bench, metrics, timed, wait_idle};
use crate::Result;

const TEN: u64 = 10;
/// Commits in a turn.
const TURN: u64 = 100;
/// The approximate number of buffered commits that take as long as a durable one.
const SYNC_FACTOR: u64 = 10;

const BATCH: &str = "batch";
const TRANSACTION: &str = "transaction";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Batch,
    Transaction,
    Reading,
}

impl Way {
    const ALL: [Self; 3] = [Self::Batch, Self::Transaction, Self::Reading];

    fn name(self, durability: Durability) -> String {
        let name = match self {
            Self::Batch => BATCH,
            Self::Transaction => TRANSACTION,
            Self::Reading => "transaction that reads first",
        };
        match durability {
            Durability::Synced => format!("{name}, durable"),
            _ => name.to_owned(),
        }
    }

    fn commit(self, store: &Store, first: u64, durability: Durability) -> Result<()> {
        let keys = (first..first + TEN).map(entry::key);
        match self {
            Self::Batch => {
                let mut batch: Batch = store.db.batch();
                keys.for_each(|key| batch.insert(&store.keyspace, key, store.value));
                batch.commit_with(durability)?;
            }
            Self::Transaction | Self::Reading => {
                let mut tx: Transaction = store.db.transaction()?;
                for key in keys {
                    if self == Self::Reading {
                        tx.get(&store.keyspace, key)?;
                    }
                    tx.insert(&store.keyspace, key, store.value)?;
                }
                tx.commit_with(durability)?;
            }
        }
        Ok(())
    }
}

struct Store {
    db: Db,
    keyspace: Keyspace,
    value: [u8; entry::VALUE_BYTES],
}

pub(super) fn round(bench: &Bench<'_>, number: u32) -> Result<Vec<(String, Metrics)>> {
    let (db, keyspace) = bench.store("store", KeyspaceOptions::default())?;
    let store = Store { db, keyspace, value: entry::value(1, 2, u64::from(number)) };
    // All keys are there before anything counts.
    let keys = (bench.plan.entries / 10).next_multiple_of(TEN);
    for first in (0..keys).step_by(TEN as usize) {
        Way::Batch.commit(&store, first, Durability::Buffered)?;
    }
    wait_idle(&store.db)?;
    let mut found = Vec::new();
    for (durability, turns) in [
        (Durability::Buffered, bench.plan.entries / TEN / TURN),
        (Durability::Synced, bench.plan.entries / TEN / TURN / SYNC_FACTOR),
    ] {
        let turns = turns.max(1);
        let mut seconds = [0.0; Way::ALL.len()];
        let mut next = 0;
        for _ in 0..turns {
            for (way, seconds) in Way::ALL.into_iter().zip(&mut seconds) {
                *seconds += timed(|| {
                    (0..TURN).try_for_each(|_| {
                        next = (next + TEN) % keys;
                        way.commit(&store, next, durability)
                    })
                })?
                .0;
            }
        }
        for (way, seconds) in Way::ALL.into_iter().zip(seconds) {
            let micros = seconds * 1e6 / (turns * TURN) as f64;
            found.push((way.name(durability), metrics([("commit_us", micros)])));
        }
    }
    drop(store.keyspace);
    store.db.close()?;
    bench.remove("store")?;
    Ok(found)
}

pub(super) fn bars(found: Part<'_>) -> Vec<Verdict> {
    vec![Verdict::at_most(
        "ten puts: transaction over batch",
        found.ratio(TRANSACTION, BATCH, "commit_us"),
        1.2,
    )]
}
