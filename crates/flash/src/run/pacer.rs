//! When the next request is issued: pure bookkeeping over times, without a device.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Pace;
use super::counts::LatencyByKind;
use crate::trace::{OpKind, TraceOp};

/// The most requests that an open loop has outstanding, as the queues of a host are finite. A
/// request that arrives at full queues waits for a place, which is part of its latency.
pub const RECORDED_OUTSTANDING_MAX: usize = 1024;

/// Issue times do not go back; `outstanding` has at most the queue depth.
pub(super) struct Pacer {
    pace: Pace,
    /// The time at which the first request is issued.
    start_ns: u64,
    last_issue_ns: u64,
    last_end_ns: u64,
    /// When the request that was issued last arrived.
    arrival_ns: u64,
    /// When the outstanding requests end, the earliest first.
    outstanding: BinaryHeap<Reverse<u64>>,
    latencies: LatencyByKind,
}

impl Pacer {
    pub(super) fn new(pace: Pace, start_ns: u64) -> Self {
        Self {
            pace,
            start_ns,
            last_issue_ns: start_ns,
            last_end_ns: start_ns,
            arrival_ns: start_ns,
            outstanding: BinaryHeap::new(),
            latencies: LatencyByKind::default(),
        }
    }

    /// When this request is issued; none where there is no time.
    pub(super) fn issue(&mut self, op: &TraceOp) -> Option<u64> {
        let depth = match self.pace {
            Pace::Untimed => return None,
            Pace::Recorded => RECORDED_OUTSTANDING_MAX,
            Pace::QueueDepth(depth) => depth.max(1) as usize,
        };
        let free_ns = match self.outstanding.len() >= depth {
            true => self.outstanding.pop().map_or(0, |Reverse(end)| end),
            false => 0,
        };
        let arrival = match self.pace {
            Pace::Recorded => Some(self.start_ns.saturating_add(op.at_ns)),
            _ => None,
        };
        self.last_issue_ns = self.last_issue_ns.max(free_ns).max(arrival.unwrap_or(0));
        self.arrival_ns = arrival.unwrap_or(self.last_issue_ns);
        Some(self.last_issue_ns)
    }

    /// The request that was issued last ends.
    pub(super) fn ended(&mut self, kind: OpKind, end_ns: u64) {
        let end_ns = match kind {
            OpKind::Flush => end_ns.max(self.last_end_ns),
            _ => end_ns,
        };
        self.last_end_ns = self.last_end_ns.max(end_ns);
        self.latencies.record(kind, end_ns.saturating_sub(self.arrival_ns));
        self.outstanding.push(Reverse(end_ns));
    }

    /// The latencies, and the time from the first issue to the last end.
    pub(super) fn finish(self) -> (Option<LatencyByKind>, u64) {
        match self.pace {
            Pace::Untimed => (None, 0),
            _ => (Some(self.latencies), self.last_end_ns - self.start_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(at_ns: u64) -> TraceOp {
        TraceOp { at_ns, offset: 0, length: 4096, kind: OpKind::Write, stream: 0 }
    }

    #[test]
    fn a_closed_loop_issues_when_the_earliest_request_ends() {
        let mut pacer = Pacer::new(Pace::QueueDepth(2), 100);
        let mut issue = |end| {
            let at = pacer.issue(&op(7)).unwrap();
            pacer.ended(OpKind::Write, end);
            at
        };
        assert_eq!([issue(400), issue(300), issue(900), issue(500)], [100, 100, 300, 400]);
        assert_eq!(issue(1000), 500);
        assert_eq!(pacer.finish().1, 900);
    }

    #[test]
    fn an_open_loop_issues_at_the_recorded_times() {
        let mut pacer = Pacer::new(Pace::Recorded, 100);
        assert_eq!(pacer.issue(&op(50)), Some(150));
        pacer.ended(OpKind::Write, 1150);
        assert_eq!(pacer.issue(&op(60)), Some(160));
        pacer.ended(OpKind::Write, 360);
        let (latencies, simulated_ns) = pacer.finish();
        let write = latencies.unwrap().write;
        assert_eq!((write.count(), simulated_ns), (2, 1050));
        assert!(write.max_ns() >= 1000 && write.percentile_ns(50.0) <= 200);
    }

    #[test]
    fn a_flush_ends_with_everything_before_it() {
        let mut pacer = Pacer::new(Pace::QueueDepth(8), 0);
        pacer.issue(&op(0)).unwrap();
        pacer.ended(OpKind::Write, 5000);
        let at = pacer.issue(&TraceOp::flush(0)).unwrap();
        pacer.ended(OpKind::Flush, at);
        assert!(pacer.finish().0.unwrap().flush.max_ns() >= 4990);
    }

    #[test]
    fn requests_that_find_full_queues_wait() {
        let mut pacer = Pacer::new(Pace::Recorded, 0);
        for _ in 0..RECORDED_OUTSTANDING_MAX {
            assert_eq!(pacer.issue(&op(0)), Some(0));
            pacer.ended(OpKind::Write, 70_000);
        }
        assert_eq!(pacer.issue(&op(5)), Some(70_000));
        pacer.ended(OpKind::Write, 80_000);
        // From its arrival on.
        assert!(pacer.finish().0.unwrap().write.max_ns() >= 79_990);
    }

    #[test]
    fn without_a_clock_there_are_no_latencies() {
        let mut pacer = Pacer::new(Pace::Untimed, 0);
        assert_eq!(pacer.issue(&op(50)), None);
        assert!(pacer.finish().0.is_none());
    }
}
