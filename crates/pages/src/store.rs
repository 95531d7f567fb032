//! The handle of an open store.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use esker_device::DeviceFile;
use parking_lot::MutexGuard;

use crate::alloc::compact::{self, Compacted};
use crate::engine::Engine;
use crate::error::{Error, Result, invalid};
#[cfg(feature = "_planted")]
use crate::log::concurrent_checkpoint::Unfinished;
use crate::log::opening;
use crate::log::record::Record;
use crate::options::{Durability, Options};
use crate::planted::{self, Bug};
use crate::snapshot::Snapshot;
use crate::thread::Thread;
use crate::version::node::{NAME_BYTES_MAX, NAMES_MAX};
use crate::writer::Writer;

/// A database of pages. Every committed version can be read for as long as a reader holds it.
/// Clones are the same store; it is closed when the last one is dropped.
///
/// Thread safety: all methods may be called from any thread. Readers never wait for the writer, nor
/// the writer for readers. One process at a time may have the file open for writing, and no other
/// process may have it open for reading then; the caller that opens it ensures this. A child
/// created by `fork` may only drop it: methods that would change it return [`Error::Forked`] there.
#[derive(Clone)]
pub struct PageStore {
    shared: Arc<Handle>,
}

struct Handle {
    engine: Arc<Engine>,
    thread: Thread,
}

/// A time in which this process goes on to be the one that writes.
struct Change<'a> {
    engine: &'a Engine,
    turn: Option<MutexGuard<'a, ()>>,
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        if self.turn.take().is_some() {
            self.engine.pass_on_without_thread();
        }
    }
}

impl PageStore {
    /// Opens the store in `file`, or creates one if the file is empty. After a crash this reads the
    /// log since the last checkpoint, at most [`Options::checkpoint_bytes`] and the bytes of the
    /// last commit, and takes a checkpoint; otherwise it reads the map, 8 bytes a page, and writes
    /// nothing.
    ///
    /// # Errors
    /// [`Error::Foreign`], [`Error::TooNew`] or [`Error::Corrupt`] for a file that is not a store,
    /// is newer, or is damaged; nothing is written to it then.
    pub fn open(file: Arc<dyn DeviceFile>, options: Options) -> Result<Self> {
        Ok(Self::over(opening::open(file, options)?))
    }

    /// Opens the store in `file` for reading. Nothing is written; recovery after a crash is done in
    /// memory. An empty file is an empty database. Every operation that would change the store
    /// returns [`Error::ReadOnly`] until [`PageStore::make_writable`].
    ///
    /// [`PageStore::decide`] decides a prepared transaction in memory too. Data that was not
    /// durable when a process died can be read here, but a power failure may still lose it.
    ///
    /// # Errors
    /// As [`PageStore::open`].
    pub fn open_read_only(file: Arc<dyn DeviceFile>, options: Options) -> Result<Self> {
        Ok(Self::over(opening::open_to_read(file, options)?))
    }

    pub(crate) fn over(engine: Arc<Engine>) -> Self {
        Self { shared: Arc::new(Handle { engine, thread: Thread::default() }) }
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.shared.engine
    }

