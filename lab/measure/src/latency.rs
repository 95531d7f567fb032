//! Latencies in bounded memory: an HDR histogram of nanoseconds with three significant digits.

use std::time::Duration;

use esker_lab_result::Metrics;
use hdrhistogram::Histogram;

/// Longer ones count as this long: an hour.
const NANOS_MAX: u64 = 3_600_000_000_000;
const DIGITS: u8 = 3;

/// Latencies of many requests. About 250 KiB, however many.
#[derive(Clone, Debug)]
pub struct Latencies {
    /// `None` only if the library refused our bounds, which it does not.
    nanos: Option<Histogram<u64>>,
    /// The histogram rounds its maximum; the largest is the one number that must be exact.
    max_nanos: u64,
}

/// A summary of latencies; microseconds. All 0 where there were none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// The number of latencies.
    pub count: u64,
    /// Arithmetic mean.
    pub mean_micros: f64,
    /// Standard deviation.
    pub deviation_micros: f64,
    /// Half were at most this long.
    pub p50_micros: f64,
    /// 99 of 100 were at most this long.
    pub p99_micros: f64,
    /// 999 of 1000 were at most this long.
    pub p999_micros: f64,
    /// The longest.
    pub max_micros: f64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { nanos: Histogram::new_with_bounds(1, NANOS_MAX, DIGITS).ok(), max_nanos: 0 }
    }
}

impl Latencies {
    /// Adds one.
    pub fn record(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX).min(NANOS_MAX);
        self.max_nanos = self.max_nanos.max(nanos);
        if let Some(histogram) = &mut self.nanos {
            histogram.saturating_record(nanos);
        }
    }

    /// Adds those of another thread.
    pub fn add(&mut self, other: &Self) {
        self.max_nanos = self.max_nanos.max(other.max_nanos);
        if let (Some(ours), Some(theirs)) = (&mut self.nanos, &other.nanos) {
            // Both have the same bounds, so that nothing can be refused.
            let _ = ours.add(theirs);
        }
    }

    /// The latencies in nanoseconds, each with how many there were of it, for another process.
    #[must_use]
    pub fn counts(&self) -> Vec<(u64, u64)> {
        let nanos = self.nanos.iter().flat_map(Histogram::iter_recorded);
        nanos.map(|value| (value.value_iterated_to(), value.count_at_value())).collect()
    }

    /// The longest, in nanoseconds.
    #[must_use]
    pub const fn max_nanos(&self) -> u64 {
        self.max_nanos
    }

    /// Those of [`counts`](Self::counts) and [`max_nanos`](Self::max_nanos).
    #[must_use]
    pub fn of_counts(counts: &[(u64, u64)], max_nanos: u64) -> Self {
        let mut latencies = Self { max_nanos, ..Self::default() };
        if let Some(histogram) = &mut latencies.nanos {
            for (nanos, count) in counts {
                histogram.saturating_record_n(*nanos, *count);
            }
        }
        latencies
    }

    /// The summary of the latencies.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let Some(nanos) = self.nanos.as_ref().filter(|nanos| !nanos.is_empty()) else {
            return Summary::default();
        };
        let max_micros = self.max_nanos as f64 / 1e3;
        // A quantile is rounded up to its bucket's end, which may lie beyond the longest.
        let micros = |quantile| (nanos.value_at_quantile(quantile) as f64 / 1e3).min(max_micros);
        Summary {
            count: nanos.len(),
            mean_micros: nanos.mean() / 1e3,
            deviation_micros: nanos.stdev() / 1e3,
            p50_micros: micros(0.5),
            p99_micros: micros(0.99),
            p999_micros: micros(0.999),
            max_micros,
        }
    }
}

impl Summary {
    /// As metrics whose names begin with `what`.
    pub fn put_into(&self, metrics: &mut Metrics, what: &str) {
        let fields = [
            ("samples", self.count as f64),
            ("mean_us", self.mean_micros),
            ("deviation_us", self.deviation_micros),
            ("p50_us", self.p50_micros),
            ("p99_us", self.p99_micros),
            ("p999_us", self.p999_micros),
            ("max_us", self.max_micros),
        ];
        metrics.extend(fields.map(|(name, value)| (format!("{what}_{name}"), value)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn quantiles_are_within_a_thousandth_of_those_of_the_sorted_samples(
            nanos in proptest::collection::vec(1u64..10_000_000_000, 1..300),
        ) {
            let mut latencies = Latencies::default();
            nanos.iter().for_each(|nanos| latencies.record(Duration::from_nanos(*nanos)));
            let mut sorted = nanos;
            sorted.sort_unstable();
            let exact = |quantile: f64| {
                let rank = (quantile * sorted.len() as f64).ceil().max(1.0) as usize;
                sorted[rank - 1] as f64 / 1e3
            };
            let summary = latencies.summary();
            prop_assert_eq!(summary.count, sorted.len() as u64);
            prop_assert_eq!(summary.max_micros, *sorted.last().unwrap() as f64 / 1e3);
            let found = [summary.p50_micros, summary.p99_micros, summary.p999_micros];
            for (found, quantile) in found.into_iter().zip([0.5, 0.99, 0.999]) {
                let exact = exact(quantile);
                prop_assert!((found - exact).abs() <= exact / 500.0, "{} {}", found, exact);
            }
        }
    }

    #[test]
    fn threads_are_added_up() {
        let mut one = Latencies::default();
        let mut other = Latencies::default();
        one.record(Duration::from_micros(1));
        other.record(Duration::from_micros(9));
        one.add(&other);
        assert_eq!((one.summary().count, one.summary().max_micros), (2, 9.0));
    }

    #[test]
    fn without_samples_everything_is_zero_and_an_eternity_is_an_hour() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.summary(), Summary::default());
        latencies.record(Duration::MAX);
        assert_eq!(latencies.summary().max_micros, 3.6e9);
        let mut metrics = Metrics::new();
        latencies.summary().put_into(&mut metrics, "get");
        assert_eq!((metrics["get_samples"], metrics["get_max_us"]), (1.0, 3.6e9));
    }
}
