//! Running the binary and judging its answer.

use std::ffi::OsStr;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use esker::{Db, IndexKind, KeyspaceOptions};
use tempfile::TempDir;

/// The binary with some arguments, nothing on its standard input.
pub fn command<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_esker"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs it to its end.
pub fn esker<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Answer {
    Answer(command(arguments).output().unwrap())
}

/// Runs it to its end with something on its standard input.
pub fn esker_reading<A: AsRef<OsStr>>(
    arguments: impl IntoIterator<Item = A>,
    input: &[u8],
) -> Answer {
    let mut child = command(arguments).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // It may end without having read everything, and may write before it has.
    let writer = thread::spawn(move || drop(stdin.write_all(&input)));
    let answer = Answer(child.wait_with_output().unwrap());
    writer.join().unwrap();
    answer
}

/// The output and the exit code of a command.
pub struct Answer(pub Output);

impl Answer {
    pub fn code(&self) -> i32 {
        self.0.status.code().unwrap_or(-1)
    }

    pub fn stderr(&self) -> String {
        String::from_utf8(self.0.stderr.clone()).unwrap()
    }

    /// It succeeded, with nothing on standard error; answers standard output.
    #[track_caller]
    pub fn stdout(&self) -> &[u8] {
        assert_eq!((self.code(), self.stderr().as_str()), (0, ""));
        &self.0.stdout
    }

    /// Like [`Answer::stdout`], as text.
    #[track_caller]
    pub fn text(&self) -> &str {
        str::from_utf8(self.stdout()).unwrap()
    }

    /// Like [`Answer::stdout`], parsed.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(self.stdout()).unwrap()
    }

    /// It failed with this code and one line on standard error that holds all of these words.
    #[track_caller]
    pub fn fails(&self, code: i32, words: &[&str]) {
        let stderr = self.stderr();
        assert_eq!(self.code(), code, "{stderr}");
        assert!(stderr.starts_with("esker: ") && stderr.ends_with('\n'), "{stderr:?}");
        assert_eq!(stderr.matches('\n').count(), 1, "{stderr:?}");
        for word in words {
            assert!(stderr.contains(word), "{word:?} is not in {stderr:?}");
        }
    }
}

/// A folder for one test.
pub struct Place(TempDir, IndexKind);

impl Place {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap(), IndexKind::default())
    }

    /// A folder for each kind of index. Where it is not the one that commands choose themselves,
    /// the store is there already, with an empty keyspace `default`.
    pub fn of_each_kind() -> impl Iterator<Item = Self> {
        IndexKind::ALL.into_iter().map(|kind| {
            let place = Self(tempfile::tempdir().unwrap(), kind);
            if kind != IndexKind::default() {
                esker(["load", &place.db(), "--index", kind.name()]).stdout();
            }
            place
        })
    }

    pub fn kind(&self) -> IndexKind {
        self.1
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The store that most tests use.
    pub fn db(&self) -> String {
        self.path("db").into_os_string().into_string().unwrap()
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path.into_os_string().into_string().unwrap()
    }

    /// Makes the store hold these lines.
    #[track_caller]
    pub fn load(&self, lines: impl AsRef<[u8]>) -> String {
        let db = self.db();
        esker_reading(["load", &db], lines.as_ref()).stdout();
        db
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("with an index of kind {}", self.1);
        }
    }
}

#[track_caller]
pub fn dump(db: &str) -> String {
    esker(["dump", db]).text().to_owned()
}

/// A child that ends with the test, however the test ends.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes in this process, as long as `meanwhile` takes.
pub fn while_written<T>(place: &Place, meanwhile: impl FnOnce(&Db) -> T) -> T {
    let db = Db::builder(place.db()).memory_budget(1 << 20).open().unwrap();
    let options = KeyspaceOptions::default().index(place.kind());
    let keyspace = db.keyspace("default", options).unwrap();
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0u64.. {
                keyspace.insert(number.to_be_bytes(), [7; 100]).unwrap();
                if ended.load(Ordering::Relaxed) {
                    break;
                }
                // Not so fast that reading takes all of the time.
                if number % 100 == 0 {
                    thread::sleep(Duration::from_millis(1));
                }
            }
        });
        let _end = End(&ended);
        meanwhile(&db)
    })
}

/// Ends the writer, also where a check fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
