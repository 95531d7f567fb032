//! A workload on a tree, and what it cost.

use esker_flash::nand::{Cause, Counters};
use esker_workload::{Kind, Request};

use crate::error::Result;
use crate::tree::FlashTree;

/// What a run cost, after its warm-up.
#[derive(Clone, Debug)]
pub struct Report {
    /// The name of the tree.
    pub tree: &'static str,
    /// Requests after the warm-up.
    pub operations: u64,
    /// Updates among them.
    pub updates: u64,
    /// Device time in nanoseconds, by the clock of the chip.
    pub device_ns: u64,
    /// Operations on flash, by cause.
    pub counters: Counters,
    /// The most memory that the tree held after an operation of the whole run, in bytes.
    pub memory_bytes: usize,
    /// Erases of a block, in the mean over all blocks, since the chip was new.
    pub erases_per_block: f64,
    /// Lookups that found a value.
    pub found: u64,
}

impl Report {
    /// Device time of a request, in microseconds.
    #[must_use]
    pub fn micros(&self) -> f64 {
        self.device_ns as f64 / 1e3 / self.operations.max(1) as f64
    }

    /// Pages read for each request.
    #[must_use]
    pub fn reads(&self) -> f64 {
        self.counters.total().reads as f64 / self.operations.max(1) as f64
    }

    /// Pages programmed for each request, garbage collection included.
    #[must_use]
    pub fn programs(&self) -> f64 {
        self.counters.total().programs as f64 / self.operations.max(1) as f64
    }

    /// A line: microseconds, reads, programs and erases of a request, the share of garbage
    /// collection in programs, memory.
    #[must_use]
    pub fn line(&self) -> String {
        let (total, gc) = (self.counters.total(), self.counters.of(Cause::Gc));
        let erases = total.erases as f64 / self.operations.max(1) as f64;
        format!(
            "{:<10} {:>8.1} us {:>6.3} reads {:>6.3} programs {:>7.4} erases, gc {:>4.1} %, {} B, \
             {:.1} erases a block",
            self.tree,
            self.micros(),
            self.reads(),
            self.programs(),
            erases,
            100.0 * gc.programs as f64 / total.programs.max(1) as f64,
            self.memory_bytes,
            self.erases_per_block
        )
    }
}

/// Runs requests until `updates` updates are done, and measures after the first `warm_up` of them.
///
/// # Errors
/// Those of the tree.
pub fn run(
    tree: &mut dyn FlashTree,
    requests: impl Iterator<Item = Request>,
    warm_up: u64,
    updates: u64,
) -> Result<Report> {
    let (mut done, mut operations, mut found, mut memory_bytes) = (0, 0, 0, 0);
    let mut before = tree.chip();
    let mut measured_from = 0;
    for request in requests {
        if request.kind != Kind::Lookup {
            if done == warm_up {
                before = tree.chip();
                (operations, measured_from) = (0, done);
            }
            if done == updates {
                break;
            }
            done += 1;
        }
        match request.kind {
            Kind::Put => tree.put(request.number, request.version)?,
            Kind::Delete => tree.remove(request.number)?,
            Kind::Lookup => found += u64::from(tree.get(request.number)?.is_some()),
        }
        operations += 1;
        memory_bytes = memory_bytes.max(tree.memory().used());
    }
    let chip = tree.chip();
    let (total, blocks) = (chip.counters.total(), chip.geometry.blocks());
    Ok(Report {
        tree: tree.name(),
        operations,
        updates: done - measured_from,
        device_ns: chip.end_ns - before.end_ns,
        counters: chip.counters.since(&before.counters),
        memory_bytes,
        erases_per_block: total.erases as f64 / f64::from(blocks),
        found,
    })
}
