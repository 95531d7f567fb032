//! Other processes: killed in the middle of commits, and kept out.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(unsafe_code, reason = "a library is loaded")]

mod common;

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};

use common::{number, open, open_uri, text};

/// Where the child finds its database.
const PATH: &str = "ESKER_SQLITE_TEST_PATH";
/// And what the URI says in addition.
const MORE: &str = "ESKER_SQLITE_TEST_MORE";
const ONE: &str = "&processes=one";

/// What the child of the other tests does: it counts up, and says each number once it is committed.
/// Pages are changed at both ends of the table, and a savepoint is rolled back each time.
#[test]
#[ignore = "the other process of the tests here"]
fn child() {
    let Some(path) = std::env::var_os(PATH) else { return };
    let more = std::env::var(MORE).unwrap();
    let connection = open_within(Path::new(&path), 5000, &more).unwrap();
    connection.execute_batch("CREATE TABLE IF NOT EXISTS t(n INTEGER PRIMARY KEY, x)").unwrap();
    let first = number(&connection, "SELECT ifnull(max(n), 0) FROM t") + 1;
    let mut stdout = std::io::stdout().lock();
    for n in first.. {
        let all = format!(
            "BEGIN; INSERT INTO t VALUES ({n}, hex(randomblob(200)));
             UPDATE t SET x = 'old' WHERE n = {n} / 2;
             SAVEPOINT s; DELETE FROM t; ROLLBACK TO s; COMMIT"
        );
        connection.execute_batch(&all).unwrap();
        writeln!(stdout, "committed {n}").unwrap();
        stdout.flush().unwrap();
    }
}

/// A child at work, and what it says.
fn start(path: &Path, more: &str) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--ignored", "--nocapture"])
        .env(PATH, path)
        .env(MORE, more)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, said)
}

/// The number of a line that says what was committed.
fn committed(line: &str) -> Option<i64> {
    line.split("committed ").nth(1)?.parse().ok()
}

#[test]
fn nothing_that_was_committed_is_lost_by_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    for round in 1..=8 {
        let (mut child, said) = start(&path, if round % 2 == 0 { ONE } else { "" });
        let end = Instant::now() + Duration::from_millis(40 * round);
        let mut last = 0;
        for line in said {
            last = committed(&line.unwrap()).unwrap_or(last);
            if Instant::now() > end && last > 0 {
                break;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let connection = open(&path).unwrap();
        let found = number(&connection, "SELECT ifnull(max(n), 0) FROM t");
        assert!(found >= last, "round {round}: {last} was committed, {found} is there");
        assert_eq!(number(&connection, "SELECT count(*) FROM t"), found, "round {round}");
        let changed = number(&connection, "SELECT count(*) FROM t WHERE x = 'old'");
        assert_eq!(changed, found / 2, "round {round}");
        assert_eq!(text(&connection, "PRAGMA integrity_check"), "ok", "round {round}");
    }
}

#[test]
fn a_second_process_learns_that_the_first_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    let (mut child, mut said) = start(&path, ONE);
    while committed(&said.next().unwrap().unwrap()).is_none() {}
    for mode in [ONE, "&processes=one&mode=ro"] {
        let begun = Instant::now();
        let refused = open_within(&path, 0, mode).unwrap_err();
        assert_eq!(refused.sqlite_error_code(), Some(ErrorCode::DatabaseBusy));
        let refused = open_within(&path, 200, mode).unwrap_err();
        assert_eq!(refused.sqlite_error_code(), Some(ErrorCode::DatabaseBusy));
        assert!(begun.elapsed() >= Duration::from_millis(200), "it did not wait");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(number(&open(&path).unwrap(), "SELECT count(*) FROM t") > 0);
}

fn open_within(path: &Path, millis: u64, more: &str) -> rusqlite::Result<Connection> {
    open_uri(&format!("file:{}?vfs=esker&busy_timeout={millis}{more}", path.display()))
}

#[test]
fn a_second_process_waits_for_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    for mode in [ONE, "&processes=one&mode=ro"] {
        let (mut child, mut said) = start(&path, ONE);
        while committed(&said.next().unwrap().unwrap()).is_none() {}
        thread::scope(|scope| {
            // By default as long as Python's and other drivers wait for a writer: five seconds.
            let waiting =
                scope.spawn(|| open_uri(&format!("file:{}?vfs=esker{mode}", path.display())));
            thread::sleep(Duration::from_millis(100));
            assert!(!waiting.is_finished(), "{:?}", waiting.join());
            child.kill().unwrap();
            child.wait().unwrap();
            let connection = waiting.join().unwrap().unwrap();
            assert!(number(&connection, "SELECT count(*) FROM t") > 0);
        });
    }
}
