//! The extension loaded again, by the same connection, by others, and by both entry points. Alone
//! in its binary: which VFS is the default one is the same for the whole process.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(unsafe_code, reason = "a library is loaded")]

mod common;

use std::path::Path;

use rusqlite::{Connection, ErrorCode, LoadExtensionGuard};

use common::{library, number, open, text};

fn load(connection: &Connection, entry: Option<&str>) {
    // SAFETY: the library is the one that was built with this test.
    unsafe {
        let _guard = LoadExtensionGuard::new(connection).unwrap();
        connection.load_extension(library(), entry).unwrap();
    }
}

/// Whether the default VFS is ours: opening a file without naming a VFS gives a store.
fn is_default(folder: &Path, name: &str) -> bool {
    let path = folder.join(name);
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch("CREATE TABLE t(n)").unwrap();
    drop(connection);
    std::fs::read(path).unwrap().starts_with(b"Esker page store")
}

#[test]
fn loading_again_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    let first = Connection::open_in_memory().unwrap();
    load(&first, None);
    load(&first, None);
    let held = open(&path).unwrap();
    held.execute_batch("CREATE TABLE t(n); BEGIN; INSERT INTO t VALUES (1)").unwrap();
    load(&held, None);
    load(&Connection::open_in_memory().unwrap(), Some("sqlite3_eskersqlite_init"));
    assert!(!is_default(folder.path(), "before.db"));
    load(&first, Some("sqlite3_eskerdefault_init"));
    assert!(is_default(folder.path(), "after.db"));
    load(&held, Some("sqlite3_eskerdefault_init"));
    load(&held, None);
    load(&Connection::open_in_memory().unwrap(), None);
    assert!(is_default(folder.path(), "still.db"), "it was the default VFS before");
    // What was under way goes on, and both ways lead to one store.
    held.execute_batch("INSERT INTO t VALUES (2); COMMIT").unwrap();
    let by_default = Connection::open(&path).unwrap();
    assert_eq!(number(&by_default, "SELECT sum(n) FROM t"), 3);
    by_default.execute_batch("BEGIN IMMEDIATE").unwrap();
    let busy = held.execute_batch("INSERT INTO t VALUES (3)").unwrap_err();
    assert_eq!(busy.sqlite_error_code(), Some(ErrorCode::DatabaseBusy));
    by_default.execute_batch("COMMIT").unwrap();
    assert_eq!(text(&held, "PRAGMA integrity_check"), "ok");
}
