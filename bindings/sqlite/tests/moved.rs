//! Files that are renamed, deleted and replaced while they are open: what is written to one that
//! has lost its name is refused, as SQLite refuses it, and what comes in its place is another
//! store.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(unsafe_code, reason = "a library is loaded")]

mod common;

use std::fs;
use std::path::Path;

use rusqlite::{Connection, ErrorCode};

use common::{number, open, text};

fn made(path: &Path) -> Connection {
    let connection = open(path).unwrap();
    connection.execute_batch("CREATE TABLE t(n); INSERT INTO t VALUES (1)").unwrap();
    connection
}

/// Writes are refused, each as SQLite's own VFS refuses them; reads go on.
fn is_refused(connection: &Connection) {
    for write in ["INSERT INTO t VALUES (2)", "BEGIN IMMEDIATE", "PRAGMA esker_pin=kept"] {
        let refused = connection.execute_batch(write).unwrap_err();
        assert_eq!(refused.sqlite_error_code(), Some(ErrorCode::ReadOnly), "{write}: {refused}");
    }
    assert_eq!(number(connection, "SELECT sum(n) FROM t"), 1);
}

fn takes_writes(connection: &Connection) {
    connection.execute_batch("INSERT INTO t VALUES (2)").unwrap();
    connection.execute_batch("DELETE FROM t WHERE n = 2").unwrap();
}

#[test]
fn writes_to_a_deleted_file_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    for mode in ["delete", "memory", "wal"] {
        let connection = made(&path);
        connection.execute_batch(&format!("PRAGMA journal_mode={mode}")).unwrap();
        takes_writes(&connection);
        fs::remove_file(&path).unwrap();
        is_refused(&connection);
        drop(connection);
        assert!(!path.exists(), "{mode}: it came back");
    }
}

#[test]
fn a_renamed_file_takes_writes_when_it_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let (path, away) = (folder.path().join("app.db"), folder.path().join("away.db"));
    let connection = made(&path);
    fs::rename(&path, &away).unwrap();
    is_refused(&connection);
    fs::rename(&away, &path).unwrap();
    takes_writes(&connection);
    // Another name of the same file is the same store.
    fs::hard_link(&path, &away).unwrap();
    let other = open(&away).unwrap();
    takes_writes(&other);
    fs::remove_file(&path).unwrap();
    is_refused(&connection);
    takes_writes(&other);
    assert_eq!(text(&other, "PRAGMA integrity_check"), "ok");
}

#[test]
fn a_file_in_the_place_of_an_open_one_is_another_store() {
    let folder = tempfile::tempdir().unwrap();
    let (path, away) = (folder.path().join("app.db"), folder.path().join("away.db"));
    for is_kept in [true, false] {
        let first = made(&path);
        if is_kept {
            fs::rename(&path, &away).unwrap();
        } else {
            fs::remove_file(&path).unwrap();
        }
        let second = open(&path).unwrap();
        assert_eq!(number(&second, "SELECT count(*) FROM sqlite_master"), 0);
        second.execute_batch("CREATE TABLE u(n); INSERT INTO u VALUES (7)").unwrap();
        is_refused(&first);
        if is_kept {
            // By its own name it is the first one's store, and takes writes.
            let third = open(&away).unwrap();
            takes_writes(&third);
        }
        drop(second);
        is_refused(&first);
        drop(first);
        assert_eq!(number(&open(&path).unwrap(), "SELECT sum(n) FROM u"), 7);
        fs::remove_file(&path).unwrap();
        if is_kept {
            assert_eq!(number(&open(&away).unwrap(), "SELECT sum(n) FROM t"), 1);
            fs::remove_file(&away).unwrap();
        }
    }
}
