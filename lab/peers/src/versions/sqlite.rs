//! SQLite with a history table: triggers write each new value into it, with the version that the
//! row got, and each removal.
//!
//! Both tables are `WITHOUT ROWID`, so that a row is in the leaf of its key: a lookup in the past
//! (`key = ? AND version <= ? ORDER BY version DESC LIMIT 1`) and the history of a key are one
//! descent of one B-tree. The version is a column, because a table with the number of the last
//! commit would cost each commit a page more.
//!
//! Settings: `journal_mode = WAL` with `synchronous = NORMAL`, which syncs at checkpoints (every
//! 1,000 pages, the default, and in [`Versioned::persist`]), as the others sync when they are asked
//! to; a page cache of the budget; pages of 4 KiB.

use std::path::Path;
use std::time::Duration;

use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use super::{Put, SeeChange, SeeEntry, Versioned, View, Way};
use crate::system::{Error, Figures, Result};

const FILE: &str = "sqlite";

/// A removal sets the version of its commit first: a deleted row has no new version.
const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS entries(
        key BLOB NOT NULL PRIMARY KEY, version INTEGER NOT NULL, value BLOB NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS history(
        key BLOB NOT NULL, version INTEGER NOT NULL, value BLOB, PRIMARY KEY(key, version)
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS removal(version INTEGER NOT NULL);
    CREATE TRIGGER IF NOT EXISTS entries_insert AFTER INSERT ON entries BEGIN
        INSERT INTO history VALUES (NEW.key, NEW.version, NEW.value)
        ON CONFLICT(key, version) DO UPDATE SET value = excluded.value;
    END;
    CREATE TRIGGER IF NOT EXISTS entries_update AFTER UPDATE ON entries BEGIN
        INSERT INTO history VALUES (NEW.key, NEW.version, NEW.value)
        ON CONFLICT(key, version) DO UPDATE SET value = excluded.value;
    END;
    CREATE TRIGGER IF NOT EXISTS entries_delete AFTER DELETE ON entries BEGIN
        INSERT INTO history VALUES (OLD.key, (SELECT max(version) FROM removal), NULL)
        ON CONFLICT(key, version) DO UPDATE SET value = excluded.value;
    END;";

const PUT: &str = "INSERT INTO entries VALUES (?1, ?2, ?3) \
    ON CONFLICT(key) DO UPDATE SET version = excluded.version, value = excluded.value";
const GET: &str = "SELECT value FROM entries WHERE key = ?1";
const SCAN: &str = "SELECT key, value FROM entries WHERE key >= ?1 ORDER BY key LIMIT ?2";
const GET_AT: &str = "SELECT value FROM history WHERE key = ?1 AND version <= ?2 \
    ORDER BY version DESC LIMIT 1";
/// The value is that of the row with the greatest version: SQLite promises it for `max`.
const SCAN_AT: &str = "SELECT key, value, max(version) FROM history \
    WHERE key >= ?1 AND version <= ?3 GROUP BY key HAVING value IS NOT NULL LIMIT ?2";
const HISTORY: &str = "SELECT version, value FROM history WHERE key = ?1 ORDER BY version DESC";

struct Sqlite {
    connection: Connection,
}

fn failed(error: rusqlite::Error) -> Error {
    Error::failed(Way::Sqlite.as_str(), error)
}

pub(super) fn open(folder: &Path, budget_bytes: u64) -> Result<Box<dyn Versioned>> {
    std::fs::create_dir_all(folder).map_err(|error| Error::failed(Way::Sqlite.as_str(), error))?;
    let open = || {
        let connection = Connection::open(folder.join(FILE))?;
        connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL")?;
        connection.execute_batch(&format!("PRAGMA cache_size = -{}", budget_bytes >> 10))?;
        connection.execute_batch("PRAGMA temp_store = MEMORY")?;
        connection.execute_batch(SCHEMA)?;
        Ok(connection)
    };
    Ok(Box::new(Sqlite { connection: open().map_err(failed)? }))
}

/// A version as SQLite's integers have it.
fn integer(version: u64) -> i64 {
    i64::try_from(version).unwrap_or(i64::MAX)
}

impl Sqlite {
    fn prepared(&self, text: &str) -> rusqlite::Result<CachedStatement<'_>> {
        self.connection.prepare_cached(text)
    }

    fn put_all(&self, number: u64, puts: &[Put]) -> rusqlite::Result<()> {
        let mut put = self.prepared(PUT)?;
        for (key, value) in puts {
            put.execute(params![key, integer(number), value])?;
        }
        Ok(())
    }

    fn transact(&self, number: u64, puts: &[Put]) -> rusqlite::Result<()> {
        if puts.len() == 1 {
            return self.put_all(number, puts);
        }
        // What an error leaves open is rolled back when the transaction is dropped.
        let transaction = self.connection.unchecked_transaction()?;
        self.put_all(number, puts)?;
        transaction.commit()
    }

    fn changes(&self, key: &[u8], see: &mut SeeChange<'_>) -> rusqlite::Result<()> {
        let mut history = self.prepared(HISTORY)?;
        let mut rows = history.query(params![key])?;
        while let Some(row) = rows.next()? {
            let version: i64 = row.get(0)?;
            see(u64::try_from(version).unwrap_or(0), row.get_ref(1)?.as_blob_or_null()?);
        }
        Ok(())
    }
}

struct AsOf<'a> {
    of: &'a Sqlite,
    /// `None` for the table itself.
    version: Option<u64>,
}

