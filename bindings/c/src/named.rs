//! Versions that stay readable under a name.

use std::ffi::c_char;

use crate::bytes::{esker_bytes, list_of, needed, text};
use crate::db::esker_db;
use crate::error::{esker_code, esker_error, guard};
use crate::handle::{get, give};
use crate::history::esker_past;
use crate::keyspace::esker_keyspace;

/// Keeps `version` readable under the name `name` until `esker_unpin`, also after the store has
/// been opened again: in all keyspaces whose history it is part of now, which then keep all later
/// versions too. A name is 1 to 255 bytes of UTF-8 without control characters. Two syncs.
/// `ESKER_INVALID` for a name that is in use, when 1000 versions have names, and for a version that
/// no keyspace can read.
///
/// # Safety
/// `db` is a store; `name` ends with a null byte; `error` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_pin(
    db: *const esker_db,
    name: *const c_char,
    version: u64,
    error: *mut *mut esker_error,
) -> esker_code {
    // SAFETY: by the caller's promise.
    let body = || unsafe { Ok(get(db)?.pin(text(name, "name")?, version)?) };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// Gives up the name of a version. What only it has kept is freed in steps. One sync.
/// `ESKER_INVALID` when no version has this name.
///
/// # Safety
/// `db` is a store; `name` ends with a null byte; `error` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_unpin(
    db: *const esker_db,
    name: *const c_char,
    error: *mut *mut esker_error,
) -> esker_code {
    // SAFETY: by the caller's promise.
    let body = || unsafe { Ok(get(db)?.unpin(text(name, "name")?)?) };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// The names of versions, sorted, each ended by a null byte. Freed with `esker_bytes_free`.
/// `esker_named_version` has the version of each.
///
/// # Safety
/// `db` is a store; the other pointers are null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_named_versions(
    db: *const esker_db,
    names: *mut esker_bytes,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        let names = needed(names, "names")?;
        // SAFETY: by the caller's promise.
        let found = unsafe { get(db) }?.named_versions()?;
        // SAFETY: by the caller's promise.
        unsafe { names.put(list_of(found.iter().map(|named| &*named.name))) };
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// The version that has the name `name`; `found` says whether there is one.
///
/// # Safety
/// `db` is a store; `name` ends with a null byte; the others are null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_named_version(
    db: *const esker_db,
    name: *const c_char,
    version: *mut u64,
    found: *mut bool,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        let (version, found) = (needed(version, "version")?, needed(found, "found")?);
        // SAFETY: by the caller's promise.
        let (db, name) = unsafe { (get(db)?, text(name, "name")?) };
        let named = db.named_versions()?.into_iter().find(|named| named.name == name);
        // SAFETY: by the caller's promise.
        unsafe {
            found.put(named.is_some());
            version.put(named.map_or(0, |named| named.version));
        }
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// The keyspace as it was at the version that `esker_pin` has named `name`. `ESKER_INVALID` when no
/// version has this name. The rest as for `esker_past_at`.
///
/// # Safety
/// `keyspace` is a keyspace; `name` ends with a null byte; the others are null or can be written
/// to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_past_named(
    keyspace: *const esker_keyspace,
    name: *const c_char,
    past: *mut *mut esker_past,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        let past = needed(past, "past")?;
        // SAFETY: by the caller's promise.
        let found = unsafe { get(keyspace)?.at_named(text(name, "name")?) }?;
        // SAFETY: by the caller's promise.
        unsafe { past.put(give(found)) };
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}
