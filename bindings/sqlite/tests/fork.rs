//! A child by `fork` cannot use, or harm, what its parent has open, and holds nothing of it.
//! Alone in its binary, one test at a time: a process that forks should have no other threads at
//! work.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(unsafe_code, reason = "a library is loaded")]

mod common;

use std::io::{Read, Write, pipe};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use esker_device::forked::{Child, Ended};
use rusqlite::Connection;

use common::{number, open, open_uri, text};

/// One test at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Opens it, or is refused at once.
fn open_now(path: &Path) -> rusqlite::Result<Connection> {
    open_uri(&format!("file:{}?vfs=esker&processes=one&busy_timeout=0", path.display()))
}

#[test]
fn a_child_is_refused_and_closes_nothing() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    let connection = open(&path).unwrap();
    connection.execute_batch("CREATE TABLE t(n); INSERT INTO t VALUES (1)").unwrap();
    connection.execute_batch("BEGIN IMMEDIATE; INSERT INTO t VALUES (2)").unwrap();
    let before = std::fs::read(&path).unwrap();
    let mut held = Some(connection);
    let child = Child::run(20, || {
        let connection = held.take().unwrap();
        let is_refused = connection.execute_batch("COMMIT").is_err()
            && connection.execute_batch("INSERT INTO t VALUES (3)").is_err()
            && open_now(&path).is_err();
        drop(connection);
        u8::from(!is_refused)
    });
    assert_eq!(child.wait(), Ended::Answer(0), "the child was let in");
    let connection = held.unwrap();
    assert!(std::fs::read(&path).unwrap() == before, "the child wrote to the file");
    connection.execute_batch("COMMIT").unwrap();
    drop(connection);
    let connection = open(&path).unwrap();
    assert_eq!(number(&connection, "SELECT sum(n) FROM t"), 3);
    assert_eq!(text(&connection, "PRAGMA integrity_check"), "ok");
}

/// A server that opens, forks its workers and closes must not have locked itself out.
#[test]
fn a_child_keeps_no_lock_when_its_parent_closes() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    let connection = open(&path).unwrap();
    connection.execute_batch("CREATE TABLE t(n); INSERT INTO t VALUES (1)").unwrap();
    let (mut receiver, mut sender) = pipe().unwrap();
    let child = Child::run(60, || {
        sender.write_all(b"x").unwrap();
        std::thread::sleep(std::time::Duration::from_secs(60));
        0
    });
    receiver.read_exact(&mut [0]).unwrap();
    drop(connection);
    let again = open_now(&path).unwrap();
    assert_eq!(number(&again, "SELECT sum(n) FROM t"), 1);
    drop(again);
    // And another process has it, also while the child lives.
    let other = Child::run(20, || u8::from(open_now(&path).is_err()));
    assert_eq!(other.wait(), Ended::Answer(0));
    child.kill();
}

#[test]
fn a_child_keeps_no_lock_when_its_parent_dies() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    common::load();
    let (mut receiver, mut sender) = pipe().unwrap();
    let parent = Child::run(60, || {
        let connection = open(&path).unwrap();
        connection.execute_batch("CREATE TABLE t(n); INSERT INTO t VALUES (1)").unwrap();
        let child = Child::run(60, || {
            sender.write_all(b"x").unwrap();
            std::thread::sleep(std::time::Duration::from_secs(60));
            0
        });
        std::mem::forget(child);
        std::thread::sleep(std::time::Duration::from_secs(60));
        drop(connection);
        1
    });
    receiver.read_exact(&mut [0]).unwrap();
    parent.kill();
    let connection = open_now(&path).unwrap();
    assert_eq!(number(&connection, "SELECT sum(n) FROM t"), 1);
}

/// A child that opens the store anew writes beside its parent, and neither keeps what the other
/// has locked, whichever process dies.
#[test]
fn a_child_that_opens_the_store_itself_is_another_process() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    let ours = open(&path).unwrap();
    ours.execute_batch("CREATE TABLE t(n); INSERT INTO t VALUES (1); BEGIN").unwrap();
    assert_eq!(number(&ours, "SELECT sum(n) FROM t"), 1);
    for n in 2..5 {
        let child = Child::run(60, || {
            let theirs = open(&path).unwrap();
            theirs.execute("INSERT INTO t VALUES (?1)", [n]).unwrap();
            u8::from(number(&theirs, "SELECT max(n) FROM t") != n)
        });
        assert_eq!(child.wait(), Ended::Answer(0));
        assert_eq!(number(&ours, "SELECT sum(n) FROM t"), 1, "it reads one version");
    }
    ours.execute_batch("COMMIT").unwrap();
    ours.execute_batch("INSERT INTO t VALUES (5)").unwrap();
    assert_eq!(number(&ours, "SELECT sum(n) FROM t"), 15);
    assert_eq!(text(&ours, "PRAGMA integrity_check"), "ok");
}
