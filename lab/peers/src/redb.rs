//! redb 4: a cache of B; a buffered write is a transaction of `Durability::None`, a durable one
//! of `Durability::Immediate`.
//!
//! It writes in place, so nothing runs in the background. Its compaction needs the database for
//! itself: operations wait until it is done, and it refuses while a scan is open.

use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use parking_lot::{RwLock, RwLockReadGuard};
use redb::{Database, ReadableDatabase, TableDefinition, WriteTransaction};

use crate::system::{Durability, Error, Figures, Held, Name, Result, System};

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("default");
const FILE: &str = "redb";

struct Redb {
    db: RwLock<Database>,
}

/// Its errors are many types, all of which turn into one.
fn failed(error: impl Into<redb::Error>) -> Error {
    Name::Redb.failed(error.into())
}

pub(crate) fn open(folder: &Path, budget_bytes: u64) -> Result<Box<dyn System>> {
    let cache_bytes = usize::try_from(budget_bytes).unwrap_or(usize::MAX);
    std::fs::create_dir_all(folder).map_err(|error| Name::Redb.failed(error))?;
    let db = redb::Builder::new().set_cache_size(cache_bytes).create(folder.join(FILE));
    let store = Redb { db: RwLock::new(db.map_err(failed)?) };
    // The table must be there before anything reads it.
    store.write(Durability::Synced, |_| Ok(()))?;
    Ok(Box::new(store))
}

impl Redb {
    fn shared(&self) -> RwLockReadGuard<'_, Database> {
        self.db.read()
    }

    /// One write transaction.
    fn write(
        &self,
        durability: Durability,
        change: impl FnOnce(&mut redb::Table<'_, &'static [u8], &'static [u8]>) -> Result<()>,
    ) -> Result<()> {
        let db = self.shared();
        let mut transaction: WriteTransaction = db.begin_write().map_err(failed)?;
        let how = match durability {
            Durability::Buffered => redb::Durability::None,
            Durability::Synced => redb::Durability::Immediate,
        };
        transaction.set_durability(how).map_err(failed)?;
        change(&mut transaction.open_table(TABLE).map_err(failed)?)?;
        transaction.commit().map_err(failed)
    }
}

/// Reads on from the position of the iterator.
fn read(iterator: &mut redb::Range<'_, &'static [u8], &'static [u8]>, entries: u64) -> Result<u64> {
    let mut seen = 0;
    while seen < entries {
        let Some(entry) = iterator.next() else { break };
        let (key, value) = entry.map_err(failed)?;
        black_box((key.value().to_vec(), value.value().to_vec()));
        seen += 1;
    }
    Ok(seen)
}

impl System for Redb {
    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<()> {
        self.write(durability, |table| {
            table.insert(key, value).map_err(failed)?;
            Ok(())
        })
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.write(Durability::Buffered, |table| {
            table.remove(key).map_err(failed)?;
            Ok(())
        })
    }

    fn remove_range(&self, _from: &[u8], _to: &[u8]) -> Result<()> {
        Err(Error::Unable { system: "redb", what: "remove a range by one operation" })
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let db = self.shared();
        let transaction = db.begin_read().map_err(failed)?;
        let table = transaction.open_table(TABLE).map_err(failed)?;
        let value = table.get(key).map_err(failed)?;
        Ok(value.map(|value| value.value().to_vec()))
    }

    fn scan(&self, from: &[u8], entries: u64) -> Result<u64> {
        let db = self.shared();
        let transaction = db.begin_read().map_err(failed)?;
        let table = transaction.open_table(TABLE).map_err(failed)?;
        read(&mut table.range(from..).map_err(failed)?, entries)
    }

    fn hold_scan(&self, entries: u64) -> Result<Held<'_>> {
        let transaction = self.shared().begin_read().map_err(failed)?;
        let table = transaction.open_table(TABLE).map_err(failed)?;
        let mut iterator = table.range::<&[u8]>(..).map_err(failed)?;
        read(&mut iterator, entries)?;
        Ok(Held::new((iterator, table, transaction)))
    }

    fn persist(&self) -> Result<()> {
        self.write(Durability::Synced, |_| Ok(()))
    }

    fn wait_idle(&self) -> Result<Duration> {
        self.persist()?;
        Ok(Duration::ZERO)
    }

    fn compacts_during_scans(&self) -> bool {
        false
    }

    fn compact(&self) -> Result<()> {
        match self.db.write().compact() {
            Ok(_) => Ok(()),
            Err(redb::CompactionError::TransactionInProgress) => Err(Error::Unable {
                system: Name::Redb.as_str(),
                what: "compact while a scan is open",
            }),
            Err(error) => Err(failed(error)),
        }
    }

    fn figures(&self) -> Result<Figures> {
        Ok(Figures::new())
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.persist()
    }
}
