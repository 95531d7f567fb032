//! The requests of a stream.

/// The kind of a request to a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Read the value of a key that is there.
    Lookup,
    /// Set the value of a key, new or not.
    Put,
    /// Remove a key that is there.
    Delete,
}

/// One request. Two puts of the same key differ in their version, so that a reader can tell
/// which of them it sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// The operation to do.
    pub kind: Kind,
    /// The key's number; see [`crate::entry`] for its bytes.
    pub number: u64,
    /// Which of the number's values a put sets; 0 for the other kinds.
    pub version: u64,
}

impl Request {
    /// A lookup.
    #[must_use]
    pub const fn lookup(number: u64) -> Self {
        Self { kind: Kind::Lookup, number, version: 0 }
    }

    /// A put.
    #[must_use]
    pub const fn put(number: u64, version: u64) -> Self {
        Self { kind: Kind::Put, number, version }
    }

    /// A deletion.
    #[must_use]
    pub const fn delete(number: u64) -> Self {
        Self { kind: Kind::Delete, number, version: 0 }
    }
}
