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

use std::path::Path;
use std::sync::atomic::Ordering;

use esker_device::sim::{
    CrashModel, CrashOptions, Effect, Failure, Fault, FaultPlan, OpKind, Survivors,
};
use esker_harness::counts::{Counts, budget};
use esker_harness::crash;
use esker_harness::faults::{self, Workload};
use esker_harness::violation::{Oracle, Verdict, ensure, without_panic};
use esker_pages::Allocation;
use esker_sqlite::planted::{self, Bug};
use rusqlite::{Connection, ErrorCode};

use simulated::disk::{Disk, PRESENCE, SuperJournals, folder, put_super_journals, super_journals};
use simulated::session::{Base, Session, connect, is_of_the_device, prepared};
use simulated::steps::{Case, cases};
use simulated::subject::judged;

/// Runs a trace under one fault after another, about `most` of a kind and effect.
fn explore(case: &Case, seed: u64, most: u64, counts: &mut Counts) -> Verdict {
    judged(case, seed, || {
        let (base, image) = Base::prepared(case);
        let steps = case.steps(seed);
        let workload = Workload { case, image: &image, base: &base, ops: &steps };
        faults::run::<Session>(&workload, most, counts)
    })
}

fn check_all(name: &str, most: u64) {
    let case = cases().into_iter().find(|case| case.name == name).unwrap();
    let mut counts = Counts::new("sqlite-faults", name);
    for seed in 0..budget() {
        for allocation in [Allocation::Slot, Allocation::Segment] {
            let case = case.clone().over(allocation);
            let verdict = explore(&case, seed, most * budget(), &mut counts);
            verdict.unwrap_or_else(|violation| panic!("{violation}"));
        }
    }
    counts.record().unwrap();
    assert!(counts.get("surfaced") > 4 * most, "{counts:?}");
}

#[test]
fn small_transactions() {
    check_all("small transactions", 7);
}

#[test]
fn transactions_that_spill() {
    check_all("spilled", 7);
}

#[test]
fn savepoints_and_rollbacks() {
    check_all("savepoints", 7);
}

#[test]
fn vacuum_with_another_page_size() {
    check_all("vacuum", 7);
}

#[test]
fn versions_with_names() {
    check_all("pinned", 7);
}

#[test]
fn relaxed_commits() {
    check_all("relaxed", 7);
}

#[test]
fn two_files_in_one_transaction() {
    check_all("attached", 11);
}

#[test]
fn two_files_that_become_shorter() {
    check_all("attached, cut", 5);
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
    let journals = super_journals(&folder);
    drop(connection);
    drop(disk);
    put_super_journals(&folder, &journals);
    let disk = Disk::of_image(&left, &folder, &case.options);
    let found = twos(&connect(&disk, case).unwrap());
    put_super_journals(&folder, &SuperJournals::new());
    found
}

/// The first file is prepared, the second cannot be, and that the first is rolled back cannot be
/// written: when it is opened again, the super-journal must still say so.
#[test]
fn a_rollback_leaves_the_super_journal_of_what_is_prepared() {
    let folder = folder();
    let (case, disk, connection) = two_files(folder.path());
    let plan = FaultPlan::new().with(failing_syncs("other", 0)).with(failing_syncs("main", 1));
    disk.device.set_faults(plan);
    connection.execute_batch(BOTH).unwrap();
    assert!(is_of_the_device(&connection.execute_batch("COMMIT").unwrap_err()));
    assert_eq!(super_journals(folder.path()).len(), 1);
    assert_eq!(twos_after_a_crash(&case, disk, connection), [0, 0]);
}

/// As above, but it is a statement that still reads which keeps the first file from being rolled
/// back at once.
#[test]
fn a_statement_that_reads_on_takes_no_super_journal_away() {
    let folder = folder();
    let (case, disk, connection) = two_files(folder.path());
    let mut select = connection.prepare("SELECT id FROM main.t").unwrap();
    let mut rows = select.query([]).unwrap();
    assert!(rows.next().unwrap().is_some());
    disk.device.set_faults(FaultPlan::new().with(failing_syncs("other", 0)));
    connection.execute_batch(BOTH).unwrap();
    assert!(is_of_the_device(&connection.execute_batch("COMMIT").unwrap_err()));
    let left = disk.device.image();
    let journals = super_journals(folder.path());
    drop(rows);
    drop(select);
    drop(connection);
    drop(disk);
    put_super_journals(folder.path(), &journals);
    let disk = Disk::of_image(&left, folder.path(), &case.options);
    assert_eq!(twos(&connect(&disk, &case).unwrap()), [0, 0]);
}

/// The super-journal is gone and the first file is committed: so is the second, although that
/// cannot be written to it.
#[test]
fn what_a_super_journal_has_decided_is_seen_in_all_files() {
    for failing in ["main", "other"] {
        let folder = folder();
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
fn lose_a_super_journal() -> Verdict {
    let folder = folder();
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
    crash::each(&trace, &CrashOptions::default(), |state, device| {
        // While it was there it decided.
        let is_gone =
            history as u64 - 1 == state.marks.iter().filter(|n| **n >= PRESENCE).count() as u64;
        if !is_gone && state.acknowledged() != Some(1) {
            return Ok(());
        }
        let disk = Disk::of_image(&device.image(), folder.path(), &case.options);
        let found = twos(&connect(&disk, &case).unwrap());
        ensure(found[0] == found[1], Oracle::CommitsAreWhole, || format!("{found:?}"))
    })?;
    Ok(())
}

#[test]
fn a_super_journal_that_may_be_gone_decides_at_the_next_opening() {
    lose_a_super_journal().unwrap_or_else(|violation| panic!("{violation}"));
    let hunt = || planted::with(Bug::DoubtForgotten, lose_a_super_journal);
    assert!(without_panic(hunt).is_err(), "a suite that cannot fail proves nothing");
}

/// Whether a super-journal is there decides; where that cannot be found out, nothing does.
#[test]
fn a_super_journal_that_cannot_be_looked_for_decides_nothing() {
    let folder = folder();
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
        let folder = folder();
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
        let found = planted::with(bug, || explore(&case, 0, 10, &mut counts));
        assert!(found.is_err(), "{bug:?} was not found");
        let mut until = Counts::new("sqlite-planted", format!("{bug:?}"));
        until.add("judged until found", counts.get("judged"));
        until.record().unwrap();
    }
}
