//! A histogram of latencies.

use hdrhistogram::Histogram;

/// Latencies in nanoseconds, with three significant digits, up to an hour; longer ones count as an
/// hour. At most about 300 KiB.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Option<Histogram<u64>>,
}

/// The longest latency that is told from longer ones.
const LONGEST_NS: u64 = 3_600_000_000_000;

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

impl Latencies {
    /// No latencies yet.
    #[must_use]
    pub fn new() -> Self {
        Self { histogram: Histogram::new_with_bounds(1, LONGEST_NS, 3).ok() }
    }

    /// Adds one.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        if let Some(histogram) = &mut self.histogram {
            histogram.saturating_record(ns);
        }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.as_ref().map_or(0, Histogram::len)
    }

    /// The latency that `percent` of a hundred do not exceed; 0 where there are none.
    #[must_use]
    pub fn percentile_ns(&self, percent: f64) -> u64 {
        self.histogram.as_ref().map_or(0, |histogram| histogram.value_at_percentile(percent))
    }

    /// The mean; 0 where there are none.
    #[must_use]
    pub fn mean_ns(&self) -> f64 {
        self.histogram.as_ref().map_or(0.0, Histogram::mean)
    }

    /// The longest; 0 where there are none.
    #[must_use]
    pub fn max_ns(&self) -> u64 {
        self.histogram.as_ref().map_or(0, Histogram::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_have_three_digits() {
        let mut latencies = Latencies::new();
        assert_eq!((latencies.count(), latencies.percentile_ns(50.0)), (0, 0));
        for ns in 1..=100_000 {
            latencies.record(ns * 1_000);
        }
        let within = |found: u64, expected: f64| (found as f64 / expected - 1.0).abs() < 0.002;
        assert!(within(latencies.percentile_ns(50.0), 50e6));
        assert!(within(latencies.percentile_ns(99.9), 99.9e6));
        latencies.record(u64::MAX);
        assert!(latencies.max_ns() >= LONGEST_NS && latencies.count() == 100_001);
    }
}
