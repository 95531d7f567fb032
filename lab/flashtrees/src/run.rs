//! A workload on a tree, and what it cost.

use esker_flash::nand::{Cause, Counters};
use esker_workload::{Kind, Random, Request};

use crate::error::Result;
use crate::tree::{Chip, FlashTree, KeyRange, Order};

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
    /// Pages that the tree's own garbage collection moved, which the counters have as the host's.
    pub moved_pages: u64,
    /// The most memory that the tree held after an operation of the whole run, in bytes.
    pub memory_bytes: usize,
    /// Erases of a block, in the mean over all blocks, since the chip was new.
    pub erases_per_block: f64,
    /// Lookups that found a value, or entries that ranges visited.
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

    /// Programs of garbage collection, that of the tree and that of a layer below, in percent of
    /// all.
    #[must_use]
    pub fn collection_percent(&self) -> f64 {
        let collected = self.counters.of(Cause::Gc).programs + self.moved_pages;
        100.0 * collected as f64 / self.counters.total().programs.max(1) as f64
    }

    /// A line: microseconds, reads, programs and erases of a request, the share of garbage
    /// collection in programs, memory.
    #[must_use]
    pub fn line(&self) -> String {
        let total = self.counters.total();
        let erases = total.erases as f64 / self.operations.max(1) as f64;
        format!(
            "{:<10} {:>8.1} us {:>6.3} reads {:>6.3} programs {:>7.4} erases, gc {:>4.1} %, {} B, \
             {:.1} erases a block",
            self.tree,
            self.micros(),
            self.reads(),
            self.programs(),
            erases,
            self.collection_percent(),
            self.memory_bytes,
            self.erases_per_block
        )
    }
}

/// What has been measured so far.
#[derive(Clone, Copy, Debug)]
struct Meter {
    before: Chip,
    moved_before: u64,
    operations: u64,
    updates: u64,
    found: u64,
    memory_bytes: usize,
}

impl Meter {
    fn new(tree: &dyn FlashTree) -> Self {
        let memory_bytes = tree.memory().used();
        let (before, moved_before) = (tree.chip(), tree.moved_pages());
        Self { before, moved_before, operations: 0, updates: 0, found: 0, memory_bytes }
    }

    fn count(&mut self, tree: &dyn FlashTree, is_update: bool, found: u64) {
        self.operations += 1;
        self.updates += u64::from(is_update);
        self.found += found;
        self.memory_bytes = self.memory_bytes.max(tree.memory().used());
    }

    fn report(&self, tree: &dyn FlashTree) -> Report {
        let chip = tree.chip();
        let (total, blocks) = (chip.counters.total(), chip.geometry.blocks());
        Report {
            tree: tree.name(),
            operations: self.operations,
            updates: self.updates,
            device_ns: chip.end_ns.saturating_sub(self.before.end_ns),
            counters: chip.counters.since(&self.before.counters),
            moved_pages: tree.moved_pages().saturating_sub(self.moved_before),
            memory_bytes: self.memory_bytes,
            erases_per_block: total.erases as f64 / f64::from(blocks),
            found: self.found,
        }
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
    let (mut done, mut meter) = (0, Meter::new(tree));
    for request in requests {
        let is_update = request.kind != Kind::Lookup;
        if is_update {
            if done == warm_up {
                let memory_bytes = meter.memory_bytes;
                meter = Meter { memory_bytes, ..Meter::new(tree) };
            }
            if done == updates {
                break;
            }
            done += 1;
        }
        let mut found = 0;
        match request.kind {
            Kind::Put => tree.put(request.number, request.version)?,
            Kind::Delete => tree.remove(request.number)?,
            Kind::Lookup => found = u64::from(tree.get(request.number)?.is_some()),
        }
        meter.count(tree, is_update, found);
    }
    Ok(meter.report(tree))
}

/// Measures `count` ranges of `entries` entries each, that begin at keys drawn evenly from the
/// middle half of all keys.
///
/// # Errors
/// Those of the tree.
pub fn ranges(
    tree: &mut dyn FlashTree,
    seed: u64,
    count: u64,
    entries: u64,
    order: Order,
) -> Result<Report> {
    let (mut random, mut meter) = (Random::new(seed), Meter::new(tree));
    for _ in 0..count {
        let start = (1 << 62) + random.below(1 << 63);
        let (from, to) = match order {
            Order::Ascending => (start, u64::MAX),
            Order::Descending => (0, start),
        };
        let mut found = 0;
        tree.range(KeyRange { from, to, order }, &mut |_, _| {
            found += 1;
            found < entries
        })?;
        meter.count(tree, false, found);
    }
    Ok(meter.report(tree))
}
