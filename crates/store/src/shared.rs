//! The state that all handles of one open store share.
//!
//! Thread safety: everything may be called from any thread.
//!
//! Locks, in the order in which a thread may take them (any may be left out):
//! 1. `gate`, shared by every operation and by every step of a merge, exclusive by `close`;
//! 2. `keyspaces`, the registry;
//! 3. those of the trees, by ascending keyspace id;
//! 4. `write`, the write mutex;
//! 5. that of `recent`, the window of recent writes;
//! 6. the locks inside log, manifest and blocks.
//!
//! Invariant: while a thread holds the gate the device is this store's: `close` gives the device
//! lock back only when no operation is under way, and none starts afterwards.
//! Invariant: numbers are given out, inserted and made visible under the write mutex: a thread that
//! holds it finds every operation up to the visible number in the memtables or on the device, and
//! none after it.
//! Invariant: in a child by `fork` of the process that opened the store nothing of it is used,
//! changed or released: every operation checks this first, before it takes a lock, which a thread
//! of the parent may have held. What a child drops stays in its memory.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use esker_device::count::CountingDevice;
use esker_device::process::Process;
use esker_device::{Device, DeviceLock};
use esker_format::ids::Seq;
use esker_format::manifest_edit::Edit;
use esker_index::fdtree::Sizes;
use esker_index::{Env, Index, Scheme};
use esker_substrate::budget::Part;
use esker_substrate::log::Log;
use esker_substrate::manifest::Manifest;
use esker_substrate::planted::{self, Bug};
use esker_substrate::poison::Poison;
use esker_substrate::snapshots::{SnapshotGuard, Snapshots};
use esker_substrate::sync::atomic::{AtomicBool, AtomicU64};
use esker_substrate::sync::{Mutex, RwLock, RwLockReadGuard};

use crate::conflict_window::Recent;
use crate::error::{Error, Result};
use crate::follower::Follower;
use crate::limits::Limits;
use crate::looked::Looked;
use crate::named::Named;
use crate::options::Durability;
use crate::slot::Slot;
use crate::stall_stats::Waits;
use crate::times::Times;
use crate::work_queue::WorkQueue;
use crate::writer_lock::Turns;

/// An open store, as all handles share it: it is closed when the last of them is dropped.
pub(crate) struct Shared(Arc<Core>);

/// An open store, as its own threads share it too.
pub(crate) struct Core {
    /// The process that opened it.
    pub process: Process,
    pub device: Arc<CountingDevice>,
    pub poison: Arc<Poison>,
    pub env: Arc<Env>,
    pub manifest: Arc<Manifest>,
    pub log: Log,
    pub keyspaces: RwLock<BTreeMap<String, Arc<Slot>>>,
    /// The times of versions, once a keyspace keeps history.
    pub times: OnceLock<Times>,
    /// The versions with names.
    pub named: Named,
    pub write: Mutex<()>,
    pub recent: Recent,
    /// The log that opening has read is durable, and what it left out has been discarded: space
    /// without an owner may be overwritten.
    pub logged_values_are_claimed: AtomicBool,
    /// Held by the thread that makes room on a full device; locked before everything but the gate.
    pub making_room: Mutex<()>,
    /// The state of making room in memory.
    pub looked: Looked,
    pub turns: Turns,
    pub waits: Waits,
    pub limits: Limits,
    pub background: WorkQueue,
    pub options: IndexOptions,
    /// In a process that follows a writer.
    pub follower: Option<Follower>,
    pub durability: Durability,
    pub user_bytes_written: AtomicU64,
    pub gate: RwLock<Phase>,
    pub device_lock: Mutex<Option<DeviceLock>>,
}

/// The arguments with which every keyspace's index is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexOptions {
    pub scheme: Scheme,
    pub sizes: Sizes,
    pub compaction: esker_index::lsm::Compaction,
}

/// Whether operations may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Being recovered; there is no handle yet.
    Opening,
    Open,
    Closed,
}

/// The amounts of room that are tried in turn for the manifest's next file on a full device, as
/// multiples of the present file. At most twice the necessary amount is made: a file that is longer
/// than the room that is kept for it does not find any.
const LENT_TIMES: [u64; 4] = [1, 2, 4, 8];

impl Core {
    /// Fails in a child by `fork` of the process that opened the store. Costs two loads.
    ///
    /// # Errors
    /// [`Error::Forked`].
    #[inline]
    pub fn check_process(&self) -> Result<()> {
        if self.process.is_current() { Ok(()) } else { Err(self.forked()) }
    }

    #[cold]
    fn forked(&self) -> Error {
        Error::Forked { location: self.device.location() }
    }

