//! The cost of a pass: in block transfers, as the thesis counts, or in seconds on a device.

use crate::pass::Pass;
use crate::planted::{self, Bug};
use crate::space::Digit;

/// The times that a device takes, with many requests in flight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    /// Seconds that a read costs whatever its size.
    pub read_request: f64,
    /// Seconds for each byte read.
    pub read_byte: f64,
    /// Seconds that a write costs whatever its size.
    pub write_request: f64,
    /// Seconds for each byte written.
    pub write_byte: f64,
}

impl Profile {
    /// A solid-state disk behind a virtual machine, with concurrent reads and writes: 0.6 GB/s in
    /// requests of 16 KiB, 1.6 GB/s in requests of a megabyte.
    pub const NVME: Self =
        Self { read_request: 20e-6, read_byte: 0.6e-9, write_request: 20e-6, write_byte: 0.6e-9 };

    /// An object store: two milliseconds a request, with all requests in flight counted.
    pub const OBJECT_STORE: Self =
        Self { read_request: 2e-3, read_byte: 5e-9, write_request: 4e-3, write_byte: 5e-9 };
}

/// Bytes of a line of a processor's cache.
const LINE: u64 = 64;
/// Seconds to place what belongs to another line than what came before.
const TOUCH: f64 = 2e-9;

/// The terms of the price that do not depend on the pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// B: records in a block, at least 1.
    pub block: u64,
    /// M: records of memory for a load and its output blocks.
    pub memory: u64,
    /// Bytes of a record.
    pub record: u64,
    /// Bytes of the largest request.
    pub request: u64,
    /// Bytes of the largest segment that may be read for a part of it.
    pub filtered: u64,
    /// Whether the files begin their records where a block begins, and blocks hold whole records.
    pub is_aligned: bool,
    /// The quantity that is minimised.
    pub mode: Mode,
}

impl Terms {
    /// The least cost of a pass over a number of records: each is read and written once, in the
    /// largest requests.
    #[must_use]
    pub fn least(&self, records: u64) -> f64 {
        match self.mode {
            Mode::Blocks { alpha } => records as f64 / self.block as f64 * (1.0 + alpha),
            Mode::Seconds(profile) => {
                let bytes = records as f64 * self.record as f64;
                let requests = bytes / self.request as f64;
                requests * (profile.read_request + profile.write_request)
                    + bytes * (profile.read_byte + profile.write_byte)
            }
        }
    }
}

/// The quantity that a plan minimises.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// Blocks written + α · blocks read.
    Blocks {
        /// The cost of a block read relative to one written.
        alpha: f64,
    },
    /// Predicted seconds.
    Seconds(Profile),
}

/// The figures of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Records altogether.
    pub records: u64,
    /// Records of a load.
    pub load: u64,
    /// Partitions written side by side.
    pub partitions_at_once: u64,
    /// Records of a segment.
    pub segment: u64,
    /// The number of segments.
    pub segments: u64,
    /// The number of times that each is read.
    pub waste: u64,
    /// The least number of records of a segment that are contiguous in the output.
    pub together: u64,
    /// The distance in the output of neighbours in a segment, in records.
    pub stride: u64,
    /// The number of records of a segment that follow each other at that distance.
    pub run: u64,
    /// Records of a flush.
    pub flush: u64,
    /// The number of flushes.
    pub flushes: u64,
    /// Records of a partition.
    pub partition: u64,
    /// The number of partitions.
    pub partitions: u64,
    /// Whether no digit is short, so that boundaries may coincide with those of blocks.
    pub exact: bool,
}

