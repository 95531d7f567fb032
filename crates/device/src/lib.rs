//! Block devices: a folder of files that can be read, written and made durable.
//!
//! Reading order: [`Device`] and [`DeviceFile`] (the contract), [`buffer`] (aligned memory for
//! direct I/O), [`mod@file`] (a folder of the file system), [`memory`] (for tests and scratch),
//! [`sim`] (a simulated disk with crashes and faults), [`wrap`] (what wrappers share), [`count`],
//! [`delay`], [`throttle`] (wrappers that compose), [`readonly`] (one that refuses all changes);
//! [`transfer`] (for files that are on no device), [`mod@prefetch`] (a hint for memory),
//! [`process`] (state that a child created by `fork` must not use) and `inherited` (what such a
//! child closes), [`runtime`] (clocks and randomness, injected), [`versioned`] (a device of page
//! versions, as a trait); `planting` (how tests plant mistakes in the crates above) and [`planted`]
//! (those of this one).
//!
//! Nothing in this crate depends on what the bytes mean.

#[cfg(not(target_os = "linux"))]
compile_error!(
    "Esker runs on Linux alone: it needs direct I/O, fallocate and locks of open files as Linux \
     has them. Build it for a Linux target, or in a container."
);

#[cfg(not(all(target_pointer_width = "64", target_endian = "little")))]
compile_error!(
    "Esker runs on 64-bit little-endian processors alone: it holds lengths and offsets of files in \
     64 bits. Build it for such a target: x86-64 is the one that its tests run on."
);

pub mod buffer;
#[cfg(any(test, feature = "testing"))]
pub mod conformance;
pub mod count;
#[cfg(any(test, feature = "testing"))]
pub mod counting_allocator;
pub mod delay;
pub mod error;
pub mod file;
#[cfg(any(test, feature = "testing"))]
pub mod forked;
mod inherited;
pub mod memory;
mod name;
pub mod planted;
mod planting;
pub mod prefetch;
pub mod process;
pub mod readonly;
pub mod runtime;
pub mod shared;
pub mod sim;
pub mod throttle;
pub mod transfer;
pub mod versioned;
pub mod wrap;

use std::any::Any;
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;

pub use buffer::AlignedBuf;
pub use error::{DeviceError, Operation, Result};
use shared::Shared;

/// The purpose of a device operation. Every operation is counted under one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Purpose {
    /// Lookups and scans.
    User = 0,
    /// The write-ahead log.
    Log = 1,
    /// Merges, reads and writes.
    Merge = 2,
    /// Sorted runs.
    Flush = 3,
    /// Garbage collection and discards.
    Gc = 4,
    /// Manifest and superblocks.
    Manifest = 5,
    /// Opening a store.
    Recovery = 6,
    /// `check`.
    Check = 7,
    /// Backups, and restoring them.
    Backup = 8,
    /// Values outside blocks, as they are written.
    Value = 9,
}

impl Purpose {
    /// All purposes, in numerical order.
    pub const ALL: [Self; 10] = [
        Self::User,
        Self::Log,
        Self::Merge,
        Self::Flush,
        Self::Gc,
        Self::Manifest,
        Self::Recovery,
        Self::Check,
        Self::Backup,
        Self::Value,
    ];

    /// Its name in statistics, in lower case.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Log => "log",
            Self::Merge => "merge",
            Self::Flush => "flush",
            Self::Gc => "gc",
            Self::Manifest => "manifest",
            Self::Recovery => "recovery",
            Self::Check => "check",
            Self::Backup => "backup",
            Self::Value => "value",
        }
    }
}

/// The precondition for opening a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// The file must exist.
    Existing,
    /// The file must not exist; it is created empty. Its name is durable after
    /// [`Device::sync_dir`].
    CreateNew,
}

/// The way in which a file is read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// Through the page cache, any offset and length.
    Buffered,
    /// Past the page cache where the file system allows it, otherwise buffered. Operations whose
    /// offset, length and memory are all multiples of 4 KiB (512 B for reads, where the device
    /// allows it) need no copy; others go through a bounce buffer or the page cache.
    Direct,
    /// As [`Caching::Direct`], except that reads for [`Purpose::User`] and writes for
    /// [`Purpose::Value`] go through the page cache. What users read again stays in memory that is
    /// otherwise free, and the one-time reads and writes of a merge do not evict it. The write of a
    /// value takes the time of a copy, while the device writes earlier ones. Of values, the last 32
    /// MiB that were written stay in memory.
    Selective,
}

/// A flat folder of files. All methods may be called from any thread.
pub trait Device: Send + Sync + Debug {
    /// Opens or creates the file `name` (a plain file name, no separators).
    fn open(&self, name: &str, open: Open, caching: Caching) -> Result<Arc<dyn DeviceFile>>;

