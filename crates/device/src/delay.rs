//! A device with added delays, to show on a fast machine how a slow device behaves.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::Device;
use crate::wrap::{Hook, Step, StepKind, Wrapped};

/// The number of reads of one parallel read that wait together.
const READS_AT_ONCE: u64 = 16;

/// Times for which sleeping is too coarse.
const SPIN: Duration = Duration::from_micros(100);

/// The time that is added to each operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// Each read; of a parallel read, 16 requests wait together.
    pub read: Duration,
    /// Each write.
    pub write: Duration,
    /// Each sync, of a file or the folder.
    pub sync: Duration,
}

impl Delays {
    fn of(&self, step: Step) -> Duration {
        match step.kind {
            StepKind::Read => {
                let rounds = step.operations.div_ceil(READS_AT_ONCE);
                self.read.saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX))
            }
            StepKind::Write => self.write,
            StepKind::Sync | StepKind::SyncDir => self.sync,
        }
    }
}

impl Hook for Delays {
    fn before(&self, step: Step) {
        pause(self.of(step));
    }
}

/// Waits for `time`, to within microseconds. Yields to other threads that want the processor, as a
/// thread that waits for a device does.
pub(crate) fn pause(time: Duration) {
    if time.is_zero() {
        return;
    }
    let start = Instant::now();
    if let Some(sleep) = time.checked_sub(SPIN) {
        thread::sleep(sleep);
    }
    while start.elapsed() < time {
        thread::yield_now();
    }
}

/// A device whose operations take longer than those of the inner device.
pub type DelayDevice = Wrapped<Delays>;

impl DelayDevice {
    /// Adds `delays` to the operations of `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Device>, delays: Delays) -> Self {
        Self::around(inner, delays)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryDevice;
    use crate::{Caching, Open, Purpose, ReadRequest, Result, conformance};

    const DELAYS: Delays = Delays {
        read: Duration::from_millis(2),
        write: Duration::from_millis(3),
        sync: Duration::from_millis(5),
    };

    #[test]
    fn conforms() -> Result<()> {
        let delays = Delays { read: Duration::from_micros(1), ..Delays::default() };
        conformance::all(&DelayDevice::new(Arc::new(MemoryDevice::new()), delays))
    }

    #[test]
    fn parallel_reads_wait_together() {
        let of = |operations| {
            let purpose = Purpose::User;
            DELAYS.of(Step { kind: StepKind::Read, purpose, operations, bytes: 0 })
        };
        assert_eq!([of(1), of(16), of(17)].map(|time| time.as_millis()), [2, 2, 4]);
    }

    #[test]
    fn each_kind_takes_its_time() -> Result<()> {
        let device = DelayDevice::new(Arc::new(MemoryDevice::new()), DELAYS);
        let file = device.open("a", Open::CreateNew, Caching::Buffered)?;
        let timed = |operation: &dyn Fn() -> Result<()>, least: Duration| {
            let start = Instant::now();
            operation()?;
            assert!(start.elapsed() >= least, "{:?} of {least:?}", start.elapsed());
            Ok(())
        };
        timed(&|| file.write_at(0, &[1; 32], Purpose::User), DELAYS.write)?;
        timed(&|| file.read_at(0, &mut [0; 8], Purpose::User), DELAYS.read)?;
        timed(&|| file.sync(Purpose::User), DELAYS.sync)?;
        timed(&|| device.sync_dir(), DELAYS.sync)?;
        let read_two = || {
            let (mut first, mut second) = ([0; 4], [0; 4]);
            let mut requests = [
                ReadRequest { offset: 0, buf: &mut first },
                ReadRequest { offset: 4, buf: &mut second },
            ];
            file.read_many(&mut requests, Purpose::User).into_iter().collect()
        };
        timed(&read_two, DELAYS.read)
    }
}
