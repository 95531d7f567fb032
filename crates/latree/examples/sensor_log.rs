//! A log of sensors with range queries, on a chip in a file as a firmware has it on flash.
//!
//! `cargo run --release --example sensor_log -p esker-latree -- [IMAGE]`
//!
//! A key is the number of a sensor and a time, both big-endian, so that the measurements of a
//! sensor are neighbours in the order of their time. The log keeps the last day: older measurements
//! are removed as new ones come. Without IMAGE the image is a file of the temporary folder.

use std::path::{Path, PathBuf};

use esker_latree::{Direction, FileChip, ImageSizes, LaTree, Options};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
type Log = LaTree<FileChip>;

const SENSORS: u16 = 64;
const HOUR: u32 = 3600;
const DAY: u32 = 24 * HOUR;
/// Seconds between two measurements of a sensor.
const STEP: u32 = 60;

/// 4 MiB of small-block flash.
const CHIP: ImageSizes =
    ImageSizes { page_bytes: 512, pages_per_block: 32, blocks: 256, subtree_levels: 2 };

fn key(sensor: u16, time: u32) -> [u8; 6] {
    let mut key = [0; 6];
    key[..2].copy_from_slice(&sensor.to_be_bytes());
    key[2..].copy_from_slice(&time.to_be_bytes());
    key
}

fn time_of(key: &[u8]) -> u32 {
    key.get(2..6).and_then(|time| time.try_into().ok()).map_or(0, u32::from_be_bytes)
}

/// Tenths of a degree: warmer at noon.
fn measured(sensor: u16, time: u32) -> i16 {
    let noon = i64::from(time % DAY) - i64::from(DAY / 2);
    (250 - noon.abs() / 432 + i64::from(sensor % 7)) as i16
}

/// Adds the measurements of a time span, and syncs once a minute of them.
fn append(log: &mut Log, from: u32, to: u32) -> Result<()> {
    for time in (from..to).step_by(STEP as usize) {
        for sensor in 0..SENSORS {
            log.put(&key(sensor, time), &measured(sensor, time).to_le_bytes())?;
        }
        log.sync()?;
    }
    Ok(())
}

/// Removes what was measured before a time. Keys of a batch are collected first, because a range
/// holds the tree.
fn forget(log: &mut Log, before: u32) -> Result<u64> {
    let mut removed = 0;
    for sensor in 0..SENSORS {
        loop {
            let old = log.range(&key(sensor, 0), Some(&key(sensor, before)), Direction::Forward);
            let keys: Vec<Vec<u8>> =
                old.take(64).map(|entry| Ok(entry?.0)).collect::<Result<_>>()?;
            for key in &keys {
                log.remove(key)?;
                removed += 1;
            }
            if keys.len() < 64 {
                break;
            }
        }
    }
    log.sync()?;
    Ok(removed)
}

/// The mean of a sensor in a time span, and of how many measurements.
fn mean(log: &mut Log, sensor: u16, from: u32, to: u32) -> Result<(f64, u64)> {
    let (mut sum, mut count) = (0.0, 0);
    for entry in log.range(&key(sensor, from), Some(&key(sensor, to)), Direction::Forward) {
        let (_, value) = entry?;
        sum += f64::from(i16::from_le_bytes(value.as_slice().try_into()?)) / 10.0;
        count += 1;
    }
    Ok((sum / f64::from(count.max(1) as u32), count))
}

/// The last measurement of a sensor.
fn last(log: &mut Log, sensor: u16) -> Result<Option<u32>> {
    let next = key(sensor + 1, 0);
    let mut newest = log.range(&key(sensor, 0), Some(&next), Direction::Backward);
    Ok(newest.next_entry()?.map(|(key, _)| time_of(&key)))
}

fn run(path: &Path) -> Result<()> {
    let mut log = LaTree::create(FileChip::create(path, CHIP)?, Options::default())?;
    let mut removed = 0;
    for hour in 0..36 {
        append(&mut log, hour * HOUR, (hour + 1) * HOUR)?;
        if hour >= 24 {
            removed += forget(&mut log, (hour - 23) * HOUR)?;
        }
    }
    println!("{} measurements, {removed} of them removed", 36 * HOUR / STEP * u32::from(SENSORS));
    // After a reset or a power cut: what was synced is there.
    drop(log);
    let mut log = LaTree::open(FileChip::open(path)?, Options::default())?;
    let (degrees, count) = mean(&mut log, 7, 30 * HOUR, 31 * HOUR)?;
    println!("sensor 7, hour 30: {degrees:.1} degrees of {count} measurements");
    let (_, count) = mean(&mut log, 7, 0, 12 * HOUR)?;
    println!("sensor 7, hours 0 to 11: {count} measurements");
    println!("sensor 63, the last: {:?} s", last(&mut log, 63)?);
    log.check()?;
    let erases: u64 = log.chip().erases().map(u64::from).sum();
    let stats = log.stats();
    println!(
        "{} pages in use, {} blocks free, blocks erased {erases} times, {} to {} each",
        stats.live_pages, stats.free_blocks, stats.erases_least, stats.erases_greatest
    );
    Ok(())
}

fn main() -> Result<()> {
    let given = std::env::args_os().nth(1).map(PathBuf::from);
    let name = format!("sensor-log-{}.img", std::process::id());
    let path = given.clone().unwrap_or_else(|| std::env::temp_dir().join(name));
    let done = run(&path);
    if given.is_none() {
        std::fs::remove_file(&path)?;
    }
    done
}
