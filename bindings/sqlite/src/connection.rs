//! The main file of one connection: SQLite's locks become snapshots and transactions of the store.
//!
//! | the pager | calls | and here |
//! |---|---|---|
//! | begins to read | lock shared | the newest version is pinned |
//! | ends reading | unlock to none | the version is unpinned |
//! | begins to write | lock reserved | a transaction begins; busy if it cannot |
//! | writes pages | write, truncate | into the transaction |
//! | commit, phase one | control `SYNC`, sync | space is reserved |
//! | commit | control `COMMIT_PHASETWO` | one record, one sync; the version is published |
//! | rolls back | unlock without that control | the transaction is dropped |
//! | rolls back, keeps its lock | write of what was there | as below |
//! | reads again after an error, keeps its lock | read of the counter | it is dropped |
//!
//! The next paragraph describes the case where the super-journal of such a transaction is missing.
//!
//! From phase one on, a transaction over several files is decided by the super-journal. Once SQLite
//! has removed it, the transaction has taken place: SQLite reports no failure after that, so no
//! later step may fail. The truncation that may come before the control is a part of the commit,
//! and an unlock without the control commits as well.
//!
//! A transaction cannot begin while another one is open, or when a newer version was committed than
//! the one that was read: a refused connection waits for its turn before it asks again
//! ([`crate::waiting`]). It also cannot begin when the file has lost its name. A transaction over
//! several files is prepared in phase one, with the name of the super-journal whose removal is its
//! commit.
//!
//! `SYNC` and sync do not commit: they are also sent when a transaction that was spilled is rolled
//! back.
//!
//! With `locking_mode=exclusive` the pager keeps its lock after a commit and requests none before
//! the next transaction. The connection then remains the writer until the lock is lowered; the next
//! transaction begins from the committed version when the first page is written. The pager
//! increments the change counter only once under a lock, so it is incremented here.
//!
//! A rollback then lowers no lock either. It is recognised as follows:
//!
//! - A transaction in which a write, a truncation or phase one has failed can only be rolled back:
//!   SQLite does not continue after any of these errors, nor after it has rolled back to a
//!   savepoint. So the transaction is dropped where it fails. The pager then writes the old
//!   contents back from its journal, and finds them already there. That takes no space, which a
//!   full device would refuse.
//! - After phase one the pager writes pages only to roll back, because phase one of another file
//!   failed.
//! - Where it has no journal, or its rollback failed, the pager drops its cache and enters its
//!   state `OPEN`. It leaves that state only in `sqlite3PagerSharedLock`, the one place in SQLite
//!   that reads the [`header::CHECKED`] bytes at [`header::COUNTER`], before any page. In that
//!   state the pager has no transaction, so the transaction is dropped there. Every other read of a
//!   database by SQLite begins at a page's first byte.

use std::ffi::c_int;
use std::path::PathBuf;
use std::sync::Arc;

use esker_pages::{Durability, Error, PageStore, Process, Snapshot, Writer};

use crate::code::{Code, Result};
use crate::ffi::database::Database;
use crate::ffi::types::level;
use crate::header;
use crate::kept::{Kept, OpenJournal};
use crate::open_stores::{self, Decision, OpenStore};
use crate::pages::{is_page_size, parts, read_pages};
use crate::planted::{self, Bug};
use crate::pragma::JournalMode;
use crate::queue::{Id, Queue, Refused};
use crate::waiting;

/// The main file of a connection.
#[derive(Debug)]
pub struct Connection {
    /// `None` after closing.
    open: Option<Arc<OpenStore>>,
    /// The path by which it was opened.
    path: PathBuf,
    level: c_int,
    /// Whether only reading is allowed.
    is_read_only: bool,
    /// The one version that this connection sees: pinned by name, or of an immutable database.
    fixed: Option<Snapshot>,
    /// The version that is read, from the shared lock on.
    snapshot: Option<Snapshot>,
    /// The transaction, from the reserved lock on.
    writer: Option<Writer>,
    /// Whether a transaction under the present lock has already ended.
    is_again: bool,
    /// Whether the header that SQLite wrote differs from the one in its cache.
    is_header_altered: bool,
    /// The super-journal that decides the transaction.
    awaits: Option<Vec<u8>>,
    /// Whether SQLite asked for a sync in this transaction: it does not where `synchronous` is off.
    wants_sync: bool,
    /// Whether the pager syncs its journal as it does where `synchronous` is full.
    is_full: bool,
    /// The settings of `PRAGMA synchronous` and `PRAGMA esker_durability`.
    pub durability: Choice,
    /// The last setting of `PRAGMA journal_mode`.
    pub journal_mode: JournalMode,
    /// SQLite's connection.
    pub database: Option<Database>,
    journal: Kept,
    /// The identity of the connection in the queue of writers.
    id: Id,
    /// The refusal of a transaction, if there has been none since.
    refused: Option<Refused>,
    process: Process,
}

