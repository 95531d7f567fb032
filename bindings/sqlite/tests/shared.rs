//! Processes that share a store, as they do where the URI does not say `processes=one`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(unsafe_code, reason = "a library is loaded")]

mod common;

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};

use common::{number, open_uri, text};

/// Where a child finds its database, which number it has, and how many transactions it makes.
const PATH: &str = "ESKER_SQLITE_SHARED_PATH";
const NUMBER: &str = "ESKER_SQLITE_SHARED_NUMBER";
const COUNT: &str = "ESKER_SQLITE_SHARED_COUNT";

fn share(path: &Path) -> rusqlite::Result<Connection> {
    open_uri(&format!("file:{}?vfs=esker", path.display()))
}

/// Has it for this process.
fn open_one(path: &Path) -> Connection {
    open_uri(&format!("file:{}?vfs=esker&processes=one", path.display())).unwrap()
}

fn make(path: &Path) {
    let connection = share(path).unwrap();
    let all = "CREATE TABLE counts(process INTEGER PRIMARY KEY, n);
               INSERT INTO counts VALUES (0, 0), (1, 0), (2, 0), (3, 0);
               CREATE TABLE log(n INTEGER PRIMARY KEY, process, x)";
    connection.execute_batch(all).unwrap();
}

/// One transaction: the next row of the log, and the count of this process. With a read before it,
/// of what all have committed.
fn add(connection: &Connection, process: i64) -> rusqlite::Result<()> {
    let sums = "SELECT (SELECT count(*) FROM log) = (SELECT sum(n) FROM counts)";
    assert_eq!(connection.query_row(sums, [], |row| row.get::<_, i64>(0))?, 1);
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let next = "INSERT INTO log SELECT ifnull(max(n), 0) + 1, ?1, hex(randomblob(100)) FROM log";
    let done = connection.execute(next, [process]).and_then(|_| {
        connection.execute("UPDATE counts SET n = n + 1 WHERE process = ?1", [process])?;
        connection.execute_batch("COMMIT")
    });
    if done.is_err() {
        let _ended = connection.execute_batch("ROLLBACK");
    }
    done
}

#[test]
#[ignore = "the other process of the tests here"]
fn child() {
    let variable = |name: &str| std::env::var(name).ok();
    let Some(path) = variable(PATH) else { return };
    let of = |name| variable(name).unwrap().parse::<i64>().unwrap();
    let (process, count) = (of(NUMBER), of(COUNT));
    let connection = share(Path::new(&path)).unwrap();
    connection.busy_timeout(Duration::from_secs(20)).unwrap();
    let mut stdout = std::io::stdout().lock();
    for _ in 0..count {
        add(&connection, process).unwrap();
        writeln!(stdout, "committed").unwrap();
        stdout.flush().unwrap();
    }
}

/// A child at work, and what it says.
fn start(path: &Path, process: usize, count: u32) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--ignored", "--nocapture"])
        .env(PATH, path)
        .env(NUMBER, process.to_string())
        .env(COUNT, count.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, said)
}

/// The database of a transaction that does not end.
const HELD: &str = "ESKER_SQLITE_SHARED_HELD";

#[test]
#[ignore = "another process of the tests here"]
fn child_that_writes_on() {
    let Ok(path) = std::env::var(HELD) else { return };
    let connection = share(Path::new(&path)).unwrap();
    connection.execute_batch("BEGIN IMMEDIATE; UPDATE counts SET n = 9").unwrap();
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "committed nothing").unwrap();
    stdout.flush().unwrap();
    std::thread::sleep(Duration::from_secs(120));
}

#[test]
fn a_writer_waits_for_another_process_for_as_long_as_its_timeout() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    make(&path);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["child_that_writes_on", "--exact", "--ignored", "--nocapture"])
        .env(HELD, &path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    while !is_commit(&said.next().unwrap().unwrap()) {}
    let ours = share(&path).unwrap();
    ours.busy_timeout(Duration::from_secs(3)).unwrap();
    let begun = Instant::now();
    let refused = ours.execute("UPDATE counts SET n = 1 WHERE process = 0", []).unwrap_err();
    assert_eq!(refused.sqlite_error_code(), Some(ErrorCode::DatabaseBusy));
    let waited = begun.elapsed();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!((Duration::from_secs(3)..Duration::from_secs(20)).contains(&waited), "{waited:?}");
    ours.execute("UPDATE counts SET n = 1 WHERE process = 0", []).unwrap();
    assert_eq!(number(&ours, "SELECT sum(n) FROM counts"), 1);
}

