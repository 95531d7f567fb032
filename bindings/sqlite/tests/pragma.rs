//! The pragmas that show what a store holds answer with JSON, which SQLite itself can read.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(unsafe_code, reason = "a library is loaded")]

mod common;

use rusqlite::{Connection, types::Value};

use common::{number, open, open_uri, text};

/// What SQLite finds at a path of a pragma's answer.
fn found(connection: &Connection, pragma: &str, path: &str) -> Value {
    let answer = text(connection, pragma);
    let extract = "SELECT json_extract(?1, ?2)";
    connection.query_row(extract, [answer.as_str(), path], |row| row.get(0)).unwrap()
}

/// A store with `rows` rows, in two commits.
fn store(folder: &tempfile::TempDir, rows: i64) -> Connection {
    let connection = open(&folder.path().join("app.db")).unwrap();
    connection.execute_batch("PRAGMA page_size = 1024; CREATE TABLE t(x)").unwrap();
    let insert = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
                  INSERT INTO t SELECT printf('row %d', i * i) FROM n";
    connection.execute(insert, [rows]).unwrap();
    connection
}

#[test]
fn stats_are_an_object_and_each_number_can_be_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let connection = store(&folder, 1_000);
    let stats = |path: &str| found(&connection, "PRAGMA esker_stats", path);
    assert_eq!(stats("$.commits"), Value::Integer(2));
    assert_eq!(stats("$.versions"), Value::Integer(1));
    let file = folder.path().join("app.db").metadata().unwrap().len();
    assert_eq!(stats("$.file_bytes"), Value::Integer(file.try_into().unwrap()));
    let pages = number(&connection, "PRAGMA page_count");
    let Value::Integer(written) = stats("$.written.pages") else { unreachable!() };
    assert!(written >= (pages - 2) * 1024, "{written} bytes of {pages} pages");
    assert_eq!(stats("$.nothing"), Value::Null);
    // One number alone, in whatever case; a name that is none is an error that says so.
    let syncs = |name: &str| text(&connection, &format!("PRAGMA esker_stats = {name}"));
    let before: u64 = syncs("syncs").parse().unwrap();
    connection.execute("DELETE FROM t WHERE x = 'row 4'", []).unwrap();
    assert_eq!(syncs("SYNCS").parse(), Ok(before + 1));
    let wrong = connection.query_row("PRAGMA esker_stats = sinks", [], |_| Ok(())).unwrap_err();
    assert!(wrong.to_string().contains("esker_stats=sinks: no such number"), "{wrong}");
}

