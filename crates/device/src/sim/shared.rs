//! Words and byte locks of simulated processes, which can die between any two stores.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::error::{DeviceError, Operation, Result};
use crate::shared::Shared;

/// What the simulated processes share.
#[derive(Debug)]
struct Common {
    words: Vec<AtomicU64>,
    /// Locked bytes, each with the process that has it.
    locks: Mutex<BTreeMap<u64, u64>>,
    processes: AtomicU64,
}

/// The opening of one simulated process. Its locks end when it is dropped, or when it dies.
#[derive(Debug)]
pub struct SimShared {
    common: Arc<Common>,
    process: u64,
    /// The number of stores that it still makes.
    left: AtomicU64,
}

impl SimShared {
    /// The first process with a memory of this many words, all 0.
    #[must_use]
    pub fn new(words: usize) -> Self {
        let words = (0..words).map(|_| AtomicU64::new(0)).collect();
        let (locks, processes) = (Mutex::default(), AtomicU64::new(0));
        Self::of(Arc::new(Common { words, locks, processes }))
    }

    fn of(common: Arc<Common>) -> Self {
        let process = common.processes.fetch_add(1, Ordering::SeqCst);
        Self { common, process, left: AtomicU64::new(u64::MAX) }
    }

    /// One more process with the same memory.
    #[must_use]
    pub fn another(&self) -> Self {
        Self::of(Arc::clone(&self.common))
    }

    /// The process dies after this many more stores: later ones do nothing, and its locks are free
    /// then.
    pub fn die_after(&self, stores: u64) {
        self.left.store(stores, Ordering::SeqCst);
        if stores == 0 {
            self.release();
        }
    }

    /// Whether it has died.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.left.load(Ordering::SeqCst) == 0
    }

    fn release(&self) {
        self.common.locks.lock().retain(|_, process| *process != self.process);
    }

    fn check_alive(&self) -> Result<()> {
        if !self.is_dead() {
            return Ok(());
        }
        let source = io::Error::other("the simulated process has died");
        Err(DeviceError::new(Operation::Lock, "shared memory", 0, source))
    }
}

impl Shared for SimShared {
    fn words(&self) -> usize {
        self.common.words.len()
    }

    fn load(&self, at: usize) -> u64 {
        self.common.words.get(at).map_or(0, |word| word.load(Ordering::SeqCst))
    }

    fn store(&self, at: usize, value: u64) {
        let left = self.left.load(Ordering::SeqCst);
        if left == 0 {
            return;
        }
        if let Some(word) = self.common.words.get(at) {
            word.store(value, Ordering::SeqCst);
        }
        if left != u64::MAX {
            self.die_after(left - 1);
        }
    }

    fn try_lock(&self, byte: u64) -> Result<bool> {
        self.check_alive()?;
        Ok(*self.common.locks.lock().entry(byte).or_insert(self.process) == self.process)
    }

    fn unlock(&self, byte: u64) -> Result<()> {
        self.check_alive()?;
        let mut locks = self.common.locks.lock();
        if locks.get(&byte) == Some(&self.process) {
            locks.remove(&byte);
        }
        Ok(())
    }

    fn is_locked(&self, byte: u64) -> Result<bool> {
        self.check_alive()?;
        Ok(self.common.locks.lock().get(&byte).is_some_and(|process| *process != self.process))
    }
}

impl Drop for SimShared {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_dies_stores_nothing_more_and_has_no_locks() {
        let one = SimShared::new(4);
        let other = one.another();
        assert!(one.try_lock(7).unwrap() && !other.try_lock(7).unwrap());
        assert!(other.is_locked(7).unwrap() && !one.is_locked(7).unwrap());
        one.die_after(2);
        (0..4).for_each(|at| one.store(at, 1));
        assert_eq!([0, 1, 2, 3].map(|at| other.load(at)), [1, 1, 0, 0]);
        assert!(one.is_dead() && one.try_lock(7).is_err() && other.try_lock(7).unwrap());
        drop(other);
        assert!(one.another().try_lock(7).unwrap());
    }
}
