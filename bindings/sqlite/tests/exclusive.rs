//! `locking_mode` and `journal_mode` without the name of a database reach stores that are attached:
//! SQLite asks `main` alone, and applies them to all.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::panic::catch_unwind;
use std::path::Path;

use esker_sqlite::planted::{self, Bug};
use rusqlite::{Connection, ErrorCode, OpenFlags, backup};

const FLAGS: OpenFlags = OpenFlags::SQLITE_OPEN_READ_WRITE
    .union(OpenFlags::SQLITE_OPEN_CREATE)
    .union(OpenFlags::SQLITE_OPEN_URI);

fn uri(folder: &Path, name: &str) -> String {
    format!("file:{}/{name}.db?vfs=esker", folder.display())
}

fn open(folder: &Path, name: &str) -> Connection {
    Connection::open_with_flags(uri(folder, name), FLAGS).unwrap()
}

/// A connection to no store, by names of which one is in memory and one a file.
fn main_that_is_no_store(folder: &Path, name: &str) -> Connection {
    esker_sqlite::link().unwrap();
    match name {
        ":memory:" => Connection::open_with_flags(":memory:", FLAGS).unwrap(),
        _ => Connection::open_with_flags(folder.join(name), FLAGS).unwrap(),
    }
}

fn attach(connection: &Connection, folder: &Path, name: &str) {
    let sql = format!("ATTACH '{}' AS {name}", uri(folder, name));
    connection.execute_batch(&sql).unwrap();
}

fn number(connection: &Connection, sql: &str) -> i64 {
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

fn is_sound(connection: &Connection) -> bool {
    let said: String =
        connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    said == "ok"
}

/// SQLite would make a WAL of its own over a store, with what was committed in it alone.
#[test]
fn what_is_acknowledged_is_in_the_store_whatever_is_asked_for() {
    for main in [":memory:", "plain.db"] {
        for is_attached_before in [true, false] {
            for mode in ["wal", "off", "memory", "truncate"] {
                let folder = tempfile::tempdir().unwrap();
                let folder = folder.path();
                let connection = main_that_is_no_store(folder, main);
                open(folder, "a").execute_batch("CREATE TABLE t(x UNIQUE)").unwrap();
                if is_attached_before {
                    attach(&connection, folder, "a");
                    connection.execute_batch("INSERT INTO a.t VALUES (-1)").unwrap();
                }
                connection.execute_batch("PRAGMA locking_mode = exclusive").unwrap();
                let _ = connection.execute_batch(&format!("PRAGMA journal_mode = {mode}"));
                if !is_attached_before {
                    attach(&connection, folder, "a");
                    let _ = connection.execute_batch(&format!("PRAGMA journal_mode = {mode}"));
                }
                let (mut there, mut refused) = (i64::from(is_attached_before), 0);
                for n in 0..20 {
                    match connection.execute("INSERT INTO a.t VALUES (?1)", [n]) {
                        Ok(_) => there += 1,
                        Err(error) => {
                            assert_eq!(error.sqlite_error_code(), Some(ErrorCode::CannotOpen));
                            refused += 1;
                        }
                    }
                    if refused == 0 {
                        assert_eq!(number(&connection, "SELECT count(*) FROM a.t"), there);
                    }
                }
                // Only a WAL is refused.
                assert!(refused == 0 || mode == "wal", "{main} {mode}: {refused}");
                connection.execute_batch("DETACH a").unwrap();
                assert!(!folder.join("a.db-wal").exists());
                attach(&connection, folder, "a");
                connection.execute_batch("INSERT INTO a.t VALUES ('again')").unwrap();
                drop(connection);
                let connection = open(folder, "a");
                assert_eq!(number(&connection, "SELECT count(*) FROM t"), there + 1);
                assert!(is_sound(&connection));
            }
        }
    }
}

/// A connection that keeps its lock sees what it committed, and no other connection writes.
fn keep_a_lock(mode: &str) {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let connection = main_that_is_no_store(folder, ":memory:");
    attach(&connection, folder, "a");
    connection
        .execute_batch(&format!(
            "CREATE TABLE a.t(id INTEGER PRIMARY KEY, n, x);
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500)
             INSERT INTO a.t SELECT i, 0, hex(zeroblob(100)) FROM n;
             PRAGMA a.cache_size = 5; PRAGMA locking_mode = exclusive;
             PRAGMA journal_mode = {mode}"
        ))
        .unwrap();
    let other = open(folder, "a");
    other.busy_timeout(std::time::Duration::ZERO).unwrap();
    let all = "SELECT min(n) = max(n) AND min(n) = ?1 FROM t";
    for round in 1..10 {
        connection.execute("UPDATE a.t SET n = ?1", [round]).unwrap();
        for connection in [&connection, &other] {
            assert!(connection.query_row(all, [round], |row| row.get::<_, bool>(0)).unwrap());
            assert!(is_sound(connection));
        }
        let refused = other.execute("INSERT INTO t VALUES (1000, 0, 0)", []).unwrap_err();
        assert_eq!(refused.sqlite_error_code(), Some(ErrorCode::DatabaseBusy));
        if round % 2 == 0 {
            continue;
        }
        // Large enough to be written early.
        connection.execute_batch("BEGIN; UPDATE a.t SET n = -1, x = hex(x)").unwrap();
        let _ = connection.execute_batch("INSERT INTO a.t(id) VALUES (1)");
        connection.execute_batch("ROLLBACK").unwrap();
        assert!(connection.query_row(all, [round], |row| row.get::<_, bool>(0)).unwrap());
        assert!(is_sound(&connection));
    }
    // Released with the next transaction.
    connection.execute_batch("PRAGMA locking_mode = normal").unwrap();
    assert_eq!(number(&connection, "SELECT count(*) FROM a.t"), 500);
    other.execute("INSERT INTO t VALUES (1000, 9, 0)", []).unwrap();
    assert_eq!(number(&connection, "SELECT count(*) FROM a.t"), 501);
    connection.execute_batch("INSERT INTO a.t VALUES (1001, 9, 0)").unwrap();
    drop((connection, other));
    let connection = open(folder, "a");
    assert_eq!(number(&connection, "SELECT count(*) FROM t WHERE n = 9"), 502);
    assert!(is_sound(&connection));
}