/// The durability of commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// From the last `PRAGMA synchronous` that SQLite accepted: whether commits may wait to become
    /// durable.
    pub is_relaxed: bool,
    /// From `PRAGMA esker_durability`, which takes precedence.
    pub forced: Option<Durability>,
}

impl Connection {
    /// A connection to a store that was opened by `path`, or to one version of it.
    pub fn new(
        open: Arc<OpenStore>,
        path: PathBuf,
        is_read_only: bool,
        fixed: Option<Snapshot>,
    ) -> Self {
        Self {
            open: Some(open),
            path,
            level: level::NONE,
            is_read_only: is_read_only || fixed.is_some(),
            fixed,
            snapshot: None,
            writer: None,
            is_again: false,
            is_header_altered: false,
            awaits: None,
            wants_sync: false,
            is_full: false,
            durability: Choice::default(),
            journal_mode: JournalMode::default(),
            database: None,
            journal: Kept::listed(),
            id: Id::unique(),
            refused: None,
            process: Process::current(),
        }
    }

    /// Whether this is a child of the process that opened it. The store then belongs to the parent:
    /// the child may neither use it nor close it, which would write to it.
    #[must_use]
    pub fn is_inherited(&self) -> bool {
        !self.process.is_current()
    }

    /// The store.
    pub fn store(&self) -> Result<&PageStore> {
        self.open.as_deref().ok_or(Code::ERROR)?.store()
    }

    /// The store, for changes.
    pub fn store_to_change(&self) -> Result<&PageStore> {
        if self.is_read_only {
            return Err(Code::READONLY);
        }
        if self.has_moved() { Err(Code::READONLY_DBMOVED) } else { self.store() }
    }

