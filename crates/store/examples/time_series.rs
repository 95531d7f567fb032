//! Readings of many sensors: written as they come, read by sensor and time, thinned out, and let go
//! of when they are old.
//!
//! `cargo run --example time_series`

use std::time::Duration;

use esker::{Db, Keyspace, KeyspaceOptions, Result};

/// Readings by sensor and moment. The keys of one sensor lie side by side in the order of time, so
/// that a window of it is one range.
struct Readings {
    db: Db,
    readings: Keyspace,
}

/// A reading, and when it was taken.
type Reading = (Duration, f64);

/// Removals of one batch.
const FORGOTTEN_AT_ONCE: usize = 10_000;

impl Readings {
    fn open(db: Db) -> Result<Self> {
        let readings = db.keyspace("readings", KeyspaceOptions::default())?;
        Ok(Self { db, readings })
    }

    /// Adds what all sensors have measured at one moment: all of it, or nothing.
    fn add(&self, at: Duration, measured: &[(u32, f64)]) -> Result<()> {
        let mut batch = self.db.batch();
        for (sensor, value) in measured {
            batch.insert(&self.readings, key(*sensor, at), value.to_be_bytes());
        }
        batch.commit()?;
        Ok(())
    }

    /// The readings of a sensor from one moment up to another.
    fn window(
        &self,
        sensor: u32,
        from: Duration,
        to: Duration,
    ) -> Result<impl Iterator<Item = Result<Reading>>> {
        let range = self.readings.range(key(sensor, from)..key(sensor, to))?;
        Ok(range.map(|entry| entry.map(|(key, value)| read(&key, &value))))
    }

    /// The newest reading of a sensor: one step from the end of its keys.
    fn newest(&self, sensor: u32) -> Result<Option<Reading>> {
        let newest = self.readings.prefix(sensor.to_be_bytes())?.next_back().transpose()?;
        Ok(newest.map(|(key, value)| read(&key, &value)))
    }

    /// The mean of each step of a window.
    fn means(&self, sensor: u32, from: Duration, to: Duration, step: Duration) -> Result<Vec<f64>> {
        let (mut means, mut at) = (Vec::new(), from);
        while at < to {
            let (mut sum, mut count) = (0.0, 0.0);
            for reading in self.window(sensor, at, (at + step).min(to))? {
                sum += reading?.1;
                count += 1.0;
            }
            means.push(sum / count);
            at += step;
        }
        Ok(means)
    }

    /// Lets go of what a sensor measured before `limit`; says how many readings. In batches, so
    /// that memory is bounded; what a crash leaves undone, the next call does.
    fn forget(&self, sensor: u32, limit: Duration) -> Result<usize> {
        let mut forgotten = 0;
        let mut range = self.readings.range(key(sensor, Duration::ZERO)..key(sensor, limit))?;
        loop {
            let mut batch = self.db.batch();
            for entry in range.by_ref().take(FORGOTTEN_AT_ONCE) {
                batch.remove(&self.readings, entry?.0);
            }
            if batch.is_empty() {
                return Ok(forgotten);
            }
            forgotten += batch.len();
            batch.commit()?;
        }
    }
}

/// Big-endian numbers: the order of the bytes is that of the numbers.
fn key(sensor: u32, at: Duration) -> Vec<u8> {
    let milliseconds = u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
    [&sensor.to_be_bytes()[..], &milliseconds.to_be_bytes()].concat()
}

fn read(key: &[u8], value: &[u8]) -> Reading {
    let at = key.get(4..).and_then(|at| at.try_into().ok()).map_or(0, u64::from_be_bytes);
    let value = value.try_into().map_or(f64::NAN, f64::from_be_bytes);
    (Duration::from_millis(at), value)
}

fn main() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("esker-series-{}", std::process::id()));
    let series = Readings::open(Db::open(&folder)?)?;

    let second = Duration::from_secs;
    for at in 0..3600_u32 {
        let warmth = 20.0 + f64::from(at) / 3600.0;
        series.add(second(u64::from(at)), &[(7, warmth), (8, -warmth)])?;
    }
    let means = series.means(7, second(0), second(3600), second(900))?;
    println!("quarters of an hour: {means:.2?}");
    println!("newest of 8: {:.2?}", series.newest(8)?.map(|(_, value)| value));
    let forgotten = series.forget(7, second(3000))?;
    let left = series.window(7, second(0), second(3600))?.count();
    println!("{forgotten} let go, {left} left");

    drop(series);
    let _ = std::fs::remove_dir_all(&folder);
    Ok(())
}
