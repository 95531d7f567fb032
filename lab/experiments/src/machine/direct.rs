//! Databases in transactions of the layer, with direct I/O: SQLite on X-FTL and on MV-FTL.
//!
//! | the pager | here |
//! |---|---|
//! | lock shared | MV-FTL: a transaction begins on the newest version; X-FTL: SQLite's lock |
//! | lock reserved | alone; MV-FTL: `BUSY_SNAPSHOT` where a newer version was committed since |
//! | lock exclusive | MV-FTL: granted at once; X-FTL: once readers have ended |
//! | writes a page | into the transaction |
//! | control `COMMIT_PHASETWO` | the transaction is committed |
//! | unlock without it | the transaction is dropped |
//!
//! The rollback journal stays in memory ([`Memory`]): the pager reads it to roll back, and no other
//! connection sees it.

use std::sync::{Arc, Mutex};

use esker_flash::ftl::TxId;
use esker_sqlite::code::{Code, Result};
use esker_sqlite::hosted::{File, Level};
use esker_sqlite::journal::{Journal, Original};

use super::filesystem::FileId;
use super::locks::{Holder, Locks};
use super::mode::Mode;
use super::state::{State, Versions, call, code, lock};

/// An open database.
#[derive(Debug)]
pub struct Direct {
    mode: Mode,
    state: Arc<Mutex<State>>,
    id: FileId,
    holder: Holder,
    level: Level,
    /// The transaction: MV-FTL has one from the shared lock on, X-FTL from the first write.
    tx: Option<TxId>,
    /// The version that is read; of MV-FTL only.
    version: Option<Versions>,
    /// The length that the transaction has made, if it wrote.
    written: Option<u64>,
}

impl Direct {
    pub(super) const fn new(
        mode: Mode,
        state: Arc<Mutex<State>>,
        id: FileId,
        holder: Holder,
    ) -> Self {
        let level = Level::None;
        Self { mode, state, id, holder, level, tx: None, version: None, written: None }
    }

    /// Begins the transaction where there is none.
    fn begin(&mut self) -> Result<TxId> {
        if let Some(tx) = self.tx {
            return Ok(tx);
        }
        let (tx, version) = call(&self.state, |state, now| {
            let (tx, end) = state.fs.disk.begin(now).map_err(|error| code(&error))?;
            Ok(((tx, state.versions), end))
        })?;
        self.tx = Some(tx);
        self.version = Some(version);
        Ok(tx)
    }

    /// Drops the transaction, if there is one.
    fn abort(&mut self) -> Result {
        self.written = None;
        let Some(tx) = self.tx.take() else { return Ok(()) };
        call(&self.state, |state, now| {
            let end = state.fs.abort(now, tx).map_err(|error| code(&error))?;
            Ok(((), end))
        })
    }

    /// Takes a lock that others see.
    fn raise(&self, level: Level) -> Result {
        call(&self.state, |state, now| {
            let is_granted = state.locks.entry(self.id).or_default().raise(self.holder, level);
            if is_granted { Ok(((), now)) } else { Err(Code::BUSY) }
        })
    }

    fn lower(&self, level: Level) {
        if let Some(locks) = lock(&self.state).locks.get_mut(&self.id) {
            locks.lower(self.holder, level);
        }
    }

    fn reserve(&self) -> Result {
        self.raise(Level::Reserved)?;
        let is_newest = self.version == Some(lock(&self.state).versions);
        if self.mode.has_versions() && !is_newest {
            self.lower(Level::None);
            return Err(Code::BUSY_SNAPSHOT);
        }
        Ok(())
    }
}

