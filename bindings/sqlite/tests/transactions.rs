//! Transactions of unmodified SQLite over the store.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(unsafe_code, reason = "a library is loaded")]

mod common;

use std::thread;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, TransactionBehavior, ffi};

use common::{number, open, text};

fn filled(connection: &Connection, rows: i64) {
    connection.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT)").unwrap();
    let insert = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
                  INSERT INTO t(name) SELECT printf('name %d of a row', i) FROM n";
    connection.execute(insert, [rows]).unwrap();
}

#[test]
fn what_is_committed_is_there_after_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app data.db");
    let connection = open(&path).unwrap();
    filled(&connection, 10_000);
    assert_eq!(text(&connection, "PRAGMA integrity_check"), "ok");
    connection.close().unwrap();
    let connection = open(&path).unwrap();
    assert_eq!(number(&connection, "SELECT count(*) FROM t"), 10_000);
    assert_eq!(text(&connection, "PRAGMA integrity_check"), "ok");
    // The store, and what processes meet in while it is open.
    let files = || std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(files(), 2);
    connection.close().unwrap();
    assert_eq!(files(), 1);
    // No SQLite takes it for one of its own files.
    let plain = Connection::open(&path).unwrap();
    let refused = plain.query_row("SELECT 1 FROM sqlite_schema", [], |_| Ok(())).unwrap_err();
    assert_eq!(refused.sqlite_error_code(), Some(ErrorCode::NotADatabase));
}

/// A journal mode that SQLite refuses within a transaction is not in force after it.
#[test]
fn a_journal_mode_within_a_transaction_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    let connection = open(&path).unwrap();
    filled(&connection, 10);
    let refused = |mode: &str| {
        connection.execute_batch("BEGIN; INSERT INTO t(name) VALUES ('x')").unwrap();
        let asked = connection
            .query_row(&format!("PRAGMA journal_mode = {mode}"), [], |row| row.get::<_, String>(0));
        connection.execute_batch("COMMIT").unwrap();
        asked
    };
    let said = refused("wal").unwrap_err().to_string();
    assert!(said.contains("cannot change into wal mode from within a transaction"), "{said}");
    assert_eq!(text(&connection, "PRAGMA journal_mode"), "delete");
    assert_eq!(refused("persist").unwrap(), "delete");
    assert_eq!(text(&connection, "PRAGMA journal_mode = off"), "delete");
    assert_eq!(text(&connection, "PRAGMA journal_mode = wal"), "wal");
    assert_eq!(refused("wal").unwrap(), "wal");
    let said = refused("delete").unwrap_err().to_string();
    assert!(said.contains("cannot change out of wal mode from within a transaction"), "{said}");
    assert_eq!(text(&connection, "PRAGMA journal_mode"), "wal");
    assert_eq!(text(&connection, "PRAGMA journal_mode = truncate"), "truncate");
    assert_eq!(text(&connection, "PRAGMA journal_mode = off"), "truncate");
}

#[test]
fn what_is_rolled_back_never_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    let mut connection = open(&path).unwrap();
    filled(&connection, 2_000);
    // So that the transaction spills.
    connection.execute_batch("PRAGMA cache_size = 10").unwrap();
    for end in ["ROLLBACK", "COMMIT"] {
        let transaction = connection.transaction().unwrap();
        transaction.execute_batch("UPDATE t SET name = name || ' changed'").unwrap();
        transaction.execute_batch("SAVEPOINT s; DELETE FROM t; ROLLBACK TO s; RELEASE s").unwrap();
        assert_eq!(number(&transaction, "SELECT count(*) FROM t"), 2_000);
        transaction.execute_batch(end).unwrap();
        drop(transaction);
        let changed = number(&connection, "SELECT count(*) FROM t WHERE name LIKE '%changed'");
        assert_eq!(changed, if end == "COMMIT" { 2_000 } else { 0 });
        assert_eq!(text(&connection, "PRAGMA integrity_check"), "ok");
    }
    // A statement that fails midway leaves nothing of itself.
    connection.execute_batch("CREATE TABLE u(x UNIQUE); INSERT INTO u VALUES (2)").unwrap();
    let failed = connection.execute("INSERT INTO u VALUES (1), (2), (3)", []).unwrap_err();
    assert_eq!(failed.sqlite_error_code(), Some(ErrorCode::ConstraintViolation));
    assert_eq!(number(&connection, "SELECT count(*) FROM u"), 1);
}

