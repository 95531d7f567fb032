//! What a store did to its device.

use esker_device::Purpose;

use crate::ftl::{HostCounters, Wear};
use crate::nand::Counters;

/// The counts of an [`SsdDevice`](super::SsdDevice), so far or between two moments.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SsdReport {
    /// Bytes of a page.
    pub page_bytes: u64,
    /// What the device was asked for, in pages.
    pub host: HostCounters,
    /// Pages written, by purpose.
    pub written: [u64; Purpose::ALL.len()],
    /// Operations on flash, by cause.
    pub flash: Counters,
    /// Erase counts, at the later moment.
    pub wear: Wear,
    /// Time that the device was busy, in nanoseconds; 0 without a clock.
    pub busy_ns: u64,
}

impl SsdReport {
    /// Pages programmed for each page that was written; 1 where none was.
    #[must_use]
    pub fn write_amplification(&self) -> f64 {
        match self.host.writes {
            0 => 1.0,
            writes => self.flash.total().programs as f64 / writes as f64,
        }
    }

    /// Pages written for a purpose.
    #[must_use]
    pub const fn written_for(&self, purpose: Purpose) -> u64 {
        self.written[purpose as usize]
    }

    /// What was counted after `earlier`, a report of the same device. Erase counts stay.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut written = self.written;
        for (now, then) in written.iter_mut().zip(earlier.written) {
            *now = now.saturating_sub(then);
        }
        let host = HostCounters {
            reads: self.host.reads.saturating_sub(earlier.host.reads),
            writes: self.host.writes.saturating_sub(earlier.host.writes),
            trims: self.host.trims.saturating_sub(earlier.host.trims),
            flushes: self.host.flushes.saturating_sub(earlier.host.flushes),
        };
        Self {
            page_bytes: self.page_bytes,
            host,
            written,
            flash: self.flash.since(&earlier.flash),
            wear: self.wear,
            busy_ns: self.busy_ns.saturating_sub(earlier.busy_ns),
        }
    }
}