    /// Registers the visible number: to be read from before the store is entered.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn register(&self) -> Result<SnapshotGuard> {
        self.check_process()?;
        Ok(self.snapshots().register())
    }

    /// Keeps the store open for one operation. Not reentrant: operations do not nest.
    pub fn enter(&self) -> Result<RwLockReadGuard<'_, Phase>> {
        self.check_process()?;
        let phase = self.gate.read();
        if *phase == Phase::Open { Ok(phase) } else { Err(Error::Closed) }
    }

    pub fn snapshots(&self) -> &Arc<Snapshots> {
        &self.env.snapshots
    }

    /// Memory of all memtables, in bytes: those of the trees that count it in steps.
    pub fn memtables_bytes(&self) -> u64 {
        self.env.budget.used_bytes(Part::Memtables)
    }

    /// The output of a handle that prints all it holds: a planted bug.
    pub fn print_planted(&self, printed: &mut fmt::DebugStruct<'_, '_>) {
        if planted::is(Bug::HandlesPrintEntries) {
            let slots = self.slots();
            let trees: Vec<_> = slots.iter().map(|slot| slot.tree_planted()).collect();
            let trees: Vec<&Index> = trees.iter().map(|tree| &**tree).collect();
            printed.field("trees", &trees);
        }
    }

    /// Every keyspace, by ascending id.
    pub fn slots(&self) -> Vec<Arc<Slot>> {
        let mut slots: Vec<_> = self.keyspaces.read().values().cloned().collect();
        slots.sort_by_key(|slot| slot.id);
        slots
    }

    /// Makes `edits` durable, with the positions that every manifest record carries.
    pub fn commit_edits(&self, edits: &[Edit]) -> esker_substrate::Result<()> {
        self.with_room(|| {
            let blocks = &self.env.blocks;
            let (durable, next) = (self.log.durable_seq(), blocks.generation_to_record());
            self.manifest.commit(edits, durable, next)?;
            blocks.generation_recorded(next);
            Ok(())
        })
    }

    /// From now on readers of the store must know `features`.
    pub fn require(&self, features: u32) -> Result<()> {
        Ok(self.with_room(|| self.manifest.require(features))?)
    }

    fn with_room(
        &self,
        commit: impl Fn() -> esker_substrate::Result<()>,
    ) -> esker_substrate::Result<()> {
        match commit() {
            // What the data file does not use may be just the room that the manifest lacks, and
            // the way out of a full device (merging, dropping a keyspace) leads through here.
            Err(esker_substrate::Error::Full { .. }) => {
                self.env.blocks.discard_free()?;
                self.log.remove_spares()?;
            }
            committed => {
                self.env.blocks.keep_for_manifest(self.manifest.next_bytes());
                return committed;
            }
        }
        let mut committed = commit();
        // Even what is kept for that: it comes back with the manifest's old file, which may be
        // shorter than the new one.
        let lending = self.env.blocks.lending();
        for times in LENT_TIMES {
            if !matches!(committed, Err(esker_substrate::Error::Full { .. })) {
                break;
            }
            self.env.blocks.lend(self.manifest.file_bytes().saturating_mul(times))?;
            committed = commit();
        }
        drop(lending);
        self.env.blocks.keep_for_manifest(self.manifest.next_bytes());
        self.env.blocks.refill()?;
        committed
    }

    /// Sees to it that the manifest has room for the records that make room.
    pub fn make_manifest_room(&self) -> Result<()> {
        match self.with_room(|| self.manifest.make_room()) {
            // It has some: nothing has changed.
            Err(esker_substrate::Error::Full { .. }) => Ok(()),
            made => Ok(made?),
        }
    }

    /// Waits for running operations, makes the log durable, records the clean close and releases
    /// the device. The second call answers [`Error::Closed`].
    pub fn close(&self) -> Result<()> {
        self.check_process()?;
        self.follower.iter().for_each(Follower::stop);
        // A thread that waits for a merge holds the gate.
        self.background.stop();
        self.turns.close();
        let mut phase = self.gate.write();
        if *phase == Phase::Closed {
            return Err(Error::Closed);
        }
        let result = self.write_clean_close();
        *phase = Phase::Closed;
        for slot in self.slots() {
            slot.close();
        }
        *self.device_lock.lock() = None;
        result
    }

    fn write_clean_close(&self) -> Result<()> {
        if self.poison.is_read_only() {
            return Ok(());
        }
        self.poison.check()?;
        let last: Seq = self.log.last_seq();
        // Nothing was written since it was opened: closing a store that was only read writes
        // nothing. The mark was made after the log had been synced, so that everything is durable.
        if self.manifest.state().clean_close == Some(last) {
            return Ok(());
        }
        self.log.sync_to(last)?;
        self.commit_edits(&[Edit::CleanClose { seq: last }])?;
        Ok(())
    }
}

impl Shared {
    pub const fn new(core: Arc<Core>) -> Self {
        Self(core)
    }
}

impl std::ops::Deref for Shared {
    type Target = Core;
    fn deref(&self) -> &Core {
        &self.0
    }
}

// What a store holds (entries, blocks, the manifest) does not belong in logs: handles print where
// the store is. No lock is taken: a thread may print what it holds locked.
impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("location", &self.device.location())
            .field("visible_seq", &self.snapshots().visible().0)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !self.process.is_current() {
            // The parent's store: its parts are left as they are, regardless of what the child
            // drops.
            std::mem::forget(Arc::clone(&self.0));
            return;
        }
        // A store that failed to open is left as it is.
        if *self.gate.read() == Phase::Open {
            // No caller is left that could receive an error: what was acknowledged is in the log,
            // and a store without the mark is recovered when it is opened.
            let _unreported = self.close();
        }
    }
}
