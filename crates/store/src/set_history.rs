//! Changes to the history that a keyspace keeps.

use std::sync::Arc;

use esker_format::history::HistoryMeta;
use esker_format::manifest_edit::Edit;

use crate::error::{Error, Result};
use crate::history::{History, Share, never_splits};
use crate::new_keyspace::ensure_times;
use crate::record_history::change;
use crate::shared::Core;
use crate::slot::Slot;
use crate::{retention, write};

/// Begins a history from now on, or changes what of the past is kept.
pub(crate) fn set(shared: &Core, slot: &Arc<Slot>, asked: History) -> Result<()> {
    asked.validate()?;
    shared.poison.check()?;
    match slot.history() {
        None => begin(shared, slot, asked),
        Some(history) if never_splits(&history) => {
            let name = &slot.name;
            let is_kept = asked == History::All;
            is_kept.then_some(()).ok_or_else(|| {
                Error::invalid(format!(
                    "keyspace {name} has a history_share of 1.0: its history is kept for ever"
                ))
            })
        }
        Some(_) => {
            let retention = asked.retention();
            change(shared, slot, |history| HistoryMeta { retention, ..history })?;
            retention::drop_past(shared, slot);
            Ok(())
        }
    }
}

fn begin(shared: &Core, slot: &Arc<Slot>, asked: History) -> Result<()> {
    ensure_times(shared, &mut shared.keyspaces.write())?;
    // As of the first version, what had expired before has expired.
    write::commit_moment(shared)?;
    let _registry = shared.keyspaces.write();
    let tree = slot.tree()?;
    if slot.history().is_some() {
        return Err(Error::invalid(format!("keyspace {} has just begun a history", slot.name)));
    }
    History::validate_keyspace(Some(tree.index_kind()), tree.operator().name.is_some())?;
    // What a merge under way decides from now on, it decides with the history.
    let _paused = tree.pause();
    // Every commit is before this, or is part of the history.
    let _order = shared.write.lock();
    // Or a power cut could take numbers back that the record says are before the history.
    shared.log.sync_to(shared.log.last_seq())?;
    let from = shared.snapshots().visible();
    // Values that are there already may have expiries.
    let history = HistoryMeta { expires: true, ..asked.meta(Share::default(), from) };
    shared.commit_edits(&[Edit::KeyspaceHistory { id: slot.id, history }])?;
    slot.set_history(history);
    shared.times.get().into_iter().for_each(|times| times.connect(&tree));
    Ok(())
}
