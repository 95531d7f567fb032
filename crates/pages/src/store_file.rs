//! A store at a path, which one process has open for writing, or several for reading.
//!
//! The lock is a [`LockFile`], shared between processes that only read. An opening may wait for the
//! lock, and the waiting openings get it in order of arrival.
//!
//! With [`Processes::Many`], several processes have a store open and take turns at writing it
//! (`sharing`).
//!
//! A name may lead to another file at any moment: the open file is the one that was locked, and it
//! is compared with the name after it is locked ([`FileId`]).

use std::ffi::OsStr;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use esker_device::file::lock::{Lock, LockFile, Waited};
use esker_device::file::{Access, FileDevice};
use esker_device::{Device, DeviceError, Operation};
use rustix::fs::{OFlags, fstat};
use rustix::io::Errno;

use crate::error::{Error, Result, invalid};
use crate::options::{Options, Processes};
use crate::planted::{self, Bug};
use crate::store::PageStore;

mod sharing;

pub use sharing::can_be_shared;
use sharing::{Meeting, check_unshared};

/// The largest number of times that a file may be replaced while it is being opened.
const REPLACED_MAX: u32 = 100;

/// The action where there is no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Make one.
    Create,
    /// Fail.
    Fail,
}

/// The identity of a file, whatever its name: its device and inode. No other file has them while it
/// is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId(u64, u64);

impl FileId {
    /// The file that a path leads to.
    ///
    /// # Errors
    /// Those of the system.
    pub fn at(path: &Path) -> io::Result<Self> {
        path.metadata().map(|metadata| Self::of(&metadata))
    }

    fn of(metadata: &Metadata) -> Self {
        Self(metadata.dev(), metadata.ino())
    }

    /// An open file.
    fn of_open(file: impl AsFd) -> std::result::Result<Self, Errno> {
        fstat(file).map(|stat| Self(stat.st_dev, stat.st_ino))
    }
}

/// The file of a store that is locked, and not opened as a store yet.
#[derive(Debug)]
pub struct LockedFile {
    path: PathBuf,
    access: Access,
    lock: LockFile,
    id: FileId,
    /// The meeting with other processes that share it.
    meeting: Option<Meeting>,
}

/// A store and the lock of its file, which is released last.
#[derive(Debug)]
pub struct StoreFile {
    /// The store.
    pub store: PageStore,
    held: HeldFile,
}

/// The lock of a store's file, and the meeting with others that share it. Dropped after the store.
#[derive(Debug)]
struct HeldFile {
    lock: LockFile,
    meeting: Option<Meeting>,
}

impl Drop for HeldFile {
    fn drop(&mut self) {
        if let Some(meeting) = &self.meeting {
            meeting.leave(&self.lock);
        }
    }
}

impl LockedFile {
    /// Locks the file at `path` for reading and writing, or creates it there. Waits at most
    /// `patience` for other openings, in the order in which processes came.
    ///
    /// # Errors
    /// [`Error::Locked`] where another process, or another [`StoreFile`] of this one, still has it
    /// open; [`Error::Interrupted`] when a signal came whose handler does not restart system calls;
    /// those of the device.
    pub fn to_write(path: &Path, missing: Missing, patience: Duration) -> Result<Self> {
        Self::new(path, Access::Write, missing, patience)
    }

    /// Locks the existing file at `path` for reading, shared with other readers. Waits as
    /// [`LockedFile::to_write`] does.
    ///
    /// # Errors
    /// As [`LockedFile::to_write`].
    pub fn to_read(path: &Path, patience: Duration) -> Result<Self> {
        Self::new(path, Access::Read, Missing::Fail, patience)
    }

