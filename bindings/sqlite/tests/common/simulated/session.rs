//! A run of SQLite over the VFS and of its oracle.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use esker_device::sim::{SimDevice, SimImage};
use rusqlite::{Connection, Error};
use tempfile::TempDir;

use super::disk::{self, Disk, SuperJournals};
use super::oracle::{Oracle, State, rows, run, schemas, set_up};
use super::steps::{Case, Statement, Step};

/// What is known at some moment; states by their number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Point {
    pub durable: usize,
    pub visible: usize,
    /// What transactions would have made that failed since: it is unknown whether one took place.
    pub doubtful: BTreeSet<usize>,
    /// Versions with names.
    pub names: BTreeMap<u8, usize>,
    /// Names that were being given or taken when something failed.
    pub doubtful_names: BTreeSet<u8>,
}

impl Point {
    /// Knowledge of one state, which is there and durable.
    pub fn at(state: usize) -> Self {
        Self { durable: state, visible: state, ..Self::default() }
    }
}

/// A state that was reached, or attempted.
#[derive(Clone, Debug)]
pub struct Reached {
    pub state: State,
    body: Vec<Statement>,
    /// Whether it is one that never was, or was lost.
    pub is_out: bool,
}

/// What a run starts with.
#[derive(Clone, Debug)]
pub struct Base {
    /// The states of the runs before it.
    pub states: Arc<Vec<Reached>>,
    /// Which of them is there, and which versions have names.
    pub point: Point,
    /// The super-journals that are in the file system.
    pub journals: SuperJournals,
    /// The folder in which SQLite finds the databases.
    pub folder: Arc<TempDir>,
}

impl Base {
    /// The tables of a case, and a disk with them.
    pub fn prepared(case: &Case) -> (Self, SimImage) {
        let folder = disk::folder();
        let image = prepared(case, folder.path());
        let state = State { rows: Oracle::new(case).rows(), page_size: case.page_size };
        let states = vec![Reached { state, body: Vec::new(), is_out: false }];
        let (states, folder) = (Arc::new(states), Arc::new(folder));
        (Self { states, point: Point::at(0), journals: SuperJournals::new(), folder }, image)
    }
}

/// What there was when a run under a fault ended, before anything was looked at.
#[derive(Debug)]
pub struct Ended {
    pub point: Point,
    pub journals: SuperJournals,
}

/// The run.
#[derive(Debug)]
pub struct Session {
    case: Case,
    connection: Option<Connection>,
    /// A reader that stays, and what it sees.
    reader: Option<(Connection, usize)>,
    pub disk: Disk,
    oracle: Oracle,
    pub states: Vec<Reached>,
    pub point: Point,
    is_relaxed: bool,
    pub folder: Arc<TempDir>,
    pub ended: Option<Ended>,
}

/// A disk with the tables of a case, all of it durable.
pub fn prepared(case: &Case, folder: &Path) -> SimImage {
    let device = SimDevice::new();
    let disk = Disk::mount(device.clone(), folder, &case.options);
    let connection = connect(&disk, case).unwrap();
    set_up(&connection, case).unwrap();
    connection.close().unwrap();
    device.image()
}

/// Opens the databases of a case as one connection.
pub fn connect(disk: &Disk, case: &Case) -> rusqlite::Result<Connection> {
    let connection = disk.open(case.files[0], None)?;
    let (synchronous, pages) = (if case.is_relaxed { "NORMAL" } else { "FULL" }, case.cache_pages);
    for (schema, file) in schemas(case).iter().zip(case.files).skip(1) {
        let path = disk.folder.join(file);
        connection.execute_batch(&format!("ATTACH '{}' AS {schema}", disk::uri(&path, None)))?;
    }
    for schema in schemas(case) {
        connection.execute_batch(&format!(
            "PRAGMA {schema}.synchronous = {synchronous}; PRAGMA {schema}.cache_size = {pages}"
        ))?;
    }
    Ok(connection)
}

/// The same, to read them.
pub fn connect_read_only(disk: &Disk, case: &Case) -> rusqlite::Result<Connection> {
    let connection = disk.open_read_only(case.files[0])?;
    for (schema, file) in schemas(case).iter().zip(case.files).skip(1) {
        let uri = disk::read_only(&disk.folder.join(file));
        connection.execute_batch(&format!("ATTACH '{uri}' AS {schema}"))?;
    }
    Ok(connection)
}

pub fn name(n: u8) -> String {
    format!("name{n}")
}

