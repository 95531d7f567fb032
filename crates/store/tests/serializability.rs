//! Transactions of many threads are as if each had happened alone, judged by what each read and
//! wrote, while merges and flushes run in threads of their own.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use esker::Db;
use esker_device::memory::MemoryDevice;
use esker_substrate::planted::Race;
use esker_testkit::counts::{Counts, assert_passes, budget};
use esker_testkit::linear::Key;
use esker_testkit::linear::drive::{Shared, small};
use esker_testkit::serializable::{self, drive};
use esker_testkit::verify;
use esker_testkit::violation::{Oracle, Verdict};

const THREADS: u32 = 8;
const TRANSACTIONS: u64 = 150;

/// One run of threads on a store in memory.
fn threads(keys: Key, seed: u64, mistake: Option<Race>, counts: &mut Counts) -> Verdict {
    let db = small(Db::builder_on(Arc::new(MemoryDevice::new()))).open().unwrap();
    let plan = drive::Plan { threads: THREADS, keys, transactions: TRANSACTIONS, seed, mistake };
    let shared = Shared::default();
    let done = drive::run(&db, &plan, &shared)?;
    let committed = done.history.iter().filter(|transaction| transaction.number.is_some()).count();
    counts.add("transactions", done.history.len() as u64);
    counts.add("commits", committed as u64);
    counts.add("conflicts and rollbacks", done.conflicts);
    counts.add("scans", done.scans);
    counts.add("constraints", serializable::check(&done.history)?);
    let stood = shared.stacks.take();
    serializable::stacks_fit(&done.history, &stood)?;
    counts.add("merged versions", stood.len() as u64);
    let stats = db.stats().unwrap();
    assert_eq!(stats.transactions.live, 0);
    counts.add("merges", stats.keyspaces.iter().map(|keyspace| keyspace.merges).sum());
    verify::check(&db).map(drop)
}

fn runs(case: &str, keys: Key) -> Verdict<Counts> {
    let mut counts = Counts::new("serializability", case);
    for seed in 0..3 * budget() {
        threads(keys, seed, None, &mut counts)
            .map_err(|violation| violation.at(format!("{case}, seed {seed}")))?;
    }
    assert!(counts.get("conflicts and rollbacks") > 0 && counts.get("merges") > 0);
    Ok(counts)
}

#[test]
fn transactions_on_very_few_keys_have_an_order() {
    assert_passes(runs("very few keys", 3));
}

#[test]
fn transactions_on_few_keys_have_an_order() {
    assert_passes(runs("few keys", 12));
}

#[test]
fn transactions_on_many_keys_have_an_order() {
    assert_passes(runs("many keys", 300));
}

/// Without a check there is soon a circle.
fn finds(race: Race) {
    let mut counts = Counts::new("serializability", format!("{race:?}"));
    let found = (0..20).find_map(|seed| threads(12, seed, Some(race), &mut counts).err());
    let violation = found.unwrap();
    println!("{violation}");
    assert_eq!(violation.oracle, Oracle::Serializable);
    counts.record().unwrap();
}

#[test]
fn finds_ranges_that_are_not_checked() {
    finds(Race::RangesUnchecked);
}

#[test]
fn finds_removals_that_are_not_checked() {
    finds(Race::RemovalsUnchecked);
}
