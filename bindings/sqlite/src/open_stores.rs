//! Which stores this process has open: connections to one file share one store.
//!
//! Invariant: a store in the table holds the lock of its file, and leaves the table before it
//! gives the lock back; both happen under the mutex of the table.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use esker_flash::{Missing, Options, PageStore, StoreFile};

use crate::code::{Code, Result};
use crate::ffi::process;
use crate::queue::Queue;

/// A store; the file is `None` only while it is closed.
#[derive(Debug)]
pub struct OpenStore {
    file: Option<StoreFile>,
    /// Those who want to write.
    pub queue: Queue,
}

impl OpenStore {
    /// The store.
    pub fn store(&self) -> Result<&PageStore> {
        self.file.as_ref().map(|file| &file.store).ok_or(Code::ERROR)
    }
}

impl Drop for OpenStore {
    fn drop(&mut self) {
        // What fails here was durable before, or was promised to nobody.
        let _closed = self.file.take().map(StoreFile::close);
    }
}

/// A file, whatever it is called: device and inode.
type Identity = (u64, u64);

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
    let opened = StoreFile::open(path, missing, Options::default()).and_then(|file| {
        decide(&file.store, path)?;
        Ok(file)
    });
    let file = opened.map_err(|error| {
        let code = Code::of_open(&error);
        log(code, &format!("{}: {error}", path.display()));
        code
    })?;
    let identity = identity(path).map_err(|_| Code::CANTOPEN)?;
    let open = Arc::new(OpenStore { file: Some(file), queue: Queue::default() });
    table.stores.insert(identity, Arc::downgrade(&open));
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

/// A transaction over several files was prepared and cut off: it took place exactly when the
/// super-journal, whose removal is its commit, is gone.
fn decide(store: &PageStore, path: &Path) -> esker_flash::Result<()> {
    let Some(name) = store.prepared() else { return Ok(()) };
    let name = String::from_utf8_lossy(&name).into_owned();
    let there = path.parent().unwrap_or_else(|| Path::new(".")).join(name);
    store.decide(!there.exists())
}

fn identity(path: &Path) -> std::io::Result<Identity> {
    std::fs::metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}
