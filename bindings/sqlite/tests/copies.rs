//! Copies by SQLite itself, from a file into a store and back, of a source with a WAL and without.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use esker_sqlite::planted::{self, Bug};
use rusqlite::backup::Backup;
use rusqlite::{Connection, OpenFlags};

fn open(path: &Path, vfs: &str) -> Connection {
    esker_sqlite::link().unwrap();
    let uri = format!("file:{}?vfs={vfs}", path.display());
    let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI;
    Connection::open_with_flags(uri, flags).unwrap()
}

/// A database of `rows` rows.
fn filled(path: &Path, vfs: &str, mode: &str, rows: i64) -> Connection {
    let connection = open(path, vfs);
    let said: String = connection
        .query_row(&format!("PRAGMA journal_mode = {mode}"), [], |row| row.get(0))
        .unwrap();
    assert_eq!(said, mode);
    connection
        .execute_batch(&format!(
            "CREATE TABLE IF NOT EXISTS t(x); INSERT INTO t SELECT hex(zeroblob(300)) FROM
             (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
              SELECT i FROM n)"
        ))
        .unwrap();
    connection
}

fn backup(from: &Connection, to: &mut Connection) {
    let backup = Backup::new(from, to).unwrap();
    backup.run_to_completion(7, Duration::ZERO, None).unwrap();
}

fn rows(connection: &Connection) -> i64 {
    let said: String =
        connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(said, "ok");
    connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
}

/// It can be read and written, also through another connection and after it is opened again.
fn is_whole(path: &Path, vfs: &str, connection: Option<Connection>, count: i64) {
    let other = open(path, vfs);
    assert_eq!(rows(&other), count);
    let connection = connection.unwrap_or_else(|| open(path, vfs));
    assert_eq!(rows(&connection), count);
    connection.execute_batch("INSERT INTO t VALUES ('more'); VACUUM").unwrap();
    assert_eq!(rows(&other), count + 1);
    drop((connection, other));
    let connection = open(path, vfs);
    assert_eq!(rows(&connection), count + 1);
    connection.execute_batch("DELETE FROM t WHERE x = 'more'").unwrap();
}

fn paths(folder: &tempfile::TempDir) -> [PathBuf; 3] {
    ["source.db", "copy.db", "vacuumed.db"].map(|name| folder.path().join(name))
}

#[test]
fn a_copy_opens_whatever_journal_its_source_had() {
    for (from, to) in [("unix", "esker"), ("esker", "unix"), ("esker", "esker")] {
        for mode in ["wal", "delete"] {
            let folder = tempfile::tempdir().unwrap();
            let [source, copy, vacuumed] = paths(&folder);
            let connection = filled(&source, from, mode, 100);
            // A new one; then one that is there, and larger, and smaller, and has been read.
            let mut target = open(&copy, to);
            target.execute_batch("PRAGMA cache_size = 10").unwrap();
            backup(&connection, &mut target);
            is_whole(&copy, to, Some(target), 100);
            let mut target = open(&copy, to);
            for count in [100_i64, 200, 20] {
                connection.execute("DELETE FROM t WHERE rowid > ?1", [count]).unwrap();
                let more = count - rows(&connection);
                if more > 0 {
                    drop(filled(&source, from, mode, more));
                }
                let reader = open(&copy, to);
                reader.query_row("SELECT count(*) FROM t", [], |_| Ok(())).unwrap();
                backup(&connection, &mut target);
                assert_eq!((rows(&target), rows(&reader)), (count, count));
                is_whole(&copy, to, None, count);
            }
            let uri = format!("file:{}?vfs={to}", vacuumed.display());
            connection.execute("VACUUM INTO ?1", [uri]).unwrap();
            is_whole(&vacuumed, to, None, 20);
        }
    }
}

/// A store into which an earlier version copied such a source.
#[test]
fn a_store_that_asks_for_a_wal_opens() {
    let folder = tempfile::tempdir().unwrap();
    let [source, copy, _] = paths(&folder);
    let connection = filled(&source, "unix", "wal", 100);
    planted::with(Bug::WalKept, || {
        let mut target = open(&copy, "esker");
        backup(&connection, &mut target);
        let refused = open(&copy, "esker").query_row("SELECT count(*) FROM t", [], |_| Ok(()));
        assert!(refused.is_err(), "a suite that cannot fail proves nothing");
    });
    is_whole(&copy, "esker", None, 100);
}
