//! Counting operations by purpose.

use std::array;
use std::ops::{Add, Index, Sub};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::wrap::{Hook, Step, StepKind, Wrapped};
use crate::{Device, Purpose};

/// Operations of one purpose. Only operations that succeeded count. Preallocation does not count,
/// because the file system decides how much it writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PurposeCounts {
    /// Reads; each request of a parallel read is one.
    pub reads: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Syncs of files.
    pub syncs: u64,
}

/// Operations by purpose, at one moment or between two: `counts[Purpose::Merge].bytes_written`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoCounts {
    by_purpose: [PurposeCounts; Purpose::ALL.len()],
}

impl PurposeCounts {
    fn zip(self, other: Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            reads: combine(self.reads, other.reads),
            bytes_read: combine(self.bytes_read, other.bytes_read),
            writes: combine(self.writes, other.writes),
            bytes_written: combine(self.bytes_written, other.bytes_written),
            syncs: combine(self.syncs, other.syncs),
        }
    }
}

impl Add for PurposeCounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.zip(other, u64::saturating_add)
    }
}

impl Sub for PurposeCounts {
    type Output = Self;

    /// The operations since `earlier`; zero where `earlier` is in fact later.
    fn sub(self, earlier: Self) -> Self {
        self.zip(earlier, u64::saturating_sub)
    }
}

impl IoCounts {
    /// The sum over all purposes.
    #[must_use]
    pub fn total(&self) -> PurposeCounts {
        self.by_purpose.iter().fold(PurposeCounts::default(), |all, one| all + *one)
    }

    /// All purposes with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (Purpose, PurposeCounts)> + '_ {
        Purpose::ALL.into_iter().zip(self.by_purpose)
    }
}

impl Index<Purpose> for IoCounts {
    type Output = PurposeCounts;

    fn index(&self, purpose: Purpose) -> &PurposeCounts {
        &self.by_purpose[purpose as usize]
    }
}

impl Add for IoCounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let sum = |at: usize| self.by_purpose[at] + other.by_purpose[at];
        Self { by_purpose: array::from_fn(sum) }
    }
}

impl Sub for IoCounts {
    type Output = Self;

    /// The operations since `earlier`; zero where `earlier` is in fact later.
    fn sub(self, earlier: Self) -> Self {
        let difference = |at: usize| self.by_purpose[at] - earlier.by_purpose[at];
        Self { by_purpose: array::from_fn(difference) }
    }
}

/// Running counts of one purpose, on cache lines of their own, so that readers and the log do not
/// slow each other by counting.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Counters {
    reads: AtomicU64,
    bytes_read: AtomicU64,
    writes: AtomicU64,
    bytes_written: AtomicU64,
    syncs: AtomicU64,
}

impl Counters {
    fn snapshot(&self) -> PurposeCounts {
        PurposeCounts {
            reads: self.reads.load(Ordering::Relaxed),
            bytes_read: self.bytes_read.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            bytes_written: self.bytes_written.load(Ordering::Relaxed),
            syncs: self.syncs.load(Ordering::Relaxed),
        }
    }
}

/// The running counts of a [`CountingDevice`].
#[derive(Debug, Default)]
pub struct CountHook {
    by_purpose: [Counters; Purpose::ALL.len()],
}

impl Hook for CountHook {
    fn after(&self, step: Step) {
        let counters = &self.by_purpose[step.purpose as usize];
        let add = |counter: &AtomicU64, count| counter.fetch_add(count, Ordering::Relaxed);
        match step.kind {
            StepKind::Read => {
                add(&counters.reads, step.operations);
                add(&counters.bytes_read, step.bytes);
            }
            StepKind::Write => {
                add(&counters.writes, step.operations);
                add(&counters.bytes_written, step.bytes);
            }
            StepKind::Sync => {
                add(&counters.syncs, step.operations);
            }
            StepKind::SyncDir => {}
        }
    }
}

/// A device that counts the operations of the inner device. Clones share the counts.
pub type CountingDevice = Wrapped<CountHook>;

impl CountingDevice {
    /// Counts from zero.
    #[must_use]
    pub fn new(inner: Arc<dyn Device>) -> Self {
        Self::around(inner, CountHook::default())
    }

    /// The counts up to now. Operations in flight may be counted in part.
    #[must_use]
    pub fn counts(&self) -> IoCounts {
        let by_purpose = &self.hook().by_purpose;
        IoCounts { by_purpose: array::from_fn(|at| by_purpose[at].snapshot()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryDevice;
    use crate::{Caching, Open, ReadRequest, Result, conformance};

    #[test]
    fn conforms() -> Result<()> {
        conformance::all(&CountingDevice::new(Arc::new(MemoryDevice::new())))
    }

    #[test]
    fn counts_by_purpose() -> Result<()> {
        let device = CountingDevice::new(Arc::new(MemoryDevice::new()));
        let file = device.open("a", Open::CreateNew, Caching::Buffered)?;
        file.write_at(0, &[1; 100], Purpose::Log)?;
        file.sync(Purpose::Log)?;
        let before = device.counts();
        file.write_at(0, &[1; 50], Purpose::Merge)?;
        file.read_at(0, &mut [0; 30], Purpose::User)?;
        assert!(file.read_at(90, &mut [0; 30], Purpose::User).is_err());
        let (mut first, mut second, mut bad) = ([0; 7], [0; 8], [0; 9]);
        let mut requests = [
            ReadRequest { offset: 0, buf: &mut first },
            ReadRequest { offset: 99, buf: &mut bad },
            ReadRequest { offset: 1, buf: &mut second },
        ];
        let outcomes = file.read_many(&mut requests, Purpose::Recovery);
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 2);
        let since = device.counts() - before;
        let log = PurposeCounts { writes: 1, bytes_written: 100, syncs: 1, ..Default::default() };
        assert_eq!(before[Purpose::Log], log);
        assert_eq!(since[Purpose::Log], PurposeCounts::default());
        assert_eq!(since[Purpose::Merge].bytes_written, 50);
        assert_eq!((since[Purpose::User].reads, since[Purpose::User].bytes_read), (1, 30));
        assert_eq!((since[Purpose::Recovery].reads, since[Purpose::Recovery].bytes_read), (2, 15));
        assert_eq!((before + since).total(), device.counts().total());
        assert_eq!((before - device.counts()).total(), PurposeCounts::default());
        Ok(())
    }
}
