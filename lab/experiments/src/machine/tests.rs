use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::board::Board;
use super::mode::{Mode, System};
use super::*;

const PATIENCE: Duration = Duration::from_secs(5);

fn machine(mode: Mode) -> Machine {
    on(mode, Board::Plain)
}

fn on(mode: Mode, board: Board) -> Machine {
    Machine::new(System { mode, board }, 16, 1).unwrap()
}

fn sql(error: rusqlite::Error) -> Error {
    Error::Run(error.to_string())
}

fn pair(connection: &Connection) -> rusqlite::Result<(i64, i64)> {
    let query = "SELECT (SELECT v FROM t WHERE k = 1), (SELECT v FROM t WHERE k = 2)";
    connection.query_row(query, [], |row| Ok((row.get(0)?, row.get(1)?)))
}

fn make(machine: &Machine) {
    let made = machine.alone(|| {
        let connection = machine.open(PATIENCE).map_err(sql)?;
        let rows = "CREATE TABLE t(k INTEGER PRIMARY KEY, v INTEGER, pad BLOB);
                    INSERT INTO t VALUES (1, 0, NULL), (2, 0, NULL)";
        connection.execute_batch(rows).map_err(sql)
    });
    made.unwrap();
}

#[test]
fn sqlite_keeps_its_rows_in_every_mode() {
    for mode in Mode::PAPER.into_iter().chain(Mode::OURS) {
        let machine = machine(mode);
        make(&machine);
        let count = machine.alone(|| {
            let connection = machine.open(PATIENCE).map_err(sql)?;
            let many = "WITH RECURSIVE n(i) AS (SELECT 10 UNION ALL SELECT i + 1 FROM n LIMIT 500)
                        INSERT INTO t SELECT i, i, zeroblob(1000) FROM n";
            connection.execute_batch(many).map_err(sql)?;
            connection.execute_batch("BEGIN; DELETE FROM t; ROLLBACK").map_err(sql)?;
            connection
                .execute_batch("SAVEPOINT s; UPDATE t SET v = 5; ROLLBACK TO s; RELEASE s")
                .map_err(sql)?;
            drop(connection);
            let again = machine.open(PATIENCE).map_err(sql)?;
            let check: String =
                again.query_row("PRAGMA integrity_check", [], |row| row.get(0)).map_err(sql)?;
            assert_eq!(check, "ok", "{mode:?}");
            again.execute_batch("DELETE FROM t WHERE k >= 20; VACUUM").map_err(sql)?;
            let query = "SELECT count(*) + sum(v) FROM t";
            again.query_row(query, [], |row| row.get::<_, i64>(0)).map_err(sql)
        });
        assert_eq!(count.unwrap(), 12 + (10..20).sum::<i64>(), "{mode:?}");
        machine.check().unwrap();
        let counts = machine.counts();
        assert_eq!(counts.entries_max > 0, mode.is_transactional());
        assert_eq!(counts.refused, 0);
    }
}

/// What two writers and two readers have met, in the order of the reads.
fn busy_run(mode: Mode) -> (Vec<i64>, Counts, u64) {
    let machine = machine(mode);
    make(&machine);
    let is_over = AtomicBool::new(false);
    let left = AtomicU64::new(2);
    let writer = || -> Work<'_, Result<Vec<i64>>> {
        Box::new(|| {
            let connection = machine.open(PATIENCE).map_err(sql)?;
            for _ in 0..40 {
                let done = connection.execute_batch(
                    "BEGIN IMMEDIATE; UPDATE t SET v = v + 1 WHERE k = 1;
                     UPDATE t SET v = v + 1 WHERE k = 2; COMMIT",
                );
                done.map_err(sql)?;
            }
            let is_last = left.fetch_sub(1, Ordering::Relaxed) == 1;
            is_over.fetch_or(is_last, Ordering::Relaxed);
            Ok(Vec::new())
        })
    };
    let reader = |pause: u64| -> Work<'_, Result<Vec<i64>>> {
        let (machine, is_over) = (&machine, &is_over);
        Box::new(move || {
            let connection = machine.open(PATIENCE).map_err(sql)?;
            let mut seen = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                connection.execute_batch("BEGIN").map_err(sql)?;
                let (first, second) = pair(&connection).map_err(sql)?;
                turns::wait(pause);
                let later = pair(&connection).map_err(sql)?;
                connection.execute_batch("COMMIT").map_err(sql)?;
                assert_eq!((first, first), (first, second), "{mode:?}: a part of a commit");
                assert_eq!((first, second), later, "{mode:?}: a version that moved");
                seen.push(first);
                turns::wait(pause / 3);
            }
            Ok(seen)
        })
    };
    let actors = vec![writer(), writer(), reader(9_000_000), reader(2_000_000)];
    let seen: Vec<i64> = machine.run(actors).unwrap().into_iter().flatten().collect();
    let last = machine.alone(|| {
        let connection = machine.open(PATIENCE).map_err(sql)?;
        pair(&connection).map_err(sql)
    });
    assert_eq!(last.unwrap(), (80, 80), "{mode:?}: a lost update");
    machine.check().unwrap();
    (seen, machine.counts(), machine.time_ns.load(Ordering::Relaxed))
}

