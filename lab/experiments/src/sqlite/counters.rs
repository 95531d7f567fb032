//! What a run wrote.
//!
//! Bytes are those that the process passed to calls that write (`wchar` of `/proc/self/io`),
//! logs, checkpoints and zeros that a file grew by included: the same count in all modes, exact,
//! and without what a file system adds. Nobody else in the process writes meanwhile. SQLite keeps
//! temporary tables in memory then, and the index of its log is a mapping, which counts nowhere.

use std::fs;

use rusqlite::Connection;

use super::mode::Place;
use crate::measure::Metrics;
use crate::measure::process::DeviceBytes;

/// Counts of the process, at some time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    bytes: u64,
    device_bytes: u64,
    syncs: Option<u64>,
}

impl Counters {
    /// Those so far. Syncs are known where the store counts them.
    #[must_use]
    pub fn now(place: &Place, connection: &Connection) -> Self {
        let bytes = fs::read_to_string("/proc/self/io").ok().and_then(|io| after(&io, "wchar"));
        let device_bytes = DeviceBytes::now().map_or(0, |bytes| bytes.written);
        let syncs = place.mode.is_esker().then(|| {
            let stats = connection.query_row("PRAGMA esker_stats", [], |row| row.get(0));
            stats.ok().and_then(|stats: String| after(&stats, "syncs"))
        });
        Self { bytes: bytes.unwrap_or(0), device_bytes, syncs: syncs.flatten() }
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
        if let (Some(now), Some(before)) = (self.syncs, before.syncs) {
            tell("syncs", now.saturating_sub(before));
        }
    }
}

/// The number that follows a name.
fn after(text: &str, name: &str) -> Option<u64> {
    let (_, rest) = text.split_once(name)?;
    let digits = rest.trim_start_matches(|c: char| !c.is_ascii_digit());
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits.get(..end)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_name() {
        assert_eq!(after("rchar: 5\nwchar: 77\n", "wchar"), Some(77));
        assert_eq!(after("Stats { commits: 1, syncs: 12, x: 3 }", "syncs"), Some(12));
        assert_eq!(after(r#"{"syncs":9}"#, "syncs"), Some(9));
        assert_eq!(after("nothing", "syncs"), None);
    }
}
