//! A live transaction, for which writes are remembered.

use std::fmt;
use std::sync::Arc;

use esker_substrate::snapshots::SnapshotGuard;

use crate::shared::Shared;

/// A transaction that may ask for what was written since its snapshot.
pub(crate) struct Live {
    shared: Arc<Shared>,
    snapshot: SnapshotGuard,
}

impl Live {
    /// Takes a snapshot, from which on writes are remembered until this is dropped.
    pub fn begin(shared: &Arc<Shared>) -> Self {
        let snapshot = shared.recent.enter(shared.snapshots(), &shared.write);
        Self { shared: Arc::clone(shared), snapshot }
    }

    pub const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub const fn snapshot(&self) -> &SnapshotGuard {
        &self.snapshot
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Live").field(&self.snapshot.seq()).finish()
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if self.shared.check_process().is_err() {
            return;
        }
        self.shared.recent.leave(self.shared.snapshots(), self.snapshot.seq());
    }
}
