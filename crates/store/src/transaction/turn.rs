//! The turn of a writing transaction: the writer lock, held.

use std::sync::Arc;

use crate::shared::Shared;

/// The turn, until this is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    shared: Arc<Shared>,
}

impl Turn {
    /// The turn that this thread has been given.
    pub fn given(shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::clone(shared) }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.shared.check_process().is_ok() {
            self.shared.turns.end();
        }
    }
}
