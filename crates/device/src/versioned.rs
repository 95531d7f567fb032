//! The operations of a store of page versions, as a trait.
//!
//! The operations are those of MV-FTL: a transaction begins on the newest version, writes, and
//! commits or aborts; a snapshot of a version can be read until it is purged.

/// A store of pages of one size, with versions. One transaction at a time; snapshots never wait.
pub trait Versioned {
    /// A version that stays readable.
    type Snapshot;
    /// An open transaction.
    type Transaction;
    /// The point at which a commit may return.
    type Durability;
    /// The reason why an operation failed.
    type Error: std::error::Error;

    /// Holds the newest version.
    fn snapshot(&self) -> Self::Snapshot;

    /// Begins a transaction on the newest version.
    ///
    /// # Errors
    /// Another transaction is open, or the store accepts no more.
    fn begin(&self) -> Result<Self::Transaction, Self::Error>;

    /// Fills `buf` from `offset` of a page as a version has it.
    ///
    /// # Errors
    /// The page or the range does not exist, or is damaged.
    fn read(
        &self,
        version: &Self::Snapshot,
        page: u32,
        offset: u32,
        buf: &mut [u8],
    ) -> Result<(), Self::Error>;

    /// Changes a part of a page. Only this transaction sees the change.
    ///
    /// # Errors
    /// There is no such part of a page, or no room.
    fn write(
        &self,
        transaction: &mut Self::Transaction,
        page: u32,
        offset: u32,
        bytes: &[u8],
    ) -> Result<(), Self::Error>;

    /// Makes the writes of a transaction the newest version, atomically.
    ///
    /// # Errors
    /// Nothing of it is visible then.
    fn commit(
        &self,
        transaction: Self::Transaction,
        durability: Self::Durability,
    ) -> Result<Self::Snapshot, Self::Error>;

    /// Drops the writes of a transaction.
    fn abort(&self, transaction: Self::Transaction);

    /// Releases a version: space that only it needed becomes free, if it is not the newest.
    fn purge(&self, version: Self::Snapshot);
}