#[test]
fn versions_are_an_array_with_the_newest_last() {
    let folder = tempfile::tempdir().unwrap();
    let connection = store(&folder, 1_000);
    let pages = number(&connection, "PRAGMA page_count");
    let pinned: i64 = text(&connection, "PRAGMA esker_pin = Monday").parse().unwrap();
    connection.execute("UPDATE t SET x = hex(x)", []).unwrap();
    let versions = |path: &str| found(&connection, "PRAGMA esker_versions", path);
    assert_eq!(versions("$[0].version"), Value::Integer(pinned));
    assert_eq!(versions("$[0].names"), Value::Text(r#"["Monday"]"#.to_owned()));
    assert_eq!(versions("$[0].pages"), Value::Integer(pages));
    assert_eq!(versions("$[0].page_size"), Value::Integer(1024));
    let Value::Integer(held) = versions("$[0].held_pages") else { unreachable!() };
    assert!(held > 0 && held <= pages, "{held} of {pages}");
    assert_eq!(versions("$[1].version"), Value::Integer(pinned + 1));
    assert_eq!(versions("$[1].held_pages"), Value::Integer(0));
    assert_eq!(versions("$[2]"), Value::Null);
}

#[test]
fn a_check_says_what_it_read() {
    let folder = tempfile::tempdir().unwrap();
    let connection = store(&folder, 1_000);
    let check = |path: &str| found(&connection, "PRAGMA esker_check", path);
    assert_eq!(check("$.ok"), Value::Integer(1));
    assert_eq!(check("$.accounted"), Value::Integer(1));
    assert_eq!(check("$.versions"), Value::Integer(1));
    let live: i64 = text(&connection, "PRAGMA esker_stats = live_pages").parse().unwrap();
    assert!(live > 5);
    assert_eq!(check("$.pages"), Value::Integer(live));
}

#[test]
fn a_check_of_a_damaged_store_is_an_error_that_names_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    let connection = store(&folder, 1_000);
    connection.close().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let row = bytes.windows(6).position(|window| window == b"row 16").unwrap();
    bytes[row] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let connection = open(&path).unwrap();
    let wrong = connection.query_row("PRAGMA esker_check", [], |_| Ok(())).unwrap_err();
    let (from, said) = (row / 1024 * 1024, wrong.to_string());
    assert!(said.contains("checksum") && said.contains(&from.to_string()), "{said}");
}

/// What was deleted is given back to the file system while others read; a file that is as short as
/// it can be stays so.
#[test]
fn compact_gives_back_what_was_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    for allocation in ["slot", "segment"] {
        let uri = format!("file:{}?vfs=esker&allocation={allocation}", path.display());
        let connection = open_uri(&uri).unwrap();
        connection.execute_batch("PRAGMA page_size = 1024; CREATE TABLE t(x)").unwrap();
        let insert = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9)
                      INSERT INTO t SELECT randomblob(200000) FROM n, n";
        for _ in 0..4 {
            connection.execute(insert, []).unwrap();
        }
        assert_eq!(text(&connection, "PRAGMA esker_stats = allocation"), allocation);
        assert_eq!(
            found(&connection, "PRAGMA esker_stats", "$.allocation"),
            Value::Text(allocation.to_owned())
        );
        connection.execute_batch("DELETE FROM t WHERE rowid % 10 > 0; VACUUM").unwrap();
        let live = number(&connection, "PRAGMA page_count") * 1024;
        let file = || i64::try_from(path.metadata().unwrap().len()).unwrap();
        assert!(file() > 8 * live, "{} for {live}", file());
        let reader = open(&path).unwrap();
        reader.execute_batch("BEGIN").unwrap();
        assert_eq!(number(&reader, "SELECT count(*) FROM t"), 32);
        let before = file();
        let answer = text(&connection, "PRAGMA esker_compact");
        let said = |field: &str| {
            let extract = "SELECT json_extract(?1, ?2)";
            connection
                .query_row(extract, [answer.as_str(), field], |row| row.get::<_, i64>(0))
                .unwrap()
        };
        assert_eq!(said("$.before_bytes"), before);
        assert_eq!(number(&reader, "SELECT sum(length(x)) FROM t"), 32 * 200_000);
        reader.execute_batch("COMMIT").unwrap();
        text(&connection, "PRAGMA esker_compact");
        let short = file();
        assert!(short < live + (2 << 20), "{allocation}: {short} for {live}");
        text(&connection, "PRAGMA esker_compact");
        assert_eq!(file(), short);
        assert_eq!(text(&connection, "PRAGMA integrity_check"), "ok");
        drop((connection, reader));
        std::fs::remove_file(&path).unwrap();
    }
}

/// The allocation is chosen when a store is made, by a name that is known.
#[test]
fn a_store_keeps_its_allocation() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    let uri = |name| format!("file:{}?vfs=esker&allocation={name}", path.display());
    assert!(open_uri(&uri("heap")).is_err());
    assert!(!path.exists());
    for (asked, kept) in [("segment", "segment"), ("slot", "segment")] {
        let connection = open_uri(&uri(asked)).unwrap();
        connection.execute_batch("CREATE TABLE IF NOT EXISTS t(x)").unwrap();
        assert_eq!(text(&connection, "PRAGMA esker_stats = allocation"), kept);
    }
}
