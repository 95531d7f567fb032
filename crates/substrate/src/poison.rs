//! A failed write or sync makes the store read-only until it is reopened.
//!
//! After a failed sync the state of the device is unknown; trying again may report success for data
//! that has been lost. So the first failure is kept and every later write is refused with it.

use std::sync::{Arc, OnceLock};

use crate::error::{Error, Result};
use crate::planted::{self, Bug};

/// The store's first write failure, if there was one. Shared by everything that writes.
///
/// A store that was opened for reading refuses writes in the same places.
#[derive(Debug, Default)]
pub struct Poison {
    reason: OnceLock<Arc<str>>,
    is_read_only: bool,
}

impl Poison {
    /// For a store that is opened for reading, or to be written too.
    #[must_use]
    pub const fn new(is_read_only: bool) -> Self {
        Self { reason: OnceLock::new(), is_read_only }
    }

    /// Whether the store was opened for reading alone.
    #[must_use]
    pub const fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Fails when the store is poisoned, or may not be written to at all.
    pub fn check(&self) -> Result<()> {
        if self.is_read_only && !planted::is(Bug::WrittenReadOnly) {
            return Err(Error::ReadOnly);
        }
        match self.reason.get() {
            None => Ok(()),
            Some(reason) => Err(Error::Poisoned { reason: Arc::clone(reason) }),
        }
    }

    /// Poisons the store because of `error`, which is handed back. The first call wins.
    pub fn set(&self, error: Error) -> Error {
        if !matches!(error, Error::Poisoned { .. } | Error::ReadOnly) {
            let _already = self.reason.set(error.to_string().into());
        }
        error
    }

    /// Passes a result on, poisoning the store when it is an error.
    pub fn on_error<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| self.set(error))
    }

    /// The reason why the store is poisoned, if it is.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.reason.get().map(AsRef::as_ref)
    }
}
