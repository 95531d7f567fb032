//! The few things that can go wrong for a user, each saying what to do about it.
//!
//! Every message is one line: control characters in names and paths are replaced.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use esker_device::DeviceError;
use esker_index::UnknownIndexKind;
use esker_substrate::Error as Inner;

/// The result of every fallible operation of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// Bytes on the device differ from those that were written. Other data stays readable;
    /// [`Db::check`](crate::Db::check) lists all damage.
    Damaged {
        /// File name or path.
        file: String,
        /// Offset in the file, in bytes.
        offset: u64,
        /// A description of what was expected and what was found.
        what: String,
    },
    /// Another process or handle has the store open.
    Locked {
        /// The folder or the device of the store.
        location: String,
    },
    /// The device refused an operation.
    Io(Arc<DeviceError>),
    /// No space is left. Reads and deletes continue to work: free space on the device, or delete
    /// data and compact the store.
    Full {
        /// The file or operation that needed the space.
        what: String,
    },
    /// An earlier write or sync failed. Reads continue to work; writes are refused until the store
    /// is reopened.
    Poisoned {
        /// The first failure.
        reason: String,
    },
    /// The store was opened read-only ([`DbBuilder::read_only`](crate::DbBuilder::read_only)).
    ReadOnly,
    /// An argument is outside its documented bounds.
    Invalid {
        /// The argument that is out of bounds, and the bound.
        what: String,
    },
    /// A merge operator could not merge the operands of a key: it failed, it panicked, or it was
    /// not given when the keyspace was opened. The written data is kept; other keys can be read.
    Operator {
        /// The operator, its keyspace and key, and the reason for the failure.
        what: String,
    },
    /// Something that a transaction had read was changed before the commit, or the transaction was
    /// too old for this to be checked. None of its writes were applied; run the transaction again
    /// from its beginning.
    Conflict {
        /// The keyspace in which it was changed, or the reason why it could not be checked.
        what: String,
    },
    /// A follower's snapshot, or a scan that it has begun, is older than what the writer keeps: the
    /// follower could not tell the writer what it reads. Begin again with a new one.
    TooOld {
        /// The sequence number of the snapshot.
        seq: u64,
        /// The oldest sequence number that can be read.
        from: u64,
    },
    /// A follower has read blocks many times that the writer had used again, each time after it had
    /// caught up.
    Overtaken {
        /// The folder or the device of the store.
        location: String,
    },
    /// The folder exists and is not a store; nothing in it was touched.
    NotAStore {
        /// The folder.
        location: String,
        /// A description of what is missing or foreign.
        what: String,
    },
    /// The file was written by a newer version of Esker.
    TooNew {
        /// File name or path.
        file: String,
        /// The format version of the file.
        found: u32,
        /// The newest format version that this build reads.
        supported: u32,
    },
    /// There is no store, and the options do not allow creating one.
    NoStore {
        /// The folder or device that has no store.
        location: String,
    },
    /// The keyspace does not exist, or was dropped while this handle was held.
    NoKeyspace {
        /// The name of the keyspace.
        name: String,
    },
    /// The store was closed while this handle was held.
    Closed,
    /// The store was opened by the parent of this process, before `fork`. A child process cannot
    /// use it.
    Forked {
        /// The folder or the device of the store.
        location: String,
    },
}

impl Error {
    /// An argument out of bounds.
    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid { what: what.into() }
    }

    /// Whether this is [`Conflict`](Self::Conflict): the transaction should be run again.
    #[must_use]
    pub const fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict { .. })
    }

    /// Whether a follower may have met space that its writer has used again.
    pub(crate) const fn may_be_reuse(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Io(_))
    }

    /// Whether trying the same operation again, with nothing else done, may succeed: true for
    /// what depends on the device's state, false for damage.
    pub(crate) const fn may_pass(&self) -> bool {
        matches!(self, Self::Io(_) | Self::Full { .. })
    }
}

