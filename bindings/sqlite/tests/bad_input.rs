//! Files that are no stores, or not whole, and places that take no writes: each is a code of SQLite
//! and a line in its log that names the file, and what was committed before is there afterwards.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(unsafe_code, reason = "a library is loaded, and rights are dropped")]

mod common;
#[path = "common/log.rs"]
mod log;

use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use common::{number, text};

/// A connection through the VFS. Tests concurrent with this one start processes, which hold the
/// locks of what was open until they have begun to run.
fn ours(path: &Path) -> rusqlite::Result<Connection> {
    log::listen();
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        match common::open(path) {
            Err(error) if code(&error) == ErrorCode::DatabaseBusy && Instant::now() < until => {
                thread::sleep(Duration::from_millis(1));
            }
            done => return done,
        }
    }
}

/// A connection through the VFS, with parameters of the URI.
fn with(path: &Path, parameters: &str) -> rusqlite::Result<Connection> {
    log::listen();
    common::load();
    let uri = format!("file:{}?vfs=esker&{parameters}", path.display());
    Connection::open_with_flags(uri, OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI)
}

/// A connection of SQLite's own.
fn plain(path: &Path) -> Connection {
    log::listen();
    Connection::open(path).unwrap()
}

fn code(error: &rusqlite::Error) -> ErrorCode {
    error.sqlite_error_code().unwrap()
}

/// Asserts that a file is refused as it should be, and left as it is.
fn assert_refused(path: &Path, expected: ErrorCode, said: &str) {
    let before = fs::read(path).ok();
    let refused = ours(path).unwrap_err();
    assert_eq!(code(&refused), expected, "{}: {refused}", path.display());
    let name = path.file_name().unwrap().to_str().unwrap();
    assert!(log::said(&[name, said]), "nothing of {name} and {said:?} in {:?}", log::all());
    assert!(fs::read(path).ok() == before, "{} was changed", path.display());
}

fn rows(connection: &Connection) -> rusqlite::Result<Vec<(i64, String)>> {
    let mut select = connection.prepare("SELECT n, x FROM t ORDER BY n")?;
    let found = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    found.collect()
}

/// A store with some hundred pages, differences among them, that was closed; and its rows.
fn specimen(path: &Path) -> Vec<(i64, String)> {
    let connection = ours(path).unwrap();
    let fill = "CREATE TABLE t(n INTEGER PRIMARY KEY, x TEXT);
        WITH RECURSIVE i(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < 1000)
        INSERT INTO t SELECT n, hex(n * n) || printf('%0300d', n) FROM i";
    connection.execute_batch(fill).unwrap();
    for n in (1..1000).step_by(90) {
        connection.execute("UPDATE t SET x = 'changed' WHERE n = ?1", [n]).unwrap();
    }
    rows(&connection).unwrap()
}

/// Reads everything of a store that may be damaged. Panics where what is read is wrong.
fn judge(path: &Path, expected: &[(i64, String)], what: &str) -> bool {
    use ErrorCode::{DatabaseCorrupt, NotADatabase, SystemIoFailure};
    let found = ours(path).and_then(|connection| rows(&connection));
    match found {
        Ok(found) => assert!(found == expected, "{what}: other rows"),
        Err(error) => {
            let is_clear = matches!(code(&error), NotADatabase | DatabaseCorrupt | SystemIoFailure);
            assert!(is_clear, "{what}: {error}");
            return false;
        }
    }
    true
}

/// Zeros are where something was, or will be: a database is made of no file that holds anything.
#[test]
fn a_file_that_begins_with_zeros_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    fs::write(&image, [&[0; 64 << 10][..], &b"PRECIOUS".repeat(1000)].concat()).unwrap();
    assert_refused(&image, ErrorCode::NotADatabase, "begins with zeros");
    let long = folder.path().join("long");
    fs::write(&long, vec![0; 5 << 20]).unwrap();
    assert_refused(&long, ErrorCode::NotADatabase, "begins with zeros");
    let path = folder.path().join("store.db");
    specimen(&path);
    let whole = fs::read(&path).unwrap();
    for zeros in [16 << 10, 64 << 10, whole.len() - 1] {
        let mut bytes = whole.clone();
        bytes[..zeros].fill(0);
        fs::write(&path, &bytes).unwrap();
        assert_refused(&path, ErrorCode::NotADatabase, "begins with zeros");
        let read = with(&path, "mode=ro").and_then(|connection| rows(&connection));
        assert_eq!(code(&read.unwrap_err()), ErrorCode::NotADatabase, "{zeros}");
    }
    let empty = folder.path().join("empty.db");
    fs::write(&empty, "").unwrap();
    specimen(&empty);
}

