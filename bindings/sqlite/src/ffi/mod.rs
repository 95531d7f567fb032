//! The boundary to SQLite: all unsafe code is here.
//!
//! Reading order: [`types`] (the structures), `host` (what SQLite offers), `vfs` (files by name),
//! `opened` (open files of any kind), `io` (databases and journals), `database` (the database of a
//! file), `entry` (the entry points for the loader). For programs that have SQLite linked in:
//! `linked`, `counted` and `hosted` (other VFSs).
//!
//! Assumptions in every call: pointers that SQLite passes are valid for the call and of the type
//! that the interface documents; the methods of one file are called by one thread at a time. Every
//! function that SQLite calls goes through [`guard`]: a panic never crosses the boundary.

#![expect(unsafe_code, reason = "the interface of SQLite is one of C")]

#[cfg(feature = "linked")]
pub mod counted;
pub mod database;
mod entry;
mod host;
#[cfg(feature = "linked")]
pub mod hosted;
mod io;
#[cfg(feature = "linked")]
pub mod linked;
mod opened;
pub mod types;
mod vfs;

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use crate::code::{Code, OK, Result};

/// Calls `body`; a panic becomes an error.
fn guard(body: impl FnOnce() -> Result) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => OK,
        Ok(Err(Code(code))) => code,
        Err(_) => Code::IOERR_READ.0,
    }
}

/// The path that a string is; `None` for no string.
///
/// # Safety
/// `name` is null or a string that ends with a null byte and lives as long as the result.
unsafe fn path<'a>(name: *const c_char) -> Option<&'a Path> {
    if name.is_null() {
        return None;
    }
    // SAFETY: by the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    Some(Path::new(OsStr::from_bytes(name.to_bytes())))
}