#[test]
fn a_lock_that_is_kept_is_honest() {
    for mode in ["delete", "truncate", "persist", "memory", "off"] {
        keep_a_lock(mode);
    }
    for (bug, mode) in [(Bug::CounterKept, "delete"), (Bug::ForgottenKept, "off")] {
        let hunt = || planted::with(bug, || keep_a_lock(mode));
        assert!(catch_unwind(hunt).is_err(), "{bug:?}: a suite that cannot fail proves nothing");
    }
}

/// What changes nothing under a kept lock still counts as a change: the pager believes that the
/// database has its counter, and would not see what another connection commits with that.
#[test]
fn what_changes_nothing_under_a_kept_lock_hides_no_commit() {
    for mode in ["delete", "truncate", "persist", "memory", "off"] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let connection = main_that_is_no_store(folder, ":memory:");
        attach(&connection, folder, "a");
        let first = format!(
            "CREATE TABLE a.t(id INTEGER PRIMARY KEY, n);
             INSERT INTO a.t VALUES (1, 0), (2, 0);
             PRAGMA locking_mode = exclusive; PRAGMA journal_mode = {mode};
             UPDATE a.t SET n = 9 WHERE id = 1"
        );
        connection.execute_batch(&first).unwrap();
        for nothing in [
            "PRAGMA a.user_version = 0",
            "BEGIN; UPDATE a.t SET n = 8 WHERE id = 1; UPDATE a.t SET n = 9 WHERE id = 1; COMMIT",
            "BEGIN; UPDATE a.t SET n = 8 WHERE id = 1; ROLLBACK; PRAGMA a.user_version = 0",
        ] {
            connection.execute_batch("PRAGMA locking_mode = exclusive").unwrap();
            connection.execute_batch("UPDATE a.t SET n = 9 WHERE id = 1").unwrap();
            connection.execute_batch(nothing).unwrap();
            connection.execute_batch("PRAGMA locking_mode = normal").unwrap();
            assert_eq!(number(&connection, "SELECT n FROM a.t WHERE id = 1"), 9);
            let other = open(folder, "a");
            other.execute("UPDATE t SET n = 77 WHERE id = 1", []).unwrap();
            assert_eq!(number(&connection, "SELECT n FROM a.t WHERE id = 1"), 77, "{mode}");
            connection.execute_batch("UPDATE a.t SET n = n + 1 WHERE id = 1").unwrap();
            assert_eq!(number(&other, "SELECT n FROM t WHERE id = 1"), 78, "{mode}: {nothing}");
        }
    }
}

