//! Keyspaces: reading and writing single keys.

use std::ffi::c_char;
use std::time::Duration;

use esker::{Compression, Db, Error, History, IndexKind, Keyspace, KeyspaceOptions, Merge};

use crate::bytes::{esker_bytes, needed, slice, text};
use crate::db::{durability, esker_db};
use crate::error::{Failure, Result, esker_code, esker_error, guard, release};
use crate::handle::{get, give, handle};
use crate::range::{Keys, bounds};

/// A keyspace of a store: an ordered map from bytes to bytes. Any number of threads may use it.
/// Freed with `esker_keyspace_free`.
pub struct esker_keyspace {
    _opaque: [u8; 0],
}

handle!(esker_keyspace(Keyspace) = b"ESK-keys");

/// The compression of blocks.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum esker_compression {
    /// As the keyspace has it; nothing where it is created.
    ESKER_AS_IT_IS = 0,
    /// Nothing.
    ESKER_UNCOMPRESSED = 1,
    /// Little time.
    ESKER_LZ4 = 2,
    /// Less space.
    ESKER_ZSTD = 3,
}

/// The merge operator. A keyspace keeps the first that it is given, and refuses others.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum esker_operator {
    /// As the keyspace has it; none where it is created.
    ESKER_OPERATOR_AS_IT_IS = 0,
    /// Values and operands are integers of 8 bytes, little-endian, and are added, wrapping around.
    ESKER_ADD = 1,
    /// The operand is appended.
    ESKER_APPEND = 2,
    /// The greater of the two, as byte strings.
    ESKER_MAX = 3,
    /// The smaller of the two, as byte strings.
    ESKER_MIN = 4,
}

/// The index of a keyspace, which never changes. A keyspace refuses another kind than it has.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum esker_index {
    /// As the keyspace has it; an FD+tree where it is created.
    ESKER_INDEX_AS_IT_IS = 0,
    /// An FD+tree.
    ESKER_FDTREE = 1,
    /// Levels that are merged a slice of the keys at a time. Writes least.
    ESKER_LSM = 2,
}

/// The earlier versions of a keyspace that stay readable. Chosen where it is created, or by
/// `esker_set_history`; not with a merge operator or an LSM index. `esker_open_keyspace` refuses
/// another history than an existing keyspace has.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum esker_history {
    /// As the keyspace has it; none where it is created.
    ESKER_HISTORY_AS_IT_IS = 0,
    /// All of them, for ever: see `esker_past_at` and `esker_changes_new`.
    ESKER_HISTORY_ALL = 1,
    /// Those of the last `history_amount` seconds, at least.
    ESKER_HISTORY_FOR = 2,
    /// Those with the last `history_amount` numbers, at least.
    ESKER_HISTORY_NEWEST = 3,
}

/// The options for opening a keyspace. All zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct esker_keyspace_options {
    /// Memory after which the memtable is flushed to the data file, in bytes: 1 KiB to 1 TiB; 0 for
    /// half of the store's.
    pub memtable_bytes: u64,
    /// An `esker_compression`, for blocks that are written from now on; it is kept.
    pub compression: i32,
    /// Not 0: the keyspace must exist, none is created.
    pub must_exist: i32,
    /// The longest value that is stored with its key, in bytes, up to 256 KiB; 0 for that. Longer
    /// values are stored as blobs, which merges do not write again. Applies to writes until the
    /// store is closed.
    pub inline_bytes_max: u64,
    /// An `esker_operator`; it is kept.
    pub merge: i32,
    /// An `esker_index`, where the keyspace is created.
    pub index: i32,
    /// An `esker_history`, where the keyspace is created.
    pub history: i32,
    /// The seconds or versions of the history.
    pub history_amount: i32,
    /// The share of superseded entries at which the live ones are copied, where a keyspace with
    /// history is created: 0.2 to 0.8, 1 for never, 0 for 0.5.
    pub history_share: f64,
}

