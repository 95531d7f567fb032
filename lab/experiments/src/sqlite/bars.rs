//! What Esker must show beside SQLite's own modes.

use serde_json::{Value, json};

use super::mode::Mode;
use super::{Found, Workload};

/// A figure, and what it must be.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// What is measured.
    pub what: &'static str,
    /// The figure; `None` where something was not measured.
    pub value: Option<f64>,
    /// What it must be.
    pub must: Must,
}

/// What a figure must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Must {
    /// So much or more.
    AtLeast(f64),
    /// So much or less.
    AtMost(f64),
}

impl Bar {
    /// Whether it is; `None` where nothing was measured.
    #[must_use]
    pub fn is_met(&self) -> Option<bool> {
        let value = self.value?;
        Some(match self.must {
            Must::AtLeast(least) => value >= least,
            Must::AtMost(most) => value <= most,
        })
    }

    /// One word for it.
    #[must_use]
    pub fn verdict(&self) -> &'static str {
        match self.is_met() {
            Some(true) => "met",
            Some(false) => "missed",
            None => "unknown",
        }
    }

    /// For machines.
    #[must_use]
    pub fn json(&self) -> Value {
        let (least, most) = match self.must {
            Must::AtLeast(least) => (Some(least), None),
            Must::AtMost(most) => (None, Some(most)),
        };
        json!({
            "what": self.what,
            "value": self.value,
            "at_least": least,
            "at_most": most,
            "verdict": self.verdict(),
        })
    }
}

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
    vec![
        Bar { what: "NOTPM, esker over wal", value: to_wal("notpm"), must: Must::AtLeast(faster) },
        Bar {
            what: "p99 of commits, esker over wal",
            value: to_wal("commit_p99_micros"),
            must: Must::AtMost(0.25),
        },
        Bar {
            what: "longest commit, esker over wal",
            value: to_wal("commit_max_micros"),
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
