//! RocksDB, by the library of the system: its own build takes hours on a small machine.
//!
//! ```text
//! apt-get install librocksdb-dev libclang1-14 libclang-common-14-dev
//! ROCKSDB_LIB_DIR=/usr/lib/x86_64-linux-gnu LIBCLANG_PATH=/usr/lib/llvm-14/lib \
//!     cargo build --release -p esker-cli --features peers
//! ```
//!
//! Settings, of a budget B: write buffers of B/4, two of them (with four of B/8 it writes 7.0
//! bytes a byte in the load instead of 5.4, and 7.8 in overwriting instead of 5.3); an LRU cache
//! of B/2 that holds index and filter blocks too, those of level 0 pinned; bloom filters of 10
//! bits a key; blocks of 4 KiB; files of B/4; level 1 of B; leveled compaction by 2 background
//! jobs; a write-ahead log. No compression.
//!
//! A full compaction is a manual one that is forced to rewrite the bottommost level too; the
//! default would leave it as it is. It is exclusive, as by default.

use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use rocksdb::{
    BlockBasedOptions, BottommostLevelCompaction, Cache, CompactOptions, DB, DBCompressionType,
    DBRawIterator, Options, WriteOptions,
};

use crate::system::{Durability, Error, Figures, Held, Name, Result, System, rest};

/// All of these are 0 at rest.
const BUSY: [&str; 5] = [
    "rocksdb.mem-table-flush-pending",
    "rocksdb.num-running-flushes",
    "rocksdb.compaction-pending",
    "rocksdb.num-running-compactions",
    "rocksdb.num-immutable-mem-table",
];

/// A write buffer is the budget over this. Together they take half of the budget.
const WRITE_BUFFER_DIVISOR: u64 = 4;
/// Write buffers: one is filled while the other is written out.
const WRITE_BUFFERS: i32 = 2;

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
pub(crate) fn blocks(budget_bytes: u64) -> Result<BlockBasedOptions> {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&Cache::new_lru_cache(part(budget_bytes, 2)).map_err(failed)?);
    blocks.set_cache_index_and_filter_blocks(true);
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
    blocks.set_bloom_filter(10.0, false);
    blocks.set_block_size(4 << 10);
    Ok(blocks)
}

/// The options of a store whose files are written so.
pub(crate) fn options(budget_bytes: u64, blocks: &BlockBasedOptions) -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(blocks);
    options.set_write_buffer_size(part(budget_bytes, WRITE_BUFFER_DIVISOR));
    options.set_max_write_buffer_number(WRITE_BUFFERS);
    options.set_target_file_size_base(budget_bytes / 4);
    options.set_max_bytes_for_level_base(budget_bytes);
    options.set_max_background_jobs(2);
    options.set_compression_type(DBCompressionType::None);
    options
}

pub(crate) fn open(folder: &Path, budget_bytes: u64) -> Result<Box<dyn System>> {
    let options = options(budget_bytes, &blocks(budget_bytes)?);
    let db = DB::open(&options, folder).map_err(failed)?;
    Ok(Box::new(Rocksdb { db }))
}

fn is_busy(db: &DB) -> Result<bool> {
    for name in BUSY {
        if property(db, name)? > 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

fn property(db: &DB, name: &str) -> Result<u64> {
    Ok(db.property_int_value(name).map_err(failed)?.unwrap_or(0))
}

/// Flushes, and waits until nothing is compacted any more.
pub(crate) fn wait_idle(db: &DB) -> Result<Duration> {
    db.flush().map_err(failed)?;
    rest(|| is_busy(db))
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
