//! Processes that share a store while one of them is stopped, or the file that they meet in is
//! changed under them.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(unsafe_code, reason = "a library is loaded")]

mod common;

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use esker_harness::random::Random;
use rusqlite::{Connection, ErrorCode};

use common::{number, open_uri, text};

/// Where a child finds its database, and which rows it adds to.
const PATH: &str = "ESKER_SQLITE_DISTURBED_PATH";
const NUMBER: &str = "ESKER_SQLITE_DISTURBED_NUMBER";

fn share(path: &Path) -> Connection {
    let connection = open_uri(&format!("file:{}?vfs=esker", path.display())).unwrap();
    connection.busy_timeout(Duration::from_secs(20)).unwrap();
    connection
}

fn make(path: &Path) {
    let all = "CREATE TABLE counts(process INTEGER PRIMARY KEY, n);
               INSERT INTO counts VALUES (0, 0), (1, 0), (2, 0), (3, 0);
               CREATE TABLE fill(x)";
    share(path).execute_batch(all).unwrap();
}

fn add(connection: &Connection, process: i64) -> rusqlite::Result<usize> {
    connection.execute("UPDATE counts SET n = n + 1 WHERE process = ?1", [process])
}

fn sum(connection: &Connection) -> i64 {
    number(connection, "SELECT sum(n) FROM counts")
}

/// Another process. It does what each line that it is given says, and answers with a line.
struct Other {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    input: ChildStdin,
}

#[test]
#[ignore = "the other process of the tests here"]
fn child() {
    let Ok(path) = std::env::var(PATH) else { return };
    let process: i64 = std::env::var(NUMBER).unwrap().parse().unwrap();
    let connection = share(Path::new(&path));
    let mut stdout = std::io::stdout().lock();
    let mut answer = |line: String| {
        writeln!(stdout, "answer: {line}").unwrap();
        stdout.flush().unwrap();
    };
    for line in std::io::stdin().lines() {
        match line.unwrap().as_str() {
            "begin" => {
                connection.execute_batch("BEGIN").unwrap();
                answer(sum(&connection).to_string());
            }
            "sum" => answer(sum(&connection).to_string()),
            "end" => {
                connection.execute_batch("COMMIT").unwrap();
                answer(sum(&connection).to_string());
            }
            "hold" => {
                connection.execute_batch("BEGIN IMMEDIATE").unwrap();
                add(&connection, process).unwrap();
                answer("held".into());
            }
            "count" => {
                let mut committed = 0;
                let end = Instant::now() + Duration::from_secs(2);
                while Instant::now() < end {
                    match add(&connection, process) {
                        Ok(_) => committed += 1,
                        Err(error) => println!("refused: {error}"),
                    }
                }
                answer(committed.to_string());
            }
            other => unreachable!("{other}"),
        }
    }
}

impl Other {
    fn start(path: &Path, process: usize) -> Self {
        Self::start_by(Command::new(std::env::current_exe().unwrap()), path, process)
    }

    fn start_by(mut command: Command, path: &Path, process: usize) -> Self {
        let mut child = command
            .args(["child", "--exact", "--ignored", "--nocapture"])
            .env(PATH, path)
            .env(NUMBER, process.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let input = child.stdin.take().unwrap();
        Self { child, lines, input }
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    fn hear(&mut self) -> String {
        loop {
            let line = self.lines.next().unwrap().unwrap();
            if let Some((_, answer)) = line.split_once("answer: ") {
                return answer.to_owned();
            }
        }
    }

    fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.hear()
    }

    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    fn end(self) {
        let Self { mut child, input, lines } = self;
        drop(input);
        lines.for_each(drop);
        assert!(child.wait().unwrap().success());
    }
}

fn check(path: &Path) {
    let connection = open_uri(&format!("file:{}?vfs=esker&processes=one", path.display())).unwrap();
    assert_eq!(text(&connection, "PRAGMA integrity_check"), "ok");
    assert!(text(&connection, "PRAGMA esker_check").contains("true"));
}

/// Bytes of all files in a folder.
fn bytes_in(folder: &Path) -> u64 {
    let files = std::fs::read_dir(folder).unwrap();
    files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
}

#[test]
fn a_reader_that_is_stopped_keeps_its_version_and_nobody_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    make(&path);
    let ours = share(&path);
    let mut reader = Other::start(&path, 1);
    assert_eq!(reader.ask("begin"), "0");
    reader.signal("-STOP");
    let (begun, mut count, mut longest) = (Instant::now(), 0, Duration::ZERO);
    while begun.elapsed() < Duration::from_secs(10) {
        let begun = Instant::now();
        add(&ours, 0).unwrap();
        ours.execute_batch("DELETE FROM fill; INSERT INTO fill VALUES (zeroblob(20000))").unwrap();
        longest = longest.max(begun.elapsed());
        count += 1;
    }
    let bytes = bytes_in(folder.path());
    reader.signal("-CONT");
    assert_eq!(reader.ask("sum"), "0", "its transaction goes on");
    assert_eq!(reader.ask("end"), count.to_string());
    println!("{count} transactions beside a stopped reader, at most {longest:?}, {bytes} bytes");
    assert!(longest < Duration::from_secs(5), "{longest:?}");
    assert!(bytes < 200 << 20, "{bytes} bytes of files");
    reader.end();
    drop(ours);
    check(&path);
}