    /// Whether its file has been renamed or deleted, or another file has its name. Checked before
    /// each transaction: one system call.
    #[must_use]
    pub fn has_moved(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open_stores::has_moved(open, &self.path))
    }

    /// The present lock.
    #[must_use]
    pub const fn level(&self) -> c_int {
        self.level
    }

    /// The visible version: without a lock, the newest one.
    fn seen(&self) -> Result<Snapshot> {
        if let Some(snapshot) = self.fixed.as_ref().or(self.snapshot.as_ref()) {
            return Ok(snapshot.clone());
        }
        Ok(self.store()?.pin())
    }

    /// Pins the newest version. Where another process has prepared a transaction over several files
    /// and died, decides that first.
    fn pin(&self) -> Result<Snapshot> {
        let store = self.store()?;
        let snapshot = store.pin();
        if !store.may_be_in_doubt() {
            return Ok(snapshot);
        }
        drop(snapshot);
        // Where it cannot be decided now, the next one who comes tries again.
        let _decided = open_stores::decide(store, &self.path);
        Ok(store.pin())
    }

    /// Fills `buf` from `offset`; zeros and [`Code::SHORT_READ`] past the end.
    pub fn read(&mut self, offset: u64, buf: &mut [u8]) -> Result {
        let is_begun = (offset, buf.len()) == (header::COUNTER.into(), header::CHECKED);
        if is_begun && !planted::is(Bug::ForgottenKept) {
            self.forget_changes();
        }
        let read = match &self.writer {
            Some(writer) => read_pages(writer, offset, buf),
            None => match self.fixed.as_ref().or(self.snapshot.as_ref()) {
                Some(snapshot) => read_pages(snapshot, offset, buf),
                None => read_pages(&self.store()?.pin(), offset, buf),
            },
        };
        if !planted::is(Bug::WalKept) {
            header::without_wal(offset, buf);
        }
        read
    }

    /// The pager has no transaction any more, or one that it can only roll back, and keeps its
    /// lock: the writes are dropped. The next transaction begins with the first written page that
    /// differs from the committed one.
    fn forget_changes(&mut self) {
        if self.writer.is_some() {
            self.abandon();
            (self.is_again, self.is_header_altered) = (true, false);
        }
    }

    /// Passes an outcome on, and handles a transaction that has met an error: see
    /// [`Self::forget_changes`].
    fn or_forget<T>(&mut self, outcome: Result<T>) -> Result<T> {
        if outcome.is_err() && !planted::is(Bug::FailedKept) {
            self.forget_changes();
        }
        outcome
    }

    /// Whether these bytes are in the version that the next transaction begins from, except for
    /// older counters that the pager has kept.
    fn is_there(&self, offset: u64, bytes: &[u8]) -> Result<bool> {
        let Some(base) = self.snapshot.as_ref().filter(|_| self.level >= level::RESERVED) else {
            return Ok(false);
        };
        let mut there = vec![0; bytes.len()];
        match read_pages(base, offset, &mut there) {
            Err(Code::SHORT_READ) => return Ok(false),
            read => read?,
        }
        header::without_wal(offset, &mut there);
        Ok(header::is_there(offset, &there, bytes))
    }

    /// Writes into the transaction.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result {
        let is_prepared = self.writer.as_ref().is_some_and(Writer::is_prepared);
        let is_over = is_prepared || self.writer.is_none() && self.is_again;
        if is_over && !planted::is(Bug::PreparedKept) && self.is_there(offset, bytes)? {
            self.forget_changes();
            return Ok(());
        }
        let written = self.write_changed(offset, bytes);
        if is_prepared { written } else { self.or_forget(written) }
    }

    fn write_changed(&mut self, offset: u64, bytes: &[u8]) -> Result {
        let mut altered = Vec::new();
        let bytes = if header::asks_for_wal(offset, bytes) && !planted::is(Bug::WalKept) {
            altered.extend_from_slice(bytes);
            self.is_header_altered |= header::without_wal(offset, &mut altered);
            altered.as_slice()
        } else {
            bytes
        };
        let writer = self.writing()?;
        let failed = |error: Error| Code::of_write(&error);
        if writer.pages() == 0
            && is_page_size(bytes.len())
            && offset.is_multiple_of(bytes.len() as u64)
        {
            // The first page of a new database says how large its pages are.
            let size = u32::try_from(bytes.len()).map_err(|_| Code::IOERR_WRITE)?;
            if size != writer.page_size() {
                writer.set_page_size(size).map_err(failed)?;
            }
        }
        for part in parts(writer.page_size(), offset, bytes.len()) {
            let bytes = &bytes[part.from..part.from + part.len];
            writer.write(part.page()?, part.offset, bytes).map_err(failed)?;
        }
        Ok(())
    }

    /// The transaction. Under a lock that was kept after a commit it begins here.
    fn writing(&mut self) -> Result<&mut Writer> {
        if self.writer.is_none() && self.is_again && self.level >= level::RESERVED {
            let base = self.snapshot.as_ref().ok_or(Code::IOERR_WRITE)?;
            let store = self.store()?;
            let begun = self.queue()?.begin(self.id, || store.begin(base));
            self.writer = begun.and_then(std::result::Result::ok);
        }
        self.writer.as_mut().ok_or(Code::IOERR_WRITE)
    }

    /// Truncates the database to `bytes`.
    pub fn truncate(&mut self, bytes: u64) -> Result {
        if self.writer.is_none() && self.is_again && bytes == self.size()? {
            return Ok(());
        }
        let writer = self.writing()?;
        if planted::is(Bug::CutRefused) && writer.is_prepared() {
            return Err(Code::IOERR_WRITE);
        }
        let pages = u32::try_from(bytes.div_ceil(u64::from(writer.page_size())))
            .map_err(|_| Code::IOERR_WRITE)?;
        writer.truncate(pages).map_err(|error| Code::of_write(&error))
    }

    /// SQLite requests that the transaction is durable when it is committed.
    pub fn sync(&mut self) {
        self.wants_sync = true;
        if planted::is(Bug::CommittedAtSync) {
            let _planted = self.commit();
        }
    }

    /// Bytes of the visible database.
    pub fn size(&self) -> Result<u64> {
        let bytes = |pages: u32, page: u32| u64::from(pages) * u64::from(page);
        if let Some(writer) = &self.writer {
            return Ok(bytes(writer.pages(), writer.page_size()));
        }
        let seen = self.seen()?;
        Ok(bytes(seen.pages(), seen.page_size()))
    }

    /// Raises the lock.
    pub fn lock(&mut self, to: c_int) -> Result {
        if self.level == level::NONE && to >= level::SHARED {
            if self.fixed.is_none() {
                let snapshot = self.pin()?;
                if !snapshot.is_held() {
                    // Another process has died while it wrote, or takes one checkpoint after the
                    // other.
                    return Err(Code::BUSY);
                }
                self.snapshot = Some(snapshot);
            }
            self.level = level::SHARED;
        }
        if to >= level::RESERVED && self.writer.is_none() {
            self.begin()?;
        }
        self.level = self.level.max(to);
        Ok(())
    }

    fn begin(&mut self) -> Result {
        if self.is_read_only {
            return Err(Code::READONLY);
        }
        if self.has_moved() {
            return Err(Code::READONLY_DBMOVED);
        }
        let base = self.snapshot.as_ref().ok_or(Code::IOERR_LOCK)?;
        let store = self.store()?;
        let begun = self.queue()?.begin(self.id, || store.begin(base));
        let writer = match begun.unwrap_or(Err(Error::Busy)) {
            Ok(writer) => writer,
            Err(error) => {
                let refused = Refused::now(self.refused);
                waiting::refused(self.queue()?, self.id, refused);
                self.refused = Some(refused);
                return Err(match error {
                    Error::Busy => Code::BUSY,
                    Error::Stale { .. } => Code::BUSY_SNAPSHOT,
                    Error::ReadOnly { .. } => Code::READONLY,
                    _ => Code::IOERR_LOCK,
                });
            }
        };
        waiting::served();
        self.journal.begin(Some(base.clone()));
        self.writer = Some(writer);
        (self.wants_sync, self.is_full, self.refused) = (false, false, None);
        Ok(())
    }

    fn queue(&self) -> Result<&Arc<Queue>> {
        self.open.as_deref().map(|open| &open.queue).ok_or(Code::ERROR)
    }

    /// The prepared transaction is decided, or is left to the next opening.
    fn ended(&mut self) {
        if let Some((open, awaits)) = self.open.as_ref().zip(self.awaits.take()) {
            open.ended(&awaits);
        }
    }

    /// Allows the next connection to write.
    fn leave_queue(&self) {
        if let Ok(queue) = self.queue() {
            queue.end(self.id);
        }
    }

    /// Lowers the lock. A transaction that was not committed is dropped, unless its super-journal
    /// has been removed.
    pub fn unlock(&mut self, to: c_int) {
        if to < level::RESERVED && self.level >= level::RESERVED {
            self.journal.begin(None);
            self.abandon();
            (self.is_again, self.is_header_altered) = (false, false);
            self.leave_queue();
        }
        if to == level::NONE {
            self.snapshot = None;
            if self.refused.is_some() {
                self.leave_queue();
            }
        }
        self.level = self.level.min(to);
    }

    /// Ends a transaction that SQLite has not committed.
    fn abandon(&mut self) {
        if planted::is(Bug::AbandonedCommitted) {
            let _planted = self.commit();
        }
        let is_prepared = self.writer.as_ref().is_some_and(Writer::is_prepared);
        let decided = self.open.as_deref().zip(self.awaits.as_deref()).filter(|_| is_prepared);
        let decision = decided.map_or(Decision::None, |(open, awaits)| open.decision(awaits));
        let decision = if planted::is(Bug::CutRefused) { Decision::None } else { decision };
        if decision == Decision::Commit {
            // What is prepared cannot fail.
            let _committed = self.commit();
        }
        let Some(writer) = self.writer.take() else { return };
        if decision == Decision::Unknown && !planted::is(Bug::DoubtForgotten) {
            writer.leave_undecided();
        } else {
            writer.abort();
        }
        self.ended();
    }

    /// Whether a connection writes, or may.
    pub fn has_writer(&self) -> Result<bool> {
        Ok(self.store()?.has_writer() || self.queue()?.has_writer())
    }

    /// Phase one: afterwards the commit does not fail for lack of space. With the name of a
    /// super-journal the transaction is prepared, durably.
    pub fn reserve(&mut self, super_journal: Option<&[u8]>) -> Result {
        let reserved = self.try_reserve(super_journal);
        self.or_forget(reserved)
    }

    fn try_reserve(&mut self, super_journal: Option<&[u8]>) -> Result {
        self.move_counter()?;
        let Some(writer) = self.writer.as_mut() else { return Ok(()) };
        self.is_full |= self.journal.is_full();
        let failed = |error: Error| Code::of_write(&error);
        writer.reserve().map_err(failed)?;
        let super_journal = super_journal.filter(|_| !planted::is(Bug::NotPrepared));
        let Some(name) = super_journal else { return Ok(()) };
        if let Some(open) = &self.open {
            open.await_decision(name);
        }
        self.awaits = Some(name.to_owned());
        writer.prepare(name).map_err(failed)
    }

    /// Increments the change counter where SQLite has not, or has written a header that differs
    /// from the one in its cache: stale caches are then dropped.
    fn move_counter(&mut self) -> Result {
        let is_due = self.is_header_altered || self.is_again && !planted::is(Bug::CounterKept);
        let Some(writer) = self.writer.as_mut().filter(|writer| writer.pages() > 0) else {
            return Ok(());
        };
        if !is_due || writer.is_prepared() {
            return Ok(());
        }
        let number = |pages: &dyn Fn(&mut [u8]) -> Result| {
            let mut bytes = [0; 4];
            pages(&mut bytes).map(|()| u32::from_be_bytes(bytes))
        };
        let now = number(&|buf| read_pages(writer, header::COUNTER.into(), buf))?;
        let valid_for = number(&|buf| read_pages(writer, header::VALID_FOR.into(), buf))?;
        let base = self.snapshot.as_ref().filter(|base| base.pages() > 0);
        let was = base.map(|base| number(&|buf| read_pages(base, header::COUNTER.into(), buf)));
        let was = was.transpose()?.unwrap_or(0);
        if now > was && !self.is_header_altered {
            return Ok(());
        }
        let next = now.max(was).wrapping_add(1).to_be_bytes();
        let failed = |error: Error| Code::of_write(&error);
        if valid_for == now {
            writer.write(0, header::VALID_FOR, &next).map_err(failed)?;
        }
        writer.write(0, header::COUNTER, &next).map_err(failed)?;
        self.is_header_altered = false;
        Ok(())
    }

    /// Phase two: commits the writes. The pager may keep its lock.
    pub fn end_transaction(&mut self) -> Result {
        let committed = self.commit();
        self.is_again = true;
        committed
    }

    /// Commits the writes.
    pub fn commit(&mut self) -> Result {
        let Some(writer) = self.writer.take() else { return Ok(()) };
        let is_relaxed = self.durability.is_relaxed && !self.is_full;
        let relaxed = is_relaxed || !self.wants_sync;
        let chosen = if relaxed { Durability::Relaxed } else { Durability::Full };
        let durability = self.durability.forced.unwrap_or(chosen);
        let committed = writer.commit(durability);
        self.ended();
        (self.wants_sync, self.is_full, self.is_header_altered) = (false, false, false);
        let committed = committed.map_err(|error| match Code::of_write(&error) {
            _ if planted::is(Bug::CacheKept) => Code::ERROR,
            code => code,
        })?;
        // The pager has finished the journal before it commits.
        self.journal.begin(Some(committed.clone()));
        self.snapshot = Some(committed);
        Ok(())
    }

    /// The journal of this connection.
    #[must_use]
    pub fn open_journal(&self) -> OpenJournal {
        // Under a lock that is kept SQLite may have removed the last one.
        self.journal.open_empty()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.unlock(level::NONE);
        self.fixed = None;
        if let Some(open) = self.open.take() {
            open_stores::close(open, &self.path);
        }
    }
}