#[test]
fn a_database_of_sqlite_is_refused_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    for mode in ["delete", "wal"] {
        let path = folder.path().join(format!("{mode}.db"));
        let connection = plain(&path);
        let create =
            format!("PRAGMA journal_mode={mode}; CREATE TABLE t(n); INSERT INTO t VALUES (7)");
        connection.execute_batch(&create).unwrap();
        // While it is open, in the middle of a transaction, and when it is closed.
        connection.execute_batch("BEGIN; INSERT INTO t VALUES (8)").unwrap();
        assert_refused(&path, ErrorCode::NotADatabase, "esker sqlite import");
        connection.execute_batch("COMMIT").unwrap();
        connection.close().unwrap();
        assert_refused(&path, ErrorCode::NotADatabase, "esker sqlite import");
        let connection = plain(&path);
        assert_eq!(number(&connection, "SELECT sum(n) FROM t"), 15, "{mode}");
        assert_eq!(text(&connection, "PRAGMA integrity_check"), "ok", "{mode}");
    }
}

#[test]
fn sqlite_refuses_a_store_and_leaves_it_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    let expected = specimen(&path);
    let before = fs::read(&path).unwrap();
    let open = ours(&path).unwrap();
    for tried in ["SELECT 1 FROM sqlite_schema", "PRAGMA journal_mode=wal", "CREATE TABLE u(y)"] {
        let refused = plain(&path).query_row(tried, [], |_| Ok(())).unwrap_err();
        assert_eq!(code(&refused), ErrorCode::NotADatabase, "{tried}");
    }
    assert!(fs::read(&path).unwrap() == before, "the store was changed");
    assert_eq!(rows(&open).unwrap(), expected);
    open.execute_batch("DELETE FROM t").unwrap();
    let files = || fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(files(), 2, "another file is in the folder than that of the meeting");
    drop(open);
    assert_eq!(files(), 1, "another file is in the folder");
}

#[test]
fn foreign_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let noise: Vec<u8> =
        (0..50_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let contents: [(&str, &[u8]); 4] = [
        ("one byte", b"x"),
        ("text", b"no database at all, but long enough that somebody may look at it twice\n"),
        ("noise", &noise),
        ("almost", b"Esker page stone, and so on"),
    ];
    for (name, bytes) in contents {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        assert_refused(&path, ErrorCode::NotADatabase, "no page store");
    }
}

#[test]
fn what_is_no_file_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("folder");
    fs::create_dir(&inner).unwrap();
    assert_refused(&inner, ErrorCode::CannotOpen, "directory");
    let nowhere = folder.path().join("absent").join("deep.db");
    assert_refused(&nowhere, ErrorCode::CannotOpen, "");
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let refused = ours(&pipe).unwrap_err();
    assert_eq!(code(&refused), ErrorCode::CannotOpen);
    assert!(log::said(&["pipe", "not a regular file"]), "{:?}", log::all());
    // A database that is to be there is not made.
    let absent = folder.path().join("absent.db");
    for mode in ["mode=ro", "mode=rw"] {
        assert_eq!(code(&with(&absent, mode).unwrap_err()), ErrorCode::CannotOpen, "{mode}");
        assert!(!absent.exists());
    }
}

#[test]
fn one_file_by_several_names_is_one_store() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    let expected = specimen(&path);
    let (soft, hard) = (folder.path().join("soft.db"), folder.path().join("hard.db"));
    symlink(&path, &soft).unwrap();
    fs::hard_link(&path, &hard).unwrap();
    let all = [&path, &soft, &hard].map(|name| ours(name).unwrap());
    for (more, connection) in all.iter().enumerate() {
        assert_eq!(rows(connection).unwrap().len(), expected.len() + more);
        connection.execute_batch("INSERT INTO t(x) VALUES ('more')").unwrap();
    }
    assert_eq!(number(&all[0], "SELECT count(*) FROM t"), expected.len() as i64 + 3);
    assert_eq!(text(&all[0], "PRAGMA integrity_check"), "ok");
}

