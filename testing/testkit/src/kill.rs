//! A real process, killed while it writes to the real file system.
//!
//! The child writes batches and says so on a pipe; the parent kills it at a random moment, opens
//! the store and compares. A killed process loses nothing that it handed to the operating
//! system, so every acknowledged batch must be there, whole, buffered ones included; of the batch
//! that was under way, all or nothing.
//!
//! Batch `n` writes `n` under the keys of eight slots in two keyspaces, one of each kind of index,
//! and deletes one key, so that the state after batch `n` follows from `n` alone.

use std::collections::BTreeMap;
use std::io::{BufRead as _, Write as _};
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use esker::{Db, Durability, IndexKind, Keyspace, KeyspaceOptions, Snapshot};

use crate::random::Random;
use crate::violation::{Oracle, Verdict, Violation, ensure};

/// Names the child's store to the child.
pub const CHILD_STORE: &str = "ESKER_KILL_CHILD_STORE";
const NAMES: [&str; 2] = ["left", "right"];
const SLOTS: u64 = 400;
const SLOTS_OF_BATCH: u64 = 8;

fn open(path: &Path) -> esker::Result<Db> {
    Db::builder(path).memory_budget(128 << 10).log_segment_bytes(16 << 10).open()
}

fn slots_of(batch: u64) -> impl Iterator<Item = u64> {
    let random = Random::new(batch);
    (0..SLOTS_OF_BATCH).map(move |_| random.below(SLOTS))
}

fn key(slot: u64) -> Vec<u8> {
    format!("slot{slot:05}").into_bytes()
}

fn value(batch: u64, slot: u64) -> Vec<u8> {
    format!("{batch:016}-{slot}-{}", "x".repeat((batch % 90) as usize)).into_bytes()
}

/// The contents of both keyspaces after batch `last`.
fn expected(last: u64) -> Contents {
    let mut state = Contents::new();
    go_on(&mut state, 1..=last);
    state
}

/// Applies batches to the contents.
fn go_on(state: &mut Contents, batches: RangeInclusive<u64>) {
    for batch in batches {
        for (at, slot) in slots_of(batch).enumerate() {
            if at as u64 == batch % SLOTS_OF_BATCH {
                state.remove(&key(slot));
            } else {
                state.insert(key(slot), value(batch, slot));
            }
        }
        state.insert(b"last".to_vec(), batch.to_be_bytes().to_vec());
    }
}

/// The entries of a keyspace.
type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// A follower of the store that the child writes, in this process.
#[derive(Debug)]
pub struct Watcher {
    db: Db,
    random: Random,
    /// The last batch that was seen, and what it leaves.
    last: u64,
    state: Contents,
    /// Snapshots, each with what it must show.
    held: Vec<(Snapshot, Contents)>,
    /// Looks that found something new.
    pub news: u64,
    /// Snapshots that were compared with what they showed when they were taken.
    pub compared: u64,
    /// Reads that were refused because the writer may not have kept the number.
    pub refused: u64,
}

impl Watcher {
    /// Follows the store at `path`, which must exist.
    ///
    /// # Errors
    /// The store cannot be opened.
    pub fn new(path: &Path, seed: u64) -> Verdict<Self> {
        let db = Db::builder(path).follow(true).memory_budget(2 << 20).open().map_err(reads)?;
        let (state, held) = (Contents::new(), Vec::new());
        Ok(Self {
            db,
            random: Random::new(seed),
            last: 0,
            state,
            held,
            news: 0,
            compared: 0,
            refused: 0,
        })
    }

    /// Looks at the store until `wait` has passed.
    ///
    /// # Errors
    /// A broken promise.
    pub fn look_for(&mut self, wait: Duration) -> Verdict {
        let begun = Instant::now();
        while begun.elapsed() < wait {
            self.look()?;
        }
        Ok(())
    }

    /// Whether it has seen enough to mean something.
    #[must_use]
    pub fn has_seen_enough(&self) -> bool {
        self.news > 20 && self.compared > 10 && self.refused < self.news
    }

