//! One system, one workload, one chip or device; and many of them in turn.

use esker_flashtrees::rivals::Rival;
use esker_flashtrees::run::run;
use esker_flashtrees::workload::Workload;
use esker_lab_result::Metrics;
use esker_latree::{Buffering, Scan};

use super::checked::Checked;
use super::chips::Device;
use crate::experiment::{Series, Watch, go_on, metric};
use crate::{Error, Result};

/// Device time of an operation, in microseconds, by the clock of the chip.
pub(super) const MICROS: &str = "device_micros";
/// Microseconds of the slides.
pub(super) const PUBLISHED: &str = "published_micros";
/// Pages read and programmed for each operation, by all causes.
pub(super) const READS: &str = "flash_reads_per_op";
pub(super) const PROGRAMS: &str = "flash_programs_per_op";
/// Programs of garbage collection, that of the tree and that of a layer below, in percent of all.
pub(super) const COLLECTION: &str = "gc_percent";
/// Erases of a block since the chip was new, in the mean.
pub(super) const ERASES: &str = "erases_per_block";

/// Memory of each system in bytes, where it is the paper's.
pub(super) const MEMORY_BYTES: usize = 128 << 10;
/// The seed of all workloads.
pub(super) const SEED: u64 = 3;

/// Where a system runs, and how much it does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub device: Device,
    pub memory_bytes: usize,
    /// The first third is not measured.
    pub updates: u64,
    /// Of a plane.
    pub blocks: u32,
}

impl Setup {
    /// The paper's chip and memory.
    pub(super) const fn paper(updates: u64, blocks: u32) -> Self {
        let (device, memory_bytes) = (Device::SmallBlocks, MEMORY_BYTES);
        Self { device, memory_bytes, updates, blocks }
    }

    /// A device with room of so many bytes for each update.
    pub(super) fn on(device: Device, memory_bytes: usize, updates: u64, room: u64) -> Self {
        Self { device, memory_bytes, updates, blocks: device.blocks_for(updates * room) }
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub(super) enum System {
    LaTree(Scan, Buffering),
    Rival(Rival),
}

/// The LA-tree that is compared with others.
pub(super) const LA_TREE: System = System::LaTree(Scan::Sorted, Buffering::Adaptive);

/// What a system did.
#[derive(Debug)]
pub(super) enum Outcome {
    Measured(Metrics),
    /// It does not work in this memory, or on a chip of this size: why, in one line.
    Refused(String),
}

impl System {
    /// What a workload costs after the first third of its updates. Every answer is checked.
    ///
    /// # Errors
    /// A wrong answer, damaged pages.
    pub(super) fn measure(self, workload: Workload, setup: Setup) -> Result<Outcome> {
        match self.checked(workload, setup) {
            Ok(metrics) => Ok(Outcome::Measured(metrics)),
            Err(error) if is_refusal(&error) => Ok(Outcome::Refused(error.to_string())),
            Err(error) => Err(Error::Run(format!("{self:?}: {error}"))),
        }
    }

    fn checked(self, workload: Workload, setup: Setup) -> esker_flashtrees::Result<Metrics> {
        let made = setup.device.make(self, setup.blocks, setup.memory_bytes)?;
        let mut tree = Checked::new(made);
        let report = run(&mut tree, workload, setup.updates / 3, setup.updates)?;
        tree.finish()?;
        let mut metrics = Metrics::new();
        metric(&mut metrics, MICROS, report.micros());
        metric(&mut metrics, READS, report.reads());
        metric(&mut metrics, PROGRAMS, report.programs());
        metric(&mut metrics, COLLECTION, report.collection_percent());
        metric(&mut metrics, ERASES, report.erases_per_block);
        Ok(metrics)
    }
}

/// Whether memory or room was too little, which is a finding and not the end of the experiment.
pub(super) fn is_refusal(error: &esker_flashtrees::Error) -> bool {
    use esker_flash::Error as Flash;
    use esker_flashtrees::Error as Tree;
    let is_flash = |of: &Flash| matches!(of, Flash::Full(_) | Flash::Geometry(_));
    match error {
        Tree::Flash(error) => is_flash(error),
        error => matches!(error, Tree::Full(_) | Tree::Memory { .. }),
    }
}

/// A measurement to be made: a system at a place of the axis.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub name: String,
    pub place: f64,
    pub system: System,
    pub workload: Workload,
    pub setup: Setup,
    /// Microseconds of the slides.
    pub published: Option<f64>,
}

/// Measures all cases. Answers what was found, and the cases that were refused, each with why.
///
/// # Errors
/// Those of [`System::measure`], a stop by the user.
pub(super) fn measure_all(
    cases: impl IntoIterator<Item = Case>,
    watch: &mut dyn Watch,
) -> Result<(Series, Vec<String>)> {
    let (mut series, mut refused) = (Series::default(), Vec::new());
    for Case { name, place, system, workload, setup, published } in cases {
        go_on(watch)?;
        match system.measure(workload, setup)? {
            Outcome::Measured(mut metrics) => {
                let micros = metrics.get(MICROS).copied().unwrap_or(0.0);
                if let Some(published) = published {
                    metric(&mut metrics, PUBLISHED, published);
                }
                watch.says(&format!("{name} at {place}: {micros:.1} us"));
                series.add(&name, place, metrics);
            }
            Outcome::Refused(why) => {
                watch.says(&format!("{name} at {place}: {why}"));
                refused.push(format!("{name} at {place}: {why}"));
            }
        }
    }
    Ok((series, refused))
}

/// The synthetic workload on the paper's chip: each system at each share of lookups, in percent.
pub(super) fn by_lookups(
    systems: &[(&str, System)],
    places: &[f64],
    setup: Setup,
) -> impl Iterator<Item = Case> {
    places.iter().flat_map(move |place| {
        systems.iter().map(move |(name, system)| Case {
            name: (*name).to_owned(),
            place: *place,
            system: *system,
            workload: Workload::synthetic(SEED, place / 100.0),
            setup,
            published: None,
        })
    })
}

/// The least time of `systems` at a place, of those that work there.
pub(super) fn best_of<'a>(
    series: &Series,
    systems: impl IntoIterator<Item = &'a str>,
    place: f64,
) -> std::result::Result<f64, String> {
    let found = systems.into_iter().filter_map(|system| series.value(system, place, MICROS).ok());
    let best = found.fold(f64::INFINITY, f64::min);
    if best.is_finite() { Ok(best) } else { Err(format!("no other was measured at {place}")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::Silent;

    #[test]
    fn too_little_memory_is_a_finding_and_a_wrong_answer_is_an_error() {
        let setup = |memory_bytes| Setup { memory_bytes, ..Setup::paper(300, 64) };
        let case = |memory_bytes| Case {
            name: "x".to_owned(),
            place: 1.0,
            system: LA_TREE,
            workload: Workload::synthetic(SEED, 0.1),
            setup: setup(memory_bytes),
            published: None,
        };
        let found = measure_all([case(1 << 10), case(64 << 10)], &mut Silent).unwrap();
        assert_eq!((found.0.points.len(), found.1.len()), (1, 1));
        assert!(found.1[0].contains("needs"), "{}", found.1[0]);
        let broken = esker_flashtrees::Error::Invariant("x".to_owned());
        assert!(!is_refusal(&broken));
    }
}
