//! Files that a program keeps itself: SQLite works on them, and a panic in them is an error.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use esker_sqlite::code::{Code, Result};
use esker_sqlite::hosted::{File, Files, Kind, Level, Region, ShmRange};
use esker_sqlite::register;
use rusqlite::{Connection, OpenFlags};

/// Files in memory, for one connection at a time.
#[derive(Default)]
struct InMemory {
    files: Mutex<BTreeMap<String, Arc<Mutex<Vec<u8>>>>>,
    fails: Arc<AtomicBool>,
    commits: Arc<AtomicU64>,
    slept: AtomicU64,
}

struct OneFile {
    bytes: Arc<Mutex<Vec<u8>>>,
    fails: Arc<AtomicBool>,
    commits: Arc<AtomicU64>,
    level: Level,
    regions: Vec<Arc<Region>>,
}

impl Files for InMemory {
    fn open(&self, name: &str, _: Kind, may_create: bool) -> Result<Box<dyn File>> {
        let mut files = self.files.lock().unwrap();
        if !files.contains_key(name) && !may_create {
            return Err(Code::CANTOPEN);
        }
        Ok(Box::new(OneFile {
            bytes: Arc::clone(files.entry(name.to_owned()).or_default()),
            fails: Arc::clone(&self.fails),
            commits: Arc::clone(&self.commits),
            level: Level::None,
            regions: Vec::new(),
        }))
    }

    fn delete(&self, name: &str) -> Result {
        self.files.lock().unwrap().remove(name).map(drop).ok_or(Code::DELETE_NOENT)
    }

    fn exists(&self, name: &str) -> bool {
        self.files.lock().unwrap().contains_key(name)
    }

    fn sleep(&self, time: Duration) {
        self.slept.fetch_add(time.as_millis() as u64, Ordering::Relaxed);
    }

    fn unix_millis(&self) -> i64 {
        1_000
    }

    fn random(&self, bytes: &mut [u8]) {
        bytes.fill(7);
    }
}

impl File for OneFile {
    fn read(&mut self, offset: u64, buf: &mut [u8]) -> Result {
        assert!(!self.fails.load(Ordering::Relaxed), "planned");
        let bytes = self.bytes.lock().unwrap();
        let rest = bytes.get(offset as usize..).unwrap_or_default();
        let len = rest.len().min(buf.len());
        buf[..len].copy_from_slice(&rest[..len]);
        buf[len..].fill(0);
        if len == buf.len() { Ok(()) } else { Err(Code::SHORT_READ) }
    }

    fn write(&mut self, offset: u64, new: &[u8]) -> Result {
        assert!(!self.fails.load(Ordering::Relaxed), "planned");
        let mut bytes = self.bytes.lock().unwrap();
        let end = offset as usize + new.len();
        let len = bytes.len().max(end);
        bytes.resize(len, 0);
        bytes[offset as usize..end].copy_from_slice(new);
        Ok(())
    }

    fn truncate(&mut self, len: u64) -> Result {
        self.bytes.lock().unwrap().resize(len as usize, 0);
        Ok(())
    }

    fn sync(&mut self) -> Result {
        Ok(())
    }

    fn size(&self) -> Result<u64> {
        Ok(self.bytes.lock().unwrap().len() as u64)
    }

    fn lock(&mut self, level: Level) -> Result {
        self.level = self.level.max(level);
        Ok(())
    }

    fn unlock(&mut self, level: Level) -> Result {
        self.level = self.level.min(level);
        Ok(())
    }

    fn has_writer(&self) -> Result<bool> {
        Ok(self.level >= Level::Reserved)
    }

    fn committed(&mut self) -> Result {
        self.commits.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn shm_map(&mut self, number: usize, bytes: usize, make: bool) -> Result<Option<Arc<Region>>> {
        if number == self.regions.len() && make {
            self.regions.push(Arc::new(Region::new(bytes)));
        }
        Ok(self.regions.get(number).cloned())
    }

    fn shm_lock(&mut self, _: ShmRange) -> Result {
        Ok(())
    }
}

fn open(vfs: &str) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags_and_vfs("a.db", OpenFlags::default(), vfs)?;
    connection.execute_batch("PRAGMA temp_store = MEMORY")?;
    Ok(connection)
}

fn count(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0))
}

#[test]
fn sqlite_works_on_them_with_either_journal() {
    for (name, mode) in [("hosted-delete", "delete"), ("hosted-wal", "wal")] {
        let files = Arc::new(InMemory::default());
        let registered = register(name, Arc::clone(&files) as _).unwrap();
        let connection = open(name).unwrap();
        let answer: String = connection
            .query_row(&format!("PRAGMA journal_mode = {mode}"), [], |row| row.get(0))
            .unwrap();
        assert_eq!(answer, mode);
        connection.execute_batch("CREATE TABLE t(a); INSERT INTO t VALUES (1), (2)").unwrap();
        connection.execute_batch("BEGIN; DELETE FROM t; ROLLBACK").unwrap();
        assert_eq!(files.exists("a.db-wal"), mode == "wal");
        let now: String =
            connection.query_row("SELECT datetime('now')", [], |row| row.get(0)).unwrap();
        assert_eq!(now, "1970-01-01 00:00:01");
        drop(connection);
        assert!(!files.exists("a.db-wal") && !files.exists("a.db-journal"));
        if mode == "delete" {
            assert!(files.commits.load(Ordering::Relaxed) >= 2);
        }
        let connection = open(name).unwrap();
        assert_eq!(count(&connection).unwrap(), 2);
        drop(registered);
        assert!(open(name).is_err(), "it is registered no more");
        assert!(count(&connection).is_err() || mode == "wal", "it looks for a journal");
    }
}

#[test]
fn a_panic_is_an_error() {
    let files = Arc::new(InMemory::default());
    let _registered = register("hosted-panics", Arc::clone(&files) as _).unwrap();
    let connection = open("hosted-panics").unwrap();
    connection.execute_batch("CREATE TABLE t(a); INSERT INTO t VALUES (1)").unwrap();
    files.fails.store(true, Ordering::Relaxed);
    let error = connection.execute_batch("INSERT INTO t VALUES (2)").unwrap_err();
    assert_eq!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::SystemIoFailure));
    files.fails.store(false, Ordering::Relaxed);
    drop(connection);
    assert_eq!(count(&open("hosted-panics").unwrap()).unwrap(), 1);
}

#[test]
fn a_missing_file_and_a_bad_name_are_refused() {
    let files = Arc::new(InMemory::default());
    assert!(register("a\0b", Arc::clone(&files) as _).unwrap_err().contains("null byte"));
    let _registered = register("hosted-missing", files as _).unwrap();
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
    let missing = Connection::open_with_flags_and_vfs("b.db", flags, "hosted-missing");
    let code = missing.unwrap_err().sqlite_error_code();
    assert_eq!(code, Some(rusqlite::ErrorCode::CannotOpen));
    let long = "x".repeat(600);
    let long = Connection::open_with_flags_and_vfs(long, OpenFlags::default(), "hosted-missing");
    assert!(long.is_err());
}
