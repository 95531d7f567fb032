//! The bars that Esker must reach, compared with SQLite's own modes.
//!
//! A bar on commits' latencies is judged where WAL's longest commit took longer than an idle thread
//! was off during it.

use esker_lab_result::{Findings, Part, Verdict};

use super::Workload;
use super::mode::Mode;
use super::probe::Probe;
use crate::experiment::series::CONTROL_FACTOR;

/// The longest gap of an idle thread during the transactions.
pub const CONTROL: &str = "control_max_micros";
/// The factor over WAL where a rewrite is so much cheaper than growing, and elsewhere.
const REWRITES_ARE_CHEAP: f64 = 3.0;

/// The bars of what was found.
#[must_use]
pub fn bars(found: &Findings, workload: Workload) -> Vec<Verdict> {
    let runs = found.whole();
    let over =
        |ours: Mode, theirs: Mode, metric: &str| runs.ratio(ours.as_str(), theirs.as_str(), metric);
    let busy = ["reader_busy", "writer_busy"].map(|metric| worst_of_esker(runs, metric));
    let refused = Verdict::at_most(
        "esker: readers and writers that were refused",
        busy.iter().copied().sum(),
        0.0,
    );
    if workload == Workload::Rl {
        return vec![
            Verdict::at_most(
                "bytes written, esker over wal",
                over(Mode::Esker, Mode::Wal, "bytes_written"),
                0.65,
            ),
            refused,
        ];
    }
    let faster = if Probe::of(found).ratio() >= REWRITES_ARE_CHEAP { 2.6 } else { 1.3 };
    let to_wal = |metric| over(Mode::Esker, Mode::Wal, metric);
    let wal = |metric| runs.median(Mode::Wal.as_str(), metric);
    let longest = wal("commit_max_micros").zip(wal(CONTROL));
    let waits = longest.is_some_and(|(longest, control)| longest > CONTROL_FACTOR * control);
    let of_commits = |metric| to_wal(metric).filter(|_| waits);
    vec![
        Verdict::at_least("NOTPM, esker over wal", to_wal("notpm"), faster),
        Verdict::at_most("p99 of commits, esker over wal", of_commits("commit_p99_micros"), 0.25),
        Verdict::at_most("longest commit, esker over wal", of_commits("commit_max_micros"), 0.1),
        Verdict::at_most(
            "bytes a transaction, esker over wal",
            to_wal("bytes_written_per_transaction"),
            0.35,
        ),
        Verdict::at_least(
            "NOTPM, esker-relaxed over wal-normal",
            over(Mode::EskerRelaxed, Mode::WalNormal, "notpm"),
            0.85,
        ),
        refused,
    ]
}

/// The greatest of all runs over the page store.
fn worst_of_esker(runs: Part<'_>, metric: &str) -> Option<f64> {
    let modes = [Mode::Esker, Mode::EskerOne, Mode::EskerRelaxed];
    let values = modes.into_iter().flat_map(|mode| runs.values(mode.as_str(), metric));
    values.max_by(f64::total_cmp)
}
