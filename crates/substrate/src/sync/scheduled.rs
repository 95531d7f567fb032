//! The types of the schedule-controlled build, with the interfaces of the ordinary ones.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use shuttle::sync as inner;
pub use shuttle::sync::atomic;

/// A mutex without poisoning.
#[derive(Default)]
pub struct Mutex<T>(inner::Mutex<T>);

/// Exclusive use of what a [`Mutex`] holds.
pub struct MutexGuard<'a, T>(Option<inner::MutexGuard<'a, T>>, &'a Mutex<T>);

impl<T> Mutex<T> {
    /// A mutex that holds `value`.
    pub fn new(value: T) -> Self {
        Self(inner::Mutex::new(value))
    }

    /// Waits for exclusive use.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)), self)
    }

    /// Exclusive use, if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok().map(|guard| MutexGuard(Some(guard), self))
    }

    /// The contents, by exclusive access to the mutex itself.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex")
    }
}

impl<'a, T> MutexGuard<'a, T> {
    /// Releases the mutex while `body` runs.
    pub fn unlocked<R>(guard: &mut Self, body: impl FnOnce() -> R) -> R {
        guard.0 = None;
        let result = body();
        *guard = guard.1.lock();
        result
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[expect(clippy::expect_used, reason = "a guard is empty only while its wait runs")]
    fn deref(&self) -> &T {
        self.0.as_ref().expect("a guard holds its lock")
    }
}

impl<T> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MutexGuard")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[expect(clippy::expect_used, reason = "a guard is empty only while its wait runs")]
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("a guard holds its lock")
    }
}

/// A condition to wait for.
#[derive(Default)]
pub struct Condvar(inner::Condvar);

impl Condvar {
    /// A condition.
    pub fn new() -> Self {
        Self::default()
    }

    /// Releases the mutex, waits for a notification and takes the mutex again.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        if let Some(held) = guard.0.take() {
            let held = self.0.wait(held).unwrap_or_else(std::sync::PoisonError::into_inner);
            guard.0 = Some(held);
        }
    }

    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Condvar")
    }
}

/// A lock for many readers or one writer, without poisoning.
#[derive(Default)]
pub struct RwLock<T>(inner::RwLock<T>);

/// Shared use of what an [`RwLock`] holds.
pub type RwLockReadGuard<'a, T> = inner::RwLockReadGuard<'a, T>;
/// Exclusive use of what an [`RwLock`] holds.
pub type RwLockWriteGuard<'a, T> = inner::RwLockWriteGuard<'a, T>;

impl<T> RwLock<T> {
    /// A lock that holds `value`.
    pub fn new(value: T) -> Self {
        Self(inner::RwLock::new(value))
    }

    /// Waits for shared use.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Waits for exclusive use.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The contents, by exclusive access to the lock itself.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl<T> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RwLock")
    }
}

/// A shared value that can be replaced while it is read.
pub struct Swap<T>(inner::Mutex<Arc<T>>);

/// The value that was current when it was loaded.
pub type Loaded<T> = Arc<T>;

impl<T> Swap<T> {
    /// Holds `value`.
    pub fn new(value: Arc<T>) -> Self {
        Self(inner::Mutex::new(value))
    }

    /// The current value.
    pub fn load(&self) -> Loaded<T> {
        Arc::clone(&self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// Replaces the value and returns the old one.
    pub fn swap(&self, value: Arc<T>) -> Arc<T> {
        let mut held = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        std::mem::replace(&mut held, value)
    }
}

impl<T> fmt::Debug for Swap<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Swap")
    }
}
