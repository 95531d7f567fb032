//! The stores that this process has open: connections to one file share one store. It is open for
//! reading until a connection wants to write, and for writing from then on.
//!
//! A file is identified by its device and inode, whatever its names are and whatever they come to
//! lead to. The slow steps, opening and closing and waiting for another process, happen in the
//! file's place in the table: users of another file do not wait for them.
//!
//! Invariants:
//! - the table's mutex, and the one of a place's awaited super-journal, are held only for steps
//!   in memory. While the table's mutex is held, no mutex but the second is locked; while the
//!   second is held, none is.
//! - one thread at a time opens, closes or waits for the store of a place, and the place's
//!   state records it; the others wait, those with less patience only while there is a lock to wait
//!   for.
//! - a place is in the table while any thread has it, so that there is one for a file.
//! - the table belongs to this process: a child created by `fork` has an empty one, and waits
//!   for no thread of its parent.

use std::collections::HashMap;
use std::mem;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use esker_pages::{
    Error, FileId, LockedFile, Missing, Options, PageStore, PerProcess, Processes, StoreFile,
    decide_by_file, make_missing,
};

use crate::code::{Code, Result};
use crate::planted::{self, Bug};
use crate::queue::Queue;
#[cfg(feature = "testing")]
use crate::test_mount;

/// The largest number of times that a file may be replaced while it is being opened.
const REPLACED_MAX: u32 = 100;
/// The time that a connection that wants to write waits before it checks again whether the last
/// reader has left.
const PAUSE: Duration = Duration::from_millis(5);

/// The purpose of an opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// For reading.
    Read,
    /// For reading and writing.
    Write(Missing),
}

/// A store.
#[derive(Debug)]
pub struct OpenStore {
    /// `None` only while it is closed.
    held: Option<Held>,
    identity: Identity,
    place: Arc<Place>,
    /// Held while the store is made writable.
    raising: Mutex<()>,
    /// The queue of writers.
    pub queue: Arc<Queue>,
}

/// A super-journal, and its known state.
#[derive(Debug)]
struct Awaited {
    path: Vec<u8>,
    decision: Decision,
}

/// The known state of a transaction over several files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Its super-journal exists, or there is none: if the transaction ends now, it did not take
    /// place.
    None,
    /// SQLite has removed its super-journal: the transaction took place, whatever follows.
    Commit,
    /// The super-journal is removed, or may be, but not durably: the next opening finds out.
    Unknown,
}

/// A store, and its place.
#[derive(Debug)]
enum Held {
    File(StoreFile),
    #[cfg(feature = "testing")]
    TestMount(PageStore),
}

impl Held {
    fn make_writable(&self, path: &Path) -> esker_pages::Result<()> {
        match self {
            Self::File(file) => file.make_writable(path),
            #[cfg(feature = "testing")]
            Self::TestMount(store) => match test_mount::opener(path) {
                Some((open, name)) => {
                    store.make_writable(open(name, Access::Write(Missing::Fail))?.0)
                }
                None => Ok(()),
            },
        }
    }

    fn is_waited_for(&self) -> bool {
        match self {
            Self::File(file) => file.is_waited_for(),
            #[cfg(feature = "testing")]
            Self::TestMount(_) => false,
        }
    }

    fn store(&self) -> &PageStore {
        match self {
            Self::File(file) => &file.store,
            #[cfg(feature = "testing")]
            Self::TestMount(store) => store,
        }
    }

    fn close(self) -> esker_pages::Result<()> {
        match self {
            Self::File(file) => file.close(),
            #[cfg(feature = "testing")]
            Self::TestMount(store) => store.close(),
        }
    }
}

impl OpenStore {
    /// The store.
    pub fn store(&self) -> Result<&PageStore> {
        self.held.as_ref().map(Held::store).ok_or(Code::ERROR)
    }

    /// Records which super-journal decides the transaction that is about to be prepared.
    pub fn await_decision(&self, super_journal: &[u8]) {
        let path = super_journal.to_owned();
        *lock(&self.place.awaited) = Some(Awaited { path, decision: Decision::None });
    }

    /// The known state of the transaction that this super-journal decides.
    pub fn decision(&self, super_journal: &[u8]) -> Decision {
        let awaited = lock(&self.place.awaited);
        let awaited = awaited.as_ref().filter(|awaited| awaited.path == super_journal);
        awaited.map_or(Decision::None, |awaited| awaited.decision)
    }

