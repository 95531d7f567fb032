//! Keyspaces with history: earlier versions, and the changes of a key.

use std::time::{Duration, SystemTime};

use esker::{Change, Changes, Past};

use crate::bytes::{self, esker_bytes, needed, slice};
use crate::db::esker_db;
use crate::error::{Failure, Result, esker_code, esker_error, guard, release};
use crate::handle::{get, get_mut, give, handle};
use crate::keyspace::{answer, esker_keyspace};
use crate::range::{Cursor, bounds, esker_range};

/// A keyspace with history as it was at one version, which stays readable. Any number of threads
/// may use it. Freed with `esker_past_free`.
pub struct esker_past {
    _opaque: [u8; 0],
}

handle!(esker_past(Past) = b"ESK-past");

/// Changes yet to come, and the one that the caller looks at.
#[derive(Debug)]
pub struct Walk {
    changes: Changes,
    current: Option<Change>,
}

/// The changes of a key, newest first. One thread at a time may use it. All versions stay readable
/// until it is freed with `esker_changes_free`.
pub struct esker_changes {
    _opaque: [u8; 0],
}

handle!(esker_changes(Walk) = b"ESK-chng");

/// A change of a key. Its bytes belong to the changes that it came from, and are valid until the
/// next call with those.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct esker_change {
    /// The version that made it: the number of the commit.
    pub version: u64,
    /// The new value, unless the key was removed.
    pub value: *const u8,
    /// Its length.
    pub value_len: usize,
    /// Whether the key was removed.
    pub removed: bool,
}

/// The newest version: the number of the last commit, as `esker_past_at` takes it.
///
/// # Safety
/// `db` is a store; the others are null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_version(
    db: *const esker_db,
    version: *mut u64,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        let version = needed(version, "version")?;
        // A snapshot is refused by a store that is closed, or a parent's.
        // SAFETY: by the caller's promise.
        let newest = unsafe { get(db) }?.snapshot()?.seq();
        // SAFETY: by the caller's promise.
        unsafe { version.put(newest) };
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// The time at which a version was committed, in milliseconds since 1970: that of the last commit
/// to a keyspace with history up to it. `found` says whether there was one. Times do not fall with
/// growing versions, even if the clock is set back.
///
/// # Safety
/// `db` is a store; the others are null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_time_of(
    db: *const esker_db,
    version: u64,
    milliseconds: *mut u64,
    found: *mut bool,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        let milliseconds = needed(milliseconds, "milliseconds")?;
        let found = needed(found, "found")?;
        // SAFETY: by the caller's promise.
        let time = unsafe { get(db) }?.time_of(version)?;
        let since = time.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
        let since = since.and_then(|since| u64::try_from(since.as_millis()).ok());
        // SAFETY: by the caller's promise.
        unsafe {
            found.put(since.is_some());
            milliseconds.put(since.unwrap_or_default());
        }
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// The keyspace as it was after the commit `version` and before the next one. `ESKER_INVALID` for a
/// keyspace without history, and for a version from before it began or of the future.
///
/// # Safety
/// `keyspace` is a keyspace; the others are null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_past_at(
    keyspace: *const esker_keyspace,
    version: u64,
    past: *mut *mut esker_past,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        let past = needed(past, "past")?;
        // SAFETY: by the caller's promise.
        let found = unsafe { get(keyspace) }?.at(version)?;
        // SAFETY: by the caller's promise.
        unsafe { past.put(give(found)) };
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// The keyspace as it was at a time, in milliseconds since 1970: after the last commit up to then.
/// The rest as for `esker_past_at`.
///
/// # Safety
/// As for `esker_past_at`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_past_at_time(
    keyspace: *const esker_keyspace,
    milliseconds: u64,
    past: *mut *mut esker_past,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        let past = needed(past, "past")?;
        let time = time_at(milliseconds)?;
        // SAFETY: by the caller's promise.
        let found = unsafe { get(keyspace) }?.at_time(time)?;
        // SAFETY: by the caller's promise.
        unsafe { past.put(give(found)) };
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

fn time_at(milliseconds: u64) -> Result<SystemTime> {
    let time = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(milliseconds));
    let refused = || format!("{milliseconds} milliseconds are beyond all times of this system");
    time.ok_or_else(|| Failure::invalid(refused()))
}

