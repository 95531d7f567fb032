//! A store at a path, which one process has open for writing, or several for reading.
//!
//! The lock is a [`LockFile`], shared between processes that only read. An opening may wait for the
//! lock, and the waiting openings get it in order of arrival.
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
use crate::options::Options;
use crate::planted::{self, Bug};
use crate::store::PageStore;

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
}

/// A store and the lock of its file, which is released last.
#[derive(Debug)]
pub struct StoreFile {
    /// The store.
    pub store: PageStore,
    lock: LockFile,
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
                    return Ok(Self { path: path.to_owned(), access, lock, id });
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
        let (device, name) = place(&self.path)?;
        let file = device.open_same(name, &self.lock, self.access)?;
        let store = match self.access {
            Access::Read => PageStore::open_read_only(file, options)?,
            Access::Write => PageStore::open(file, options)?,
        };
        Ok(StoreFile { store, lock: self.lock })
    }
}

impl StoreFile {
    /// Opens the store at `path`, or creates it there; an empty file is a new store. Does not wait
    /// for other openings.
    ///
    /// # Errors
    /// [`Error::Locked`] where another process, or another `StoreFile` of this one, has it open.
    pub fn open(path: &Path, missing: Missing, options: Options) -> Result<Self> {
        LockedFile::to_write(path, missing, Duration::ZERO)?.open(options)
    }

    /// Opens the existing store at `path` for reading, as [`PageStore::open_read_only`]. Nothing is
    /// written and nothing is created, so the store may be on a read-only file system. Does not
    /// wait for other openings.
    ///
    /// # Errors
    /// [`Error::Locked`] where another process, or another `StoreFile` of this one, has it open for
    /// writing. Others may have it open for reading.
    pub fn open_read_only(path: &Path, options: Options) -> Result<Self> {
        LockedFile::to_read(path, Duration::ZERO)?.open(options)
    }

    /// Makes a store that was opened for reading writable, as [`PageStore::make_writable`]; `path`
    /// is one of its file's names. Does nothing to a store that is writable.
    ///
    /// # Errors
    /// [`Error::Locked`] where another opening reads it: then it stays as it was.
    pub fn make_writable(&self, path: &Path) -> Result<()> {
        if !self.lock.process().is_current() {
            return Err(Error::Forked { file: path.display().to_string() });
        }
        if !self.store.is_read_only() {
            return Ok(());
        }
        let (device, name) = place(path)?;
        let file = device.open_same(name, &self.lock, Access::Write)?;
        self.raise_lock(path)?;
        self.store.make_writable(file)
    }

    /// Whether another process waits for the file.
    #[must_use]
    pub fn is_waited_for(&self) -> bool {
        self.lock.is_waited_for(None).unwrap_or(false)
    }

