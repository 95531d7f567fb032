//! SQLite's result codes, and the mapping of errors to them.

use std::ffi::c_int;

use esker_pages::Error;

/// A result code that is not `SQLITE_OK`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub c_int);

/// The result of the methods.
pub type Result<T = ()> = std::result::Result<T, Code>;

/// `SQLITE_OK`.
pub const OK: c_int = 0;
/// `SQLITE_OK_LOAD_PERMANENTLY`: the library must stay loaded.
pub const OK_LOAD_PERMANENTLY: c_int = 256;

const IOERR: c_int = 10;
/// `EIO` of Linux: a device that fails, not a wrong name or missing permission.
const EIO: i32 = 5;

impl Code {
    /// `SQLITE_ERROR`.
    pub const ERROR: Self = Self(1);
    /// `SQLITE_BUSY`.
    pub const BUSY: Self = Self(5);
    /// `SQLITE_BUSY_SNAPSHOT`: a reader's version is not the newest, so it cannot write.
    pub const BUSY_SNAPSHOT: Self = Self(5 | 2 << 8);
    /// `SQLITE_READONLY`.
    pub const READONLY: Self = Self(8);
    /// `SQLITE_READONLY_DBMOVED`: the file was renamed or deleted since it was opened.
    pub const READONLY_DBMOVED: Self = Self(8 | 4 << 8);
    /// `SQLITE_INTERRUPT`.
    pub const INTERRUPT: Self = Self(9);
    /// `SQLITE_CORRUPT`.
    pub const CORRUPT: Self = Self(11);
    /// `SQLITE_NOTFOUND`: a file control that this VFS does not handle.
    pub const NOTFOUND: Self = Self(12);
    /// `SQLITE_FULL`.
    pub const FULL: Self = Self(13);
    /// `SQLITE_CANTOPEN`.
    pub const CANTOPEN: Self = Self(14);
    /// `SQLITE_NOTADB`.
    pub const NOTADB: Self = Self(26);
    /// `SQLITE_IOERR_READ`.
    pub const IOERR_READ: Self = Self(IOERR | 1 << 8);
    /// `SQLITE_IOERR_SHORT_READ`: the end of the file came first; the rest is zeros.
    pub const SHORT_READ: Self = Self(IOERR | 2 << 8);
    /// `SQLITE_IOERR_WRITE`.
    pub const IOERR_WRITE: Self = Self(IOERR | 3 << 8);
    /// `SQLITE_IOERR_LOCK`.
    pub const IOERR_LOCK: Self = Self(IOERR | 15 << 8);
    /// `SQLITE_IOERR_DELETE_NOENT`: there is no such file to delete.
    pub const DELETE_NOENT: Self = Self(IOERR | 23 << 8);
    /// `SQLITE_IOERR_NOMEM`.
    pub const IOERR_NOMEM: Self = Self(IOERR | 12 << 8);
    /// `SQLITE_IOERR_DATA`: a checksum does not match.
    pub const IOERR_DATA: Self = Self(IOERR | 32 << 8);

    /// The code for a store that does not open.
    #[must_use]
    pub fn of_open(error: &Error) -> Self {
        match error {
            Error::Device(error) if error.source.raw_os_error() == Some(EIO) => Self::IOERR_READ,
            Error::Foreign { .. } | Error::TooNew { .. } => Self::NOTADB,
            Error::Corrupt { .. } => Self::CORRUPT,
            Error::Busy | Error::Locked { .. } => Self::BUSY,
            Error::Interrupted { .. } => Self::INTERRUPT,
            Error::Full { .. } => Self::FULL,
            _ => Self::CANTOPEN,
        }
    }

    /// The code for a failed read.
    #[must_use]
    pub const fn of_read(error: &Error) -> Self {
        if matches!(error, Error::Corrupt { .. }) { Self::IOERR_DATA } else { Self::IOERR_READ }
    }

    /// The code for a failed write or commit: only for these codes the pager drops its cache, which
    /// it has already marked clean.
    #[must_use]
    pub const fn of_write(error: &Error) -> Self {
        if matches!(error, Error::Full { .. }) { Self::FULL } else { Self::IOERR_WRITE }
    }
}
