//! The durable record of an index, and the log that it makes unnecessary.

use std::sync::Arc;

use esker_format::ids::{KeyspaceId, Seq};
use esker_format::manifest_edit::{Edit, PastEdit};
use esker_format::meta::IndexMeta;
use esker_format::superblock::FEATURE_REMOVED_RANGES;
use esker_index::{RecordEdits, ValuesEdit};
use esker_substrate::planted::{self, Bug};

use crate::shared::Core;

/// Makes an index durable and releases the log that it replaces.
///
/// The log goes first: the record promises that everything up to its numbers is in the index, and
/// a batch of which only one keyspace's part had survived would have been torn.
pub(crate) fn commit_index(
    shared: &Core,
    id: KeyspaceId,
    meta: &IndexMeta,
    changed: &RecordEdits,
) -> esker_substrate::Result<()> {
    if !planted::is(Bug::CommitBeforeLog) {
        shared.log.sync_to(must_be_durable(shared, meta, changed))?;
    }
    let mut edits = vec![Edit::Index { id, index: Arc::new(meta.clone()) }];
    edits.extend(changed.past.iter().map(|edit| Edit::Past { id, edit: edit.clone() }));
    if !changed.values.is_empty() {
        let ValuesEdit { taken, freed } = changed.values.clone();
        edits.push(Edit::OwnedSpace { id, taken, freed });
    }
    commit_and_recycle(shared, edits, id, Some(meta.log_unneeded_seq()))
}

/// Up to where the log goes before the record of an index.
///
/// The record has the range tombstones that are needed now. Those that a newer removal has made
/// unnecessary are not among them, and that one may be in the log alone: it must not be lost when
/// the older one is.
///
/// Where past versions are given up, those that a power cut could take back do not count as the
/// ones that stay.
fn must_be_durable(shared: &Core, meta: &IndexMeta, changed: &RecordEdits) -> Seq {
    let needed = meta.log_needed_seq();
    let drops = changed.past.iter().any(|edit| matches!(edit, PastEdit::Dropped(_)));
    if !drops && !shared.manifest.requires(FEATURE_REMOVED_RANGES) {
        return needed;
    }
    // The log has a removal before the index has.
    needed.max(shared.log.last_seq())
}

/// Commits edits that change how far `id` is flushed (`None`: it is dropped), and with it the
/// removal of log segments that are no longer needed.
pub(crate) fn commit_and_recycle(
    shared: &Core,
    mut edits: Vec<Edit>,
    id: KeyspaceId,
    flushed_seq: Option<Seq>,
) -> esker_substrate::Result<()> {
    let state = shared.manifest.state();
    let flushed = |other| match state.keyspaces.get(&other) {
        _ if other == id => flushed_seq,
        Some(keyspace) => Some(keyspace.index.log_unneeded_seq()),
        // Ids are never reused: this one was given out since the state was read, and its keyspace
        // needs all of its log.
        None if other >= state.next_keyspace => Some(Seq(0)),
        None => None,
    };
    let retired = shared.log.retire(&flushed);
    // A state that is still read is copied by the commit.
    drop(state);
    edits.extend_from_slice(retired.edits());
    shared.commit_edits(&edits)?;
    // The commit is valid regardless of what happens to the old files; a failure here must not make
    // the index believe that it does not.
    if let Err(error) = shared.log.recycle(retired) {
        tracing::warn!(%error, "log segments could not be recycled");
    }
    Ok(())
}
