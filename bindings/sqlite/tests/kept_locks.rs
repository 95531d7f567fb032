//! Several stores whose locks are kept (`locking_mode=exclusive`), on a device of which every
//! operation fails, one at a time.
//!
//! Whatever fails: SQLite says `SQLITE_IOERR` or `SQLITE_FULL`; after the rollback the connection
//! reads the last state that was acknowledged, in all files, and so do others; where the device is
//! full, and then is not, it writes again. After a crash it is that state, or the one whose commit
//! failed, in all files.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/simulated/mod.rs"]
mod simulated;

use std::path::Path;

use esker_device::sim::{
    CrashModel, Effect, Failure, Fault, FaultPlan, OpKind, SimImage, Survivors,
};
use esker_harness::counts::{Counts, budget};
use esker_harness::violation::{Verdict, without_panic};
use esker_sqlite::planted::{self, Bug};
use rusqlite::{Connection, ErrorCode, OpenFlags};

use simulated::disk::{self, Disk, SuperJournals, folder, put_super_journals, super_journals};
use simulated::session::{connect, is_of_the_device, prepared};
use simulated::steps::{Case, cases};

const ROUNDS: i64 = 6;
const MODES: [&str; 5] = ["delete", "truncate", "persist", "memory", "off"];
const WITH_PLAIN: [(&str, bool); 2] = [("delete", true), ("truncate", true)];

/// What a file holds: how many rows, and the sum of what each transaction changes in all of them.
type Sum = (i64, i64);

fn sum(connection: &Connection, schema: &str) -> rusqlite::Result<Sum> {
    let sql = format!("SELECT count(*), sum(k) FROM {schema}.t");
    connection.query_row(&sql, [], |row| Ok((row.get(0)?, row.get(1)?)))
}

/// What the transactions leave in an ordinary file.
fn plain(connection: &Connection) -> Option<i64> {
    connection.query_row("SELECT max(x) FROM main.p", [], |row| row.get(0)).unwrap()
}

fn case() -> Case {
    let case = cases().into_iter().find(|case| case.name == "attached").unwrap();
    // Two hundred rows are more pages than the cache and the store keep in memory.
    case.of_rows(200)
}

/// A connection that keeps the locks of both files, from its first transaction on.
fn keep(disk: &Disk, case: &Case, mode: &str) -> Connection {
    let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI;
    esker_sqlite::link().unwrap();
    let main = if is_one(mode) { disk.folder.join("plain.db") } else { ":memory:".into() };
    let connection = Connection::open_with_flags(main, flags).unwrap();
    let prepare = "PRAGMA temp_store = memory; CREATE TABLE IF NOT EXISTS p(x UNIQUE)";
    connection.execute_batch(prepare).unwrap();
    for (schema, file) in ["a", "b"].iter().zip(case.files) {
        let uri = disk::uri(&disk.folder.join(file), None);
        let pages = case.cache_pages;
        connection
            .execute_batch(&format!(
                "ATTACH '{uri}' AS {schema}; PRAGMA {schema}.cache_size = {pages}"
            ))
            .unwrap();
    }
    let set = format!("PRAGMA locking_mode = exclusive; PRAGMA journal_mode = {mode}");
    connection.execute_batch(&set).unwrap();
    connection
}

/// Changes all rows of both files; the second round of three leaves most of that in the cache.
fn transaction(round: i64) -> String {
    within(round, "")
}

/// The same, with another statement in the transaction.
fn within(round: i64, more: &str) -> String {
    let which = if round % 3 == 1 { "WHERE id % 50 = 0" } else { "" };
    format!(
        "BEGIN; {more};
         UPDATE a.t SET k = k + 1, v = printf('%d %.*c', {round}, 90, 'v') {which};
         INSERT INTO a.t(k, v) VALUES (1000, 'new');
         UPDATE b.t SET k = k + 1, v = printf('%d %.*c', {round}, 90, 'w') {which};
         INSERT INTO b.t(k, v) VALUES (1000, 'new');
         COMMIT"
    )
}

#[derive(Clone, Copy, Debug)]
struct Failing {
    mode: &'static str,
    kind: OpKind,
    nth: u64,
    failure: Failure,
    is_sticky: bool,
    /// Whether an ordinary file takes part, which ends it that stores agree after a crash.
    has_plain: bool,
}