/// What a connection asks for within a transaction whose changes are in the store, and not in its
/// cache, takes none of them for forgotten.
fn ask_within_a_transaction(is_kept: bool, is_shared: bool) {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let connection = main_that_is_no_store(folder, "plain.db");
    let shared = if is_shared { "&cache=shared" } else { "" };
    let attach = format!("ATTACH '{}{shared}' AS a", uri(folder, "a"));
    connection.execute_batch(&attach).unwrap();
    connection
        .execute_batch(
            "PRAGMA a.page_size = 1024;
             CREATE TABLE a.t(id INTEGER PRIMARY KEY, n, x);
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500)
             INSERT INTO a.t SELECT i, 0, hex(zeroblob(100)) FROM n;
             PRAGMA a.cache_size = 3",
        )
        .unwrap();
    open(folder, "b").execute_batch("CREATE TABLE t(x)").unwrap();
    let other = main_that_is_no_store(folder, "other.db");
    other.busy_timeout(std::time::Duration::ZERO).unwrap();
    other.execute_batch(&attach).unwrap();
    if is_kept {
        connection.execute_batch("PRAGMA locking_mode = exclusive").unwrap();
    }
    let all = "SELECT count(*) FROM a.t WHERE n = ?1";
    for round in 1..4 {
        connection.execute_batch(&format!("BEGIN; UPDATE a.t SET n = {round}")).unwrap();
        for sql in [
            "SAVEPOINT p; UPDATE a.t SET n = -1; ROLLBACK TO p; RELEASE p",
            "SAVEPOINT p; UPDATE a.t SET x = hex(n) WHERE id % 9 = 0; RELEASE p",
            "INSERT INTO a.t(id, n) VALUES (1, 0)",
            "PRAGMA a.data_version",
            "PRAGMA a.page_count",
            "PRAGMA a.freelist_count",
            "PRAGMA a.user_version = 3",
            "PRAGMA a.schema_version",
            "PRAGMA a.page_size = 4096",
            "PRAGMA a.journal_mode",
            "PRAGMA a.journal_mode = truncate",
            "PRAGMA a.journal_mode = delete",
            "PRAGMA locking_mode",
            "PRAGMA a.cache_spill = 1",
            "PRAGMA a.wal_checkpoint",
            "PRAGMA a.integrity_check",
            "PRAGMA a.esker_stats",
            "VACUUM a",
            "CREATE TABLE a.more(x); DROP TABLE a.more",
        ] {
            let _ = connection.execute_batch(sql);
            let _ = other.query_row(all, [round], |row| row.get::<_, i64>(0));
            assert!(!connection.is_autocommit(), "{sql}");
            let count: i64 = connection.query_row(all, [round], |row| row.get(0)).unwrap();
            assert_eq!(count, 500, "{sql}");
        }
        let attach = format!("ATTACH '{}' AS b", uri(folder, "b"));
        connection.execute_batch(&attach).unwrap();
        assert_eq!(number(&connection, "SELECT count(*) FROM b.t"), 0);
        let mut copy = Connection::open_in_memory().unwrap();
        let backup = backup::Backup::new_with_names(&connection, "a", &mut copy, "main").unwrap();
        let _ = backup.step(-1);
        drop(backup);
        connection.execute_batch("COMMIT; DETACH b").unwrap();
        assert_eq!(number(&connection, &all.replace("?1", &round.to_string())), 500);
    }
    drop((connection, other));
    let connection = open(folder, "a");
    assert_eq!(number(&connection, "SELECT count(*) FROM t WHERE n = 3"), 500);
    assert!(is_sound(&connection));
}

#[test]
fn what_is_asked_within_a_transaction_drops_nothing() {
    for (is_kept, is_shared) in [(false, false), (true, false), (false, true), (true, true)] {
        ask_within_a_transaction(is_kept, is_shared);
    }
}

/// Several stores in one transaction.
#[test]
fn several_stores_keep_their_locks() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let connection = main_that_is_no_store(folder, "plain.db");
    for name in ["a", "b"] {
        attach(&connection, folder, name);
        connection.execute_batch(&format!("CREATE TABLE {name}.t(x)")).unwrap();
    }
    connection.execute_batch("PRAGMA locking_mode = exclusive").unwrap();
    for round in 1..20 {
        connection
            .execute_batch("BEGIN; INSERT INTO a.t VALUES (1); INSERT INTO b.t VALUES (1); COMMIT")
            .unwrap();
        connection
            .execute_batch("BEGIN; DELETE FROM a.t; INSERT INTO b.t VALUES (1); ROLLBACK")
            .unwrap();
        for name in ["a", "b"] {
            let sql = format!("SELECT count(*) FROM {name}.t");
            assert_eq!(number(&connection, &sql), round);
            assert_eq!(number(&open(folder, name), "SELECT count(*) FROM t"), round);
        }
    }
    drop(connection);
    for name in ["a", "b"] {
        let connection = open(folder, name);
        assert_eq!(number(&connection, "SELECT count(*) FROM t"), 19);
        assert!(is_sound(&connection));
    }
}
