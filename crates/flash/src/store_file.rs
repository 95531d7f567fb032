//! A store at a path, which one process has open to write, or several to read.
//!
//! The lock is `flock`'s, shared by those who only read. It belongs to an opening of the file and
//! not to a process, as the locks of SQLite's own files do: closing one opening takes nothing from
//! another, and a process that dies in whatever way leaves no lock behind.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use esker_device::file::{Access, FileDevice};
use esker_device::{Device, DeviceError, Operation};
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
        let (device, name) = place(path)?;
        if missing == Missing::Create && !path.exists() {
            make(path)?;
            device.sync_dir()?;
        }
        let lock = lock(path, Access::Write)?;
        let file = device.open_same(name, &lock, Access::Write)?;
        let store = PageStore::open(file, options)?;
        Ok(Self { store, lock })
    }

    /// Opens the store at `path`, which must be there, to be read: as
    /// [`PageStore::open_read_only`]. Nothing is written and nothing made, so that it may be where
    /// nothing can be.
    ///
    /// [`Error::Locked`] where another process, or another `StoreFile` of this one, has it open to
    /// write. Others may have it open to read.
    pub fn open_read_only(path: &Path, options: Options) -> Result<Self> {
        let (device, name) = place(path)?;
        let lock = lock(path, Access::Read)?;
        let file = device.open_same(name, &lock, Access::Read)?;
        let store = PageStore::open_read_only(file, options)?;
        Ok(Self { store, lock })
    }

    /// Has a store that was opened to be read written as well, as [`PageStore::make_writable`];
    /// `path` is one of its file's names. Does nothing to a store that can be written.
    ///
    /// [`Error::Locked`] where somebody else reads it: then it stays as it was.
    pub fn make_writable(&self, path: &Path) -> Result<()> {
        if !self.store.is_read_only() {
            return Ok(());
        }
        let (device, name) = place(path)?;
        let file = device.open_same(name, &self.lock, Access::Write)?;
        self.raise_lock(path)?;
        self.store.make_writable(file)
    }

    /// Makes the shared lock one's own. The system takes it away first, and somebody else may have
    /// it for a moment, or for longer.
    fn raise_lock(&self, path: &Path) -> Result<()> {
        let Err(errno) = flock(&self.lock, FlockOperation::NonBlockingLockExclusive) else {
            return Ok(());
        };
        let engine = self.store.engine();
        if flock(&self.lock, FlockOperation::NonBlockingLockShared).is_err() {
            return Err(engine.lose());
        }
        engine.check_unchanged()?;
        Err(refused(path, Access::Write, errno))
    }

    /// Closes the store: what was committed is durable, and the next opening finds a checkpoint.
    pub fn close(self) -> Result<()> {
        let Self { store, lock } = self;
        let closed = store.close();
        drop(lock);
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

/// Opens a file as it is meant to be used, and locks it: to read, with those who do; or alone.
fn lock(path: &Path, access: Access) -> Result<File> {
    // A pipe would be waited for until somebody writes into it.
    let at_once = OFlags::NONBLOCK.bits().cast_signed();
    let writes = access == Access::Write;
    let file = OpenOptions::new().read(true).write(writes).custom_flags(at_once).open(path);
    let file = file.map_err(|source| failed(path, source))?;
    let operation = match access {
        Access::Read => FlockOperation::NonBlockingLockShared,
        Access::Write => FlockOperation::NonBlockingLockExclusive,
    };
    match flock(&file, operation) {
        Ok(()) => Ok(file),
        Err(errno) => Err(refused(path, access, errno)),
    }
}

/// Why there is no lock.
fn refused(path: &Path, access: Access, errno: Errno) -> Error {
    let how = match access {
        _ if errno != Errno::WOULDBLOCK => return failed(path, errno.into()).into(),
        Access::Read => "open elsewhere to be written: who writes has it alone",
        Access::Write => "open elsewhere: who writes has it alone",
    };
    Error::Locked { file: path.display().to_string(), how }
}

/// Decides what is prepared in the store at `path`, where its name is the path of a file whose
/// removal is the commit, such as SQLite's super-journal: it took place exactly when that file is
/// gone. In memory where the store is only read. Does nothing where nothing is prepared.
///
/// That the file is gone is made durable first. Whoever removed it may have died before it was,
/// and a power cut that brought the file back would undo the transaction in other stores.
///
/// # Errors
/// As [`PageStore::decide`]; or it cannot be found out: then nothing is decided.
pub fn decide_by_file(store: &PageStore, path: &Path) -> Result<()> {
    let Some(name) = store.prepared() else { return Ok(()) };
    let decider = path.parent().unwrap_or_else(|| Path::new(".")).join(OsStr::from_bytes(&name));
    let is_there = decider.try_exists().map_err(|error| {
        let what = format!("cannot look for the super-journal {}: {error}", decider.display());
        Error::InvalidArgument(what)
    })?;
    if !is_there && let Err(error) = sync_folder(&decider) {
        // Who only reads decides nothing for others.
        if !store.is_read_only() {
            return Err(error.into());
        }
    }
    store.decide(!is_there)
}

/// Makes durable which files are beside `path`.
fn sync_folder(path: &Path) -> esker_device::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match FileDevice::open(folder.unwrap_or_else(|| Path::new("."))) {
        Err(error) if error.source.kind() == io::ErrorKind::NotFound => Ok(()),
        device => device?.sync_dir(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::{Durability, Snapshot};

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
        let reader = StoreFile::open_read_only(&path, Options::default()).unwrap_err();
        assert!(reader.to_string().contains("to be written"), "{reader}");
        first.close().unwrap();
        StoreFile::open(&path, Missing::Fail, Options::default()).unwrap();
    }

    /// Everything that can be seen of a file from outside.
    fn looks(path: &Path) -> (Vec<u8>, i64, i64, usize) {
        let metadata = std::fs::metadata(path).unwrap();
        let beside = std::fs::read_dir(path.parent().unwrap()).unwrap().count();
        (std::fs::read(path).unwrap(), metadata.mtime_nsec(), metadata.ctime_nsec(), beside)
    }

    fn commit(store: &PageStore, byte: u8) {
        let mut writer = store.begin(&store.pin()).unwrap();
        writer.write(0, 0, &[byte; 4096]).unwrap();
        writer.commit(Durability::Full).unwrap();
    }

    fn first_byte(snapshot: &Snapshot) -> u8 {
        let mut byte = [0];
        snapshot.read(0, 0, &mut byte).unwrap();
        byte[0]
    }

    #[test]
    fn readers_share_a_file_and_leave_it_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let read = || StoreFile::open_read_only(&path, Options::default());
        assert!(matches!(read(), Err(Error::Device(_))) && !path.exists());
        let file = StoreFile::open(&path, Missing::Create, Options::default()).unwrap();
        commit(&file.store, 1);
        // As a process leaves it that dies: the log is there, and no checkpoint of it.
        let crashed = std::fs::read(&path).unwrap();
        file.close().unwrap();
        for bytes in [std::fs::read(&path).unwrap(), crashed] {
            std::fs::write(&path, bytes).unwrap();
            let before = looks(&path);
            let (one, other) = (read().unwrap(), read().unwrap());
            for file in [&one, &other] {
                assert_eq!(first_byte(&file.store.pin()), 1);
                assert!(file.store.check().unwrap().accounted);
                let refused = file.store.begin(&file.store.pin()).unwrap_err();
                assert!(matches!(refused, Error::ReadOnly { .. }), "{refused}");
            }
            let writer = StoreFile::open(&path, Missing::Fail, Options::default());
            assert!(matches!(writer, Err(Error::Locked { .. })));
            one.close().unwrap();
            other.close().unwrap();
            assert!(looks(&path) == before, "something was written");
        }
    }

    #[test]
    fn a_reader_that_is_alone_may_begin_to_write() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let read = || StoreFile::open_read_only(&path, Options::default());
        File::create(&path).unwrap();
        for byte in 1..4 {
            let (one, other) = (read().unwrap(), read().unwrap());
            let before = one.store.pin();
            let refused = one.make_writable(&path).unwrap_err();
            assert!(matches!(refused, Error::Locked { .. }), "{refused}");
            assert!(one.store.is_read_only() && read().is_ok());
            other.close().unwrap();
            one.make_writable(&path).unwrap();
            commit(&one.store, byte);
            assert!(read().is_err());
            assert_eq!(before.version(), u64::from(byte) - 1);
            assert!(before.pages() == 0 || first_byte(&before) == byte - 1);
            assert_eq!(first_byte(&one.store.pin()), byte);
            drop(before);
            one.close().unwrap();
        }
    }

    /// The lock of a reader is no lock while it becomes a writer's.
    #[test]
    fn what_others_have_written_is_not_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let file = StoreFile::open(&path, Missing::Create, Options::default()).unwrap();
        commit(&file.store, 1);
        file.close().unwrap();
        let late = StoreFile::open_read_only(&path, Options::default()).unwrap();
        let snapshot = late.store.pin();
        flock(&late.lock, FlockOperation::Unlock).unwrap();
        let file = StoreFile::open(&path, Missing::Fail, Options::default()).unwrap();
        commit(&file.store, 2);
        // It has it still.
        let lost = late.make_writable(&path).unwrap_err();
        assert!(lost.to_string().contains("open it again"), "{lost}");
        assert!(snapshot.read(0, 0, &mut [0]).is_err());
        file.close().unwrap();
        // It had it.
        let before = std::fs::read(&path).unwrap();
        let lost = late.make_writable(&path).unwrap_err();
        assert!(matches!(lost, Error::Locked { .. }), "{lost}");
        assert!(late.store.is_read_only() && snapshot.read(0, 0, &mut [0]).is_err());
        late.close().unwrap();
        assert!(std::fs::read(&path).unwrap() == before, "something was written");
    }

    #[test]
    fn a_file_says_what_became_of_a_prepared_transaction() {
        let folder = tempfile::tempdir().unwrap();
        let (path, journal) = (folder.path().join("store"), folder.path().join("journal"));
        let file = StoreFile::open(&path, Missing::Create, Options::default()).unwrap();
        commit(&file.store, 1);
        let mut writer = file.store.begin(&file.store.pin()).unwrap();
        writer.write(0, 0, &[2; 4096]).unwrap();
        writer.prepare(journal.as_os_str().as_bytes()).unwrap();
        let left = std::fs::read(&path).unwrap();
        writer.abort();
        file.close().unwrap();
        for is_there in [true, false] {
            std::fs::write(&path, &left).unwrap();
            if is_there {
                std::fs::write(&journal, "").unwrap();
            } else {
                std::fs::remove_file(&journal).unwrap();
            }
            let expected = if is_there { 1 } else { 2 };
            for _ in 0..2 {
                let file = StoreFile::open_read_only(&path, Options::default()).unwrap();
                decide_by_file(&file.store, &path).unwrap();
                assert_eq!(first_byte(&file.store.pin()), expected);
                assert!(file.store.check().unwrap().accounted);
            }
            assert!(std::fs::read(&path).unwrap() == left, "something was written");
            // Who begins to write makes durable what was decided, whatever becomes of the file.
            let file = StoreFile::open_read_only(&path, Options::default()).unwrap();
            decide_by_file(&file.store, &path).unwrap();
            file.make_writable(&path).unwrap();
            let crashed = std::fs::read(&path).unwrap();
            drop(file);
            std::fs::write(&path, crashed).unwrap();
            let file = StoreFile::open(&path, Missing::Fail, Options::default()).unwrap();
            assert_eq!(file.store.prepared(), None);
            assert_eq!(first_byte(&file.store.pin()), expected);
        }
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
