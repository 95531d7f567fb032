//! One type for each kind of number that could be confused with another.

use core::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

number! {
    /// A sequence number: the position of one operation in the order of all operations of a store.
    /// Numbers start at 1 and are never used twice; 0 means "before everything".
    Seq(u64)
}
number! {
    /// A keyspace. Ids are never reused.
    KeyspaceId(u32)
}
number! {
    /// The generation of a block: which writing of an address this is. A fence names its child's
    /// generation, so that a stale block at the right address is refused.
    Generation(u64)
}
number! {
    /// One use of a log segment; increases with every segment taken into use.
    SegmentId(u64)
}
number! {
    /// One writing of the manifest from scratch; the superblock names the current one.
    Epoch(u64)
}
number! {
    /// A moment of the wall clock: milliseconds since the beginning of 1970, UTC.
    Moment(u64)
}

impl Seq {
    /// Above every number that a store can reach: "the newest version".
    pub const MAX: Self = Self(u64::MAX);
    /// The number of a version that every reader sees, assigned by a full merge: the least that an
    /// operation can have. In a block whose versions all have it, numbers take no space.
    pub const RESET: Self = Self(1);

    /// The next number; saturates.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl Generation {
    /// The next generation; saturates.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// The identity of a store, drawn at random when it is created; every file and block carries it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StoreId(pub u64);

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
