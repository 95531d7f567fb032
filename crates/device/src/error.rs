//! Errors of devices: the operation, the place, and the answer of the system.

use std::io;

/// The result of a device operation.
pub type Result<T> = std::result::Result<T, DeviceError>;

/// The attempted operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Opening or creating a file or folder.
    Open,
    /// Listing the folder.
    List,
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Making data durable.
    Sync,
    /// Changing a length or reserving space.
    Resize,
    /// Removing or renaming a file, or syncing the folder.
    Directory,
    /// Locking.
    Lock,
}

impl Operation {
    /// The verb of the operation, for messages: "cannot … the file".
    #[must_use]
    pub const fn verb(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::List => "list",
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Resize => "resize",
            Self::Directory => "change the folder entry of",
            Self::Lock => "lock",
        }
    }
}

/// A device operation that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {} {file}{}: {source}", operation.verb(), self.place())]
pub struct DeviceError {
    /// The attempted operation.
    pub operation: Operation,
    /// The file, as a path where there is one.
    pub file: String,
    /// Offset in the file, in bytes (0 where it has no meaning).
    pub offset: u64,
    /// The error of the system.
    pub source: io::Error,
}

impl DeviceError {
    /// An error of an operation on a file, with its cause.
    #[must_use]
    pub fn new(
        operation: Operation,
        file: impl Into<String>,
        offset: u64,
        source: impl Into<io::Error>,
    ) -> Self {
        Self { operation, file: file.into(), offset, source: source.into() }
    }

    /// The offset, as a part of a sentence, where the operation has one.
    fn place(&self) -> String {
        match self.operation {
            Operation::Read | Operation::Write => format!(" at byte {}", self.offset),
            _ => String::new(),
        }
    }

    /// Whether the device has no room left (ENOSPC, EDQUOT, EFBIG).
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(
            self.source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_is_printed_where_there_is_one() {
        let said = |operation| {
            let error = DeviceError::new(operation, "data", 7, io::ErrorKind::NotFound);
            error.to_string()
        };
        assert_eq!(said(Operation::Read), "cannot read data at byte 7: entity not found");
        assert_eq!(said(Operation::Open), "cannot open data: entity not found");
        assert_eq!(said(Operation::Lock), "cannot lock data: entity not found");
    }
}