impl AsOf<'_> {
    fn value(&self, key: &[u8]) -> rusqlite::Result<Option<Vec<u8>>> {
        let found = match self.version {
            None => self.of.prepared(GET)?.query_row(params![key], |row| row.get(0)),
            Some(version) => self
                .of
                .prepared(GET_AT)?
                .query_row(params![key, integer(version)], |row| row.get(0)),
        };
        Ok(found.optional()?.flatten())
    }

    fn rows(&self, from: &[u8], entries: u64, see: &mut SeeEntry<'_>) -> rusqlite::Result<()> {
        let entries = integer(entries);
        let mut scan = self.of.prepared(if self.version.is_none() { SCAN } else { SCAN_AT })?;
        let mut rows = match self.version {
            None => scan.query(params![from, entries])?,
            Some(version) => scan.query(params![from, entries, integer(version)])?,
        };
        while let Some(row) = rows.next()? {
            see(row.get_ref(0)?.as_blob()?, row.get_ref(1)?.as_blob()?);
        }
        Ok(())
    }
}

impl View for AsOf<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.value(key).map_err(failed)
    }

    fn scan(&self, from: &[u8], entries: u64, see: &mut SeeEntry<'_>) -> Result<()> {
        self.rows(from, entries, see).map_err(failed)
    }
}

impl Versioned for Sqlite {
    fn commit(&self, number: u64, puts: &[Put]) -> Result<u64> {
        self.transact(number, puts).map_err(failed)?;
        Ok(number)
    }

    fn now(&self) -> Result<Box<dyn View + '_>> {
        Ok(Box::new(AsOf { of: self, version: None }))
    }

    fn at(&self, version: u64) -> Result<Box<dyn View + '_>> {
        Ok(Box::new(AsOf { of: self, version: Some(version) }))
    }

    fn history(&self, key: &[u8], see: &mut SeeChange<'_>) -> Result<()> {
        self.changes(key, see).map_err(failed)
    }

    fn persist(&self) -> Result<()> {
        let checkpoint = self.connection.query_row("PRAGMA wal_checkpoint", [], |_| Ok(()));
        checkpoint.map_err(failed)
    }

    fn wait_idle(&self) -> Result<Duration> {
        self.persist()?;
        Ok(Duration::ZERO)
    }

    fn figures(&self) -> Result<Figures> {
        Ok(Figures::new())
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.connection.close().map_err(|(_, error)| failed(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(of: &Connection, text: &str) -> String {
        let text = format!("EXPLAIN QUERY PLAN {text}").replace("?1", "x'00'").replace("?2", "5");
        let mut statement = of.prepare(&text.replace("?3", "5")).unwrap();
        let lines = statement.query_map([], |row| row.get::<_, String>(3)).unwrap();
        lines.map(|line| line.unwrap()).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn reads_of_the_past_descend_once_and_sort_nothing() {
        let of = Connection::open_in_memory().unwrap();
        of.execute_batch(SCHEMA).unwrap();
        let found = |text| plan(&of, text);
        let key = "SEARCH history USING PRIMARY KEY";
        assert_eq!(found(GET_AT), format!("{key} (key=? AND version<?)"));
        assert_eq!(found(HISTORY), format!("{key} (key=?)"));
        assert_eq!(found(SCAN_AT), format!("{key} (key>?)"));
        assert_eq!(found(GET), "SEARCH entries USING PRIMARY KEY (key=?)");
        assert_eq!(found(SCAN), "SEARCH entries USING PRIMARY KEY (key>?)");
    }

    #[test]
    fn a_removal_is_in_the_history() {
        let of = Connection::open_in_memory().unwrap();
        of.execute_batch(SCHEMA).unwrap();
        of.execute(PUT, params![[1u8; 16], 1, [1u8; 3]]).unwrap();
        of.execute(PUT, params![[1u8; 16], 2, [2u8; 3]]).unwrap();
        of.execute_batch("INSERT INTO removal VALUES (3); DELETE FROM entries").unwrap();
        let store = Sqlite { connection: of };
        let mut changes = Vec::new();
        let mut see =
            |version, value: Option<&[u8]>| changes.push((version, value.map(<[u8]>::len)));
        store.history(&[1; 16], &mut see).unwrap();
        assert_eq!(changes, [(3, None), (2, Some(3)), (1, Some(3))]);
        let mut seen = 0;
        store.at(3).unwrap().scan(&[0], 10, &mut |_, _| seen += 1).unwrap();
        assert_eq!((seen, store.at(3).unwrap().get(&[1; 16]).unwrap()), (0, None));
        assert_eq!(store.at(2).unwrap().get(&[1; 16]).unwrap(), Some(vec![2; 3]));
    }
}
