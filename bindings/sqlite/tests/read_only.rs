//! Databases that are opened to be read: whatever may not be written, and together with others.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(unsafe_code, reason = "a library is loaded")]

mod common;
#[path = "common/log.rs"]
mod log;

use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use common::{number, text};

/// Opens a database with parameters of the URI, without waiting: processes that are started by
/// tests concurrent with this one hold no locks of what was open here.
fn with(path: &Path, parameters: &str) -> rusqlite::Result<Connection> {
    log::listen();
    common::load();
    let uri = format!("file:{}?vfs=esker&busy_timeout=0&{parameters}", path.display());
    Connection::open_with_flags(uri, OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI)
}

fn ours(path: &Path) -> Connection {
    with(path, "").unwrap()
}

fn reader(path: &Path) -> Connection {
    with(path, "mode=ro").unwrap()
}

fn code(error: &rusqlite::Error) -> ErrorCode {
    error.sqlite_error_code().unwrap()
}

fn rows(connection: &Connection) -> i64 {
    number(connection, "SELECT count(*) FROM t")
}

/// A store with `rows` rows, and a version that has them by name.
fn specimen(path: &Path, rows: i64) -> Connection {
    let connection = ours(path);
    connection.execute_batch("CREATE TABLE t(n INTEGER PRIMARY KEY, x)").unwrap();
    let insert = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
                  INSERT INTO t(x) SELECT printf('row %d', i * i) FROM n";
    connection.execute(insert, [rows]).unwrap();
    text(&connection, "PRAGMA esker_pin = whole");
    connection.execute_batch("DELETE FROM t WHERE n > 10").unwrap();
    connection
}

/// Everything that can be seen of a file from outside.
fn looks(path: &Path) -> (Vec<u8>, [i64; 4], Vec<PathBuf>) {
    let metadata = fs::metadata(path).unwrap();
    let times = [metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec()];
    let siblings = fs::read_dir(path.parent().unwrap()).unwrap();
    let mut siblings: Vec<_> = siblings.map(|entry| entry.unwrap().path()).collect();
    siblings.sort();
    (fs::read(path).unwrap(), times, siblings)
}

fn assert_cannot_write(connection: &Connection) {
    for tried in ["DELETE FROM t", "CREATE TABLE u(y)", "VACUUM"] {
        let refused = connection.execute_batch(tried).unwrap_err();
        assert_eq!(code(&refused), ErrorCode::ReadOnly, "{tried}");
    }
    for tried in ["PRAGMA esker_pin = mine", "PRAGMA esker_unpin = whole"] {
        let refused = connection.query_row(tried, [], |_| Ok(())).unwrap_err();
        assert!(refused.to_string().contains("readonly"), "{tried}: {refused}");
    }
}

#[test]
fn nothing_is_written_to_read_a_store_closed_or_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    let connection = specimen(&path, 1_000);
    // As a process leaves it that dies: the last commits are in the log alone.
    let crashed = fs::read(&path).unwrap();
    drop(connection);
    for bytes in [fs::read(&path).unwrap(), crashed] {
        fs::write(&path, bytes).unwrap();
        let before = looks(&path);
        for parameters in ["mode=ro", "immutable=1", "mode=ro&immutable=1", "nolock=1"] {
            let connection = with(&path, parameters).unwrap();
            assert_eq!(rows(&connection), 10, "{parameters}");
            assert_eq!(text(&connection, "PRAGMA integrity_check"), "ok");
            assert!(text(&connection, "PRAGMA esker_check").contains("true"));
            assert!(text(&connection, "PRAGMA esker_versions").contains("whole"));
            connection.execute_batch("CREATE TEMP TABLE mine AS SELECT * FROM t").unwrap();
            assert!(connection.is_readonly("main").unwrap());
            assert_cannot_write(&connection);
        }
        for parameters in ["version=whole", "mode=ro&version=whole", "immutable=1&version=whole"] {
            let connection = with(&path, parameters).unwrap();
            assert_eq!(rows(&connection), 1_000, "{parameters}");
            assert_cannot_write(&connection);
        }
        let absent = with(&path, "mode=ro&version=none").unwrap_err();
        assert_eq!(code(&absent), ErrorCode::CannotOpen);
        assert!(looks(&path) == before, "something was written");
    }
    assert_eq!(rows(&ours(&path)), 10);
}