#[test]
fn a_truncated_store_is_refused_or_gives_what_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    let expected = specimen(&path);
    let whole = fs::read(&path).unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let mut lengths: Vec<_> = (0..whole.len()).step_by(4096).collect();
    lengths.extend([1, 16, 511, 513, 4097, 16_385, whole.len() - 1]);
    lengths.sort_unstable();
    for len in lengths.into_iter().rev() {
        file.set_len(len as u64).unwrap();
        if len == 0 {
            // As SQLite has it, an empty file is an empty database.
            assert_eq!(number(&ours(&path).unwrap(), "SELECT count(*) FROM sqlite_schema"), 0);
            continue;
        }
        judge(&path, &expected, &format!("{len} bytes"));
        assert!(fs::read(&path).unwrap() == whole[..len], "{len} bytes: the file was changed");
    }
    // What was cut off is all that is missing.
    fs::write(&path, &whole).unwrap();
    assert!(judge(&path, &expected, "made whole"));
}

#[test]
fn flipped_bytes_give_errors_and_never_other_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    let expected = specimen(&path);
    let whole = fs::read(&path).unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let budget = std::env::var("ESKER_TEST_BUDGET").ok().and_then(|n| n.parse().ok());
    let each = budget.unwrap_or(1_usize).clamp(1, 64);
    let mut refused = 0;
    for block in 0..whole.len() / 4096 {
        for round in 0..each {
            let at = block * 4096 + (block * 613 + round * 1_031) % 4096;
            file.write_all_at(&[whole[at] ^ (1 << (block % 8))], at as u64).unwrap();
            refused += usize::from(!judge(&path, &expected, &format!("byte {at}")));
            file.write_all_at(&whole[at..=at], at as u64).unwrap();
        }
    }
    assert!(refused >= 60, "only {refused} of the bytes mattered");
    assert!(fs::read(&path).unwrap() == whole, "the file was changed");
    assert!(judge(&path, &expected, "made whole"));
}

#[test]
fn a_newer_format_is_refused_and_not_taken_for_damage() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    let expected = specimen(&path);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let set = |version: u8| {
        for copy in 0..4 {
            file.write_all_at(&[version], copy * 4096 + 16).unwrap();
        }
    };
    set(4);
    assert_refused(&path, ErrorCode::NotADatabase, "use a newer version");
    set(1);
    assert!(judge(&path, &expected, "with its own number"));
}

#[test]
fn pages_of_every_size() {
    let folder = tempfile::tempdir().unwrap();
    for size in (9..=16).map(|bits| 1_i64 << bits) {
        let path = folder.path().join(format!("{size}.db"));
        let connection = ours(&path).unwrap();
        connection
            .execute_batch(&format!("PRAGMA page_size = {size}; CREATE TABLE t(n, x)"))
            .unwrap();
        connection.execute_batch("INSERT INTO t VALUES (1, zeroblob(150000)), (2, 'two')").unwrap();
        connection.execute_batch("BEGIN; DELETE FROM t; ROLLBACK").unwrap();
        drop(connection);
        let connection = ours(&path).unwrap();
        assert_eq!(number(&connection, "PRAGMA page_size"), size);
        assert_eq!(number(&connection, "SELECT sum(length(x)) FROM t"), 150_003, "{size}");
        assert_eq!(text(&connection, "PRAGMA integrity_check"), "ok", "{size}");
    }
    // What is no page size changes nothing, as everywhere in SQLite.
    let connection = ours(&folder.path().join("other.db")).unwrap();
    for size in ["1000", "256", "131072", "-1"] {
        connection.execute_batch(&format!("PRAGMA page_size = {size}")).unwrap();
    }
    connection.execute_batch("CREATE TABLE t(n)").unwrap();
    assert_eq!(number(&connection, "PRAGMA page_size"), 4096);
}

