//! When a checkpoint is due.

use crate::alloc::allocation::Burden;
use crate::engine::{Core, Engine};
use crate::error::Result;

impl Engine {
    /// Takes a checkpoint, and empties segments that hold too little.
    fn checkpoint_and_collect(&self, core: &mut Core) -> Result<()> {
        self.checkpoint_core(core)?;
        self.allocation.collect(self, core, 0).map(|_emptied| ())
    }

    /// Takes a checkpoint where one is due, or has the thread take it unless that has fallen far
    /// behind. That the commit before it succeeded does not depend on it; where it fails for want
    /// of room, the next commit tries again.
    pub(crate) fn checkpoint_if_due(&self, core: &mut Core) {
        if self.is_read_only() {
            return;
        }
        let burden = self.allocation.burden(self, core, &self.versions.lock());
        if core.has_thread && !is_checkpoint_due(burden.halved()) {
            if !core.is_checkpoint_wanted && is_checkpoint_due(burden) {
                core.is_checkpoint_wanted = true;
                self.wake.notify_all();
            }
        } else if is_checkpoint_due(burden) && self.checkpoint_and_collect(core).is_err() {
            self.counters.checkpoints_failed.add(1);
        }
    }
}

/// Whether a checkpoint is due: after enough records, which bounds recovery, or when the dead bytes
/// are at least `floor_bytes` and `dead_percent` of the live bytes, which bounds the file.
pub(crate) fn is_checkpoint_due(burden: Burden) -> bool {
    let is_long = burden.log_bytes >= burden.log_limit;
    let is_dead = burden.dead_bytes >= burden.floor_bytes
        && burden.dead_bytes.saturating_mul(100)
            >= burden.live_bytes.saturating_mul(burden.dead_percent);
    is_long || is_dead
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_due_when_records_or_dead_pages_gather() {
        let due = |log_bytes, dead_bytes, live_bytes| {
            let (log_limit, floor_bytes, dead_percent) = (100, 10, 25);
            is_checkpoint_due(Burden {
                log_bytes,
                log_limit,
                dead_bytes,
                live_bytes,
                floor_bytes,
                dead_percent,
            })
        };
        assert!(due(100, 0, 0) && !due(99, 0, 0));
        assert!(due(0, 10, 40) && !due(0, 10, 41) && !due(0, 9, 0));
    }
}
