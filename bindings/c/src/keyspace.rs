//! Keyspaces: reading and writing single keys.

use std::ffi::c_char;

use esker::{Keyspace, KeyspaceOptions};

use crate::bytes::{esker_bytes, needed, slice, text};
use crate::db::{durability, esker_db};
use crate::error::{Result, esker_code, esker_error, guard, release};
use crate::handle::{get, give, handle};
use crate::range::{Keys, bounds};

/// A keyspace of a store: an ordered map from bytes to bytes. Any number of threads may use it.
/// Given up with `esker_keyspace_free`.
pub struct esker_keyspace {
    _opaque: [u8; 0],
}

handle!(esker_keyspace(Keyspace) = b"ESK-keys");

/// Opens the keyspace `name`, creating it where it is not there: one durable record then. A name
/// is 1 to 255 bytes of UTF-8 without control characters.
///
/// # Safety
/// `db` is a store; `name` ends with a null byte; the others are null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_open_keyspace(
    db: *const esker_db,
    name: *const c_char,
    keyspace: *mut *mut esker_keyspace,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        let keyspace = needed(keyspace, "keyspace")?;
        // SAFETY: by the caller's promise.
        let (db, name) = unsafe { (get(db)?, text(name, "name")?) };
        let opened = db.keyspace(name, KeyspaceOptions::default())?;
        // SAFETY: by the caller's promise.
        unsafe { keyspace.put(give(opened)) };
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// Sets the value of `key`: at most 65,536 bytes of key and 262,144 of value. Either may be empty.
/// `durability` is an `esker_durability`.
///
/// # Safety
/// `keyspace` is a keyspace, `key` and `value` are as long as is said; `error` is null or can be
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

/// Removes `key`, if it is there. `durability` is an `esker_durability`.
///
/// # Safety
/// `keyspace` is a keyspace, `key` is as long as is said; `error` is null or can be written to.
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

/// Removes all keys from `start` up to, and without, `end`, however many there are: one record in
/// the log. A null `start` or `end` is no bound. `durability` is an
/// `esker_durability`.
///
/// # Safety
/// `keyspace` is a keyspace, `start` and `end` are as long as is said; `error` is null or can be
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

/// The value of `key`, to be given up with `esker_bytes_free`; `found` says whether there is one.
/// From the cache, or at most one read of a block for each level.
///
/// # Safety
/// `keyspace` is a keyspace, `key` is as long as is said; the others are null or can be written to.
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

/// Puts what `read` finds where the caller wants it.
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

/// Gives a keyspace's handle up; the keyspace stays. Null is nothing.
///
/// # Safety
/// `keyspace` is null or a keyspace that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_keyspace_free(keyspace: *mut esker_keyspace) {
    // SAFETY: by the caller's promise.
    unsafe { release(keyspace) }
}
