//! RocksDB with the version behind the key: 8 bytes, big-endian, inverted, so that the newest comes
//! first. This is how programs keep versions in it, and how its user-defined timestamps lie in its
//! files.
//!
//! The settings are those of the system `rocksdb` in [`rocksdb`](crate::rocksdb). The filters are
//! of keys without version (a prefix extractor), so that a lookup asks only files in which the key
//! is.

use std::path::Path;
use std::time::Duration;

use rocksdb::{DB, DBRawIterator, ReadOptions, SliceTransform, WriteBatch, WriteOptions};

use super::{Put, SeeChange, SeeEntry, Versioned, View};
use crate::rocksdb::{blocks, failed, figures, options, wait_idle};
use crate::system::{Figures, Name, Result};

/// Bytes of a key without version, and of the version.
const KEY_BYTES: usize = 16;
const VERSION_BYTES: usize = 8;
/// Older versions of a key that a scan steps over before it seeks the next key, as many as
/// RocksDB's own iterator does (`max_sequential_skip_in_iterations`).
const STEPS_MAX: u32 = 8;

struct Rocksdb {
    db: DB,
}

pub(super) fn open(folder: &Path, budget_bytes: u64) -> Result<Box<dyn Versioned>> {
    let mut blocks = blocks(budget_bytes);
    blocks.set_whole_key_filtering(false);
    let mut options = options(Name::Rocksdb, budget_bytes, &blocks);
    options.set_prefix_extractor(SliceTransform::create_fixed_prefix(KEY_BYTES));
    let db = DB::open(&options, folder).map_err(failed)?;
    Ok(Box::new(Rocksdb { db }))
}

/// The key in a version, and before older ones.
fn versioned(key: &[u8], version: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(KEY_BYTES + VERSION_BYTES);
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(&(!version).to_be_bytes());
    bytes
}

/// The key and the version at which an iterator is; `None` at its end.
fn position<'a>(iterator: &'a DBRawIterator<'_>) -> Result<Option<(&'a [u8], u64)>> {
    let Some(bytes) = iterator.key() else {
        iterator.status().map_err(failed)?;
        return Ok(None);
    };
    let Some((key, version)) = bytes.split_last_chunk::<VERSION_BYTES>() else { return Ok(None) };
    Ok(Some((key, !u64::from_be_bytes(*version))))
}

struct AsOf<'a> {
    db: &'a DB,
    version: u64,
}

impl View for AsOf<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut iterator = self.db.raw_iterator_opt(same_key());
        iterator.seek(versioned(key, self.version));
        let is_found = position(&iterator)?.is_some_and(|(found, _)| found == key);
        Ok(iterator.value().filter(|_| is_found).map(<[u8]>::to_vec))
    }

    fn scan(&self, from: &[u8], entries: u64, see: &mut SeeEntry<'_>) -> Result<()> {
        let mut order = ReadOptions::default();
        order.set_total_order_seek(true);
        let mut iterator = self.db.raw_iterator_opt(order);
        iterator.seek(versioned(from, self.version));
        let mut seen = 0;
        while seen < entries {
            let Some((key, version)) = position(&iterator)? else { return Ok(()) };
            let key = key.to_vec();
            if version > self.version {
                iterator.seek(versioned(&key, self.version));
                continue;
            }
            see(&key, iterator.value().unwrap_or_default());
            seen += 1;
            next_key(&mut iterator, &key)?;
        }
        Ok(())
    }
}

/// For reading one key: its filters can say that a file does not have it.
fn same_key() -> ReadOptions {
    let mut same = ReadOptions::default();
    same.set_prefix_same_as_start(true);
    same
}

/// Moves behind all versions of `key`.
fn next_key(iterator: &mut DBRawIterator<'_>, key: &[u8]) -> Result<()> {
    for _ in 0..STEPS_MAX {
        iterator.next();
        if position(iterator)?.is_none_or(|(next, _)| next != key) {
            return Ok(());
        }
    }
    // Commits are numbered from 1, so that no version is behind this.
    iterator.seek(versioned(key, 0));
    Ok(())
}

impl Versioned for Rocksdb {
    fn commit(&self, number: u64, puts: &[Put]) -> Result<u64> {
        let mut batch = WriteBatch::default();
        for (key, value) in puts {
            batch.put(versioned(key, number), value);
        }
        self.db.write_opt(batch, &WriteOptions::default()).map_err(failed)?;
        Ok(number)
    }

    fn now(&self) -> Result<Box<dyn View + '_>> {
        self.at(u64::MAX)
    }

    fn at(&self, version: u64) -> Result<Box<dyn View + '_>> {
        Ok(Box::new(AsOf { db: &self.db, version }))
    }

    fn history(&self, key: &[u8], see: &mut SeeChange<'_>) -> Result<()> {
        let mut iterator = self.db.raw_iterator_opt(same_key());
        iterator.seek(versioned(key, u64::MAX));
        while let Some((found, version)) = position(&iterator)? {
            if found != key {
                break;
            }
            see(version, iterator.value());
            iterator.next();
        }
        Ok(())
    }

    fn persist(&self) -> Result<()> {
        self.db.flush_wal(true).map_err(failed)
    }

    fn wait_idle(&self) -> Result<Duration> {
        wait_idle(&self.db)
    }

    fn figures(&self) -> Result<Figures> {
        figures(&self.db)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.persist()
    }
}