#[test]
fn a_writer_that_is_stopped_keeps_others_waiting_for_as_long_as_they_say() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    make(&path);
    let ours = share(&path);
    ours.busy_timeout(Duration::from_millis(500)).unwrap();
    let mut writer = Other::start(&path, 1);
    assert_eq!(writer.ask("hold"), "held");
    writer.signal("-STOP");
    let refused = add(&ours, 0).unwrap_err();
    assert_eq!(refused.sqlite_error_code(), Some(ErrorCode::DatabaseBusy));
    assert_eq!(sum(&ours), 0);
    writer.signal("-CONT");
    assert_eq!(writer.ask("end"), "1");
    ours.busy_timeout(Duration::from_secs(20)).unwrap();
    add(&ours, 0).unwrap();
    // Stopped at any moment of its work, and killed then.
    writer.tell("count");
    std::thread::sleep(Duration::from_millis(300));
    writer.signal("-STOP");
    let before = sum(&ours);
    writer.signal("-KILL");
    writer.child.wait().unwrap();
    add(&ours, 0).unwrap();
    assert!(sum(&ours) > before);
    drop(ours);
    check(&path);
}

/// A process with numbers of its own for processes, where this one may make such.
fn in_another_namespace() -> Option<Command> {
    let mut unshare = Command::new("unshare");
    unshare.args(["--pid", "--fork", "--kill-child"]);
    let may = unshare.arg("true").output().is_ok_and(|output| output.status.success());
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child"]).arg(std::env::current_exe().unwrap());
    may.then_some(command)
}

#[test]
fn processes_of_two_namespaces_share_a_store() {
    let Some(command) = in_another_namespace() else {
        println!("there can be no namespace here");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    make(&path);
    let ours = share(&path);
    let mut theirs = Other::start_by(command, &path, 1);
    assert_eq!(theirs.ask("begin"), "0");
    theirs.tell("sum");
    add(&ours, 0).unwrap();
    assert_eq!(theirs.hear(), "0");
    assert_eq!(theirs.ask("end"), "1");
    theirs.tell("count");
    let (end, mut count) = (Instant::now() + Duration::from_secs(2), 1);
    while Instant::now() < end {
        add(&ours, 0).unwrap();
        count += 1;
    }
    let all = count + theirs.hear().parse::<i64>().unwrap();
    assert_eq!(sum(&ours), all);
    theirs.end();
    drop(ours);
    check(&path);
}

/// The file beside the database that the processes meet in.
fn meeting(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-esker");
    assert!(Path::new(&name).exists());
    name.into()
}

/// While three processes count, `disturb` is called again and again. Each commit that was
/// acknowledged is there afterwards, once.
fn count_while(disturb: impl Fn(&Path, u64)) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    make(&path);
    let ours = share(&path);
    let mut others: Vec<_> = (1..4).map(|process| Other::start(&path, process)).collect();
    others.iter_mut().for_each(|other| assert_eq!(other.ask("sum"), "0"));
    others.iter_mut().for_each(|other| other.tell("count"));
    let file = meeting(&path);
    for round in 0..10 {
        std::thread::sleep(Duration::from_millis(150));
        disturb(&file, round);
    }
    let acknowledged: Vec<i64> =
        others.iter_mut().map(|other| other.hear().parse().unwrap()).collect();
    drop(ours);
    others.into_iter().for_each(Other::end);
    println!("{acknowledged:?} committed");
    let after = share(&path);
    let of = |process: usize| {
        number(&after, &format!("SELECT n FROM counts WHERE process = {}", process + 1))
    };
    assert_eq!((0..3).map(of).collect::<Vec<_>>(), acknowledged);
    drop(after);
    check(&path);
}

#[test]
fn noise_in_the_file_of_the_meeting_loses_nothing() {
    count_while(|file, round| {
        let noise = Random::new(round);
        let bytes = std::fs::metadata(file).unwrap().len();
        let file = OpenOptions::new().write(true).open(file).unwrap();
        let word = |at: u64, value: u64| file.write_all_at(&value.to_le_bytes(), at * 8).unwrap();
        // A word here and there, or all of it.
        if round % 2 == 0 {
            (0..8).for_each(|_| word(noise.below(bytes / 8), noise.bits()));
        } else {
            (0..bytes / 8).for_each(|at| word(at, noise.bits()));
        }
    });
}

#[test]
fn zeros_in_the_file_of_the_meeting_lose_nothing() {
    count_while(|file, _| {
        let bytes = std::fs::metadata(file).unwrap().len();
        let file = OpenOptions::new().write(true).open(file).unwrap();
        file.write_all_at(&vec![0; bytes as usize], 0).unwrap();
    });
}

#[test]
fn a_file_of_the_meeting_that_is_removed_loses_nothing() {
    count_while(|file, _| {
        let _there = std::fs::remove_file(file);
    });
}
