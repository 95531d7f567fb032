//! What a host asked for, and how long it took.

use crate::nand::Latencies;
use crate::trace::{OpKind, TraceOp};

/// Operations of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostCounts {
    /// Requests that read.
    pub read_requests: u64,
    /// Requests that write.
    pub write_requests: u64,
    /// Requests that trim.
    pub trim_requests: u64,
    /// Flushes.
    pub flushes: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Bytes trimmed, also of pages that a trim has only a part of.
    pub bytes_trimmed: u64,
    /// Logical pages that reads touched.
    pub pages_read: u64,
    /// Logical pages that writes touched.
    pub pages_written: u64,
    /// Logical pages that were trimmed.
    pub pages_trimmed: u64,
    /// Pages read that held nothing.
    pub unmapped_pages_read: u64,
    /// Pages of which a write had only a part: each is read first.
    pub partial_pages_written: u64,
}

impl HostCounts {
    /// Counts a request that touches `pages` pages.
    pub(super) const fn count(&mut self, op: &TraceOp, pages: u64) {
        match op.kind {
            OpKind::Read => {
                self.read_requests += 1;
                self.bytes_read = self.bytes_read.saturating_add(op.length);
                self.pages_read += pages;
            }
            OpKind::Write => {
                self.write_requests += 1;
                self.bytes_written = self.bytes_written.saturating_add(op.length);
                self.pages_written += pages;
            }
            OpKind::Trim => {
                self.trim_requests += 1;
                self.bytes_trimmed = self.bytes_trimmed.saturating_add(op.length);
                self.pages_trimmed += pages;
            }
            OpKind::Flush => self.flushes += 1,
        }
    }

    /// All requests.
    #[must_use]
    pub const fn requests(&self) -> u64 {
        self.read_requests + self.write_requests + self.trim_requests + self.flushes
    }
}

/// A histogram for each kind of operation.
#[derive(Clone, Debug, Default)]
pub struct LatencyByKind {
    /// Reads.
    pub read: Latencies,
    /// Writes.
    pub write: Latencies,
    /// Trims.
    pub trim: Latencies,
    /// Flushes.
    pub flush: Latencies,
}

impl LatencyByKind {
    /// Adds the latency of a request.
    #[inline]
    pub(super) fn record(&mut self, kind: OpKind, ns: u64) {
        match kind {
            OpKind::Read => self.read.record(ns),
            OpKind::Write => self.write.record(ns),
            OpKind::Trim => self.trim.record(ns),
            OpKind::Flush => self.flush.record(ns),
        }
    }

    /// The histograms with the names of their kinds.
    #[must_use]
    pub const fn all(&self) -> [(&'static str, &Latencies); 4] {
        [("read", &self.read), ("write", &self.write), ("trim", &self.trim), ("flush", &self.flush)]
    }
}
