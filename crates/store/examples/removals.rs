//! What range tombstones and a queue cost: time, and reads of the device.
//!
//! ```text
//! cargo run --release -p esker --example removals -- FOLDER [INDEX] [ENTRIES] [BUDGET_MIB]
//! ```
//!
//! `series` loads entries of 16 + 100 bytes in the order of their keys; a hundred times it then
//! puts a fiftieth more, removes the oldest fiftieth as one range, and reads the first entry.
//! `ranges` removes 3,000 ranges that do not touch. `queue` puts entries at the end while it
//! takes the first one and removes it: 5,000 stand, 20,000 pass through.
//!
//! Under callgrind, `--toggle-collect=removals::look` counts the instructions of `first` alone,
//! and `--toggle-collect=removals::remove` those of `remove_range`.

use std::error::Error;
use std::time::{Duration, Instant};

use esker::{Db, IndexKind, Keyspace, KeyspaceOptions};

type Outcome<T> = Result<T, Box<dyn Error>>;

const ROUNDS: u64 = 100;
const RANGES: u64 = 3_000;
const STANDING: u64 = 5_000;
const PASSING: u64 = 20_000;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let folder = arguments.first().ok_or("which folder?")?;
    let kind = arguments.get(1).map_or(Ok(IndexKind::FdTree), |kind| kind.parse())?;
    let number = |index: usize, default| arguments.get(index).map_or(Ok(default), |n| n.parse());
    let (entries, budget) = (number(2, 1_000_000)?, number(3, 16)?);
    let db = Db::builder(folder).memory_budget(budget << 20).open()?;
    series(&db, &new(&db, "series", kind)?, entries)?;
    ranges(&db, &new(&db, "ranges", kind)?, (entries / 10).max(4 * RANGES))?;
    queue(&db, &new(&db, "queue", kind)?)?;
    Ok(db.close()?)
}

fn new(db: &Db, name: &str, kind: IndexKind) -> Outcome<Keyspace> {
    Ok(db.keyspace(name, KeyspaceOptions::default().index(kind))?)
}

/// Keys in order.
fn key(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

fn put(keyspace: &Keyspace, number: u64) -> esker::Result<()> {
    let mut value = [0; 100];
    let mut state = number;
    for part in value.chunks_mut(8) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        part.copy_from_slice(&state.to_le_bytes()[..part.len()]);
    }
    keyspace.insert(key(number), value)
}

/// Times of one operation, and the reads of the device meanwhile.
#[derive(Default)]
struct Times {
    all: Vec<Duration>,
    reads: u64,
}

impl Times {
    fn take<T>(&mut self, operation: impl FnOnce() -> esker::Result<T>) -> esker::Result<T> {
        let start = Instant::now();
        let result = operation();
        self.all.push(start.elapsed());
        result
    }

    /// Takes the reads for users too, which the statistics count.
    fn take_with_reads<T>(
        &mut self,
        db: &Db,
        operation: impl FnOnce() -> esker::Result<T>,
    ) -> esker::Result<T> {
        let before = user_reads(db)?;
        let result = self.take(operation)?;
        self.reads += user_reads(db)? - before;
        Ok(result)
    }

    fn show(mut self, name: &str) {
        self.all.sort();
        let last = self.all.len().saturating_sub(1);
        let at =
            |share: f64| self.all.get((last as f64 * share) as usize).unwrap_or(&Duration::ZERO);
        let reads = self.reads as f64 / self.all.len().max(1) as f64;
        println!(
            "{name}: p50 {:.1?}, p99 {:.1?}, p99.9 {:.1?}, max {:.1?}; {reads:.1} reads",
            at(0.5),
            at(0.99),
            at(0.999),
            at(1.0)
        );
    }
}

fn user_reads(db: &Db) -> esker::Result<u64> {
    let user = db.stats()?.io.into_iter().find(|row| row.purpose == "user");
    Ok(user.map_or(0, |row| row.reads))
}

fn series(db: &Db, keyspace: &Keyspace, entries: u64) -> Outcome<()> {
    (0..entries).try_for_each(|number| put(keyspace, number))?;
    let (mut removing, mut first, mut again) =
        (Times::default(), Times::default(), Times::default());
    let step = entries / 50;
    for round in 0..ROUNDS {
        let newest = entries + round * step;
        (newest..newest + step).try_for_each(|number| put(keyspace, number))?;
        let (begin, end) = (key(round * step), key((round + 1) * step));
        removing.take(|| remove(keyspace, begin, end))?;
        let found = first.take_with_reads(db, || look(keyspace))?;
        again.take_with_reads(db, || look(keyspace))?;
        if found.as_deref() != Some(&end[..]) {
            return Err(format!("the first entry is {found:?} and not {end:?}").into());
        }
    }
    removing.show("series: remove_range");
    first.show("series: first");
    again.show("series: first again");
    Ok(())
}

#[inline(never)]
fn remove(keyspace: &Keyspace, begin: [u8; 16], end: [u8; 16]) -> esker::Result<()> {
    keyspace.remove_range(begin..end)
}

#[inline(never)]
fn look(keyspace: &Keyspace) -> esker::Result<Option<Vec<u8>>> {
    Ok(keyspace.first()?.map(|(key, _)| key.to_vec()))
}

fn ranges(db: &Db, keyspace: &Keyspace, entries: u64) -> Outcome<()> {
    (0..entries).try_for_each(|number| put(keyspace, number))?;
    let (mut putting, mut removing) = (Times::default(), Times::default());
    let (mut early, mut first) = (Times::default(), Times::default());
    let step = entries / RANGES;
    for range in 0..RANGES {
        putting.take(|| put(keyspace, entries + range))?;
        let begin = range * step;
        let times = if range < RANGES / 10 { &mut early } else { &mut removing };
        times.take(|| remove(keyspace, key(begin), key(begin + step - 1)))?;
    }
    (0..RANGES).try_for_each(|_| first.take_with_reads(db, || look(keyspace)).map(drop))?;
    putting.show("ranges: insert");
    early.show("ranges: remove_range, first tenth");
    removing.show("ranges: remove_range, the rest");
    first.show("ranges: first");
    Ok(())
}

fn queue(db: &Db, keyspace: &Keyspace) -> Outcome<()> {
    let (mut first, mut removing) = (Times::default(), Times::default());
    for number in 0..STANDING + PASSING {
        put(keyspace, number)?;
        if number >= STANDING {
            let found = first.take_with_reads(db, || look(keyspace))?.unwrap_or_default();
            removing.take(|| keyspace.remove(&found))?;
            if found != key(number - STANDING) {
                return Err(format!("the first entry is {found:?}").into());
            }
        }
    }
    first.show("queue: first");
    removing.show("queue: remove");
    Ok(())
}
