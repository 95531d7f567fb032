//! The messages in SQLite's log.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use rusqlite::ffi;

static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn lines() -> MutexGuard<'static, Vec<String>> {
    SAID.lock().unwrap_or_else(PoisonError::into_inner)
}

unsafe extern "C" fn heard(_: *mut c_void, _: c_int, what: *const c_char) {
    // SAFETY: SQLite passes a text.
    let what = unsafe { CStr::from_ptr(what) };
    lines().push(what.to_string_lossy().into_owned());
}

/// Listens, from before SQLite is used for the first time.
pub fn listen() {
    static LISTENING: Once = Once::new();
    LISTENING.call_once(|| {
        let heard: unsafe extern "C" fn(*mut c_void, c_int, *const c_char) = heard;
        let nothing = std::ptr::null_mut::<c_void>();
        // SAFETY: nothing of SQLite is in use yet, and the log is set by a function and its first
        // argument.
        let set = unsafe { ffi::sqlite3_config(ffi::SQLITE_CONFIG_LOG, heard, nothing) };
        assert_eq!(set, ffi::SQLITE_OK, "SQLite was in use before");
    });
}

/// Whether one line has all of these parts.
pub fn said(parts: &[&str]) -> bool {
    lines().iter().any(|line| parts.iter().all(|part| line.contains(part)))
}

/// Everything that was said.
pub fn all() -> Vec<String> {
    lines().clone()
}
