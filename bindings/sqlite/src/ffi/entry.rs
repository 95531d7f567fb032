//! The entry points for SQLite's loader.

use std::ffi::{c_char, c_int, c_void};
use std::panic::catch_unwind;

use super::host::{Host, set, text_for};
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
    if !message.is_null() {
        // SAFETY: it is not null, so there is room for a text that the caller frees.
        unsafe { message.write(text_for(routines, &format!("esker: {what}"))) };
    }
    Code::ERROR.0
}

fn register(host: &Host, is_default: bool) -> Result<(), &'static str> {
    // SAFETY: the name of a VFS.
    let there = unsafe { (host.vfs_find)(NAME.as_ptr()) };
    let ours = if there.is_null() {
        // SAFETY: the system's VFS was found when the host was set.
        Box::leak(Box::new(unsafe { vfs(host) }))
    } else if is_default {
        // Loaded before, perhaps as what is not the default.
        there
    } else {
        // Registered again it would no longer be the default, if it is.
        return Ok(());
    };
    // SAFETY: a VFS that lives as long as the process.
    match unsafe { (host.vfs_register)(ours, c_int::from(is_default)) } {
        OK => Ok(()),
        _ => Err("SQLite does not take another VFS"),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;
    use std::mem;
    use std::ptr;
    use std::sync::atomic::{AtomicPtr, Ordering};

    use rusqlite::auto_extension::{cancel_auto_extension, register_auto_extension};
    use rusqlite::{Connection, ffi};

    use super::super::types::routine;
    use super::*;

    static ROUTINES: AtomicPtr<Routines> = AtomicPtr::new(ptr::null_mut());

    unsafe extern "C" fn keep(
        _: *mut ffi::sqlite3,
        _: *mut *mut c_char,
        routines: *const ffi::sqlite3_api_routines,
    ) -> c_int {
        ROUTINES.store(routines.cast_mut().cast(), Ordering::Relaxed);
        OK
    }

    /// The routines that SQLite passes to extensions.
    fn routines() -> Routines {
        // SAFETY: the entry point does nothing but keep a pointer.
        unsafe { register_auto_extension(keep) }.unwrap();
        Connection::open_in_memory().unwrap();
        cancel_auto_extension(keep);
        let kept = ROUTINES.load(Ordering::Relaxed);
        assert!(!kept.is_null());
        // SAFETY: the structure is SQLite's own, and lives as long as the process.
        unsafe { kept.read() }
    }

    fn refused(routines: &Routines) -> String {
        let mut message = ptr::null_mut();
        // SAFETY: the structure is SQLite's, but for one function.
        let code = unsafe { load(&raw mut message, routines, false) };
        assert_eq!(code, Code::ERROR.0);
        // SAFETY: the message is a text that SQLite has allocated.
        let text = unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned();
        // SAFETY: and it is not used any more.
        unsafe { ffi::sqlite3_free(message.cast()) };
        text
    }

    type Version = unsafe extern "C" fn() -> c_int;

    unsafe extern "C" fn older() -> c_int {
        3_036_000
    }

    unsafe extern "C" fn another() {}

    #[test]
    fn an_old_sqlite_and_a_second_one_get_a_reason() {
        let mut old = routines();
        // SAFETY: only a pointer is made, and called as what it is.
        let version = unsafe { mem::transmute::<Version, unsafe extern "C" fn()>(older) };
        old.all[routine::LIBVERSION_NUMBER] = Some(version);
        assert!(refused(&old).contains("3.37"));
        let first = routines();
        // SAFETY: the structure is SQLite's.
        let loaded = unsafe { load(ptr::null_mut(), &raw const first, false) };
        assert_eq!(loaded, OK_LOAD_PERMANENTLY);
        let mut second = routines();
        second.all[routine::VFS_REGISTER] = Some(another);
        assert!(refused(&second).contains("another SQLite"));
    }
}
