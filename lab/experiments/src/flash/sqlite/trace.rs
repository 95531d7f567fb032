//! What SQLite makes a host do to its device, as a block trace: the content of files, and the file
//! system's journal and metadata.

use std::path::Path;

use esker_flash::trace::TraceWriter;
use esker_lab_measure::scale::Scale;
use esker_lab_result::Metrics;

use super::terminals::{self, Until};
use super::{PAGES, SEED, Sizing, script};
use crate::machine::Machine;
use crate::machine::board::Board;
use crate::machine::mode::{Mode, System};
use crate::{Error, Result};

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// TPC-C with one worker and one warehouse. The first rows are not in the trace.
    Tpcc,
    /// The RL script, which begins with an empty database.
    Rl,
}

/// A trace to make.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How SQLite keeps its transactions: one of the modes without a layer's transactions, of which
    /// block traces have no form.
    pub mode: Mode,
    /// What is run.
    pub workload: Workload,
    /// The sizes.
    pub scale: Scale,
}

/// What was recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recorded {
    /// Operations in the trace.
    pub operations: u64,
    /// Transactions that wrote.
    pub transactions: u64,
    /// Blocks of 4 KiB that were written for each.
    pub blocks_per_transaction: f64,
    /// MiB of the device.
    pub device_mib: u64,
}

/// Runs the workload on the machine with the plain device, and writes a trace with its virtual
/// times.
///
/// # Errors
/// [`Error::Invalid`] for a mode on a layer's transactions; those of the run and of the file.
pub fn record(plan: Plan, path: &Path) -> Result<Recorded> {
    let Plan { mode, workload, scale } = plan;
    if mode.is_transactional() {
        let what = "a block trace has no transactions: take another mode";
        return Err(Error::Invalid(format!("{}: {what}", mode.name())));
    }
    let writer = TraceWriter::create(path).map_err(|error| Error::Run(error.to_string()))?;
    let sizing = Sizing::of(scale);
    let system = System { mode, board: Board::Plain };
    let machine = Machine::new(system, sizing.mib_per_die, SEED)?;
    let ready = |machine: &Machine| machine.record(writer);
    let metrics = match workload {
        Workload::Rl => script::run_on(&machine, sizing, 0, ready)?.0,
        Workload::Tpcc => {
            let filled = terminals::fill(sizing.tpcc)?;
            let until = Until::Transactions(sizing.transactions);
            let filled = filled.as_slice();
            let run = terminals::Run { system, sizing, filled, workers: 1, rate: 0, until };
            terminals::run_on(&machine, run, ready)?
        }
    };
    let operations = machine.finish_record()?;
    let of = |metrics: &Metrics, name: &str| metrics.get(name).copied().unwrap_or(0.0);
    Ok(Recorded {
        operations,
        transactions: of(&metrics, "transactions") as u64,
        blocks_per_transaction: of(&metrics, PAGES),
        device_mib: 8 * u64::from(sizing.mib_per_die),
    })
}

#[cfg(test)]
mod tests {
    use esker_flash::trace::{Format, OpKind, Trace, TraceSource};

    use super::*;

    #[test]
    fn a_trace_has_the_blocks_that_were_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sqlite.trace");
        for mode in [Mode::Rbj, Mode::Wal50, Mode::PageStore] {
            for workload in [Workload::Tpcc, Workload::Rl] {
                let made = record(Plan { mode, workload, scale: Scale::Tiny }, &path).unwrap();
                let source = TraceSource { format: Format::Esker, path: path.clone() };
                let ops: Vec<_> = Trace::open(&source).unwrap().map(|op| op.unwrap()).collect();
                assert_eq!(ops.len() as u64, made.operations);
                let writes = ops.iter().filter(|op| op.kind == OpKind::Write);
                let blocks: u64 = writes.map(|op| op.length / 4096).sum();
                let each = blocks as f64 / made.transactions as f64;
                assert!((each - made.blocks_per_transaction).abs() < 1e-9, "{mode:?}: {each}");
                assert!(ops.iter().any(|op| op.kind == OpKind::Flush));
                let first = std::fs::read(&path).unwrap();
                record(Plan { mode, workload, scale: Scale::Tiny }, &path).unwrap();
                assert!(first == std::fs::read(&path).unwrap(), "{mode:?}: not repeated");
            }
        }
        let plan = Plan { mode: Mode::MvFtl, workload: Workload::Rl, scale: Scale::Tiny };
        assert!(record(plan, &path).is_err());
    }
}
