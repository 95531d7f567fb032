//! The counters of `docs/performance/store.md`: loads random entries of 16 + 100 bytes and prints
//! what that wrote, by purpose and as the operating system counts it.
//!
//! ```text
//! cargo run --release -p esker --example measure -- load FOLDER [ENTRIES] [BUDGET_MIB]
//! cargo run --release -p esker --example measure -- writes FOLDER [ENTRIES] [BUDGET_MIB] [INDEX]\
//!     [POLICY]
//! cargo run --release -p esker --example measure -- scans FOLDER COUNT LENGTH [INDEX] [ENTRIES]\
//!     [BUDGET_MIB]
//! cargo run --release -p esker --example measure -- lookups COUNT
//! cargo run --release -p esker --example measure -- syncs [SYNC_MICROSECONDS]
//! ```
//!
//! `writes` loads the same entries, overwrites them at random (after one and a half times as many,
//! three times as many count) and then puts new ones while it deletes the oldest: bytes written per
//! byte of keys and values, and space.
//! `scans` loads the same entries, in the order of their numbers, if the folder has no store, and
//! scans LENGTH entries from random keys; with a length of 0 it looks keys up. It prints rates, and
//! reads of the device.
//! `lookups` is for callgrind: run it with two counts; the difference in instructions over the
//! difference in counts is what one lookup of a cached key costs. `syncs` says how well writers
//! who wait for the device share its syncs: durable puts of 1 to 16 threads into memory whose
//! every sync takes so long.

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use esker::{Compaction, Db, Durability, IndexKind, Keyspace, KeyspaceOptions};
use esker_device::delay::{DelayDevice, Delays};
use esker_device::memory::MemoryDevice;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default: u64| match arguments.get(index) {
        Some(text) => text.parse::<u64>().map_err(|error| format!("{text}: {error}")),
        None => Ok(default),
    };
    match arguments.first().map(String::as_str) {
        Some("load") => {
            let folder = arguments.get(1).ok_or("which folder?")?;
            load(folder, number(2, 5_000_000)?, number(3, 64)?)
        }
        Some("writes") => {
            let folder = arguments.get(1).ok_or("which folder?")?;
            let kind = arguments.get(4).map_or(Ok(IndexKind::FdTree), |kind| kind.parse())?;
            let merging =
                arguments.get(5).map_or(Ok(Compaction::default()), |name| name.parse())?;
            let db = Db::builder(folder).memory_budget(number(3, 64)? << 20);
            writes(db.compaction(merging).open()?, number(2, 5_000_000)?, kind)
        }
        Some("scans") => {
            let folder = arguments.get(1).ok_or("which folder?")?;
            let kind = arguments.get(4).map_or(Ok(IndexKind::Lsm), |kind| kind.parse())?;
            let db = Db::builder(folder).memory_budget(number(6, 16)? << 20).open()?;
            scans(db, kind, number(5, 1_000_000)?, number(2, 1_000)?, number(3, 100)?)
        }
        Some("lookups") => lookups(number(1, 10_000)?),
        Some("syncs") => syncs(Duration::from_micros(number(1, 100)?)),
        _ => {
            Err("say `load`, `writes` or `scans` with a FOLDER, `lookups COUNT` or `syncs`".into())
        }
    }
}

