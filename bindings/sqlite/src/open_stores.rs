//! Which stores this process has open: connections to one file share one store.
//!
//! Invariant: a store in the table holds the lock of its file, and leaves the table before it
//! gives the lock back; both happen under the mutex of the table.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use esker_flash::{Missing, Options, PageStore, StoreFile};

use crate::code::{Code, Result};
#[cfg(feature = "testing")]
use crate::elsewhere;
use crate::ffi::process;
use crate::planted::{self, Bug};
use crate::queue::Queue;

/// A store.
#[derive(Debug)]
pub struct OpenStore {
    /// `None` only while it is closed.
    held: Option<Held>,
    /// Those who want to write.
    pub queue: Queue,
    /// The super-journal that decides what is prepared here, until that is done.
    awaited: Mutex<Option<Vec<u8>>>,
}

/// A store, and where it is.
#[derive(Debug)]
enum Held {
    File(StoreFile),
    #[cfg(feature = "testing")]
    Elsewhere(PageStore),
}

impl Held {
    fn open(path: &Path, missing: Missing) -> esker_flash::Result<Self> {
        #[cfg(feature = "testing")]
        if let Some((open, name)) = elsewhere::opener(path) {
            return open(name, missing).map(Self::Elsewhere);
        }
        StoreFile::open(path, missing, Options::default()).map(Self::File)
    }

    fn store(&self) -> &PageStore {
        match self {
            Self::File(file) => &file.store,
            #[cfg(feature = "testing")]
            Self::Elsewhere(store) => store,
        }
    }

    fn close(self) -> esker_flash::Result<()> {
        match self {
            Self::File(file) => file.close(),
            #[cfg(feature = "testing")]
            Self::Elsewhere(store) => store.close(),
        }
    }
}

impl OpenStore {
    /// The store.
    pub fn store(&self) -> Result<&PageStore> {
        self.held.as_ref().map(Held::store).ok_or(Code::ERROR)
    }

    fn awaited(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says which super-journal decides what is about to be prepared.
    pub fn await_decision(&self, super_journal: &[u8]) {
        *self.awaited() = Some(super_journal.to_owned());
    }

    /// A writer has ended: its super-journal is not needed any more, if its decision is written.
    pub fn ended(&self) {
        let mut awaited = self.awaited();
        if awaited.is_some() && self.store().is_ok_and(|store| store.prepared().is_none()) {
            *awaited = None;
        }
    }
}

impl Drop for OpenStore {
    fn drop(&mut self) {
        // What fails here was durable before, or was promised to nobody.
        let _closed = self.held.take().map(Held::close);
    }
}

/// A file, whatever it is called.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Identity {
    /// Device and inode.
    File(u64, u64),
    #[cfg(feature = "testing")]
    Elsewhere(PathBuf),
}

/// What is open in one process.
#[derive(Debug, Default)]
struct Table {
    /// Which process: what a child inherits by `fork` is the parent's.
    process: u32,
    stores: HashMap<Identity, Weak<OpenStore>>,
    /// By which paths they were opened, so that SQLite's questions for journals beside them, two a
    /// transaction, cost no call of the system.
    names: HashMap<PathBuf, Identity>,
}

static TABLE: Mutex<Option<Table>> = Mutex::new(None);

fn table() -> MutexGuard<'static, Option<Table>> {
    let mut table = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
    let process = process::id();
    if table.as_ref().is_none_or(|table| table.process != process) {
        *table = Some(Table { process, ..Table::default() });
    }
    table
}

/// Opens the store at `path`, or shares it where it is open; makes it where it is not there and
/// may be made.
pub fn open(path: &Path, missing: Missing, log: &dyn Fn(Code, &str)) -> Result<Arc<OpenStore>> {
    let mut table = table();
    let table = table.as_mut().ok_or(Code::ERROR)?;
    if let Ok(identity) = identity(path)
        && let Some(open) = table.stores.get(&identity).and_then(Weak::upgrade)
    {
        table.names.insert(path.to_owned(), identity);
        return Ok(open);
    }
    let opened = Held::open(path, missing).and_then(|held| {
        decide(held.store(), path)?;
        Ok(held)
    });
    let held = opened.map_err(|error| {
        let code = Code::of_open(&error);
        log(code, &format!("{}: {error}", path.display()));
        code
    })?;
    let identity = identity(path).map_err(|_| Code::CANTOPEN)?;
    let open = Arc::new(OpenStore {
        held: Some(held),
        queue: Queue::default(),
        awaited: Mutex::default(),
    });
    table.stores.insert(identity.clone(), Arc::downgrade(&open));
    table.names.insert(path.to_owned(), identity);
    Ok(open)
}

/// Gives a share back. The last one closes the store, before anybody else can open it.
pub fn close(open: Arc<OpenStore>) {
    let mut table = table();
    drop(open);
    if let Some(Table { stores, names, .. }) = table.as_mut() {
        stores.retain(|_, open| open.strong_count() > 0);
        names.retain(|_, identity| stores.contains_key(identity));
    }
}

/// Whether a store is open here by that path.
#[must_use]
pub fn is_open(path: &Path) -> bool {
    table().as_ref().is_some_and(|table| table.names.contains_key(path))
}

/// Whether something is prepared here that waits for this super-journal.
#[must_use]
pub fn is_awaited(path: &Path) -> bool {
    if planted::is(Bug::SuperJournalRemoved) {
        return false;
    }
    let path = path.as_os_str().as_bytes();
    let waits = |open: Arc<OpenStore>| open.awaited().as_deref() == Some(path);
    table().as_ref().is_some_and(|table| table.stores.values().filter_map(Weak::upgrade).any(waits))
}

/// A transaction over several files was prepared and cut off: it took place exactly when the
/// super-journal, whose removal is its commit, is gone.
fn decide(store: &PageStore, path: &Path) -> esker_flash::Result<()> {
    let Some(name) = store.prepared() else { return Ok(()) };
    let name = String::from_utf8_lossy(&name).into_owned();
    let place = path.parent().unwrap_or_else(|| Path::new(".")).join(name);
    // Where that cannot be found out, nothing is decided.
    let is_there = place.try_exists().map_err(|error| {
        let what = format!("cannot look for the super-journal {}: {error}", place.display());
        esker_flash::Error::InvalidArgument(what)
    })?;
    store.decide(!is_there || planted::is(Bug::DecidedBlindly))
}

fn identity(path: &Path) -> std::io::Result<Identity> {
    #[cfg(feature = "testing")]
    if elsewhere::opener(path).is_some() {
        return Ok(Identity::Elsewhere(path.to_owned()));
    }
    std::fs::metadata(path).map(|metadata| Identity::File(metadata.dev(), metadata.ino()))
}
