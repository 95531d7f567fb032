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
use std::path::Path;

use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, fstat, open};
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
}

/// A file of a fixed length that is mapped into memory.
///
/// Its blocks are allocated before it is mapped, so that a store never finds the disk full. A file
/// that another program makes shorter later ends this process with `SIGBUS` at the next access:
/// nothing of Esker does that.
#[derive(Debug)]
pub struct SharedFile {
    name: String,
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
        let name = path.display().to_string();
        let failed = |operation, errno: Errno| DeviceError::new(operation, name.as_str(), 0, errno);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let lock = LockFile::open(|| {
            open(path, flags, Mode::from_raw_mode(0o666))
                .map_err(|errno| failed(Operation::Open, errno))
        })?;
        let length = fstat(&lock).map_err(|errno| failed(Operation::Open, errno))?.st_size;
        if u64::try_from(length).unwrap_or(0) < bytes as u64 {
            // What is there stays; another process may do the same at the same time.
            fallocate(&lock, FallocateFlags::empty(), 0, bytes as u64)
                .map_err(|errno| failed(Operation::Resize, errno))?;
        }
        let mapping = Mapping::new(&lock, bytes).map_err(|errno| failed(Operation::Open, errno))?;
        Ok(Self { name, lock, mapping })
    }

    fn failed(&self, errno: Errno) -> DeviceError {
        DeviceError::new(Operation::Lock, self.name.as_str(), 0, io::Error::from(errno))
    }
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forked::{Child, Ended};

    const BYTES: usize = 64 * 1024;

    #[test]
    fn openings_share_words_and_exclude_each_other_from_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("meeting");
        let (one, other) =
            (SharedFile::open(&path, BYTES).unwrap(), SharedFile::open(&path, BYTES).unwrap());
        assert_eq!((one.words(), one.load(8191), one.load(8192)), (8192, 0, 0));
        one.store(8191, 7);
        one.store(8192, 7);
        assert_eq!(other.load(8191), 7);
        assert!(one.try_lock(3).unwrap() && one.try_lock(3).unwrap());
        assert!(!other.try_lock(3).unwrap() && other.try_lock(4).unwrap());
        assert!(other.is_locked(3).unwrap() && !one.is_locked(3).unwrap());
        one.unlock(3).unwrap();
        assert!(!other.is_locked(3).unwrap());
        drop(other);
        assert!(one.try_lock(4).unwrap());
        assert_eq!(SharedFile::open(&path, BYTES).unwrap().load(8191), 7, "it was emptied");
        assert_eq!(path.metadata().unwrap().len(), BYTES as u64);
        assert!(one.try_lock(1 << 61).is_err());
    }

    #[test]
    fn a_lock_ends_with_its_process_and_is_not_a_childs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("meeting");
        let ours = SharedFile::open(&path, BYTES).unwrap();
        assert!(ours.try_lock(1).unwrap());
        let child = Child::run(10, || {
            // What the parent opened is not the child's.
            ours.store(0, 9);
            let refused = ours.try_lock(1).is_err() && ours.is_locked(1).is_err();
            let Ok(own) = SharedFile::open(&path, BYTES) else { return 1 };
            own.store(1, 5);
            let is_excluded = own.try_lock(1).is_ok_and(|is_locked| !is_locked);
            let is_locked = own.try_lock(2).unwrap_or(false);
            std::mem::forget(own);
            u8::from(!(refused && is_excluded && is_locked))
        });
        assert_eq!(child.wait(), Ended::Answer(0));
        assert_eq!((ours.load(0), ours.load(1)), (0, 5));
        assert!(!ours.is_locked(2).unwrap() && ours.try_lock(2).unwrap());
    }
}
