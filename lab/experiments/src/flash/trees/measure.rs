//! One system, one workload, one chip.

use esker_flash::NandSim;
use esker_flash::ftl;
use esker_flash::nand::{Bytes, Cause, preset};
use esker_flashtrees::FlashTree;
use esker_flashtrees::latree::LaTreeMap;
use esker_flashtrees::rivals::Rival;
use esker_flashtrees::run::run;
use esker_flashtrees::workload::Workload;
use esker_lab_result::Metrics;
use esker_latree::{Buffering, Options, Scan};

use super::checked::Checked;
use crate::experiment::metric;
use crate::{Error, Result};

/// Device time of an operation, in microseconds, by the clock of the chip.
pub(super) const MICROS: &str = "device_micros";
/// Pages read and programmed for each operation, by all causes.
pub(super) const READS: &str = "flash_reads_per_op";
pub(super) const PROGRAMS: &str = "flash_programs_per_op";
/// Programs of garbage collection in the layer below, in percent of all. The LA-tree has no layer.
pub(super) const COLLECTION: &str = "layer_gc_percent";
/// Erases of a block since the chip was new, in the mean.
pub(super) const ERASES: &str = "erases_per_block";

/// Memory of each system in bytes.
pub(super) const MEMORY_BYTES: usize = 128 << 10;
/// The chip: pages of 512 bytes, 32 in a block.
pub(super) const CHIP: &str = "slc512";
/// The seed of all workloads.
pub(super) const SEED: u64 = 3;

/// How much is done, and on how large a chip.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizing {
    /// The first third is not measured.
    pub updates: u64,
    pub blocks: u32,
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub(super) enum System {
    LaTree(Scan, Buffering),
    Rival(Rival),
}

impl System {
    /// An empty one on an erased chip.
    pub(super) fn on_chip(
        self,
        sizing: Sizing,
    ) -> std::result::Result<Box<dyn FlashTree>, esker_flashtrees::Error> {
        let preset = preset(CHIP)?;
        let geometry = preset.geometry(Some(sizing.blocks))?;
        let nand = NandSim::<Bytes>::with_clock(geometry, preset.timing);
        match self {
            Self::LaTree(scan, buffering) => {
                let memory_bytes = MEMORY_BYTES;
                let options = Options { memory_bytes, scan, buffering, ..Options::default() };
                Ok(Box::new(LaTreeMap::new(nand, options, "latree")?))
            }
            Self::Rival(rival) => rival.on_chip(nand, &ftl::Options::default(), MEMORY_BYTES),
        }
    }

    /// What a workload costs after the first third of its updates. Every answer is checked.
    ///
    /// # Errors
    /// A wrong answer, a full chip, too little memory, those of the flash.
    pub(super) fn measure(self, workload: Workload, sizing: Sizing) -> Result<Metrics> {
        let failed = |error: esker_flashtrees::Error| Error::Run(format!("{self:?}: {error}"));
        let mut tree = Checked::new(self.on_chip(sizing).map_err(failed)?);
        let report = run(&mut tree, workload, sizing.updates / 3, sizing.updates);
        let report = report.map_err(failed)?;
        tree.finish().map_err(failed)?;
        let (total, collected) = (report.counters.total(), report.counters.of(Cause::Gc));
        let percent = 100.0 * collected.programs as f64 / total.programs.max(1) as f64;
        let mut metrics = Metrics::new();
        metric(&mut metrics, MICROS, report.micros());
        metric(&mut metrics, READS, report.reads());
        metric(&mut metrics, PROGRAMS, report.programs());
        metric(&mut metrics, COLLECTION, percent);
        metric(&mut metrics, ERASES, report.erases_per_block);
        Ok(metrics)
    }
}
