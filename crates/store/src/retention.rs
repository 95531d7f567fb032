//! Giving up versions of keyspaces that keep their history for a time.
//!
//! Whole past indexes are given up, the oldest first, when a flush or a merge is done. An index is
//! not needed any more when the version with which the next one begins is old enough: then what was
//! readable at the oldest moment that counts is in a later index.

use esker_format::history::Retention;
use esker_format::ids::{KeyspaceId, Moment, Seq};
use esker_format::ptr::Extent;
use esker_index::Index;

use crate::error::Result;
use crate::index_commit::commit_index;
use crate::shared::Core;
use crate::slot::Slot;
use crate::times::{is_of_times, oldest_of};

/// Gives up the past indexes of a keyspace that nobody has to read any more. What fails is tried
/// again when the next flush or merge is done.
pub(crate) fn drop_past(shared: &Core, slot: &Slot) {
    if let Err(error) = try_drop(shared, slot) {
        tracing::warn!(keyspace = slot.name, %error, "past versions are kept for now");
    }
}

fn try_drop(shared: &Core, slot: &Slot) -> Result<()> {
    let Some(history) = slot.history() else { return Ok(()) };
    let tree = slot.tree()?;
    let floor = match is_of_times(slot) {
        true => Some(oldest_of_all(shared)),
        false => floor(shared, &tree, history.retention)?,
    };
    let Some(floor) = floor else { return Ok(()) };
    let values = |until: Seq| values(shared, slot.id, until);
    let commit = &mut |meta: &_, edits: &_| commit_index(shared, slot.id, meta, edits);
    let has_dropped = tree.drop_past(floor, values, commit)?;
    if has_dropped && let Some(times) = shared.times.get().filter(|_| !is_of_times(slot)) {
        times.trim(oldest_of_all(shared))?;
    }
    Ok(())
}

/// The first version that a keyspace of users can read.
fn oldest_of_all(shared: &Core) -> Seq {
    oldest_of(&shared.slots()).unwrap_or_else(|| shared.snapshots().visible())
}

/// The first version that has to stay readable, as far as past indexes end there; `None` where all
/// have to.
fn floor(shared: &Core, tree: &Index, retention: Retention) -> Result<Option<Seq>> {
    match retention {
        Retention::All => Ok(None),
        Retention::Newest { versions } => {
            let visible = shared.snapshots().visible().0;
            Ok(Some(Seq(visible.saturating_sub(versions - 1))))
        }
        Retention::For { millis } => {
            let Some(times) = shared.times.get() else { return Ok(None) };
            let from = Moment(shared.snapshots().now().0.saturating_sub(millis));
            let mut floor = None;
            for past in tree.past_indexes() {
                if times.of(past.until)?.is_none_or(|time| time > from) {
                    break;
                }
                floor = Some(past.until);
            }
            Ok(floor)
        }
    }
}

/// The space of blobs that the past indexes up to version `until` have for themselves.
fn values(shared: &Core, id: KeyspaceId, until: Seq) -> Vec<Extent> {
    let state = shared.manifest.state();
    let past = state.keyspaces.get(&id).into_iter().flat_map(|keyspace| keyspace.past.iter());
    let dropped = past.filter(|past| past.index.until <= until);
    dropped.flat_map(|past| past.values.runs()).collect()
}
