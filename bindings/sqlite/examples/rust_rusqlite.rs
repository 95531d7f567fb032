//! rusqlite over the extension: `cargo add rusqlite --features bundled,load_extension`.
//!
//! ```text
//! cargo run --release -p esker-sqlite --example rust_rusqlite [LIBRARY [DATABASE]]
//! ```

#![expect(unsafe_code, reason = "a library is loaded")]

use std::error::Error;
use std::time::Duration;

use rusqlite::{Connection, LoadExtensionGuard, OpenFlags};

/// Loads the extension, once a process: every connection can name its VFS afterwards.
fn load(library: &str) -> rusqlite::Result<()> {
    let memory = Connection::open_in_memory()?;
    // SAFETY: the library is the extension, and nothing else is loaded by this connection.
    unsafe {
        let _guard = LoadExtensionGuard::new(&memory)?;
        memory.load_extension(library, None::<&str>)
    }
}

/// A connection that does not wait for locks.
fn open(path: &str) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(format!("file:{path}?vfs=esker"), flags)?;
    connection.busy_timeout(Duration::ZERO)?;
    Ok(connection)
}

fn count(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("SELECT count(*) FROM people", [], |row| row.get(0))
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let library = arguments.next().unwrap_or("target/release/libesker_sqlite.so".to_owned());
    let path = arguments.next().unwrap_or("example.db".to_owned());
    load(&library)?;
    let mut writer = open(&path)?;
    writer.execute_batch("DROP TABLE IF EXISTS people")?;
    writer.execute_batch("CREATE TABLE people(name TEXT PRIMARY KEY, born INTEGER)")?;

    let transaction = writer.transaction()?;
    for (name, born) in [("Ada", 1815), ("Alan", 1912)] {
        transaction.execute("INSERT INTO people VALUES (?1, ?2)", (name, born))?;
    }
    transaction.commit()?;

    let transaction = writer.transaction()?;
    transaction.execute("DELETE FROM people", [])?;
    transaction.rollback()?;
    assert_eq!(count(&writer)?, 2);

    // A reader stays at its version, and no connection waits.
    let mut reader = open(&path)?;
    let reading = reader.transaction()?;
    assert_eq!(count(&reading)?, 2);
    writer.execute("INSERT INTO people VALUES ('Grace', 1906)", [])?;
    assert_eq!((count(&reading)?, count(&writer)?), (2, 3));
    reading.commit()?;
    assert_eq!(count(&reader)?, 3);

    let checked: String = writer.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    assert_eq!(checked, "ok");
    drop(reader);
    drop(writer);
    assert_eq!(count(&open(&path)?)?, 3);
    println!("rusqlite with SQLite {}", rusqlite::version());
    Ok(())
}
