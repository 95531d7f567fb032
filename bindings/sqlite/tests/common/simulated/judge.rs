//! The contents that are allowed after a crash.

use std::path::Path;

use esker_device::sim::{CrashModel, CrashState, SimImage, Survivors, Trace};
use esker_harness::crash;

use super::disk::{Disk, PRESENCE, SuperJournal, put_super_journal};
use super::oracle::{State, rows, schemas};
use super::session::{Point, Session, connect, connect_read_only, name, page_size};
use super::steps::Case;

/// What is promised at a crash.
#[derive(Debug)]
pub struct Promise<'a> {
    pub least: usize,
    pub now: &'a Point,
    pub next: &'a Point,
}

/// What was known before a crash; `None` before the first mark.
pub fn promise<'a>(session: &'a Session, state: &CrashState<'_>) -> Option<Promise<'a>> {
    let promised = crash::Promise::at(state, PRESENCE, &session.points, &session.point)?;
    let crash::Promise { now, next, is_whole } = promised;
    // What was handed to the system survives where the system does.
    let least = if is_whole { now.visible } else { now.durable };
    Some(Promise { least, now, next })
}

/// Which super-journals may be in the file system after a crash: it came or went between two
/// events of the disk, and either may be what the crash left.
pub fn super_journals(session: &Session, state: &CrashState<'_>) -> Vec<Option<SuperJournal>> {
    let history = session.disk.history.lock().unwrap();
    let number = |mark: &u64| (mark & PRESENCE != 0).then_some((mark & !PRESENCE) as usize);
    let Some(last) = state.marks.iter().rev().find_map(number) else { return vec![None] };
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

/// Opens what a crash left, through SQLite, and judges it; again after the power failed once more;
/// and works on with it.
pub fn judge(session: &Session, promise: &Promise<'_>, left: &SimImage, number: u64) -> usize {
    let case = &session.case;
    let folder = session.disk.folder.clone();
    let disk = Disk::of_image(left, &folder, &case.options);
    let read = read_only(session, &disk);
    if number % 2 == 1 {
        // Another order of opening: what was prepared is decided file by file.
        drop(opened(disk.open(case.files[case.files.len() - 1], None), &disk, case));
    }
    let found = judge_once(session, promise, &disk);
    assert!(read == session.states[found].state, "who only reads sees another state");
    let again = disk.device.crash(&Survivors::nothing(), &CrashModel::default());
    drop(disk);
    let disk = Disk::of_image(&again, &folder, &case.options);
    assert_eq!(judge_once(session, promise, &disk), found, "another opening, another state");
    if number.is_multiple_of(4) {
        works_on(session, &disk, found);
    }
    found
}

/// The state that a read-only connection sees. Nothing is written for that.
fn read_only(session: &Session, disk: &Disk) -> State {
    let case = &session.case;
    disk.device.record();
    let connection = opened(connect_read_only(disk, case), disk, case);
    let refused = connection.execute_batch("DELETE FROM u").unwrap_err();
    assert_eq!(refused.sqlite_error_code(), Some(rusqlite::ErrorCode::ReadOnly));
    let (rows, page_size) = (rows(&connection, case).unwrap(), page_size(&connection).unwrap());
    drop(connection);
    assert_eq!(disk.device.take_trace().unwrap().len(), 0, "an opening to read has written");
    State { rows, page_size }
}

/// A connection, which must be there; else what the stores say.
fn opened(
    connection: rusqlite::Result<rusqlite::Connection>,
    disk: &Disk,
    case: &Case,
) -> rusqlite::Connection {
    connection.unwrap_or_else(|error| {
        let stores: Vec<_> = case.files.iter().map(|file| disk.store(file)).collect();
        panic!("{error}; {stores:?}")
    })
}

/// The last things that happened before a crash.
pub fn before(state: &CrashState<'_>) -> String {
    let from = state.position.saturating_sub(20);
    let steps = (from..state.position).map(|at| state.trace.describe(at));
    steps.collect::<Vec<_>>().join("\n")
}

fn judge_once(session: &Session, promise: &Promise<'_>, disk: &Disk) -> usize {
    let case = &session.case;
    let connection = opened(connect(disk, case), disk, case);
    for schema in schemas(case) {
        let check = format!("PRAGMA {schema}.integrity_check");
        let said: String = connection.query_row(&check, [], |row| row.get(0)).unwrap();
        assert_eq!(said, "ok");
    }
    let state = State {
        rows: rows(&connection, case).unwrap(),
        page_size: page_size(&connection).unwrap(),
    };
    let found = session.find_from(promise.least, &state, promise.now, promise.next);
    let found = found.unwrap_or_else(|| panic!("{}", explained(session, promise, &state)));
    judge_names(session, promise, disk);
    found
}

/// What is there instead of what was promised.
fn explained(session: &Session, promise: &Promise<'_>, state: &State) -> String {
    let known: Vec<usize> = (0..session.states.len())
        .filter(|number| session.states[*number].state == *state)
        .collect();
    format!("states {known:?} are there (none: a mix), of {} {promise:?}", session.states.len())
}

fn judge_names(session: &Session, promise: &Promise<'_>, disk: &Disk) {
    let Promise { now, next, .. } = promise;
    for n in now.names.keys().chain(next.names.keys()) {
        if next.doubtful_names.contains(n) {
            continue;
        }
        let (before, after) = (now.names.get(n), next.names.get(n));
        match disk.open(session.case.files[0], Some(&name(*n))) {
            Ok(version) => {
                let seen = rows(&version, &session.case).unwrap();
                let is_known = [before, after]
                    .into_iter()
                    .flatten()
                    .any(|state| session.states[*state].state.rows == seen);
                assert!(is_known, "version {n} is another one");
            }
            Err(error) => {
                assert!(before.is_none() || after.is_none(), "version {n} is gone: {error}");
            }
        }
    }
}

/// One more transaction, and it is there after closing.
fn works_on(session: &Session, disk: &Disk, found: usize) {
    let case = &session.case;
    let connection = connect(disk, case).unwrap();
    for schema in schemas(case) {
        let insert = format!("INSERT INTO {schema}.u VALUES (-1)");
        connection.execute_batch(&insert).unwrap();
    }
    connection.close().unwrap();
    let connection = connect(disk, case).unwrap();
    let seen = rows(&connection, case).unwrap();
    let added = |line: &&str| line.ends_with(" -1 ");
    let kept: String =
        seen.lines().filter(|line| !added(line)).map(|line| format!("{line}\n")).collect();
    assert_eq!(seen.lines().filter(added).count(), case.files.len());
    assert_eq!(kept, session.states[found].state.rows);
}

/// Judges a disk that was left, with each super-journal that may be there.
pub fn judge_each(
    session: &Session,
    promise: &Promise<'_>,
    left: &SimImage,
    journals: &[Option<SuperJournal>],
    number: u64,
) {
    let folder: &Path = &session.disk.folder;
    for journal in journals {
        put_super_journal(folder, journal.as_ref());
        judge(session, promise, left, number);
    }
    put_super_journal(folder, None);
}
