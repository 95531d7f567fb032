//! The expected contents of databases: a plain SQLite in memory is asked.

use std::fmt::Write;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode};

use super::steps::{Case, Statement};

/// What the databases of a case hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub rows: String,
    pub page_size: u32,
}

/// The names by which a connection knows the databases of a case.
pub fn schemas(case: &Case) -> &'static [&'static str] {
    &["main", "b", "c"][..case.files.len()]
}

/// Makes the tables of a case, and their first rows.
pub fn set_up(connection: &Connection, case: &Case) -> rusqlite::Result<()> {
    for schema in schemas(case) {
        let rows = case.rows;
        connection.execute_batch(&format!(
            "PRAGMA {schema}.page_size = {}; PRAGMA {schema}.auto_vacuum = {};
             BEGIN;
             CREATE TABLE {schema}.t(id INTEGER PRIMARY KEY, k INTEGER, v TEXT);
             CREATE INDEX {schema}.t_k ON t(k);
             CREATE TABLE {schema}.u(x UNIQUE);
             INSERT INTO {schema}.u VALUES (1);
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
             INSERT INTO {schema}.t(k, v) SELECT i * 7 % 100, 'row ' || i FROM n;
             COMMIT",
            case.page_size, case.auto_vacuum
        ))?;
    }
    Ok(())
}

/// All rows of the databases of a case.
pub fn rows(connection: &Connection, case: &Case) -> rusqlite::Result<String> {
    let mut all = String::new();
    for schema in schemas(case) {
        for select in ["SELECT id, k, v FROM", "SELECT rowid, x FROM"].into_iter().zip(["t", "u"]) {
            let sql = format!("{} {schema}.{} ORDER BY rowid", select.0, select.1);
            let mut statement = connection.prepare(&sql)?;
            let columns = statement.column_count();
            let mut found = statement.query([])?;
            while let Some(row) = found.next()? {
                for column in 0..columns {
                    match row.get_ref(column)? {
                        ValueRef::Integer(number) => write!(all, "{number} ").unwrap(),
                        ValueRef::Text(text) => {
                            all.push_str(std::str::from_utf8(text).unwrap());
                        }
                        other => write!(all, "{other:?} ").unwrap(),
                    }
                }
                all.push('\n');
            }
        }
    }
    Ok(all)
}

/// Runs a statement; one that should break a constraint must.
pub fn run(connection: &Connection, statement: &Statement) -> rusqlite::Result<()> {
    match connection.execute_batch(&statement.sql) {
        Err(error)
            if statement.breaks
                && error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) =>
        {
            Ok(())
        }
        Ok(()) if statement.breaks => panic!("{} breaks nothing", statement.sql),
        outcome => outcome,
    }
}

/// Databases in memory.
#[derive(Debug)]
pub struct Oracle {
    case: Case,
    plain: Connection,
}

impl Oracle {
    pub fn new(case: &Case) -> Self {
        let plain = Connection::open_in_memory().unwrap();
        for schema in schemas(case).iter().skip(1) {
            plain.execute_batch(&format!("ATTACH ':memory:' AS {schema}")).unwrap();
        }
        set_up(&plain, case).unwrap();
        Self { case: case.clone(), plain }
    }

    pub fn rows(&self) -> String {
        rows(&self.plain, &self.case).unwrap()
    }

    /// What a transaction would make. It stays open.
    pub fn begin(&self, body: &[Statement]) -> String {
        self.plain.execute_batch("BEGIN").unwrap();
        for statement in body {
            run(&self.plain, statement).unwrap();
        }
        self.rows()
    }

    pub fn end(&self, commits: bool) {
        let end = if commits { "COMMIT" } else { "ROLLBACK" };
        self.plain.execute_batch(end).unwrap();
    }
}
