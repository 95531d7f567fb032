//! The measurements of working threads for the view: counts and latencies, only in atomics.
//!
//! Invariant: recording takes no lock and never waits; it costs a few nanoseconds.
//! Invariant: every operation is counted in exactly one window, that in which it ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets to a doubling: a quantile is at most a sixteenth too long.
const STEPS: u64 = 16;
const STEP_BITS: u32 = STEPS.ilog2();
/// Longer operations, beyond 18 minutes, fall into the last bucket; their maximum is exact.
const NANOS_BITS: u32 = 40;
const BUCKETS: usize = ((NANOS_BITS - STEP_BITS + 1) as usize) << STEP_BITS;

/// All that working threads count.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    pub(crate) writes: Arc<Gauge>,
    pub(crate) reads: Arc<Gauge>,
    /// Key and value bytes of the entries that were ever added, and of those removed.
    grown_bytes: AtomicU64,
    shrunk_bytes: AtomicU64,
}

impl Meter {
    /// An entry of this many bytes was added.
    pub(crate) fn grew(&self, bytes: usize) {
        self.grown_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// An entry of this many bytes was removed.
    pub(crate) fn shrank(&self, bytes: usize) {
        self.shrunk_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Key and value bytes of what a reader can find.
    pub(super) fn live_bytes(&self) -> u64 {
        let grown = self.grown_bytes.load(Ordering::Relaxed);
        grown.saturating_sub(self.shrunk_bytes.load(Ordering::Relaxed))
    }
}

/// Operations of one kind since the last window was taken. About 5 KiB.
#[derive(Debug)]
pub(crate) struct Gauge {
    buckets: [AtomicU64; BUCKETS],
    max_nanos: AtomicU64,
}

/// Operations that ended within a stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Window {
    pub(super) seconds: f64,
    pub(super) count: u64,
    /// At most a sixteenth too long; 0 where there were none.
    pub(super) p99_nanos: u64,
    pub(super) max_nanos: u64,
}

impl Default for Gauge {
    fn default() -> Self {
        Self { buckets: std::array::from_fn(|_| AtomicU64::new(0)), max_nanos: AtomicU64::new(0) }
    }
}

impl Gauge {
    /// Counts one operation.
    pub(crate) fn record(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.max_nanos.fetch_max(nanos, Ordering::Relaxed);
        if let Some(bucket) = self.buckets.get(bucket(nanos)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The operations that ended since the last call.
    pub(super) fn take(&self, length: Duration) -> Window {
        let counts = self.buckets.each_ref().map(|bucket| bucket.swap(0, Ordering::Relaxed));
        let max_nanos = self.max_nanos.swap(0, Ordering::Relaxed);
        let p99_nanos = quantile(&counts, 0.99);
        let window = Window {
            seconds: length.as_secs_f64(),
            count: counts.iter().sum(),
            p99_nanos,
            max_nanos,
        };
        // An operation that ends just now may have its maximum in one window and its count in
        // the next.
        match max_nanos {
            0 => Window { max_nanos: p99_nanos, ..window },
            longest => Window { p99_nanos: p99_nanos.min(longest), ..window },
        }
    }
}

/// The latency that the given part of the operations did not exceed.
fn quantile(counts: &[u64], part: f64) -> u64 {
    let all: u64 = counts.iter().sum();
    let rank = (all as f64 * part).ceil() as u64;
    let mut below = 0;
    let reached = counts.iter().position(|count| {
        below += count;
        below >= rank
    });
    if all == 0 { 0 } else { reached.map_or(0, longest_in) }
}

/// Short ones have buckets of their own; then each doubling has [`STEPS`].
const fn bucket(nanos: u64) -> usize {
    let last = (1 << NANOS_BITS) - 1;
    let nanos = if nanos < last { nanos } else { last };
    if nanos < STEPS {
        return nanos as usize;
    }
    let doubling = nanos.ilog2() - STEP_BITS;
    ((doubling as u64 * STEPS) + (nanos >> doubling)) as usize
}

/// The longest latency that falls into a bucket.
const fn longest_in(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < STEPS {
        return bucket;
    }
    let doubling = bucket / STEPS - 1;
    ((bucket % STEPS + STEPS + 1) << doubling) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_bucket_ends_at_most_a_sixteenth_beyond_what_falls_into_it(nanos in 0u64..1 << 40) {
            let end = longest_in(bucket(nanos));
            prop_assert!(end >= nanos && end - nanos <= nanos / STEPS, "{} {}", nanos, end);
            prop_assert_eq!(bucket(end), bucket(nanos));
            prop_assert!(bucket(nanos) < BUCKETS);
        }

        #[test]
        fn a_window_agrees_with_the_sorted_samples(
            mut nanos in proptest::collection::vec(1u64..10_000_000_000, 1..300),
        ) {
            let gauge = Gauge::default();
            nanos.iter().for_each(|nanos| gauge.record(Duration::from_nanos(*nanos)));
            nanos.sort_unstable();
            let exact = nanos[(nanos.len() as f64 * 0.99).ceil() as usize - 1];
            let window = gauge.take(Duration::from_millis(100));
            prop_assert_eq!(window.count, nanos.len() as u64);
            prop_assert_eq!(window.max_nanos, *nanos.last().unwrap());
            prop_assert!(window.p99_nanos >= exact);
            prop_assert!(window.p99_nanos - exact <= exact / STEPS);
        }
    }

    #[test]
    fn each_operation_is_in_one_window() {
        let gauge = Gauge::default();
        let length = Duration::from_millis(100);
        gauge.record(Duration::from_nanos(7));
        let first = Window { seconds: 0.1, count: 1, p99_nanos: 7, max_nanos: 7 };
        assert_eq!(gauge.take(length), first);
        assert_eq!(gauge.take(length), Window { seconds: 0.1, ..Window::default() });
        gauge.record(Duration::MAX);
        assert_eq!(gauge.take(length).max_nanos, u64::MAX);
    }

    #[test]
    fn live_bytes_never_fall_below_nothing() {
        let meter = Meter::default();
        meter.grew(10);
        meter.shrank(4);
        assert_eq!(meter.live_bytes(), 6);
        meter.shrank(7);
        assert_eq!(meter.live_bytes(), 0);
    }
}
