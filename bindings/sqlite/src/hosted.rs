//! A VFS in safe code, for programs that have SQLite linked in and keep its files themselves.
//!
//! [`register`](crate::register) has the files of a [`Files`] under the name of a VFS; SQLite's own
//! kinds of journal work there, the write-ahead log with its shared memory included. Only the files
//! of a database are asked for: use `PRAGMA temp_store = MEMORY`.
//!
//! Thread safety: a [`Files`] is called by all connections, a [`File`] by one at a time. No lock of
//! this module is held while one of them is called.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::code::{Code, Result};

/// Which file of a database is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The database.
    Database,
    /// Its rollback journal.
    Journal,
    /// Its write-ahead log.
    Wal,
}

/// The lock of a connection on a database; each level includes those below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// No lock.
    #[default]
    None,
    /// To read.
    Shared,
    /// To write into the cache.
    Reserved,
    /// To wait for readers to end, while no new ones begin.
    Pending,
    /// To write to the file.
    Exclusive,
}

impl Level {
    /// The level of SQLite's number.
    pub(crate) const fn of(number: i32) -> Option<Self> {
        Some(match number {
            0 => Self::None,
            1 => Self::Shared,
            2 => Self::Reserved,
            3 => Self::Pending,
            4 => Self::Exclusive,
            _ => return None,
        })
    }
}

/// A range of the locks of a write-ahead log's shared memory: `count` of eight, from `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShmRange {
    /// The first lock, 0 to 7.
    pub first: u8,
    /// The number of locks, 1 to 8.
    pub count: u8,
    /// Whether no other connection may have them, or only none that excludes others.
    pub is_exclusive: bool,
}

/// A region of shared memory, in which SQLite reads and writes on its own. All zeros at first.
#[derive(Debug)]
pub struct Region(pub(crate) Box<[AtomicU64]>);

impl Region {
    /// A region of `bytes` bytes, rounded up to a multiple of 8.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self((0..bytes.div_ceil(8)).map(|_| AtomicU64::new(0)).collect())
    }

    /// Its size in bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.0.len() * 8
    }
}

/// Files by name, and the time.
pub trait Files: Send + Sync {
    /// Opens a file; makes it where it is missing and `may_create`.
    ///
    /// # Errors
    /// Codes of SQLite, such as [`Code::CANTOPEN`].
    fn open(&self, name: &str, kind: Kind, may_create: bool) -> Result<Box<dyn File>>;

    /// Deletes a file.
    ///
    /// # Errors
    /// [`Code::DELETE_NOENT`] where there is none.
    fn delete(&self, name: &str) -> Result;

    /// Whether there is such a file.
    fn exists(&self, name: &str) -> bool;

    /// Waits.
    fn sleep(&self, time: Duration);

    /// Milliseconds since 1970.
    fn unix_millis(&self) -> i64;

    /// Fills `bytes` with random ones.
    fn random(&self, bytes: &mut [u8]);
}

/// An open file.
pub trait File: Send {
    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// [`Code::SHORT_READ`] past the end, with zeros there.
    fn read(&mut self, offset: u64, buf: &mut [u8]) -> Result;

    /// Writes `bytes` at `offset`.
    ///
    /// # Errors
    /// Codes of SQLite.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result;

    /// Makes the file `len` bytes long.
    ///
    /// # Errors
    /// Codes of SQLite.
    fn truncate(&mut self, len: u64) -> Result;

    /// Makes what was written durable.
    ///
    /// # Errors
    /// Codes of SQLite.
    fn sync(&mut self) -> Result;

    /// The size in bytes.
    ///
    /// # Errors
    /// Codes of SQLite.
    fn size(&self) -> Result<u64>;

    /// Raises the lock. Files that are no databases have none, and need not have this and what
    /// follows.
    ///
    /// # Errors
    /// [`Code::BUSY`] where another connection is in the way.
    fn lock(&mut self, level: Level) -> Result {
        let _granted = level;
        Ok(())
    }

    /// Lowers the lock.
    ///
    /// # Errors
    /// Codes of SQLite.
    fn unlock(&mut self, level: Level) -> Result {
        let _lowered = level;
        Ok(())
    }

    /// Whether any connection has a lock to write.
    ///
    /// # Errors
    /// Codes of SQLite.
    fn has_writer(&self) -> Result<bool> {
        Ok(false)
    }

    /// The transaction is committed, as far as the pager is concerned: it sends
    /// `SQLITE_FCNTL_COMMIT_PHASETWO` after a real commit only.
    ///
    /// # Errors
    /// Codes of SQLite.
    fn committed(&mut self) -> Result {
        Ok(())
    }

    /// A region of the shared memory of a write-ahead log, by number; `None` where it is missing
    /// and not to be made. Without it there is no write-ahead log.
    ///
    /// # Errors
    /// Codes of SQLite.
    fn shm_map(&mut self, number: usize, bytes: usize, make: bool) -> Result<Option<Arc<Region>>> {
        let _wanted = (number, bytes, make);
        Err(Code::IOERR_LOCK)
    }

    /// Takes locks of the shared memory, all or none.
    ///
    /// # Errors
    /// [`Code::BUSY`] where another connection is in the way.
    fn shm_lock(&mut self, range: ShmRange) -> Result {
        let _wanted = range;
        Err(Code::IOERR_LOCK)
    }

    /// Gives up locks of the shared memory.
    ///
    /// # Errors
    /// Codes of SQLite.
    fn shm_unlock(&mut self, range: ShmRange) -> Result {
        let _given_up = range;
        Ok(())
    }

    /// Gives up the shared memory; the last connection to do so may remove it.
    ///
    /// # Errors
    /// Codes of SQLite.
    fn shm_unmap(&mut self, is_removed: bool) -> Result {
        let _given_up = is_removed;
        Ok(())
    }
}
