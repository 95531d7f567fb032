//! A store at a path, which one process has open at a time.
//!
//! The lock is `flock`'s, which belongs to an opening of the file and not to a process, as the
//! locks of SQLite's own files do: closing one opening takes nothing from another, and a process
//! that dies in whatever way leaves no lock behind.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use esker_device::file::FileDevice;
use esker_device::{Caching, Device, DeviceError, Open, Operation};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::error::{Error, Result, invalid};
use crate::options::Options;
use crate::store::PageStore;

/// What to do where there is no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Make one.
    Create,
    /// Fail.
    Fail,
}

/// A store and the lock of its file, which is given back last.
#[derive(Debug)]
pub struct StoreFile {
    /// The store.
    pub store: PageStore,
    lock: File,
}

impl StoreFile {
    /// Opens the store at `path`, or makes it there; an empty file is a new store.
    ///
    /// [`Error::Locked`] where another process, or another `StoreFile` of this one, has it open.
    pub fn open(path: &Path, missing: Missing, options: Options) -> Result<Self> {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            return invalid(format!("{} is not the name of a file", path.display()));
        };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let device = FileDevice::open(folder.unwrap_or_else(|| Path::new(".")))?;
        if missing == Missing::Create && !path.exists() {
            make(path)?;
            device.sync_dir()?;
        }
        let lock = lock(path)?;
        let file = device.open(name, Open::Existing, Caching::Buffered)?;
        let store = PageStore::open(file, options)?;
        Ok(Self { store, lock })
    }

    /// Closes the store: what was committed is durable, and the next opening finds a checkpoint.
    pub fn close(self) -> Result<()> {
        let Self { store, lock } = self;
        let closed = store.close();
        drop(lock);
        closed
    }
}

/// Makes an empty file, which others may read as they may the databases that SQLite makes.
fn make(path: &Path) -> Result<()> {
    let made = OpenOptions::new().write(true).create_new(true).mode(0o644).open(path);
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(failed(path, error).into())
        }
        _ => Ok(()),
    }
}

fn failed(path: &Path, source: io::Error) -> DeviceError {
    DeviceError::new(Operation::Open, path.display().to_string(), 0, source)
}

fn lock(path: &Path) -> Result<File> {
    let failed = |source| failed(path, source);
    // A pipe would be waited for until somebody writes into it.
    let at_once = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(at_once).open(path).map_err(failed)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => Err(Error::Locked { file: path.display().to_string() }),
        Err(errno) => Err(failed(errno.into()).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_opening_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let absent = StoreFile::open(&path, Missing::Fail, Options::default());
        assert!(matches!(absent, Err(Error::Device(_))));
        assert!(!path.exists());
        let first = StoreFile::open(&path, Missing::Create, Options::default()).unwrap();
        let second = StoreFile::open(&path, Missing::Create, Options::default());
        assert!(matches!(second, Err(Error::Locked { .. })));
        first.close().unwrap();
        StoreFile::open(&path, Missing::Fail, Options::default()).unwrap();
    }

    #[test]
    fn a_database_of_sqlite_is_named_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("app.db");
        let bytes = [&b"SQLite format 3\0"[..], &[0; 4080]].concat();
        std::fs::write(&path, &bytes).unwrap();
        let refused = StoreFile::open(&path, Missing::Create, Options::default()).unwrap_err();
        assert!(matches!(refused, Error::Foreign { .. }), "{refused}");
        assert!(refused.to_string().contains("esker sqlite import"), "{refused}");
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
}
