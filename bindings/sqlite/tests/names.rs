//! Processes that open, close, fork and die, and files that are renamed, deleted and made anew, at
//! random: compared with a model that gives the process that may have each store, the result of
//! a write, and what a reader sees.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use esker_device::forked::Child;
use esker_device::planted as device;
use esker_harness::counts::budget;
use esker_harness::random::Random;
use esker_sqlite::planted::{self, Bug};
use rusqlite::{Connection, OpenFlags, ffi};

const NAMES: [&str; 3] = ["a.db", "b.db", "c.db"];
const WORKERS: usize = 3;
const SLOTS: usize = 3;
/// Seconds that a process lives at most.
const LIFE: u32 = 120;
const STEPS: u64 = 150;

/// One at a time: children inherit what the process has.
static ALONE: Mutex<()> = Mutex::new(());

/// A bug of the VFS, or of the locks below it.
#[derive(Clone, Copy, Debug)]
enum Planted {
    Here(Bug),
    Below(device::Bug),
}

/// What a process answers: a code of SQLite's, and a number.
type Answer = (i32, u64);

fn code_of(error: &rusqlite::Error) -> i32 {
    error.sqlite_error().map_or(-1, |error| error.extended_code & 0xff)
}

fn open(path: &Path, writes: bool) -> rusqlite::Result<Connection> {
    esker_sqlite::link().unwrap();
    let mode = if writes { "rwc" } else { "ro" };
    let uri = format!("file:{}?vfs=esker&processes=one&busy_timeout=0&mode={mode}", path.display());
    let connection =
        Connection::open_with_flags(uri, OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI)?;
    connection.busy_timeout(Duration::ZERO)?;
    if writes {
        let begin = "PRAGMA synchronous = OFF; CREATE TABLE IF NOT EXISTS t(n)";
        connection.execute_batch(begin)?;
    }
    Ok(connection)
}

/// The life of a process that executes the orders it receives.
fn work(folder: &Path, mut orders: UnixStream, test: &UnixStream) -> u8 {
    let mut slots: [Option<Connection>; SLOTS] = Default::default();
    let mut order = [0; 4];
    while orders.read_exact(&mut order).is_ok() {
        let [what, slot, name, writes] = order;
        let slot = &mut slots[usize::from(slot)];
        let said: rusqlite::Result<u64> = match what {
            b'o' => open(&folder.join(NAMES[usize::from(name)]), writes != 0).map(|opened| {
                *slot = Some(opened);
                0
            }),
            b'c' => {
                *slot = None;
                Ok(0)
            }
            b'w' => slot.as_ref().unwrap().execute("INSERT INTO t VALUES (1)", []).map(|_| 0),
            b'r' => {
                let count = "SELECT count(*) FROM t";
                slot.as_ref()
                    .unwrap()
                    .query_row(count, [], |row| row.get::<_, i64>(0))
                    .map(|n| n as u64)
            }
            _ => Ok(fork(&slots, test)),
        };
        let (code, number) = match said {
            Ok(number) => (ffi::SQLITE_OK, number),
            Err(error) => (code_of(&error), 0),
        };
        orders.write_all(&code.to_le_bytes()).unwrap();
        orders.write_all(&number.to_le_bytes()).unwrap();
    }
    0
}

/// Forks a child that stays as long as the test, and answers how many of the connections that it
/// inherits it can use.
fn fork(slots: &[Option<Connection>], mut test: &UnixStream) -> u64 {
    let (mut ours, mut theirs) = UnixStream::pair().unwrap();
    let child = Child::run(LIFE, || {
        let inherited = slots.iter().flatten();
        let used = inherited.filter(|inherited| {
            inherited.execute_batch("INSERT INTO t VALUES (2)").is_ok()
                || inherited.query_row("SELECT count(*) FROM t", [], |_| Ok(())).is_ok()
        });
        theirs.write_all(&[used.count() as u8]).unwrap();
        let _end = test.read(&mut [0]);
        0
    });
    // It outlives this process.
    std::mem::forget(child);
    let mut used = [0];
    ours.read_exact(&mut used).unwrap();
    u64::from(used[0])
}

/// What children see the end of a test by: its own end, which no child keeps, and theirs.
struct Life(Option<UnixStream>, UnixStream);

/// A process, from outside.
struct Worker {
    child: Child,
    orders: UnixStream,
}