    /// Keeps this process the one that writes for as long as the answer lives.
    fn to_write(&self) -> Result<Change<'_>> {
        self.to_write_within(self.engine().options.busy_timeout)
    }

    fn to_write_within(&self, patience: Duration) -> Result<Change<'_>> {
        let turn = self.engine().to_write(patience)?;
        if turn.is_some() {
            // It lets another process write when this one has nothing to do.
            self.shared.thread.start(self.engine());
        }
        Ok(Change { engine: self.engine(), turn })
    }

    /// Whether the store can only be read: [`PageStore::open_read_only`].
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        !self.engine().may_write()
    }

    /// Makes a store that was opened for reading writable, through `file`, which is the same file.
    /// Clones and snapshots continue, and see later commits. The caller ensures that no other
    /// process has the file open, or has written to it in the meantime. Does nothing to a store
    /// that is writable.
    ///
    /// Has the cost of [`PageStore::open`] after a crash: a checkpoint if the log had records.
    ///
    /// # Errors
    /// [`Error::Full`] or an error of the device: the store stays as it was; or [`Error::Locked`]
    /// where another process has written to it: then every read fails.
    pub fn make_writable(&self, file: Arc<dyn DeviceFile>) -> Result<()> {
        self.engine().make_writable(file)
    }

    /// Holds the newest committed version. No I/O.
    #[must_use]
    pub fn pin(&self) -> Snapshot {
        Snapshot::newest(self.engine())
    }

    /// Begins a transaction on the newest version. No I/O.
    ///
    /// # Errors
    /// [`Error::Busy`] while another writer is open or a prepared transaction awaits its decision;
    /// [`Error::Stale`] when `base` is not the newest version; [`Error::Poisoned`] after a failed
    /// write.
    pub fn begin(&self, base: &Snapshot) -> Result<Writer> {
        let _turn = self.to_write()?;
        let writer = Writer::begin(self.engine(), base)?;
        self.shared.thread.start(self.engine());
        Ok(writer)
    }

    /// Whether a writer is open.
    #[must_use]
    pub fn has_writer(&self) -> bool {
        self.engine().has_writer.load(Ordering::Acquire)
    }

    /// The value of [`Options::durability`].
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.engine().options.durability
    }

    /// The reason why the store accepts no more commits, if so.
    #[must_use]
    pub fn poisoned(&self) -> Option<&str> {
        self.engine().poison.get().map(String::as_str)
    }

    /// Makes all commits durable. One sync; none if all are durable already.
    ///
    /// # Errors
    /// The device failed; the store is poisoned.
    pub fn sync(&self) -> Result<()> {
        let synced = self.engine().flush();
        self.engine().pass_on_after_failure();
        synced
    }

    /// Writes the changes of the map, and begins a new log: afterwards opening is quick, and dead
    /// pages are free. Two syncs.
    ///
    /// # Errors
    /// [`Error::Full`], after which the store is unchanged; or the device failed.
    pub fn checkpoint(&self) -> Result<()> {
        let engine = self.engine();
        engine.check_process()?;
        let _turn = self.to_write()?;
        engine.checkpoint_core(&mut engine.core.lock())
    }

    /// With [`crate::Allocation::Segment`]: moves what lives out of all segments that hold garbage,
    /// as far as there is room, and says how many became free. The store does the part of this that
    /// it needs by itself. Takes two checkpoints. With [`crate::Allocation::Slot`] nothing is to
    /// do.
    ///
    /// # Errors
    /// As [`PageStore::checkpoint`].
    pub fn collect(&self) -> Result<u32> {
        let engine = self.engine();
        engine.allocation.collect_all(engine)
    }

    /// Makes the file as short as its live contents allow, and returns the rest to the file system.
    /// It does not wait for readers; commits continue, and wait for one step at most. After each
    /// step `going` is called with the number of pages moved and the number left, and may end the
    /// compaction: the finished steps are kept.
    ///
    /// Cost: one read and one write for each page that moves (those behind the new end, and those
    /// in front that leave segments half empty), in steps of 1 MiB; two checkpoints for each of at
    /// most eight passes, usually two or three; with [`crate::Allocation::Segment`] also a read and
    /// a write for each page in a segment of which more than a sixteenth is dead. Memory: 12 bytes
    /// for each page that is moved.
    ///
    /// Afterwards the file has its live contents (the database, named versions, maps with their
    /// deltas), the log and a few segments that are not full; the next commit lets it grow by what
    /// a checkpoint needs. Two kinds of pages stay where they are, and the file ends behind them:
    /// with [`crate::Allocation::Slot`] the pages that live snapshots have from before, and the
    /// pages of a transaction that is not over.
    ///
    /// # Errors
    /// As [`PageStore::checkpoint`]. The store is unchanged, except for pages that were moved.
    /// [`Error::Locked`] where processes share the store and another one has it open.
    pub fn compact(&self, going: &mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> Result<Compacted> {
        compact::run(self.engine(), going)
    }

    /// Begins a pass of [`PageStore::compact`], for tests that take its steps themselves.
    ///
    /// # Errors
    /// As [`PageStore::checkpoint`].
    #[cfg(feature = "_planted")]
    pub fn begin_squeeze(&self) -> Result<compact::Squeeze> {
        compact::Squeeze::begin(self.engine())
    }

    /// Begins the concurrent checkpoint that the store's thread takes, for tests that take its
    /// steps themselves.
    ///
    /// # Errors
    /// As [`PageStore::checkpoint`].
    #[cfg(feature = "_planted")]
    pub fn begin_checkpoint(&self) -> Result<Unfinished> {
        Unfinished::begin(self.engine())
    }

    /// Keeps the newest version under a name until [`PageStore::unpin_named`], also after a
    /// restart, and returns its number. One sync.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a name that is empty, longer than 255 bytes or in use, or
    /// when there are 32 names already.
    pub fn pin_named(&self, name: &str) -> Result<u64> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return invalid("the name of a version has 1 to 255 bytes");
        }
        let engine = self.engine();
        let _turn = self.to_write()?;
        let mut core = engine.core.lock();
        if core.named.contains_key(name) {
            return invalid(format!("a version is kept as {name} already: unpin it first"));
        }
        if core.named.len() >= NAMES_MAX {
            return invalid(format!("{NAMES_MAX} versions have names: unpin one first"));
        }
        // No commit happens while `core` is held.
        let version = engine.versions.lock().newest().0;
        let name: Arc<str> = name.into();
        engine.note(&mut core, &Record::Pin(version, Arc::clone(&name)))?;
        engine.versions.lock().pin_at(version);
        core.named.insert(name, version);
        Ok(version)
    }

    /// Releases a named version. One sync.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] when no version has this name.
    pub fn unpin_named(&self, name: &str) -> Result<()> {
        let engine = self.engine();
        let _turn = self.to_write()?;
        let mut core = engine.core.lock();
        let Some((name, version)) = core.named.get_key_value(name) else {
            return invalid(format!("no version is kept as {name}"));
        };
        let (name, version) = (Arc::clone(name), *version);
        engine.note(&mut core, &Record::Unpin(Arc::clone(&name)))?;
        core.named.remove(&name);
        engine.versions.lock().unpin(version);
        Ok(())
    }

    /// Holds a named version. No I/O.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] when no version has this name.
    pub fn at_named(&self, name: &str) -> Result<Snapshot> {
        self.engine().check_process()?;
        let snapshot = Snapshot::named(self.engine(), name)?;
        snapshot.map_or_else(|| invalid(format!("no version is kept as {name}")), Ok)
    }

    /// After opening: the name of a prepared transaction that awaits its decision.
    #[must_use]
    pub fn prepared(&self) -> Option<Vec<u8>> {
        self.engine().undecided()
    }

    /// Decides the transaction of [`PageStore::prepared`]. Durable before it returns: one sync; in
    /// memory where the store is only read.
    ///
    /// # Errors
    /// [`Error::Busy`] while a writer is open; [`Error::InvalidArgument`] when no transaction
    /// awaits a decision.
    pub fn decide(&self, commit: bool) -> Result<()> {
        let _turn = self.to_write()?;
        if self.has_writer() {
            return Err(Error::Busy);
        }
        self.engine().decide(commit)
    }

    /// Whether processes share the store, and the one that prepared a transaction may have died
    /// before it was decided: [`PageStore::decide_in_doubt`] finds out. No I/O, and no wait.
    #[doc(hidden)]
    #[must_use]
    pub fn may_be_in_doubt(&self) -> bool {
        let engine = self.engine();
        let may_decide = engine.turns.is_some() && engine.poison.get().is_none();
        let prepared = || engine.core.try_lock().is_some_and(|core| core.prepared.is_some());
        may_decide && prepared() && !self.has_writer()
    }

    /// Decides the transaction of [`PageStore::prepared`] as `decision` says for its name, if there
    /// is one and the process that prepared it is gone. Does not wait for a process that writes.
    /// Costs as [`PageStore::decide`].
    ///
    /// `decision` is asked only while no other process can write: who prepares a transaction goes
    /// on to write until it is decided, or until it dies. An answer from before could be that of a
    /// transaction which took place since.
    ///
    /// # Errors
    /// Those of `decision`, after which it stays undecided, and of [`PageStore::decide`].
    #[doc(hidden)]
    pub fn decide_in_doubt(&self, decision: impl Fn(&[u8]) -> Result<bool>) -> Result<()> {
        let Some(name) = self.prepared() else { return Ok(()) };
        let early = planted::is(Bug::PreparedDecidedByOther).then(|| decision(&name));
        let _turn = match self.to_write_within(Duration::ZERO) {
            // Its owner lives, or another process is about to decide it; or this one only reads.
            Err(Error::Busy | Error::ReadOnly { .. }) => return Ok(()),
            turn => turn?,
        };
        // Another process may have decided it, and prepared the next one.
        let Some(name) = self.prepared() else { return Ok(()) };
        let commit = early.unwrap_or_else(|| decision(&name))?;
        self.engine().decide(commit)
    }

    /// Makes everything durable, and takes a checkpoint if anything was written since the last one
    /// and there is room for it: then the next opening writes nothing. Other clones stay usable.
    ///
    /// # Errors
    /// [`Error::Poisoned`] where it is unknown what the next opening finds; or as
    /// [`PageStore::checkpoint`].
    pub fn close(self) -> Result<()> {
        self.shared.engine.shut_down()
    }
}

