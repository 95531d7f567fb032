//! Every operation of the device fails, one at a time, below SQLite: once and from then on, with
//! half of a write landed, with a sync that loses what it should keep.
//!
//! Whatever fails: SQLite says `SQLITE_IOERR` or `SQLITE_FULL`, and nothing panics. A reader
//! then sees the last state that was acknowledged, the connection that failed included. After a
//! restart, with or without the power lost as well, it is that state, or the one whose commit
//! failed, in all files.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "common/simulated/mod.rs"]
mod simulated;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::Ordering;

use esker_device::sim::{
    CrashModel, CrashOptions, Effect, Failure, Fault, FaultPlan, OpKind, SimImage, Survivors,
};
use esker_harness::counts::{Counts, budget};
use esker_harness::faults::{Case as Failing, Effects, each};
use esker_pages::Allocation;
use esker_sqlite::planted::{self, Bug};
use rusqlite::{Connection, ErrorCode};

use simulated::disk::{self, Disk, PRESENCE, put_super_journal, super_journal};
use simulated::judge::{Promise, before, judge_each, promise, super_journals};
use simulated::session::{Session, connect, is_of_the_device, prepared};
use simulated::steps::{Case, Step, cases};

/// A run is left after this many errors.
const FAILURES_ENOUGH: u64 = 3;

const EFFECTS: Effects = Effects {
    power_off: true,
    on_write: &[(Effect::ShortWrite { bytes: 700, failure: Failure::Io }, false)],
    on_read: &[],
};

/// Whether the device answers as before once the operation has failed.
fn passes(failing: Failing) -> bool {
    !failing.is_sticky && !failing.drops() && failing.effect != Effect::PowerOff
}

/// Does one step; whether it failed. What it says must be what a failing device may cause.
fn attempt(session: &mut Session, step: &Step) -> bool {
    let Err(error) = session.apply(step) else { return false };
    assert!(is_of_the_device(&error), "{step:?}: {error:?}");
    true
}

/// Runs a trace until enough has failed; whether anything did.
fn run(session: &mut Session, seed: u64, failing: Failing, counts: &mut Counts) -> bool {
    let mut failures = 0;
    for step in session.case.steps(seed) {
        // What a sync has dropped, or only pretends to have, no opening can find out.
        if step == Step::Reopen && matches!(failing.effect, Effect::FailSync(_)) {
            continue;
        }
        let has_failed = attempt(session, &step);
        session.mark();
        failures += u64::from(has_failed);
        if has_failed && passes(failing) {
            session.judge_live();
        }
        if failures >= FAILURES_ENOUGH {
            break;
        }
    }
    counts.add("errors", failures);
    failures > 0
}

fn fail(workload: &Workload<'_>, failing: Failing, counts: &mut Counts) {
    let Workload { case, image, folder, seed } = *workload;
    let mut session = Session::start(case, image, folder);
    let device = session.disk.device.clone();
    device.record();
    device.mark(0);
    session.connection().unwrap();
    session.mark();
    device.set_faults(failing.plan());
    let has_failed = run(&mut session, seed, failing, counts);
    counts.add("runs", 1);
    counts.add("runs with an error", has_failed.into());
    let trace = device.take_trace().unwrap();
    let killed = device.image();
    if has_failed && !failing.drops() {
        device.set_faults(FaultPlan::new());
        if failing.effect != Effect::PowerOff {
            session.judge_live();
        }
    }
    let lost = device.crash(&Survivors::nothing(), &CrashModel::default());
    let some = device.crash(&Survivors::Random(failing.nth), &CrashModel::default());
    let journal = super_journal(folder);
    session.disconnect();
    let point = session.point.clone();
    let now = Promise { least: point.durable, now: &point, next: &point };
    for (number, left) in [killed, lost, some].iter().enumerate() {
        judge_each(&session, &now, left, std::slice::from_ref(&journal), number as u64);
        counts.add("judged", 1);
    }
    if !case.is_relaxed {
        // The power fails as well, at some moment of the run.
        let limit = if case.files.len() > 1 { 6 } else { 2 };
        let options = CrashOptions { limit: Some(limit), seed: failing.nth, ..Default::default() };
        let crashes = trace.for_each_crash(&options, |state, device| {
            let Some(promise) = promise(&session, state) else { return Ok(()) };
            counts.add("judged", 1);
            let journals = super_journals(&session, state);
            let judging = || judge_each(&session, &promise, &device.image(), &journals, 1);
            catch_unwind(AssertUnwindSafe(judging))
                .map_err(|_| format!("{}\n{state}", before(state)))
        });
        crashes.unwrap_or_else(|place| panic!("{place}"));
    }
    assert_eq!(disk::panics(), 0, "what is tested has panicked");
}

