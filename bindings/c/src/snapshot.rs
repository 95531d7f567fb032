//! Snapshots: a store as of one moment.

use esker::Snapshot;

use crate::bytes::{esker_bytes, needed, slice};
use crate::db::esker_db;
use crate::error::{esker_code, esker_error, guard, release};
use crate::handle::{get, give, handle};
use crate::keyspace::{answer, esker_keyspace};

/// All keyspaces of a store as of one moment. Any number of threads may use it. It keeps the
/// versions that it may see: free it with `esker_snapshot_free`.
pub struct esker_snapshot {
    _opaque: [u8; 0],
}

handle!(esker_snapshot(Snapshot) = b"ESK-snap");

/// The store as it is now.
///
/// # Safety
/// `db` is a store; the others are null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_snapshot_new(
    db: *const esker_db,
    snapshot: *mut *mut esker_snapshot,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        let snapshot = needed(snapshot, "snapshot")?;
        // SAFETY: by the caller's promise.
        let taken = unsafe { get(db) }?.snapshot()?;
        // SAFETY: by the caller's promise.
        unsafe { snapshot.put(give(taken)) };
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// As `esker_get`, as of the snapshot.
///
/// # Safety
/// The handles are of the named kinds, `key` has the given length; the others are null or can be
/// written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_snapshot_get(
    snapshot: *const esker_snapshot,
    keyspace: *const esker_keyspace,
    key: *const u8,
    key_len: usize,
    value: *mut esker_bytes,
    found: *mut bool,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        // SAFETY: by the caller's promise.
        unsafe {
            answer(value, found, || {
                Ok(get(snapshot)?.get(get(keyspace)?, slice(key, key_len, "key")?)?)
            })
        }
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// Frees a snapshot. Null is ignored.
///
/// # Safety
/// `snapshot` is null or a snapshot that is no longer in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_snapshot_free(snapshot: *mut esker_snapshot) {
    // SAFETY: by the caller's promise.
    unsafe { release(snapshot) }
}
