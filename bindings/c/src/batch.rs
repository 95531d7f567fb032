//! Batches: writes to one or several keyspaces that are applied together or not at all.

use esker::Batch;

use crate::bytes::{needed, slice};
use crate::db::{durability, esker_db};
use crate::error::{esker_code, esker_error, guard, release};
use crate::handle::{get, get_mut, give, handle, take};
use crate::keyspace::esker_keyspace;
use crate::range::bounds;

/// Collected writes. One thread at a time may use it. Freed with `esker_batch_commit` or
/// `esker_batch_free`.
pub struct esker_batch {
    _opaque: [u8; 0],
}

handle!(esker_batch(Batch) = b"ESK-btch");

/// A new, empty batch.
///
/// # Safety
/// `db` is a store; the others are null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_batch_new(
    db: *const esker_db,
    batch: *mut *mut esker_batch,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        let batch = needed(batch, "batch")?;
        // SAFETY: by the caller's promise.
        unsafe { batch.put(give(get(db)?.batch())) };
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// Adds a put of `value` at `key`. `esker_batch_commit` reports a key or value out of bounds, or a
/// keyspace of another store.
///
/// # Safety
/// The handles are of the named kinds, `key` and `value` have the given lengths; `error` is null
/// or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_batch_put(
    batch: *mut esker_batch,
    keyspace: *const esker_keyspace,
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        // SAFETY: by the caller's promise.
        let (batch, keyspace) = unsafe { (get_mut(batch)?, get(keyspace)?) };
        // SAFETY: by the caller's promise.
        let (key, value) =
            unsafe { (slice(key, key_len, "key")?, slice(value, value_len, "value")?) };
        batch.insert(keyspace, key, value);
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// Adds a merge of `operand` onto the value of `key`: see `esker_merge`. All operands of one key
/// count, and so do earlier writes of the batch to it.
///
/// # Safety
/// As for `esker_batch_put`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_batch_merge(
    batch: *mut esker_batch,
    keyspace: *const esker_keyspace,
    key: *const u8,
    key_len: usize,
    operand: *const u8,
    operand_len: usize,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        // SAFETY: by the caller's promise.
        let (batch, keyspace) = unsafe { (get_mut(batch)?, get(keyspace)?) };
        // SAFETY: by the caller's promise.
        let (key, operand) =
            unsafe { (slice(key, key_len, "key")?, slice(operand, operand_len, "operand")?) };
        batch.merge(keyspace, key, operand);
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// Adds a removal of `key`.
///
/// # Safety
/// As for `esker_batch_put`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_batch_delete(
    batch: *mut esker_batch,
    keyspace: *const esker_keyspace,
    key: *const u8,
    key_len: usize,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        // SAFETY: by the caller's promise.
        let (batch, keyspace) = unsafe { (get_mut(batch)?, get(keyspace)?) };
        // SAFETY: by the caller's promise.
        batch.remove(keyspace, unsafe { slice(key, key_len, "key") }?);
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// Adds a removal of all keys with `start` <= key < `end`, including those that the batch has put
/// before. A null `start` or `end` is no bound.
///
/// # Safety
/// As for `esker_batch_put`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_batch_delete_range(
    batch: *mut esker_batch,
    keyspace: *const esker_keyspace,
    start: *const u8,
    start_len: usize,
    end: *const u8,
    end_len: usize,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        // SAFETY: by the caller's promise.
        let (batch, keyspace) = unsafe { (get_mut(batch)?, get(keyspace)?) };
        // SAFETY: by the caller's promise.
        let keys = unsafe { bounds(start, start_len, end, end_len) }?;
        batch.remove_range::<&[u8]>(keyspace, keys);
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// Applies a batch, all of it or nothing, and frees it, whatever the code. `durability` is an
/// `esker_durability`. One record in the log.
///
/// # Safety
/// `batch` is a batch that is no longer in use; `error` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_batch_commit(
    batch: *mut esker_batch,
    durability: i32,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        // SAFETY: by the caller's promise.
        let batch = unsafe { take(batch) }?;
        match self::durability(durability)? {
            None => batch.commit()?,
            Some(durability) => batch.commit_with(durability)?,
        };
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// Frees a batch without applying it. Null is ignored.
///
/// # Safety
/// `batch` is null or a batch that is no longer in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_batch_free(batch: *mut esker_batch) {
    // SAFETY: by the caller's promise.
    unsafe { release(batch) }
}