#[test]
fn an_ordinary_file_is_attached_by_naming_its_vfs() {
    let folder = tempfile::tempdir().unwrap();
    let (store, other) = (folder.path().join("store.db"), folder.path().join("other.db"));
    specimen(&store);
    plain(&other).execute_batch("CREATE TABLE o(n)").unwrap();
    let connection = ours(&store).unwrap();
    connection.execute_batch("BEGIN; UPDATE t SET x = 'kept'").unwrap();
    connection.execute_batch("COMMIT").unwrap();
    // Without a name it is looked for in the store's VFS.
    let attach = format!("ATTACH '{}' AS other", other.display());
    let refused = connection.execute_batch(&attach).unwrap_err();
    assert_eq!(code(&refused), ErrorCode::NotADatabase);
    assert!(log::said(&["other.db", "esker sqlite import"]), "{:?}", log::all());
    let attach = format!("ATTACH 'file:{}?vfs=unix' AS other", other.display());
    connection.execute_batch(&attach).unwrap();
    for (end, expected) in [("ROLLBACK", (1000, 0)), ("COMMIT", (0, 1))] {
        let both = "BEGIN; DELETE FROM main.t; INSERT INTO other.o VALUES (1)";
        connection.execute_batch(&format!("{both}; {end}")).unwrap();
        let ours = number(&connection, "SELECT count(*) FROM main.t WHERE x = 'kept'");
        let theirs = number(&connection, "SELECT count(*) FROM other.o");
        assert_eq!((ours, theirs), expected, "{end}");
    }
    drop(connection);
    // And a store attached to an ordinary main file.
    let connection = plain(&other);
    let attach = format!("ATTACH 'file:{}?vfs=esker' AS store", store.display());
    connection.execute_batch(&attach).unwrap();
    connection.execute_batch("INSERT INTO store.t(x) SELECT n FROM o").unwrap();
    assert_eq!(number(&connection, "SELECT count(*) FROM store.t"), 1);
    assert_eq!(text(&connection, "PRAGMA integrity_check"), "ok");
    drop(connection);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "a journal is left");
}

#[test]
fn who_opens_for_reading_cannot_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    let expected = specimen(&path);
    let reader = with(&path, "mode=ro").unwrap();
    assert_eq!(rows(&reader).unwrap(), expected);
    for tried in ["DELETE FROM t", "CREATE TABLE u(y)", "VACUUM"] {
        let refused = reader.execute_batch(tried).unwrap_err();
        assert_eq!(code(&refused), ErrorCode::ReadOnly, "{tried}");
    }
    // Others may write meanwhile.
    ours(&path).unwrap().execute_batch("DELETE FROM t").unwrap();
    assert_eq!(number(&reader, "SELECT count(*) FROM t"), 0);
}

unsafe extern "C" {
    fn setfsuid(user: u32) -> i32;
}

/// Runs `body` in a thread that has no rights of its own to files, whichever user runs the test.
fn without_rights(body: impl FnOnce() + Send) {
    const NOBODY: u32 = 65_534;
    let restricted = || {
        // SAFETY: it is about this thread and those that it starts, and about files alone.
        unsafe { setfsuid(NOBODY) };
        body();
    };
    thread::scope(|scope| scope.spawn(restricted).join().unwrap());
}

fn allow(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn places_without_the_right_to_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    let expected = specimen(&path);
    common::load();
    allow(&path, 0o444);
    allow(folder.path(), 0o555);
    without_rights(|| {
        // As with SQLite's own files, it is opened to be read then.
        let connection = ours(&path).unwrap();
        assert_eq!(rows(&connection).unwrap(), expected);
        let refused = connection.execute_batch("DELETE FROM t").unwrap_err();
        assert_eq!(code(&refused), ErrorCode::ReadOnly);
        assert_eq!(rows(&with(&path, "mode=ro").unwrap()).unwrap(), expected);
        let absent = folder.path().join("absent.db");
        assert_refused(&absent, ErrorCode::CannotOpen, "denied");
        assert!(!absent.exists());
    });
    allow(&path, 0);
    without_rights(|| {
        for parameters in ["mode=rw", "mode=ro"] {
            assert_eq!(code(&with(&path, parameters).unwrap_err()), ErrorCode::CannotOpen);
        }
        assert!(log::said(&["app.db", "denied"]), "{:?}", log::all());
    });
    // A file that may be written, in a folder that may not: nothing is ever made next to it.
    allow(&path, 0o666);
    without_rights(|| {
        let connection = ours(&path).unwrap();
        assert_eq!(rows(&connection).unwrap(), expected);
        connection.execute_batch("DELETE FROM t WHERE n > 1").unwrap();
        assert_eq!(text(&connection, "PRAGMA integrity_check"), "ok");
    });
    allow(folder.path(), 0o755);
    assert_eq!(number(&ours(&path).unwrap(), "SELECT count(*) FROM t"), 1);
}