impl Engine {
    /// Leaves the file as a closed store, which another process may write on.
    fn shut_down(&self) -> Result<()> {
        if self.turns.is_none() {
            self.finish()?;
        }
        self.check_process()?;
        // Where it is refused, the next process that writes recovers it as after a crash.
        self.step_down()?;
        if self.poison.get().is_some() { Err(Error::Poisoned) } else { Ok(()) }
    }

    fn finish(&self) -> Result<()> {
        if self.process.is_current() && self.is_read_only() {
            return Ok(());
        }
        self.check_poison()?;
        let mut core = self.core.lock();
        if core.log.bytes == 0 {
            return Ok(());
        }
        match self.checkpoint_core(&mut core) {
            // The log holds what the checkpoint would.
            Err(Error::Full { .. }) => self.sync_core(&mut core),
            outcome => outcome,
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.engine.process.is_current() {
            // The store and its thread belong to the parent: what is dropped here is left as it is.
            std::mem::forget(Arc::clone(&self.engine));
            return;
        }
        self.thread.stop(&self.engine);
        // All durability that was promised is there; opening recovers the rest if there is no
        // checkpoint.
        let _best_effort = self.engine.shut_down();
    }
}

impl fmt::Debug for PageStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let newest = self.engine().versions.lock().newest().0;
        f.debug_struct("PageStore").field("newest", &newest).finish()
    }
}
