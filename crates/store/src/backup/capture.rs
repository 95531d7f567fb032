//! The moment of a backup: a state of the manifest, the log that belongs to it, and the guarantee
//! that neither is reused while it is copied.
//!
//! It is what a crash at this moment would leave if the log ended there. While the locks that
//! keyspaces, merges and writers need are held, nothing changes; that takes microseconds and the
//! rest of the merge steps under way.
//!
//! A follower takes what it has caught up with. Nothing is held for it: where the writer uses space
//! again before it is copied, the checksums and generations tell.

use std::sync::Arc;

use esker_format::action::WriteOp;
use esker_format::backup::Catalog;
use esker_format::data::Data;
use esker_format::ids::Seq;
use esker_format::manifest_edit::RecordBody;
use esker_format::ptr::Extent;
use esker_format::superblock::FEATURE_LARGE_VALUES;
use esker_format::value_ref::ValueRef;
use esker_index::upkeep::values::is_in_log_alone;
use esker_substrate::blocks::DATA_FILE;
use esker_substrate::log::SegmentPart;
use esker_substrate::manifest::{KeyspaceState, ManifestState};
use esker_substrate::runs::RunSet;

use crate::error::{Error, Result};
use crate::follow;
use crate::shared::Core;
use crate::slot::Slot;

/// The state of a store that is copied.
pub(super) struct Captured<'a> {
    shared: &'a Core,
    /// Every operation up to here is in it, and none after.
    pub seq: Seq,
    /// The state that the restored store's manifest describes.
    pub state: ManifestState,
    /// The features that a reader of it must know.
    features: u32,
    /// The log, oldest segment first.
    pub log: Vec<SegmentPart>,
    /// Large values that the log alone refers to.
    pub logged: Vec<ValueRef>,
    pins: Vec<(Arc<Slot>, u64)>,
    /// The log's files are kept.
    holds_log: bool,
}

impl<'a> Captured<'a> {
    /// Takes it, and makes the log durable that is part of it.
    pub fn now(shared: &'a Core) -> Result<Self> {
        let mut captured = match &shared.follower {
            Some(_) => Self::catch_up(shared)?,
            None => Self::stop_and_look(shared)?,
        };
        if captured.holds_log {
            captured.within_store(|| Ok(shared.log.sync_to(captured.seq)?))?;
        }
        if captured.has_large_values() {
            captured.logged = captured.within_store(|| captured.look_into_log())?;
        }
        Ok(captured)
    }

    fn stop_and_look(shared: &'a Core) -> Result<Self> {
        let _open = shared.enter()?;
        shared.poison.check()?;
        // State that was read when the store was opened must not be lost during the backup.
        shared.manifest.retry_last_record()?;
        shared.log.hold();
        // No keyspace comes or goes.
        let registry = shared.keyspaces.read();
        let mut slots: Vec<_> = registry.values().cloned().collect();
        slots.sort_by_key(|slot| slot.id);
        // No merge gives anything up.
        let paused = slots.iter().filter_map(|slot| Some((slot, slot.own_tree().ok()?.pause())));
        let paused: Vec<_> = paused.collect();
        // Nothing is written.
        let order = shared.write.lock();
        let mut state = ManifestState::clone(&shared.manifest.state());
        let (seq, log) = shared.log.parts();
        let features = shared.manifest.features();
        let pins = paused.iter().map(|(slot, paused)| (Arc::clone(slot), paused.pin()));
        let pins = pins.collect();
        drop((order, paused, registry));
        state.segments = log.iter().map(|part| (part.reference.id, part.reference)).collect();
        end_with(&mut state, seq);
        Ok(Self { shared, seq, state, features, log, logged: Vec::new(), pins, holds_log: true })
    }

    fn catch_up(shared: &'a Core) -> Result<Self> {
        let _open = shared.enter()?;
        let (mut state, seq, log) = follow::newest(shared)?;
        let features = shared.manifest.features();
        end_with(&mut state, seq);
        let (logged, pins) = (Vec::new(), Vec::new());
        Ok(Self { shared, seq, state, features, log, logged, pins, holds_log: false })
    }

    /// Whether there may be values outside blocks.
    pub const fn has_large_values(&self) -> bool {
        self.features & FEATURE_LARGE_VALUES != 0
    }

    /// The values that replaying the log will find.
    fn look_into_log(&self) -> Result<Vec<ValueRef>> {
        let store = self.shared.env.blocks.store();
        let mut logged = Vec::new();
        for part in &self.log {
            part.scan(store, self.seq, &mut |place, id, action| {
                let keyspace = self.state.keyspaces.get(&id);
                if let (Some(keyspace), WriteOp::Point(key, Data::Reference(content))) =
                    (keyspace, action)
                    && is_in_log_alone(&keyspace.index, key, place.seq)
                {
                    logged.extend(ValueRef::decode(content));
                }
                Ok(())
            })?;
        }
        Ok(logged)
    }

    /// The error of replaying the log, if it refers to values in space that the state uses. A
    /// writer frees space by a record of the manifest before it uses it again, so the state was
    /// read before that record, and the log after it. All that readers need of the state may be
    /// there.
    pub fn torn(&self) -> Option<Error> {
        if self.logged.is_empty() {
            return None;
        }
        let mut taken = RunSet::default();
        let used = self.state.keyspaces.values().flat_map(KeyspaceState::extents);
        used.for_each(|extent| taken.include(extent));
        let mut logged = self.logged.iter().flat_map(|value| &value.runs);
        let run = logged.find(|run| taken.insert(**run).is_err())?;
        Some(Error::Damaged {
            file: DATA_FILE.into(),
            offset: run.offset(),
            what: format!("the log refers to {} bytes here that are in use", run.bytes()),
        })
    }

    /// Does something while the store is open.
    ///
    /// # Errors
    /// [`Error::Closed`](crate::Error::Closed) when it has been closed.
    pub fn within_store<T>(&self, body: impl FnOnce() -> Result<T>) -> Result<T> {
        let _open = self.shared.enter()?;
        body()
    }

    /// Everything in the data file that is part of it.
    pub fn extents(&self) -> impl Iterator<Item = Extent> {
        let logged = self.logged.iter().flat_map(|value| &value.runs).copied();
        self.state.keyspaces.values().flat_map(KeyspaceState::extents).chain(logged)
    }

    /// The catalog of a backup of it, but for where things are.
    pub fn catalog(&self, run: u64) -> Catalog {
        Catalog {
            store: self.shared.env.blocks.store(),
            features: self.features,
            run,
            seq: self.seq,
            record: RecordBody {
                next_generation: self.state.next_generation,
                edits: self.state.to_edits(),
            },
            pieces: Vec::new(),
            chunks: Vec::new(),
        }
    }
}

/// The state of a store that was closed after operation `seq`.
const fn end_with(state: &mut ManifestState, seq: Seq) {
    state.durable_seq = seq;
    state.clean_close = Some(seq);
}

impl Drop for Captured<'_> {
    fn drop(&mut self) {
        if !self.holds_log {
            return;
        }
        // Of a store that has been closed nothing is held any more.
        let Ok(_open) = self.shared.enter() else { return };
        let unheld = self.shared.log.unhold();
        let unpinned = self.pins.iter().try_for_each(|(slot, number)| slot.unpin(*number));
        if let Err(error) = unheld.and(unpinned) {
            tracing::warn!(%error, "what a backup held could not be released");
        }
    }
}
