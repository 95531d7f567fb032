//! The record of the history that a keyspace keeps, and its changes.

use esker_format::history::HistoryMeta;
use esker_format::manifest_edit::Edit;

use crate::error::Result;
use crate::shared::Core;
use crate::slot::Slot;

/// From now on values in the keyspace's history may have an expiry.
pub(crate) fn allow_expiry(shared: &Core, slot: &Slot) -> Result<()> {
    let _open = shared.enter()?;
    shared.poison.check()?;
    change(shared, slot, |history| HistoryMeta { expires: true, ..history })
}

/// Changes a history, but for where it begins.
pub(crate) fn change(
    shared: &Core,
    slot: &Slot,
    change: impl Fn(HistoryMeta) -> HistoryMeta,
) -> Result<()> {
    // One after the other, so that what the slot has is what the manifest says.
    let _registry = shared.keyspaces.write();
    let Some(history) = slot.history().filter(|_| slot.tree().is_ok()) else {
        return slot.tree().map(|_| ());
    };
    let changed = change(history);
    if changed != history {
        shared.commit_edits(&[Edit::KeyspaceHistory { id: slot.id, history: changed }])?;
        slot.set_history(changed);
    }
    Ok(())
}