/// A trace over databases on a disk.
struct Workload<'a> {
    case: &'a Case,
    image: &'a SimImage,
    folder: &'a Path,
    seed: u64,
}

/// How often a run without an error asks the device for something.
fn sound_run(workload: &Workload<'_>) -> impl Fn(OpKind) -> u64 {
    let Workload { case, image, folder, seed } = *workload;
    let mut session = Session::start(case, image, folder);
    session.connection().unwrap();
    session.disk.device.set_faults(FaultPlan::new());
    for step in case.steps(seed) {
        session.apply(&step).unwrap();
    }
    let device = session.disk.device.clone();
    let counts = OpKind::ALL.map(|kind| device.op_count_of(kind));
    session.disconnect();
    move |kind| counts[kind as usize]
}

fn explore(case: &Case, seed: u64, most: u64, counts: &mut Counts) {
    let folder = tempfile::tempdir().unwrap();
    let image = prepared(case, folder.path());
    let workload = Workload { case, image: &image, folder: folder.path(), seed };
    let operations = sound_run(&workload);
    let kinds = [OpKind::Read, OpKind::Write, OpKind::Sync, OpKind::Open];
    let operations = kinds.map(|kind| (kind, operations(kind)));
    let verdict = each(operations, most, &EFFECTS, |failing| {
        fail(&workload, failing, counts);
        Ok(())
    });
    verdict.unwrap_or_else(|violation| panic!("{}, seed {seed}: {violation}", case.name));
}

fn check_all(name: &str, most: u64) {
    let case = cases().into_iter().find(|case| case.name == name).unwrap();
    let mut counts = Counts::new("sqlite-faults", name);
    for seed in 0..budget() {
        for allocation in [Allocation::Slot, Allocation::Segment] {
            let case = case.clone().over(allocation);
            explore(&case, seed, most * budget(), &mut counts);
        }
    }
    counts.record().unwrap();
    assert!(counts.get("runs with an error") > 4 * most, "{counts:?}");
}

#[test]
fn small_transactions() {
    check_all("small transactions", 6);
}

#[test]
fn transactions_that_spill() {
    check_all("spilled", 6);
}

#[test]
fn savepoints_and_rollbacks() {
    check_all("savepoints", 6);
}

#[test]
fn vacuum_with_another_page_size() {
    check_all("vacuum", 6);
}

#[test]
fn versions_with_names() {
    check_all("pinned", 6);
}

#[test]
fn relaxed_commits() {
    check_all("relaxed", 6);
}

#[test]
fn two_files_in_one_transaction() {
    check_all("attached", 9);
}

#[test]
fn two_files_that_become_shorter() {
    check_all("attached, cut", 4);
}

/// A row for each of two files, in one transaction that is not yet committed.
const BOTH: &str = "BEGIN; INSERT INTO main.u VALUES (2); INSERT INTO b.u VALUES (2)";

/// Two files on a disk, whose logs have begun.
fn two_files(folder: &Path) -> (Case, Disk, Connection) {
    let case = cases().into_iter().find(|case| case.files.len() > 1).unwrap();
    let disk = Disk::of_image(&prepared(&case, folder), folder, &case.options);
    let connection = connect(&disk, &case).unwrap();
    connection.execute_batch(&format!("{BOTH}; COMMIT")).unwrap();
    connection
        .execute_batch("DELETE FROM main.u WHERE x = 2; DELETE FROM b.u WHERE x = 2")
        .unwrap();
    (case, disk, connection)
}

/// The syncs of a file fail, from one on.
fn failing_syncs(file: &str, from: u64) -> Fault {
    Fault::new(Effect::Fail(Failure::Io)).on(OpKind::Sync).file(file).nth(from).sticky()
}

/// How often the row is in each of the files.
fn twos(connection: &Connection) -> [i64; 2] {
    ["main", "b"].map(|schema| {
        let sql = format!("SELECT count(*) FROM {schema}.u WHERE x = 2");
        connection.query_row(&sql, [], |row| row.get(0)).unwrap()
    })
}

/// What is there after a crash now that keeps everything.
fn twos_after_a_crash(case: &Case, disk: Disk, connection: Connection) -> [i64; 2] {
    let left = disk.device.crash(&Survivors::everything(), &CrashModel::default());
    let folder = disk.folder.clone();
    let journal = super_journal(&folder);
    drop(connection);
    drop(disk);
    put_super_journal(&folder, journal.as_ref());
    let disk = Disk::of_image(&left, &folder, &case.options);
    let found = twos(&connect(&disk, case).unwrap());
    put_super_journal(&folder, None);
    found
}

