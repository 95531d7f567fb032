//! What the loader looks for.

use std::ffi::{c_char, c_int, c_void};
use std::panic::catch_unwind;

use super::host::{Host, set};
use super::types::Routines;
use super::vfs::{NAME, vfs};
use crate::code::{Code, OK, OK_LOAD_PERMANENTLY};

/// Registers the VFS by name: `.load libesker_sqlite`, then `file:app.db?vfs=esker`.
///
/// # Safety
/// Called by SQLite, as the entry point of an extension.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_eskersqlite_init(
    _: *mut c_void,
    message: *mut *mut c_char,
    routines: *const Routines,
) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { load(message, routines, false) }
}

/// Registers the VFS as the default one, for applications that cannot name it.
///
/// # Safety
/// Called by SQLite, as the entry point of an extension.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_eskerdefault_init(
    _: *mut c_void,
    message: *mut *mut c_char,
    routines: *const Routines,
) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { load(message, routines, true) }
}

/// # Safety
/// The arguments are those of the entry point of an extension.
unsafe fn load(message: *mut *mut c_char, routines: *const Routines, is_default: bool) -> c_int {
    if routines.is_null() {
        return Code::ERROR.0;
    }
    let loaded = catch_unwind(|| {
        // SAFETY: by the caller's promise.
        let host = unsafe { set(routines) }?;
        register(host, is_default)
    });
    let what = match loaded {
        Ok(Ok(())) => return OK_LOAD_PERMANENTLY,
        Ok(Err(what)) => what,
        Err(_) => "the extension failed while it was loaded",
    };
    if let Ok(host) = super::host::host()
        && !message.is_null()
    {
        // SAFETY: it is not null, so there is room for a text that SQLite frees.
        unsafe { message.write(host.text(&format!("esker: {what}"))) };
    }
    Code::ERROR.0
}

fn register(host: &Host, is_default: bool) -> Result<(), &'static str> {
    // SAFETY: the name of a VFS.
    let there = unsafe { (host.vfs_find)(NAME.as_ptr()) };
    let ours = if there.is_null() {
        // SAFETY: the system's VFS was found when the host was set.
        Box::leak(Box::new(unsafe { vfs(host) }))
    } else {
        // Loaded before, perhaps as what is not the default.
        there
    };
    // SAFETY: a VFS that lives as long as the process.
    match unsafe { (host.vfs_register)(ours, c_int::from(is_default)) } {
        OK => Ok(()),
        _ => Err("SQLite does not take another VFS"),
    }
}