    fn new(path: &Path, access: Access, missing: Missing, patience: Duration) -> Result<Self> {
        let begun = Instant::now();
        for _ in 0..REPLACED_MAX {
            if missing == Missing::Create {
                make_missing(path)?;
            }
            let lock = LockFile::open(|| open_to_lock(path, access))?;
            let left = patience.saturating_sub(begun.elapsed());
            wait_for(&lock, path, access, left)?;
            let id = FileId::of_open(&lock).map_err(|errno| failed(path, errno.into()))?;
            match FileId::at(path) {
                Ok(found) if found == id => {
                    check_unshared(path, id)?;
                    return Ok(Self { path: path.to_owned(), access, lock, id, meeting: None });
                }
                // It was replaced or removed in the meantime.
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed(path, error).into()),
            }
        }
        let why = io::Error::other("it is replaced again and again");
        Err(failed(path, why).into())
    }

    /// Locks the store at `path`, or creates it there, for a process that shares it with others.
    /// For reading only, this is [`LockedFile::to_read`] where the process cannot take part: the
    /// meeting file cannot be made, or a process has the store open that does not share it.
    ///
    /// # Errors
    /// As [`LockedFile::to_write`], where a process has it open that does not share it;
    /// [`Error::InvalidArgument`] on a file system of a network.
    #[doc(hidden)]
    pub fn to_share(
        path: &Path,
        access: Access,
        missing: Missing,
        patience: Duration,
    ) -> Result<Self> {
        let locked = match access {
            Access::Read => sharing::lock_to_read(path, patience)?,
            Access::Write => Some(sharing::lock(path, access, missing, patience)?),
        };
        let Some((lock, meeting)) = locked else { return Self::to_read(path, patience) };
        let id = FileId::of_open(&lock).map_err(|errno| failed(path, errno.into()))?;
        Ok(Self { path: path.to_owned(), access, lock, id, meeting: Some(meeting) })
    }

    /// The identity of the file.
    #[must_use]
    pub const fn id(&self) -> FileId {
        self.id
    }

    /// Opens the store in it.
    ///
    /// # Errors
    /// Those of [`PageStore::open`] and [`PageStore::open_read_only`].
    pub fn open(self, options: Options) -> Result<StoreFile> {
        if let Some(meeting) = self.meeting {
            let opened = meeting.open(&self.path, self.access, &self.lock, options.clone())?;
            if let Some((store, meeting)) = opened {
                let held = HeldFile { lock: self.lock, meeting: Some(meeting) };
                return Ok(StoreFile { store, held });
            }
        }
        let (device, name) = place(&self.path)?;
        let file = device.open_same(name, &self.lock, self.access)?;
        let store = match self.access {
            Access::Read => PageStore::open_read_only(file, options)?,
            Access::Write => PageStore::open(file, options)?,
        };
        let held = HeldFile { lock: self.lock, meeting: None };
        Ok(StoreFile { store, held })
    }
}

impl StoreFile {
    /// Opens the store at `path`, or creates it there; an empty file is a new store. Does not wait
    /// for other openings.
    ///
    /// # Errors
    /// [`Error::Locked`] where another process, or another `StoreFile` of this one, has it open.
    pub fn open(path: &Path, missing: Missing, options: Options) -> Result<Self> {
        let locked = match options.processes {
            Processes::One => LockedFile::to_write(path, missing, Duration::ZERO),
            Processes::Many => {
                LockedFile::to_share(path, Access::Write, missing, options.busy_timeout)
            }
        };
        locked?.open(options)
    }

    /// Opens the existing store at `path` for reading, as [`PageStore::open_read_only`]. Nothing is
    /// written and nothing is created, so the store may be on a read-only file system. Does not
    /// wait for other openings.
    ///
    /// # Errors
    /// [`Error::Locked`] where another process, or another `StoreFile` of this one, has it open for
    /// writing. Others may have it open for reading.
    pub fn open_read_only(path: &Path, options: Options) -> Result<Self> {
        let locked = match options.processes {
            Processes::One => LockedFile::to_read(path, Duration::ZERO),
            Processes::Many => {
                LockedFile::to_share(path, Access::Read, Missing::Fail, options.busy_timeout)
            }
        };
        locked?.open(options)
    }

    /// Makes a store that was opened for reading writable, as [`PageStore::make_writable`]; `path`
    /// is one of its file's names. Does nothing to a store that is writable.
    ///
    /// # Errors
    /// [`Error::Locked`] where another opening reads it, and processes do not share it: then it
    /// stays as it was.
    pub fn make_writable(&self, path: &Path) -> Result<()> {
        if !self.held.lock.process().is_current() {
            return Err(Error::Forked { file: path.display().to_string() });
        }
        if !self.store.is_read_only() {
            return Ok(());
        }
        let (device, name) = place(path)?;
        let file = device.open_same(name, &self.held.lock, Access::Write)?;
        if let Some((meeting, turns)) =
            self.held.meeting.as_ref().zip(self.store.engine().turns.as_ref())
        {
            meeting.let_write();
            turns.let_write(file);
            return Ok(());
        }
        self.raise_lock(path)?;
        self.store.make_writable(file)
    }

    /// Whether another process waits for the file.
    #[must_use]
    pub fn is_waited_for(&self) -> bool {
        self.held.lock.is_waited_for(None).unwrap_or(false)
    }

    /// Makes the shared lock exclusive. The system releases the shared lock first, and another
    /// process may take it for a moment, or for longer.
    fn raise_lock(&self, path: &Path) -> Result<()> {
        let lock = &self.held.lock;
        if lock.try_lock(Lock::Exclusive).map_err(|errno| failed(path, errno.into()))? {
            return Ok(());
        }
        let engine = self.store.engine();
        if !matches!(lock.try_lock(Lock::Shared), Ok(true)) {
            return Err(engine.lose());
        }
        engine.check_unchanged()?;
        Err(refused(path, Access::Write))
    }

