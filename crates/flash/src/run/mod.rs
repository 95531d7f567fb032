//! A run: operations of a host on a translation layer, counted and timed.
//!
//! Reading order: here (options, warm-up, the two loops), [`request`] (bytes to pages), [`counts`]
//! (what the host asked for), [`spec`] (a whole simulation as names and numbers), [`registry`] (the
//! layers by name), `memory` (what a simulation takes).
//!
//! **Time.** Without a clock a run counts pages alone. A *closed loop* keeps a number of requests
//! outstanding: the next one is issued when the earliest of them ends. An *open loop* issues each
//! at the time of its trace, unless [`RECORDED_OUTSTANDING_MAX`] are outstanding. The latency of a
//! request is the time from its arrival to the end of its slowest page; a flush ends after
//! everything that was issued before it.
//!
//! **Warm-up.** Write amplification depends on the state of a device, so that a fresh one says
//! little: before anything is counted, the device is filled in ascending order, and overwritten at
//! random.

pub mod counts;
mod fit;
mod memory;
mod pacer;
pub mod registry;
pub mod request;
pub mod spec;
#[cfg(test)]
mod tests;

use crate::ftl::{Ftl, Stream};
use crate::nand::{Counters, Lpn, Urgency};
use crate::placement::Placement;
use crate::trace::{OpKind, TraceOp};
use crate::workload::Random;

use counts::{HostCounts, LatencyByKind};
use pacer::Pacer;
pub use pacer::RECORDED_OUTSTANDING_MAX;
use request::{Beyond, Layout, Pages};

/// Pages between two questions whether to go on. A request without pages counts as one.
const ASK_EVERY: u64 = 1 << 14;

/// When requests are issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// There is no time.
    Untimed,
    /// As many requests are outstanding; 0 is taken as 1.
    QueueDepth(u32),
    /// At the times of the trace.
    Recorded,
}

/// What happens before the first counted request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WarmUp {
    /// Nothing: the device is empty.
    Fresh,
    /// Every logical page is written in ascending order, then this many times the device's pages at
    /// random.
    Overwritten(f64),
}

/// How a run goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunOptions {
    /// When requests are issued.
    pub pace: Pace,
    /// What happens before.
    pub warm_up: WarmUp,
    /// Whether addresses behind the end begin again at the start.
    pub wraps: bool,
    /// Which streams the trace's numbers mean. The warm-up is in the first one.
    pub placement: Placement,
    /// The most requests that are run; the others are not looked at.
    pub requests_max: Option<u64>,
    /// The seed of the warm-up.
    pub seed: u64,
}

/// The part of a run that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The device is filled.
    Fill,
    /// It is overwritten at random.
    WarmUp,
    /// Requests are counted.
    Measured,
}

/// How far a run is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// The part under way.
    pub phase: Phase,
    /// Pages of the warm-up, or requests.
    pub done: u64,
    /// Of how many, where it is known.
    pub total: Option<u64>,
}

/// Why a run ended early. `E` is what the source of operations fails with.
#[derive(Debug, thiserror::Error)]
pub enum RunError<E> {
    /// The source failed.
    #[error("{0}")]
    Source(E),
    /// The layer or the flash failed.
    #[error("request {request}: {source}")]
    Device {
        /// Its number from 1; 0 in the warm-up.
        request: u64,
        /// What failed.
        source: crate::Error,
    },
    /// An address behind the end of the device.
    #[error("request {request}: {source}")]
    Beyond {
        /// Its number from 1.
        request: u64,
        /// How far it reaches.
        source: Beyond,
    },
    /// The progress was answered with no.
    #[error("interrupted")]
    Interrupted,
}

/// What a run has counted, without its warm-up.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What the host asked for.
    pub host: HostCounts,
    /// What the flash did, by cause.
    pub nand: Counters,
    /// Latencies, where there is a clock.
    pub latencies: Option<LatencyByKind>,
    /// From the first issue to the last end; 0 without a clock.
    pub simulated_ns: u64,
}

/// Asked now and then with the progress; answers whether to go on.
pub type GoOn<'a> = &'a mut dyn FnMut(Progress) -> bool;