    /// Called when a writer has ended: its super-journal is no longer needed, if its decision is
    /// written. The next writer may have begun already, and wait for another super-journal.
    pub fn ended(&self, super_journal: &[u8]) {
        // What a failing device has of a preparation may be found by the next opening.
        let is_open = |store: &PageStore| {
            let is_doubtful = store.poisoned().is_some() && !planted::is(Bug::PreparationForgotten);
            is_doubtful || store.prepared().is_some()
        };
        let is_open = self.store().is_ok_and(is_open);
        let mut awaited = lock(&self.place.awaited);
        if !is_open {
            awaited.take_if(|awaited| awaited.path == super_journal);
        }
    }
}

impl Drop for OpenStore {
    fn drop(&mut self) {
        // A close may fail here, but no durability that was promised depends on it.
        let _closed = self.held.take().map(Held::close);
    }
}

/// A file, whatever its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Identity {
    File(FileId),
    #[cfg(feature = "testing")]
    TestMount(PathBuf),
}

/// The place where the store of one file is opened, shared and closed.
#[derive(Debug, Default)]
struct Place {
    state: Mutex<State>,
    /// Signalled when the state has changed.
    changed: Condvar,
    /// The super-journal that decides the transaction prepared here, until it is decided.
    awaited: Mutex<Option<Awaited>>,
}

/// The state of a place.
#[derive(Debug, Default)]
enum State {
    #[default]
    Closed,
    /// A thread waits for another process.
    Waiting,
    /// A thread opens or closes it.
    Changing,
    /// A store, and how many connections share it.
    Open(Arc<OpenStore>, usize),
}

impl Place {
    fn set(&self, state: State) {
        *lock(&self.state) = state;
        self.changed.notify_all();
    }
}

/// A place that is closed when this is dropped, for whatever reason.
struct Change<'a>(&'a Place);

impl Change<'_> {
    fn into(self, state: State) {
        self.0.set(state);
        mem::forget(self);
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.0.set(State::Closed);
    }
}

/// The open stores of one process.
#[derive(Debug, Default)]
struct Table {
    places: HashMap<Identity, Arc<Place>>,
    /// The paths by which it was opened, each with its number of connections. With them SQLite's
    /// lookups of the journals next to those paths, two per transaction, need no system call.
    names: HashMap<PathBuf, usize>,
}

static TABLE: PerProcess<Mutex<Table>> = PerProcess::new();

fn table() -> MutexGuard<'static, Table> {
    lock(TABLE.get())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens the store at `path`, or shares it if it is open; creates it with these options if it does
/// not exist and may be created. Where it cannot be written it is opened for reading, as SQLite
/// does with files. Waits for other processes that have it, for a limited time.
pub fn open(
    path: &Path,
    access: Access,
    options: &Options,
    patience: Duration,
    log: &dyn Fn(Code, &str),
) -> Result<Arc<OpenStore>> {
    let wanted = Wanted { path, options, begun: Instant::now(), patience };
    let opened = wanted.open(access);
    let opened = match opened {
        Err(error) if access != Access::Read && is_read_only(&error) && path.exists() => {
            wanted.open(Access::Read)
        }
        opened => opened,
    };
    let opened = opened.map_err(|error| {
        let code = Code::of_open(&error);
        log(code, &format!("{}: {error}", path.display()));
        code
    })?;
    *table().names.entry(path.to_owned()).or_insert(0) += 1;
    Ok(opened)
}

/// Whether it cannot be written, but possibly be read.
fn is_read_only(error: &Error) -> bool {
    use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    let Error::Device(error) = error else { return false };
    matches!(error.source.kind(), PermissionDenied | ReadOnlyFilesystem)
}

/// A store that is to be opened.
struct Wanted<'a> {
    path: &'a Path,
    options: &'a Options,
    begun: Instant,
    patience: Duration,
}

