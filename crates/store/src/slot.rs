//! One keyspace of an open store: its index, until it is dropped, and what has stopped in it.
//!
//! Invariant: a slot is `gone` exactly when its keyspace has been dropped or the store closed.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use esker_format::VALUE_BYTES_MAX;
use esker_format::history::HistoryMeta;
use esker_format::ids::{KeyspaceId, Seq};
use esker_index::{BackgroundJob, Index};
use esker_substrate::planted::{self, Bug};
use esker_substrate::snapshots::Snapshots;
use esker_substrate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use esker_substrate::sync::{Loaded, Mutex, RwLock, RwLockReadGuard, Swap};

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
    tree: Home,
    gone: AtomicBool,
    /// Set exactly when `stopped` holds something; read without the lock on every write.
    stalled: AtomicBool,
    stopped: Mutex<Stopped>,
    /// The newest number when all of it was last merged to make room.
    pub merged_for_room: AtomicU64,
    /// The number of times that a flush or merge has stopped.
    pub stalls: AtomicU64,
}

/// The keyspace's index: one for the life of the slot, or, in a follower, one after the other.
#[expect(
    clippy::large_enum_variant,
    reason = "reads and writes of the index of a writer take no step more"
)]
enum Home {
    Own(Index),
    Followed(Swap<Opening>, Arc<Steady>),
}

/// Held shared by a read of an index, and exclusively while a follower replaces indexes and makes
/// a number visible: so each read finds what belongs together.
pub(crate) type Steady = RwLock<()>;

/// An index of a follower as of one record of the manifest. Its memory is given back when the last
/// reader has dropped it.
#[derive(Debug)]
pub(crate) struct Opening {
    pub index: Index,
    /// A reader as of an older number finds all that it needs only if the number is certain to be
    /// kept: see [`esker_substrate::snapshots::Snapshots::is_certain`].
    pub reads_from: Seq,
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.index.close();
    }
}

/// The index of a slot, while this is kept.
pub(crate) enum Tree<'a> {
    Own(&'a Index),
    Followed(Loaded<Opening>),
}

impl Deref for Tree<'_> {
    type Target = Index;

    fn deref(&self) -> &Index {
        match self {
            Self::Own(index) => index,
            Self::Followed(opening) => &opening.index,
        }
    }
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
        Self::at(id, name, Home::Own(tree), history)
    }

    /// One of a follower.
    pub fn followed(
        id: KeyspaceId,
        name: String,
        opening: Opening,
        (history, steady): (Option<HistoryMeta>, &Arc<Steady>),
    ) -> Self {
        let home = Home::Followed(Swap::new(Arc::new(opening)), Arc::clone(steady));
        Self::at(id, name, home, history)
    }

    /// In a follower: from now on this index is read. The caller has the slot's [`Steady`].
    /// Returns the one that was read before, to be dropped without it.
    pub fn replace(&self, opening: Opening, history: Option<HistoryMeta>) -> Option<Arc<Opening>> {
        *self.history.lock() = history;
        match &self.tree {
            Home::Followed(home, _) => Some(home.swap(Arc::new(opening))),
            Home::Own(_) => None,
        }
    }

    fn at(id: KeyspaceId, name: String, tree: Home, history: Option<HistoryMeta>) -> Self {
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
        self.index().set_history(kept(&history));
    }

    /// The keyspace's index, while there is one.
    pub fn tree(&self) -> Result<Tree<'_>> {
        if self.gone.load(Ordering::Acquire) { Err(self.gone()) } else { Ok(self.index()) }
    }

    /// The same in a store that is not followed.
    ///
    /// # Errors
    /// [`Error::NoKeyspace`]; [`Error::ReadOnly`] in a follower.
    pub fn own_tree(&self) -> Result<&Index> {
        match &self.tree {
            _ if self.gone.load(Ordering::Acquire) => Err(self.gone()),
            Home::Own(index) => Ok(index),
            Home::Followed(..) => Err(Error::ReadOnly),
        }
    }

    fn index(&self) -> Tree<'_> {
        match &self.tree {
            Home::Own(index) => Tree::Own(index),
            Home::Followed(home, _) => Tree::Followed(home.load()),
        }
    }

    /// In a follower, keeps its indexes as they are.
    fn steady(&self) -> Option<RwLockReadGuard<'_, ()>> {
        match &self.tree {
            Home::Own(_) => None,
            Home::Followed(_, steady) => Some(steady.read()),
        }
    }

    /// Reads from the index. A drop that comes in between has emptied it: then the answer is not
    /// what was read but that there is no keyspace.
    ///
    /// # Errors
    /// [`Error::NoKeyspace`].
    pub fn read<T>(&self, read: impl FnOnce(&Index) -> T) -> Result<T> {
        let _steady = self.steady();
        let tree = self.tree()?;
        let found = read(&tree);
        self.tree().map(|_| found)
    }

    /// The same as of a registered number.
    ///
    /// # Errors
    /// [`Error::NoKeyspace`]; in a follower [`Error::TooOld`] for a number whose versions may be
    /// gone.
    pub fn read_at<T>(
        &self,
        snapshots: &Snapshots,
        seq: Seq,
        read: impl FnOnce(&Index) -> T,
    ) -> Result<T> {
        let _steady = self.steady();
        let tree = self.tree()?;
        if let Tree::Followed(opening) = &tree
            && seq < opening.reads_from
            && !opening.index.keeps_history()
            && !snapshots.is_certain(seq)
        {
            return Err(Error::TooOld { seq: seq.0, from: opening.reads_from.0 });
        }
        let found = read(&tree);
        self.tree().map(|_| found)
    }

    /// Releases what was pinned of the index, also when the keyspace has been dropped since.
    pub fn unpin(&self, number: u64) -> esker_substrate::Result<()> {
        self.index().unpin(number)
    }

    /// Takes back that a version is read, also when the keyspace has been dropped since.
    pub fn unpin_version(&self, version: Seq) {
        self.index().unpin_version(version);
    }

    /// The store closes: drops everything in memory.
    pub fn close(&self) {
        self.gone.store(true, Ordering::Release);
        self.index().close();
    }

    /// The index, for a planted bug that prints it.
    pub fn tree_planted(&self) -> Tree<'_> {
        self.index()
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