/// A number for [`esker_compression`], whatever it is.
fn compression(number: i32) -> Result<Option<Compression>> {
    match number {
        0 => Ok(None),
        1 => Ok(Some(Compression::None)),
        2 => Ok(Some(Compression::Lz4)),
        3 => Ok(Some(Compression::Zstd)),
        _ => Err(Failure::invalid(format!("{number} is no esker_compression"))),
    }
}

/// A number for [`esker_operator`], whatever it is.
fn operator(number: i32) -> Result<Option<Merge>> {
    match number {
        0 => Ok(None),
        1 => Ok(Some(Merge::Add)),
        2 => Ok(Some(Merge::Append)),
        3 => Ok(Some(Merge::Max)),
        4 => Ok(Some(Merge::Min)),
        _ => Err(Failure::invalid(format!("{number} is no esker_operator"))),
    }
}

/// A number for [`esker_index`], whatever it is.
fn index(number: i32) -> Result<Option<IndexKind>> {
    match number {
        0 => Ok(None),
        1 => Ok(Some(IndexKind::FdTree)),
        2 => Ok(Some(IndexKind::Lsm)),
        _ => Err(Failure::invalid(format!("{number} is no esker_index"))),
    }
}

/// A number for [`esker_history`], whatever it is.
fn history(number: i32, amount: i32) -> Result<Option<History>> {
    let Ok(kept) = u64::try_from(amount) else {
        return Err(Failure::invalid(format!("history_amount is {amount}")));
    };
    match number {
        0 => Ok(None),
        1 => Ok(Some(History::All)),
        2 => Ok(Some(History::For(Duration::from_secs(kept)))),
        3 => Ok(Some(History::Newest(kept))),
        _ => Err(Failure::invalid(format!("{number} is no esker_history"))),
    }
}

fn open(db: &Db, name: &str, options: Option<&esker_keyspace_options>) -> Result<Keyspace> {
    let mut chosen = KeyspaceOptions::default();
    let Some(options) = options else { return Ok(db.keyspace(name, chosen)?) };
    if options.memtable_bytes != 0 {
        chosen = chosen.memtable_bytes(Some(options.memtable_bytes));
    }
    if let Some(compression) = compression(options.compression)? {
        chosen = chosen.compression(compression);
    }
    if options.inline_bytes_max != 0 {
        chosen = chosen.inline_bytes_max(options.inline_bytes_max);
    }
    if let Some(merge) = operator(options.merge)? {
        chosen = chosen.merge(merge);
    }
    if let Some(index) = index(options.index)? {
        chosen = chosen.index(index);
    }
    if let Some(history) = history(options.history, options.history_amount)? {
        chosen = chosen.history(history);
    }
    if options.history_share != 0.0 {
        chosen = chosen.history_share(options.history_share);
    }
    if options.must_exist != 0 && db.open_keyspace(name)?.is_none() {
        return Err(Error::NoKeyspace { name: name.to_owned() }.into());
    }
    Ok(db.keyspace(name, chosen)?)
}

/// Opens the keyspace `name`, or creates it if it does not exist: one durable record then. A name
/// is 1 to 255 bytes of UTF-8 without control characters. `options` may be null.
///
/// # Safety
/// `db` is a store; `name` ends with a null byte; the others are null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_open_keyspace(
    db: *const esker_db,
    name: *const c_char,
    options: *const esker_keyspace_options,
    keyspace: *mut *mut esker_keyspace,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        let keyspace = needed(keyspace, "keyspace")?;
        // SAFETY: by the caller's promise.
        let opened = unsafe { open(get(db)?, text(name, "name")?, options.as_ref()) }?;
        // SAFETY: by the caller's promise.
        unsafe { keyspace.put(give(opened)) };
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// Sets the value of `key`: at most 65,536 bytes of key and 1 GiB of value. Either may be empty.
/// `durability` is an `esker_durability`.
///
/// # Safety
/// `keyspace` is a keyspace, `key` and `value` have the given lengths; `error` is null or can be
/// written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_put(
    keyspace: *const esker_keyspace,
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
    durability: i32,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        // SAFETY: by the caller's promise.
        let keyspace = unsafe { get(keyspace) }?;
        // SAFETY: by the caller's promise.
        let (key, value) =
            unsafe { (slice(key, key_len, "key")?, slice(value, value_len, "value")?) };
        put(keyspace, key, value, durability)
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