#[test]
fn a_reader_keeps_its_version_and_nothing_waits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    let mut writer = open(&path).unwrap();
    filled(&writer, 100);
    let mut reader = open(&path).unwrap();
    let reading = reader.transaction().unwrap();
    assert_eq!(number(&reading, "SELECT count(*) FROM t"), 100);
    for round in 0..50 {
        let transaction = writer.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        transaction.execute("INSERT INTO t(name) VALUES ('more')", []).unwrap();
        assert_eq!(number(&reading, "SELECT count(*) FROM t"), 100, "round {round}");
        transaction.commit().unwrap();
        assert_eq!(number(&reading, "SELECT count(*) FROM t"), 100, "round {round}");
    }
    // A reader whose version is old cannot write; once it reads anew, it can.
    let refused = reading.execute("DELETE FROM t", []).unwrap_err();
    assert_eq!(
        refused.sqlite_error().map(|error| error.extended_code),
        Some(ffi::SQLITE_BUSY_SNAPSHOT)
    );
    reading.rollback().unwrap();
    assert_eq!(number(&reader, "SELECT count(*) FROM t"), 150);
    reader.execute("DELETE FROM t WHERE id = 1", []).unwrap();
    assert_eq!(number(&writer, "SELECT count(*) FROM t"), 149);
}

/// Connections to another store come and go during transactions over two files.
#[test]
fn another_store_is_not_locked_by_transactions_over_several() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let writes = &|number: usize| {
        let name = |which: &str| folder.join(format!("{which}{number}.db"));
        let connection = open(&name("a")).unwrap();
        let attach = format!("ATTACH 'file:{}?vfs=esker' AS b", name("b").display());
        let tables = "CREATE TABLE main.t(x); CREATE TABLE b.t(x)";
        connection.execute_batch(&format!("{attach}; {tables}")).unwrap();
        let both = "BEGIN; INSERT INTO main.t VALUES (1); INSERT INTO b.t VALUES (1); COMMIT";
        (0..100).for_each(|_| connection.execute_batch(both).unwrap());
        drop(connection);
        for which in ["a", "b"] {
            assert_eq!(number_of_rows(&open(&name(which)).unwrap()), 100);
        }
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let (path, mut rows) = (folder.join("other.db"), 0);
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) || rows == 0 {
                let connection = open(&path).unwrap();
                connection.busy_timeout(Duration::ZERO).unwrap();
                connection.execute_batch("CREATE TABLE IF NOT EXISTS t(x)").unwrap();
                connection.execute_batch("INSERT INTO t VALUES (1)").unwrap();
                rows += 1;
            }
            assert_eq!(number_of_rows(&open(&path).unwrap()), rows);
        });
        let writers = [0, 1].map(|number| scope.spawn(move || writes(number)));
        let ended = writers.map(thread::ScopedJoinHandle::join);
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        ended.into_iter().chain([other.join()]).for_each(|ended| ended.unwrap());
    });
}

fn number_of_rows(connection: &Connection) -> i64 {
    number(connection, "SELECT count(*) FROM t")
}

#[test]
fn many_threads_add_up() {
    const THREADS: i64 = 8;
    const EACH: i64 = 50;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    let first = open(&path).unwrap();
    first.execute_batch("CREATE TABLE c(n); INSERT INTO c VALUES (0)").unwrap();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut connection = open(&path).unwrap();
                connection.busy_timeout(Duration::from_secs(60)).unwrap();
                for _ in 0..EACH {
                    let begun =
                        connection.transaction_with_behavior(TransactionBehavior::Immediate);
                    let transaction = begun.unwrap();
                    transaction.execute("UPDATE c SET n = n + 1", []).unwrap();
                    transaction.commit().unwrap();
                }
            });
        }
    });
    assert_eq!(number(&first, "SELECT n FROM c"), THREADS * EACH);
}