/// The first file is prepared, the second cannot be, and that the first is rolled back cannot be
/// written: when it is opened again, the super-journal must still say so.
#[test]
fn a_rollback_leaves_the_super_journal_of_what_is_prepared() {
    let folder = tempfile::tempdir().unwrap();
    let (case, disk, connection) = two_files(folder.path());
    let plan = FaultPlan::new().with(failing_syncs("other", 0)).with(failing_syncs("main", 1));
    disk.device.set_faults(plan);
    connection.execute_batch(BOTH).unwrap();
    assert!(is_of_the_device(&connection.execute_batch("COMMIT").unwrap_err()));
    assert!(super_journal(folder.path()).is_some());
    assert_eq!(twos_after_a_crash(&case, disk, connection), [0, 0]);
}

/// As above, but it is a statement that still reads which keeps the first file from being rolled
/// back at once.
#[test]
fn a_statement_that_reads_on_takes_no_super_journal_away() {
    let folder = tempfile::tempdir().unwrap();
    let (case, disk, connection) = two_files(folder.path());
    let mut select = connection.prepare("SELECT id FROM main.t").unwrap();
    let mut rows = select.query([]).unwrap();
    assert!(rows.next().unwrap().is_some());
    disk.device.set_faults(FaultPlan::new().with(failing_syncs("other", 0)));
    connection.execute_batch(BOTH).unwrap();
    assert!(is_of_the_device(&connection.execute_batch("COMMIT").unwrap_err()));
    let left = disk.device.image();
    let journal = super_journal(folder.path());
    drop(rows);
    drop(select);
    drop(connection);
    drop(disk);
    put_super_journal(folder.path(), journal.as_ref());
    let disk = Disk::of_image(&left, folder.path(), &case.options);
    assert_eq!(twos(&connect(&disk, &case).unwrap()), [0, 0]);
}

/// The super-journal is gone and the first file is committed: so is the second, although that
/// cannot be written to it.
#[test]
fn what_a_super_journal_has_decided_is_seen_in_all_files() {
    for failing in ["main", "other"] {
        let folder = tempfile::tempdir().unwrap();
        let (case, disk, connection) = two_files(folder.path());
        disk.device.set_faults(FaultPlan::new().with(failing_syncs(failing, 1)));
        connection.execute_batch(&format!("{BOTH}; COMMIT")).unwrap();
        assert_eq!(twos(&connection), [1, 1], "{failing}");
        assert_eq!(twos(&connect(&disk, &case).unwrap()), [1, 1], "{failing}");
        let less = "BEGIN; DELETE FROM main.u; DELETE FROM b.u; COMMIT";
        let refused = connection.execute_batch(less).unwrap_err();
        assert!(is_of_the_device(&refused), "{failing}: {refused}");
        assert_eq!(twos_after_a_crash(&case, disk, connection), [1, 1], "{failing}");
    }
}

/// The super-journal is gone, and SQLite received an error and rolls back. Wherever the power
/// fails then, the transaction is in both files or in none, because neither file is decided alone.
fn lose_a_super_journal() {
    let folder = tempfile::tempdir().unwrap();
    let (case, disk, connection) = two_files(folder.path());
    disk.device.record();
    disk.device.mark(0);
    disk.removes_after.store(2, Ordering::Relaxed);
    let failed = connection.execute_batch(&format!("{BOTH}; COMMIT")).unwrap_err();
    assert!(is_of_the_device(&failed), "{failed}");
    if !connection.is_autocommit() {
        connection.execute_batch("ROLLBACK").unwrap();
    }
    disk.device.mark(1);
    assert_eq!(disk.removes_after.load(Ordering::Relaxed), 0);
    assert_eq!(
        twos(&connect(&disk, &case).unwrap()),
        [0, 0],
        "the error came although the rows are there"
    );
    let refused = connection.execute_batch("INSERT INTO main.u VALUES (3)").unwrap_err();
    assert!(is_of_the_device(&refused), "{refused}");
    let trace = disk.device.take_trace().unwrap();
    let history = disk.history.lock().unwrap().len();
    drop((connection, disk));
    let crashes = trace.for_each_crash(&CrashOptions::default(), |state, device| {
        // While it was there it decided.
        let is_gone =
            history as u64 - 1 == state.marks.iter().filter(|n| **n >= PRESENCE).count() as u64;
        if !is_gone && state.acknowledged() != Some(1) {
            return Ok(());
        }
        let disk = Disk::of_image(&device.image(), folder.path(), &case.options);
        let found = twos(&connect(&disk, &case).unwrap());
        if found[0] == found[1] { Ok(()) } else { Err(format!("{found:?}: {state}")) }
    });
    crashes.unwrap_or_else(|place| panic!("{place}"));
}

