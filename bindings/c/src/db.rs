//! Stores.

use std::ffi::c_char;
use std::path::Path;

use esker::{Db, Durability};

use crate::bytes::{esker_bytes, list_of, needed, path as path_of, text};
use crate::error::{Failure, Result, esker_code, esker_error, guard, release};
use crate::handle::{get, give, handle, take};

/// An open store. Any number of threads may use it. Closed with `esker_close`.
pub struct esker_db {
    _opaque: [u8; 0],
}

handle!(esker_db(Db) = b"ESK-db__");

/// The point at which a write returns.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum esker_durability {
    /// As the store was opened; for `esker_open` the same as `ESKER_BUFFERED`.
    ESKER_DEFAULT = 0,
    /// Once it survives a killed process, but not a power cut.
    ESKER_BUFFERED = 1,
    /// Once it is on the device. One sync serves all that wait.
    ESKER_SYNCED = 2,
}

/// A number for [`esker_durability`], whatever it is: C programs may pass any.
pub(crate) fn durability(number: i32) -> Result<Option<Durability>> {
    match number {
        0 => Ok(None),
        1 => Ok(Some(Durability::Buffered)),
        2 => Ok(Some(Durability::Synced)),
        _ => Err(Failure::invalid(format!("{number} is no esker_durability"))),
    }
}

/// The options for opening a store. All zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct esker_options {
    /// Memory for memtables, fences, filters and cached blocks, in bytes: 128 KiB to 16 TiB;
    /// 0 for 64 MiB.
    pub memory_budget: u64,
    /// Length of new log segments, in bytes: 16 KiB to 1 GiB; 0 for 4 MiB.
    pub log_segment_bytes: u64,
    /// An `esker_durability`: that of writes which do not name their own.
    pub durability: i32,
    /// Not 0: the store must exist, none is created.
    pub must_exist: i32,
    /// Not 0: the store is only read, and nothing is written; it must exist. Works on a medium that
    /// cannot be written to. Where a process has it open for writing, as with `follow`; else no
    /// process can open it for writing meanwhile.
    pub read_only: i32,
    /// Not 0: as `read_only`, and no process is kept from writing: the store is read without a
    /// lock, as of the moment at which it was opened, or of the last `esker_refresh`. The memory
    /// budget should be as large as that of the process that writes.
    pub follow: i32,
    /// Reserved: zeros.
    pub reserved: [u64; 3],
}

/// Counters of a store.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct esker_stats {
    /// Keyspaces.
    pub keyspaces: u64,
    /// Entries in all of them, estimated.
    pub entries_estimate: u64,
    /// Key and value bytes of accepted writes since the store was opened.
    pub user_bytes_written: u64,
    /// Bytes written to the device since then.
    pub device_bytes_written: u64,
    /// Bytes read from the device since then.
    pub device_bytes_read: u64,
    /// Length of all files, in bytes.
    pub file_bytes: u64,
    /// Memory for memtables, fences and cached blocks, in bytes.
    pub memory_bytes: u64,
    /// Snapshots that are held, those of ranges included.
    pub snapshots: u64,
    /// Blocks found in the cache.
    pub cache_hits: u64,
    /// Blocks read from the device.
    pub cache_misses: u64,
    /// Reserved.
    pub reserved: [u64; 6],
}

/// Opens the store in the folder `path`, creating it where there is none. `options` may be null.
///
/// # Safety
/// `path` ends with a null byte; the other pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_open(
    path: *const c_char,
    options: *const esker_options,
    db: *mut *mut esker_db,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        let db = needed(db, "db")?;
        // SAFETY: by the caller's promise.
        let (path, options) = unsafe { (path_of(path, "path")?, options.as_ref()) };
        let opened = open(path, options)?;
        // SAFETY: by the caller's promise.
        unsafe { db.put(give(opened)) };
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

fn open(path: &Path, options: Option<&esker_options>) -> Result<Db> {
    let mut builder = Db::builder(path);
    if let Some(options) = options {
        if options.reserved != [0; 3] {
            return Err(Failure::invalid("reserved fields of esker_options must be zeros"));
        }
        if options.memory_budget != 0 {
            builder = builder.memory_budget(options.memory_budget);
        }
        if options.log_segment_bytes != 0 {
            builder = builder.log_segment_bytes(options.log_segment_bytes);
        }
        if let Some(durability) = durability(options.durability)? {
            builder = builder.durability(durability);
        }
        builder = builder.create(options.must_exist == 0);
        builder = builder.read_only(options.read_only != 0).follow(options.follow != 0);
    }
    Ok(builder.open()?)
}