    /// Closes the store: what was committed is durable, and the next opening finds a checkpoint.
    ///
    /// # Errors
    /// Those of [`PageStore::close`].
    pub fn close(self) -> Result<()> {
        let Self { store, held } = self;
        let closed = store.close();
        drop(held);
        closed
    }
}

/// The folder of a file, and its name there.
fn place(path: &Path) -> Result<(FileDevice, &str)> {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
        return invalid(format!("{} is not the name of a file", path.display()));
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    Ok((FileDevice::open(folder.unwrap_or_else(|| Path::new(".")))?, name))
}

/// Creates an empty file if there is none, durably. Its permissions are those of databases that
/// SQLite creates.
///
/// # Errors
/// Those of the device.
pub fn make_missing(path: &Path) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    let (device, _) = place(path)?;
    let made = OpenOptions::new().write(true).create_new(true).mode(0o644).open(path);
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(failed(path, error).into())
        }
        _ => Ok(device.sync_dir()?),
    }
}

fn failed(path: &Path, source: io::Error) -> DeviceError {
    DeviceError::new(Operation::Open, path.display().to_string(), 0, source)
}

/// Opens a file as it is meant to be used.
fn open_to_lock(path: &Path, access: Access) -> Result<OwnedFd> {
    // Opening a pipe would wait until a process writes into it.
    let at_once = OFlags::NONBLOCK.bits().cast_signed();
    let writes = access == Access::Write;
    let file: io::Result<File> =
        OpenOptions::new().read(true).write(writes).custom_flags(at_once).open(path);
    Ok(file.map_err(|source| failed(path, source))?.into())
}

/// Locks it: shared for reading, or exclusively.
fn wait_for(lock: &LockFile, path: &Path, access: Access, patience: Duration) -> Result<()> {
    let kind = match access {
        Access::Read => Lock::Shared,
        Access::Write => Lock::Exclusive,
    };
    match lock.lock_within(kind, patience).map_err(|errno| failed(path, errno.into()))? {
        Waited::Locked => Ok(()),
        Waited::Refused => Err(refused(path, access)),
        Waited::Interrupted => Err(Error::Interrupted { file: path.display().to_string() }),
    }
}

/// The error for a lock that was not granted.
fn refused(path: &Path, access: Access) -> Error {
    let how = match access {
        Access::Read => "open for writing in another process: a writer has the store to itself",
        Access::Write => "open in another process: a writer has the store to itself",
    };
    Error::Locked { file: path.display().to_string(), how }
}

/// Decides the prepared transaction in the store at `path`, if its name is the path of a file whose
/// removal is the commit, such as SQLite's super-journal: the transaction took place exactly when
/// that file does not exist. The decision is in memory where the store is only read. Does nothing
/// where nothing is prepared, and where processes share the store and the one that prepared it
/// lives, or this one may only read.
///
/// The removal of the file is made durable first. The process that removed it may have died before
/// it was durable, and a power failure that restored the file would undo the transaction in other
/// stores.
///
/// # Errors
/// As [`PageStore::decide`]; or the state of the file cannot be determined: then nothing is
/// decided.
pub fn decide_by_file(store: &PageStore, path: &Path) -> Result<()> {
    store.decide_in_doubt(|name| is_removed(store, path, name))
}

/// Whether the file of this name does not exist, durably.
fn is_removed(store: &PageStore, path: &Path, name: &[u8]) -> Result<bool> {
    let decider = path.parent().unwrap_or_else(|| Path::new(".")).join(OsStr::from_bytes(name));
    let is_there = decider.try_exists().map_err(|error| {
        let what = format!("cannot look for the super-journal {}: {error}", decider.display());
        Error::InvalidArgument(what)
    })?;
    let is_sure = is_there || planted::is(Bug::RemovalNotSynced);
    if !is_sure && let Err(error) = sync_folder(&decider) {
        // A read-only store decides only for itself.
        if !store.is_read_only() {
            return Err(error.into());
        }
    }
    Ok(!is_there)
}

/// Makes the entries of the folder of `path` durable.
fn sync_folder(path: &Path) -> esker_device::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match FileDevice::open(folder.unwrap_or_else(|| Path::new("."))) {
        Err(error) if error.source.kind() == io::ErrorKind::NotFound => Ok(()),
        device => device?.sync_dir(),
    }
}

#[cfg(test)]
mod tests;
