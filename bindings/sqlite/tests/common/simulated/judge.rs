//! The contents that are allowed after a crash.

use std::collections::BTreeMap;
use std::path::Path;

use esker_device::sim::{CrashModel, CrashState, SimImage, Survivors, Trace};
use esker_harness::crash::Promise;
use rusqlite::Connection;

use super::disk::{Disk, PRESENCE, SuperJournals, put_super_journals};
use super::oracle::{State, rows, schemas};
use super::session::{Point, Reached, connect, connect_read_only, find, name, page_size};
use super::steps::Case;

/// Which super-journals may be in the file system after a crash: one came or went between two
/// events of the disk, and either may be what the crash left.
pub fn left_by(history: &[SuperJournals], state: &CrashState<'_>) -> Vec<SuperJournals> {
    let number = |mark: &u64| (mark & PRESENCE != 0).then_some((mark & !PRESENCE) as usize);
    let Some(last) = state.marks.iter().rev().find_map(number) else {
        return vec![history[0].clone()];
    };
    let mut all = vec![history[last].clone()];
    let since = trailing_marks(state.trace, state.position);
    if state.marks.iter().rev().take(since).any(|mark| number(mark) == Some(last)) {
        all.push(history[last - 1].clone());
    }
    all
}

/// The number of marks directly before a position.
fn trailing_marks(trace: &Trace, position: usize) -> usize {
    let before = |position: usize| trace.marks_before(position).len();
    (1..=position).take_while(|back| before(position) - before(position - back) == *back).count()
}

/// The last things that happened before a crash.
pub fn before(state: &CrashState<'_>) -> String {
    let from = state.position.saturating_sub(20);
    let steps = (from..state.position).map(|at| state.trace.describe(at));
    steps.collect::<Vec<_>>().join("\n")
}

/// Judges what a run left.
pub struct Judge<'a> {
    pub case: &'a Case,
    /// What was reached, or attempted.
    pub states: &'a [Reached],
    /// The folder in which SQLite finds the databases.
    pub folder: &'a Path,
    pub promise: &'a Promise<'a, Point>,
    /// Chooses in which order the files are opened, and whether they are written to afterwards.
    pub number: u64,
}

impl Judge<'_> {
    /// Opens what is left, through SQLite, with super-journals, and judges it; again after the
    /// power failed once more; and works on with it. Gives back what is there.
    pub fn judge(&self, left: &SimImage, journals: &SuperJournals) -> Point {
        put_super_journals(self.folder, journals);
        let disk = self.disk(left);
        let read = self.read_only(&disk);
        if self.number % 2 == 1 {
            // Another order of opening: what was prepared is decided file by file.
            let last = self.case.files[self.case.files.len() - 1];
            drop(self.opened(disk.open(last, None), &disk));
        }
        let found = self.judge_once(&disk);
        let state = &self.states[found.visible].state;
        assert!(read == *state, "who only reads sees another state");
        let again = disk.device.crash(&Survivors::nothing(), &CrashModel::default());
        drop(disk);
        let disk = self.disk(&again);
        assert_eq!(self.judge_once(&disk), found, "another opening, another state");
        if self.number.is_multiple_of(4) {
            self.works_on(&disk, state);
        }
        found
    }

    fn disk(&self, image: &SimImage) -> Disk {
        Disk::of_image(image, self.folder, &self.case.options)
    }

    /// The state that a read-only connection sees. Nothing is written for that.
    fn read_only(&self, disk: &Disk) -> State {
        disk.device.record();
        let connection = self.opened(connect_read_only(disk, self.case), disk);
        let refused = connection.execute_batch("DELETE FROM u").unwrap_err();
        assert_eq!(refused.sqlite_error_code(), Some(rusqlite::ErrorCode::ReadOnly));
        let state = self.state(&connection);
        drop(connection);
        assert_eq!(disk.device.take_trace().unwrap().len(), 0, "an opening to read has written");
        state
    }

    /// A connection, which must be there; else what the stores say.
    fn opened(&self, connection: rusqlite::Result<Connection>, disk: &Disk) -> Connection {
        connection.unwrap_or_else(|error| {
            let stores: Vec<_> = self.case.files.iter().map(|file| disk.store(file)).collect();
            panic!("{error}; {stores:?}")
        })
    }

    fn state(&self, connection: &Connection) -> State {
        let rows = rows(connection, self.case).unwrap();
        State { rows, page_size: page_size(connection).unwrap() }
    }

    fn judge_once(&self, disk: &Disk) -> Point {
        let connection = self.opened(connect(disk, self.case), disk);
        for schema in schemas(self.case) {
            let check = format!("PRAGMA {schema}.integrity_check");
            let said: String = connection.query_row(&check, [], |row| row.get(0)).unwrap();
            assert_eq!(said, "ok");
        }
        let state = self.state(&connection);
        // What was handed to the system survives where the system does.
        let Promise { now, next, is_whole } = self.promise;
        let least = if *is_whole { now.visible } else { now.durable };
        let found = find(self.states, least, &state, now, next);
        let found = found.unwrap_or_else(|| panic!("{}", self.explained(least, &state)));
        let doubtful_names = next.doubtful_names.clone();
        Point { names: self.judge_names(disk), doubtful_names, ..Point::at(found) }
    }

    /// What is there instead of what was promised.
    fn explained(&self, least: usize, state: &State) -> String {
        let Self { states, promise, .. } = self;
        let known: Vec<usize> =
            (0..states.len()).filter(|number| states[*number].state == *state).collect();
        let count = states.len();
        format!("states {known:?} are there (none: a mix), of {count}, from {least}: {promise:?}")
    }

    /// The versions with names, other than those whose name is in doubt.
    fn judge_names(&self, disk: &Disk) -> BTreeMap<u8, usize> {
        let Promise { now, next, .. } = self.promise;
        let mut names = BTreeMap::new();
        for n in now.names.keys().chain(next.names.keys()) {
            if next.doubtful_names.contains(n) {
                continue;
            }
            let (before, after) = (now.names.get(n), next.names.get(n));
            match disk.open(self.case.files[0], Some(&name(*n))) {
                Ok(version) => {
                    let seen = rows(&version, self.case).unwrap();
                    let mut known = [before, after].into_iter().flatten().copied();
                    let state = known.find(|state| self.states[*state].state.rows == seen);
                    let state = state.unwrap_or_else(|| panic!("version {n} is another one"));
                    names.insert(*n, state);
                }
                Err(error) => {
                    assert!(before.is_none() || after.is_none(), "version {n} is gone: {error}");
                }
            }
        }
        names
    }

    /// One more transaction, and it is there after closing.
    fn works_on(&self, disk: &Disk, found: &State) {
        let connection = connect(disk, self.case).unwrap();
        for schema in schemas(self.case) {
            let insert = format!("INSERT INTO {schema}.u VALUES (-1)");
            connection.execute_batch(&insert).unwrap();
        }
        connection.close().unwrap();
        let connection = connect(disk, self.case).unwrap();
        let seen = rows(&connection, self.case).unwrap();
        let added = |line: &&str| line.ends_with(" -1 ");
        let kept: String =
            seen.lines().filter(|line| !added(line)).map(|line| format!("{line}\n")).collect();
        assert_eq!(seen.lines().filter(added).count(), self.case.files.len());
        assert_eq!(kept, found.rows);
    }
}