    fn look(&mut self) -> Verdict {
        self.db.refresh().map_err(reads)?;
        let snapshot = self.db.snapshot().map_err(reads)?;
        let Some(left) = self.db.open_keyspace(NAMES[0]).map_err(reads)? else { return Ok(()) };
        let Some(right) = self.db.open_keyspace(NAMES[1]).map_err(reads)? else { return Ok(()) };
        // Where the writer lost the processor between two steps, its number may not be certain to
        // be kept: then a snapshot is refused at last, and shows nothing wrong.
        match self.read_all(snapshot, [&left, &right]) {
            Err(Read::Refused) => {
                self.refused += 1;
                Ok(())
            }
            Err(Read::Broken(violation)) => Err(violation),
            Ok(()) => Ok(()),
        }
    }

    /// The last batch as of a snapshot, and some reads.
    fn read_all(&mut self, snapshot: Snapshot, [left, right]: [&Keyspace; 2]) -> Result<(), Read> {
        let mut last = 0;
        for keyspace in [left, right] {
            let found = snapshot.get(keyspace, "last")?;
            let found = found.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes);
            ensure(last == 0 || last == found, Oracle::CommitsAreWhole, || {
                format!("the follower sees batch {last} in one keyspace and {found} in another")
            })?;
            last = found;
        }
        ensure(last >= self.last, Oracle::AcknowledgedIsThere, || {
            format!("the follower has seen batch {} and goes back to {last}", self.last)
        })?;
        self.news += u64::from(last > self.last);
        go_on(&mut self.state, self.last + 1..=last);
        self.last = last;
        self.read(snapshot, left)
    }

    /// Some reads as of a snapshot of the last batch.
    fn read(&mut self, snapshot: Snapshot, left: &Keyspace) -> Result<(), Read> {
        let last = self.last;
        match self.random.below(6) {
            0 => self.compare(&snapshot, &self.state)?,
            1 if self.held.len() < 8 => self.held.push((snapshot, self.state.clone())),
            2 if !self.held.is_empty() => {
                let place = self.random.below(self.held.len() as u64) as usize;
                let (snapshot, state) = self.held.swap_remove(place);
                self.compare(&snapshot, &state)?;
                self.compared += 1;
            }
            _ => {
                let key = key(self.random.below(SLOTS));
                let found = snapshot.get(left, &key)?;
                ensure(found.as_ref() == self.state.get(&key), Oracle::ContentMatches, || {
                    format!("the follower has another value of {key:?} after batch {last}")
                })?;
            }
        }
        Ok(())
    }

    fn compare(&self, snapshot: &Snapshot, state: &Contents) -> Result<(), Read> {
        for name in NAMES {
            let Some(keyspace) = self.db.open_keyspace(name)? else { continue };
            let entries: esker::Result<Contents> = snapshot.iter(&keyspace)?.collect();
            ensure(entries? == *state, Oracle::ContentMatches, || {
                format!("the follower's snapshot at {} of {name} differs", snapshot.seq())
            })?;
        }
        Ok(())
    }
}

/// Why a read as of a snapshot gave no right answer.
enum Read {
    Refused,
    Broken(Violation),
}

impl From<Violation> for Read {
    fn from(violation: Violation) -> Self {
        Self::Broken(violation)
    }
}

impl From<esker::Error> for Read {
    fn from(error: esker::Error) -> Self {
        if matches!(error, esker::Error::TooOld { .. }) {
            Self::Refused
        } else {
            Self::Broken(reads(error))
        }
    }
}

fn reads(error: esker::Error) -> Violation {
    Violation::new(Oracle::ContentMatches, format!("the follower fails: {error}"))
}

/// The child: opens the store, finds where it was, and writes on until it is killed. Each line
/// on standard output is the number of an acknowledged batch.
///
/// # Errors
/// The store's error, or that of a closed pipe.
pub fn child(path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let db = open(path)?;
    let options = |kind| KeyspaceOptions::default().memtable_bytes(Some(4 << 10)).index(kind);
    let left = db.keyspace(NAMES[0], options(IndexKind::FdTree))?;
    let keyspaces = [left, db.keyspace(NAMES[1], options(IndexKind::Lsm))?];
    let last = keyspaces[0].get("last")?;
    let last = last.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes);
    let mut pipe = std::io::stdout();
    // The test harness may have written a line of its own without ending it.
    writeln!(pipe)?;
    for number in last + 1.. {
        let mut batch = db.batch();
        for keyspace in &keyspaces {
            for (at, slot) in slots_of(number).enumerate() {
                if at as u64 == number % SLOTS_OF_BATCH {
                    batch.remove(keyspace, key(slot));
                } else {
                    batch.insert(keyspace, key(slot), value(number, slot));
                }
            }
            batch.insert(keyspace, "last", number.to_be_bytes());
        }
        let synced = number % 16 == 0;
        batch.commit_with(if synced { Durability::Synced } else { Durability::Buffered })?;
        writeln!(pipe, "ACK {number}")?;
        pipe.flush()?;
    }
    Ok(())
}