    /// Makes the shared lock exclusive. The system releases the shared lock first, and another
    /// process may take it for a moment, or for longer.
    fn raise_lock(&self, path: &Path) -> Result<()> {
        if self.lock.try_lock(Lock::Exclusive).map_err(|errno| failed(path, errno.into()))? {
            return Ok(());
        }
        let engine = self.store.engine();
        if !matches!(self.lock.try_lock(Lock::Shared), Ok(true)) {
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
/// where nothing is prepared.
///
/// The removal of the file is made durable first. The process that removed it may have died before
/// it was durable, and a power failure that restored the file would undo the transaction in other
/// stores.
///
/// # Errors
/// As [`PageStore::decide`]; or the state of the file cannot be determined: then nothing is
/// decided.
pub fn decide_by_file(store: &PageStore, path: &Path) -> Result<()> {
    let Some(name) = store.prepared() else { return Ok(()) };
    let decider = path.parent().unwrap_or_else(|| Path::new(".")).join(OsStr::from_bytes(&name));
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
    store.decide(!is_there)
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
mod tests {
    use std::os::unix::fs::MetadataExt;

    use esker_device::forked::{Child, Ended};
    use rustix::fs::{FlockOperation, flock, inotify};

    use super::*;
    use crate::{Durability, Snapshot};

    /// Whether the folder of the super-journal is opened, and so synced, when the removal of the
    /// super-journal decides.
    fn syncs_the_folder(is_there: bool) -> bool {
        let (folder, apart) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = folder.path().join("store");
        let decider = apart.path().join("decider");
        std::fs::write(&decider, b"").unwrap();
        let store = StoreFile::open(&path, Missing::Create, Options::default()).unwrap();
        let mut writer = store.store.begin(&store.store.pin()).unwrap();
        writer.write(0, 0, b"prepared").unwrap();
        writer.prepare(decider.as_os_str().as_bytes()).unwrap();
        drop(writer);
        drop(store);
        if !is_there {
            std::fs::remove_file(&decider).unwrap();
        }
        let store = StoreFile::open(&path, Missing::Fail, Options::default()).unwrap();
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        inotify::add_watch(&watch, apart.path(), inotify::WatchFlags::OPEN).unwrap();
        decide_by_file(&store.store, &path).unwrap();
        assert_eq!(store.store.pin().pages(), u32::from(!is_there));
        let mut memory = [std::mem::MaybeUninit::uninit(); 4096];
        inotify::Reader::new(&watch, &mut memory).next().is_ok()
    }

    #[test]
    fn that_a_super_journal_is_gone_is_durable_before_it_decides() {
        assert!(syncs_the_folder(false));
        assert!(!syncs_the_folder(true), "nothing is to be made durable");
        let found = planted::with(Bug::RemovalNotSynced, || !syncs_the_folder(false));
        assert!(found, "a test that cannot fail proves nothing");
    }

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
        assert!(reader.to_string().contains("for writing"), "{reader}");
        first.close().unwrap();
        StoreFile::open(&path, Missing::Fail, Options::default()).unwrap();
    }

    /// Everything that can be seen of a file from outside.
    fn looks(path: &Path) -> (Vec<u8>, i64, i64, usize) {
        let metadata = std::fs::metadata(path).unwrap();
        let siblings = std::fs::read_dir(path.parent().unwrap()).unwrap().count();
        (std::fs::read(path).unwrap(), metadata.mtime_nsec(), metadata.ctime_nsec(), siblings)
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

    /// A child by `fork` does nothing to the file of a store of its parent.
    #[test]
    fn a_child_writes_nothing_and_closes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let file = StoreFile::open(&path, Missing::Create, Options::default()).unwrap();
        commit(&file.store, 1);
        let mut writer = file.store.begin(&file.store.pin()).unwrap();
        writer.write(0, 0, &[2; 4096]).unwrap();
        let before = std::fs::read(&path).unwrap();
        let mut held = Some((file, writer));
        let child = Child::run(20, || {
            let (file, writer) = held.take().unwrap();
            let refused = [
                writer.commit(Durability::Full).map(drop),
                file.store.begin(&file.store.pin()).map(drop),
                file.store.pin_named("name").map(drop),
                file.store.checkpoint(),
                file.store.sync(),
                file.make_writable(&path),
                file.store.clone().close(),
                file.close(),
            ];
            let is_refused = |answer: &Result<()>| matches!(answer, Err(Error::Forked { .. }));
            u8::from(!refused.iter().all(is_refused))
        });
        assert_eq!(child.wait(), Ended::Answer(0));
        assert!(std::fs::read(&path).unwrap() == before, "the child wrote");
        let (file, writer) = held.unwrap();
        writer.commit(Durability::Full).unwrap();
        file.close().unwrap();
        let file = StoreFile::open(&path, Missing::Fail, Options::default()).unwrap();
        assert_eq!(first_byte(&file.store.pin()), 2);
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
            // Becoming writable makes the decision durable, whatever happens to the file.
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
