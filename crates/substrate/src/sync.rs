//! Locks and atomics, and the same ones under a scheduler that tests control.
//!
//! With the feature `_shuttle` every lock, wait and atomic of the protocols below becomes a point
//! at which a test may switch threads: the real code runs under every schedule that the test
//! requests. Without it these are the ordinary types.
//!
//! With [`Swap`] one thread replaces a value that many read: readers take the current value without
//! waiting, and a replaced value lives until its last reader drops it.

#[cfg(not(feature = "_shuttle"))]
mod real {
    pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
    pub use std::sync::atomic;

    use std::sync::Arc;

    /// A shared value that can be replaced while it is read.
    #[derive(Debug)]
    pub struct Swap<T>(arc_swap::ArcSwap<T>);

    /// The value that was current when it was loaded.
    pub type Loaded<T> = arc_swap::Guard<Arc<T>>;

    impl<T> Swap<T> {
        /// Holds `value`.
        pub fn new(value: Arc<T>) -> Self {
            Self(arc_swap::ArcSwap::new(value))
        }

        /// The current value, without waiting.
        pub fn load(&self) -> Loaded<T> {
            self.0.load()
        }

        /// Replaces the value and returns the old one. Remaining readers of the old one are counted
        /// by its `Arc` when this returns.
        pub fn swap(&self, value: Arc<T>) -> Arc<T> {
            self.0.swap(value)
        }
    }
}

#[cfg(feature = "_shuttle")]
mod scheduled;

#[cfg(not(feature = "_shuttle"))]
pub use real::*;
#[cfg(feature = "_shuttle")]
pub use scheduled::*;

/// Starts a thread of the library's own.
///
/// # Errors
/// When the system has none to give.
#[cfg(not(feature = "_shuttle"))]
#[expect(clippy::disallowed_methods, reason = "the one place that starts threads")]
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<Thread> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body)
}

/// Starts a thread of the library's own.
///
/// # Errors
/// When the system has none to give.
#[cfg(feature = "_shuttle")]
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<Thread> {
    shuttle::thread::Builder::new().name(name.to_owned()).spawn(body)
}

/// A thread that can be waited for.
#[cfg(not(feature = "_shuttle"))]
pub type Thread = std::thread::JoinHandle<()>;
/// A thread that can be waited for.
#[cfg(feature = "_shuttle")]
pub type Thread = shuttle::thread::JoinHandle<()>;

/// The identity of a thread.
#[cfg(feature = "_shuttle")]
pub use shuttle::thread::ThreadId;
/// The identity of a thread.
#[cfg(not(feature = "_shuttle"))]
pub use std::thread::ThreadId;

/// The thread that calls.
#[must_use]
pub fn thread_id() -> ThreadId {
    #[cfg(not(feature = "_shuttle"))]
    return std::thread::current().id();
    #[cfg(feature = "_shuttle")]
    return shuttle::thread::current().id();
}

/// Lets other threads run.
pub fn yield_now() {
    #[cfg(not(feature = "_shuttle"))]
    std::thread::yield_now();
    #[cfg(feature = "_shuttle")]
    shuttle::thread::yield_now();
}

/// The number of threads that run at once.
#[must_use]
pub fn cores() -> usize {
    #[cfg(not(feature = "_shuttle"))]
    return std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    #[cfg(feature = "_shuttle")]
    return 1;
}
