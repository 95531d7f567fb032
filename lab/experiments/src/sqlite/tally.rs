//! What terminals of TPC-C did while it counted: those of one thread, of several, or of another
//! process.

use esker_lab_measure::latency::Latencies;
use esker_lab_result::Metrics;
use esker_workload::tpcc::Kind;
use serde_json::{Value, json};

/// The transactions of a worker while it counted.
#[derive(Debug, Default)]
pub struct Tally {
    /// Of transactions that wrote: only `COMMIT`.
    pub commits: Latencies,
    /// Of all transactions, from before `BEGIN`.
    pub transactions: Latencies,
    /// By kind, those committed.
    pub kinds: [u64; Kind::ALL.len()],
    /// Transactions that TPC-C rolls back.
    pub rollbacks: u64,
    /// Transactions that were refused because of another connection, though they waited.
    pub busy: u64,
    /// Sleeps before a lock was had.
    pub waits: u64,
}

impl Tally {
    /// Adds those of another thread or process.
    pub fn add(&mut self, other: &Self) {
        self.commits.add(&other.commits);
        self.transactions.add(&other.transactions);
        for (ours, theirs) in self.kinds.iter_mut().zip(other.kinds) {
            *ours += theirs;
        }
        self.rollbacks += other.rollbacks;
        self.busy += other.busy;
        self.waits += other.waits;
    }

    /// Transactions of some kinds that were committed.
    pub fn committed(&self, which: impl Fn(Kind) -> bool) -> u64 {
        let kinds = Kind::ALL.into_iter().zip(self.kinds);
        kinds.filter(|(kind, _)| which(*kind)).map(|(_, count)| count).sum()
    }

    /// Says what was done in some seconds.
    pub fn tell(&self, seconds: f64, metrics: &mut Metrics) {
        let mut tell = |name: &str, value: f64| metrics.insert(name.to_owned(), value);
        let new_orders = self.committed(|kind| kind == Kind::NewOrder) as f64;
        tell("seconds", seconds);
        tell("new_orders", new_orders);
        tell("notpm", new_orders * 60.0 / seconds);
        tell("transactions", self.committed(|_| true) as f64);
        tell("rollbacks", self.rollbacks as f64);
        tell("writer_busy", self.busy as f64);
        tell("writer_waits", self.waits as f64);
        let commits = self.commits.summary();
        tell("commits", commits.count as f64);
        tell("commits_per_second", commits.count as f64 / seconds);
        tell("commit_p50_micros", commits.p50_micros);
        tell("commit_p99_micros", commits.p99_micros);
        tell("commit_max_micros", commits.max_micros);
        let whole = self.transactions.summary();
        tell("transaction_p50_micros", whole.p50_micros);
        tell("transaction_p99_micros", whole.p99_micros);
        tell("transaction_max_micros", whole.max_micros);
    }
    /// For another process.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "commits": latencies_to_json(&self.commits),
            "transactions": latencies_to_json(&self.transactions),
            "kinds": self.kinds,
            "rollbacks": self.rollbacks,
            "busy": self.busy,
            "waits": self.waits,
        })
    }

    /// Reads what [`to_json`](Self::to_json) made; `None` for anything else.
    #[must_use]
    pub fn from_json(value: &Value) -> Option<Self> {
        let number = |field: &str| value.get(field)?.as_u64();
        let mut kinds = [0; Kind::ALL.len()];
        for (kind, count) in kinds.iter_mut().zip(value.get("kinds")?.as_array()?) {
            *kind = count.as_u64()?;
        }
        Some(Self {
            commits: latencies_from_json(value.get("commits")?)?,
            transactions: latencies_from_json(value.get("transactions")?)?,
            kinds,
            rollbacks: number("rollbacks")?,
            busy: number("busy")?,
            waits: number("waits")?,
        })
    }
}

/// Latencies for another process: pairs of nanoseconds and how many there were, and the longest.
#[must_use]
pub fn latencies_to_json(latencies: &Latencies) -> Value {
    json!({ "counts": latencies.counts(), "max_nanos": latencies.max_nanos() })
}

/// Reads what [`latencies_to_json`] made; `None` for anything else.
#[must_use]
pub fn latencies_from_json(value: &Value) -> Option<Latencies> {
    let counts = value.get("counts")?.as_array()?.iter();
    let pair = |pair: &Value| Some((pair.get(0)?.as_u64()?, pair.get(1)?.as_u64()?));
    let counts: Option<Vec<(u64, u64)>> = counts.map(pair).collect();
    Some(Latencies::of_counts(&counts?, value.get("max_nanos")?.as_u64()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_tally_is_read_back() {
        let mut tally =
            Tally { kinds: [1, 2, 3, 4, 5], rollbacks: 6, busy: 7, waits: 8, ..Tally::default() };
        for micros in [17, 400, 400, 1_234_567] {
            tally.commits.record(Duration::from_micros(micros));
        }
        let text = tally.to_json().to_string();
        let read = Tally::from_json(&serde_json::from_str(&text).unwrap()).unwrap();
        assert_eq!(read.commits.summary(), tally.commits.summary());
        assert_eq!(read.transactions.summary().count, 0);
        assert_eq!((read.kinds, read.rollbacks, read.busy, read.waits), ([1, 2, 3, 4, 5], 6, 7, 8));
        assert!(Tally::from_json(&json!({ "kinds": [] })).is_none());
    }
}
