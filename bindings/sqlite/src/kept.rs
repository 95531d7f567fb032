//! The journal of a connection, from transaction to transaction; and the super-journals that the
//! journals of this process name.
//!
//! To find out whether a super-journal is needed, SQLite asks the file system whether the journals
//! that it lists exist and name it. These journals are in no file system, so the question is
//! answered here.
//!
//! Thread safety: a journal belongs to its connection; others read only the name in it. The list's
//! mutex is released before that of a journal is taken.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use esker_pages::{PerProcess, Snapshot};

use crate::code::{Code, Result};
use crate::journal::{Journal, Original};
use crate::pages::read_pages;
use crate::planted::{self, Bug};

/// Bytes of a journal's header that are rewritten: magic number, and count of records.
const COUNT_BYTES: usize = 12;

/// A journal, and the version that its transaction began from; empty between transactions.
#[derive(Debug, Default)]
struct Held {
    journal: Journal,
    original: Option<Snapshot>,
    /// Bytes of the last write.
    written: usize,
    /// Whether it was synced before its header was rewritten.
    is_full: bool,
}

impl Held {
    fn empty(&mut self) {
        self.journal.clear();
        (self.written, self.is_full) = (0, false);
    }
}

type Shared = Arc<Mutex<Held>>;

static ALL: PerProcess<Mutex<Vec<Weak<Mutex<Held>>>>> = PerProcess::new();

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The journal that a connection keeps.
#[derive(Debug)]
pub struct Kept(Shared);

/// A journal while its connection has it open, which may be longer than a transaction.
#[derive(Debug, Default)]
pub struct OpenJournal(Shared);

impl Kept {
    /// An empty one, in the list.
    pub fn listed() -> Self {
        let held = Shared::default();
        let mut all = lock(ALL.get());
        all.retain(|held| held.strong_count() > 0);
        all.push(Arc::downgrade(&held));
        Self(held)
    }

    /// Empties the journal for a transaction that begins from `original`, or for none.
    pub fn begin(&self, original: Option<Snapshot>) {
        let mut held = lock(&self.0);
        held.empty();
        held.original = original;
    }

    /// Whether it was synced as where `synchronous` is full.
    pub fn is_full(&self) -> bool {
        lock(&self.0).is_full
    }

    /// Opens it as a file, which is empty for SQLite.
    pub fn open_empty(&self) -> OpenJournal {
        lock(&self.0).empty();
        OpenJournal(Arc::clone(&self.0))
    }
}

/// Whether an unfinished journal names this super-journal: its transaction was neither committed
/// nor rolled back.
pub fn is_named(super_journal: &Path) -> bool {
    let all: Vec<Shared> = lock(ALL.get()).iter().filter_map(Weak::upgrade).collect();
    let name = super_journal.as_os_str().as_bytes();
    let names_it = |held: &Shared| {
        let held = lock(held);
        held.journal.super_journal(&held.original).is_some_and(|named| named == name)
    };
    all.iter().any(names_it) && !planted::is(Bug::SuperJournalMissed)
}

impl OpenJournal {
    /// Fills `buf` from `offset`.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result {
        let held = lock(&self.0);
        held.journal.read(offset, buf, &held.original)
    }

    /// Writes `bytes` at `offset`.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result {
        let Held { journal, original, written, .. } = &mut *lock(&self.0);
        *written = bytes.len();
        journal.write(offset, bytes, original)
    }

    /// Notes how the pager syncs. Before it writes to the database it writes the count of records
    /// into the header and syncs; where `synchronous` is full it has synced the records before.
    pub fn sync(&self) {
        let mut held = lock(&self.0);
        if held.written != COUNT_BYTES {
            held.is_full = true;
        }
    }

    /// Truncates it to `len` bytes.
    pub fn truncate(&self, len: u64) -> Result {
        let Held { journal, original, .. } = &mut *lock(&self.0);
        journal.truncate(len, original)
    }

    /// The length of the journal, in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        lock(&self.0).journal.size()
    }
}

impl Original for Option<Snapshot> {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result {
        self.as_ref().map_or(Err(Code::IOERR_READ), |snapshot| read_pages(snapshot, offset, buf))
    }
}
