//! SQLite on the machine and SQLite on files of the system refuse the same: three connections do
//! random statements, one after the other, on both sides.

use std::path::Path;
use std::time::Duration;

use esker_workload::Random;
use rusqlite::Connection;
use rusqlite::types::Value;

use super::board::Board;
use super::mode::{Mode, System};
use super::*;

const CONNECTIONS: u64 = 3;

/// The answer of a statement: a code of SQLite, or numbers.
type Answer = std::result::Result<Vec<i64>, i32>;

fn ask(connection: &Connection, sql: &str) -> Answer {
    let run = || {
        let mut statement = connection.prepare(sql)?;
        let mut rows = statement.query([])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            // A mode of the journal is a text.
            found.push(if let Value::Integer(value) = row.get(0)? { value } else { -1 });
        }
        Ok(found)
    };
    run().map_err(|error: rusqlite::Error| error.sqlite_error().map_or(-1, |of| of.extended_code))
}

fn statement(random: &mut Random) -> String {
    let row = random.below(20);
    match random.below(14) {
        0 => "BEGIN".to_owned(),
        1 => "BEGIN IMMEDIATE".to_owned(),
        2 => "BEGIN EXCLUSIVE".to_owned(),
        3..=5 => "COMMIT".to_owned(),
        6 => "ROLLBACK".to_owned(),
        7 | 8 => format!("SELECT v FROM t WHERE k <= {row}"),
        9 => format!("UPDATE t SET v = v + 1 WHERE k = {row}"),
        10 => format!("INSERT OR REPLACE INTO t VALUES ({row}, {row}, zeroblob(9000))"),
        11 => format!("DELETE FROM t WHERE k = {row}"),
        // Larger than the cache of this test: written before the commit, or refused.
        12 => "UPDATE t SET v = v + 1, pad = zeroblob(8000)".to_owned(),
        _ => "PRAGMA wal_checkpoint(PASSIVE)".to_owned(),
    }
}

fn prepare(connection: Connection) -> Connection {
    connection.execute_batch("PRAGMA cache_size = 4").unwrap();
    connection
}

/// SQLite's own files.
fn on_files(mode: Mode, path: &Path) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection.busy_timeout(Duration::ZERO).unwrap();
    connection.execute_batch("PRAGMA page_size = 8192; PRAGMA temp_store = MEMORY").unwrap();
    connection.execute_batch(mode.pragmas()).unwrap();
    prepare(connection)
}

/// How many statements were refused with BUSY.
fn compare(mode: Mode, seed: u64, steps: u64) -> u64 {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let path = folder.path().join("app.db");
    let machine = Machine::new(System { mode, board: Board::Jasmine }, 16, 1).unwrap();
    let refused = machine.alone(|| {
        let open = |_| {
            let ours = prepare(machine.open(Duration::ZERO).unwrap());
            (ours, on_files(mode, &path))
        };
        let pairs: Vec<(Connection, Connection)> = (0..CONNECTIONS).map(open).collect();
        let both = |at: u64, sql: &str| {
            let (ours, theirs) = &pairs[at as usize];
            let (ours, theirs) = (ask(ours, sql), ask(theirs, sql));
            assert_eq!(ours, theirs, "{mode:?}, seed {seed}, connection {at}: {sql}");
            ours
        };
        both(0, "CREATE TABLE t(k INTEGER PRIMARY KEY, v INTEGER, pad BLOB)").unwrap();
        let mut random = Random::new(seed);
        let mut refused = 0;
        for _ in 0..steps {
            let answer = both(random.below(CONNECTIONS), &statement(&mut random));
            refused += u64::from(answer.is_err_and(|code| code & 0xff == 5));
        }
        for at in 0..CONNECTIONS {
            let _ended = both(at, "ROLLBACK");
        }
        both(0, "SELECT v FROM t").unwrap();
        both(0, "PRAGMA integrity_check").unwrap();
        Ok(refused)
    });
    machine.check().unwrap();
    refused.unwrap()
}

#[test]
fn locks_are_those_of_sqlites_own_files() {
    let budget = std::env::var("ESKER_TEST_BUDGET").ok().and_then(|text| text.parse().ok());
    for mode in [Mode::Rbj, Mode::Wal50] {
        let seeds = 0..8 * budget.unwrap_or(1_u64);
        let refused: u64 = seeds.map(|seed| compare(mode, seed, 300)).sum();
        assert!(refused > 50, "{mode:?}: {refused} refused");
    }
}