impl Wanted<'_> {
    fn left(&self) -> Duration {
        self.patience.saturating_sub(self.begun.elapsed())
    }

    fn open(&self, access: Access) -> esker_pages::Result<Arc<OpenStore>> {
        for _ in 0..REPLACED_MAX {
            if access == Access::Write(Missing::Create) && !is_elsewhere(self.path) {
                make_missing(self.path)?;
            }
            let Ok(identity) = identity(self.path) else {
                // Locking it says why, unless it is there by now.
                self.lock(access, Duration::ZERO)?;
                continue;
            };
            let place = Arc::clone(table().places.entry(identity.clone()).or_default());
            let opened = self.open_at(&place, &identity, access);
            forget(&identity, &place);
            if let Some(opened) = opened? {
                return Ok(opened);
            }
        }
        Err(Error::InvalidArgument("it is replaced again and again while it is opened".to_owned()))
    }

    /// Opens it in its place, or shares it; `None` where its path now leads to another file.
    fn open_at(
        &self,
        place: &Arc<Place>,
        identity: &Identity,
        access: Access,
    ) -> esker_pages::Result<Option<Arc<OpenStore>>> {
        let mut state = lock(&place.state);
        loop {
            match &mut *state {
                State::Open(open, shares) => {
                    *shares += 1;
                    let open = Arc::clone(open);
                    drop(state);
                    return match self.raise(&open, access) {
                        Ok(()) => Ok(Some(open)),
                        Err(error) => {
                            give_back(open);
                            Err(error)
                        }
                    };
                }
                State::Closed => break,
                State::Waiting if self.left().is_zero() => return Err(self.is_waited_for()),
                State::Waiting => {
                    let waited = place.changed.wait_timeout(state, self.left());
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                State::Changing => {
                    state = place.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
        *state = State::Changing;
        drop(state);
        let change = Change(place);
        let locked = self.wait_at(place, access)?;
        if locked.identity() != *identity {
            return Ok(None);
        }
        let held = locked.open(self.options)?;
        decide(held.store(), self.path)?;
        let open = Arc::new(OpenStore {
            held: Some(held),
            identity: identity.clone(),
            place: Arc::clone(place),
            raising: Mutex::default(),
            queue: Arc::default(),
        });
        change.into(State::Open(Arc::clone(&open), 1));
        Ok(Some(open))
    }

    /// Locks the file. Records when that takes a while, because others may have less patience.
    fn wait_at(&self, place: &Place, access: Access) -> esker_pages::Result<Locked> {
        match self.lock(access, Duration::ZERO) {
            Err(Error::Locked { .. }) if !self.left().is_zero() => {
                place.set(State::Waiting);
                let waited = self.lock(access, self.left());
                place.set(State::Changing);
                waited
            }
            at_once => at_once,
        }
    }

    fn is_waited_for(&self) -> Error {
        let how = "open in another process, and another opening waits for it already";
        Error::Locked { file: self.path.display().to_string(), how }
    }

    /// Makes an open store writable, if that is wanted. While others read it, this waits, but only
    /// as long as no other process waits for it: requesting the exclusive lock releases the shared
    /// one for a moment, and another process may take it.
    fn raise(&self, open: &OpenStore, access: Access) -> esker_pages::Result<()> {
        let Some(held) = open.held.as_ref().filter(|_| access != Access::Read) else {
            return Ok(());
        };
        loop {
            let raised = {
                let _alone = lock(&open.raising);
                held.make_writable(self.path)
            };
            match raised {
                Err(Error::Locked { .. }) if !self.left().is_zero() && !held.is_waited_for() => {
                    thread::sleep(PAUSE.min(self.left()));
                }
                raised => return raised,
            }
        }
    }

    fn lock(&self, access: Access, patience: Duration) -> esker_pages::Result<Locked> {
        #[cfg(feature = "testing")]
        if let Some((open, name)) = test_mount::opener(self.path) {
            let (file, options) = open(name, access)?;
            return Ok(Locked::TestMount(self.path.to_owned(), file, options, access));
        }
        if self.options.processes == Processes::Many {
            let how = match access {
                Access::Read => esker_pages::FileAccess::Read,
                Access::Write(_) => esker_pages::FileAccess::Write,
            };
            let locked = LockedFile::to_share(self.path, how, Missing::Fail, patience);
            return locked.map(Locked::File);
        }
        match access {
            Access::Read => LockedFile::to_read(self.path, patience),
            // A file that was to be created exists by now; if it was removed in the meantime, this
            // fails.
            Access::Write(_) => LockedFile::to_write(self.path, Missing::Fail, patience),
        }
        .map(Locked::File)
    }
}

/// A file that this process has locked, and that is not open as a store yet.
enum Locked {
    File(LockedFile),
    #[cfg(feature = "testing")]
    TestMount(PathBuf, Arc<dyn esker_pages::DeviceFile>, Options, Access),
}

impl Locked {
    fn identity(&self) -> Identity {
        match self {
            Self::File(file) => Identity::File(file.id()),
            #[cfg(feature = "testing")]
            Self::TestMount(path, ..) => Identity::TestMount(path.clone()),
        }
    }

    fn open(self, options: &Options) -> esker_pages::Result<Held> {
        match self {
            Self::File(file) => file.open(options.clone()).map(Held::File),
            #[cfg(feature = "testing")]
            Self::TestMount(_, file, options, access) => match access {
                Access::Read => PageStore::open_read_only(file, options),
                Access::Write(_) => PageStore::open(file, options),
            }
            .map(Held::TestMount),
        }
    }
}

/// Returns a share of a store that was opened by `path`. The last one closes it, before another
/// thread can open it.
pub fn close(open: Arc<OpenStore>, path: &Path) {
    {
        let mut table = table();
        if let Some(count) = table.names.get_mut(path) {
            *count -= 1;
            if *count == 0 {
                table.names.remove(path);
            }
        }
    }
    give_back(open);
}

fn give_back(open: Arc<OpenStore>) {
    let (place, identity) = (Arc::clone(&open.place), open.identity.clone());
    // So that the one in its place is the last.
    drop(open);
    let last = {
        let mut state = lock(&place.state);
        match &mut *state {
            State::Open(_, shares) if *shares > 1 => {
                *shares -= 1;
                None
            }
            State::Open(..) => Some(mem::replace(&mut *state, State::Changing)),
            _ => None,
        }
    };
    if last.is_some() {
        let change = Change(&place);
        drop(last);
        drop(change);
    }
    forget(&identity, &place);
}

/// Removes a place from the table if no other thread has it.
fn forget(identity: &Identity, place: &Arc<Place>) {
    let mut table = table();
    // The table's, and this one.
    if Arc::strong_count(place) == 2 {
        table.places.remove(identity);
    }
}

/// Whether the path by which a store was opened now leads to another file, or to none: a later
/// opening by that path would not find what is written.
#[must_use]
pub fn has_moved(open: &OpenStore, path: &Path) -> bool {
    !planted::is(Bug::MovedUnnoticed) && identity(path).ok().as_ref() != Some(&open.identity)
}

/// Whether a store is open here by that path.
#[must_use]
pub fn is_open(path: &Path) -> bool {
    table().names.contains_key(path)
}

/// Whether a transaction that waits for this super-journal is prepared here.
#[must_use]
pub fn is_awaited(path: &Path) -> bool {
    awaits(path, |_| true)
}

/// Whether a transaction is prepared here whose super-journal SQLite has removed, or tried to
/// remove.
#[must_use]
pub fn is_decided(path: &Path) -> bool {
    awaits(path, |on| on.decision != Decision::None)
}

fn awaits(path: &Path, is_meant: impl Fn(&Awaited) -> bool) -> bool {
    let path = path.as_os_str().as_bytes();
    let waits = |place: &Arc<Place>| {
        lock(&place.awaited).as_ref().is_some_and(|on| on.path == path && is_meant(on))
    };
    table().places.values().any(waits)
}

/// Called when SQLite has removed a super-journal, which commits the transactions that wait for it;
/// or has tried to, and it is unknown whether it exists after a power failure.
pub fn super_journal_removed(path: &Path, is_sure: bool) {
    let decision = match path.try_exists() {
        _ if is_sure => Decision::Commit,
        Ok(true) => return,
        _ => Decision::Unknown,
    };
    let path = path.as_os_str().as_bytes();
    for place in table().places.values() {
        if let Some(awaited) = lock(&place.awaited).as_mut().filter(|on| on.path == path) {
            awaited.decision = decision;
        }
    }
}

/// A transaction over several files was prepared and interrupted: it took place exactly when the
/// super-journal, whose removal is its commit, does not exist.
pub fn decide(store: &PageStore, path: &Path) -> esker_pages::Result<()> {
    if planted::is(Bug::DecidedBlindly) && store.prepared().is_some() {
        return store.decide(true);
    }
    decide_by_file(store, path)
}

fn identity(path: &Path) -> std::io::Result<Identity> {
    #[cfg(feature = "testing")]
    if test_mount::opener(path).is_some() {
        return Ok(Identity::TestMount(path.to_owned()));
    }
    FileId::at(path).map(Identity::File)
}

fn is_elsewhere(path: &Path) -> bool {
    #[cfg(feature = "testing")]
    if test_mount::opener(path).is_some() {
        return true;
    }
    let _ = path;
    false
}
