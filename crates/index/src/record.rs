//! The durable commit of a keyspace: the only place where a new state becomes durable.
//!
//! Order: new blocks written → data synced → log synced up to what the state contains → manifest
//! record synced (these two by the owner's [`Commit`]) → owners of blobs known → the state is the
//! index's → readers see it → old space in quarantine → old space free when its last reader is
//! gone. A [`Change`] says what the state becomes and what readers see; it has no part in the
//! order.
//!
//! Invariant: the durable state and the view change together, under one lock: a thread that holds
//! it sees both before a change, or both after it.
//! Invariant: an error without poison leaves everything as it was. When the record is durable,
//! nothing fails any more: what goes wrong then poisons the store, or is an error of freeing space,
//! which is logged.

use std::sync::Arc;

use esker_device::Purpose;
use esker_format::ids::Seq;
use esker_format::manifest_edit::PastEdit;
use esker_format::meta::{IndexMeta, PastIndex};
use esker_format::ptr::Extent;
use esker_substrate::error::{Error, Result};
use esker_substrate::planted::{self, Bug, Race};
use esker_substrate::sync::{Loaded, Mutex, MutexGuard, Swap};

use crate::fault;
use crate::kind::context::KindContext;
use crate::upkeep::balance::flushed_balance;
use crate::upkeep::values::{Moved, ValuesEdit};
use crate::{Commit, Index};

/// The keyspace's record in the manifest. Only this module replaces it.
#[derive(Debug)]
pub(crate) struct Durable {
    /// Read without waiting for the syncs that happen under `recording`.
    meta: Swap<IndexMeta>,
    recording: Mutex<()>,
}

impl Durable {
    pub fn new(meta: Arc<IndexMeta>) -> Self {
        Self { meta: Swap::new(meta), recording: Mutex::default() }
    }

    /// The durable state. Never waits.
    pub fn load(&self) -> Loaded<IndexMeta> {
        self.meta.load()
    }

    /// Lets no state become durable until the returned guard is dropped.
    pub fn hold(&self) -> MutexGuard<'_, ()> {
        self.recording.lock()
    }

    /// Forgets the state of an index that is dropped.
    pub fn forget(&self) {
        self.meta.swap(Arc::default());
    }
}

/// What a record changes beside the index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordEdits {
    /// The space of blobs and of scattered blocks.
    pub values: ValuesEdit,
    /// The changes of past indexes, in order.
    pub past: Vec<PastEdit>,
}

/// A change of the durable state. All methods except `values` are called once, in this order,
/// under the lock of the durable state; those behind `keep_space` only if the record is durable.
pub(crate) trait Change {
    /// The state that follows `durable`, without range tombstones, and the space that only
    /// `durable` needs.
    fn apply(&mut self, durable: &IndexMeta) -> (IndexMeta, Vec<Extent>);

    /// The past index that it leaves.
    fn past(&self) -> Option<Arc<PastIndex>> {
        None
    }

    /// The first version that is left, where past indexes are given up.
    fn dropped_until(&self) -> Option<Seq> {
        None
    }

    /// The past index that takes the place of the one with the same versions, and the space of
    /// blobs that only that one had.
    fn replaced_past(&self) -> Option<(Arc<PastIndex>, Vec<Extent>)> {
        None
    }

    /// The references to blobs that it has passed since the last record.
    fn values(&mut self) -> &mut Moved;

    /// Range tombstones up to this number hide nothing any more.
    fn retired(&self) -> Seq {
        Seq(0)
    }

    /// The record is durable, or may be although its write has failed: the space of new blocks is
    /// never written again.
    fn keep_space(&mut self) {}

    /// The state is about to be the index's.
    fn note(&mut self, _meta: &IndexMeta) {}