impl Worker {
    fn start(folder: &Path, planted: Option<Planted>, life: &mut Life) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let child = Child::run(LIFE, || {
            // Its copy alone.
            life.0 = None;
            let work = || work(folder, theirs, &life.1);
            match planted {
                None => work(),
                Some(Planted::Here(bug)) => planted::with(bug, work),
                Some(Planted::Below(bug)) => device::with(bug, work),
            }
        });
        Self { child, orders: ours }
    }

    fn order(&mut self, order: [u8; 4]) -> Result<Answer, String> {
        self.orders.write_all(&order).map_err(|error| format!("it is gone: {error}"))?;
        let (mut code, mut number) = ([0; 4], [0; 8]);
        let read = self.orders.read_exact(&mut code);
        read.and_then(|()| self.orders.read_exact(&mut number))
            .map_err(|error| format!("it hangs, or is gone: {error}"))?;
        Ok((i32::from_le_bytes(code), u64::from_le_bytes(number)))
    }
}

/// A connection: by which name, to which file, and whether it may write.
#[derive(Clone, Copy, Debug)]
struct Open {
    name: usize,
    file: usize,
    writes: bool,
}

/// What should be.
#[derive(Debug, Default)]
struct Model {
    names: BTreeMap<usize, usize>,
    /// Rows in each file that ever was.
    rows: Vec<u64>,
    /// Of each process.
    open: [[Option<Open>; SLOTS]; WORKERS],
    /// Which files each process has open to write: from the first connection that does, to the last
    /// of any kind.
    written: [Vec<usize>; WORKERS],
}

impl Model {
    fn has(&self, worker: usize, file: usize) -> bool {
        self.open[worker].iter().flatten().any(|open| open.file == file)
    }

    /// Whether another process has the file so that this one may not.
    fn is_taken(&self, worker: usize, file: usize, writes: bool) -> bool {
        let others = (0..WORKERS).filter(|other| *other != worker && self.has(*other, file));
        others.into_iter().any(|other| writes || self.written[other].contains(&file))
    }

    fn open(&mut self, worker: usize, slot: usize, name: usize, writes: bool) -> i32 {
        let file = match self.names.get(&name) {
            Some(file) => *file,
            None if !writes => return ffi::SQLITE_CANTOPEN,
            None => {
                self.rows.push(0);
                self.names.insert(name, self.rows.len() - 1);
                self.rows.len() - 1
            }
        };
        let needs_lock = !self.has(worker, file) || writes && !self.written[worker].contains(&file);
        if needs_lock && self.is_taken(worker, file, writes) {
            return ffi::SQLITE_BUSY;
        }
        if writes && !self.written[worker].contains(&file) {
            self.written[worker].push(file);
        }
        self.open[worker][slot] = Some(Open { name, file, writes });
        ffi::SQLITE_OK
    }

    fn close(&mut self, worker: usize, slot: usize) {
        if let Some(open) = self.open[worker][slot].take()
            && !self.has(worker, open.file)
        {
            self.written[worker].retain(|file| *file != open.file);
        }
    }

    fn write(&mut self, open: Open) -> i32 {
        if !open.writes || self.names.get(&open.name) != Some(&open.file) {
            return ffi::SQLITE_READONLY;
        }
        self.rows[open.file] += 1;
        ffi::SQLITE_OK
    }
}

struct Run<'a> {
    folder: &'a Path,
    planted: Option<Planted>,
    random: Random,
    workers: Vec<Worker>,
    model: Model,
    life: Life,
    forks: u64,
    /// How often each code was answered.
    codes: BTreeMap<i32, u64>,
}

