//! What history costs: loads entries of 16 + 100 bytes, overwrites each of them several times at
//! random, and prints what that wrote, what is on the device, and how many reads it takes to read
//! the present and the past. The counters of `docs/performance/versions.md`.
//!
//! ```text
//! cargo run --release -p esker --example versions -- FOLDER [KEYS] [OVERWRITES] [BUDGET_MIB] \
//!     [SHARE]
//! ```
//!
//! SHARE is the keyspace's `history_share`, or `none` for a keyspace without history. FOLDER must
//! not exist.

use std::error::Error;
use std::time::{Duration, Instant};

use esker::{Db, History, Keyspace, KeyspaceOptions, KeyspaceStats};

type Done<T = ()> = Result<T, Box<dyn Error>>;

/// Bytes of a key and a value.
const ENTRY_BYTES: u64 = 116;
/// Lookups, and scans of 100 entries, of each measurement.
const LOOKUPS: u64 = 20_000;
const SCANS: u64 = 2_000;
/// Lookups with nothing of the past index in memory.
const FIRST_LOOKUPS: u64 = 2_000;
/// The ages at which the past is read, in percent of the overwrites.
const AGES: [u64; 3] = [10, 50, 90];

fn main() -> Done {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default: u64| match arguments.get(index) {
        Some(text) => text.parse::<u64>().map_err(|error| format!("{text}: {error}")),
        None => Ok(default),
    };
    let folder = arguments.first().ok_or("which folder?")?;
    if std::path::Path::new(folder).exists() {
        return Err(format!("{folder} exists").into());
    }
    let (keys, overwrites) = (number(1, 100_000)?, number(2, 10)?);
    let budget = number(3, 8)? << 20;
    let share = match arguments.get(4).map(String::as_str) {
        Some("none") => None,
        Some(share) => Some(share.parse::<f64>()?),
        None => Some(0.5),
    };
    let marks = write(folder, keys, overwrites, budget, share)?;
    let db = Db::builder(folder).memory_budget(budget).open()?;
    let keyspace = db.open_keyspace("entries")?.ok_or("no keyspace")?;
    let mut random = Random(keys | 1);
    read_now(&db, &keyspace, &mut random, keys)?;
    if share.is_some() {
        for (age, version) in marks {
            read_past(&db, &keyspace, &mut random, keys, (age, version))?;
        }
        read_histories(&db, &keyspace, &mut random, keys)?;
    }
    Ok(db.close()?)
}

/// Xorshift.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn value(&mut self) -> [u8; 100] {
        let mut value = [0; 100];
        for chunk in value.chunks_mut(8) {
            let bytes = self.next().to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
        value
    }

    fn key(&mut self, keys: u64) -> [u8; 16] {
        key(self.next() % keys)
    }
}

