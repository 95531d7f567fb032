//! The durations of the operations of one phase.

use std::sync::Arc;
use std::time::{Duration, Instant};

use esker_terminal::exit::Failure;
use hdrhistogram::Histogram;

use crate::live::Gauge;

/// Longer operations count as this long.
const LATENCY_NS_MAX: u64 = 60_000_000_000;
/// One in a hundred: more would take memory that belongs to the store's figures.
const SIGNIFICANT_DIGITS: u8 = 2;

/// Latencies of the operations of a phase. What happens between them is not counted.
pub(super) struct Timing {
    pub(super) phase: &'static str,
    latency_ns: Histogram<u64>,
    busy: Duration,
    gauge: Option<Arc<Gauge>>,
}

impl Timing {
    pub(super) fn new(phase: &'static str) -> Result<Self, Failure> {
        let latency_ns = Histogram::new_with_bounds(1, LATENCY_NS_MAX, SIGNIFICANT_DIGITS)
            .map_err(|error| Failure::Input(format!("cannot keep a histogram: {error}")))?;
        Ok(Self { phase, latency_ns, busy: Duration::ZERO, gauge: None })
    }

    /// From here on each operation is counted there, too.
    pub(super) fn show_on(&mut self, gauge: &Arc<Gauge>) {
        self.gauge = Some(Arc::clone(gauge));
    }

    /// Runs and times one operation.
    pub(super) fn time<T>(&mut self, operation: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let answer = operation();
        let took = started.elapsed();
        self.busy += took;
        self.latency_ns.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        if let Some(gauge) = &self.gauge {
            gauge.record(took);
        }
        answer
    }

    pub(super) fn operations(&self) -> u64 {
        self.latency_ns.len()
    }

    pub(super) const fn seconds(&self) -> f64 {
        self.busy.as_secs_f64()
    }

    pub(super) fn per_second(&self) -> f64 {
        if self.busy.is_zero() { 0.0 } else { self.operations() as f64 / self.seconds() }
    }

    /// The latency that the given part of the operations did not exceed.
    pub(super) fn quantile(&self, part: f64) -> Duration {
        Duration::from_nanos(self.latency_ns.value_at_quantile(part))
    }
}