#[test]
fn pages_of_every_size_and_another_one_later() {
    for size in [512, 1024, 4096, 8192, 65_536] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("app.db");
        let connection = open(&path).unwrap();
        connection.execute_batch(&format!("PRAGMA page_size = {size}")).unwrap();
        filled(&connection, 3_000);
        assert_eq!(number(&connection, "PRAGMA page_size"), size);
        for other in [1024, 16_384] {
            connection.execute_batch(&format!("PRAGMA page_size = {other}; VACUUM")).unwrap();
            assert_eq!(number(&connection, "PRAGMA page_size"), other);
            assert_eq!(number(&connection, "SELECT count(*) FROM t"), 3_000);
            assert_eq!(text(&connection, "PRAGMA integrity_check"), "ok", "{size} to {other}");
        }
        drop(connection);
        let connection = open(&path).unwrap();
        assert_eq!(text(&connection, "PRAGMA integrity_check"), "ok", "{size}");
    }
}

#[test]
fn journal_modes_are_answered() {
    let folder = tempfile::tempdir().unwrap();
    let connection = open(&folder.path().join("app.db")).unwrap();
    filled(&connection, 10);
    for (asked, answer) in [
        ("wal", "wal"),
        ("off", "wal"),
        ("truncate", "truncate"),
        ("OFF", "truncate"),
        ("W", "wal"),
        ("of", "wal"),
        ("none", "wal"),
        ("persist", "persist"),
        ("memory", "memory"),
        ("delete", "delete"),
        ("Wal", "wal"),
        ("'delete'", "delete"),
    ] {
        let said = text(&connection, &format!("PRAGMA journal_mode = {asked}"));
        assert_eq!(said, answer, "{asked}");
        // What sqlite-utils and peewee look at before and after.
        assert_eq!(text(&connection, "PRAGMA journal_mode"), answer, "{asked}");
        connection
            .execute_batch("BEGIN; DELETE FROM t; ROLLBACK; UPDATE t SET name = 'x'")
            .unwrap();
        connection.execute_batch("SAVEPOINT s; DELETE FROM t; ROLLBACK TO s; RELEASE s").unwrap();
        assert_eq!(number(&connection, "SELECT count(*) FROM t WHERE name = 'x'"), 10, "{asked}");
    }
    // A mode is a connection's, and of one file; the store knows of none.
    let attach = format!("ATTACH 'file:{}/b.db?vfs=esker' AS b", folder.path().display());
    connection.execute_batch(&attach).unwrap();
    assert_eq!(text(&connection, "PRAGMA b.journal_mode = wal"), "wal");
    assert_eq!(text(&connection, "PRAGMA journal_mode"), "delete");
    assert_eq!(text(&connection, "PRAGMA b.journal_mode"), "wal");
    assert_eq!(text(&open(&folder.path().join("b.db")).unwrap(), "PRAGMA journal_mode"), "delete");
    assert_eq!(text(&connection, "PRAGMA locking_mode = exclusive"), "normal");
    assert_eq!(text(&connection, "PRAGMA esker_durability = relaxed"), "relaxed");
    assert!(connection.query_row("PRAGMA esker_durability = x", [], |_| Ok(())).is_err());
}

#[test]
fn a_named_version_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    let connection = open(&path).unwrap();
    filled(&connection, 100);
    text(&connection, "PRAGMA esker_pin = monday");
    connection.execute_batch("DELETE FROM t WHERE id > 10").unwrap();
    drop(connection);
    let connection = open(&path).unwrap();
    let uri = format!("file:{}?vfs=esker&version=monday", path.display());
    let flags = rusqlite::OpenFlags::default() | rusqlite::OpenFlags::SQLITE_OPEN_URI;
    let monday = Connection::open_with_flags(&uri, flags).unwrap();
    assert_eq!(number(&monday, "SELECT count(*) FROM t"), 100);
    assert_eq!(number(&connection, "SELECT count(*) FROM t"), 10);
    let refused = monday.execute("DELETE FROM t", []).unwrap_err();
    assert_eq!(refused.sqlite_error_code(), Some(ErrorCode::ReadOnly));
    drop(monday);
    text(&connection, "PRAGMA esker_unpin = monday");
    assert!(Connection::open_with_flags(&uri, flags).is_err());
}

