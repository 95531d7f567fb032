//! A folder of the file system as a [`Device`].
//!
//! Reading order: this file (the folder and its names), [`lock`] (exclusive and shared locks),
//! `handle` (one file: direct and buffered I/O), `behind` (which written ranges are dropped from
//! the page cache), `parallel` (several reads in flight).
//!
//! All paths are relative to the folder's descriptor and links are not followed, so that a change
//! of the path underneath cannot lead Esker to another place.

mod behind;
mod handle;
pub mod lock;
mod parallel;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

use self::handle::Handle;
use self::lock::{Lock, LockFile};
use self::parallel::Readers;
use crate::shared::{self, SharedFile};
use crate::{
    Caching, Device, DeviceError, DeviceFile, DeviceLock, Open, Operation, Purpose, ReadRequest,
    Result, name,
};

/// The kind of access that a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To be read, and nothing else.
    Read,
    /// To be read and written.
    Write,
}

/// A folder of the file system. Clones share the folder's descriptor and the reading threads.
///
/// The folder is private (0700) and its files too (0600), less what the umask takes.
///
/// A read or write is one system call, and one device I/O where it is aligned and the file was
/// opened with [`Caching::Direct`]; a large one through a bounce buffer is one a 256 KiB. Several
/// reads together ([`DeviceFile::read_many`]) are made 16 at a time, by threads that start with the
/// first such read and end after ten idle seconds.
#[derive(Clone, Debug)]
pub struct FileDevice {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    folder: OwnedFd,
    readers: Arc<Readers>,
    /// The kind of access that files are opened for.
    access: Access,
}

#[derive(Debug)]
struct FileFile {
    name: String,
    handle: Arc<Handle>,
    readers: Arc<Readers>,
}

impl FileDevice {
    /// Uses the folder at `path`, which must exist. Opens no file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_for(path.as_ref(), Access::Write)
    }

    /// Uses the folder at `path` for reading: files are opened so, which also works on a file
    /// system that cannot be written to and without the right to write.
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_for(path.as_ref(), Access::Read)
    }

    fn open_for(path: &Path, access: Access) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = retry_on_intr(|| fs::open(path, flags, Mode::empty()))
            .map_err(|errno| failed_at(Operation::Open, path, errno))?;
        let shared = Shared { path: path.to_owned(), folder, readers: Arc::default(), access };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Makes the folder at `path` if it is not there, durably, and uses it. Its parent must exist.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        match retry_on_intr(|| fs::mkdir(path, Mode::RWXU)) {
            // Also when it exists: its creator may have died before it was durable.
            Ok(()) | Err(Errno::EXIST) => sync_parent(path)?,
            Err(errno) => return Err(failed_at(Operation::Open, path, errno)),
        }
        Self::open(path)
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Opens the file `name` through the page cache, if it is the one that is open as `like`. With
    /// [`Access::Read`] it may be where nothing can be written; writing to it is an error.
    pub fn open_same(
        &self,
        name: &str,
        like: impl AsFd,
        access: Access,
    ) -> Result<Arc<dyn DeviceFile>> {
        self.checked(name, Operation::Open)?;
        let handle = self.handle(name, (Open::Existing, access), Caching::Buffered)?;
        handle.check_same(like)?;
        Ok(self.file(name, handle))
    }

    fn handle(&self, name: &str, how: (Open, Access), caching: Caching) -> Result<Handle> {
        Handle::open(&self.shared.folder, name, how, caching, self.full_path(name))
    }

    fn file(&self, name: &str, handle: Handle) -> Arc<dyn DeviceFile> {
        let readers = Arc::clone(&self.shared.readers);
        Arc::new(FileFile { name: name.to_owned(), handle: Arc::new(handle), readers })
    }

    fn full_path(&self, name: &str) -> String {
        self.shared.path.join(name).to_string_lossy().into_owned()
    }

    fn failed(&self, operation: Operation, name: &str, errno: Errno) -> DeviceError {
        DeviceError::new(operation, self.full_path(name), 0, errno)
    }

    fn checked(&self, name: &str, operation: Operation) -> Result<()> {
        name::check(name, operation, &self.location())
    }
}

fn failed_at(operation: Operation, path: &Path, errno: Errno) -> DeviceError {
    DeviceError::new(operation, path.to_string_lossy(), 0, errno)
}

