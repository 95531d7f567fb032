//! Erasing keys of a keyspace with history.

use std::sync::Arc;

use esker_device::Purpose;
use esker_format::ids::Seq;
use esker_format::ptr::Extent;
use esker_index::ErasedKeys;

use crate::error::{Error, Result};
use crate::history::never_splits;
use crate::index_commit::commit_index;
use crate::maintenance;
use crate::shared::Core;
use crate::slot::Slot;

/// Full compactions after which the index of now has been left to a split: the first one may have
/// to make a bottom level, or meet one that was under way.
const COMPACTIONS_MAX: usize = 8;

/// Whether keys can be erased in a keyspace.
pub(crate) fn check(slot: &Slot) -> Result<()> {
    let name = &slot.name;
    match slot.history() {
        None => Err(Error::invalid(format!("keyspace {name} keeps no history: remove the keys"))),
        Some(history) if never_splits(&history) => Err(Error::invalid(format!(
            "keyspace {name} has a history_share of 1.0: nothing in it can be erased"
        ))),
        Some(_) => Ok(()),
    }
}

/// The keys that have an entry in the index of now which does not remove them within the history,
/// expired or not.
pub(crate) fn to_remove<'a>(
    shared: &Core,
    slot: &Slot,
    keys: &'a ErasedKeys,
) -> Result<Vec<&'a [u8]>> {
    let _open = shared.enter()?;
    let mut found = Vec::new();
    for key in keys {
        let newest = slot.read(|tree| tree.newest_entry(key, Seq::MAX))??;
        // A removal from before the history is not new enough for a split.
        let begins = slot.history().map_or(Seq(0), |history| history.from);
        let stays = newest.filter(|(seq, removes)| !removes || *seq <= begins);
        found.extend(stays.map(|_| key.as_slice()));
    }
    Ok(found)
}

/// Erases the versions of keys up to number `written`; all keys that were there then had been
/// removed at number `removed`.
pub(crate) fn erase(
    shared: &Core,
    slot: &Arc<Slot>,
    keys: &ErasedKeys,
    (written, removed): (Seq, Seq),
) -> Result<()> {
    let _span = tracing::debug_span!("erase", keyspace = slot.name).entered();
    // One after the other: each asks for splits of its own.
    let _alone = slot.erasing.lock();
    shared.poison.check()?;
    let left = leave_behind(shared, slot, keys, (written, removed));
    slot.tree()?.split_after(Seq(0));
    left?;
    let commit = &mut |meta: &_, edits: &_| commit_index(shared, slot.id, meta, edits);
    slot.tree()?.erase_past(keys, |until| own_values(shared, slot, until), commit)?;
    slot.tree()?.collect()?;
    shared.env.blocks.discard_free()?;
    shared.env.blocks.wipe_free()?;
    // What was written over must not come back with a power cut.
    let synced = shared.env.blocks.sync(Purpose::Gc);
    Ok(shared.poison.on_error(synced)?)
}

/// Compacts until the index of now has no such version of the keys.
fn leave_behind(
    shared: &Core,
    slot: &Arc<Slot>,
    keys: &ErasedKeys,
    (written, removed): (Seq, Seq),
) -> Result<()> {
    for _ in 0..COMPACTIONS_MAX {
        // A split as of this number or later copies none of them.
        let mut until = Seq(0);
        for key in keys {
            if slot.read(|tree| tree.newest_entry(key, written))??.is_some() {
                let newest = slot.read(|tree| tree.newest_entry(key, removed))??;
                until = newest.map_or(until, |(seq, _)| until.max(seq));
            }
        }
        if until == Seq(0) {
            return Ok(());
        }
        slot.tree()?.split_after(until);
        maintenance::compact(shared, slot)?;
    }
    Err(Error::invalid(format!(
        "keyspace {} could not be compacted, which erasing takes: make space and erase again",
        slot.name
    )))
}

/// The space of blobs that the past index which ends at version `until` has for itself.
fn own_values(shared: &Core, slot: &Slot, until: Seq) -> Vec<Extent> {
    let state = shared.manifest.state();
    let past = state.keyspaces.get(&slot.id).into_iter().flat_map(|keyspace| keyspace.past.iter());
    let past = past.filter(|past| past.index.until == until);
    past.flat_map(|past| past.values.runs()).collect()
}
