//! The store's own: a keyspace with all history, in a folder, with the memory of the other trees.
//!
//! Merges run to their end in the thread that writes, and time and randomness are simulated, so
//! that what is counted is the same on every machine. The store counts bytes; a page is 4 KiB of
//! them. What it writes for itself, the manifest and the times of commits, is included.

use std::sync::Arc;

use esker::{Batch, Db, Durability, History, Keyspace, KeyspaceOptions, SimRuntime, Stats};
use tempfile::TempDir;

use super::pages::Counters;
use super::{Key, Multiversion, Value, Version};
use crate::{Error, Result};

/// Bytes of a page.
const PAGE_BYTES: u64 = 4096;
const NAME: &str = "entries";

/// A store with the keyspace.
#[derive(Debug)]
pub struct Kept {
    keyspace: Keyspace,
    db: Db,
    batch: Option<Batch>,
    /// The store's number of each version; the first one is before everything.
    versions: Vec<u64>,
    _folder: TempDir,
}

impl Kept {
    /// An empty keyspace in a store with memory for a number of pages.
    ///
    /// # Errors
    /// Those of the store and of the system.
    pub fn new(memory_pages: usize) -> Result<Self> {
        let folder = tempfile::tempdir().map_err(Error::system("make a folder"))?;
        let db = Db::builder(folder.path())
            .memory_budget(memory_pages as u64 * PAGE_BYTES)
            .runtime(Arc::new(SimRuntime::new(1)))
            .inline_merges(0)
            .open()?;
        let keyspace = db.keyspace(NAME, KeyspaceOptions::default().history(History::All))?;
        let versions = vec![db.version()];
        Ok(Self { keyspace, db, batch: None, versions, _folder: folder })
    }

    fn batch(&mut self) -> &mut Batch {
        self.batch.get_or_insert_with(|| self.db.batch())
    }

    fn version(&self, version: Version) -> u64 {
        let known = self.versions.get(version as usize).or(self.versions.last());
        known.copied().unwrap_or_default()
    }

    /// Pages that were read, and written without the log.
    ///
    /// # Errors
    /// Those of the store.
    pub fn counters(&self) -> Result<Counters> {
        let stats = self.db.stats()?;
        let data = || stats.io.iter().filter(|io| io.purpose != "log");
        let pages = |bytes: u64| bytes.div_ceil(PAGE_BYTES);
        let reads = pages(data().map(|io| io.bytes_read).sum());
        let writes = pages(data().map(|io| io.bytes_written).sum());
        Ok(Counters { reads, writes, sequential: 0 })
    }

    /// Pages of the log that were written.
    ///
    /// # Errors
    /// Those of the store.
    pub fn log_pages(&self) -> Result<u64> {
        let stats = self.db.stats()?;
        let log = stats.io.iter().filter(|io| io.purpose == "log").map(|io| io.bytes_written);
        Ok(log.sum::<u64>().div_ceil(PAGE_BYTES))
    }

    /// Writes out what is in memory.
    ///
    /// # Errors
    /// Those of the store.
    pub fn flush(&self) -> Result<()> {
        Ok(self.db.flush()?)
    }

    /// Pages of the data file that are taken.
    ///
    /// # Errors
    /// Those of the store.
    pub fn pages(&self) -> Result<u64> {
        Ok(self.db.stats()?.space.allocated_bytes.div_ceil(PAGE_BYTES))
    }

    /// Past indexes, and entries of the index of now.
    ///
    /// # Errors
    /// Those of the store.
    pub fn indexes(&self) -> Result<(u64, u64)> {
        let of = |stats: Stats| stats.keyspaces.into_iter().find(|of| of.name == NAME);
        let found = of(self.db.stats()?).unwrap_or_default();
        let now = found.levels.iter().map(|level| level.puts + level.tombstones).sum();
        Ok((found.past_indexes.len() as u64, now))
    }
}

fn value_of(bytes: &[u8]) -> Result<Value> {
    let bytes = bytes.try_into().map_err(|_| Error::Invalid("a value has 8 bytes".to_owned()))?;
    Ok(Value::from_be_bytes(bytes))
}

impl Multiversion for Kept {
    fn begin(&mut self) -> Result<()> {
        self.batch = None;
        Ok(())
    }

    fn insert(&mut self, key: Key, value: Value) -> Result<()> {
        let keyspace = self.keyspace.clone();
        self.batch().insert(&keyspace, key.to_be_bytes(), value.to_be_bytes());
        Ok(())
    }

    fn delete(&mut self, key: Key) -> Result<()> {
        let keyspace = self.keyspace.clone();
        self.batch().remove(&keyspace, key.to_be_bytes());
        Ok(())
    }

    fn commit(&mut self) -> Result<Version> {
        let version = match self.batch.take() {
            Some(batch) => batch.commit_with(Durability::Buffered)?,
            None => self.db.version(),
        };
        self.versions.push(version);
        let number = Version::try_from(self.versions.len() - 1);
        number.map_err(|_| Error::Invalid("versions have run out".to_owned()))
    }

    fn get(&mut self, key: Key, version: Version) -> Result<Option<Value>> {
        let past = self.keyspace.at(self.version(version))?;
        past.get(key.to_be_bytes())?.map(|value| value_of(&value)).transpose()
    }

    fn range(&mut self, version: Version) -> Result<Vec<(Key, Value)>> {
        let past = self.keyspace.at(self.version(version))?;
        let mut all = Vec::new();
        for entry in past.iter()? {
            let (key, value) = entry?;
            all.push((value_of(&key)?, value_of(&value)?));
        }
        Ok(all)
    }
}
