//! Whatever is asked of `PRAGMA synchronous`, in transactions and outside, granted or refused: a
//! commit syncs as the pragma reads back.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/simulated/mod.rs"]
mod simulated;

use std::panic::catch_unwind;

use esker_device::sim::SimDevice;
use esker_harness::counts::{Counts, budget};
use esker_harness::random::Random;
use esker_pages::Options;
use esker_sqlite::planted::{self, Bug};
use rusqlite::Connection;

use simulated::disk::{self, Disk};

const VALUES: [&str; 25] = [
    "off", "OFF", "no", "false", "0", "normal", "Normal", "on", "yes", "true", "1", "full", "FULL",
    "2", "extra", "3", "4", "6", "7", "8", "10", "'full'", "-1", "nothing", "2nd",
];
const MODES: [&str; 5] = ["delete", "truncate", "persist", "memory", "wal"];

fn number(connection: &Connection, sql: &str) -> i64 {
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

fn connect(disk: &Disk) -> Connection {
    let connection = disk.open("main.db", None).unwrap();
    let other = disk::uri(&disk.folder.join("other.db"), None);
    connection.execute_batch(&format!("ATTACH '{other}' AS b")).unwrap();
    for schema in ["main", "b"] {
        connection.execute_batch(&format!("CREATE TABLE IF NOT EXISTS {schema}.t(x)")).unwrap();
    }
    connection
}

/// How many syncs a commit makes in one of the files.
fn syncs(connection: &Connection, schema: &str) -> u64 {
    let asked = || -> u64 {
        let sql = format!("PRAGMA {schema}.esker_stats = syncs");
        connection.query_row(&sql, [], |row| row.get::<_, String>(0)).unwrap().parse().unwrap()
    };
    let before = asked();
    connection.execute_batch(&format!("INSERT INTO {schema}.t VALUES (1)")).unwrap();
    asked() - before
}

/// Sets a journal mode, which SQLite may refuse. The pragma then reads back what it answered.
fn set_mode(connection: &Connection, schema: &str, mode: &str) -> String {
    let ask = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, String>(0));
    let sql = format!("PRAGMA {schema}journal_mode = {mode}");
    let answered = ask(&sql);
    if let Ok(answered) = &answered {
        assert_eq!(&ask(&format!("PRAGMA {schema}journal_mode")).unwrap(), answered, "{sql}");
    }
    format!("{sql}: {answered:?}")
}

/// Does one thing, which SQLite may refuse.
fn step(random: &Random, connection: &Connection) -> String {
    let schema = ["main.", "b.", ""][random.below(3) as usize];
    let sql = match random.below(12) {
        0..6 => {
            let value = VALUES[random.below(VALUES.len() as u64) as usize];
            format!("PRAGMA {schema}synchronous = {value}")
        }
        6 => return set_mode(connection, schema, MODES[random.below(5) as usize]),
        7 => ["BEGIN", "BEGIN IMMEDIATE", "SAVEPOINT a"][random.below(3) as usize].to_owned(),
        8 => "INSERT INTO main.t VALUES (2)".to_owned(),
        9 => "SELECT count(*) FROM b.t".to_owned(),
        _ => ["COMMIT", "ROLLBACK", "RELEASE a"][random.below(3) as usize].to_owned(),
    };
    let done = connection.execute_batch(&sql);
    format!("{sql}: {done:?}")
}

/// Runs a sequence, and looks at the syncs of a commit wherever no transaction is open.
fn run(seed: u64) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { relaxed_interval: None, ..Options::new() };
    let disk = Disk::mount(SimDevice::new(), folder.path(), &options);
    let connection = connect(&disk);
    let random = Random::new(seed);
    let mut said = Vec::new();
    let mut commits = 0;
    for _ in 0..24 {
        said.push(step(&random, &connection));
        if !connection.is_autocommit() {
            continue;
        }
        for schema in ["main", "b"] {
            let level = number(&connection, &format!("PRAGMA {schema}.synchronous"));
            // SQLite syncs in every mode that it takes for safe, and those above it.
            let expected = u64::from(level >= 2);
            let found = syncs(&connection, schema);
            let trace = || said.join("\n");
            assert_eq!(found, expected, "seed {seed}, {schema}: {level}\n{}", trace());
            commits += 1;
        }
    }
    commits
}

#[test]
fn a_commit_syncs_as_the_pragma_reads_back() {
    let mut counts = Counts::new("sqlite-synchronous", "random sequences");
    for seed in 0..200 * budget() {
        counts.add("sequences", 1);
        counts.add("commits", run(seed));
    }
    counts.record().unwrap();
    assert!(counts.get("commits") > 2000, "{counts:?}");
}

/// A suite that cannot fail proves nothing.
#[test]
fn planted_bugs_are_found() {
    for bug in [Bug::RefusedCounts, Bug::ModeNotKept] {
        let hunt = |seed| planted::with(bug, || catch_unwind(|| run(seed)).is_err());
        let found = (0..200).find(|seed| hunt(*seed));
        let seed = found.unwrap_or_else(|| panic!("{bug:?} was not found"));
        let mut counts = Counts::new("sqlite-planted", format!("{bug:?}"));
        counts.add("sequences until found", seed + 1);
        counts.record().unwrap();
    }
}
