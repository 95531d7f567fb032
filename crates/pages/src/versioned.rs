//! The operations of a store of page versions, as a trait.
//!
//! The operations are those of MV-FTL: a transaction begins on the newest version, writes, and
//! commits or aborts; a snapshot of a version can be read until it is purged.

use crate::error::Result;
use crate::options::Durability;
use crate::snapshot::Snapshot;
use crate::store::PageStore;
use crate::writer::Writer;

/// A store of pages of one size, with versions. One transaction at a time; snapshots never wait.
pub trait Versioned {
    /// A version that stays readable.
    type Snapshot;
    /// An open transaction.
    type Transaction;

    /// Holds the newest version.
    fn snapshot(&self) -> Self::Snapshot;

    /// Begins a transaction on the newest version.
    ///
    /// # Errors
    /// Another transaction is open, or the store accepts no more.
    fn begin(&self) -> Result<Self::Transaction>;

    /// Fills `buf` from `offset` of a page as a version has it.
    ///
    /// # Errors
    /// The page or the range does not exist, or is damaged.
    fn read(&self, version: &Self::Snapshot, page: u32, offset: u32, buf: &mut [u8]) -> Result<()>;

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
    ) -> Result<()>;

    /// Makes the writes of a transaction the newest version, atomically.
    ///
    /// # Errors
    /// Nothing of it is visible then.
    fn commit(
        &self,
        transaction: Self::Transaction,
        durability: Durability,
    ) -> Result<Self::Snapshot>;

    /// Drops the writes of a transaction.
    fn abort(&self, transaction: Self::Transaction);

    /// Releases a version: space that only it needed becomes free, if it is not the newest.
    fn purge(&self, version: Self::Snapshot);
}

impl Versioned for PageStore {
    type Snapshot = Snapshot;
    type Transaction = Writer;

    fn snapshot(&self) -> Snapshot {
        self.pin()
    }

    fn begin(&self) -> Result<Writer> {
        Self::begin(self, &self.pin())
    }

    fn read(&self, version: &Snapshot, page: u32, offset: u32, buf: &mut [u8]) -> Result<()> {
        version.read(page, offset, buf)
    }

    fn write(&self, transaction: &mut Writer, page: u32, offset: u32, bytes: &[u8]) -> Result<()> {
        transaction.write(page, offset, bytes)
    }

    fn commit(&self, transaction: Writer, durability: Durability) -> Result<Snapshot> {
        transaction.commit(durability)
    }

    fn abort(&self, transaction: Writer) {
        transaction.abort();
    }

    fn purge(&self, version: Snapshot) {
        drop(version);
    }
}
