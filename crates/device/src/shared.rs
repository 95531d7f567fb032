//! Memory and locks that several processes share: words that each may read and write at any time,
//! and locks of single bytes, which end with the process that has them.
//!
//! [`SharedFile`] is a file that is mapped into memory; [`crate::sim::SimShared`] is memory of one
//! process, for tests.
//!
//! Every access to a word is sequentially consistent: all processes see all stores to all words in
//! one order. What words mean, and which of them can be believed, is the caller's: another process
//! may write anything.

use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Mode, OFlags, Stat, fallocate, fstat, fstatfs, openat, statat,
};
use rustix::io::Errno;

use crate::error::{DeviceError, Operation, Result};
use crate::file::lock::LockFile;

mod mapping;

use mapping::Mapping;

/// Words and byte locks that processes share. All methods may be called from any thread.
pub trait Shared: Send + Sync + Debug {
    /// The number of words.
    fn words(&self) -> usize;

    /// The value of a word; 0 past the last.
    fn load(&self, at: usize) -> u64;

    /// Changes a word; nothing past the last.
    fn store(&self, at: usize, value: u64);

    /// Locks a byte, or returns `false` if another opening has it. A byte that this opening has
    /// locked already stays locked.
    ///
    /// # Errors
    /// The system has no such locks, or this is a child by `fork`.
    fn try_lock(&self, byte: u64) -> Result<bool>;

    /// Unlocks a byte.
    ///
    /// # Errors
    /// As [`Shared::try_lock`].
    fn unlock(&self, byte: u64) -> Result<()>;

    /// Whether another opening has locked a byte.
    ///
    /// # Errors
    /// As [`Shared::try_lock`].
    fn is_locked(&self, byte: u64) -> Result<bool>;

    /// Whether the file is still where it was opened. One that was removed or replaced is shared
    /// with no process that comes later.
    fn is_in_place(&self) -> bool {
        true
    }

    /// Sleeps while a word is `value`, until any opening calls [`Shared::wake`] for that word, or
    /// for `time`. It may return earlier, and without a reason; where there is nothing to wake it,
    /// it sleeps for a millisecond at most.
    fn wait(&self, at: usize, value: u64, time: Duration) {
        if self.load(at) == value {
            std::thread::sleep(time.min(Duration::from_millis(1)));
        }
    }

    /// Wakes all that wait for a word, in whichever process. The word must have changed before.
    fn wake(&self, _at: usize) {}
}

/// A file of a fixed length that is mapped into memory.
///
/// Its blocks are allocated before it is mapped, so that a store never finds the disk full. A file
/// that another program makes shorter later ends this process with `SIGBUS` at the next access:
/// nothing of Esker does that.
#[derive(Debug)]
pub struct SharedFile {
    name: String,
    /// Where `path` begins, if that is a folder that is open.
    folder: Option<OwnedFd>,
    path: PathBuf,
    lock: LockFile,
    mapping: Mapping,
}

impl SharedFile {
    /// Opens the file at `path`, or makes one, and maps its first `bytes` bytes. Bytes that were
    /// not there are zeros.
    ///
    /// # Errors
    /// The file cannot be opened, has no room, or cannot be mapped.
    pub fn open(path: &Path, bytes: usize) -> Result<Self> {
        Self::open_with(None, path, bytes, OFlags::CREATE)
    }

    /// As [`SharedFile::open`], but makes no file.
    ///
    /// # Errors
    /// As [`SharedFile::open`]; there is no file.
    pub fn open_existing(path: &Path, bytes: usize) -> Result<Self> {
        Self::open_with(None, path, bytes, OFlags::empty())
    }

    /// As [`SharedFile::open`], in a folder that is open, wherever its path leads by now; with
    /// `make` false as [`SharedFile::open_existing`].
    ///
    /// # Errors
    /// As there.
    pub fn open_in(folder: impl AsFd, name: &Path, bytes: usize, make: bool) -> Result<Self> {
        let folder = folder.as_fd().try_clone_to_owned();
        let folder = folder.map_err(|error| {
            DeviceError::new(Operation::Open, name.display().to_string(), 0, error)
        })?;
        let how = if make { OFlags::CREATE } else { OFlags::empty() };
        Self::open_with(Some(folder), name, bytes, how)
    }

