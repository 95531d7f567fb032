//! The store as a [`Versioned`] device of pages.

use esker_device::versioned::Versioned;

use crate::error::{Error, Result};
use crate::options::Durability;
use crate::snapshot::Snapshot;
use crate::store::PageStore;
use crate::writer::Writer;

impl Versioned for PageStore {
    type Snapshot = Snapshot;
    type Transaction = Writer;
    type Durability = Durability;
    type Error = Error;

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
