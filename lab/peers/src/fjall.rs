//! fjall 3: a cache of B/2, write buffers of B/2 together, memtables of B/8, 2 workers, blocks
//! of 4 KiB, its default filters. No compression.
//!
//! Its full compaction runs in the calling thread. Several of the calls used here are hidden from
//! its documentation, there being no others for these purposes.

use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use fjall::config::BlockSizePolicy;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use crate::system::{Durability, Error, Figures, Held, Name, Result, System, rest};

/// The library refuses less than this of write buffers.
const WRITE_BUFFERS_BYTES_MIN: u64 = 1 << 20;

struct Fjall {
    db: Database,
    keyspace: Keyspace,
}

fn failed(error: fjall::Error) -> Error {
    Name::Fjall.failed(error)
}

pub(crate) fn open(folder: &Path, budget_bytes: u64) -> Result<Box<dyn System>> {
    let builder = Database::builder(folder).cache_size(budget_bytes / 2).worker_threads(2);
    #[expect(deprecated, reason = "there is no other way to bound its write buffers")]
    let builder =
        builder.max_write_buffer_size(Some((budget_bytes / 2).max(WRITE_BUFFERS_BYTES_MIN)));
    let db = builder.open().map_err(failed)?;
    let options = || {
        KeyspaceCreateOptions::default()
            .max_memtable_size(budget_bytes / 8)
            .data_block_size_policy(BlockSizePolicy::all(4 << 10))
    };
    let keyspace = db.keyspace("default", options).map_err(failed)?;
    Ok(Box::new(Fjall { db, keyspace }))
}

impl Fjall {
    fn is_busy(&self) -> bool {
        self.db.outstanding_flushes() > 0
            || self.db.active_compactions() > 0
            || self.keyspace.sealed_memtable_count() > 0
    }
}

/// Reads on from the position of the iterator.
fn read(iterator: &mut fjall::Iter, entries: u64) -> Result<u64> {
    let mut seen = 0;
    while seen < entries {
        let Some(entry) = iterator.next() else { break };
        black_box(entry.into_inner().map_err(failed)?);
        seen += 1;
    }
    Ok(seen)
}

impl System for Fjall {
    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<()> {
        self.keyspace.insert(key, value).map_err(failed)?;
        match durability {
            Durability::Buffered => Ok(()),
            Durability::Synced => self.persist(),
        }
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.keyspace.remove(key).map_err(failed)
    }

    fn remove_range(&self, _from: &[u8], _to: &[u8]) -> Result<()> {
        Err(Error::Unable { system: "fjall", what: "remove a range by one operation" })
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let value = self.keyspace.get(key).map_err(failed)?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn scan(&self, from: &[u8], entries: u64) -> Result<u64> {
        read(&mut self.keyspace.range(from.to_vec()..), entries)
    }

    fn hold_scan(&self, entries: u64) -> Result<Held<'_>> {
        let mut iterator = self.keyspace.iter();
        read(&mut iterator, entries)?;
        Ok(Held::new(iterator))
    }

    fn persist(&self) -> Result<()> {
        self.db.persist(PersistMode::SyncData).map_err(failed)
    }

    fn wait_idle(&self) -> Result<Duration> {
        self.keyspace.rotate_memtable_and_wait().map_err(failed)?;
        rest(|| Ok(self.is_busy()))
    }

    fn compact(&self) -> Result<()> {
        self.keyspace.rotate_memtable_and_wait().map_err(failed)?;
        self.keyspace.major_compact().map_err(failed)
    }

    fn figures(&self) -> Result<Figures> {
        let mut figures = Figures::new();
        let compactions = self.db.compactions_completed();
        figures.insert("compactions".to_owned(), compactions as f64);
        Ok(figures)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.persist()
    }
}