/// What was acknowledged, and what the transaction would have made whose commit failed.
#[derive(Debug)]
struct Known {
    now: Sum,
    next: Option<Sum>,
}

/// Looks with the connection that keeps its locks and with another one.
fn judge_live(connection: &Connection, disk: &Disk, case: &Case, known: &Known) {
    for schema in ["a", "b"] {
        assert_eq!(sum(connection, schema).unwrap(), known.now, "{schema}, {known:?}");
        let check = format!("PRAGMA {schema}.integrity_check");
        let said: String = connection.query_row(&check, [], |row| row.get(0)).unwrap();
        assert_eq!(said, "ok");
    }
    let other = connect(disk, case).unwrap();
    for schema in ["main", "b"] {
        assert_eq!(sum(&other, schema).unwrap(), known.now, "another connection, {schema}");
    }
}

fn judge_left(left: &SimImage, folder: &Path, case: &Case, known: &Known) {
    let disk = Disk::of_image(left, folder, &case.options);
    let connection = connect(&disk, case).unwrap();
    let found = ["main", "b"].map(|schema| sum(&connection, schema).unwrap());
    assert_eq!(found[0], found[1], "half of a transaction");
    let may_be = found[0] == known.now || Some(found[0]) == known.next;
    assert!(may_be, "{found:?}, {known:?}");
}

/// Whether the transactions of a mode are decided by a super-journal: without a journal in a file
/// SQLite has none, and commits file by file.
fn is_one(mode: &str) -> bool {
    !["memory", "off"].contains(&mode)
}

fn fail(case: &Case, image: &SimImage, folder: &Path, failing: Failing) -> u64 {
    put_super_journals(folder, &SuperJournals::new());
    let disk = Disk::of_image(image, folder, &case.options);
    let connection = keep(&disk, case, failing.mode);
    let now = sum(&connection, "a").unwrap();
    let mut known = Known { now, next: None };
    // The locks are taken.
    connection.execute_batch(&transaction(1)).unwrap();
    known.now = sum(&connection, "a").unwrap();
    let fault = Fault::new(Effect::Fail(failing.failure)).on(failing.kind).nth(failing.nth);
    let fault = if failing.is_sticky { fault.sticky() } else { fault };
    disk.device.set_faults(FaultPlan::new().with(fault));
    let mut errors = 0;
    let more = if failing.has_plain { "INSERT OR REPLACE INTO main.p VALUES (7)" } else { "" };
    for round in 2..ROUNDS {
        connection.execute_batch("DELETE FROM main.p").unwrap();
        let (rows, all) = known.now;
        let changed = if round % 3 == 1 { rows / 50 } else { rows };
        let next = (rows + 1, all + changed + 1000);
        let Err(error) = connection.execute_batch(&within(round, more)) else {
            (known.now, known.next) = (next, None);
            continue;
        };
        assert!(is_of_the_device(&error), "{error:?}");
        errors += 1;
        known.next = Some(next);
        if !connection.is_autocommit() {
            connection.execute_batch("ROLLBACK").unwrap();
        }
        if failing.is_sticky {
            disk.device.set_faults(FaultPlan::new());
        }
        if is_one(failing.mode) {
            judge_live(&connection, &disk, case, &known);
            assert_eq!(plain(&connection), None);
        }
        let journals = super_journals(folder);
        let left = disk.device.image();
        drop(connection);
        drop(disk);
        if is_one(failing.mode) && !failing.has_plain {
            put_super_journals(folder, &journals);
            judge_left(&left, folder, case, &known);
        }
        put_super_journals(folder, &SuperJournals::new());
        return errors;
    }
    let lost = disk.device.crash(&Survivors::nothing(), &CrashModel::default());
    drop(connection);
    drop(disk);
    if is_one(failing.mode) && !failing.has_plain {
        judge_left(&lost, folder, case, &known);
    }
    errors
}

/// How often the device is asked for something.
fn operations(case: &Case, image: &SimImage, folder: &Path, mode: &str) -> impl Fn(OpKind) -> u64 {
    let disk = Disk::of_image(image, folder, &case.options);
    let connection = keep(&disk, case, mode);
    connection.execute_batch(&transaction(1)).unwrap();
    disk.device.set_faults(FaultPlan::new());
    for round in 2..ROUNDS {
        connection.execute_batch(&transaction(round)).unwrap();
    }
    let counts = OpKind::ALL.map(|kind| disk.device.op_count_of(kind));
    move |kind| counts[kind as usize]
}

