//! The bytes that a run wrote.
//!
//! Bytes are those that the process passed to calls that write (`wchar` of `/proc/self/io`),
//! logs, checkpoints and zeros that a file grew by included: the same count in all modes, exact,
//! and without what a file system adds. No other thread writes meanwhile. SQLite keeps
//! temporary tables in memory then, and the index of its log is a mapping, which counts nowhere.

use std::fs;

use esker_lab_measure::process::DeviceBytes;
use esker_lab_result::Metrics;
use rusqlite::Connection;

use super::mode::Place;

/// Counts of the process, at some time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    bytes: u64,
    device_bytes: u64,
    syncs: u64,
}

impl Counters {
    /// Those so far: the bytes of this process and of others, the syncs of this process.
    #[must_use]
    pub fn now(place: &Place, connection: &Connection, others: &[u32]) -> Self {
        let mut counters = Self { syncs: syncs(place, connection), ..Self::default() };
        let others = others.iter().map(u32::to_string);
        for process in std::iter::once("self".to_owned()).chain(others) {
            let io = fs::read_to_string(format!("/proc/{process}/io"));
            counters.bytes += io.ok().and_then(|io| after(&io, "wchar")).unwrap_or(0);
            counters.device_bytes += DeviceBytes::of(&process).map_or(0, |bytes| bytes.written);
        }
        counters
    }

    /// Adds syncs of other processes.
    pub const fn add_syncs(&mut self, syncs: u64) {
        self.syncs += syncs;
    }

    /// Says what was added since `before`, in all and for each of `transactions`.
    pub fn tell(&self, before: &Self, transactions: u64, metrics: &mut Metrics) {
        let mut tell = |name: &str, count: u64| {
            metrics.insert(name.to_owned(), count as f64);
            let each = count as f64 / transactions.max(1) as f64;
            metrics.insert(format!("{name}_per_transaction"), each);
        };
        tell("bytes_written", self.bytes.saturating_sub(before.bytes));
        tell("device_bytes", self.device_bytes.saturating_sub(before.device_bytes));
        tell("syncs", self.syncs.saturating_sub(before.syncs));
    }
}

/// Syncs of the database so far, of this process.
pub fn syncs(place: &Place, connection: &Connection) -> u64 {
    if !place.mode.is_esker() {
        return esker_sqlite::syncs();
    }
    let syncs = connection.query_row("PRAGMA esker_stats = syncs", [], |row| row.get(0));
    syncs.ok().and_then(|syncs: String| syncs.parse().ok()).unwrap_or(0)
}

/// The number on the line of a name.
fn after(lines: &str, name: &str) -> Option<u64> {
    let number = |line: &str| line.strip_prefix(name)?.strip_prefix(':')?.trim().parse().ok();
    lines.lines().find_map(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::mode::{Mode, link};

    #[test]
    fn numbers_are_found_by_name() {
        let io = "rchar: 5\nwchar: 77\nwrite_bytes: 4096\n";
        assert_eq!(after(io, "wchar"), Some(77));
        assert_eq!(after(io, "write"), None);
        assert_eq!(after("wchar: many", "wchar"), None);
    }

    #[test]
    fn a_durable_commit_is_one_sync() {
        link().unwrap();
        let folder = tempfile::tempdir().unwrap();
        for mode in [Mode::Esker, Mode::Wal] {
            let place = Place { mode, folder: folder.path().join(mode.as_str()), cache_mib: 1 };
            fs::create_dir(&place.folder).unwrap();
            let connection = place.open().unwrap();
            connection.execute_batch("CREATE TABLE t(x)").unwrap();
            let before = Counters::now(&place, &connection, &[]);
            for number in 0..5 {
                connection.execute("INSERT INTO t VALUES (?1)", [number]).unwrap();
            }
            let mut metrics = Metrics::new();
            Counters::now(&place, &connection, &[]).tell(&before, 5, &mut metrics);
            assert_eq!(metrics["syncs"], 5.0, "{mode:?}");
            assert!(metrics["bytes_written"] > 0.0);
        }
    }
}
