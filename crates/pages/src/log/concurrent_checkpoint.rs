//! A checkpoint that runs while commits continue, and hardly delays them.
//!
//! When it is done, its version is no longer the newest. First, under the lock, it notes which
//! version that is and which slots are dead at that moment. Then it writes the version's nodes
//! while commits continue; these nodes are shared with the newest version as far as nothing has
//! changed. Records that are appended in the meantime go to the current log, and are kept in memory
//! as well. At the end, again under the lock, it begins the next log with those records, and the
//! superblock refers to both: recovery loads the older version and replays those records to reach
//! the newest.
//!
//! Slots that died in the meantime are in the older version's map. They stay allocated until the
//! next checkpoint; otherwise recovery would find them twice.

use std::fmt;
use std::sync::Arc;

use crate::engine::Engine;
use crate::error::Result;
use crate::log::checkpoint::{Plan, Saver, prepared_record, save};
use crate::log::hold::roots_to_keep;
use crate::log::notes::CheckpointNotes;
use crate::log::shared::KeptRoot;
use crate::planted::{self, Bug};

/// Bytes of nodes that are written between two syncs: a commit's sync waits for what is on its way
/// of these.
const BATCH_BYTES: usize = 256 * 1024;

/// A checkpoint that has begun. Dropping it abandons it.
pub struct Unfinished {
    engine: Arc<Engine>,
    kept: Vec<KeptRoot>,
    saver: Saver,
}

impl Unfinished {
    /// Begins one of the newest version.
    pub(crate) fn begin(engine: &Arc<Engine>) -> Result<Self> {
        engine.check_poison()?;
        let mut core = engine.core.lock();
        engine.own_log(&mut core)?;
        engine.write_held(&mut core)?;
        core.dead.append(&mut engine.versions.lock().take_dead());
        let (records, dead) = (prepared_record(&core), core.dead.len());
        let retired = core.retired.len();
        core.checkpoint_notes = Some(CheckpointNotes::new(records, dead, retired));
        core.is_saving = true;
        let kept = roots_to_keep(&core, &engine.versions.lock());
        drop(core);
        Ok(Self { engine: Arc::clone(engine), kept, saver: Saver::default() })
    }

    /// Writes the nodes that are nowhere yet.
    ///
    /// # Errors
    /// [`crate::Error::Full`], or the device failed.
    pub fn save(&mut self) -> Result<()> {
        let Self { engine, kept, saver } = self;
        let mut take = |class| engine.take_node(&mut engine.core.lock(), class);
        for top in kept.iter().filter_map(|(_, _, root)| root.map.top.as_ref()) {
            save(saver, top, &mut take)?;
        }
        let writes = std::mem::take(&mut saver.writes);
        let mut rest = writes.as_slice();
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = rest.iter().take_while(|(_, node)| {
                bytes += node.len();
                bytes <= BATCH_BYTES
            });
            let (batch, later) = rest.split_at(fits.count().max(1));
            engine.write_nodes(batch)?;
            engine.sync_file()?;
            rest = later;
        }
        Ok(())
    }

    /// Makes it the newest checkpoint, unless another has been taken meanwhile. Says whether it
    /// did.
    ///
    /// # Errors
    /// As [`crate::PageStore::checkpoint`].
    pub fn finish(mut self) -> Result<bool> {
        let engine = Arc::clone(&self.engine);
        let mut core = engine.core.lock();
        let Some(CheckpointNotes { records, mut dead, retired, .. }) = core.checkpoint_notes.take()
        else {
            return Ok(false);
        };
        if planted::is(Bug::FreedWithNewerDead) {
            core.dead.append(&mut engine.versions.lock().take_dead());
            dead = core.dead.len();
        }
        let carried = if planted::is(Bug::SinceNotCarried) { Vec::new() } else { records };
        let plan = Plan { kept: std::mem::take(&mut self.kept), carried, dead, retired };
        engine.take_checkpoint(&mut core, plan, std::mem::take(&mut self.saver))?;
        Ok(true)
    }
}

impl fmt::Debug for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unfinished").field("versions", &self.kept.len()).finish()
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let mut core = self.engine.core.lock();
        core.is_saving = false;
        core.checkpoint_notes = None;
        for sector in &self.saver.taken {
            core.space.free(*sector);
        }
        self.engine.wake.notify_all();
    }
}
