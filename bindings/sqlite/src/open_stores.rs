//! Which stores this process has open: connections to one file share one store. It is open to be
//! read until somebody wants to write, and to be written from then on.
//!
//! Invariant: a store in the table holds the lock of its file, and leaves the table before it
//! gives the lock back; both happen under the mutex of the table.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use esker_flash::{Error, Missing, Options, PageStore, StoreFile, decide_by_file};

use crate::code::{Code, Result};
#[cfg(feature = "testing")]
use crate::elsewhere;
use crate::ffi::process;
use crate::planted::{self, Bug};
use crate::queue::Queue;

/// What a store is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To be read.
    Read,
    /// To be read and written.
    Write(Missing),
}

/// A store.
#[derive(Debug)]
pub struct OpenStore {
    /// `None` only while it is closed.
    held: Option<Held>,
    /// Those who want to write.
    pub queue: Queue,
    /// The super-journal that decides what is prepared here, until that is done.
    awaited: Mutex<Option<Awaited>>,
}

/// A super-journal, and what became of it here.
#[derive(Debug)]
struct Awaited {
    path: Vec<u8>,
    decision: Decision,
}

/// What is known of a transaction over several files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Its super-journal is there, or there is none: if it ends now, it did not take place.
    None,
    /// SQLite has removed its super-journal: it took place, whatever comes after.
    Commit,
    /// The super-journal is gone, or perhaps gone, and not durably: the next opening finds out.
    Unknown,
}

/// A store, and where it is.
#[derive(Debug)]
enum Held {
    File(StoreFile),
    #[cfg(feature = "testing")]
    Elsewhere(PageStore),
}

impl Held {
    fn open(path: &Path, access: Access, options: &Options) -> esker_flash::Result<Self> {
        #[cfg(feature = "testing")]
        if let Some((open, name)) = elsewhere::opener(path) {
            let (file, options) = open(name, access)?;
            let store = match access {
                Access::Read => PageStore::open_read_only(file, options),
                Access::Write(_) => PageStore::open(file, options),
            };
            return store.map(Self::Elsewhere);
        }
        let file = match access {
            Access::Read => StoreFile::open_read_only(path, options.clone()),
            Access::Write(missing) => StoreFile::open(path, missing, options.clone()),
        };
        file.map(Self::File)
    }

    fn make_writable(&self, path: &Path) -> esker_flash::Result<()> {
        match self {
            Self::File(file) => file.make_writable(path),
            #[cfg(feature = "testing")]
            Self::Elsewhere(store) => match elsewhere::opener(path) {
                Some((open, name)) => {
                    store.make_writable(open(name, Access::Write(Missing::Fail))?.0)
                }
                None => Ok(()),
            },
        }
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

    fn awaited(&self) -> MutexGuard<'_, Option<Awaited>> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says which super-journal decides what is about to be prepared.
    pub fn await_decision(&self, super_journal: &[u8]) {
        let path = super_journal.to_owned();
        *self.awaited() = Some(Awaited { path, decision: Decision::None });
    }

    /// What is known of the transaction that is prepared here.
    pub fn decision(&self) -> Decision {
        self.awaited().as_ref().map_or(Decision::None, |awaited| awaited.decision)
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
/// may be made, with these options. Where it cannot be written it is opened to be read, as SQLite
/// does with files.
pub fn open(
    path: &Path,
    access: Access,
    options: &Options,
    log: &dyn Fn(Code, &str),
) -> Result<Arc<OpenStore>> {
    let opened = open_as(path, access, options);
    let opened = match opened {
        Err(error) if access != Access::Read && is_read_only(&error) && path.exists() => {
            open_as(path, Access::Read, options)
        }
        opened => opened,
    };
    opened.map_err(|error| {
        let code = Code::of_open(&error);
        log(code, &format!("{}: {error}", path.display()));
        code
    })
}

/// Whether it cannot be written, but perhaps be read.
fn is_read_only(error: &Error) -> bool {
    use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    let Error::Device(error) = error else { return false };
    matches!(error.source.kind(), PermissionDenied | ReadOnlyFilesystem)
}

fn open_as(path: &Path, access: Access, options: &Options) -> esker_flash::Result<Arc<OpenStore>> {
    let mut table = table();
    let Some(table) = table.as_mut() else { return Err(Error::Busy) };
    if let Ok(identity) = identity(path)
        && let Some(open) = table.stores.get(&identity).and_then(Weak::upgrade)
    {
        if access != Access::Read
            && let Some(held) = &open.held
        {
            held.make_writable(path)?;
        }
        table.names.insert(path.to_owned(), identity);
        return Ok(open);
    }
    let held = Held::open(path, access, options)?;
    decide(held.store(), path)?;
    let identity = identity(path).map_err(|error| {
        Error::InvalidArgument(format!("it went away while it was being opened: {error}"))
    })?;
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
    let waits = |open: Arc<OpenStore>| open.awaited().as_ref().is_some_and(|on| on.path == path);
    table().as_ref().is_some_and(|table| table.stores.values().filter_map(Weak::upgrade).any(waits))
}

/// SQLite has removed a super-journal, which commits what waits for it; or has tried to, and it is
/// not known what is there after a power cut.
pub fn super_journal_removed(path: &Path, is_sure: bool) {
    let decision = match path.try_exists() {
        _ if is_sure => Decision::Commit,
        Ok(true) => return,
        _ => Decision::Unknown,
    };
    let path = path.as_os_str().as_bytes();
    let table = table();
    let stores = table.iter().flat_map(|table| table.stores.values());
    for open in stores.filter_map(Weak::upgrade) {
        if let Some(awaited) = open.awaited().as_mut().filter(|on| on.path == path) {
            awaited.decision = decision;
        }
    }
}

/// A transaction over several files was prepared and cut off: it took place exactly when the
/// super-journal, whose removal is its commit, is gone.
fn decide(store: &PageStore, path: &Path) -> esker_flash::Result<()> {
    if planted::is(Bug::DecidedBlindly) && store.prepared().is_some() {
        return store.decide(true);
    }
    decide_by_file(store, path)
}

fn identity(path: &Path) -> std::io::Result<Identity> {
    #[cfg(feature = "testing")]
    if elsewhere::opener(path).is_some() {
        return Ok(Identity::Elsewhere(path.to_owned()));
    }
    std::fs::metadata(path).map(|metadata| Identity::File(metadata.dev(), metadata.ino()))
}
