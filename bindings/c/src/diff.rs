//! What happened in a keyspace with history between two versions.

use std::ops::Bound;

use esker::{Diff, Difference, KeyChange, KeyChanges};

use crate::bytes::{needed, shown, slice};
use crate::error::{esker_code, esker_error, guard, release};
use crate::handle::{get, get_mut, give, handle};
use crate::keyspace::esker_keyspace;
use crate::range::bounds;

/// Changes yet to come, and the one that the caller looks at.
#[derive(Debug)]
pub struct ChangesWalk {
    changes: KeyChanges,
    current: Option<KeyChange>,
}

/// The changes of all keys, by key, those of a key newest first. One thread at a time may use it.
/// All versions stay readable until it is freed with `esker_key_changes_free`.
pub struct esker_key_changes {
    _opaque: [u8; 0],
}

handle!(esker_key_changes(ChangesWalk) = b"ESK-kchg");

/// A change of one of the keys of a keyspace. Its bytes belong to the changes that it came from,
/// and are valid until the next call with those.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct esker_key_change {
    /// The key.
    pub key: *const u8,
    /// Its length.
    pub key_len: usize,
    /// The version that made it: the number of the commit.
    pub version: u64,
    /// The new value, unless the key was removed.
    pub value: *const u8,
    /// Its length.
    pub value_len: usize,
    /// Whether the key was removed.
    pub removed: bool,
}

/// Differences yet to come, and the one that the caller looks at.
#[derive(Debug)]
pub struct DiffWalk {
    diff: Diff,
    current: Option<Difference>,
}

/// The keys whose values differ between two versions, in their order. One thread at a time may use
/// it. Both versions stay readable until it is freed with `esker_diff_free`.
pub struct esker_diff {
    _opaque: [u8; 0],
}

handle!(esker_diff(DiffWalk) = b"ESK-diff");

/// A key whose value is another one in the second of two versions. Its bytes belong to the diff
/// that it came from, and are valid until the next call with that.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct esker_difference {
    /// The key.
    pub key: *const u8,
    /// Its length.
    pub key_len: usize,
    /// The value in the first version. Null where there was none; an empty value is not null.
    pub before: *const u8,
    /// Its length.
    pub before_len: usize,
    /// The value in the second version. Null where there is none; an empty value is not null.
    pub after: *const u8,
    /// Its length.
    pub after_len: usize,
}

/// The versions after `since` and up to `until`. Null is no bound.
///
/// # Safety
/// Both are null or point to a version.
unsafe fn versions(since: *const u64, until: *const u64) -> (Bound<u64>, Bound<u64>) {
    // SAFETY: by the caller's promise.
    let (since, until) = unsafe { (since.as_ref(), until.as_ref()) };
    (
        since.map_or(Bound::Unbounded, |since| Bound::Excluded(*since)),
        until.map_or(Bound::Unbounded, |until| Bound::Included(*until)),
    )
}

/// The changes of all keys with `start` <= key < `end` that the versions after `*since` and up to
/// `*until` made. A null `start` or `end` is no bound; a null `since` means all changes that are
/// kept, a null `until` those up to now. Reads what has entries of these versions, and costs an
/// `esker_get` for each key. `ESKER_INVALID` for a keyspace without history, and for a version that
/// is not kept.
///
/// # Safety
/// `keyspace` is a keyspace, `since` and `until` are null or point to a version, `start` and `end`
/// have the given lengths; the others are null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_key_changes_new(
    keyspace: *const esker_keyspace,
    since: *const u64,
    until: *const u64,
    start: *const u8,
    start_len: usize,
    end: *const u8,
    end_len: usize,
    changes: *mut *mut esker_key_changes,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        let changes = needed(changes, "changes")?;
        // SAFETY: by the caller's promise.
        let bounds = unsafe { bounds(start, start_len, end, end_len) }?;
        // SAFETY: by the caller's promise.
        let (keyspace, versions) = unsafe { (get(keyspace)?, versions(since, until)) };
        let made = keyspace.changes(versions)?.range::<&[u8]>(bounds);
        // SAFETY: by the caller's promise.
        unsafe { changes.put(give(ChangesWalk { changes: made, current: None })) };
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// The changes of all keys that begin with `prefix`: see `esker_key_changes_new`.
///
/// # Safety
/// As for `esker_key_changes_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_key_changes_prefix(
    keyspace: *const esker_keyspace,
    since: *const u64,
    until: *const u64,
    prefix: *const u8,
    prefix_len: usize,
    changes: *mut *mut esker_key_changes,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        let changes = needed(changes, "changes")?;
        // SAFETY: by the caller's promise.
        let (keyspace, prefix) = unsafe { (get(keyspace)?, slice(prefix, prefix_len, "prefix")?) };
        // SAFETY: by the caller's promise.
        let versions = unsafe { versions(since, until) };
        let made = keyspace.changes(versions)?.prefix(prefix);
        // SAFETY: by the caller's promise.
        unsafe { changes.put(give(ChangesWalk { changes: made, current: None })) };
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// The next change; `found` says whether there was one more.
///
/// # Safety
/// `changes` are changes of all keys; the others are null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_key_changes_next(
    changes: *mut esker_key_changes,
    change: *mut esker_key_change,
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
            change.put(shown_change(walk.current.as_ref()));
        }
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