/// One cycle: starts the child, kills it after `wait` past its first acknowledgement, and looks
/// at the store. Returns the last acknowledged batch.
///
/// # Errors
/// A broken promise.
pub fn cycle(
    path: &Path,
    spawn: &mut dyn FnMut() -> std::io::Result<Child>,
    wait: Duration,
) -> Verdict<u64> {
    cycle_with(path, spawn, &mut || {
        std::thread::sleep(wait);
        Ok(())
    })
}

/// The same with something that is done while the child writes, in the place of a wait.
///
/// # Errors
/// A broken promise, also one that is found meanwhile.
pub fn cycle_with(
    path: &Path,
    spawn: &mut dyn FnMut() -> std::io::Result<Child>,
    meanwhile: &mut dyn FnMut() -> Verdict,
) -> Verdict<u64> {
    let harness = |error: std::io::Error| Violation::new(Oracle::Harness, error.to_string());
    let mut child = spawn().map_err(harness)?;
    let Some(pipe) = child.stdout.take() else {
        return Err(Violation::new(Oracle::Harness, "the child has no pipe"));
    };
    let mut lines = std::io::BufReader::new(pipe).lines().map_while(Result::ok);
    let acknowledged = |line: String| line.strip_prefix("ACK ")?.parse::<u64>().ok();
    let first = lines.by_ref().find_map(acknowledged);
    // The child must not wait for its pipe.
    let reader = std::thread::spawn(move || lines.filter_map(acknowledged).last());
    let found = meanwhile();
    child.kill().map_err(harness)?;
    child.wait().map_err(harness)?;
    let last = reader.join().ok().flatten().or(first);
    found?;
    let last = last.ok_or_else(|| Violation::new(Oracle::WorksOn, "no batch was acknowledged"))?;
    examine(path, last)?;
    Ok(last)
}

/// Compares the store with what batch `acknowledged`, or the one after it, leaves.
fn examine(path: &Path, acknowledged: u64) -> Verdict {
    let opens = |error: esker::Error| Violation::new(Oracle::Opens, error.to_string());
    let db = open(path).map_err(opens)?;
    let mut states = Vec::new();
    for name in NAMES {
        let keyspace = db.open_keyspace(name).map_err(opens)?;
        let keyspace = keyspace.ok_or_else(|| Violation::new(Oracle::KeyspacesExist, name))?;
        let entries: esker::Result<BTreeMap<_, _>> = keyspace.iter().map_err(opens)?.collect();
        states.push(entries.map_err(opens)?);
    }
    ensure(states.first() == states.last(), Oracle::CommitsAreWhole, || {
        format!("the keyspaces differ after batch {acknowledged}")
    })?;
    let state = states.pop().unwrap_or_default();
    let last = state.get(&b"last"[..]).and_then(|bytes| bytes.as_slice().try_into().ok());
    let last = last.map_or(0, u64::from_be_bytes);
    ensure(last >= acknowledged, Oracle::AcknowledgedIsThere, || {
        format!("batch {acknowledged} was acknowledged, {last} is the last one there")
    })?;
    ensure(last <= acknowledged + 1, Oracle::NothingFromNowhere, || {
        format!("batch {last} is there, {acknowledged} was the last acknowledged")
    })?;
    ensure(state == expected(last), Oracle::ContentMatches, || {
        format!("the store does not hold what batch {last} left")
    })?;
    crate::verify::check(&db)?;
    db.close().map_err(opens)
}

/// Starts this very program again as the child, running only its test `test`.
///
/// # Errors
/// When the program cannot be started.
pub fn spawn_test(test: &str, path: &Path) -> std::io::Result<Child> {
    command(test).env(CHILD_STORE, path).stderr(Stdio::null()).spawn()
}

/// This very program, running only its test `test`; what it prints goes to a pipe.
#[must_use]
pub fn command(test: &str) -> Command {
    let program = std::env::current_exe().unwrap_or_default();
    let mut command = Command::new(program);
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).stdout(Stdio::piped());
    command
}