/// Makes the entry of `path` in the folder above it durable.
fn sync_parent(path: &Path) -> Result<()> {
    let above = match path.parent() {
        Some(above) if !above.as_os_str().is_empty() => above.to_owned(),
        // `a` is in the working folder; `/` and `..` have no name whose entry could be lost.
        _ => PathBuf::from("."),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let synced = fs::open(&above, flags, Mode::empty()).and_then(fs::fsync);
    match synced {
        // A parent that may be passed but not read cannot be synced, and some file systems have
        // nothing to sync. The folder is used all the same.
        Ok(()) | Err(Errno::ACCESS | Errno::INVAL) => Ok(()),
        Err(errno) => Err(failed_at(Operation::Directory, &above, errno)),
    }
}

impl Device for FileDevice {
    fn open(&self, name: &str, open: Open, caching: Caching) -> Result<Arc<dyn DeviceFile>> {
        self.checked(name, Operation::Open)?;
        let access = self.shared.access;
        if (open, access) == (Open::CreateNew, Access::Read) {
            return Err(self.failed(Operation::Open, name, Errno::ROFS));
        }
        Ok(self.file(name, self.handle(name, (open, access), caching)?))
    }

    fn list(&self) -> Result<Vec<String>> {
        let failed = |errno| failed_at(Operation::List, &self.shared.path, errno);
        let entries = fs::Dir::read_from(&self.shared.folder).map_err(failed)?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            // Names that are not plain or not text are not ours.
            let Ok(name) = entry.file_name().to_str() else { continue };
            if !name::is_plain(name) {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => {
                    match fs::statat(&self.shared.folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                        Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                        // Removed since it was listed.
                        Err(Errno::NOENT) => continue,
                        Err(errno) => return Err(self.failed(Operation::List, name, errno)),
                    }
                }
                kind => kind,
            };
            if kind == FileType::RegularFile {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.checked(name, Operation::Directory)?;
        retry_on_intr(|| fs::unlinkat(&self.shared.folder, name, AtFlags::empty()))
            .map_err(|errno| self.failed(Operation::Directory, name, errno))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.checked(from, Operation::Directory)?;
        self.checked(to, Operation::Directory)?;
        let folder = &self.shared.folder;
        retry_on_intr(|| fs::renameat(folder, from, folder, to))
            .map_err(|errno| self.failed(Operation::Directory, from, errno))
    }

    fn sync_dir(&self) -> Result<()> {
        // Not repeated when interrupted: a sync that failed says nothing when repeated.
        fs::fsync(&self.shared.folder)
            .map_err(|errno| failed_at(Operation::Directory, &self.shared.path, errno))
    }

    fn try_lock(&self) -> Result<Option<DeviceLock>> {
        let failed = |errno| self.failed(Operation::Lock, name::LOCK_NAME, errno);
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let mode = Mode::RUSR | Mode::WUSR;
        let open =
            || retry_on_intr(|| fs::openat(&self.shared.folder, name::LOCK_NAME, flags, mode));
        let file = LockFile::open(open).map_err(failed)?;
        let is_locked = file.try_lock(Lock::Exclusive).map_err(failed)?;
        Ok(is_locked.then(|| Box::new(file) as DeviceLock))
    }

    fn try_lock_shared(&self) -> Result<Option<DeviceLock>> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let folder = &self.shared.folder;
        let open = || retry_on_intr(|| fs::openat(folder, name::LOCK_NAME, flags, Mode::empty()));
        let file = match LockFile::open(open) {
            Ok(file) => file,
            // A writer would have created it. A file that may not be read cannot be locked.
            Err(Errno::NOENT | Errno::ACCESS) => return Ok(Some(Box::new(()))),
            Err(errno) => return Err(self.failed(Operation::Lock, name::LOCK_NAME, errno)),
        };
        match file.try_lock(Lock::Shared) {
            Ok(is_locked) => Ok(is_locked.then(|| Box::new(file) as DeviceLock)),
            // A file system without locks, such as an image of a disc.
            Err(Errno::NOLCK | Errno::NOTSUP | Errno::NOSYS | Errno::INVAL | Errno::ROFS) => {
                Ok(Some(Box::new(())))
            }
            Err(errno) => Err(self.failed(Operation::Lock, name::LOCK_NAME, errno)),
        }
    }

    fn shared_words(
        &self,
        name: &str,
        words: usize,
        make: bool,
    ) -> Result<Option<Arc<dyn shared::Shared>>> {
        self.checked(name, Operation::Open)?;
        let is_remote = shared::is_on_network(&self.shared.folder);
        if is_remote
            .map_err(|error| DeviceError::new(Operation::Open, self.full_path(name), 0, error))?
        {
            return Ok(None);
        }
        let bytes = words.saturating_mul(8);
        match SharedFile::open_in(&self.shared.folder, Path::new(name), bytes, make) {
            Err(error) if error.source.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => Ok(Some(Arc::new(opened?))),
        }
    }

    fn location(&self) -> String {
        self.shared.path.to_string_lossy().into_owned()
    }

    fn folder(&self) -> Option<PathBuf> {
        std::fs::canonicalize(&self.shared.path).ok()
    }
}

impl FileFile {
    fn too_large(&self, operation: Operation, offset: u64) -> DeviceError {
        DeviceError::new(operation, self.handle.path(), offset, io::Error::from(Errno::FBIG))
    }
}

impl DeviceFile for FileFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> Result<u64> {
        self.handle.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8], purpose: Purpose) -> Result<()> {
        self.handle.read_at(offset, buf, purpose)
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>], purpose: Purpose) -> Vec<Result<()>> {
        self.readers.read_many(&self.handle, requests, purpose)
    }

    fn announce(&self, offset: u64, len: u64, purpose: Purpose) {
        self.handle.announce(offset, len, purpose);
    }

    fn write_at(&self, offset: u64, buf: &[u8], purpose: Purpose) -> Result<()> {
        match handle::end_of(offset, buf.len() as u64) {
            Some(_) => self.handle.write_at(offset, buf, purpose),
            None if buf.is_empty() => Ok(()),
            None => Err(self.too_large(Operation::Write, offset)),
        }
    }

    fn sync(&self, _purpose: Purpose) -> Result<()> {
        self.handle.sync()
    }

    fn preallocate(&self, len: u64, _purpose: Purpose) -> Result<()> {
        match handle::end_of(0, len) {
            Some(_) => self.handle.preallocate(len),
            None => Err(self.too_large(Operation::Resize, len)),
        }
    }

    fn allocate(&self, offset: u64, len: u64, _purpose: Purpose) -> Result<()> {
        match offset.checked_add(len).and_then(|end| handle::end_of(0, end)) {
            Some(_) => self.handle.allocate(offset, len),
            None if len == 0 => Ok(()),
            None => Err(self.too_large(Operation::Resize, offset)),
        }
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.handle.truncate(len)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.handle.discard(offset, len)
    }
}