/// As many statements that write, each a transaction of its own, without a read before.
const PLAIN: &str = "ESKER_SQLITE_SHARED_PLAIN";

#[test]
#[ignore = "another process of the tests here"]
fn child_of_plain_writes() {
    let Ok(path) = std::env::var(PLAIN) else { return };
    let process: i64 = std::env::var(NUMBER).unwrap().parse().unwrap();
    let connection = share(Path::new(&path)).unwrap();
    connection.busy_timeout(Duration::from_secs(20)).unwrap();
    for n in 0..60 {
        let sql = "UPDATE counts SET n = n + 1 WHERE process = ?1";
        if n % 2 == 0 {
            connection.execute(sql, [process]).unwrap();
        } else {
            connection.execute_batch("BEGIN IMMEDIATE").unwrap();
            connection.execute(sql, [process]).unwrap();
            connection.execute_batch("COMMIT").unwrap();
        }
    }
}

#[test]
fn plain_writes_wait_for_as_long_as_the_timeout_and_succeed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    make(&path);
    let start = |process: usize| {
        Command::new(std::env::current_exe().unwrap())
            .args(["child_of_plain_writes", "--exact", "--ignored"])
            .env(PLAIN, &path)
            .env(NUMBER, (process % 4).to_string())
            .spawn()
            .unwrap()
    };
    let children: Vec<_> = (0..8).map(start).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    for process in 0..4 {
        let count = format!("SELECT n FROM counts WHERE process = {process}");
        assert_eq!(number(&share(&path).unwrap(), &count), 120);
    }
}

/// As in WAL mode: a transaction that has read cannot write on what another one has changed since,
/// and one that writes first can.
#[test]
fn only_a_transaction_that_has_read_an_older_version_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    make(&path);
    let ours = share(&path).unwrap();
    ours.busy_timeout(Duration::from_secs(20)).unwrap();
    ours.execute_batch("CREATE TABLE ours(n)").unwrap();
    let change = |connection: &Connection| connection.execute("INSERT INTO ours VALUES (1)", []);
    for reads in [false, true] {
        ours.execute_batch("BEGIN").unwrap();
        if reads {
            assert_eq!(number(&ours, "SELECT count(*) FROM counts"), 4);
        }
        let (mut child, lines) = start(&path, 1, 1);
        assert_eq!(lines.filter(|line| line.as_ref().is_ok_and(|line| is_commit(line))).count(), 1);
        assert!(child.wait().unwrap().success());
        let outcome = change(&ours);
        if reads {
            let refused = outcome.unwrap_err();
            let code = refused.sqlite_error().unwrap().extended_code;
            assert_eq!(code, rusqlite::ffi::SQLITE_BUSY_SNAPSHOT);
            ours.execute_batch("ROLLBACK; BEGIN").unwrap();
            change(&ours).unwrap();
        }
        ours.execute_batch("COMMIT").unwrap();
        assert_eq!(number(&ours, "SELECT count(*) FROM ours"), 1 + i64::from(reads));
    }
}

/// A connection that only reads, which came first, and children that write.
#[test]
fn who_only_reads_and_came_first_sees_what_others_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    make(&path);
    let reads = |more: &str| {
        open_uri(&format!("file:{}?vfs=esker&processes=many{more}", path.display())).unwrap()
    };
    let (reader, staying) = (reads("&mode=ro"), reads("&mode=ro"));
    staying.execute_batch("BEGIN").unwrap();
    let rows = |connection: &Connection| number(connection, "SELECT count(*) FROM log");
    assert_eq!((rows(&reader), rows(&staying)), (0, 0));
    let fixed = reads("&immutable=1");
    for count in [30, 60] {
        let (mut child, lines) = start(&path, 1, 30);
        assert_eq!(
            lines.filter(|line| line.as_ref().is_ok_and(|line| is_commit(line))).count(),
            30
        );
        assert!(child.wait().unwrap().success());
        assert_eq!((rows(&reader), rows(&staying), rows(&fixed)), (count, 0, 0));
    }
    // And a connection of this process that writes.
    let writer = share(&path).unwrap();
    add(&writer, 2).unwrap();
    assert_eq!((rows(&reader), rows(&staying), rows(&writer)), (61, 0, 61));
    assert!(reader.execute_batch("DELETE FROM log").is_err());
    drop((reader, staying, fixed, writer));
    assert_eq!(check(&path)[1], 60);
}