    /// Shows readers what they see from now on, where that changes.
    fn publish(&mut self, _context: KindContext<'_>, _meta: &IndexMeta) {}

    /// Readers see it. Returns the space that was taken for it and is not part of it.
    fn finish(&mut self, _context: KindContext<'_>, _meta: &IndexMeta) -> Vec<Extent> {
        Vec::new()
    }
}

/// What a change does to past indexes. A split's own blobs are recorded before it.
fn past_edits(change: &mut dyn Change) -> Vec<PastEdit> {
    let released = change.values().released();
    let space = (!released.is_empty()).then_some(PastEdit::Space(released));
    let index = change.past().map(PastEdit::Index);
    let dropped = change.dropped_until().map(PastEdit::Dropped);
    let replaced = change.replaced_past();
    let replaced = replaced.map(|(past, freed)| PastEdit::Replaced(past, freed));
    space.into_iter().chain(index).chain(dropped).chain(replaced).collect()
}

impl KindContext<'_> {
    /// Makes a change durable: see [`Index::record`].
    ///
    /// # Errors
    /// Those of [`Index::record`].
    pub(crate) fn record(self, change: &mut dyn Change, commit: &mut Commit<'_>) -> Result<()> {
        self.index().record(change, commit)
    }
}

impl Index {
    /// Makes a change durable.
    ///
    /// Cost: a sync of the data file and the cost of `commit`.
    ///
    /// # Errors
    /// `Full` without space for the record, and errors of `commit` or the device.
    pub(crate) fn record(&self, change: &mut dyn Change, commit: &mut Commit<'_>) -> Result<()> {
        let recording = self.durable.hold();
        let (mut meta, mut freed) = change.apply(&self.meta());
        meta.removed = self.removed_for_record(&meta, change.retired());
        if planted::is(Bug::ReclaimBeforeCommit) {
            self.reclaim(std::mem::take(&mut freed))?;
        }
        let edits = RecordEdits { values: change.values().recorded(), past: past_edits(change) };
        let made = self.make_durable(&meta, &edits, commit);
        if made.is_ok() || self.env.poison.reason().is_some() {
            change.keep_space();
        }
        made?;
        let moved = self.commit_moved_values(change.values());
        freed.extend(self.env.poison.on_error(moved)?);
        if planted::is(Bug::FreedTwice) {
            freed.extend(meta.extents().next());
        }
        change.note(&meta);
        let meta = Arc::new(meta);
        self.durable.meta.swap(Arc::clone(&meta));
        if planted::is(Race::TaggedTooEarly) {
            self.views.quarantine(&self.env.blocks, std::mem::take(&mut freed))?;
        }
        change.publish(self.context(), &meta);
        self.keep_for_removals();
        *self.flushed.lock() = flushed_balance(&meta);
        freed.extend(change.finish(self.context(), &meta));
        drop(recording);
        self.count_memory();
        if let Err(error) = self.reclaim(freed) {
            // The change is durable all the same.
            tracing::error!(%error, "space could not be given back");
        }
        Ok(())
    }

    /// Frees space as soon as no reader uses it any more.
    fn reclaim(&self, freed: Vec<Extent>) -> Result<()> {
        if !freed.is_empty() {
            self.views.quarantine(&self.env.blocks, freed)?;
        }
        self.collect()
    }

    /// Makes new blocks durable, then the record that names them.
    fn make_durable(
        &self,
        meta: &IndexMeta,
        edits: &RecordEdits,
        commit: &mut Commit<'_>,
    ) -> Result<()> {
        let synced = if planted::is(Bug::CommitBeforeBlocks) {
            Ok(())
        } else {
            let ready = self.env.faults.hit(fault::MERGE_SYNC);
            ready.and_then(|()| self.env.blocks.sync(Purpose::Merge))
        };
        // After a failed sync the state of the device is unknown: no more writes.
        self.env.poison.on_error(synced)?;
        self.env.faults.hit(fault::MERGE_COMMIT)?;
        commit(meta, edits)?;
        if planted::is(Bug::CommitBeforeBlocks) {
            self.env.blocks.sync(Purpose::Merge)?;
        }
        Ok(())
    }

    /// A read that failed, or a full device, leaves the store as it was; a write that failed leaves
    /// the device in an unknown state.
    pub(crate) fn poison_if_write_failed(&self, error: Error) -> Error {
        use esker_device::Operation;
        match &error {
            // Discarded space may have been taken away by the time it is written again. Nothing
            // names yet what is written here, so that nothing has changed.
            Error::Device(device)
                if device.operation == Operation::Write
                    && device.is_full()
                    && self.env.poison.reason().is_none() =>
            {
                Error::Full { what: device.to_string() }
            }
            Error::Device(device)
                if matches!(device.operation, Operation::Write | Operation::Sync) =>
            {
                self.env.poison.set(error)
            }
            _ => error,
        }
    }
}