#[test]
fn a_super_journal_that_may_be_gone_decides_at_the_next_opening() {
    lose_a_super_journal();
    let hunt = || planted::with(Bug::DoubtForgotten, lose_a_super_journal);
    assert!(catch_unwind(hunt).is_err(), "a suite that cannot fail proves nothing");
}

/// Whether a super-journal is there decides; where that cannot be found out, nothing does.
#[test]
fn a_super_journal_that_cannot_be_looked_for_decides_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (case, disk, connection) = two_files(folder.path());
    drop(connection);
    let store = disk.store("main.db").unwrap();
    let mut writer = store.begin(&store.pin()).unwrap();
    writer.write(0, 100, b"no page of SQLite").unwrap();
    writer.prepare(&[b'n'; 300]).unwrap();
    let left = disk.device.image();
    drop((writer, store, disk));
    let disk = Disk::of_image(&left, folder.path(), &case.options);
    let refused = connect(&disk, &case).unwrap_err();
    assert_eq!(refused.sqlite_error_code(), Some(ErrorCode::CannotOpen));
    let store = disk.store("main.db").unwrap();
    assert!(store.prepared().is_some());
}

/// Changes few rows, and where they are in the index.
const MOVING: &str = "UPDATE t SET k = k + 1 WHERE id % 97 = 0";

/// A disk that is full says so: what grows the database is refused and leaves nothing of itself,
/// and what makes it smaller goes on.
#[test]
fn a_full_disk_is_said_and_no_more() {
    let segments = cases().into_iter().map(|case| case.over(Allocation::Segment));
    for case in cases().into_iter().chain(segments) {
        let folder = tempfile::tempdir().unwrap();
        let image = prepared(&case, folder.path());
        let disk = Disk::of_image(&image, folder.path(), &case.options);
        disk.device.set_capacity_bytes(case.files.len() as u64 * 512 * 1024);
        let connection = connect(&disk, &case).unwrap();
        let insert = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10)
            INSERT INTO t(k, v) SELECT i, hex(randomblob(200)) FROM n";
        let count = |connection: &Connection| -> i64 {
            connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
        };
        let (mut rows, mut refused) = (count(&connection), 0);
        while refused < 5 {
            match connection.execute_batch(insert) {
                Ok(()) => rows += 10,
                Err(error) => {
                    assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DiskFull), "{error}");
                    refused += 1;
                }
            }
            assert_eq!(count(&connection), rows, "{}", case.name);
        }
        assert_eq!(count(&connect(&disk, &case).unwrap()), rows, "{}", case.name);
        for round in 0..20 {
            let delete = "DELETE FROM t WHERE id IN (SELECT id FROM t LIMIT 3)";
            let deleted = connection.execute_batch(delete);
            deleted.unwrap_or_else(|error| panic!("{}, {round}: {error}", case.name));
            rows -= 3;
        }
        let updated = connection.execute_batch("UPDATE t SET v = lower(v) WHERE id % 97 = 0");
        updated.unwrap_or_else(|error| panic!("{}: {error}", case.name));
        if let Err(error) = connection.execute_batch(MOVING) {
            // Without free pages, as where `auto_vacuum` is full, a page of the index that is split
            // makes the database grow.
            assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DiskFull), "{error}");
            disk.device.set_capacity_bytes(u64::MAX);
            let pages = || -> u32 {
                connection.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap()
            };
            let before = pages();
            connection.execute_batch(&format!("BEGIN; {MOVING}")).unwrap();
            assert!(pages() > before, "{}: refused, and would not have grown", case.name);
            connection.execute_batch("ROLLBACK").unwrap();
        }
        drop(connection);
        let connection = connect(&disk, &case).unwrap();
        assert_eq!(count(&connection), rows, "{}", case.name);
        let said: String =
            connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(said, "ok", "{}", case.name);
    }
}

/// A suite that cannot fail proves nothing.
#[test]
fn planted_bugs_are_found() {
    for (bug, name) in [
        (Bug::CacheKept, "small transactions"),
        (Bug::AbandonedCommitted, "spilled"),
        (Bug::SuperJournalRemoved, "attached"),
        (Bug::PreparationForgotten, "attached"),
    ] {
        let case = cases().into_iter().find(|case| case.name == name).unwrap();
        let mut counts = Counts::new("sqlite-planted", format!("{bug:?}"));
        let hunt = AssertUnwindSafe(|| explore(&case, 0, 10, &mut counts));
        let is_found = planted::with(bug, || catch_unwind(hunt)).is_err();
        assert!(is_found, "{bug:?} was not found");
        let mut until = Counts::new("sqlite-planted", format!("{bug:?}"));
        until.add("judged until found", counts.get("judged"));
        until.record().unwrap();
    }
}