impl From<Inner> for Error {
    fn from(error: Inner) -> Self {
        match error {
            Inner::Device(error) => error.into(),
            Inner::Corrupt { file, offset, what } => Self::Damaged { file, offset, what },
            Inner::TooNew { file, found, supported } => Self::TooNew { file, found, supported },
            Inner::NotAStore { location, what } => Self::NotAStore { location, what },
            Inner::Full { what } => Self::Full { what },
            Inner::Poisoned { reason } => Self::Poisoned { reason: reason.to_string() },
            Inner::Invalid { what } => Self::Invalid { what },
            Inner::ReadOnly => Self::ReadOnly,
            Inner::Operator { what } => Self::Operator { what },
        }
    }
}

impl From<UnknownIndexKind> for Error {
    fn from(error: UnknownIndexKind) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<Arc<DeviceError>> for Error {
    fn from(error: Arc<DeviceError>) -> Self {
        if error.is_full() { Self::Full { what: error.file.clone() } } else { Self::Io(error) }
    }
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Self {
        Arc::new(error).into()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error.as_ref()),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let out = &mut OneLine(f);
        match self {
            Self::Damaged { file, offset, what } => {
                write!(out, "{file} is damaged at byte {offset}: {what}")
            }
            Self::Locked { location } => {
                write!(out, "{location} is open in another process or handle")
            }
            Self::Io(error) => write!(out, "{error}"),
            Self::Full { what } => {
                write!(out, "no space left for {what}: free space, or delete and compact")
            }
            Self::Poisoned { reason } => write!(
                out,
                "the store is read-only since a write failed ({reason}): \
                 close it, check the device, reopen"
            ),
            Self::Invalid { what } | Self::Operator { what } => write!(out, "{what}"),
            Self::Conflict { what } => write!(out, "{what}: run the transaction again"),
            Self::TooOld { seq, from } => write!(
                out,
                "the writer of the store may not have kept what was there at operation {seq}, only \
                 from {from} on: begin again with a new snapshot or scan"
            ),
            Self::Overtaken { location } => write!(
                out,
                "the writer of {location} uses space again faster than it could be read here: \
                 try again, or give the writer longer intervals between merges"
            ),
            Self::NotAStore { location, what } => {
                write!(out, "{location} is not an Esker store: {what}")
            }
            Self::TooNew { file, found, supported } => write!(
                out,
                "{file} has format version {found}, this build reads up to {supported}: \
                 use a newer esker"
            ),
            Self::NoStore { location } => write!(out, "there is no store at {location}"),
            Self::NoKeyspace { name } => write!(out, "there is no keyspace {name}"),
            Self::Closed => write!(out, "the store is closed"),
            Self::ReadOnly => {
                write!(out, "the store was opened read-only: open it for writing to change it")
            }
            Self::Forked { location } => write!(
                out,
                "{location} was opened before a fork, by the parent of this process: \
                 open it in one process, after the fork"
            ),
        }
    }
}

/// Replaces control characters, so that a hostile name cannot break a log into false lines.
struct OneLine<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl fmt::Write for OneLine<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for part in text.split_inclusive(char::is_control) {
            match part.strip_suffix(char::is_control) {
                None => self.0.write_str(part)?,
                Some(clean) => write!(self.0, "{clean}{}", char::REPLACEMENT_CHARACTER)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_is_one_line() {
        let hostile = "a\nb\r\u{7}c".to_string();
        let error = Error::NoKeyspace { name: hostile.clone() };
        assert_eq!(error.to_string(), "there is no keyspace a\u{fffd}b\u{fffd}\u{fffd}c");
        let error = Error::Damaged { file: hostile, offset: 7, what: "x".into() };
        assert!(!error.to_string().contains('\n'));
    }

    #[test]
    fn a_full_device_is_full_and_not_io() {
        let full = |kind: std::io::ErrorKind| DeviceError {
            operation: esker_device::Operation::Write,
            file: "data".into(),
            offset: 0,
            source: kind.into(),
        };
        let error = Error::from(full(std::io::ErrorKind::StorageFull));
        assert!(matches!(error, Error::Full { .. }));
        assert!(matches!(Error::from(full(std::io::ErrorKind::Other)), Error::Io(_)));
    }
}
