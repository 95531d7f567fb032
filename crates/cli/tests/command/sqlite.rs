//! `sqlite`, from outside: from SQLite's files to stores and back.

use std::fs;

use rusqlite::Connection;

use crate::support::{Place, esker};

/// A database with a table of so many rows.
fn database(place: &Place, name: &str, journal: &str, rows: i64) -> (String, Connection) {
    let path = place.path(name).display().to_string();
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch(&format!("PRAGMA page_size = 1024; {journal}")).unwrap();
    connection.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT)").unwrap();
    let insert = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
                  INSERT INTO t SELECT i, printf('name %d', i * i) FROM n";
    connection.execute(insert, [rows]).unwrap();
    (path, connection)
}

/// Everything of the table, in one text.
fn content(path: &str) -> String {
    let connection = Connection::open(path).unwrap();
    let ok: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(ok, "ok");
    let all = "SELECT group_concat(id || name) FROM (SELECT * FROM t ORDER BY id)";
    connection.query_row(all, [], |row| row.get(0)).unwrap()
}

#[test]
fn a_database_comes_back_as_it_was() {
    let place = Place::new();
    for journal in ["", "PRAGMA journal_mode = wal;"] {
        let (source, connection) = database(&place, "app.db", journal, 5_000);
        drop(connection);
        let (store, back) = (place.db(), place.path("back.db").display().to_string());
        assert!(esker(["sqlite", "import", &source, &store]).text().contains("of 1024 bytes"));
        esker(["sqlite", "import", &source, &store]).fails(2, &["exists", "--force"]);
        esker(["sqlite", "import", &source, &store, "--force"]).stdout();
        assert!(esker(["sqlite", "check", &store]).text().starts_with("ok"));
        esker(["sqlite", "export", &store, &back]).stdout();
        assert_eq!(content(&back), content(&source));
        let stats = esker(["sqlite", "stats", &store, "--json"]).json();
        assert_eq!(stats["page_bytes"], 1024);
        assert_eq!(stats["pages"].as_u64().unwrap() * 1024, fs::metadata(&back).unwrap().len());
        for name in [&source, &store, &back] {
            fs::remove_file(name).unwrap();
        }
    }
    assert_eq!(fs::read_dir(place.path("")).unwrap().count(), 0);
}

#[test]
fn what_a_log_still_holds_is_not_lost_by_an_import() {
    let place = Place::new();
    let (source, _open) = database(&place, "app.db", "PRAGMA journal_mode = wal;", 10);
    esker(["sqlite", "import", &source, &place.db()]).fails(2, &["-wal", "journal_mode=DELETE"]);
    assert!(!place.path("db").exists());
}

#[test]
fn versions_are_pinned_exported_and_let_go() {
    let place = Place::new();
    let (source, connection) = database(&place, "app.db", "", 100);
    drop(connection);
    let store = place.db();
    esker(["sqlite", "import", &source, &store]).stdout();
    assert!(esker(["sqlite", "pin", &store, "monday"]).text().contains("monday"));
    let versions = esker(["sqlite", "versions", &store, "--json"]).json();
    assert_eq!(versions[0]["names"], serde_json::json!(["monday"]));
    let back = place.path("back.db").display().to_string();
    esker(["sqlite", "export", &store, &back, "--version", "monday"]).stdout();
    assert_eq!(content(&back), content(&source));
    esker(["sqlite", "unpin", &store, "monday"]).stdout();
    assert_eq!(esker(["sqlite", "unpin", &store, "monday"]).code(), 2);
    esker(["sqlite", "compact", &store]).stdout();
}

#[test]
fn what_is_no_database_and_no_store_is_named() {
    let place = Place::new();
    let (source, connection) = database(&place, "app.db", "", 100);
    drop(connection);
    let store = place.db();
    let text = place.write("text", "x".repeat(5000));
    esker(["sqlite", "import", &text, &store]).fails(2, &["no SQLite database"]);
    esker(["sqlite", "import", &place.write("empty", ""), &store]).fails(2, &["too short"]);
    let mut cut = fs::read(&source).unwrap();
    cut.truncate(cut.len() - 100);
    esker(["sqlite", "import", &place.write("cut", cut), &store]).fails(3, &["whole pages"]);
    esker(["sqlite", "check", &source]).fails(2, &["esker sqlite import"]);
    esker(["sqlite", "check", &text]).fails(2, &["text"]);
    esker(["sqlite", "stats", &store]).fails(5, &["db"]);
    assert!(!place.path("db").exists());
}