pub fn page_size(connection: &Connection) -> rusqlite::Result<u32> {
    connection.query_row("PRAGMA page_size", [], |row| row.get(0))
}

impl Session {
    /// Begins on a disk that holds what `base` says. Nothing is opened yet.
    pub fn start(case: &Case, device: SimDevice, base: &Base) -> Self {
        let folder = base.folder.path();
        disk::put_super_journals(folder, &base.journals);
        let disk = Disk::mount(device, folder, &case.options);
        let mut states = base.states.to_vec();
        let oracle = turn(&mut states, base.point.visible, case);
        Self {
            case: case.clone(),
            connection: None,
            reader: None,
            disk,
            oracle,
            states,
            point: base.point.clone(),
            is_relaxed: case.is_relaxed,
            folder: Arc::clone(&base.folder),
            ended: None,
        }
    }

    pub fn state(&self) -> &State {
        &self.states[self.point.visible].state
    }

    pub fn connection(&mut self) -> rusqlite::Result<&Connection> {
        if self.connection.is_none() {
            // Now and then a connection reads before, and while, it is opened to be written.
            let is_late = self.states.len().is_multiple_of(2);
            let _reader = is_late.then(|| connect_read_only(&self.disk, &self.case)).transpose()?;
            let connection = connect(&self.disk, &self.case)?;
            self.adopt(&connection)?;
            self.is_relaxed = self.case.is_relaxed;
            self.connection = Some(connection);
        }
        Ok(self.connection.as_ref().unwrap())
    }

    /// After opening: what was in doubt is decided.
    fn adopt(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let rows = rows(connection, &self.case)?;
        let page_size = page_size(connection)?;
        let (state, point) = (State { rows, page_size }, &self.point);
        let found = find(&self.states, point.durable, &state, point, point);
        let found = found.unwrap_or_else(|| panic!("opened in a state that never was"));
        if found != self.point.visible {
            self.oracle = turn(&mut self.states, found, &self.case);
        }
        (self.point.visible, self.point.durable) = (found, found);
        self.point.doubtful.clear();
        Ok(())
    }

    fn reached(&mut self, rows: String, page_size: u32, body: &[Statement]) {
        let state = State { rows, page_size };
        let changes = state != *self.state();
        self.states.push(Reached { state, body: body.to_vec(), is_out: false });
        self.point.visible = self.states.len() - 1;
        self.point.doubtful.clear();
        if changes && !self.is_relaxed {
            self.point.durable = self.point.visible;
        }
    }

    fn attempted(&mut self, rows: String, page_size: u32, body: &[Statement]) {
        let state = State { rows, page_size };
        self.states.push(Reached { state, body: body.to_vec(), is_out: true });
        self.point.doubtful.insert(self.states.len() - 1);
    }

    /// Does one thing. An error is what SQLite said; a wrong answer panics.
    pub fn apply(&mut self, step: &Step) -> rusqlite::Result<()> {
        self.connection()?;
        match step {
            Step::Transaction { body, commits } => self.transaction(body, *commits),
            Step::PageSize(bytes) => self.vacuum(*bytes),
            Step::Pin(n) | Step::Unpin(n) => self.pin(*n, matches!(step, Step::Pin(_))),
            Step::Synchronous(full) => {
                let value = if *full { "FULL" } else { "NORMAL" };
                let set = format!("PRAGMA synchronous = {value}");
                self.connection()?.execute_batch(&set)?;
                self.is_relaxed = !full;
                Ok(())
            }
            Step::Compact => {
                self.connection()?.query_row("PRAGMA esker_compact", [], |_| Ok(()))?;
                self.point.durable = self.point.visible;
                Ok(())
            }
            Step::Hold => self.hold(),
            Step::Reopen => {
                self.reader = None;
                self.connection = None;
                self.connection().map(drop)
            }
        }
    }

    fn transaction(&mut self, body: &[Statement], commits: bool) -> rusqlite::Result<()> {
        let next = self.oracle.begin(body);
        let size = self.state().page_size;
        let outcome = transact(self.connection()?, body, commits);
        self.oracle.end(commits && outcome.is_ok());
        match (&outcome, commits) {
            (Ok(()), true) => self.reached(next, size, body),
            (Err(_), true) => self.attempted(next, size, body),
            (_, false) => {}
        }
        outcome
    }