impl File for Direct {
    fn read(&mut self, offset: u64, buf: &mut [u8]) -> Result {
        if self.mode.has_versions() && self.level >= Level::Shared {
            self.begin()?;
        }
        let (tx, len) = (self.tx, self.size()?);
        call(&self.state, |state, now| {
            let there = usize::try_from(len.saturating_sub(offset)).unwrap_or(usize::MAX);
            let (known, past) = buf.split_at_mut(there.min(buf.len()));
            past.fill(0);
            let read = state.fs.read_direct(self.id, now, (offset, known), tx);
            let end = read.map_err(|_| Code::IOERR_READ)?;
            Ok((past.is_empty(), end))
        })
        .and_then(|is_whole| if is_whole { Ok(()) } else { Err(Code::SHORT_READ) })
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result {
        let tx = self.begin()?;
        let len = self.size()?.max(offset + bytes.len() as u64);
        self.written = Some(len);
        call(&self.state, |state, now| {
            let written = state.fs.write_direct(self.id, now, (offset, bytes), tx);
            Ok(((), written.map_err(|error| code(&error))?))
        })
    }

    fn truncate(&mut self, len: u64) -> Result {
        self.begin()?;
        self.written = Some(len);
        Ok(())
    }

    /// The commit makes the transaction durable; what is left is the making of the file.
    fn sync(&mut self) -> Result {
        call(&self.state, |state, now| {
            if !state.fs.has_changes() {
                return Ok(((), now));
            }
            Ok(((), state.fs.sync_metadata(now).map_err(|error| code(&error))?))
        })
    }

    fn size(&self) -> Result<u64> {
        let committed = || lock(&self.state).versions.len;
        let version = self.version.filter(|_| self.mode.has_versions());
        Ok(self.written.or(version.map(|version| version.len)).unwrap_or_else(committed))
    }

    fn lock(&mut self, level: Level) -> Result {
        let has_versions = self.mode.has_versions();
        if self.level == Level::None && level >= Level::Shared {
            if has_versions {
                self.begin()?;
            } else {
                self.raise(Level::Shared)?;
            }
            self.level = Level::Shared;
        }
        let is_through_reserved = has_versions || level == Level::Reserved;
        if level >= Level::Reserved && self.level < Level::Reserved && is_through_reserved {
            self.reserve()?;
            self.level = Level::Reserved;
        }
        if level > Level::Reserved {
            self.raise(level)?;
        }
        self.level = self.level.max(level);
        Ok(())
    }

    fn unlock(&mut self, level: Level) -> Result {
        let is_dropped = level < Level::Reserved && self.written.is_some();
        let aborted = if is_dropped || level == Level::None { self.abort() } else { Ok(()) };
        if level == Level::None {
            self.version = None;
        }
        // With versions others see only the lock of a writer.
        let seen =
            if self.mode.has_versions() && level < Level::Reserved { Level::None } else { level };
        self.lower(seen);
        self.level = self.level.min(level);
        aborted
    }

    fn has_writer(&self) -> Result<bool> {
        Ok(lock(&self.state).locks.get(&self.id).is_some_and(Locks::has_writer))
    }

    fn committed(&mut self) -> Result {
        let Some(len) = self.written.take() else { return Ok(()) };
        let Some(tx) = self.tx.take() else { return Ok(()) };
        let version = call(&self.state, |state, now| {
            let end = state.fs.commit(now, tx).map_err(|error| code(&error))?;
            state.versions = Versions { len, commits: state.versions.commits + 1 };
            Ok((state.versions, end))
        })?;
        self.version = Some(version);
        Ok(())
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        let _dropped = self.abort();
        self.lower(Level::None);
    }
}

/// A rollback journal in memory.
#[derive(Debug, Default)]
pub struct Memory(Journal);

/// The journal keeps its pages itself.
struct NoOriginal;

impl Original for NoOriginal {
    fn read(&self, _: u64, _: &mut [u8]) -> Result {
        Err(Code::IOERR_READ)
    }
}

impl File for Memory {
    fn read(&mut self, offset: u64, buf: &mut [u8]) -> Result {
        self.0.read(offset, buf, &NoOriginal)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result {
        self.0.write(offset, bytes, &NoOriginal)
    }

    fn truncate(&mut self, len: u64) -> Result {
        self.0.truncate(len, &NoOriginal)
    }

    fn sync(&mut self) -> Result {
        Ok(())
    }

    fn size(&self) -> Result<u64> {
        Ok(self.0.size())
    }
}
