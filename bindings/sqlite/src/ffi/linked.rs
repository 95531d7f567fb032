//! For programs that have SQLite linked in: the VFS without a library to load.

use std::ffi::{c_char, c_int};
use std::sync::OnceLock;

use rusqlite::auto_extension::{cancel_auto_extension, register_auto_extension};
use rusqlite::{Connection, ffi};

use super::entry::sqlite3_eskersqlite_init;
use crate::code::{OK, OK_LOAD_PERMANENTLY};

/// Registers the VFS `esker` with the SQLite that is linked into this program, once per process.
///
/// A connection that another thread opens at the same time also calls the entry point, which is
/// harmless.
///
/// # Errors
/// The error message of SQLite or of the extension.
pub fn link() -> Result<(), String> {
    static LINKED: OnceLock<Result<(), String>> = OnceLock::new();
    LINKED.get_or_init(register).clone()
}

fn register() -> Result<(), String> {
    // SAFETY: the entry point opens nothing, closes nothing, and leaves the list as it is.
    unsafe { register_auto_extension(entry) }.map_err(|error| error.to_string())?;
    let opened = Connection::open_in_memory();
    cancel_auto_extension(entry);
    opened.map(drop).map_err(|error| error.to_string())
}

/// # Safety
/// Called by SQLite, as the entry point of an extension.
unsafe extern "C" fn entry(
    database: *mut ffi::sqlite3,
    message: *mut *mut c_char,
    routines: *const ffi::sqlite3_api_routines,
) -> c_int {
    // SAFETY: by the caller's promise; the structure is the same, seen as pointers in their order.
    match unsafe { sqlite3_eskersqlite_init(database.cast(), message, routines.cast()) } {
        // Only the loader of libraries knows this answer; here it would be an error.
        OK_LOAD_PERMANENTLY => OK,
        code => code,
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::OpenFlags;

    use super::*;

    #[test]
    fn the_vfs_is_registered_and_others_are_unchanged() {
        link().unwrap();
        link().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("app.db");
        let open = |uri: String| {
            Connection::open_with_flags(uri, OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI)
        };
        let connection = open(format!("file:{}?vfs=esker", path.display())).unwrap();
        connection.execute_batch("CREATE TABLE t(a); INSERT INTO t VALUES (7)").unwrap();
        drop(connection);
        let plain = Connection::open(&path).unwrap();
        assert!(plain.execute_batch("SELECT a FROM t").is_err(), "the file is not SQLite's own");
        let again = open(format!("file:{}?vfs=esker", path.display())).unwrap();
        let found: i64 = again.query_row("SELECT a FROM t", [], |row| row.get(0)).unwrap();
        assert_eq!(found, 7);
    }
}
