//! A child by `fork` cannot use, or harm, what its parent has open. Alone in its binary: a process
//! that forks should have no other threads at work.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(unsafe_code, reason = "a process is forked, and a library is loaded")]

mod common;

use common::{number, open, text};

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
    fn _exit(status: i32) -> !;
}

#[test]
fn a_child_is_refused_and_closes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    let connection = open(&path).unwrap();
    connection.execute_batch("CREATE TABLE t(n); INSERT INTO t VALUES (1)").unwrap();
    connection.execute_batch("BEGIN IMMEDIATE; INSERT INTO t VALUES (2)").unwrap();
    let before = std::fs::read(&path).unwrap();
    // SAFETY: the child uses its copies of what is here, and leaves without unwinding.
    let child = unsafe { fork() };
    if child == 0 {
        let is_refused = connection.execute_batch("COMMIT").is_err()
            && connection.execute_batch("INSERT INTO t VALUES (3)").is_err()
            && open(&path).is_err();
        drop(connection);
        // SAFETY: ends this process alone.
        unsafe { _exit(i32::from(!is_refused)) };
    }
    let mut status = -1;
    // SAFETY: the child is ours, and there is room for its status.
    assert_eq!(unsafe { waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child was let in");
    assert!(std::fs::read(&path).unwrap() == before, "the child wrote to the file");
    connection.execute_batch("COMMIT").unwrap();
    drop(connection);
    let connection = open(&path).unwrap();
    assert_eq!(number(&connection, "SELECT sum(n) FROM t"), 3);
    assert_eq!(text(&connection, "PRAGMA integrity_check"), "ok");
}
