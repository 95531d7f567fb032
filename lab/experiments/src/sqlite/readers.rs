//! Readers concurrent with the writers: some look at a table of one row now and then, and one may
//! hold the snapshot that it began with.

use std::thread;
use std::time::{Duration, Instant};

use esker_lab_measure::latency::Latencies;
use esker_lab_result::Metrics;
use serde_json::{Value, json};

use super::failed;
use super::mode::Place;
use super::shared::{Phase, Shared, is_busy};
use super::tally::{latencies_from_json, latencies_to_json};
use crate::{Error, Result};

/// The table that is looked at.
pub const STATUS: &str = "CREATE TABLE status(value INTEGER); INSERT INTO status VALUES (1)";

/// The latencies, refusals and waits of the readers.
#[derive(Debug, Default)]
pub struct Met {
    reads: Latencies,
    /// Reads that were refused because of a writer.
    busy: u64,
    /// Sleeps while a writer had the database.
    waits: u64,
}

impl Met {
    /// Adds those of another process.
    pub fn add(&mut self, other: &Self) {
        self.reads.add(&other.reads);
        self.busy += other.busy;
        self.waits += other.waits;
    }

    /// For another process.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "reads": latencies_to_json(&self.reads),
            "busy": self.busy,
            "waits": self.waits,
        })
    }

    /// Reads what [`to_json`](Self::to_json) made; `None` for anything else.
    #[must_use]
    pub fn from_json(value: &Value) -> Option<Self> {
        let number = |field: &str| value.get(field)?.as_u64();
        Some(Self {
            reads: latencies_from_json(value.get("reads")?)?,
            busy: number("busy")?,
            waits: number("waits")?,
        })
    }

    /// Says what was met.
    pub fn tell(&self, metrics: &mut Metrics) {
        let reads = self.reads.summary();
        metrics.insert("reads".to_owned(), reads.count as f64);
        metrics.insert("read_p50_micros".to_owned(), reads.p50_micros);
        metrics.insert("read_p99_micros".to_owned(), reads.p99_micros);
        metrics.insert("read_max_micros".to_owned(), reads.max_micros);
        metrics.insert("reader_busy".to_owned(), self.busy as f64);
        metrics.insert("reader_waits".to_owned(), self.waits as f64);
    }
}

/// Reads the status `rate` times a second, until the end.
pub fn status(place: &Place, rate: u32, shared: &Shared) -> Result<Met> {
    let mut met = Met::default();
    if rate == 0 {
        return Ok(met);
    }
    let mut connection = place.open()?;
    let what = || failed(place.mode, "read the status");
    let waits = shared.wait_for_locks(&mut connection).map_err(what())?;
    let interval = Duration::from_secs(1) / rate;
    let mut due = Instant::now();
    while !shared.is_ending() {
        let counts = shared.phase() == Phase::Measuring;
        let begun = Instant::now();
        let read = connection
            .prepare_cached("SELECT value FROM status")
            .and_then(|mut query| query.query_row([], |row| row.get::<_, i64>(0)));
        match read {
            Ok(_) if counts => met.reads.record(begun.elapsed()),
            Err(error) if is_busy(&error) => met.busy += u64::from(counts && !shared.is_ending()),
            read => drop(read.map_err(what())?),
        }
        due = (due + interval).max(Instant::now());
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    met.waits = waits.count();
    Ok(met)
}

/// Begins a read transaction and keeps it until the end; its snapshot must not move meanwhile.
/// `query` gives one number that the writers change.
pub fn held(place: &Place, query: &str, shared: &Shared) -> Result<()> {
    let connection = place.open()?;
    let what = || failed(place.mode, "hold a snapshot");
    let number = || connection.query_row(query, [], |row| row.get::<_, i64>(0));
    connection.execute_batch("BEGIN").map_err(what())?;
    let first = number().map_err(what())?;
    while !shared.is_ending() {
        thread::sleep(Duration::from_millis(20));
    }
    let last = number().map_err(what())?;
    connection.execute_batch("COMMIT").map_err(what())?;
    if first == last {
        return Ok(());
    }
    let mode = place.mode.as_str();
    Err(Error::Invalid(format!("{mode}: a snapshot moved: it had {first}, then {last}")))
}
