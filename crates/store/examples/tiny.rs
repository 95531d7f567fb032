//! A store with a small memory budget: bytes written and blocks read per operation.
//!
//! ```text
//! cargo run --release -p esker --example tiny -- [BUDGET_KIB] [DATA_PER_BUDGET] [INDEX]
//! ```
//!
//! Loads entries of 16 + 100 bytes until the data is DATA_PER_BUDGET times the budget, overwrites
//! half of them at random, then as many as there are, and looks keys up: some that exist, and some
//! that do not. The device is in memory and compaction runs in the thread that writes, four
//! steps after each write at most, so that the
//! counts are the same on every run.

use std::error::Error;
use std::sync::Arc;

use esker::{Db, IndexKind, Keyspace, KeyspaceOptions};
use esker_device::memory::MemoryDevice;

/// Bytes of a key and its value.
const ENTRY_BYTES: u64 = 116;
/// Lookups of each kind.
const LOOKUPS: u64 = 20_000;
/// Rounds of lookups and overwrites: levels are differently full in each.
const ROUNDS: u64 = 16;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default: u64| match arguments.get(index) {
        Some(text) => text.parse::<u64>().map_err(|error| format!("{text}: {error}")),
        None => Ok(default),
    };
    let budget = number(0, 256)? << 10;
    let entries = number(1, 100)? * budget / ENTRY_BYTES;
    let kind = arguments.get(2).map_or(Ok(IndexKind::FdTree), |kind| kind.parse())?;
    let device = Arc::new(MemoryDevice::new());
    let db = Db::builder_on(device).memory_budget(budget).inline_merges(4).open()?;
    let keyspace = db.keyspace("default", KeyspaceOptions::default().index(kind))?;
    let value = [7; 100];
    println!("{} KiB, {entries} entries, {kind}", budget >> 10);
    phase(&db, "load", entries, &mut |at| Ok(keyspace.insert(key(at), value)?))?;
    let mut random = Random(7);
    let mut overwrite = |_: u64| Ok(keyspace.insert(key(random.below(entries)), value)?);
    phase(&db, "first overwrites", entries / 2, &mut overwrite)?;
    let before = written(&db)?;
    let (mut hits, mut misses) = (0.0, 0.0);
    for _ in 0..ROUNDS {
        (0..entries / ROUNDS).try_for_each(&mut overwrite)?;
        hits += lookups(&db, &keyspace, entries, true)? / ROUNDS as f64;
        misses += lookups(&db, &keyspace, entries, false)? / ROUNDS as f64;
    }
    report("overwrite", before, &written(&db)?, entries / ROUNDS * ROUNDS);
    println!("reads: {hits:.2} a hit, {misses:.2} a miss");
    for keyspace in &db.stats()?.keyspaces {
        println!("{:?}; {} sorted runs", keyspace.shape, keyspace.sorted_runs);
        for level in &keyspace.levels {
            println!("level {}: {} blocks, {} puts", level.rank, level.blocks, level.puts);
        }
    }
    println!("{:?}", db.stats()?.memory);
    Ok(db.close()?)
}

/// SplitMix64 of a counter: no two keys are equal.
fn key(number: u64) -> [u8; 16] {
    let mut random = Random(number);
    let mut key = [0; 16];
    key[..8].copy_from_slice(&random.next().to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number less than `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// Runs `count` operations and prints what they wrote.
fn phase(
    db: &Db,
    name: &str,
    count: u64,
    operation: &mut dyn FnMut(u64) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let before = written(db)?;
    (0..count).try_for_each(operation)?;
    report(name, before, &written(db)?, count);
    Ok(())
}

/// Bytes written so far, by purpose.
fn written(db: &Db) -> Result<Vec<(&'static str, u64)>, Box<dyn Error>> {
    Ok(db.stats()?.io.iter().map(|row| (row.purpose, row.bytes_written)).collect())
}

/// Prints the bytes written per byte of keys and values.
fn report(name: &str, before: Vec<(&'static str, u64)>, after: &[(&str, u64)], operations: u64) {
    print!("{name}:");
    let mut all = 0.0;
    for ((purpose, after), (_, before)) in after.iter().zip(before) {
        let share = (after - before) as f64 / (operations * ENTRY_BYTES) as f64;
        all += share;
        if share > 0.005 {
            print!(" {purpose} {share:.2}");
        }
    }
    println!("; in all {all:.2} bytes per byte");
}

/// Blocks read per lookup of a key that exists, or does not.
fn lookups(db: &Db, keys: &Keyspace, entries: u64, exists: bool) -> Result<f64, Box<dyn Error>> {
    let read = || -> esker::Result<u64> {
        Ok(db.stats()?.io.iter().filter(|row| row.purpose == "user").map(|row| row.reads).sum())
    };
    let mut random = Random(if exists { 11 } else { 13 });
    let before = read()?;
    for _ in 0..LOOKUPS / ROUNDS {
        let mut key = key(random.below(entries));
        if !exists {
            key[15] ^= 1;
            key[8] = 1;
        }
        if keys.get(key)?.is_some() != exists {
            return Err("a key that exists was not found, or one was that does not".into());
        }
    }
    Ok((read()? - before) as f64 / (LOOKUPS / ROUNDS) as f64)
}
