//! A whole simulation: device, layer, operations, report.

use std::time::Instant;

use crate::ftl::{Ftl, Options};
use crate::nand::Timing;
use crate::placement::Placement;
use crate::report::Report;
use crate::run::registry::Build;
use crate::run::spec::{Input, Spec, SpecError};
use crate::run::{GoOn, Pace, RunError, RunOptions, run};
use crate::trace::error::TraceError;
use crate::trace::{Format, Trace, TraceOp, TraceSource};
use crate::workload::{Generator, Workload};

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// A setting cannot be used.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The layer cannot be made on this device.
    #[error("{0}")]
    Layer(crate::Error),
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The run ended early.
    #[error("{0}")]
    Run(RunError<TraceError>),
    /// The progress was answered with no.
    #[error("interrupted")]
    Interrupted,
}

impl From<RunError<TraceError>> for SimulateError {
    fn from(error: RunError<TraceError>) -> Self {
        match error {
            RunError::Source(error) => Self::Trace(error),
            RunError::Interrupted => Self::Interrupted,
            other => Self::Run(other),
        }
    }
}

/// Runs a simulation of a trace or a workload.
///
/// # Errors
/// See [`SimulateError`]; each is one line.
pub fn simulate(spec: &Spec, go_on: GoOn<'_>) -> Result<Report, SimulateError> {
    let started = Instant::now();
    // What cannot be opened fails before the warm-up, which takes long.
    let operations = Operations::of(spec)?;
    let mut layer = layer(spec)?;
    let mut options = options(spec);
    let outcome = match operations {
        Operations::Trace(trace) => run(layer.as_mut(), *trace, &options, go_on)?,
        Operations::Workload(workload) => {
            let pages = u64::from(spec.request_pages.max(1));
            let slots = u64::from(layer.logical_pages()) / pages;
            if slots == 0 {
                let what = format!("a request of {pages} pages is larger than the device");
                return Err(SpecError::Fit(what).into());
            }
            let bytes = pages * u64::from(layer.geometry().page_size());
            options.requests_max = Some(spec.requests_max.unwrap_or(slots));
            let ops = Generator::new(workload, slots, bytes, spec.seed);
            run(layer.as_mut(), ops.map(Ok::<_, TraceError>), &options, go_on)?
        }
    };
    Ok(Report::new(spec, layer.as_ref(), outcome, started.elapsed()))
}

/// Why placement means nothing for an input.
const NO_PURPOSES: &str = "only a trace of the format esker says what its writes are for: record \
                           one (flash record), or leave placement at none";

enum Operations {
    Trace(Box<Trace>),
    Workload(Workload),
}

impl Operations {
    fn of(spec: &Spec) -> Result<Self, SimulateError> {
        let misfit = |what: &str| Err(SpecError::Fit(what.to_owned()).into());
        let has_purposes = |source: &TraceSource| source.format == Format::Esker;
        match &spec.input {
            Input::Trace(source) if spec.placement == Placement::None || has_purposes(source) => {
                Ok(Self::Trace(Box::new(Trace::open(source)?)))
            }
            Input::Trace(_) => misfit(NO_PURPOSES),
            Input::Workload(_) if spec.placement != Placement::None => misfit(NO_PURPOSES),
            Input::Workload(_) if spec.pace == Pace::Recorded => {
                misfit("a workload has no recorded times: use qd, or a trace")
            }
            Input::Workload(workload) => Ok(Self::Workload(*workload)),
            Input::Requests => misfit("requests of a program are passed with it"),
        }
    }
}

/// Runs a simulation of the caller's requests, whose errors end it; `input` of the settings is not
/// looked at.
///
/// # Errors
/// A device that there is not, and those of the source and of the run.
pub fn replay<E>(
    spec: &Spec,
    ops: impl Iterator<Item = Result<TraceOp, E>>,
    go_on: GoOn<'_>,
) -> Result<Report, ReplayError<E>> {
    let started = Instant::now();
    let mut layer = layer(spec).map_err(ReplayError::Device)?;
    let outcome = run(layer.as_mut(), ops, &options(spec), go_on).map_err(ReplayError::Run)?;
    let spec = Spec { input: Input::Requests, ..spec.clone() };
    Ok(Report::new(&spec, layer.as_ref(), outcome, started.elapsed()))
}

/// Why a replay has no report.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError<E> {
    /// There is no such device.
    #[error("{0}")]
    Device(SimulateError),
    /// The run ended early.
    #[error("{0}")]
    Run(RunError<E>),
}

/// The empty layer of a simulation, without pages' contents; with a clock if the pace has one.
///
/// # Errors
/// Sizes that no device can have, or that leave the layer no room.
pub fn layer(spec: &Spec) -> Result<Box<dyn Ftl + Send>, SimulateError> {
    let geometry = spec.geometry()?;
    let build = Build {
        geometry,
        timing: (spec.pace != Pace::Untimed).then(|| timing(spec, geometry.page_size())),
        options: Options {
            spare_permille: spec.op_permille,
            policy: spec.policy,
            streams: spec.placement.streams(),
            seed: spec.seed,
            ..Options::default()
        },
    };
    spec.layer.require_memory(&build).map_err(SimulateError::Layer)?;
    spec.layer.format(&build).map_err(SimulateError::Layer)
}

/// The times of the preset, with the transfer of a page of this size.
fn timing(spec: &Spec, page_size: u32) -> Timing {
    let timing = spec.preset.timing;
    let (bytes, own) = (u64::from(page_size), u64::from(spec.preset.sizes.page_size.max(1)));
    Timing { transfer_ns_per_page: timing.transfer_ns_per_page * bytes / own, ..timing }
}

fn options(spec: &Spec) -> RunOptions {
    RunOptions {
        pace: spec.pace,
        warm_up: spec.warm_up,
        wraps: spec.wraps,
        placement: spec.placement,
        requests_max: spec.requests_max,
        seed: spec.seed,
    }
}