impl Run<'_> {
    /// One step; what it was, and what was wrong with it.
    fn step(&mut self) -> Result<(), String> {
        let (worker, slot) = (self.below(WORKERS), self.below(SLOTS));
        let (name, writes) = (self.below(NAMES.len()), self.below(3) > 0);
        let open = self.model.open[worker][slot];
        let at = |what: u8| [what, slot as u8, name as u8, u8::from(writes)];
        match (self.below(20), open) {
            (0, _) => self.kill(worker),
            (1, _) if self.forks < 12 => {
                self.forks += 1;
                self.compare(worker, at(b'f'), (ffi::SQLITE_OK, 0))
            }
            (2, _) => {
                let to = self.below(NAMES.len());
                let renamed = fs::rename(self.path(name), self.path(to));
                if let Some(file) = self.model.names.remove(&name) {
                    renamed.map_err(|error| error.to_string())?;
                    self.model.names.insert(to, file);
                }
                Ok(())
            }
            (3, _) => {
                self.model.names.remove(&name);
                let _none = fs::remove_file(self.path(name));
                Ok(())
            }
            (_, None) => {
                let code = self.model.open(worker, slot, name, writes);
                self.compare(worker, at(b'o'), (code, 0))
            }
            (4..=8, Some(_)) => {
                self.model.close(worker, slot);
                self.compare(worker, at(b'c'), (ffi::SQLITE_OK, 0))
            }
            (9..=14, Some(open)) => {
                let code = self.model.write(open);
                self.compare(worker, at(b'w'), (code, 0))
            }
            (_, Some(open)) => {
                let rows = self.model.rows[open.file];
                self.compare(worker, at(b'r'), (ffi::SQLITE_OK, rows))
            }
        }
    }

    fn below(&self, count: usize) -> usize {
        self.random.below(count as u64) as usize
    }

    fn path(&self, name: usize) -> std::path::PathBuf {
        self.folder.join(NAMES[name])
    }

    fn compare(&mut self, worker: usize, order: [u8; 4], expected: Answer) -> Result<(), String> {
        let found = self.workers[worker].order(order)?;
        if found == expected {
            *self.codes.entry(found.0).or_insert(0) += 1;
            return Ok(());
        }
        let [what, slot, name, writes] = order;
        Err(format!(
            "{worker}, {} {slot} (name {name}, writes {writes}): {found:?}, not {expected:?}",
            char::from(what)
        ))
    }

    fn kill(&mut self, worker: usize) -> Result<(), String> {
        let new = Worker::start(self.folder, self.planted, &mut self.life);
        std::mem::replace(&mut self.workers[worker], new).child.kill();
        self.model.open[worker] = [None; SLOTS];
        self.model.written[worker].clear();
        Ok(())
    }
}

/// Runs `steps` steps from a seed; returns what was found, if anything.
fn run(seed: u64, steps: u64, planted: Option<Planted>) -> Result<BTreeMap<i32, u64>, String> {
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut life = Life(Some(ours), theirs);
    let start = |_| Worker::start(folder.path(), planted, &mut life);
    let workers = (0..WORKERS).map(start).collect();
    let mut run = Run {
        folder: folder.path(),
        planted,
        random: Random::new(seed),
        workers,
        model: Model::default(),
        life,
        forks: 0,
        codes: BTreeMap::new(),
    };
    for step in 0..steps {
        run.step().map_err(|wrong| format!("seed {seed}, step {step}: {wrong}"))?;
    }
    // Whatever is left has what was acknowledged.
    let Run { workers, model, codes, life: _life, .. } = run;
    workers.into_iter().for_each(|worker| worker.child.kill());
    for (name, file) in model.names {
        let connection = open(&folder.path().join(NAMES[name]), true).unwrap();
        let count = "SELECT count(*) FROM t";
        let rows: i64 = connection.query_row(count, [], |row| row.get(0)).unwrap();
        let expected = model.rows[file];
        if rows as u64 != expected {
            return Err(format!(
                "seed {seed}: {expected} rows were acknowledged, {rows} are there"
            ));
        }
    }
    Ok(codes)
}

#[test]
fn processes_and_names_are_as_the_model_says() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut codes = BTreeMap::new();
    for seed in 0..40 * budget() {
        for (code, count) in run(seed, STEPS, None).unwrap() {
            *codes.entry(code).or_insert(0) += count;
        }
    }
    println!("{codes:?}");
    let met = [ffi::SQLITE_OK, ffi::SQLITE_BUSY, ffi::SQLITE_READONLY, ffi::SQLITE_CANTOPEN];
    assert!(met.iter().all(|code| codes.get(code).is_some_and(|count| *count > 100)), "{codes:?}");
}

#[test]
fn planted_bugs_are_found() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for bug in [
        Planted::Here(Bug::MovedUnnoticed),
        Planted::Below(device::Bug::LockInherited),
        Planted::Below(device::Bug::ForkNotSeen),
    ] {
        let found = (0..10).find_map(|seed| run(seed, STEPS, Some(bug)).err());
        println!("{bug:?}: {}", found.expect("the bug was not found"));
    }
}