/// Both files of the transactions over two.
const BOTH: &str = "ESKER_SQLITE_SHARED_BOTH";

fn share_both(folder: &Path) -> Connection {
    let connection = share(&folder.join("app.db")).unwrap();
    connection.busy_timeout(Duration::from_secs(20)).unwrap();
    let other = folder.join("other.db");
    let attach = format!("ATTACH 'file:{}?vfs=esker&processes=many' AS other", other.display());
    connection.execute_batch(&attach).unwrap();
    connection
}

/// One transaction over both files: adds one to the count of this process in each. Before it, both
/// are as all processes before have left them.
fn add_to_both(connection: &Connection, process: i64) -> rusqlite::Result<()> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let differ = "SELECT count(*) FROM main.counts JOIN other.counts USING (process)
                  WHERE main.counts.n != other.counts.n";
    assert_eq!(connection.query_row(differ, [], |row| row.get::<_, i64>(0))?, 0);
    for file in ["main", "other"] {
        let add = format!("UPDATE {file}.counts SET n = n + 1 WHERE process = ?1");
        connection.execute(&add, [process])?;
    }
    connection.execute_batch("COMMIT")
}

#[test]
#[ignore = "another process of the tests here"]
fn child_of_both() {
    let Ok(folder) = std::env::var(BOTH) else { return };
    let process = std::env::var(NUMBER).unwrap().parse().unwrap();
    let connection = share_both(Path::new(&folder));
    let mut stdout = std::io::stdout().lock();
    loop {
        add_to_both(&connection, process).unwrap();
        writeln!(stdout, "committed").unwrap();
        stdout.flush().unwrap();
    }
}

#[test]
fn transactions_over_two_files_are_whole_when_their_process_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    make(&folder.path().join("app.db"));
    make(&folder.path().join("other.db"));
    let ours = share_both(folder.path());
    let start = |process: usize| {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["child_of_both", "--exact", "--ignored", "--nocapture"])
            .env(BOTH, folder.path())
            .env(NUMBER, process.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        (child, said)
    };
    let mut said = [0; 4];
    for round in 0..12_usize {
        let process = 1 + round % 3;
        let (mut child, mut lines) = start(process);
        while !is_commit(&lines.next().unwrap().unwrap()) {}
        said[process] += 1;
        add_to_both(&ours, 0).unwrap();
        std::thread::sleep(Duration::from_micros(1711 * round as u64));
        child.kill().unwrap();
        child.wait().unwrap();
        said[process] +=
            lines.filter(|line| line.as_ref().is_ok_and(|line| is_commit(line))).count();
        add_to_both(&ours, 0).unwrap();
        said[0] += 2;
    }
    drop(ours);
    let count = |file: &str, process: usize| {
        let connection = open_one(&folder.path().join(file));
        number(&connection, &format!("SELECT n FROM counts WHERE process = {process}"))
    };
    for (process, said) in said.into_iter().enumerate() {
        let found = count("app.db", process);
        assert_eq!(count("other.db", process), found);
        assert!(found >= said as i64, "{process}: {found} of {said}");
    }
}

fn is_commit(line: &str) -> bool {
    line.contains("committed")
}

/// What all have written, in a process that has the store to itself.
fn check(path: &Path) -> Vec<i64> {
    let connection = open_one(path);
    let found = number(&connection, "SELECT count(*) FROM log");
    assert_eq!(number(&connection, "SELECT ifnull(max(n), 0) FROM log"), found);
    let of = |process: i64| {
        let logged = format!("SELECT count(*) FROM log WHERE process = {process}");
        let counted = format!("SELECT n FROM counts WHERE process = {process}");
        assert_eq!(number(&connection, &logged), number(&connection, &counted));
        number(&connection, &counted)
    };
    let each = (0..4).map(of).collect();
    assert_eq!(text(&connection, "PRAGMA integrity_check"), "ok");
    assert!(text(&connection, "PRAGMA esker_check").contains("true"));
    each
}

