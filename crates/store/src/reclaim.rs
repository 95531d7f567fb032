//! Returning free space to the file system.

use crate::error::{Error, Result};
use crate::shared::Core;

/// Does what can be repeated; once more where the device is full, when the log has removed the
/// files that it keeps for later.
pub(crate) fn retry_with_room<T>(shared: &Core, attempt: impl Fn() -> Result<T>) -> Result<T> {
    match attempt() {
        Err(Error::Full { .. }) if shared.log.has_spares() => {
            shared.log.remove_spares()?;
            attempt()
        }
        other => other,
    }
}

/// Gives the end of the data file back to the file system where it is free and much.
pub(crate) fn truncate_spare(shared: &Core) {
    if shared.env.blocks.spare_units() == 0 {
        return;
    }
    // What is free by a manifest that is not sure to be durable is not free.
    let given =
        shared.manifest.retry_last_record().and_then(|()| shared.env.blocks.truncate_spare());
    if let Err(error) = given {
        // It is tried again after the next merge; a poisoned store reports that in other
        // operations.
        tracing::warn!(%error, "the end of the data file could not be given back");
    }
}

/// Gives free space of the data file and files that the log keeps for reuse back to the file
/// system.
pub(crate) fn return_free_space(shared: &Core) -> Result<()> {
    // What is free by a manifest that is not sure to be durable is not free.
    shared.manifest.retry_last_record()?;
    for slot in shared.slots() {
        if let Ok(tree) = slot.tree() {
            tree.collect()?;
        }
    }
    shared.log.remove_spares()?;
    match shared.manifest.shrink() {
        // A shorter file has no room next to the longer one.
        Err(esker_substrate::Error::Full { .. }) => {}
        shrunk => shrunk?,
    }
    shared.env.blocks.keep_for_manifest(shared.manifest.next_bytes());
    Ok(shared.env.blocks.discard_free()?)
}
