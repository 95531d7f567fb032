//! Esker: the memory budget as it is, the kind of index and the policy that are asked for,
//! everything else at its default.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use esker::{Compaction, Db, DbBuilder, Device, Keyspace, KeyspaceOptions, Stats};

use crate::system::{Arrangement, Durability, Error, Figures, Held, Name, Result, System, rest};

struct Esker {
    db: Db,
    keyspace: Keyspace,
}

pub(crate) fn open(
    folder: &Path,
    budget_bytes: u64,
    arrangement: Arrangement,
) -> Result<Box<dyn System>> {
    open_by(Db::builder(folder), budget_bytes, arrangement)
}

pub(crate) fn open_on(
    device: Arc<dyn Device>,
    budget_bytes: u64,
    arrangement: Arrangement,
) -> Result<Box<dyn System>> {
    open_by(Db::builder_on(device), budget_bytes, arrangement)
}

fn open_by(
    builder: DbBuilder,
    budget_bytes: u64,
    arrangement: Arrangement,
) -> Result<Box<dyn System>> {
    let merging = Compaction::by(arrangement.policy);
    let db = builder.memory_budget(budget_bytes).compaction(merging).open().map_err(failed)?;
    let options = KeyspaceOptions::default().index(arrangement.index);
    let keyspace = db.keyspace("default", options).map_err(failed)?;
    Ok(Box::new(Esker { db, keyspace }))
}

pub(crate) fn failed(error: esker::Error) -> Error {
    Name::Esker.failed(error)
}

const fn durability(of: Durability) -> esker::Durability {
    match of {
        Durability::Buffered => esker::Durability::Buffered,
        Durability::Synced => esker::Durability::Synced,
    }
}

/// The counter that changes while anything runs in the background: bytes written, the log's
/// excepted.
fn bytes_moved(db: &Db) -> Result<u64> {
    let stats = db.stats().map_err(failed)?;
    let moved = stats.io.iter().filter(|row| row.purpose != "log");
    Ok(moved.map(|row| row.bytes_written).sum())
}

/// Flushes, and waits until nothing is merged any more.
pub(crate) fn wait_idle(db: &Db) -> Result<Duration> {
    db.flush().map_err(failed)?;
    let mut last = bytes_moved(db)?;
    rest(|| {
        let now = bytes_moved(db)?;
        let busy = now != last;
        last = now;
        Ok(busy)
    })
}

/// The counters of a store.
pub(crate) fn figures(stats: &Stats) -> Figures {
    let mut figures = Figures::new();
    for row in &stats.io {
        let mut put = |what: &str, value: u64| {
            figures.insert(format!("{what}_{}", row.purpose), value as f64);
        };
        put("reads", row.reads);
        put("bytes_read", row.bytes_read);
        put("bytes_written", row.bytes_written);
        put("syncs", row.syncs);
    }
    let merges: u64 = stats.keyspaces.iter().map(|keyspace| keyspace.merges).sum();
    figures.insert("merges".to_owned(), merges as f64);
    figures.insert("memtable_bytes".to_owned(), stats.memory.memtable_bytes as f64);
    figures.insert("fence_bytes".to_owned(), stats.memory.fence_bytes as f64);
    figures.insert("cache_bytes".to_owned(), stats.memory.cache_bytes as f64);
    figures.insert("allocated_bytes".to_owned(), stats.space.allocated_bytes as f64);
    figures
}

impl System for Esker {
    fn put(&self, key: &[u8], value: &[u8], of: Durability) -> Result<()> {
        self.keyspace.insert_with(key, value, durability(of)).map_err(failed)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.keyspace.remove_with(key, esker::Durability::Buffered).map_err(failed)
    }

    fn remove_range(&self, from: &[u8], to: &[u8]) -> Result<()> {
        let bounds = from.to_vec()..to.to_vec();
        self.keyspace.remove_range_with(bounds, esker::Durability::Buffered).map_err(failed)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.keyspace.get(key).map_err(failed)
    }

    fn scan(&self, from: &[u8], entries: u64) -> Result<u64> {
        let range = self.keyspace.range(from.to_vec()..).map_err(failed)?;
        let mut range = range.limit(usize::try_from(entries).unwrap_or(usize::MAX));
        let mut seen = 0;
        while let Some(entry) = range.next_entry().map_err(failed)? {
            black_box(entry);
            seen += 1;
        }
        Ok(seen)
    }

    fn hold_scan(&self, entries: u64) -> Result<Held<'_>> {
        let mut range = self.keyspace.iter().map_err(failed)?;
        for entry in range.by_ref().take(usize::try_from(entries).unwrap_or(usize::MAX)) {
            black_box(entry.map_err(failed)?);
        }
        Ok(Held::new(range))
    }

    fn persist(&self) -> Result<()> {
        self.db.persist().map_err(failed)
    }

    fn wait_idle(&self) -> Result<Duration> {
        wait_idle(&self.db)
    }

    fn compact(&self) -> Result<()> {
        self.db.compact().map_err(failed)
    }

    fn figures(&self) -> Result<Figures> {
        Ok(figures(&self.db.stats().map_err(failed)?))
    }

    fn close(self: Box<Self>) -> Result<()> {
        drop(self.keyspace);
        self.db.close().map_err(failed)
    }
}