/// Keys in no order, no two of them equal.
fn key(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Writes everything; the versions at the ages.
fn write(
    folder: &str,
    keys: u64,
    overwrites: u64,
    budget: u64,
    share: Option<f64>,
) -> Done<Vec<(u64, u64)>> {
    let db = Db::builder(folder).memory_budget(budget).open()?;
    let mut options = KeyspaceOptions::default();
    if let Some(share) = share {
        options = options.history(History::All).history_share(share);
    }
    let keyspace = db.keyspace("entries", options)?;
    let (mut random, mut marks) = (Random(0x88_1726_4546_3325), Vec::new());
    let start = Instant::now();
    for number in 0..keys {
        keyspace.insert(key(number), random.value())?;
    }
    let total = keys * overwrites;
    for written in 1..=total {
        keyspace.insert(random.key(keys), random.value())?;
        let age = AGES.into_iter().find(|age| written == total * age / 100);
        marks.extend(age.map(|age| (age, db.version())));
    }
    db.flush()?;
    let seconds = start.elapsed().as_secs_f64();
    wait_for_merges(&db)?;
    print_written(&db, keys + total, seconds)?;
    db.close()?;
    Ok(marks)
}

fn wait_for_merges(db: &Db) -> Done {
    let is_busy = |keyspace: &KeyspaceStats| keyspace.merge.is_some() || keyspace.flushing;
    while db.stats()?.keyspaces.iter().any(is_busy) {
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn print_written(db: &Db, puts: u64, seconds: f64) -> Done {
    let stats = db.stats()?;
    let of = stats.keyspaces.iter().find(|of| of.name == "entries").ok_or("no keyspace")?;
    let past: u64 = of.past_indexes.iter().map(|past| past.entries).sum();
    let now: u64 = of.levels.iter().map(|level| level.puts + level.tombstones).sum();
    let user_bytes = (puts * ENTRY_BYTES) as f64;
    let written: u64 = stats.io.iter().map(|io| io.bytes_written).sum();
    println!("{:.0} puts/s, {} past indexes", puts as f64 / seconds, of.past_indexes.len());
    print!("bytes written per user byte {:.3}:", written as f64 / user_bytes);
    for io in stats.io.iter().filter(|io| io.bytes_written > 0) {
        print!(" {} {:.3}", io.purpose, io.bytes_written as f64 / user_bytes);
    }
    println!("\nentries on the device per version {:.3}", (past + now) as f64 / puts as f64);
    println!("sorted runs {}, levels {}", of.sorted_runs, of.levels.len());
    Ok(())
}

/// Reads for users so far.
fn reads(db: &Db) -> Done<u64> {
    let stats = db.stats()?;
    let user = stats.io.iter().find(|io| io.purpose == "user");
    Ok(user.map_or(0, |io| io.reads))
}

/// Runs `read` so often: device reads, and runs per second.
fn measured(db: &Db, count: u64, mut read: impl FnMut() -> Done) -> Done<(f64, f64)> {
    let (before, start) = (reads(db)?, Instant::now());
    for _ in 0..count {
        read()?;
    }
    let rate = count as f64 / start.elapsed().as_secs_f64();
    Ok(((reads(db)? - before) as f64 / count as f64, rate))
}

fn read_now(db: &Db, keyspace: &Keyspace, random: &mut Random, keys: u64) -> Done {
    let mut get = || {
        keyspace.get(random.key(keys))?.ok_or("a key is missing")?;
        Ok(())
    };
    measured(db, LOOKUPS, &mut get)?;
    let (gets, gets_rate) = measured(db, LOOKUPS, get)?;
    let (scans, scans_rate) = measured(db, SCANS, || {
        for entry in keyspace.range(random.key(keys)..)?.take(100) {
            entry?;
        }
        Ok(())
    })?;
    println!(
        "now: get {gets:.3} reads, {gets_rate:.0}/s; scan of 100 {scans:.2}, {scans_rate:.0}/s"
    );
    Ok(())
}

fn read_past(
    db: &Db,
    keyspace: &Keyspace,
    random: &mut Random,
    keys: u64,
    (age, version): (u64, u64),
) -> Done {
    let past = keyspace.at(version)?;
    let mut get = || {
        past.get(random.key(keys))?.ok_or("a key is missing")?;
        Ok(())
    };
    let (first, _) = measured(db, FIRST_LOOKUPS, &mut get)?;
    let (gets, gets_rate) = measured(db, LOOKUPS, get)?;
    let (scans, scans_rate) = measured(db, SCANS, || {
        for entry in past.range(random.key(keys)..)?.take(100) {
            entry?;
        }
        Ok(())
    })?;
    println!(
        "at {age} %: get {first:.3} reads at first, then {gets:.3}, {gets_rate:.0}/s; \
         scan of 100 {scans:.2}, {scans_rate:.0}/s"
    );
    Ok(())
}

fn read_histories(db: &Db, keyspace: &Keyspace, random: &mut Random, keys: u64) -> Done {
    let mut changes = 0;
    let (reads, rate) = measured(db, SCANS / 4, || {
        for change in keyspace.history(random.key(keys))? {
            change?;
            changes += 1;
        }
        Ok(())
    })?;
    let changes = f64::from(changes) / (SCANS / 4) as f64;
    println!("history of a key, {changes:.1} changes: {reads:.2} reads, {rate:.0}/s");
    Ok(())
}