/// Random keys: SplitMix64 of a counter, so that no two are equal.
fn key(number: u64) -> [u8; 16] {
    let mut z = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    let mut key = [0; 16];
    key[..8].copy_from_slice(&z.to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

fn load(folder: &str, entries: u64, budget_mib: u64) -> Result<(), Box<dyn Error>> {
    let db = Db::builder(folder).memory_budget(budget_mib << 20).open()?;
    let keyspace = db.keyspace("default", KeyspaceOptions::default())?;
    let value: Vec<u8> = (0..100u8).map(|byte| byte.wrapping_mul(151)).collect();
    let system_before = system_write_bytes();
    let (mut merging, mut stalls) = (Duration::ZERO, 0);
    let start = Instant::now();
    for number in 0..entries {
        let put = Instant::now();
        keyspace.insert(key(number), &value)?;
        // A put that runs a flush or merge takes far longer than any other.
        let took = put.elapsed();
        if took > Duration::from_millis(5) {
            merging += took;
            stalls += 1;
        }
    }
    db.flush()?;
    let total = start.elapsed();
    db.persist()?;
    let outside = entries as f64 / total.saturating_sub(merging).as_secs_f64();
    println!("{entries} entries in {total:.2?}: {:.0}/s", entries as f64 / total.as_secs_f64());
    println!("outside {stalls} sorted_runs and merges ({merging:.2?}): {outside:.0}/s");
    let user_bytes = entries * 116;
    let stats = db.stats()?;
    println!("{stats:#?}");
    let system = system_write_bytes().saturating_sub(system_before);
    println!("write_bytes of /proc/self/io per user byte: {:.2}", ratio(system, user_bytes));
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    println!("{}", status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or("VmHWM: ?"));
    db.close()?;
    Ok(())
}

fn writes(db: Db, n: u64, kind: IndexKind) -> Result<(), Box<dyn Error>> {
    let keyspace = db.keyspace("default", KeyspaceOptions::default().index(kind))?;
    let value = |number: u64| {
        let mut value = [0; 100];
        for (at, part) in value.chunks_mut(16).enumerate() {
            part.copy_from_slice(&key(number ^ ((at as u64) << 40))[..part.len()]);
        }
        value
    };
    phase(&db, "load", n, &mut |at| Ok(keyspace.insert(key(at), value(at)).map(|()| 116)?))?;
    let mut random = 7u64;
    let mut overwrite = |_: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let number = ((u128::from(random) * u128::from(n)) >> 64) as u64;
        Ok(keyspace.insert(key(number), value(random)).map(|()| 116)?)
    };
    phase(&db, "(before overwriting)", n * 3 / 2, &mut overwrite)?;
    phase(&db, "overwrite", n * 3, &mut overwrite)?;
    let mut mix = |at: u64| {
        if at.is_multiple_of(2) {
            return Ok(keyspace.insert(key(n + at / 2), value(at)).map(|()| 116)?);
        }
        Ok(keyspace.remove(key(at / 2)).map(|()| 16)?)
    };
    phase(&db, "mix", n * 2, &mut mix)?;
    println!("{:#?}", db.stats()?.keyspaces);
    Ok(db.close()?)
}

/// Runs `count` operations, each of which answers its user bytes, and prints what they cost.
fn phase(
    db: &Db,
    name: &str,
    count: u64,
    operation: &mut dyn FnMut(u64) -> Result<u64, Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let written = || -> esker::Result<Vec<(String, u64)>> {
        let rows = db.stats()?.io;
        Ok(rows.into_iter().map(|row| (row.purpose.to_string(), row.bytes_written)).collect())
    };
    let (before, start) = (written()?, Instant::now());
    let (mut user, mut longest, mut peak) = (0, Duration::ZERO, 0);
    for at in 0..count {
        let begun = Instant::now();
        user += operation(at)?;
        longest = longest.max(begun.elapsed());
        if at.is_multiple_of(65_536) {
            let space = db.stats()?.space;
            peak = peak.max(space.allocated_bytes);
        }
    }
    let took = start.elapsed();
    db.flush()?;
    print!("{name}: {:.0}/s, longest {longest:.2?};", count as f64 / took.as_secs_f64());
    let mut all = 0.0;
    for ((purpose, after), (_, before)) in written()?.into_iter().zip(before) {
        let share = ratio(after - before, user);
        all += share;
        if share > 0.005 {
            print!(" {purpose} {share:.2}");
        }
    }
    println!("; in all {all:.2} per user byte; space at most {} MiB", peak >> 20);
    Ok(())
}

fn ratio(bytes: u64, user_bytes: u64) -> f64 {
    bytes as f64 / user_bytes as f64
}

fn system_write_bytes() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    line.and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn scans(
    db: Db,
    kind: IndexKind,
    entries: u64,
    count: u64,
    length: u64,
) -> Result<(), Box<dyn Error>> {
    let is_loaded = db.open_keyspace("default")?.is_some();
    let keyspace = db.keyspace("default", KeyspaceOptions::default().index(kind))?;
    for number in (0..entries).take_while(|_| !is_loaded) {
        keyspace.insert(key(number), [number as u8; 100])?;
    }
    wait_until_idle(&db)?;
    let user_reads = || -> esker::Result<(u64, u64)> {
        let user = db.stats()?.io.into_iter().find(|row| row.purpose == "user");
        Ok(user.map_or((0, 0), |row| (row.reads, row.bytes_read)))
    };
    // Warms the cache, unless there is little to measure.
    (0..count / 4).try_for_each(|at| scan(&keyspace, at * 104_729 % entries, length))?;
    let (before, start) = (user_reads()?, Instant::now());
    (0..count).try_for_each(|at| scan(&keyspace, at * 7_919 % entries, length))?;
    let (took, after) = (start.elapsed().as_secs_f64(), user_reads()?);
    let (reads, bytes) = (after.0 - before.0, after.1 - before.1);
    let reads_each = ratio(reads, count);
    println!(
        "{:.0}/s, {reads_each:.2} reads, {:.0} bytes",
        count as f64 / took,
        ratio(bytes, count)
    );
    Ok(db.close()?)
}

/// Under callgrind, `--toggle-collect=measure::scan` counts nothing else.
#[inline(never)]
fn scan(keyspace: &Keyspace, from: u64, length: u64) -> esker::Result<()> {
    if length == 0 {
        return keyspace.get(key(from)).map(drop);
    }
    let mut range =
        keyspace.range(key(from)..)?.limit(usize::try_from(length).unwrap_or(usize::MAX));
    while let Some(entry) = range.next_entry()? {
        black_box(entry);
    }
    Ok(())
}

/// Waits until background threads write nothing for a second.
fn wait_until_idle(db: &Db) -> Result<(), Box<dyn Error>> {
    db.flush()?;
    let written =
        || -> esker::Result<u64> { Ok(db.stats()?.io.iter().map(|row| row.bytes_written).sum()) };
    let mut last = written()?;
    loop {
        thread::sleep(Duration::from_secs(1));
        let now = written()?;
        if now == last {
            return Ok(());
        }
        last = now;
    }
}

fn lookups(count: u64) -> Result<(), Box<dyn Error>> {
    const ENTRIES: u64 = 100_000;
    let device = Arc::new(MemoryDevice::new());
    let db = Db::builder_on(device).memory_budget(64 << 20).open()?;
    let keyspace = db.keyspace("default", KeyspaceOptions::default())?;
    for number in 0..ENTRIES {
        keyspace.insert(key(number), [7; 100])?;
    }
    db.compact()?;
    for number in 0..ENTRIES {
        keyspace.get(key(number))?;
    }
    let mut found = 0;
    for number in 0..count {
        found += u64::from(keyspace.get(key(number * 7919 % ENTRIES))?.is_some());
    }
    println!("{found} of {count} found");
    Ok(())
}

fn syncs(sync: Duration) -> Result<(), Box<dyn Error>> {
    let mut of_one_thread = 0.0;
    for threads in [1, 2, 4, 8, 16] {
        let delays = Delays { sync, ..Delays::default() };
        let device = Arc::new(DelayDevice::new(Arc::new(MemoryDevice::new()), delays));
        let db = Db::builder_on(device).durability(Durability::Synced).open()?;
        let keyspace = db.keyspace("default", KeyspaceOptions::default())?;
        let rate = durable_puts_per_second(&keyspace, threads)?;
        if threads == 1 {
            of_one_thread = rate;
        }
        println!("{threads} threads: {rate:.0} puts/s, {:.2} times one", rate / of_one_thread);
        db.close()?;
    }
    Ok(())
}

/// Puts that all threads together make durable in a second, over two seconds.
fn durable_puts_per_second(keyspace: &Keyspace, threads: u64) -> Result<f64, Box<dyn Error>> {
    let next = AtomicU64::new(0);
    let start = Instant::now();
    let until = start + Duration::from_secs(2);
    let put = || -> esker::Result<()> {
        while Instant::now() < until {
            keyspace.insert(key(next.fetch_add(1, Ordering::Relaxed)), [7; 100])?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let writers: Vec<_> = (0..threads).map(|_| scope.spawn(put)).collect();
        writers.into_iter().try_for_each(|writer| match writer.join() {
            Ok(result) => result.map_err(Box::<dyn Error>::from),
            Err(_) => Err("a writer panicked".into()),
        })
    })?;
    Ok(next.into_inner() as f64 / start.elapsed().as_secs_f64())
}
