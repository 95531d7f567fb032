//! What a child by `fork` has to leave alone.
//!
//! A child has its parent's memory and open files, and none of its threads. Were it to use a store,
//! or only to let go of one (the last handle closes the store), both would write to the same files.
//!
//! Invariant F1: what a process opened is reached, and let go of, in that process alone: in a child
//! it answers an error, and its memory stays as it is until the child ends.
//!
//! Python tells the child (`os.register_at_fork`), which is a load of a number for each call, where
//! asking the system for the process would be more than a lookup of a key.

use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::prelude::*;

use crate::raised;

/// How many forks lie between the first process and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// This process is a new child. `esker` registers it where Python forks.
#[pyfunction]
pub(crate) fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Something of the process that made it.
pub(crate) struct Kept<T: Send> {
    /// Empty only while it is dropped.
    value: Option<T>,
    forks: u32,
}

impl<T: Send> Kept<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Some(value), forks: FORKS.load(Ordering::Relaxed) }
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.forks == FORKS.load(Ordering::Relaxed)
    }

    /// The value.
    ///
    /// # Errors
    /// `ForkError` in a child.
    #[inline]
    pub(crate) fn get(&self, py: Python<'_>) -> PyResult<&T> {
        match &self.value {
            Some(value) if self.is_ours() => Ok(value),
            _ => Err(raised::forked(py)),
        }
    }
}

impl<T: Send> Drop for Kept<T> {
    fn drop(&mut self) {
        let mut value = self.value.take();
        if !self.is_ours() {
            std::mem::forget(value);
            return;
        }
        // The last handle of a store waits for its threads, and for a sync.
        Python::try_attach(|py| {
            let value = value.take();
            py.detach(move || drop(value));
        });
    }
}