    fn vacuum(&mut self, bytes: u32) -> rusqlite::Result<()> {
        let rows = self.state().rows.clone();
        let set = format!("PRAGMA page_size = {bytes}; VACUUM");
        let outcome = self.connection()?.execute_batch(&set);
        match &outcome {
            Ok(()) => self.reached(rows, bytes, &[]),
            Err(_) => self.attempted(rows, bytes, &[]),
        }
        outcome
    }

    fn pin(&mut self, n: u8, gives: bool) -> rusqlite::Result<()> {
        if self.point.doubtful_names.contains(&n) || self.point.names.contains_key(&n) == gives {
            return Ok(());
        }
        let pragma = if gives { "esker_pin" } else { "esker_unpin" };
        let pragma = format!("PRAGMA {pragma} = {}", name(n));
        if let Err(error) = self.connection()?.query_row(&pragma, [], |_| Ok(())) {
            self.point.doubtful_names.insert(n);
            return Err(error);
        }
        self.point.durable = self.point.visible;
        match gives {
            true => self.point.names.insert(n, self.point.visible),
            false => self.point.names.remove(&n),
        };
        Ok(())
    }

    /// Has a reader stay on what is there now.
    fn hold(&mut self) -> rusqlite::Result<()> {
        let reader = connect_read_only(&self.disk, &self.case)?;
        reader.execute_batch("BEGIN")?;
        assert_eq!(rows(&reader, &self.case)?, self.state().rows);
        self.reader = Some((reader, self.point.visible));
        Ok(())
    }

    /// Compares what the reader that stays sees with what it saw.
    fn judge_reader(&self) {
        if let Some((reader, seen)) = &self.reader {
            assert_eq!(rows(reader, &self.case).unwrap(), self.states[*seen].state.rows);
        }
    }

    /// Compares what is seen by the connection that writes, and by another one, with the last
    /// state that was acknowledged.
    pub fn judge_live(&mut self) {
        self.connection().unwrap();
        let state = self.state().clone();
        let case = self.case.clone();
        let seen = rows(self.connection().unwrap(), &case).unwrap();
        assert!(seen == state.rows, "the writer's own connection sees what is not committed");
        let other = connect(&self.disk, &case).unwrap();
        let seen =
            State { rows: rows(&other, &case).unwrap(), page_size: page_size(&other).unwrap() };
        assert!(seen == state, "a reader sees what is not committed");
        self.judge_reader();
    }

    /// Closes the connections.
    pub fn close(&mut self) -> rusqlite::Result<()> {
        self.reader = None;
        self.connection.take().map_or(Ok(()), |connection| connection.close().map_err(|(_, e)| e))
    }
}

/// Makes a state the newest one. The oracle of it.
fn turn(states: &mut [Reached], found: usize, case: &Case) -> Oracle {
    states[found].is_out = false;
    for state in &mut states[found + 1..] {
        state.is_out = true;
    }
    let oracle = Oracle::new(case);
    for reached in states[..=found].iter().filter(|reached| !reached.is_out) {
        oracle.begin(&reached.body);
        oracle.end(true);
    }
    assert_eq!(oracle.rows(), states[found].state.rows);
    oracle
}

/// Which state this is of those that may be there, where `now` is known and `next` was under way:
/// not one before `least`.
pub fn find(
    states: &[Reached],
    least: usize,
    state: &State,
    now: &Point,
    next: &Point,
) -> Option<usize> {
    let promised = (least..=next.visible).rev();
    let promised = promised.filter(|number| !states[*number].is_out);
    let doubtful = now.doubtful.union(&next.doubtful).copied();
    promised.chain(doubtful).find(|number| states[*number].state == *state)
}

/// Runs a transaction. One that fails is rolled back, if SQLite has not done so.
fn transact(connection: &Connection, body: &[Statement], commits: bool) -> rusqlite::Result<()> {
    let end = if commits { "COMMIT" } else { "ROLLBACK" };
    let all = || {
        connection.execute_batch("BEGIN")?;
        body.iter().try_for_each(|statement| run(connection, statement))?;
        connection.execute_batch(end)
    };
    let outcome = all();
    if outcome.is_err() && !connection.is_autocommit() {
        let rolled_back = connection.execute_batch("ROLLBACK");
        assert!(rolled_back.as_ref().map_or_else(is_of_the_device, |()| true), "{rolled_back:?}");
    }
    outcome
}

/// Whether an error is one of those that a failing device may cause.
pub fn is_of_the_device(error: &Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code & 0xff);
    matches!(code, Some(rusqlite::ffi::SQLITE_IOERR | rusqlite::ffi::SQLITE_FULL))
}
