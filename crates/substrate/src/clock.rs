//! The wall clock of a store.
//!
//! Values with an expiry are compared with it. Invariant: its results never go back while the
//! store is open, even if the underlying clock does, so that an expired value stays expired; when
//! the underlying clock is set back, time does not advance until it has caught up.

use std::sync::Arc;

use esker_format::ids::Moment;

use crate::runtime::{Runtime, SimRuntime};
use crate::sync::atomic::{AtomicU64, Ordering};

/// A wall clock that never goes back.
#[derive(Debug)]
pub struct Clock {
    runtime: Arc<dyn Runtime>,
    latest: AtomicU64,
}

impl Clock {
    /// A clock that follows `runtime`.
    #[must_use]
    pub fn new(runtime: Arc<dyn Runtime>) -> Self {
        Self { runtime, latest: 0.into() }
    }

    /// The clock behind it.
    #[must_use]
    pub const fn runtime(&self) -> &Arc<dyn Runtime> {
        &self.runtime
    }

    /// Now.
    pub fn now(&self) -> Moment {
        let millis = self.runtime.unix_time().as_millis();
        let read = u64::try_from(millis).unwrap_or(u64::MAX);
        let latest = self.latest.load(Ordering::Acquire);
        if read <= latest {
            return Moment(latest);
        }
        Moment(self.latest.fetch_max(read, Ordering::AcqRel).max(read))
    }
}

impl Default for Clock {
    /// A clock that does not advance.
    fn default() -> Self {
        Self::new(Arc::new(SimRuntime::new(0)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_clock_that_is_set_back_stops_until_it_has_caught_up() {
        let runtime = Arc::new(SimRuntime::new(1));
        let clock = Clock::new(Arc::clone(&runtime) as _);
        runtime.set_unix_time(Duration::from_millis(5000));
        assert_eq!(clock.now(), Moment(5000));
        runtime.set_unix_time(Duration::from_millis(3000));
        assert_eq!(clock.now(), Moment(5000));
        runtime.advance(Duration::from_millis(2500));
        assert_eq!(clock.now(), Moment(5500));
    }
}