fn shown_change(change: Option<&KeyChange>) -> esker_key_change {
    let (key, key_len) = shown(change.map(|change| &change.key[..]));
    let (value, value_len) = shown(change.and_then(|change| change.value.as_deref()));
    let version = change.map_or(0, |change| change.version);
    let removed = change.is_some_and(|change| change.value.is_none());
    esker_key_change { key, key_len, version, value, value_len, removed }
}

/// Frees changes of all keys. Null is ignored.
///
/// # Safety
/// `changes` is null or changes that are no longer in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_key_changes_free(changes: *mut esker_key_changes) {
    // SAFETY: by the caller's promise.
    unsafe { release(changes) }
}

/// The keys with `start` <= key < `end` whose values differ between version `before` and version
/// `after`. A null `start` or `end` is no bound. Finds keys as `esker_key_changes_new` does, and
/// costs two lookups for each. `ESKER_INVALID` for a keyspace without history, and for a version
/// that is not kept.
///
/// # Safety
/// `keyspace` is a keyspace, `start` and `end` have the given lengths; the others are null or can
/// be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_diff_new(
    keyspace: *const esker_keyspace,
    before: u64,
    after: u64,
    start: *const u8,
    start_len: usize,
    end: *const u8,
    end_len: usize,
    diff: *mut *mut esker_diff,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        let diff = needed(diff, "diff")?;
        // SAFETY: by the caller's promise.
        let bounds = unsafe { bounds(start, start_len, end, end_len) }?;
        // SAFETY: by the caller's promise.
        let made = unsafe { get(keyspace) }?.diff(before, after)?.range::<&[u8]>(bounds);
        // SAFETY: by the caller's promise.
        unsafe { diff.put(give(DiffWalk { diff: made, current: None })) };
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// The keys that begin with `prefix` and whose values differ: see `esker_diff_new`.
///
/// # Safety
/// As for `esker_diff_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_diff_prefix(
    keyspace: *const esker_keyspace,
    before: u64,
    after: u64,
    prefix: *const u8,
    prefix_len: usize,
    diff: *mut *mut esker_diff,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        let diff = needed(diff, "diff")?;
        // SAFETY: by the caller's promise.
        let (keyspace, prefix) = unsafe { (get(keyspace)?, slice(prefix, prefix_len, "prefix")?) };
        let made = keyspace.diff(before, after)?.prefix(prefix);
        // SAFETY: by the caller's promise.
        unsafe { diff.put(give(DiffWalk { diff: made, current: None })) };
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// The next difference; `found` says whether there was one more.
///
/// # Safety
/// `diff` is a diff; the others are null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_diff_next(
    diff: *mut esker_diff,
    difference: *mut esker_difference,
    found: *mut bool,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        let (difference, found) = (needed(difference, "difference")?, needed(found, "found")?);
        // SAFETY: by the caller's promise.
        let walk = unsafe { get_mut(diff) }?;
        walk.current = walk.diff.next().transpose()?;
        // SAFETY: by the caller's promise.
        unsafe {
            found.put(walk.current.is_some());
            difference.put(shown_difference(walk.current.as_ref()));
        }
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

fn shown_difference(found: Option<&Difference>) -> esker_difference {
    let (key, key_len) = shown(found.map(|found| &found.key[..]));
    let (before, before_len) = shown(found.and_then(|found| found.before.as_deref()));
    let (after, after_len) = shown(found.and_then(|found| found.after.as_deref()));
    esker_difference { key, key_len, before, before_len, after, after_len }
}

/// Frees a diff. Null is ignored.
///
/// # Safety
/// `diff` is null or a diff that is no longer in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_diff_free(diff: *mut esker_diff) {
    // SAFETY: by the caller's promise.
    unsafe { release(diff) }
}
