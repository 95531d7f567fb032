//! RocksDB, by the library that `scripts/rocksdb-peer.sh` fetches: its own build takes hours on a
//! small machine. The crate's README has the commands.
//!
//! | system | write buffers, of a budget B | compaction |
//! |---|---|---|
//! | `rocksdb` | two of B/4 | leveled |
//! | `rocksdb-eighths` | four of B/8 | leveled |
//! | `rocksdb-universal` | two of B/4 | universal |
//! | `rocksdb-universal-eighths` | four of B/8 | universal |
//!
//! Which number of write buffers is better depends on the sizes and on what is measured, so that
//! both are there. All else is the same: an LRU cache of B/2 that holds index and filter blocks
//! too, those of level 0 pinned; bloom filters of 10 bits a key; blocks of 4 KiB; files of B/4;
//! level 1 of B; 2 background jobs; a write-ahead log; no compression; otherwise its defaults.
//!
//! A full compaction is a manual one that is forced to rewrite the bottommost level too; the
//! default would leave it as it is. It is exclusive, as by default.

use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use rocksdb::{
    BlockBasedOptions, BottommostLevelCompaction, Cache, CompactOptions, DB, DBCompactionStyle,
    DBCompressionType, DBRawIterator, Options, WaitForCompactOptions, WriteBatch, WriteOptions,
};

use crate::system::{Durability, Error, Figures, Held, Name, Result, System};

mod version;

pub(crate) use version::version;

/// What the systems that are RocksDB differ in.
struct Setting {
    /// Write buffers: one is filled while others are written out. Together they take half of the
    /// budget.
    write_buffers: u8,
    style: DBCompactionStyle,
}

impl Setting {
    fn of(name: Name) -> Self {
        use DBCompactionStyle::{Level, Universal};
        let (write_buffers, style) = match name {
            Name::RocksdbEighths => (4, Level),
            Name::RocksdbUniversal => (2, Universal),
            Name::RocksdbUniversalEighths => (4, Universal),
            _ => (2, Level),
        };
        Self { write_buffers, style }
    }
}

struct Rocksdb {
    db: DB,
}

pub(crate) fn failed(error: rocksdb::Error) -> Error {
    Name::Rocksdb.failed(error)
}

fn part(budget_bytes: u64, divisor: u64) -> usize {
    usize::try_from(budget_bytes / divisor).unwrap_or(usize::MAX)
}

/// The options of files.
pub(crate) fn blocks(budget_bytes: u64) -> BlockBasedOptions {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&Cache::new_lru_cache(part(budget_bytes, 2)));
    blocks.set_cache_index_and_filter_blocks(true);
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
    blocks.set_bloom_filter(10.0, false);
    blocks.set_block_size(4 << 10);
    blocks
}

/// The options of a store of this name, whose files are written so.
pub(crate) fn options(name: Name, budget_bytes: u64, blocks: &BlockBasedOptions) -> Options {
    let Setting { write_buffers, style } = Setting::of(name);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(blocks);
    options.set_write_buffer_size(part(budget_bytes, 2 * u64::from(write_buffers)));
    options.set_max_write_buffer_number(i32::from(write_buffers));
    options.set_compaction_style(style);
    options.set_target_file_size_base(budget_bytes / 4);
    options.set_max_bytes_for_level_base(budget_bytes);
    options.set_max_background_jobs(2);
    options.set_compression_type(DBCompressionType::None);
    options
}

pub(crate) fn open(name: Name, folder: &Path, budget_bytes: u64) -> Result<Box<dyn System>> {
    let options = options(name, budget_bytes, &blocks(budget_bytes));
    let db = DB::open(&options, folder).map_err(failed)?;
    Ok(Box::new(Rocksdb { db }))
}

fn property(db: &DB, name: &str) -> Result<u64> {
    Ok(db.property_int_value(name).map_err(failed)?.unwrap_or(0))
}

/// Flushes, and waits until nothing is compacted any more. The properties of a store do not say
/// when that is: with universal compaction `rocksdb.compaction-pending` can be 1 for ever.
pub(crate) fn wait_idle(db: &DB) -> Result<Duration> {
    db.flush().map_err(failed)?;
    db.wait_for_compact(&WaitForCompactOptions::default()).map_err(failed)?;
    Ok(Duration::ZERO)
}

/// The counters of a store.
pub(crate) fn figures(db: &DB) -> Result<Figures> {
    let table_files = property(db, "rocksdb.total-sst-files-size")?;
    Ok(Figures::from([("table_file_bytes".to_owned(), table_files as f64)]))
}