/// The version; 0 for a pointer that is no such keyspace.
///
/// # Safety
/// `past` is a keyspace at a version that has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_past_version(past: *const esker_past) -> u64 {
    // SAFETY: by the caller's promise.
    unsafe { get(past) }.map_or(0, Past::version)
}

/// As `esker_get`, at the version.
///
/// # Safety
/// `past` is a keyspace at a version, `key` has the given length; the others are null or can be
/// written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_past_get(
    past: *const esker_past,
    key: *const u8,
    key_len: usize,
    value: *mut esker_bytes,
    found: *mut bool,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        // SAFETY: by the caller's promise.
        unsafe { answer(value, found, || Ok(get(past)?.get(slice(key, key_len, "key")?)?)) }
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// Entries with `start` <= key < `end`, at the version: see `esker_range_new`.
///
/// # Safety
/// `past` is a keyspace at a version, `start` and `end` have the given lengths; the others are null
/// or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_past_range(
    past: *const esker_past,
    start: *const u8,
    start_len: usize,
    end: *const u8,
    end_len: usize,
    range: *mut *mut esker_range,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        let range = needed(range, "range")?;
        // SAFETY: by the caller's promise.
        let bounds = unsafe { bounds(start, start_len, end, end_len) }?;
        // SAFETY: by the caller's promise.
        let made = unsafe { get(past) }?.range::<&[u8]>(bounds)?;
        // SAFETY: by the caller's promise.
        unsafe { range.put(give(Cursor::new(made))) };
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// Entries whose keys begin with `prefix`, at the version: see `esker_range_prefix`.
///
/// # Safety
/// As for `esker_past_range`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_past_prefix(
    past: *const esker_past,
    prefix: *const u8,
    prefix_len: usize,
    range: *mut *mut esker_range,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        let range = needed(range, "range")?;
        // SAFETY: by the caller's promise.
        let (past, prefix) = unsafe { (get(past)?, slice(prefix, prefix_len, "prefix")?) };
        let made = past.prefix(prefix)?;
        // SAFETY: by the caller's promise.
        unsafe { range.put(give(Cursor::new(made))) };
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// Frees a keyspace at a version. Null is ignored.
///
/// # Safety
/// `past` is null or a keyspace at a version that is no longer in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_past_free(past: *mut esker_past) {
    // SAFETY: by the caller's promise.
    unsafe { release(past) }
}

/// The changes of `key`, up to now. `ESKER_INVALID` for a keyspace without history.
///
/// # Safety
/// `keyspace` is a keyspace, `key` has the given length; the others are null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_changes_new(
    keyspace: *const esker_keyspace,
    key: *const u8,
    key_len: usize,
    changes: *mut *mut esker_changes,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        let changes = needed(changes, "changes")?;
        // SAFETY: by the caller's promise.
        let (keyspace, key) = unsafe { (get(keyspace)?, slice(key, key_len, "key")?) };
        let made = keyspace.history(key)?;
        // SAFETY: by the caller's promise.
        unsafe { changes.put(give(Walk { changes: made, current: None })) };
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// The next older change; `found` says whether there was one more. A lookup.
///
/// # Safety
/// `changes` are changes; the others are null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_changes_next(
    changes: *mut esker_changes,
    change: *mut esker_change,
    found: *mut bool,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        let (change, found) = (needed(change, "change")?, needed(found, "found")?);
        // SAFETY: by the caller's promise.
        let walk = unsafe { get_mut(changes) }?;
        walk.current = walk.changes.next().transpose()?;
        // SAFETY: by the caller's promise.
        unsafe {
            found.put(walk.current.is_some());
            change.put(shown(walk.current.as_ref()));
        }
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// A change as C programs see it.
fn shown(change: Option<&Change>) -> esker_change {
    let (value, value_len) = bytes::shown(change.and_then(|change| change.value.as_deref()));
    esker_change {
        version: change.map_or(0, |change| change.version),
        value,
        value_len,
        removed: change.is_some_and(|change| change.value.is_none()),
    }
}

/// Frees changes. Null is ignored.
///
/// # Safety
/// `changes` is null or changes that are no longer in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_changes_free(changes: *mut esker_changes) {
    // SAFETY: by the caller's promise.
    unsafe { release(changes) }
}
