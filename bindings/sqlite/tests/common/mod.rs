//! Connections through the extension.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::path::{Path, PathBuf};
use std::sync::Once;

use rusqlite::{Connection, OpenFlags};

/// The library that this crate is, as an application loads it.
pub fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().join("libesker_sqlite.so")
}

/// Loads the extension, once a process.
pub fn load() {
    static LOADED: Once = Once::new();
    LOADED.call_once(|| {
        let connection = Connection::open_in_memory().unwrap();
        // SAFETY: the library is the one that was built with this test.
        unsafe {
            let _guard = rusqlite::LoadExtensionGuard::new(&connection).unwrap();
            connection.load_extension(library(), None::<&str>).unwrap();
        }
    });
}

/// Opens a database through the VFS.
pub fn open(path: &Path) -> rusqlite::Result<Connection> {
    open_uri(&format!("file:{}?vfs=esker", path.display()))
}

/// Opens what a URI says.
pub fn open_uri(uri: &str) -> rusqlite::Result<Connection> {
    load();
    Connection::open_with_flags(uri, OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI)
}

/// One number.
pub fn number(connection: &Connection, sql: &str) -> i64 {
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// One text.
pub fn text(connection: &Connection, sql: &str) -> String {
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}
