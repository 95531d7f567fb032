//! SQLite on simulated flash: the evaluation of MV-FTL (D. Lee, M. Shin, W. Choi, H. Roh, S. Park,
//! IEEE TKDE 2017, section 4.2), on the [machine](crate::machine) in virtual time.
//!
//! [`pages`] is its figure 9 (pages written for each transaction), [`readers`] figure 6 (the RL
//! script with readers), [`tpcc_readers`] figure 7 (TPC-C with readers), [`workers`] figure 8
//! (TPC-C with several workers). [`trace`] records block traces. [`script`] and [`terminals`] make
//! one run of a workload, [`status`] are the readers.
//!
//! Times are those of the model, so only their ratios between modes say anything.

pub mod pages;
pub mod readers;
pub mod script;
pub mod status;
pub mod terminals;
pub mod tpcc_readers;
pub mod trace;
pub mod workers;

use std::time::Duration;

use esker_lab_measure::scale::Scale;
use esker_lab_result::Metrics;
use esker_workload::{rl, tpcc};

use crate::experiment::metric;
use crate::machine::board::Board;
use crate::machine::disk::Purpose;
use crate::machine::{Counts, Machine};
use crate::{Error, Result};

/// Blocks of 4 KiB that the host writes for each transaction that writes: the paper's "pages".
pub const PAGES: &str = "pages_per_transaction";
/// Seconds of virtual time.
pub const SECONDS: &str = "seconds";
/// New-Orders that were committed, a minute of virtual time.
pub const NOTPM: &str = "notpm";
/// 1 where a connection gave up waiting for a lock.
pub const FAILED: &str = "failed";
/// The most mappings of transactions at the end of one, those of the last version included.
pub const ENTRIES: &str = "entries_max";

/// The seed of workloads.
const SEED: u64 = 42;
/// The time for which a connection waits for a lock. (The paper does not say.)
const PATIENCE: Duration = Duration::from_secs(5);

/// The sizes of a scale.
#[derive(Clone, Copy, Debug)]
pub struct Sizing {
    /// Rows of the RL script.
    pub rl: rl::Sizes,
    /// Rows of TPC-C.
    pub tpcc: tpcc::Sizes,
    /// Blocks of 1 MiB on each of the device's eight dies.
    pub mib_per_die: u32,
    /// Transactions of TPC-C of which pages are counted.
    pub transactions: u64,
    /// Virtual seconds for which TPC-C runs on the plain device, a sixth of which does not count.
    /// While there always is a reader, a write-ahead log grows all the time, and has to fit on the
    /// device.
    pub seconds: u64,
}

impl Sizing {
    /// The sizes of a scale.
    #[must_use]
    pub fn of(scale: Scale) -> Self {
        match scale {
            Scale::Tiny => Self {
                rl: rl::Sizes::small(),
                tpcc: tpcc::Sizes::small(1),
                mib_per_die: 64,
                transactions: 60,
                seconds: 6,
            },
            Scale::Small => Self {
                rl: rl::Sizes { single: 1_000, many: 25_000, scans: 10, lookups: 500 },
                tpcc: tpcc::Sizes::full(1),
                mib_per_die: 128,
                transactions: 2_000,
                seconds: 24,
            },
            Scale::Full => Self {
                rl: rl::Sizes::full(),
                tpcc: tpcc::Sizes::full(1),
                mib_per_die: 256,
                transactions: 20_000,
                seconds: 60,
            },
        }
    }

    /// Virtual seconds for which TPC-C runs on a device. The board is slow.
    const fn seconds_on(&self, board: Board) -> u64 {
        match board {
            Board::Plain => self.seconds,
            Board::Jasmine | Board::JasmineByRecords => 2 * self.seconds,
        }
    }
}

/// Turns an answer of SQLite into an error that says what was tried.
fn failed(what: &'static str) -> impl Fn(rusqlite::Error) -> Error {
    move |error| Error::Run(format!("cannot {what}: {error}"))
}

/// What a machine has counted since an earlier time, for so many transactions.
fn counted(machine: &Machine, before: &Counts, transactions: u64, metrics: &mut Metrics) {
    use esker_flash::nand::Cause;
    let after = machine.counts();
    let each = |count: u64| count as f64 / transactions.max(1) as f64;
    let host = |counts: &Counts, purpose| counts.host.of(purpose);
    metric(metrics, "transactions", transactions as f64);
    metric(metrics, PAGES, each(after.host.total() - before.host.total()));
    for (name, purpose) in [
        ("data_per_transaction", Purpose::Data),
        ("journal_per_transaction", Purpose::Journal),
        ("metadata_per_transaction", Purpose::Metadata),
    ] {
        metric(metrics, name, each(host(&after, purpose) - host(before, purpose)));
    }
    metric(metrics, "barriers_per_transaction", each(after.host.barriers - before.host.barriers));
    metric(
        metrics,
        "firmware_programs_per_transaction",
        each(after.host.firmware_programs - before.host.firmware_programs),
    );
    let flash = after.flash.since(&before.flash);
    for (name, cause) in [
        ("host_programs_per_transaction", Cause::Host),
        ("gc_programs_per_transaction", Cause::Gc),
        ("map_programs_per_transaction", Cause::Map),
        ("commit_programs_per_transaction", Cause::Commit),
    ] {
        metric(metrics, name, each(flash.of(cause).programs));
    }
    metric(metrics, "programs_per_transaction", each(flash.total().programs));
    metric(metrics, "erases", flash.total().erases as f64);
    metric(metrics, ENTRIES, after.entries_max as f64);
    metric(metrics, "largest_transaction", after.largest as f64);
    metric(metrics, "refused", after.refused as f64);
}

/// All runs of a workload must leave the same rows.
#[derive(Debug, Default)]
struct SameRows(Option<(String, f64)>);

impl SameRows {
    fn check(&mut self, system: &str, fingerprint: f64) -> Result<()> {
        let (first, wanted) = self.0.get_or_insert_with(|| (system.to_owned(), fingerprint));
        if *wanted == fingerprint {
            return Ok(());
        }
        Err(Error::Invalid(format!("{first} and {system} do not leave the same rows")))
    }
}

/// Whether a ratio is within a quarter of the paper's.
fn is_near(found: f64, paper: f64) -> bool {
    found.is_finite() && (0.75 * paper..=1.25 * paper).contains(&found)
}

#[cfg(test)]
mod tests;