fn explore(mode: &'static str, has_plain: bool, most: u64, counts: &mut Counts) -> Verdict {
    let case = case();
    let folder = folder();
    let image = prepared(&case, folder.path());
    let operations = operations(&case, &image, folder.path(), mode);
    for kind in [OpKind::Read, OpKind::Write, OpKind::Sync] {
        for (failure, is_sticky) in [
            (Failure::Io, false),
            (Failure::Io, true),
            (Failure::NoSpace, false),
            (Failure::NoSpace, true),
        ] {
            if failure == Failure::NoSpace && kind != OpKind::Write {
                continue;
            }
            let stride = (operations(kind) / most).max(1);
            for nth in (0..operations(kind)).step_by(stride as usize) {
                let failing = Failing { mode, kind, nth, failure, is_sticky, has_plain };
                let errors = without_panic(|| Ok(fail(&case, &image, folder.path(), failing)));
                let errors = disk::ensure_no_panics().and(errors);
                counts.add("runs", 1);
                counts.add("errors", errors.map_err(|v| v.at(format!("{failing:?}")))?);
            }
        }
    }
    Ok(())
}

#[test]
fn what_fails_is_rolled_back_in_all_files() {
    for (mode, has_plain) in MODES.map(|mode| (mode, false)).into_iter().chain(WITH_PLAIN) {
        let name = if has_plain { format!("{mode}, a plain file") } else { mode.to_owned() };
        let mut counts = Counts::new("sqlite-kept-locks", name);
        let verdict = explore(mode, has_plain, 12 * budget(), &mut counts);
        verdict.unwrap_or_else(|violation| panic!("{violation}"));
        counts.record().unwrap();
        assert!(counts.get("errors") > 12, "{counts:?}");
    }
}

/// A device that is full refuses what is large, in phase one or earlier, and nothing else is lost
/// by that: the connection reads on, rolls back without space, and writes when there is room.
fn fill(mode: &str, room: u64) -> u64 {
    let case = case();
    let folder = folder();
    let disk = Disk::of_image(&prepared(&case, folder.path()), folder.path(), &case.options);
    let connection = keep(&disk, &case, mode);
    connection.execute_batch(&transaction(1)).unwrap();
    let mut known = Known { now: sum(&connection, "a").unwrap(), next: None };
    let taken: usize = disk.device.image().files().values().map(Vec::len).sum();
    disk.device.set_capacity_bytes(taken as u64 + room);
    let mut refused = 0;
    for round in 2..ROUNDS + 4 {
        let (rows, all) = known.now;
        let changed = if round % 3 == 1 { rows / 50 } else { rows };
        let next = (rows + 1, all + changed + 1000);
        if let Err(error) = connection.execute_batch(&transaction(round)) {
            assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DiskFull), "{error}");
            refused += 1;
            if !connection.is_autocommit() {
                connection.execute_batch("ROLLBACK").unwrap();
            }
            judge_live(&connection, &disk, &case, &known);
        } else {
            known.now = next;
        }
    }
    disk.device.set_capacity_bytes(u64::MAX);
    connection.execute_batch(&transaction(2)).unwrap();
    let (rows, all) = known.now;
    known.now = (rows + 1, all + rows + 1000);
    judge_live(&connection, &disk, &case, &known);
    refused
}

#[test]
fn a_full_disk_is_rolled_back_without_room() {
    for mode in ["delete", "truncate", "persist"] {
        let refused: u64 = (0..6).map(|room| fill(mode, room * 24 * 1024)).sum();
        assert!(refused > 6, "{refused}");
    }
}

/// A suite that cannot fail proves nothing.
#[test]
fn planted_bugs_are_found() {
    for bug in [
        Bug::FailedKept,
        Bug::PreparedKept,
        Bug::SuperJournalMissed,
        Bug::PreparationForgotten,
        Bug::SuperJournalRemoved,
    ] {
        let mut counts = Counts::new("sqlite-planted", format!("{bug:?}"));
        let found = planted::with(bug, || explore("delete", false, 40, &mut counts));
        assert!(found.is_err(), "{bug:?} was not found");
        let mut until = Counts::new("sqlite-planted", format!("{bug:?}"));
        until.add("runs until found", counts.get("runs"));
        until.record().unwrap();
    }
}
