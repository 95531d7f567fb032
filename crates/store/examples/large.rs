//! Values stored apart, beside the disk: the rates and bytes of `docs/performance.md`.
//!
//! ```text
//! cargo run --release -p esker --example large -- FOLDER [MIB] [KIB_A_VALUE]
//! ```
//!
//! Writes so much to a file as fast as the disk takes it in order, with one sync, and then as
//! often as
//! values to stores: one after the other, by two and four threads, in batches of eight, and as
//! streams; reads them back; and moves their references through merges.

use std::error::Error;
use std::io::{Read, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use esker::{Db, Keyspace, KeyspaceOptions, Stats};
use esker_device::file::FileDevice;
use esker_device::{AlignedBuf, Caching, Device, Open, Purpose};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let folder = Path::new(arguments.first().ok_or("which folder?")?);
    let number = |index: usize, default: u64| match arguments.get(index) {
        Some(text) => text.parse::<u64>().map_err(|error| format!("{text}: {error}")),
        None => Ok(default),
    };
    let (total, value_bytes) = (number(1, 512)? << 20, number(2, 1024)? << 10);
    let count = total / value_bytes;
    let value: Vec<u8> = (0..value_bytes).map(|at| ((at * 151) >> 3) as u8).collect();
    let rate = |took: Duration| total as f64 / took.as_secs_f64() / f64::from(1 << 20);
    let disk = rate(write_file(folder, total)?);
    println!("the disk, in order: {disk:.0} MiB/s");
    let show = |name: &str, took: Duration| {
        println!("{name}: {:.0} MiB/s, {:.0} % of the disk", rate(took), 100.0 * rate(took) / disk);
    };
    for threads in [1, 2, 4] {
        let took = in_store(folder, |_, keyspace| by_threads(keyspace, threads, count, &value))?;
        show(&format!("{threads} threads, one value a write"), took);
    }
    let took = in_store(folder, |db, keyspace| in_batches(db, keyspace, count, &value))?;
    show("batches of eight", took);
    let took = in_store(folder, |_, keyspace| as_streams(keyspace, count, &value))?;
    show("streams", took);
    let took = in_store(folder, |db, keyspace| {
        let load = by_threads(keyspace, 2, count, &value)?;
        merges(db, keyspace, count)?;
        show("read back", read_back(keyspace, count)?);
        Ok(load)
    })?;
    show("the same, then merged", took);
    Ok(())
}

/// Writes a file in order, in pieces of a megabyte, past the page cache.
fn write_file(folder: &Path, total: u64) -> Outcome<Duration> {
    let place = folder.join("disk");
    let device = FileDevice::create(&place)?;
    let file = device.open("file", Open::CreateNew, Caching::Direct)?;
    let mut bytes = AlignedBuf::zeroed(1 << 20);
    bytes.fill(0x5a);
    let begun = Instant::now();
    file.preallocate(total, Purpose::User)?;
    for offset in (0..total).step_by(1 << 20) {
        file.write_at(offset, &bytes, Purpose::User)?;
    }
    file.sync(Purpose::User)?;
    let took = begun.elapsed();
    std::fs::remove_dir_all(place)?;
    Ok(took)
}

fn in_store(
    folder: &Path,
    run: impl FnOnce(&Db, &Keyspace) -> Outcome<Duration>,
) -> Outcome<Duration> {
    let place = folder.join("store");
    let db = Db::open(&place)?;
    let keyspace = db.keyspace("values", KeyspaceOptions::default().inline_bytes_max(16 << 10))?;
    let took = run(&db, &keyspace)?;
    db.close()?;
    std::fs::remove_dir_all(place)?;
    Ok(took)
}

fn by_threads(keyspace: &Keyspace, threads: u64, count: u64, value: &[u8]) -> Outcome<Duration> {
    let begun = Instant::now();
    thread::scope(|scope| {
        let write = |thread: u64| {
            move || {
                (thread..count)
                    .step_by(threads as usize)
                    .try_for_each(|number| keyspace.insert(number.to_be_bytes(), value))
            }
        };
        let writers: Vec<_> = (0..threads).map(|thread| scope.spawn(write(thread))).collect();
        writers.into_iter().try_for_each(|writer| match writer.join() {
            Ok(written) => Ok(written?),
            Err(_) => Err("a writer panicked".into()),
        })
    })
    .map(|()| begun.elapsed())
}

fn in_batches(db: &Db, keyspace: &Keyspace, count: u64, value: &[u8]) -> Outcome<Duration> {
    let begun = Instant::now();
    for first in (0..count).step_by(8) {
        let mut batch = db.batch();
        for number in first..(first + 8).min(count) {
            batch.insert(keyspace, number.to_be_bytes(), value);
        }
        batch.commit()?;
    }
    Ok(begun.elapsed())
}

fn as_streams(keyspace: &Keyspace, count: u64, value: &[u8]) -> Outcome<Duration> {
    let begun = Instant::now();
    for number in 0..count {
        let mut writer = keyspace.writer(number.to_be_bytes())?;
        for part in value.chunks(64 << 10) {
            writer.write_all(part)?;
        }
        writer.finish()?;
    }
    Ok(begun.elapsed())
}

fn read_back(keyspace: &Keyspace, count: u64) -> Outcome<Duration> {
    let mut buffer = vec![0; 64 << 10];
    let begun = Instant::now();
    for number in 0..count {
        let mut reader = keyspace.reader(number.to_be_bytes())?.ok_or("a value is not there")?;
        while reader.read(&mut buffer)? > 0 {}
    }
    Ok(begun.elapsed())
}

/// Has every reference written several times, and says what that wrote.
fn merges(db: &Db, keyspace: &Keyspace, count: u64) -> Outcome<()> {
    db.flush()?;
    let loaded = written(&db.stats()?);
    let user = db.stats()?.user_bytes_written;
    println!("bytes written a byte, loaded: {:.4}", loaded as f64 / user as f64);
    for round in 0..5_u64 {
        for number in 0..count {
            let key = [&number.to_be_bytes()[..], &round.to_be_bytes()].concat();
            keyspace.insert(key, "a neighbour")?;
        }
        db.compact()?;
    }
    let merged = written(&db.stats()?);
    println!("and after five full merges: {:.4}", merged as f64 / user as f64);
    Ok(())
}

fn written(stats: &Stats) -> u64 {
    stats.io.iter().map(|io| io.bytes_written).sum()
}
