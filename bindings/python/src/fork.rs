//! State that a child created by `fork` must not use.
//!
//! A child has its parent's memory and open files, and none of its threads. If it used a store, or
//! dropped one (the last handle closes the store), both processes would write to the same files.
//!
//! Invariant: an object that a process opened is used and dropped in that process alone: in a child
//! its use is an error, and its memory is left as it is until the child ends.
//!
//! `esker::Process` identifies the process, for the price of a load.

use esker::Process;
use pyo3::prelude::*;

use crate::raised;

/// A value that belongs to the process that made it.
pub(crate) struct Kept<T: Send> {
    /// Empty only while it is dropped.
    value: Option<T>,
    process: Process,
}

impl<T: Send> Kept<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Some(value), process: Process::current() }
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.process.is_current()
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