/// Where the child finds its database.
const PATH: &str = "ESKER_SQLITE_TEST_PATH";

/// Fills its device until a commit is refused, and looks at what is there then.
#[test]
#[ignore = "the other process of the tests of full devices"]
fn fill() {
    let Some(path) = std::env::var_os(PATH).map(PathBuf::from) else { return };
    let connection = ours(&path).unwrap();
    connection.execute_batch("CREATE TABLE t(n INTEGER PRIMARY KEY, x)").unwrap();
    let insert = "BEGIN; WITH RECURSIVE i(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i LIMIT 50)
                  INSERT INTO t(x) SELECT randomblob(1000) FROM i; COMMIT";
    let mut committed = 0;
    let refused = loop {
        match connection.execute_batch(insert) {
            Ok(()) if committed > 1_000_000 => panic!("there is no end to this device"),
            Ok(()) => committed += 50,
            Err(refused) => break refused,
        }
    };
    assert_eq!(code(&refused), ErrorCode::DiskFull, "{refused}");
    if !connection.is_autocommit() {
        connection.execute_batch("ROLLBACK").unwrap();
    }
    let whole = |connection: &Connection| {
        assert_eq!(number(connection, "SELECT count(*) FROM t"), committed);
        assert_eq!(number(connection, "SELECT min(length(x)) FROM t"), 1000);
        assert_eq!(text(connection, "PRAGMA integrity_check"), "ok");
    };
    whole(&connection);
    drop(connection);
    let connection = ours(&path).unwrap();
    whole(&connection);
    goes_on(&connection, committed);
    connection.execute_batch(insert).unwrap();
    assert_eq!(text(&connection, "PRAGMA integrity_check"), "ok");
}

/// What makes nothing larger still goes where the device is full, in small transactions and as
/// often as one likes, and what is deleted makes room.
fn goes_on(connection: &Connection, rows: i64) {
    let spread = rows / 10;
    for k in 0..200 {
        let n = k * 7919 % rows + 1;
        let one = format!("UPDATE t SET x = randomblob(1000) WHERE n = {n}");
        let little = format!("UPDATE t SET x = zeroblob(20) || substr(x, 21) WHERE n = {n}");
        let many = format!("UPDATE t SET x = randomblob(1000) WHERE n % {spread} = {}", n % spread);
        for statement in [one, little, many] {
            connection.execute_batch(&statement).unwrap();
        }
    }
    assert_eq!(number(connection, "SELECT count(*) FROM t"), rows);
    for n in (1..=rows).step_by(20) {
        connection.execute("DELETE FROM t WHERE n BETWEEN ?1 AND ?1 + 19", [n]).unwrap();
    }
    assert_eq!(number(connection, "SELECT count(*) FROM t"), 0);
}

/// Runs [`fill`] in `folder` with what `command` and a shell make of it: `$0` is the folder.
fn fill_by(command: &[&str], folder: &Path, script: &str) {
    let done = Command::new(command[0])
        .args(&command[1..])
        .args(["sh", "-c", &format!("{script} && exec \"$@\"")])
        .arg(folder)
        .arg(std::env::current_exe().unwrap())
        .args(["fill", "--exact", "--ignored", "--nocapture"])
        .env(PATH, folder.join("app.db"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && said.contains("1 passed"), "{script}: {done:?}");
}

#[test]
fn a_file_that_may_not_grow_loses_nothing() {
    // As many blocks of 512 bytes, or of 1024 with some shells.
    for blocks in [16_384, 65_536] {
        let folder = tempfile::tempdir().unwrap();
        fill_by(&["env"], folder.path(), &format!("trap '' XFSZ && ulimit -f {blocks}"));
    }
}

#[test]
fn a_full_device_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let unshared = ["unshare", "--mount"];
    let mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "none"];
    let can = Command::new(unshared[0]).arg(unshared[1]).args(mount).arg(folder.path()).output();
    if can.is_ok_and(|tried| tried.status.success()) {
        fill_by(&unshared, folder.path(), &format!("{} \"$0\"", mount.join(" ")));
    } else {
        eprintln!("not run: nothing may be mounted here");
    }
}