#[test]
fn readers_see_whole_commits_and_runs_repeat() {
    for mode in Mode::PAPER {
        let (seen, counts, end) = busy_run(mode);
        // With locks a reader may come between the writers only rarely.
        let has_seen = seen.iter().any(|value| (1..80).contains(value));
        let may_wait = !matches!(mode, Mode::MvFtl | Mode::Wal50 | Mode::Wal1000);
        assert!(seen.len() >= 4 && (has_seen || may_wait), "{mode:?}: {seen:?}");
        let (again, recounted, end_again) = busy_run(mode);
        assert_eq!((&seen, end), (&again, end_again), "{mode:?}");
        assert_eq!(counts.host, recounted.host, "{mode:?}");
        assert_eq!(counts.flash, recounted.flash, "{mode:?}");
    }
}

#[test]
fn a_reader_with_a_version_hinders_no_writer() {
    let write_beside_a_reader = |mode: Mode| {
        let machine = machine(mode);
        make(&machine);
        let begun = machine.time_ns.load(Ordering::Relaxed);
        let machine = &machine;
        let reader: Work<'_, Result<u64>> = Box::new(move || {
            let connection = machine.open(PATIENCE).map_err(sql)?;
            connection.execute_batch("BEGIN").map_err(sql)?;
            pair(&connection).map_err(sql)?;
            turns::wait_until(begun + 500_000_000);
            assert_eq!(pair(&connection).map_err(sql)?, (0, 0));
            connection.execute_batch("COMMIT").map_err(sql)?;
            Ok(0)
        });
        let writer: Work<'_, Result<u64>> = Box::new(move || {
            let connection = machine.open(PATIENCE).map_err(sql)?;
            turns::wait_until(begun + 100_000_000);
            connection.execute_batch("UPDATE t SET v = 1").map_err(sql)?;
            Ok(turns::now() - begun)
        });
        machine.run(vec![reader, writer]).unwrap()[1]
    };
    for mode in [Mode::MvFtl, Mode::Wal1000] {
        assert!(write_beside_a_reader(mode) < 200_000_000, "{mode:?}");
    }
    for mode in [Mode::XFtl, Mode::Rbj] {
        assert!(write_beside_a_reader(mode) > 500_000_000, "{mode:?}");
    }
}

#[test]
fn a_stale_version_cannot_be_written_from() {
    let machine = machine(Mode::MvFtl);
    make(&machine);
    let codes = machine.alone(|| {
        let (one, two) =
            (machine.open(PATIENCE).map_err(sql)?, machine.open(PATIENCE).map_err(sql)?);
        one.execute_batch("BEGIN").map_err(sql)?;
        pair(&one).map_err(sql)?;
        two.execute_batch("UPDATE t SET v = 3").map_err(sql)?;
        let refused = one.execute_batch("UPDATE t SET v = 4").unwrap_err();
        one.execute_batch("ROLLBACK").map_err(sql)?;
        one.execute_batch("UPDATE t SET v = v + 4").map_err(sql)?;
        Ok((refused.sqlite_error().map(|error| error.extended_code), pair(&two).map_err(sql)?))
    });
    assert_eq!(codes.unwrap(), (Some(517), (7, 7)));
}

/// A transaction that needs more memory than the layer has is refused, and nothing is left of it.
#[test]
fn a_transaction_beyond_the_layers_memory_is_refused() {
    for mode in [Mode::XFtl, Mode::MvFtl] {
        let machine = machine(mode);
        make(&machine);
        let left = machine.alone(|| {
            let connection = machine.open(PATIENCE).map_err(sql)?;
            let many = "WITH RECURSIVE n(i) AS (SELECT 10 UNION ALL SELECT i + 1 FROM n LIMIT 5000)
                        INSERT INTO t SELECT i, i, zeroblob(7000) FROM n";
            let refused = connection.execute_batch(many).unwrap_err();
            assert_eq!(refused.sqlite_error_code(), Some(rusqlite::ErrorCode::DiskFull));
            connection
                .query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0))
                .map_err(sql)
        });
        assert_eq!(left.unwrap(), 2, "{mode:?}");
        assert!(machine.counts().refused > 0);
    }
}
