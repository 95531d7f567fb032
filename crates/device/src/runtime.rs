//! Time and randomness, injected so that a simulation repeats from its seed.

use std::fmt::Debug;
use std::time::Duration;

/// The outside world, as far as the store may know it.
pub trait Runtime: Send + Sync + Debug {
    /// Time since some fixed moment; never goes back.
    fn now(&self) -> Duration;

    /// Time since the beginning of 1970, UTC, by the wall clock: it may jump, also back.
    fn unix_time(&self) -> Duration;

    /// A random number, for identities only: nothing depends on its quality.
    fn random(&self) -> u64;
}

/// The real clock and the standard library's random state.
#[derive(Debug)]
pub struct SystemRuntime {
    start: std::time::Instant,
}

impl Default for SystemRuntime {
    fn default() -> Self {
        Self { start: std::time::Instant::now() }
    }
}

impl Runtime for SystemRuntime {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn unix_time(&self) -> Duration {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        // A clock before 1970 was never set.
        since.unwrap_or_default()
    }

    fn random(&self) -> u64 {
        use std::hash::{BuildHasher, Hasher};
        std::collections::hash_map::RandomState::new().build_hasher().finish()
    }
}

/// The initial wall-clock time of a simulation: the year 2020.
const SIM_START_MICROS: u64 = 1_577_836_800_000_000;

/// A clock that advances only on request, and random numbers from a seed (SplitMix64).
#[derive(Debug)]
pub struct SimRuntime {
    state: std::sync::atomic::AtomicU64,
    micros: std::sync::atomic::AtomicU64,
    unix_micros: std::sync::atomic::AtomicU64,
}

impl SimRuntime {
    /// A runtime whose every answer follows from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: seed.into(), micros: 0.into(), unix_micros: SIM_START_MICROS.into() }
    }

    /// Moves both clocks forward.
    pub fn advance(&self, by: Duration) {
        let micros = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros, std::sync::atomic::Ordering::Relaxed);
        self.unix_micros.fetch_add(micros, std::sync::atomic::Ordering::Relaxed);
    }

    /// Sets the wall clock, forward or back.
    pub fn set_unix_time(&self, to: Duration) {
        let micros = u64::try_from(to.as_micros()).unwrap_or(u64::MAX);
        self.unix_micros.store(micros, std::sync::atomic::Ordering::Relaxed);
    }
}

impl Runtime for SimRuntime {
    fn now(&self) -> Duration {
        Duration::from_micros(self.micros.load(std::sync::atomic::Ordering::Relaxed))
    }

    fn unix_time(&self) -> Duration {
        Duration::from_micros(self.unix_micros.load(std::sync::atomic::Ordering::Relaxed))
    }

    fn random(&self) -> u64 {
        let step = 0x9e37_79b9_7f4a_7c15;
        let mut z =
            self.state.fetch_add(step, std::sync::atomic::Ordering::Relaxed).wrapping_add(step);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