#[test]
fn foreign_files_are_refused_and_untouched() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plain.db");
    let plain = Connection::open(&path).unwrap();
    plain.execute_batch("CREATE TABLE t(x); INSERT INTO t VALUES (1)").unwrap();
    plain.close().unwrap();
    let before = std::fs::read(&path).unwrap();
    let refused = open(&path).unwrap_err();
    assert_eq!(refused.sqlite_error_code(), Some(ErrorCode::NotADatabase));
    assert_eq!(std::fs::read(&path).unwrap(), before);
    let text = folder.path().join("text.db");
    std::fs::write(&text, "not a database at all, but long enough to be looked at\n").unwrap();
    assert!(open(&text).is_err());
    // Both kinds in one connection.
    let connection = open(&folder.path().join("ours.db")).unwrap();
    filled(&connection, 3);
    let attach = format!("ATTACH 'file:{}?vfs=unix' AS plain", path.display());
    connection.execute_batch(&attach).unwrap();
    connection.execute_batch("INSERT INTO plain.t SELECT id FROM main.t").unwrap();
    assert_eq!(number(&connection, "SELECT count(*) FROM plain.t"), 4);
}

#[test]
fn transactions_over_several_files() {
    let folder = tempfile::tempdir().unwrap();
    let connection = open(&folder.path().join("a.db")).unwrap();
    filled(&connection, 3);
    let attach = format!("ATTACH 'file:{}/b.db?vfs=esker' AS b", folder.path().display());
    connection.execute_batch(&attach).unwrap();
    connection.execute_batch("CREATE TABLE b.t AS SELECT * FROM main.t").unwrap();
    let both = "BEGIN; UPDATE main.t SET name = 'both'; UPDATE b.t SET name = 'both'; ";
    connection.execute_batch(&format!("{both} ROLLBACK")).unwrap();
    assert_eq!(number(&connection, "SELECT count(*) FROM b.t WHERE name = 'both'"), 0);
    connection.execute_batch(&format!("{both} COMMIT")).unwrap();
    drop(connection);
    for name in ["a.db", "b.db"] {
        let connection = open(&folder.path().join(name)).unwrap();
        assert_eq!(number(&connection, "SELECT count(*) FROM t WHERE name = 'both'"), 3);
    }
    let files = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(files, 2, "no super-journal is left");
}

/// After the super-journal is gone SQLite cuts a file that is longer than its database, and does
/// not check whether that worked.
#[test]
fn rows_that_move_between_files_are_in_one_of_them() {
    let rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)
        SELECT i, zeroblob(4000) FROM n";
    let given_up = format!("SAVEPOINT s; INSERT INTO main.u {rows}; ROLLBACK TO s; RELEASE s");
    let failing = format!("INSERT INTO main.u {rows} UNION ALL SELECT 7, 'again'");
    for (vacuum, statement) in [
        ("full", "DELETE FROM main.t"),
        ("incremental", "DELETE FROM main.t; PRAGMA main.incremental_vacuum"),
        ("none", &format!("{given_up}; DELETE FROM main.t")),
        ("none", &format!("DELETE FROM main.t; {failing}")),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let connection = open(&folder.path().join("a.db")).unwrap();
        connection.execute_batch(&format!("PRAGMA auto_vacuum = {vacuum}")).unwrap();
        filled(&connection, 5000);
        connection.execute_batch("CREATE TABLE u(x UNIQUE, y)").unwrap();
        let attach = format!("ATTACH 'file:{}/b.db?vfs=esker' AS b", folder.path().display());
        connection.execute_batch(&attach).unwrap();
        connection.execute_batch("CREATE TABLE b.t(id INTEGER PRIMARY KEY, name TEXT)").unwrap();
        connection.execute_batch("BEGIN; INSERT INTO b.t SELECT * FROM main.t").unwrap();
        match connection.execute_batch(statement) {
            Err(error) => {
                assert_eq!(error.sqlite_error_code(), Some(ErrorCode::ConstraintViolation));
            }
            Ok(()) => assert!(!statement.ends_with(&failing)),
        }
        connection.execute_batch("COMMIT").unwrap();
        let counts = |connection: &Connection| {
            ["main.t", "b.t", "main.u"]
                .map(|table| number(connection, &format!("SELECT count(*) FROM {table}")))
        };
        assert_eq!(counts(&connection), [0, 5000, 0], "{vacuum}, {statement:.40}");
        drop(connection);
        let connection = open(&folder.path().join("a.db")).unwrap();
        connection.execute_batch(&attach).unwrap();
        assert_eq!(counts(&connection), [0, 5000, 0], "{vacuum}, {statement:.40}");
        for schema in ["main", "b"] {
            assert_eq!(text(&connection, &format!("PRAGMA {schema}.integrity_check")), "ok");
        }
    }
}
