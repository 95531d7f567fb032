//! The bars that Esker must reach, compared with SQLite's own modes.
//!
//! A bar on commits' latencies is judged where WAL's longest commit took longer than an idle thread
//! was off during it.

use super::mode::Mode;
use super::{Found, Workload};
use crate::bar::{Bar, Must};
use crate::experiment::series::CONTROL_FACTOR;

/// The longest gap of an idle thread during the transactions.
pub const CONTROL: &str = "control_max_micros";
/// The factor over WAL where a rewrite is so much cheaper than growing, and elsewhere.
const REWRITES_ARE_CHEAP: f64 = 3.0;

/// The bars of what was found.
#[must_use]
pub fn bars(found: &Found) -> Vec<Bar> {
    let over = |ours: Mode, theirs: Mode, metric: &str| found.ratio(ours, theirs, metric);
    let busy = ["reader_busy", "writer_busy"].map(|metric| found.worst_of_esker(metric));
    let refused = Bar {
        what: "esker: readers and writers that were refused",
        value: busy.iter().copied().sum(),
        must: Must::AtMost(0.0),
    };
    if found.plan.workload == Workload::Rl {
        return vec![
            Bar {
                what: "bytes written, esker over wal",
                value: over(Mode::Esker, Mode::Wal, "bytes_written"),
                must: Must::AtMost(0.65),
            },
            refused,
        ];
    }
    let faster = if found.probe.ratio() >= REWRITES_ARE_CHEAP { 2.6 } else { 1.3 };
    let to_wal = |metric| over(Mode::Esker, Mode::Wal, metric);
    let wal = |metric| found.median(Mode::Wal, metric);
    let longest = wal("commit_max_micros").zip(wal(CONTROL));
    let waits = longest.is_some_and(|(longest, control)| longest > CONTROL_FACTOR * control);
    let of_commits = |metric| to_wal(metric).filter(|_| waits);
    vec![
        Bar { what: "NOTPM, esker over wal", value: to_wal("notpm"), must: Must::AtLeast(faster) },
        Bar {
            what: "p99 of commits, esker over wal",
            value: of_commits("commit_p99_micros"),
            must: Must::AtMost(0.25),
        },
        Bar {
            what: "longest commit, esker over wal",
            value: of_commits("commit_max_micros"),
            must: Must::AtMost(0.1),
        },
        Bar {
            what: "bytes a transaction, esker over wal",
            value: to_wal("bytes_written_per_transaction"),
            must: Must::AtMost(0.35),
        },
        Bar {
            what: "NOTPM, esker-relaxed over wal-normal",
            value: over(Mode::EskerRelaxed, Mode::WalNormal, "notpm"),
            must: Must::AtLeast(0.85),
        },
        refused,
    ]
}