fn put(keyspace: &Keyspace, key: &[u8], value: &[u8], number: i32) -> Result {
    match durability(number)? {
        None => keyspace.insert(key, value)?,
        Some(durability) => keyspace.insert_with(key, value, durability)?,
    }
    Ok(())
}

/// Sets the value of `key` for a number of milliseconds, at least 1; after that time the key is
/// absent, as if it had been deleted. A later put replaces the value and its end. Ranges and
/// snapshots keep to the moment at which they were made. Durable as the store was opened.
///
/// # Safety
/// As [`esker_put`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_put_with_ttl(
    keyspace: *const esker_keyspace,
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
    ttl_milliseconds: u64,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        // SAFETY: by the caller's promise.
        let keyspace = unsafe { get(keyspace) }?;
        // SAFETY: by the caller's promise.
        let (key, value) =
            unsafe { (slice(key, key_len, "key")?, slice(value, value_len, "value")?) };
        Ok(keyspace.insert_with_ttl(key, value, Duration::from_millis(ttl_milliseconds))?)
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// Merges `operand` onto the value of `key`, without reading it: the new value is the result of the
/// keyspace's operator for both; where there is no value, the operand is the value. An operand has
/// at most 262,144 bytes. `durability` is an `esker_durability`.
///
/// # Safety
/// As [`esker_put`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_merge(
    keyspace: *const esker_keyspace,
    key: *const u8,
    key_len: usize,
    operand: *const u8,
    operand_len: usize,
    durability: i32,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        // SAFETY: by the caller's promise.
        let keyspace = unsafe { get(keyspace) }?;
        // SAFETY: by the caller's promise.
        let (key, operand) =
            unsafe { (slice(key, key_len, "key")?, slice(operand, operand_len, "operand")?) };
        match self::durability(durability)? {
            None => keyspace.merge(key, operand)?,
            Some(durability) => keyspace.merge_with(key, operand, durability)?,
        }
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// Removes `key`, if it exists. `durability` is an `esker_durability`.
///
/// # Safety
/// `keyspace` is a keyspace, `key` has the given length; `error` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_delete(
    keyspace: *const esker_keyspace,
    key: *const u8,
    key_len: usize,
    durability: i32,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        // SAFETY: by the caller's promise.
        let (keyspace, key) = unsafe { (get(keyspace)?, slice(key, key_len, "key")?) };
        delete(keyspace, key, durability)
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// Removes all keys with `start` <= key < `end`, however many there are: one record in the log. A
/// null `start` or `end` is no bound. `durability` is an `esker_durability`.
///
/// # Safety
/// `keyspace` is a keyspace, `start` and `end` have the given lengths; `error` is null or can be
/// written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_delete_range(
    keyspace: *const esker_keyspace,
    start: *const u8,
    start_len: usize,
    end: *const u8,
    end_len: usize,
    durability: i32,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        // SAFETY: by the caller's promise.
        let keyspace = unsafe { get(keyspace) }?;
        // SAFETY: by the caller's promise.
        let keys = unsafe { bounds(start, start_len, end, end_len) }?;
        delete_range(keyspace, keys, durability)
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

fn delete_range(keyspace: &Keyspace, keys: Keys<'_>, number: i32) -> Result {
    match durability(number)? {
        None => keyspace.remove_range::<&[u8]>(keys)?,
        Some(durability) => keyspace.remove_range_with::<&[u8]>(keys, durability)?,
    }
    Ok(())
}

