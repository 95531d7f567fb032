//! What backups read and write: a full one, and later ones after parts of the store have changed.
//!
//! `cargo run --release --package esker --example backup [ENTRIES [FOLDER]]`

use std::path::PathBuf;
use std::time::Instant;

use esker::{Backup, Db, Keyspace};

const VALUE_BYTES: usize = 100;
const BATCH: u64 = 1000;

/// Scatters numbers, so that keys come in no order.
const fn scattered(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

fn write(db: &Db, keyspace: &Keyspace, numbers: impl Iterator<Item = u64>) -> esker::Result<()> {
    let mut batch = db.batch();
    for (count, number) in (1..).zip(numbers) {
        let key = format!("{:016x}", scattered(number));
        let mut value = vec![0; VALUE_BYTES];
        value.iter_mut().zip((number..).step_by(7)).for_each(|(byte, seed)| *byte = seed as u8);
        batch.insert(keyspace, key, value);
        if count % BATCH == 0 {
            std::mem::replace(&mut batch, db.batch()).commit()?;
        }
    }
    batch.commit().map(drop)
}

fn backup(db: &Db, to: &std::path::Path, what: &str) -> esker::Result<()> {
    let started = Instant::now();
    let report = db.backup(to)?;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!(
        "| {what} | {:.1} | {:.1} | {:.1} | {:.2} |",
        mib(report.bytes_total),
        mib(report.bytes_read),
        mib(report.bytes_written),
        started.elapsed().as_secs_f64()
    );
    Ok(())
}

fn main() -> esker::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let entries = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let folder = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let place = |what: &str| folder.join(format!("esker-backup-{what}-{}", std::process::id()));
    let (store, to, restored) = (place("store"), place("copy"), place("restored"));
    let db = Db::open(&store)?;
    let keyspace = db.keyspace("default", Default::default())?;
    write(&db, &keyspace, 0..entries)?;
    db.compact()?;
    println!("| backup | holds, MiB | read | written | seconds |");
    println!("|---|---:|---:|---:|---:|");
    backup(&db, &to, "the first")?;
    backup(&db, &to, "nothing changed")?;
    let hundredth = entries / 100;
    write(&db, &keyspace, (0..hundredth).map(|number| number * 97 % entries))?;
    backup(&db, &to, "1 % overwritten, in the log")?;
    db.flush()?;
    backup(&db, &to, "the same, written out")?;
    write(&db, &keyspace, (0..20 * hundredth).map(|number| number * 89 % entries))?;
    backup(&db, &to, "20 % overwritten")?;
    db.compact()?;
    backup(&db, &to, "everything merged")?;
    let started = Instant::now();
    let copy = Backup::open(&to)?;
    let is_ok = copy.check()?.is_ok();
    println!("check: {is_ok}, {:.2} s", started.elapsed().as_secs_f64());
    let started = Instant::now();
    copy.restore(&restored)?;
    println!("restore: {:.2} s", started.elapsed().as_secs_f64());
    db.close()?;
    for folder in [store, to, restored] {
        // The system's temporary folder is not ours to fill.
        let _stays_behind = std::fs::remove_dir_all(folder);
    }
    Ok(())
}
