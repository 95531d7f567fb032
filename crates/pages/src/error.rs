//! Errors of the page store.

use esker_device::DeviceError;
use esker_format::DecodeError;

/// The result of an operation of the page store.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason of a failed operation. After any error nothing of the operation is visible.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another writer is open, or a prepared transaction awaits its decision.
    #[error("another transaction is writing: wait until it has ended")]
    Busy,
    /// Another opening has the file, and one of the two is for writing.
    #[error("{file} is {how}")]
    Locked {
        /// The file.
        file: String,
        /// The way in which it is open, and what that forbids.
        how: &'static str,
    },
    /// A signal ended the wait for the process that has the file open.
    #[error("a signal ended the wait for {file}, which is open in another process: try again")]
    Interrupted {
        /// The file.
        file: String,
    },
    /// The store was opened by the parent process, before a `fork`.
    #[error(
        "{file} was opened before a fork, by the parent of this process: open it after the fork"
    )]
    Forked {
        /// The file.
        file: String,
    },
    /// The store was opened for reading.
    #[error("{file} is open for reading only: open it for writing to change it")]
    ReadOnly {
        /// The file.
        file: String,
    },
    /// The snapshot is not the newest version any more.
    #[error("version {base} is not the newest, {newest} is: begin again from a new snapshot")]
    Stale {
        /// The version that the writer wanted to start from.
        base: u64,
        /// The newest version.
        newest: u64,
    },
    /// There is no room left.
    #[error("no room for the page store: {reason}; make room and try again")]
    Full {
        /// The message of the device, or the limit that was reached.
        reason: String,
    },
    /// The file is not a store.
    #[error("{file} is {what}")]
    Foreign {
        /// The file.
        file: String,
        /// A description of what it is instead, and of what to do.
        what: &'static str,
    },
    /// Bytes of the file are not what was written.
    #[error("{file} is damaged at byte {offset}: {what}; restore it from a copy")]
    Corrupt {
        /// The file.
        file: String,
        /// The place, in bytes from the start of the file.
        offset: u64,
        /// A description of the damage.
        what: &'static str,
    },
    /// The file was written by a newer version.
    #[error("{file} has format {found}, this is made for {supported}: use a newer version")]
    TooNew {
        /// The file.
        file: String,
        /// The format of the file.
        found: u32,
        /// The newest format that this version reads.
        supported: u32,
    },
    /// The device failed.
    #[error(transparent)]
    Device(DeviceError),
    /// An earlier write failed, and the contents of the device are unknown.
    #[error("an earlier write failed, so nothing more is written: close the store and open it")]
    Poisoned,
    /// The caller passed an invalid argument.
    #[error("{0}")]
    InvalidArgument(String),
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Self {
        if error.is_full() { Self::Full { reason: error.to_string() } } else { Self::Device(error) }
    }
}

/// Damage in `file`; the decoder's offset counts from `base`.
pub(crate) fn damaged(file: &str, base: u64, error: &DecodeError) -> Error {
    corrupt(file, base.saturating_add(error.offset as u64), error.what)
}

/// Damage at a byte of `file`.
pub(crate) fn corrupt(file: &str, offset: u64, what: &'static str) -> Error {
    Error::Corrupt { file: file.to_owned(), offset, what }
}

/// A wrong argument.
pub(crate) fn invalid<T>(what: impl Into<String>) -> Result<T> {
    Err(Error::InvalidArgument(what.into()))
}
