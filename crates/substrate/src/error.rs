//! The errors below the public API, with the details that their handling needs.

use std::sync::Arc;

use esker_device::DeviceError;
use esker_format::DecodeError;

/// The result of anything that touches the device.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the machinery; the store maps it to its few public kinds.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The device refused.
    #[error(transparent)]
    Device(Arc<DeviceError>),
    /// Bytes on the device differ from what was written there.
    #[error("{file} is damaged at byte {offset}: {what}")]
    Corrupt {
        /// File name or path.
        file: String,
        /// Offset in the file, in bytes.
        offset: u64,
        /// The expected and the actual state.
        what: String,
    },
    /// Written by a newer version of Esker.
    #[error(
        "{file} has format version {found}; this build reads up to {supported}: use a newer esker"
    )]
    TooNew {
        /// File name or path.
        file: String,
        /// Version found.
        found: u32,
        /// Newest version this build reads.
        supported: u32,
    },
    /// The folder is not a store.
    #[error("{location} is not an Esker store: {what}")]
    NotAStore {
        /// The folder.
        location: String,
        /// The missing or foreign part.
        what: String,
    },
    /// The device is full: the operation was refused before anything was changed.
    #[error("no space left for {what}: free space on the device, or delete and compact")]
    Full {
        /// The operation that needed the space.
        what: String,
    },
    /// A merge operator cannot merge operands.
    #[error("{what}")]
    Operator {
        /// The operator, its keyspace and key, and the reason.
        what: String,
    },
    /// An earlier write or sync failed; the store accepts no writes until it is reopened.
    #[error(
        "the store is read-only since a write failed ({reason}): close it, check the device, reopen"
    )]
    Poisoned {
        /// The first failure.
        reason: Arc<str>,
    },
    /// The store was opened for reading.
    #[error("the store was opened read-only: open it for writing to change it")]
    ReadOnly,
    /// An input is outside its documented bounds.
    #[error("{what}")]
    Invalid {
        /// The value that is out of bounds, and the bound.
        what: String,
    },
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Self {
        Self::Device(Arc::new(error))
    }
}

impl Error {
    /// Damage found while decoding bytes that start at `base` in `file`.
    pub fn corrupt(file: impl Into<String>, base: u64, error: &DecodeError) -> Self {
        Self::Corrupt {
            file: file.into(),
            offset: base.saturating_add(error.offset as u64),
            what: error.what.to_string(),
        }
    }
}
