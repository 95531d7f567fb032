//! A device with limits on the bytes per second.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::Device;
use crate::delay::pause;
use crate::wrap::{Hook, Step, StepKind, Wrapped};

/// Speed limits of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes read per second; `None` for no limit.
    pub read_bytes_per_second: Option<u64>,
    /// Bytes written per second; `None` for no limit.
    pub write_bytes_per_second: Option<u64>,
    /// The burst of an idle device, as time: 100 ms allow a tenth of a second's bytes without a
    /// wait.
    pub burst: Duration,
}

/// A token bucket, kept as the time at which it is paid for.
///
/// Invariant: all bytes admitted so far are paid for at `paid_at`, which is never further in the
/// past than the burst when bytes are admitted.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    bytes_per_second: u64,
    burst: Duration,
    paid_at: Duration,
}

impl Bucket {
    /// Admits `bytes` at `now` (time since some origin); returns how long to wait first.
    fn admit(&mut self, now: Duration, bytes: u64) -> Duration {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second.max(1));
        let price = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.paid_at = self.paid_at.max(now.saturating_sub(self.burst)).saturating_add(price);
        self.paid_at.saturating_sub(now)
    }
}

/// The state of a [`ThrottleDevice`].
#[derive(Debug)]
pub struct ThrottleHook {
    origin: Instant,
    reads: Option<Mutex<Bucket>>,
    writes: Option<Mutex<Bucket>>,
}

impl Hook for ThrottleHook {
    fn before(&self, step: Step) {
        let bucket = match step.kind {
            StepKind::Read => &self.reads,
            StepKind::Write => &self.writes,
            StepKind::Sync | StepKind::SyncDir => return,
        };
        if let Some(bucket) = bucket {
            let wait = bucket.lock().admit(self.origin.elapsed(), step.bytes);
            pause(wait);
        }
    }
}

/// A device with limits on the bytes per second.
pub type ThrottleDevice = Wrapped<ThrottleHook>;

impl ThrottleDevice {
    /// Limits `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Device>, limits: Limits) -> Self {
        // A bucket starts full: it was paid for a burst ago, or at the origin at the earliest.
        let bucket = |bytes_per_second| {
            Mutex::new(Bucket { bytes_per_second, burst: limits.burst, paid_at: Duration::ZERO })
        };
        let hook = ThrottleHook {
            // The origin is one burst in the past, so that there is a time at which it was paid.
            origin: Instant::now().checked_sub(limits.burst).unwrap_or_else(Instant::now),
            reads: limits.read_bytes_per_second.map(bucket),
            writes: limits.write_bytes_per_second.map(bucket),
        };
        Self::around(inner, hook)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryDevice;
    use crate::{Caching, Open, Purpose, Result, conformance};

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn conforms() -> Result<()> {
        let limits = Limits {
            read_bytes_per_second: Some(1 << 33),
            write_bytes_per_second: Some(1 << 33),
            burst: ms(1),
        };
        conformance::all(&ThrottleDevice::new(Arc::new(MemoryDevice::new()), limits))
    }

    #[test]
    fn buckets_hold_the_rate_and_the_burst() {
        // 1000 bytes a second: one byte, one millisecond.
        let mut bucket = Bucket { bytes_per_second: 1000, burst: ms(100), paid_at: ms(0) };
        assert_eq!(bucket.admit(ms(1000), 100), ms(0), "the burst");
        assert_eq!(bucket.admit(ms(1000), 50), ms(50));
        assert_eq!(bucket.admit(ms(1020), 10), ms(40), "later ones wait behind");
        assert_eq!(bucket.admit(ms(1060), 0), ms(0));
        assert_eq!(bucket.admit(ms(9000), 150), ms(50), "idle time buys no more than a burst");
        let mut stopped = Bucket { bytes_per_second: 0, burst: ms(0), paid_at: ms(0) };
        assert_eq!(stopped.admit(ms(0), 3), Duration::from_secs(3), "zero counts as one");
        assert!(bucket.admit(ms(0), u64::MAX) > Duration::from_secs(1 << 33));
    }

    #[test]
    fn writes_take_the_time_they_must() -> Result<()> {
        let limits = Limits { write_bytes_per_second: Some(1 << 20), ..Limits::default() };
        let device = ThrottleDevice::new(Arc::new(MemoryDevice::new()), limits);
        let file = device.open("a", Open::CreateNew, Caching::Buffered)?;
        let start = Instant::now();
        for _ in 0..4 {
            file.write_at(0, &[1; 8 << 10], Purpose::User)?;
        }
        assert!(start.elapsed() >= ms(31), "{:?}", start.elapsed());
        let start = Instant::now();
        for _ in 0..1000 {
            file.read_at(0, &mut [0; 8 << 10], Purpose::User)?;
        }
        assert!(start.elapsed() < Duration::from_secs(7), "reads are not limited");
        Ok(())
    }
}
