//! One keyspace of an open store: its index, until it is dropped, and what has stopped in it.
//!
//! Invariant: a slot is `gone` exactly when its keyspace has been dropped or the store closed.

use std::fmt;

use esker_format::VALUE_BYTES_MAX;
use esker_format::history::HistoryMeta;
use esker_format::ids::{KeyspaceId, Seq};
use esker_index::{BackgroundJob, Index};
use esker_substrate::planted::{self, Bug};
use esker_substrate::sync::Mutex;
use esker_substrate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::error::{Error, Result};
use crate::history::kept;

/// One keyspace of an open store.
pub(crate) struct Slot {
    pub id: KeyspaceId,
    pub name: String,
    /// Longer values are stored as blobs.
    pub inline_bytes_max: AtomicU64,
    /// The history that the keyspace keeps, as the manifest records it.
    history: Mutex<Option<HistoryMeta>>,
    /// Held while keys are erased.
    pub erasing: Mutex<()>,
    tree: Index,
    gone: AtomicBool,
    /// Set exactly when `stopped` holds something; read without the lock on every write.
    stalled: AtomicBool,
    stopped: Mutex<Stopped>,
    /// The newest number when all of it was last merged to make room.
    pub merged_for_room: AtomicU64,
    /// The number of times that a flush or merge has stopped.
    pub stalls: AtomicU64,
}

/// The flush or merge that has stopped in a keyspace. A flush that continues does not imply that a
/// stopped merge does: no thread runs that merge, and a thread that would wait for it must know.
#[derive(Debug, Default)]
struct Stopped {
    flush: Option<Stall>,
    merge: Option<Stall>,
}

impl Stopped {
    const fn of(&mut self, which: BackgroundJob) -> &mut Option<Stall> {
        match which {
            BackgroundJob::Flush => &mut self.flush,
            BackgroundJob::Merge => &mut self.merge,
        }
    }

    /// A flush's first: without it nothing is flushed.
    fn first(&self) -> Option<&Stall> {
        self.flush.as_ref().or(self.merge.as_ref())
    }
}

/// The stop of a flush or merge of a keyspace, and the error that caused it.
#[derive(Clone, Debug)]
pub(crate) struct Stall {
    pub which: BackgroundJob,
    pub error: Error,
    /// Size of the memtable at that moment.
    pub memtable_bytes: u64,
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot")
            .field("id", &self.id.0)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Slot {
    pub fn new(id: KeyspaceId, name: String, tree: Index, history: Option<HistoryMeta>) -> Self {
        Self {
            id,
            name,
            inline_bytes_max: (VALUE_BYTES_MAX as u64).into(),
            history: Mutex::new(history),
            erasing: Mutex::default(),
            tree,
            gone: false.into(),
            stalled: false.into(),
            stopped: Mutex::default(),
            merged_for_room: 0.into(),
            stalls: 0.into(),
        }
    }

    /// The history that the keyspace keeps.
    pub fn history(&self) -> Option<HistoryMeta> {
        *self.history.lock()
    }

    /// Whether values in its history may have expired: see [`esker_index::History::expires`].
    pub fn may_expire(&self) -> Result<bool> {
        Ok(self.tree()?.history().is_some_and(|history| history.expires))
    }

    /// Begins a history, or changes it: see [`Index::set_history`].
    pub fn set_history(&self, history: HistoryMeta) {
        *self.history.lock() = Some(history);
        self.tree.set_history(kept(&history));
    }

    /// The keyspace's index, while there is one.
    pub fn tree(&self) -> Result<&Index> {
        if self.gone.load(Ordering::Acquire) { Err(self.gone()) } else { Ok(&self.tree) }
    }

    /// Reads from the index. A drop that comes in between has emptied it: then the answer is not
    /// what was read but that there is no keyspace.
    ///
    /// # Errors
    /// [`Error::NoKeyspace`].
    pub fn read<T>(&self, read: impl FnOnce(&Index) -> T) -> Result<T> {
        let found = read(self.tree()?);
        self.tree().map(|_| found)
    }

    /// Releases what was pinned of the index, also when the keyspace has been dropped since.
    pub fn unpin(&self, number: u64) -> esker_substrate::Result<()> {
        self.tree.unpin(number)
    }

    /// Takes back that a version is read, also when the keyspace has been dropped since.
    pub fn unpin_version(&self, version: Seq) {
        self.tree.unpin_version(version);
    }

    /// The store closes: drops everything in memory.
    pub fn close(&self) {
        self.gone.store(true, Ordering::Release);
        self.tree.close();
    }

    /// The index, for a planted bug that prints it.
    pub const fn tree_planted(&self) -> &Index {
        &self.tree
    }

    /// From now on, or not any more after all, the keyspace is dropped.
    pub fn set_gone(&self, gone: bool) {
        self.gone.store(gone, Ordering::Release);
    }

    fn gone(&self) -> Error {
        Error::NoKeyspace { name: self.name.clone() }
    }

    /// The flush or merge that has stopped, if any; the flush if both have. One relaxed load if
    /// there is none.
    pub fn stall(&self) -> Option<Stall> {
        if !self.stalled.load(Ordering::Relaxed) {
            return None;
        }
        self.stopped.lock().first().cloned()
    }

    /// Whether the flush or the merge has stopped.
    pub fn has_stopped(&self, which: BackgroundJob) -> bool {
        self.stalled.load(Ordering::Relaxed) && self.stopped.lock().of(which).is_some()
    }

    /// Records that the flush or the merge has stopped, or that it continues.
    pub fn set_stall(&self, which: BackgroundJob, stall: Option<Stall>) {
        let mut stopped = self.stopped.lock();
        self.stalls.fetch_add(stall.is_some().into(), Ordering::Relaxed);
        *stopped.of(which) = stall;
        if planted::is(Bug::StallOverwritten) {
            *stopped.of(if which == BackgroundJob::Flush {
                BackgroundJob::Merge
            } else {
                BackgroundJob::Flush
            }) = None;
        }
        self.stalled.store(stopped.first().is_some(), Ordering::Relaxed);
    }
}
