//! Threads that run during a measurement: the clock that persists once a second, the idle thread
//! that shows how much of a pause was the machine's, the sampler of space.
//!
//! Threads: each instrument runs in one thread of a scope, and ends when the [`Stop`] says so.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use esker_peers::System;
use parking_lot::{Condvar, Mutex};

use crate::arrivals::wake_precisely;
use crate::{Error, Result};

/// Asks threads to end, and wakes those that sleep until then.
#[derive(Debug, Default)]
pub struct Stop {
    asked: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    /// Ends every wait, now and later.
    pub fn ask(&self) {
        *self.asked.lock() = true;
        self.changed.notify_all();
    }

    /// Sleeps for `interval`; says whether it was asked to end before that.
    pub fn wait(&self, interval: Duration) -> bool {
        let mut asked = self.asked.lock();
        if !*asked {
            self.changed.wait_for(&mut asked, interval);
        }
        *asked
    }

    /// Whether it was asked.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        *self.asked.lock()
    }
}

/// Asks when it is dropped, so that a failure ends the concurrent threads too.
#[derive(Debug)]
pub struct StopOnDrop<'a>(pub &'a Stop);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.ask();
    }
}

/// The interval at which buffered writes are made durable, by every system alike.
const PERSIST_INTERVAL: Duration = Duration::from_secs(1);

/// Persists once a second.
///
/// # Errors
/// Those of the store.
pub fn persist_each_second(store: &dyn System, stop: &Stop) -> Result<()> {
    while !stop.wait(PERSIST_INTERVAL) {
        store.persist()?;
    }
    Ok(())
}

/// A thread that does nothing but sleep for a millisecond and look how long that took.
#[derive(Debug, Default)]
pub struct Control {
    longest_nanos: AtomicU64,
}

impl Control {
    /// Sleeps and looks until it is stopped.
    pub fn run(&self, stop: &Stop) {
        const NAP: Duration = Duration::from_millis(1);
        wake_precisely();
        let mut last = Instant::now();
        while !stop.wait(NAP) {
            let now = Instant::now();
            let nanos = u64::try_from((now - last).as_nanos()).unwrap_or(u64::MAX);
            self.longest_nanos.fetch_max(nanos, Ordering::Relaxed);
            last = now;
        }
    }

    /// Forgets the longest gap so far.
    pub fn reset(&self) {
        self.longest_nanos.store(0, Ordering::Relaxed);
    }

    /// The longest gap, in microseconds.
    #[must_use]
    pub fn longest_micros(&self) -> f64 {
        self.longest_nanos.load(Ordering::Relaxed) as f64 / 1e3
    }
}

/// The result of a thread.
///
/// # Errors
/// That of the thread; [`Error::Invalid`] where it panicked.
pub fn joined<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|_| Err(Error::Invalid("a thread panicked".to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_wait_ends_early_when_asked() {
        let stop = Stop::default();
        assert!(!stop.wait(Duration::from_millis(1)));
        let start = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| assert!(stop.wait(Duration::from_secs(60))));
            drop(StopOnDrop(&stop));
        });
        assert!(stop.is_asked() && start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn the_control_thread_sees_its_own_sleeps() {
        let (stop, control) = (Stop::default(), Control::default());
        thread::scope(|scope| {
            scope.spawn(|| control.run(&stop));
            thread::sleep(Duration::from_millis(20));
            stop.ask();
        });
        assert!(control.longest_micros() >= 1000.0, "{}", control.longest_micros());
        control.reset();
        assert_eq!(control.longest_micros(), 0.0);
    }
}