#[test]
fn an_empty_file_is_an_empty_database_and_no_file_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    for parameters in ["mode=ro", "immutable=1", "version=whole"] {
        let absent = with(&path, parameters).unwrap_err();
        assert_eq!(code(&absent), ErrorCode::CannotOpen, "{parameters}");
        assert!(!path.exists(), "{parameters}");
    }
    fs::write(&path, "").unwrap();
    let connection = reader(&path);
    assert_eq!(number(&connection, "SELECT count(*) FROM sqlite_schema"), 0);
    assert_eq!(path.metadata().unwrap().len(), 0);
    // And a store after the first write.
    ours(&path).execute_batch("CREATE TABLE t(n); INSERT INTO t VALUES (1)").unwrap();
    assert_eq!(rows(&connection), 1);
    drop(connection);
    assert_eq!(rows(&reader(&path)), 1);
}

#[test]
fn who_reads_and_who_writes_see_the_same_whoever_was_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    let connection = specimen(&path, 100);
    let crashed = fs::read(&path).unwrap();
    drop(connection);
    for bytes in [fs::read(&path).unwrap(), crashed] {
        fs::write(&path, bytes).unwrap();
        let (early, staying) = (reader(&path), reader(&path));
        staying.execute_batch("BEGIN").unwrap();
        let (fixed, named) = (with(&path, "immutable=1").unwrap(), with(&path, "version=whole"));
        let named = named.unwrap();
        assert_eq!((rows(&staying), rows(&fixed), rows(&named)), (10, 10, 100));
        let writer = ours(&path);
        let late = reader(&path);
        for n in 0..50 {
            let all = format!("DELETE FROM t; INSERT INTO t(x) VALUES ({n}), (randomblob(9000))");
            writer.execute_batch(&format!("BEGIN; {all}; COMMIT")).unwrap();
            for reader in [&early, &late] {
                assert_eq!(number(reader, "SELECT min(x) FROM t"), n);
            }
            assert_eq!((rows(&staying), rows(&fixed), rows(&named)), (10, 10, 100), "{n}");
        }
        text(&writer, "PRAGMA esker_unpin = whole");
        writer.execute_batch("VACUUM").unwrap();
        assert_eq!(text(&staying, "PRAGMA integrity_check"), "ok");
        assert_eq!(number(&named, "SELECT count(*) FROM t WHERE x LIKE 'row %'"), 100);
        staying.execute_batch("COMMIT").unwrap();
        assert_eq!(rows(&staying), 2);
        for reader in [&early, &late, &staying, &fixed, &named] {
            let refused = reader.execute_batch("DELETE FROM t").unwrap_err();
            assert_eq!(code(&refused), ErrorCode::ReadOnly);
        }
    }
    assert_eq!(rows(&reader(&path)), 2);
}

/// Where the child finds its database, and how it is to open it.
const PATH: &str = "ESKER_SQLITE_TEST_PATH";
const HOW: &str = "ESKER_SQLITE_TEST_HOW";

/// The other process: it opens a database, says what is there, and has it open until it receives
/// the request to end. One that writes leaves a row, and a transaction that it is in the middle of.
#[test]
#[ignore = "the other process of the tests here"]
fn child() {
    let Some(path) = std::env::var_os(PATH).map(PathBuf::from) else { return };
    let how = std::env::var(HOW).unwrap();
    let said = match with(&path, &how) {
        Ok(connection) => {
            if how.starts_with("mode=rw&") {
                connection.execute_batch("INSERT INTO t(x) VALUES (1)").unwrap();
                connection.execute_batch("BEGIN; INSERT INTO t(x) VALUES (2)").unwrap();
            }
            let rows = rows(&connection);
            (connection, format!("rows {rows}"))
        }
        Err(error) => {
            let said = log::all().join("; ");
            (Connection::open_in_memory().unwrap(), format!("rows of none: {error}; {said}"))
        }
    };
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "\n{}", said.1).unwrap();
    stdout.flush().unwrap();
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    drop(said.0);
}

/// A process, and what it may say yet.
struct Other(Child, Lines<BufReader<ChildStdout>>);