    /// The names of all files, in no particular order.
    fn list(&self) -> Result<Vec<String>>;

    /// Removes a file. Durable after [`Device::sync_dir`].
    fn remove(&self, name: &str) -> Result<()>;

    /// Renames a file, replacing `to` if it exists. Durable after [`Device::sync_dir`].
    fn rename(&self, from: &str, to: &str) -> Result<()>;

    /// Makes creations, removals and renames durable.
    fn sync_dir(&self) -> Result<()>;

    /// Takes the one-process lock; `None` when another process or handle holds it. The lock ends
    /// when the guard is dropped or the process ends, regardless of its forked children.
    fn try_lock(&self) -> Result<Option<DeviceLock>>;

    /// Takes the shared lock for reading, and writes nothing for it. Any number of holders may have
    /// it while the one-process lock is free; `None` when that is held. Where a lock is not
    /// possible without writing there is none. A device without a shared lock takes the one-process
    /// lock.
    fn try_lock_shared(&self) -> Result<Option<DeviceLock>> {
        self.try_lock()
    }

    /// Words and byte locks that all who have this device open share, in the file `name`; `words`
    /// of them, 0 at first. They are no content of the device: they need not survive a restart.
    /// With `make`, the file is made if it does not exist. `None` where the device has nothing of
    /// this kind, as on a file system of a network, or where the file is missing.
    ///
    /// # Errors
    /// The file cannot be opened for writing, or has no room.
    fn shared_words(
        &self,
        name: &str,
        words: usize,
        make: bool,
    ) -> Result<Option<Arc<dyn Shared>>> {
        let _ = (name, words, make);
        Ok(None)
    }

    /// The location of the device, for error messages: a path, or a name such as `memory`.
    fn location(&self) -> String;

    /// The folder, without links on the way, if it is one of the file system.
    fn folder(&self) -> Option<PathBuf> {
        None
    }
}

/// Holds the one-process lock of a [`Device`] until dropped.
pub type DeviceLock = Box<dyn Any + Send + Sync>;

/// One piece of a parallel read.
#[derive(Debug)]
pub struct ReadRequest<'a> {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Filled completely, or the request failed.
    pub buf: &'a mut [u8],
}

/// One open file. All methods may be called from any thread, also at the same time.
pub trait DeviceFile: Send + Sync + Debug {
    /// The file's name within its device.
    fn name(&self) -> &str;

    /// Current length in bytes.
    fn len(&self) -> Result<u64>;

    /// Fills `buf` from `offset`. Reading past the end is an error.
    fn read_at(&self, offset: u64, buf: &mut [u8], purpose: Purpose) -> Result<()>;

    /// Makes all the reads, several in flight where the device can. Returns one result for each
    /// request, in order.
    fn read_many(&self, requests: &mut [ReadRequest<'_>], purpose: Purpose) -> Vec<Result<()>> {
        requests.iter_mut().map(|r| self.read_at(r.offset, r.buf, purpose)).collect()
    }

    /// Announces that a range will be read soon for this purpose, so that the device may begin.
    /// Does not wait, and does nothing where it would not help.
    fn announce(&self, offset: u64, len: u64, purpose: Purpose) {
        let _ = (offset, len, purpose);
    }

    /// Writes all of `buf` at `offset`, extending the file where it ends earlier.
    fn write_at(&self, offset: u64, buf: &[u8], purpose: Purpose) -> Result<()>;

    /// Makes all finished writes of this file durable, its length included. After an error the
    /// state of unsynced writes is unknown and the sync must not be retried.
    fn sync(&self, purpose: Purpose) -> Result<()>;

    /// Makes sure the file is at least `len` bytes long and that writing below `len` cannot run
    /// out of space; new bytes read as zeros. Never shrinks. The length is durable after
    /// [`DeviceFile::sync`].
    fn preallocate(&self, len: u64, purpose: Purpose) -> Result<()>;

    /// Makes sure that writing to a range cannot run out of space, whether it was discarded before
    /// or is behind the end: then the file is extended with zeros. Existing contents stay. Without
    /// room the length does not change. The length is durable after [`DeviceFile::sync`].
    fn allocate(&self, offset: u64, len: u64, purpose: Purpose) -> Result<()>;

    /// Truncates the file to `len` bytes.
    fn truncate(&self, len: u64) -> Result<()>;

    /// Tells the device that a range is not needed; it reads as zeros or as before. Does nothing
    /// where the device cannot.
    fn discard(&self, offset: u64, len: u64) -> Result<()>;

    /// Whether the file is empty.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }
}
