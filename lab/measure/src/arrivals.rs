//! Requests that come when they come, whether or not the system is ready for them.
//!
//! The n-th request is due at a time that is known in advance; its latency counts from that
//! time. A system that stops for a second therefore shows a second for the first request it kept
//! waiting, and what remained of it for each that came after: nothing is left out because the
//! client was waiting, too.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::Result;
use crate::latency::Latencies;

/// Requests due at an even rate.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    start: Instant,
    interval_nanos: f64,
}

impl Schedule {
    /// `rate` requests a second from `start` on; at least one a minute, at most 10 million.
    #[must_use]
    pub fn new(start: Instant, rate: f64) -> Self {
        let rate = if rate.is_finite() { rate.clamp(1.0 / 60.0, 1e7) } else { 1.0 };
        Self { start, interval_nanos: 1e9 / rate }
    }

    /// When the n-th request is due.
    #[must_use]
    pub fn due(&self, n: u64) -> Instant {
        self.start + Duration::from_nanos((n as f64 * self.interval_nanos) as u64)
    }
}

/// The time between two moments that are not known in advance, shared by threads.
///
/// Invariant: `end` is set after `begin`, and each is set once. 0 means "not yet".
#[derive(Debug)]
pub struct Window {
    origin: Instant,
    begin: AtomicU64,
    end: AtomicU64,
}

impl Default for Window {
    fn default() -> Self {
        let (begin, end) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { origin: Instant::now(), begin, end }
    }
}

impl Window {
    fn nanos(&self, at: Instant) -> u64 {
        let nanos = at.saturating_duration_since(self.origin).as_nanos();
        u64::try_from(nanos).unwrap_or(u64::MAX).max(1)
    }

    /// From now on requests count.
    pub fn begin(&self) {
        self.begin.store(self.nanos(Instant::now()), Ordering::Release);
    }

    /// Requests due from now on do not count.
    pub fn end(&self) {
        self.end.store(self.nanos(Instant::now()), Ordering::Release);
    }

    /// When the window ended, if it has.
    #[must_use]
    pub fn ended(&self) -> Option<Instant> {
        match self.end.load(Ordering::Acquire) {
            0 => None,
            nanos => Some(self.origin + Duration::from_nanos(nanos)),
        }
    }

    /// Whether a request due at `due`, which is past, counts.
    #[must_use]
    pub fn counts(&self, due: Instant) -> bool {
        let due = self.nanos(due);
        let (begin, end) = (self.begin.load(Ordering::Acquire), self.end.load(Ordering::Acquire));
        begin != 0 && due >= begin && (end == 0 || due < end)
    }
}

/// The results of the requests of a window.
#[derive(Debug, Default)]
pub struct Driven {
    /// Latencies of those that count.
    pub latencies: Latencies,
    /// Those dropped because the system had not come to them long after the window's end; they
    /// are in the latencies with the time that they had waited.
    pub abandoned: u64,
}

/// The time after the window's end for which requests that were due within it are still made.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Makes requests by the schedule until those due within the window are done.
///
/// # Errors
/// That of the first request that fails.
pub fn drive(
    schedule: &Schedule,
    window: &Window,
    patience: Duration,
    mut request: impl FnMut(u64) -> Result<()>,
) -> Result<Driven> {
    wake_precisely();
    let mut driven = Driven::default();
    for n in 0.. {
        let due = schedule.due(n);
        let now = Instant::now();
        let ended = window.ended();
        if ended.is_some_and(|end| due >= end) {
            break;
        }
        let abandoned = ended.is_some_and(|end| now >= end + patience);
        if abandoned {
            driven.abandoned += u64::from(window.counts(due));
        } else {
            // In short sleeps, so that a slow schedule notices the window's end.
            if due > now && wait(due, window) {
                break;
            }
            request(n)?;
        }
        if window.counts(due) {
            driven.latencies.record(due.elapsed());
        }
    }
    Ok(driven)
}

/// Sleeps until `due`; says whether the window ended before.
fn wait(due: Instant, window: &Window) -> bool {
    const NAP: Duration = Duration::from_millis(10);
    loop {
        if window.ended().is_some_and(|end| due >= end) {
            return true;
        }
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        thread::sleep(left.min(NAP));
    }
}

/// Asks the kernel to wake this thread on time: to save power it may do so 50 µs late.
pub fn wake_precisely() {
    // Where it is refused the wake-ups are late for every system alike.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn requests_are_due_at_even_intervals_without_drift() {
        let start = Instant::now();
        let schedule = Schedule::new(start, 3.0);
        assert_eq!(schedule.due(0), start);
        assert_eq!(schedule.due(3) - start, Duration::from_secs(1));
        let drift = (schedule.due(3_000_000) - start).as_secs_f64() - 1e6;
        assert!(drift.abs() < 1e-3, "{drift}");
        for rate in [0.0, f64::NAN, f64::INFINITY, -1.0] {
            assert!(Schedule::new(start, rate).due(10) > start);
        }
    }

    #[test]
    fn a_window_counts_what_is_due_between_its_ends() {
        let window = Window::default();
        let before = Instant::now();
        assert!(!window.counts(before) && window.ended().is_none());
        thread::sleep(Duration::from_millis(1));
        window.begin();
        let within = Instant::now();
        thread::sleep(Duration::from_millis(1));
        assert!(window.counts(within) && !window.counts(before));
        window.end();
        assert!(window.counts(within) && !window.counts(before));
        assert!(!window.counts(Instant::now()));
    }

    /// A system that stops once for 60 ms with a request due each millisecond: a closed loop
    /// would see one slow request, an open one sees sixty.
    #[test]
    fn a_stall_delays_every_request_that_was_due_meanwhile() {
        let window = Window::default();
        window.begin();
        let started = Instant::now();
        let schedule = Schedule::new(started, 1000.0);
        let mut ended_ms = 0;
        let driven = drive(&schedule, &window, PATIENCE, |n| {
            if n == 20 {
                thread::sleep(Duration::from_millis(60));
            }
            if n == 150 {
                window.end();
                ended_ms = started.elapsed().as_millis();
            }
            Ok(())
        });
        let summary = driven.unwrap().latencies.summary();
        // One a millisecond until the end, which comes late on a machine that pauses.
        let due = 100..=ended_ms + 1;
        assert!(due.contains(&u128::from(summary.count)), "{ended_ms} ms {summary:?}");
        assert!(summary.max_micros >= 59_000.0, "{summary:?}");
        // A quarter of all requests waited, most of them tens of milliseconds.
        assert!(summary.p99_micros >= 30_000.0, "{summary:?}");
    }

    #[test]
    fn an_abandoned_backlog_is_counted() {
        let window = Window::default();
        window.begin();
        let schedule = Schedule::new(Instant::now(), 10_000.0);
        let driven = drive(&schedule, &window, Duration::from_millis(20), |n| {
            thread::sleep(Duration::from_millis(5));
            if n == 10 {
                window.end();
            }
            Ok(())
        });
        let driven = driven.unwrap();
        assert!(driven.abandoned > 100, "{driven:?}");
        assert!(driven.latencies.summary().count > driven.abandoned);
    }

    #[test]
    fn a_failed_request_ends_the_drive() {
        let schedule = Schedule::new(Instant::now(), 1e6);
        let fails = |_| Err(Error::Invalid("x".to_owned()));
        assert!(drive(&schedule, &Window::default(), PATIENCE, fails).is_err());
    }
}