/// Starts the other process, through what `before` runs it by; and what it says.
fn start(path: &Path, how: &str, before: &[&str]) -> (Other, String) {
    let mut command = Command::new(before.first().unwrap_or(&"env"));
    let mut child = command
        .args(before.iter().skip(1))
        .arg(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--ignored", "--nocapture"])
        .env(PATH, path)
        .env(HOW, how)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut said = lines.by_ref().map(|line| line.unwrap());
    let said = said.find(|line| line.starts_with("rows ")).unwrap_or_default();
    (Other(child, lines), said)
}

fn end(Other(mut child, lines): Other) {
    drop(child.stdin.take());
    lines.for_each(drop);
    child.wait().unwrap();
}

/// A store that processes do not share.
const ONE: &str = "processes=one";
const READS: &str = "mode=ro&processes=one";
const WRITES: &str = "mode=rw&processes=one";

#[test]
fn processes_read_together_and_write_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    drop(specimen(&path, 100));
    let (other, said) = start(&path, READS, &[]);
    assert_eq!(said, "rows 10");
    // Both read, and neither may write.
    let reading = with(&path, READS).unwrap();
    assert_eq!(rows(&reading), 10);
    let refused = with(&path, ONE).unwrap_err();
    assert_eq!(code(&refused), ErrorCode::DatabaseBusy);
    assert!(
        log::said(&["app.db", "open in another process: a writer has the store to itself"]),
        "{:?}",
        log::all()
    );
    assert_eq!(rows(&reading), 10);
    let (third, said) = start(&path, WRITES, &[]);
    assert!(said.contains("locked") && said.contains("a writer has the store to itself"), "{said}");
    end(third);
    end(other);
    // A reader that is alone may begin to write; and then no other connection reads.
    let writer = with(&path, ONE).unwrap();
    writer.execute_batch("INSERT INTO t(x) VALUES ('more')").unwrap();
    assert_eq!(rows(&reading), 11);
    let (other, said) = start(&path, READS, &[]);
    assert!(
        said.contains("locked") && said.contains("open for writing in another process"),
        "{said}"
    );
    end(other);
}

#[test]
fn what_a_killed_process_committed_is_read_without_a_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    drop(specimen(&path, 100));
    for round in 1..=3 {
        let (mut other, said) = start(&path, WRITES, &[]);
        assert_eq!(said, format!("rows {}", 10 + round + 1));
        let refused = with(&path, READS).unwrap_err();
        assert_eq!(code(&refused), ErrorCode::DatabaseBusy);
        other.0.kill().unwrap();
        other.0.wait().unwrap();
        let before = looks(&path);
        for _ in 0..2 {
            let reading = with(&path, READS).unwrap();
            assert_eq!(rows(&reading), 10 + round);
            assert_eq!(text(&reading, "PRAGMA integrity_check"), "ok");
        }
        let (another, said) = start(&path, READS, &[]);
        assert_eq!(said, format!("rows {}", 10 + round));
        end(another);
        assert!(looks(&path) == before, "something was written");
    }
    assert_eq!(rows(&with(&path, ONE).unwrap()), 13);
}

/// A file system that takes no writes from any user.
#[test]
fn a_medium_that_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    let connection = specimen(&path, 100);
    let crashed = fs::read(&path).unwrap();
    drop(connection);
    let place = folder.path().display();
    let mount = format!("mount -o bind,ro '{place}' '{place}' && exec \"$@\"");
    let unshared = ["unshare", "--mount", "sh", "-c", mount.as_str(), "sh"];
    let can = Command::new(unshared[0]).args(&unshared[1..]).arg("true").output();
    if !can.is_ok_and(|tried| tried.status.success()) {
        eprintln!("not run: nothing may be mounted here");
        return;
    }
    for bytes in [fs::read(&path).unwrap(), crashed] {
        fs::write(&path, bytes).unwrap();
        let before = looks(&path);
        // Without a word it is as with SQLite's own files: what cannot be written is read.
        for how in ["mode=ro", "immutable=1", "", "mode=rwc"] {
            let (other, said) = start(&path, how, &unshared);
            assert_eq!(said, "rows 10", "{how}");
            end(other);
        }
        assert!(looks(&path) == before, "something was written");
    }
    let (other, said) = start(&folder.path().join("absent.db"), "", &unshared);
    assert!(said.contains("unable to open"), "{said}");
    end(other);
}
