//! A failed write or sync makes the store read-only until it is reopened.
//!
//! After a failed sync nobody knows what reached the device; trying again may report success for
//! data that is gone. So the first failure is kept and every later write is refused with it.

use std::sync::{Arc, OnceLock};

use crate::error::{Error, Result};

/// The store's first write failure, if there was one. Shared by everything that writes.
#[derive(Debug, Default)]
pub struct Poison {
    reason: OnceLock<Arc<str>>,
}

impl Poison {
    /// Fails when the store is poisoned.
    pub fn check(&self) -> Result<()> {
        match self.reason.get() {
            None => Ok(()),
            Some(reason) => Err(Error::Poisoned { reason: Arc::clone(reason) }),
        }
    }

    /// Poisons the store because of `error`, which is handed back. The first call wins.
    pub fn set(&self, error: Error) -> Error {
        if !matches!(error, Error::Poisoned { .. }) {
            let _already = self.reason.set(error.to_string().into());
        }
        error
    }

    /// Passes a result on, poisoning the store when it is an error.
    pub fn on_error<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| self.set(error))
    }

    /// Why the store is poisoned.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.reason.get().map(AsRef::as_ref)
    }
}