/// Runs operations on a layer. Its memory does not depend on the number of operations.
///
/// # Errors
/// Those of the source and of the layer; an address behind the end; an interruption.
pub fn run<F, E>(
    layer: &mut F,
    ops: impl Iterator<Item = Result<TraceOp, E>>,
    options: &RunOptions,
    go_on: GoOn<'_>,
) -> Result<Outcome, RunError<E>>
where
    F: Ftl + ?Sized,
{
    warm_up(layer, options, go_on)?;
    let layout = Layout::new(layer.geometry().page_size(), layer.logical_pages(), options.wraps);
    let before = *layer.counters();
    let mut host = HostCounts::default();
    let mut pacer = Pacer::new(options.pace, layer.end_ns());
    let (mut request, mut unasked) = (0, ASK_EVERY);
    let limit = options.requests_max.unwrap_or(u64::MAX);
    let mut ops = ops;
    // The limit is looked at first: the operation behind it may be an error.
    while request < limit {
        let Some(op) = ops.next() else { break };
        let op = op.map_err(RunError::Source)?;
        if unasked >= ASK_EVERY {
            unasked = 0;
            let total = options.requests_max;
            ask(go_on, Progress { phase: Phase::Measured, done: request, total })?;
        }
        request += 1;
        let pages = layout.pages(&op).map_err(|source| RunError::Beyond { request, source })?;
        unasked = unasked.saturating_add(pages.count.max(1));
        let device = |source| RunError::Device { request, source };
        let issued = pacer.issue(&op);
        if let Some(ns) = issued {
            layer.issue_at(ns);
        }
        let stream = options.placement.of_number(op.stream);
        serve(layer, (&op, stream), &pages, &mut host).map_err(device)?;
        host.count(&op, pages.count);
        if issued.is_some() {
            pacer.ended(op.kind, layer.end_ns());
        }
    }
    let nand = layer.counters().since(&before);
    let (latencies, simulated_ns) = pacer.finish();
    Ok(Outcome { host, nand, latencies, simulated_ns })
}

/// Does one operation, page by page.
fn serve<F: Ftl + ?Sized>(
    layer: &mut F,
    (op, stream): (&TraceOp, Stream),
    pages: &Pages,
    host: &mut HostCounts,
) -> crate::Result<()> {
    match op.kind {
        OpKind::Read => {
            for (lpn, _) in pages.iter() {
                if !layer.read(Lpn(lpn), &mut [])? {
                    host.unmapped_pages_read += 1;
                }
            }
        }
        OpKind::Write => {
            for (lpn, is_partial) in pages.iter() {
                let outer = layer.dyn_nand_mut().open_scope(Urgency::Foreground);
                if is_partial {
                    // The rest of the page is read, so that the page can be written whole.
                    host.partial_pages_written += 1;
                    layer.read(Lpn(lpn), &mut [])?;
                    layer.dyn_nand_mut().wait();
                }
                layer.write_in_stream(Lpn(lpn), &[], stream)?;
                layer.dyn_nand_mut().close_scope(outer);
            }
        }
        OpKind::Trim => {
            for (lpn, _) in pages.iter() {
                layer.trim(Lpn(lpn))?;
            }
        }
        OpKind::Flush => layer.flush()?,
    }
    Ok(())
}

/// Brings the device into the state in which it is measured.
fn warm_up<F: Ftl + ?Sized, E>(
    layer: &mut F,
    options: &RunOptions,
    go_on: GoOn<'_>,
) -> Result<(), RunError<E>> {
    let WarmUp::Overwritten(times) = options.warm_up else { return Ok(()) };
    let pages = u64::from(layer.logical_pages());
    let random_pages = overwrites(pages, times);
    let mut random = Random::new(options.seed ^ WARM_UP_SEED);
    for (phase, total) in [(Phase::Fill, pages), (Phase::WarmUp, random_pages)] {
        for done in 0..total {
            if done.is_multiple_of(ASK_EVERY) {
                ask(go_on, Progress { phase, done, total: Some(total) })?;
            }
            let lpn = if phase == Phase::Fill { done } else { random.below(pages) };
            // One request at a time, so that time passes.
            layer.issue_at(layer.end_ns());
            layer
                .write(Lpn(lpn as u32), &[])
                .map_err(|source| RunError::Device { request: 0, source })?;
        }
    }
    Ok(())
}

/// Other numbers than those of a workload with the same seed.
const WARM_UP_SEED: u64 = 0x77a9_3f1c_52d8_0be6;

/// Pages of so many overwrites; none for what is no positive number.
fn overwrites(pages: u64, times: f64) -> u64 {
    // A float beyond the range becomes the end of the range.
    (pages as f64 * times).max(0.0) as u64
}

fn ask<E>(go_on: GoOn<'_>, progress: Progress) -> Result<(), RunError<E>> {
    if go_on(progress) { Ok(()) } else { Err(RunError::Interrupted) }
}