impl Figures {
    /// The figures of a pass.
    #[must_use]
    pub fn of(pass: &Pass) -> Self {
        let space = &pass.space;
        let inputs = pass.positions(&pass.input);
        let outputs = pass.positions(&pass.output);
        let (flush, partition) = (pass.flush_position(), pass.partition_position());
        let below = |d: Digit| inputs[d.tree][d.leaf] < pass.beta;
        let inside = pass.output.iter().take_while(|d| below(**d) && pass.is_action(**d)).count();
        let lowest = pass.input.iter().find(|digit| space.leaf(**digit).radix > 1);
        let lowest = lowest.filter(|digit| below(**digit) && pass.is_action(**digit));
        let place = lowest.map_or(0, |digit| outputs[digit.tree][digit.leaf]);
        let is_partition = |d: Digit| pass.is_action(d) && outputs[d.tree][d.leaf] >= partition;
        Self {
            records: space.records(),
            load: pass.load_records(),
            partitions_at_once: space.max_size(is_partition),
            segment: space.max_size(below),
            segments: space.max_size(|d| !below(d)),
            waste: space.max_size(|d| !pass.is_action(d) && below(d)),
            together: space.max_size(|d| outputs[d.tree][d.leaf] < inside),
            stride: space.max_size(|d| outputs[d.tree][d.leaf] < place),
            run: lowest.map_or(1, |digit| space.leaf(*digit).radix),
            flush: space.max_size(|d| outputs[d.tree][d.leaf] < flush),
            flushes: space.max_size(|d| outputs[d.tree][d.leaf] >= flush),
            partition: space.max_size(|d| outputs[d.tree][d.leaf] < partition),
            partitions: space.max_size(|d| outputs[d.tree][d.leaf] >= partition),
            exact: space.trees.iter().all(crate::tree::Tree::is_exact),
        }
    }

    /// The three requirements of section 3.3.1: memory, segments and partitions of a block.
    #[must_use]
    pub fn meets(&self, terms: &Terms) -> bool {
        let block = terms.block.min(self.records);
        self.fits(terms) && self.segment >= block && self.partition >= block
    }

    /// Whether a load and one output block a partition fit the memory.
    #[must_use]
    pub fn fits(&self, terms: &Terms) -> bool {
        // Flushes that end where blocks do need no output block.
        let blocks = if self.aligned(self.flush, terms) {
            0
        } else {
            terms.block.saturating_mul(self.partitions_at_once)
        };
        self.load.saturating_add(blocks) <= terms.memory
    }

    /// Whether pieces of this many records end where blocks do.
    const fn aligned(&self, records: u64, terms: &Terms) -> bool {
        self.exact && terms.is_aligned && records.is_multiple_of(terms.block)
    }

    /// The cost, in the unit of the mode.
    #[must_use]
    pub fn price(&self, terms: &Terms) -> f64 {
        match terms.mode {
            Mode::Blocks { alpha } => self.blocks(terms, alpha),
            Mode::Seconds(profile) => self.seconds(terms, &profile),
        }
    }

    fn blocks(&self, terms: &Terms, alpha: f64) -> f64 {
        let aligned = |records: u64| self.aligned(records, terms);
        let whole = self.records as f64 / terms.block as f64;
        let segments = if aligned(self.segment) { 0.0 } else { self.segments as f64 };
        let partitions = if aligned(self.partition) { 0.0 } else { self.partitions as f64 };
        whole + partitions + alpha * (whole + segments) * self.waste as f64
    }

    fn seconds(&self, terms: &Terms, profile: &Profile) -> f64 {
        let bytes = self.records as f64 * terms.record as f64;
        let block = (terms.block * terms.record) as f64;
        let least = bytes / terms.request as f64;
        let waste = self.waste as f64;
        let reads = (self.segments as f64).max(least) * waste;
        // Parts of sectors are read without use.
        let read_bytes = bytes * waste + reads * 512.0;
        // Flushes below a block gather in the output blocks of their partitions.
        let writes = (self.flushes as f64).min(bytes / block).max(least) + self.partitions as f64;
        let write_bytes = bytes + self.partitions as f64 * block;
        reads * profile.read_request
            + read_bytes * profile.read_byte
            + writes * profile.write_request
            + write_bytes * profile.write_byte
            + self.placing(terms)
    }

    /// Seconds that placing takes in addition to the device, where records go to lines of memory
    /// one by one: neither does a segment bring enough of a line, contiguous or at a small stride,
    /// nor do the segments that one request's memory holds.
    fn placing(&self, terms: &Terms) -> f64 {
        let segments = (terms.request / self.segment.saturating_mul(terms.record).max(1)).max(1);
        let together = self.together.saturating_mul(segments).saturating_mul(terms.record);
        let apart = self.stride.saturating_mul(terms.record).max(1);
        let mut bytes = together.max(self.run.min(LINE / apart) * terms.record);
        if planted::is(Bug::InterleavedCharged) {
            bytes = together;
        }
        let touched = self.records as f64 * terms.record as f64 / bytes.clamp(1, LINE) as f64;
        if bytes < LINE { touched * TOUCH } else { 0.0 }
    }
}