/// Makes everything durable, closes the store and frees the handle, whatever the code. Other
/// handles of the store return `ESKER_CLOSED` from then on, and must still be freed.
///
/// # Safety
/// `db` is a store that is no longer in use; `error` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_close(
    db: *mut esker_db,
    error: *mut *mut esker_error,
) -> esker_code {
    // SAFETY: by the caller's promise.
    unsafe { guard(error, || Ok(take(db)?.close()?)) }
}

/// Makes all writes so far durable: one sync.
///
/// # Safety
/// `db` is a store; `error` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_persist(
    db: *const esker_db,
    error: *mut *mut esker_error,
) -> esker_code {
    // SAFETY: by the caller's promise.
    unsafe { guard(error, || Ok(get(db)?.persist()?)) }
}

/// Flushes what is only in memory and in the log to the data file.
///
/// # Safety
/// `db` is a store; `error` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_flush(
    db: *const esker_db,
    error: *mut *mut esker_error,
) -> esker_code {
    // SAFETY: by the caller's promise.
    unsafe { guard(error, || Ok(get(db)?.flush()?)) }
}

/// Merges every keyspace whole and gives free space back. Takes as long as reading and writing all
/// data does; reads and writes continue meanwhile.
///
/// # Safety
/// `db` is a store; `error` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_compact(
    db: *const esker_db,
    error: *mut *mut esker_error,
) -> esker_code {
    // SAFETY: by the caller's promise.
    unsafe { guard(error, || Ok(get(db)?.compact()?)) }
}

/// The names of all keyspaces, each followed by a null byte.
///
/// # Safety
/// `db` is a store; the other pointers are null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_keyspaces(
    db: *const esker_db,
    names: *mut esker_bytes,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        let names = needed(names, "names")?;
        // SAFETY: by the caller's promise.
        let found = unsafe { get(db) }?.keyspaces()?;
        // SAFETY: by the caller's promise.
        unsafe { names.put(list_of(found.iter().map(String::as_str))) };
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// Drops the keyspace `name` with all that is in it: one durable record. `dropped`, which may be
/// null, says whether it was there.
///
/// # Safety
/// `db` is a store; `name` ends with a null byte; the others are null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_drop_keyspace(
    db: *const esker_db,
    name: *const c_char,
    dropped: *mut bool,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        // SAFETY: by the caller's promise.
        let was_there = unsafe { get(db)?.drop_keyspace(text(name, "name")?) }?;
        if !dropped.is_null() {
            // SAFETY: by the caller's promise.
            unsafe { dropped.write(was_there) };
        }
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// Counters of a store, as they are now.
///
/// # Safety
/// `db` is a store; the other pointers are null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_get_stats(
    db: *const esker_db,
    stats: *mut esker_stats,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        let stats = needed(stats, "stats")?;
        // SAFETY: by the caller's promise.
        let counted = unsafe { get(db) }?.stats()?;
        // SAFETY: by the caller's promise.
        unsafe { stats.put((&counted).into()) };
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

impl From<&esker::Stats> for esker_stats {
    fn from(stats: &esker::Stats) -> Self {
        let (space, memory) = (stats.space, stats.memory);
        // Names of Esker's own keyspaces begin so; users have none of these.
        let keyspaces = stats.keyspaces.iter().filter(|one| !one.name.starts_with("esker."));
        Self {
            keyspaces: keyspaces.count() as u64,
            entries_estimate: stats.keyspaces.iter().map(|one| one.entries_estimate).sum(),
            user_bytes_written: stats.user_bytes_written,
            device_bytes_written: stats.io.iter().map(|io| io.bytes_written).sum(),
            device_bytes_read: stats.io.iter().map(|io| io.bytes_read).sum(),
            file_bytes: space.data_file_bytes + space.log_bytes + space.manifest_bytes,
            memory_bytes: memory.memtable_bytes + memory.fence_bytes + memory.cache_bytes,
            snapshots: stats.snapshots,
            cache_hits: stats.cache_hits,
            cache_misses: stats.cache_misses,
            reserved: [0; 6],
        }
    }
}

/// Frees the handle of a store without closing the store: it closes when its last handle of any
/// kind is freed. Null is ignored.
///
/// # Safety
/// `db` is null or a store that is no longer in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_db_free(db: *mut esker_db) {
    // SAFETY: by the caller's promise.
    unsafe { release(db) }
}