impl Rocksdb {
    /// Reads on from the position of the iterator.
    fn read(iterator: &mut DBRawIterator<'_>, entries: u64) -> Result<u64> {
        let mut seen = 0;
        while seen < entries && iterator.valid() {
            black_box(iterator.key().map(<[u8]>::to_vec));
            black_box(iterator.value().map(<[u8]>::to_vec));
            iterator.next();
            seen += 1;
        }
        iterator.status().map_err(failed)?;
        Ok(seen)
    }
}

impl System for Rocksdb {
    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<()> {
        let mut how = WriteOptions::default();
        how.set_sync(durability == Durability::Synced);
        self.db.put_opt(key, value, &how).map_err(failed)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.db.delete(key).map_err(failed)
    }

    fn remove_range(&self, from: &[u8], to: &[u8]) -> Result<()> {
        let mut batch = WriteBatch::default();
        batch.delete_range(from, to);
        self.db.write(batch).map_err(failed)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.db.get(key).map_err(failed)
    }

    fn scan(&self, from: &[u8], entries: u64) -> Result<u64> {
        let mut iterator = self.db.raw_iterator();
        iterator.seek(from);
        Self::read(&mut iterator, entries)
    }

    fn hold_scan(&self, entries: u64) -> Result<Held<'_>> {
        let mut iterator = self.db.raw_iterator();
        iterator.seek_to_first();
        Self::read(&mut iterator, entries)?;
        Ok(Held::new(iterator))
    }

    fn persist(&self) -> Result<()> {
        self.db.flush_wal(true).map_err(failed)
    }

    fn wait_idle(&self) -> Result<Duration> {
        wait_idle(&self.db)
    }

    fn compact(&self) -> Result<()> {
        let mut how = CompactOptions::default();
        how.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
        self.db.compact_range_opt(None::<&[u8]>, None::<&[u8]>, &how);
        Ok(())
    }

    fn figures(&self) -> Result<Figures> {
        figures(&self.db)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.persist()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const BUDGET_BYTES: u64 = 16 << 20;

    /// The options that RocksDB itself writes beside a store.
    fn written_options(name: Name) -> String {
        let folder = tempfile::tempdir().unwrap();
        open(name, folder.path(), BUDGET_BYTES).unwrap().close().unwrap();
        let files = fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path());
        let is_it = |path: &std::path::PathBuf| path.to_string_lossy().contains("/OPTIONS-");
        fs::read_to_string(files.into_iter().find(is_it).unwrap()).unwrap()
    }

    /// With universal compaction a store can have as many sorted runs as begin a compaction, and
    /// none that would help: it reports a compaction as pending, and none comes.
    #[test]
    fn a_store_is_idle_although_a_compaction_is_pending() {
        let budget_bytes = 1 << 20;
        let name = Name::RocksdbUniversal;
        let folder = tempfile::tempdir().unwrap();
        let db = DB::open(&options(name, budget_bytes, &blocks(budget_bytes)), folder.path());
        let db = db.unwrap();
        let mut was_pending = false;
        for entries in [8_000u32, 4_000, 2_000, 1_000, 500, 250] {
            for number in 0..entries {
                db.put(number.to_be_bytes(), [0; 100]).unwrap();
            }
            wait_idle(&db).unwrap();
            assert_eq!(property(&db, "rocksdb.num-running-compactions").unwrap(), 0);
            assert_eq!(property(&db, "rocksdb.num-immutable-mem-table").unwrap(), 0);
            was_pending |= property(&db, "rocksdb.compaction-pending").unwrap() > 0;
        }
        assert!(was_pending, "the state that this test is for did not arise");
    }

    #[test]
    fn each_system_has_the_setting_of_its_name() {
        for (name, buffers, bytes, style) in [
            (Name::Rocksdb, 2, BUDGET_BYTES / 4, "kCompactionStyleLevel"),
            (Name::RocksdbEighths, 4, BUDGET_BYTES / 8, "kCompactionStyleLevel"),
            (Name::RocksdbUniversal, 2, BUDGET_BYTES / 4, "kCompactionStyleUniversal"),
            (Name::RocksdbUniversalEighths, 4, BUDGET_BYTES / 8, "kCompactionStyleUniversal"),
        ] {
            let options = written_options(name);
            for line in [
                format!("  max_write_buffer_number={buffers}\n"),
                format!("  write_buffer_size={bytes}\n"),
                format!("  compaction_style={style}\n"),
            ] {
                assert!(options.contains(&line), "{name}: {line}{options}");
            }
        }
    }
}