    fn open_with(folder: Option<OwnedFd>, path: &Path, bytes: usize, how: OFlags) -> Result<Self> {
        let name = path.display().to_string();
        let failed = |operation, errno: Errno| DeviceError::new(operation, name.as_str(), 0, errno);
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | how;
        let begins = folder.as_ref().map_or(CWD, AsFd::as_fd);
        let lock = LockFile::open(|| {
            openat(begins, path, flags, Mode::from_raw_mode(0o666))
                .map_err(|errno| failed(Operation::Open, errno))
        })?;
        let length = fstat(&lock).map_err(|errno| failed(Operation::Open, errno))?.st_size;
        if u64::try_from(length).unwrap_or(0) < bytes as u64 {
            // What is there stays; another process may do the same at the same time.
            fallocate(&lock, FallocateFlags::empty(), 0, bytes as u64)
                .map_err(|errno| failed(Operation::Resize, errno))?;
        }
        let mapping = Mapping::new(&lock, bytes).map_err(|errno| failed(Operation::Open, errno))?;
        Ok(Self { name, folder, path: path.to_owned(), lock, mapping })
    }

    fn failed(&self, errno: Errno) -> DeviceError {
        DeviceError::new(Operation::Lock, self.name.as_str(), 0, io::Error::from(errno))
    }
}

impl AsFd for SharedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.lock.as_fd()
    }
}

/// File systems whose files may be open on several machines: the numbers that `statfs` has for NFS,
/// SMB (three), 9P, AFS, Ceph, Coda, Lustre, GPFS, OCFS2 and GFS2.
const OF_NETWORKS: [u32; 12] = [
    0x6969,
    0x517b,
    0xff53_4d42,
    0xfe53_4d42,
    0x0102_1997,
    0x5346_414f,
    0x00c3_6400,
    0x7375_7245,
    0x0bd0_0bd0,
    0x4750_4653,
    0x7461_636f,
    0x0116_1970,
];

/// Whether a file is on a file system of a network. What one machine stores there in memory that it
/// has mapped, another one does not see.
///
/// # Errors
/// Those of the system.
pub fn is_on_network(file: impl AsFd) -> io::Result<bool> {
    let number = fstatfs(file)?.f_type as u64 & u64::from(u32::MAX);
    Ok(OF_NETWORKS.iter().any(|known| u64::from(*known) == number))
}

impl Shared for SharedFile {
    fn words(&self) -> usize {
        self.mapping.words()
    }

    fn load(&self, at: usize) -> u64 {
        self.mapping.load(at)
    }

    fn store(&self, at: usize, value: u64) {
        // A child by `fork` shares the memory, and is not who opened it.
        if self.lock.process().is_current() {
            self.mapping.store(at, value);
        }
    }

    fn try_lock(&self, byte: u64) -> Result<bool> {
        self.lock.try_lock_byte(byte).map_err(|errno| self.failed(errno))
    }

    fn unlock(&self, byte: u64) -> Result<()> {
        self.lock.unlock_byte(byte).map_err(|errno| self.failed(errno))
    }

    fn is_locked(&self, byte: u64) -> Result<bool> {
        self.lock.is_byte_locked(byte).map_err(|errno| self.failed(errno))
    }

    fn is_in_place(&self) -> bool {
        let begins = self.folder.as_ref().map_or(CWD, AsFd::as_fd);
        let found = statat(begins, &self.path, AtFlags::empty());
        let same =
            |ours: Stat, found: Stat| (ours.st_dev, ours.st_ino) == (found.st_dev, found.st_ino);
        matches!((fstat(&self.lock), found), (Ok(ours), Ok(found)) if same(ours, found))
    }

    fn wait(&self, at: usize, value: u64, time: Duration) {
        self.mapping.wait(at, value, time);
    }

    fn wake(&self, at: usize) {
        self.mapping.wake(at);
    }
}
