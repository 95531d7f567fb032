//! A queue: entries come at the end and go from the front, and there are a few thousand of them.
//!
//! Ways to take an entry: look for the first one and remove it; the same by a consumer that
//! remembers where it was; one removed range for every thousand that were taken; and entries that
//! end by themselves. All but the first go on from a key that the consumer knows.

use std::ops::Bound;
use std::time::Duration;

use esker::{Db, Keyspace, KeyspaceOptions};
use esker_lab_result::{Metrics, Part, Verdict};
use esker_workload::entry;

use super::{Bench, metrics, timed, wait_idle};
use crate::{Error, Result};

/// Entries in the queue while it is steady.
const DEPTH: u64 = 5_000;
/// Entries that one removed range takes away.
const RUN: u64 = 1_000;
/// The lifetime of an entry that ends by itself: longer than it takes to come to the front.
const TTL: Duration = Duration::from_secs(2);
/// Entries that go through, at most: to find the first one takes longer with each that is gone.
const ENTRIES_MAX: u64 = 20_000;
/// Times that the first entry is looked for at the end.
const LOOKS: u64 = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    First,
    Cursor,
    Range,
    Expiry,
}

impl Way {
    const ALL: [Self; 4] = [Self::First, Self::Cursor, Self::Range, Self::Expiry];

    const fn as_str(self) -> &'static str {
        match self {
            Self::First => "find the first, remove it",
            Self::Cursor => "remove each, from a cursor",
            Self::Range => "remove a range for each 1,000",
            Self::Expiry => "let entries expire",
        }
    }
}

/// The position of the consumer.
struct Queue<'a> {
    way: Way,
    keyspace: &'a Keyspace,
    taken: u64,
    last: Option<Vec<u8>>,
}

impl Queue<'_> {
    fn push(&self, number: u64) -> Result<()> {
        let (key, value) = (number.to_be_bytes(), entry::value(1, number, 0));
        if self.way == Way::Expiry {
            self.keyspace.insert_with_ttl(key, value, TTL)?;
        } else {
            self.keyspace.insert(key, value)?;
        }
        Ok(())
    }

    fn pop(&mut self) -> Result<()> {
        let found = match (self.way, &self.last) {
            (Way::First, _) | (_, None) => self.keyspace.first()?,
            (_, Some(last)) => {
                let behind = (Bound::Excluded(last.clone()), Bound::Unbounded);
                self.keyspace.range(behind)?.next().transpose()?
            }
        };
        let Some((key, _)) = found else {
            return Err(Error::Invalid("entries expired before they were taken".to_owned()));
        };
        self.taken += 1;
        match self.way {
            Way::First | Way::Cursor => self.keyspace.remove(&key)?,
            Way::Range if self.taken.is_multiple_of(RUN) => {
                self.keyspace.remove_range(..=key.as_slice())?;
            }
            Way::Range | Way::Expiry => {}
        }
        self.last = Some(key);
        Ok(())
    }
}

pub(super) fn round(bench: &Bench<'_>) -> Result<Vec<(String, Metrics)>> {
    let one = |way: Way| Ok((way.as_str().to_owned(), one(bench, way)?));
    Way::ALL.into_iter().map(one).collect()
}

fn one(bench: &Bench<'_>, way: Way) -> Result<Metrics> {
    let (db, keyspace) = bench.store("store", KeyspaceOptions::default())?;
    let entries = bench.plan.entries.min(ENTRIES_MAX);
    let mut queue = Queue { way, keyspace: &keyspace, taken: 0, last: None };
    let (going, ()) = timed(|| {
        for number in 0..entries {
            queue.push(number)?;
            if number >= DEPTH {
                queue.pop()?;
            }
        }
        Ok(())
    })?;
    let look = |_| Ok(keyspace.first().map(drop)?);
    let (looking, ()) = timed(|| (0..LOOKS).try_for_each(look))?;
    let (settling, ()) = timed(|| wait_idle(&db))?;
    let found = summary(&db, entries, going + settling, looking)?;
    drop(keyspace);
    db.close()?;
    bench.remove("store")?;
    Ok(found)
}

fn summary(db: &Db, entries: u64, seconds: f64, looking: f64) -> Result<Metrics> {
    let stats = db.stats()?;
    let live = entries.min(DEPTH) * (8 + entry::VALUE_BYTES as u64);
    Ok(metrics([
        ("through_rate", entries as f64 / seconds),
        ("written_per_byte", stats.write_amplification().unwrap_or_default()),
        ("file_over_live", stats.space.allocated_bytes as f64 / live as f64),
        ("first_us", looking * 1e6 / LOOKS as f64),
    ]))
}

/// Nothing has to be.
pub(super) fn bars(_found: Part<'_>) -> Vec<Verdict> {
    Vec::new()
}
