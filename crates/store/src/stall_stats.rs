//! Statistics of write stalls: number, duration and cause.
//!
//! Thread safety: everything may be called from any thread. A writer that need not wait pays
//! nothing.

use std::sync::Arc;
use std::time::Duration;

use esker_substrate::runtime::Runtime;
use esker_substrate::sync::atomic::{AtomicU64, Ordering};

/// The reason why a writer waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// Its keyspace's memtables are full: until part of them has been flushed.
    Memory,
    /// It is ahead of the merge under way: until that has come further.
    Merge,
    /// Another transaction has the writers' turn.
    Turn,
}

impl Why {
    pub const ALL: [Self; 3] = [Self::Memory, Self::Merge, Self::Turn];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Merge => "merge",
            Self::Turn => "turn",
        }
    }
}

/// The waits of one kind.
#[derive(Debug, Default)]
struct Counter {
    waiting: AtomicU64,
    waits: AtomicU64,
    nanos: AtomicU64,
    longest_nanos: AtomicU64,
}

/// The waits of a store since it was opened.
#[derive(Debug)]
pub(crate) struct Waits {
    runtime: Arc<dyn Runtime>,
    counters: [Counter; Why::ALL.len()],
}

/// Figures of the waits of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    pub waiting: u64,
    pub waits: u64,
    pub total: Duration,
    pub longest: Duration,
}

/// A wait, until this is dropped.
#[derive(Debug)]
pub(crate) struct Wait<'a> {
    waits: &'a Waits,
    why: Why,
    begun: Duration,
}

impl Waits {
    pub fn new(runtime: Arc<dyn Runtime>) -> Self {
        Self { runtime, counters: Default::default() }
    }

    /// The clock.
    pub fn now(&self) -> Duration {
        self.runtime.now()
    }

    fn counter(&self, why: Why) -> &Counter {
        let [memory, merge, turn] = &self.counters;
        match why {
            Why::Memory => memory,
            Why::Merge => merge,
            Why::Turn => turn,
        }
    }

    pub fn begin(&self, why: Why) -> Wait<'_> {
        let counter = self.counter(why);
        counter.waiting.fetch_add(1, Ordering::Relaxed);
        counter.waits.fetch_add(1, Ordering::Relaxed);
        Wait { waits: self, why, begun: self.runtime.now() }
    }

    pub fn figures(&self, why: Why) -> Figures {
        let counter = self.counter(why);
        let nanos = |of: &AtomicU64| Duration::from_nanos(of.load(Ordering::Relaxed));
        Figures {
            waiting: counter.waiting.load(Ordering::Relaxed),
            waits: counter.waits.load(Ordering::Relaxed),
            total: nanos(&counter.nanos),
            longest: nanos(&counter.longest_nanos),
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let waited = self.waits.runtime.now().saturating_sub(self.begun);
        let nanos = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        let counter = self.waits.counter(self.why);
        counter.waiting.fetch_sub(1, Ordering::Relaxed);
        counter.nanos.fetch_add(nanos, Ordering::Relaxed);
        counter.longest_nanos.fetch_max(nanos, Ordering::Relaxed);
        tracing::debug!(why = self.why.as_str(), ?waited, "a writer has waited");
    }
}

#[cfg(test)]
mod tests {
    use esker_substrate::runtime::SimRuntime;

    use super::*;

    #[test]
    fn waits_are_counted_with_their_time() {
        let runtime = Arc::new(SimRuntime::new(0));
        let waits = Waits::new(Arc::clone(&runtime) as _);
        let first = waits.begin(Why::Merge);
        runtime.advance(Duration::from_millis(3));
        let second = waits.begin(Why::Merge);
        assert_eq!(waits.figures(Why::Merge).waiting, 2);
        drop(first);
        runtime.advance(Duration::from_millis(4));
        drop(second);
        let (total, longest) = (Duration::from_millis(7), Duration::from_millis(4));
        assert_eq!(waits.figures(Why::Merge), Figures { waiting: 0, waits: 2, total, longest });
        assert_eq!(waits.figures(Why::Turn), Figures::default());
    }
}
