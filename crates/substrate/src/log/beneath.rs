//! Data outside the log that its records refer to.
//!
//! It is written before the record that refers to it, and made durable before a sync of the log
//! counts: so only threads that wait for the record wait for it. Until then a crash may leave the
//! record without the data, or with half of it: then the log ends before the record, as it does at
//! a torn record.

use std::fmt::Debug;

use esker_format::action::WriteOp;

use crate::error::Result;

/// The storage of the data that records refer to.
pub trait Beneath: Send + Sync + Debug {
    /// Makes all data durable that appended records refer to.
    ///
    /// Cost: at most one sync, and none where nothing was written since the last one.
    ///
    /// # Errors
    /// Errors of the device; the store must then be poisoned.
    fn sync(&self) -> Result<()>;

    /// Whether all data is present that an operation refers to and that may not have become
    /// durable. Data that is present counts as written: the next [`sync`](Self::sync) makes it
    /// durable.
    ///
    /// Cost: reads all of it.
    ///
    /// # Errors
    /// Errors of the device.
    fn has(&self, action: &WriteOp<'_>) -> Result<bool>;
}

/// For a log whose records refer to nothing.
#[derive(Clone, Copy, Debug)]
pub struct Nothing;

impl Beneath for Nothing {
    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn has(&self, _action: &WriteOp<'_>) -> Result<bool> {
        Ok(true)
    }
}
