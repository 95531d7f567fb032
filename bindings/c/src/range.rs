//! Ranges: entries in the order of their keys, from both ends.

use std::ops::Bound;

use esker::{Entry, Range};

use crate::bytes::{needed, slice};
use crate::error::{Result, esker_code, esker_error, guard, release};
use crate::handle::{get, get_mut, give, handle};
use crate::keyspace::esker_keyspace;
use crate::snapshot::esker_snapshot;

/// Entries yet to come, and the one that the caller looks at.
#[derive(Debug)]
pub struct Cursor {
    range: Range,
    current: Entry,
}

impl Cursor {
    /// Before the first entry.
    pub(crate) fn new(range: Range) -> Self {
        Self { range, current: Entry::default() }
    }
}

/// The entries of a keyspace between two keys, as of the moment it was made. One thread at a time
/// may use it. Freed with `esker_range_free`.
pub struct esker_range {
    _opaque: [u8; 0],
}

handle!(esker_range(Cursor) = b"ESK-rnge");

/// An entry. Its bytes belong to the range or transaction that it came from, and are valid until
/// the next call with that.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct esker_entry {
    /// The key.
    pub key: *const u8,
    /// Its length.
    pub key_len: usize,
    /// The value.
    pub value: *const u8,
    /// Its length.
    pub value_len: usize,
}

/// Keeps `entry` in `current`, and shows it.
pub(crate) fn show(current: &mut Entry, entry: Option<Entry>) -> esker_entry {
    *current = entry.unwrap_or_default();
    let (key, value) = current;
    esker_entry {
        key: key.as_ptr(),
        key_len: key.len(),
        value: value.as_ptr(),
        value_len: value.len(),
    }
}

/// Entries with `start` <= key < `end`. A null `start` or `end` is no bound. A null `snapshot`
/// means the present state.
///
/// # Safety
/// The handles are of the named kinds or null, `start` and `end` have the given lengths; the
/// others are null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_range_new(
    keyspace: *const esker_keyspace,
    snapshot: *const esker_snapshot,
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
        let keyspace = unsafe { get(keyspace) }?;
        let made = if snapshot.is_null() {
            keyspace.range::<&[u8]>(bounds)?
        } else {
            // SAFETY: by the caller's promise.
            unsafe { get(snapshot) }?.range::<&[u8]>(keyspace, bounds)?
        };
        // SAFETY: by the caller's promise.
        unsafe { range.put(give(Cursor::new(made))) };
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// Bounds of keys.
pub(crate) type Keys<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// Keys with `start` <= key < `end`. Null is no bound.
///
/// # Safety
/// As [`slice`].
pub(crate) unsafe fn bounds<'a>(
    start: *const u8,
    start_len: usize,
    end: *const u8,
    end_len: usize,
) -> Result<Keys<'a>> {
    // SAFETY: by the caller's promise.
    unsafe {
        let start = bound(start, start_len, "start", Bound::Included)?;
        Ok((start, bound(end, end_len, "end", Bound::Excluded)?))
    }
}

/// A bound, where there is one.
///
/// # Safety
/// As [`slice`].
unsafe fn bound<'a>(
    key: *const u8,
    len: usize,
    name: &str,
    kind: fn(&'a [u8]) -> Bound<&'a [u8]>,
) -> Result<Bound<&'a [u8]>> {
    if key.is_null() && len == 0 {
        return Ok(Bound::Unbounded);
    }
    // SAFETY: by the caller's promise.
    Ok(kind(unsafe { slice(key, len, name) }?))
}

/// Entries whose keys begin with `prefix`; the rest as for `esker_range_new`.
///
/// # Safety
/// As for `esker_range_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_range_prefix(
    keyspace: *const esker_keyspace,
    snapshot: *const esker_snapshot,
    prefix: *const u8,
    prefix_len: usize,
    range: *mut *mut esker_range,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        let range = needed(range, "range")?;
        // SAFETY: by the caller's promise.
        let (keyspace, prefix) = unsafe { (get(keyspace)?, slice(prefix, prefix_len, "prefix")?) };
        let made = if snapshot.is_null() {
            keyspace.prefix(prefix)?
        } else {
            // SAFETY: by the caller's promise.
            unsafe { get(snapshot) }?.prefix(keyspace, prefix)?
        };
        // SAFETY: by the caller's promise.
        unsafe { range.put(give(Cursor::new(made))) };
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// The next entry from the front; `found` says whether there was one more.
///
/// # Safety
/// `range` is a range; the others are null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_range_next(
    range: *mut esker_range,
    entry: *mut esker_entry,
    found: *mut bool,
    error: *mut *mut esker_error,
) -> esker_code {
    // SAFETY: by the caller's promise.
    unsafe { guard(error, || step(range, entry, found, Range::next)) }
}

/// The next entry from the back; `found` says whether there was one more.
///
/// # Safety
/// `range` is a range; the others are null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_range_prev(
    range: *mut esker_range,
    entry: *mut esker_entry,
    found: *mut bool,
    error: *mut *mut esker_error,
) -> esker_code {
    // SAFETY: by the caller's promise.
    unsafe { guard(error, || step(range, entry, found, Range::next_back)) }
}

/// Moves to the entry that `advance` finds.
///
/// # Safety
/// `range` is a range; the others are null or can be written to.
unsafe fn step(
    range: *mut esker_range,
    entry: *mut esker_entry,
    found: *mut bool,
    advance: fn(&mut Range) -> Option<esker::Result<Entry>>,
) -> Result {
    let (entry, found) = (needed(entry, "entry")?, needed(found, "found")?);
    // SAFETY: by the caller's promise.
    let cursor = unsafe { get_mut(range) }?;
    let next = advance(&mut cursor.range).transpose()?;
    // SAFETY: by the caller's promise.
    unsafe {
        found.put(next.is_some());
        entry.put(show(&mut cursor.current, next));
    }
    Ok(())
}

/// Frees a range. Null is ignored.
///
/// # Safety
/// `range` is null or a range that is no longer in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_range_free(range: *mut esker_range) {
    // SAFETY: by the caller's promise.
    unsafe { release(range) }
}
