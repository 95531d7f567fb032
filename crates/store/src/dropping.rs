//! Dropping a keyspace: one record removes its contents and frees its space.

use esker_format::manifest_edit::Edit;
use esker_substrate::sync;

use crate::error::Result;
use crate::index_commit::commit_and_recycle;
use crate::shared::Core;
use crate::slot::Slot;

/// Drops a keyspace: first from the manifest, then its space.
pub(crate) fn drop_tree(shared: &Core, slot: &Slot) -> Result<()> {
    let tree = slot.tree()?;
    shared.poison.check()?;
    // What was written before the drop must not be lost when the drop is not.
    shared.log.sync_to(shared.log.last_seq())?;
    let paused = tree.pause();
    {
        // A write is before this, or is refused.
        let _order = shared.write.lock();
        slot.set_gone(true);
    }
    let edits = vec![Edit::KeyspaceDrop { id: slot.id }];
    if let Err(error) = commit_and_recycle(shared, edits, slot.id, None) {
        slot.set_gone(false);
        return Err(error.into());
    }
    paused.release()?;
    // Reads that began before are short, and the last one to end frees nothing itself.
    while !tree.is_quiescent() {
        sync::yield_now();
        tree.collect()?;
    }
    shared.background.tick();
    Ok(())
}