fn delete(keyspace: &Keyspace, key: &[u8], number: i32) -> Result {
    match durability(number)? {
        None => keyspace.remove(key)?,
        Some(durability) => keyspace.remove_with(key, durability)?,
    }
    Ok(())
}

/// The value of `key`, to be freed with `esker_bytes_free`; `found` says whether there is one. From
/// the cache, or at most one read of a block for each level.
///
/// # Safety
/// `keyspace` is a keyspace, `key` has the given length; the others are null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_get(
    keyspace: *const esker_keyspace,
    key: *const u8,
    key_len: usize,
    value: *mut esker_bytes,
    found: *mut bool,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        // SAFETY: by the caller's promise.
        unsafe { answer(value, found, || Ok(get(keyspace)?.get(slice(key, key_len, "key")?)?)) }
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// Writes the result of `read` to the caller's places.
///
/// # Safety
/// `value` and `found` are null or can be written to.
pub(crate) unsafe fn answer(
    value: *mut esker_bytes,
    found: *mut bool,
    read: impl FnOnce() -> Result<Option<Vec<u8>>>,
) -> Result {
    let (value, found) = (needed(value, "value")?, needed(found, "found")?);
    let read = read()?;
    // SAFETY: by the caller's promise.
    unsafe {
        found.put(read.is_some());
        value.put(read.map_or(esker_bytes::NONE, esker_bytes::give));
    }
    Ok(())
}

/// Frees the handle of a keyspace; the keyspace stays. Null is ignored.
///
/// # Safety
/// `keyspace` is null or a keyspace that is no longer in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_keyspace_free(keyspace: *mut esker_keyspace) {
    // SAFETY: by the caller's promise.
    unsafe { release(keyspace) }
}

/// Keeps earlier versions of a keyspace readable from now on, where it has no history; else changes
/// which of them stay. `history` is an `esker_history`, `amount` its seconds or versions. What is
/// not kept any more is freed in steps. A history cannot be ended. Writers wait meanwhile; two
/// syncs. `ESKER_INVALID` for a keyspace with a merge operator or an LSM index.
///
/// # Safety
/// `keyspace` is a keyspace; `error` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_set_history(
    keyspace: *const esker_keyspace,
    history: i32,
    amount: i32,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        // SAFETY: by the caller's promise.
        let keyspace = unsafe { get(keyspace) }?;
        let kept = self::history(history, amount)?;
        let kept = kept.ok_or_else(|| Failure::invalid("a history cannot be ended"))?;
        Ok(keyspace.set_history(kept)?)
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// Erases keys with all of their versions, which `esker_delete` leaves in the past: afterwards
/// every version reads as if they had never been written. There are `count` keys; key number i is
/// the `lengths[i]` bytes at `keys[i]`. Compacts the keyspace and rewrites each part of its past
/// that has one of the keys: erase many by one call. Backups that were made before still have them,
/// and so has the log until it is written over. `ESKER_INVALID` for a keyspace without history.
///
/// # Safety
/// `keyspace` is a keyspace; `keys` and `lengths` have `count` elements, each key the given length;
/// `error` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_erase(
    keyspace: *const esker_keyspace,
    keys: *const *const u8,
    lengths: *const usize,
    count: usize,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        // SAFETY: by the caller's promise.
        let keyspace = unsafe { get(keyspace) }?;
        if count > 0 && (keys.is_null() || lengths.is_null()) {
            return Err(Failure::invalid("keys or lengths are null"));
        }
        let key = |number: usize| {
            // SAFETY: by the caller's promise, both have `count` elements, and `number` is less.
            let (key, len) = unsafe { (*keys.add(number), *lengths.add(number)) };
            // SAFETY: by the caller's promise.
            unsafe { slice(key, len, "key") }
        };
        let keys = (0..count).map(key).collect::<Result<Vec<_>>>()?;
        Ok(keyspace.erase(keys)?)
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}