#[test]
fn four_processes_write_and_read_one_database() {
    const EACH: u32 = 100;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    make(&path);
    let children: Vec<_> = (0..4).map(|process| start(&path, process, EACH)).collect();
    for (mut child, said) in children {
        let count = said.filter(|line| line.as_ref().is_ok_and(|line| is_commit(line))).count();
        assert_eq!(count, EACH as usize);
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(check(&path), [i64::from(EACH); 4]);
}

#[test]
fn a_process_that_is_killed_takes_no_commit_with_it_and_keeps_no_other_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    make(&path);
    let ours = share(&path).unwrap();
    ours.busy_timeout(Duration::from_secs(20)).unwrap();
    let mut said = [0; 4];
    for round in 0..9_usize {
        let process = 1 + round % 3;
        let (mut child, lines) = start(&path, process, u32::MAX);
        let end = Instant::now() + Duration::from_millis(60 + 17 * round as u64);
        for line in lines {
            said[process] += i64::from(is_commit(&line.unwrap()));
            if Instant::now() > end {
                break;
            }
            add(&ours, 0).unwrap();
            said[0] += 1;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        add(&ours, 0).unwrap();
        said[0] += 1;
    }
    drop(ours);
    let found = check(&path);
    println!("{found:?} found, {said:?} said");
    assert_eq!(found[0], said[0]);
    // What was said and not read, and what was committed and not said.
    assert!(found.iter().zip(said).all(|(found, said)| *found >= said), "{found:?} of {said:?}");
}

#[test]
fn who_shares_and_who_does_not_keep_each_other_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    make(&path);
    let (mut child, mut said) = start(&path, 1, u32::MAX);
    while !is_commit(&said.next().unwrap().unwrap()) {}
    for mode in ["", "&mode=ro"] {
        let uri = format!("file:{}?vfs=esker&processes=one&busy_timeout=0{mode}", path.display());
        let refused = open_uri(&uri).unwrap_err();
        assert_eq!(refused.sqlite_error_code(), Some(ErrorCode::DatabaseBusy), "{mode}");
    }
    let reads = format!("file:{}?vfs=esker&processes=many&mode=ro", path.display());
    let reader = open_uri(&reads).unwrap();
    let before = number(&reader, "SELECT count(*) FROM log");
    assert!(before > 0);
    let begun = Instant::now();
    while number(&reader, "SELECT count(*) FROM log") == before {
        assert!(begun.elapsed() < Duration::from_secs(20), "nothing is seen");
    }
    assert!(reader.execute_batch("DELETE FROM log").is_err());
    drop(reader);
    child.kill().unwrap();
    child.wait().unwrap();
    let wrong = format!("file:{}?vfs=esker&processes=some", path.display());
    assert!(open_uri(&wrong).is_err());
    assert!(check(&path)[1] > 0);
}

#[test]
fn making_a_store_shorter_waits_for_the_others_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    make(&path);
    let (mut child, mut said) = start(&path, 1, u32::MAX);
    while !is_commit(&said.next().unwrap().unwrap()) {}
    let connection = share(&path).unwrap();
    let compact = || connection.query_row("PRAGMA esker_compact", [], |_| Ok(()));
    // What the child says is not read here, so it must not fill the pipe.
    let reading = std::thread::spawn(move || said.map_while(Result::ok).count());
    let rows = || number(&connection, "SELECT count(*) FROM log");
    let (begun, before) = (Instant::now(), rows());
    let refused = compact().unwrap_err();
    assert!(rows() > before + 20, "the others did not write while it waited");
    assert!(refused.to_string().contains("open in other processes"), "{refused}");
    assert_eq!(refused.sqlite_error_code(), Some(ErrorCode::DatabaseBusy));
    assert!(begun.elapsed() > Duration::from_secs(4), "it did not wait");
    child.kill().unwrap();
    child.wait().unwrap();
    reading.join().unwrap();
    compact().unwrap();
    add(&connection, 0).unwrap();
    drop(connection);
    check(&path);
}

/// What several processes cannot share is for one, unless it is asked for that they do.
#[test]
fn a_store_whose_pages_move_is_for_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    let uri = |more: &str| format!("file:{}?vfs=esker&busy_timeout=0{more}", path.display());
    drop(open_uri(&uri("&allocation=segment&processes=many")).unwrap_err());
    let connection = open_uri(&uri("&allocation=segment")).unwrap();
    connection.execute_batch("CREATE TABLE t(n); INSERT INTO t VALUES (1)").unwrap();
    assert!(!folder.path().join("app.db-esker").exists());
    drop(connection);
    let refused = open_uri(&uri("&processes=many")).unwrap_err();
    assert_eq!(refused.sqlite_error_code(), Some(ErrorCode::CannotOpen));
    let connection = open_uri(&uri("")).unwrap();
    assert_eq!(number(&connection, "SELECT n FROM t"), 1);
}
