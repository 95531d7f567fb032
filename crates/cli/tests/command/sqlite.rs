//! `sqlite`, from outside: from SQLite's files to stores and back.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};

use esker_pages::{Durability, Missing, Options, Processes, StoreFile};
use rusqlite::Connection;
use serde_json::json;

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

fn length(path: &str) -> u64 {
    fs::metadata(path).unwrap().len()
}

/// The number of pages that a check read which found nothing wrong. Both forms of output are
/// compared.
fn check_says(store: &str) -> u64 {
    let report = esker(["sqlite", "check", store, "--json"]).json();
    assert_eq!((&report["ok"], &report["accounted"]), (&json!(true), &json!(true)));
    assert_eq!((&report["versions"], &report["problems"]), (&json!(1), &json!([])));
    let (pages, nodes) = (report["pages"].as_u64().unwrap(), report["nodes"].as_u64().unwrap());
    let line =
        format!("ok: {pages} pages, {nodes} nodes of the map, versions: 1; no space is lost\n");
    assert_eq!(esker(["sqlite", "check", store]).text(), line);
    pages
}

/// The cell in the last column of a table's row.
fn cell<'a>(table: &'a str, row: &str) -> Option<&'a str> {
    let line = table.lines().find(|line| line.trim_start().starts_with(row))?;
    line.split("  ").last().map(str::trim)
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
        let pages = check_says(&store);
        esker(["sqlite", "export", &store, &back]).stdout();
        assert_eq!(content(&back), content(&source));
        let stats = esker(["sqlite", "stats", &store, "--json"]).json();
        assert_eq!(stats["newest"]["page_size"], 1024);
        assert_eq!(stats["newest"]["pages"].as_u64().unwrap() * 1024, length(&back));
        assert_eq!(stats["live_pages"], pages);
        assert_eq!(
            (stats["versions"].as_u64(), stats["written"]["filled"].as_u64()),
            (Some(1), Some(0))
        );
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
fn versions_are_pinned_exported_and_released() {
    let place = Place::new();
    let (source, connection) = database(&place, "app.db", "", 100);
    drop(connection);
    let store = place.db();
    esker(["sqlite", "import", &source, &store]).stdout();
    assert!(esker(["sqlite", "pin", &store, "monday"]).text().contains("monday"));
    let versions = esker(["sqlite", "versions", &store, "--json"]).json();
    assert_eq!(versions[0]["names"], json!(["monday"]));
    let pages = versions[0]["pages"].as_u64().unwrap();
    assert_eq!(pages * versions[0]["page_size"].as_u64().unwrap(), length(&source));
    let table = esker(["sqlite", "versions", &store]).text().to_owned();
    let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    let (version, pages) = (versions[0]["version"].to_string(), pages.to_string());
    assert!(table.starts_with("version  pages  of bytes  only here   names\n"), "{table}");
    assert_eq!(row, [&version, &pages, "1,024", "0", "monday"]);
    let table = esker(["sqlite", "stats", &store]).text().to_owned();
    assert_eq!(cell(&table, "pages "), Some(pages.as_str()));
    assert_eq!(cell(&table, "bytes of a page"), Some("1,024"));
    assert_eq!(cell(&table, "versions kept"), Some("1"));
    let back = place.path("back.db").display().to_string();
    esker(["sqlite", "export", &store, &back, "--version", "monday"]).stdout();
    assert_eq!(content(&back), content(&source));
    esker(["sqlite", "unpin", &store, "monday"]).stdout();
    assert_eq!(esker(["sqlite", "unpin", &store, "monday"]).code(), 2);
}

/// Writes to a store as SQLite does when a database becomes the one in the file `source`.
fn replace(store: &str, source: &str) {
    let file = StoreFile::open(store.as_ref(), Missing::Fail, Options::default()).unwrap();
    let mut writer = file.store.begin(&file.store.pin()).unwrap();
    let pages = fs::read(source).unwrap();
    for (number, page) in (0..).zip(pages.chunks(1024)) {
        writer.write(number, 0, page).unwrap();
    }
    writer.truncate((pages.len() / 1024) as u32).unwrap();
    writer.commit(Durability::Full).unwrap();
    file.close().unwrap();
}

#[test]
fn compact_gives_back_what_was_deleted() {
    let place = Place::new();
    let (source, connection) = database(&place, "app.db", "", 200_000);
    drop(connection);
    let (small, connection) = database(&place, "small.db", "", 200_000);
    connection.execute_batch("DELETE FROM t WHERE id % 10 > 0; VACUUM").unwrap();
    drop(connection);
    let (store, live) = (place.db(), length(&small));
    for allocation in ["slot", "segment"] {
        esker(["sqlite", "import", &source, &store, "--force", "--allocation", allocation])
            .stdout();
        let full = length(&store);
        assert!(full > 4 << 20, "{full}");
        replace(&store, &small);
        assert!(length(&store) >= full);
        let back = place.path("back.db").display().to_string();
        let compacted = esker(["sqlite", "compact", &store, "--json"]).json();
        assert_eq!(compacted["after_bytes"], length(&store), "{compacted}");
        esker(["sqlite", "export", &store, &back, "--force"]).stdout();
        assert_eq!(content(&back), content(&small));
        let short = length(&store);
        assert!(short < live + (2 << 20), "{allocation}: {short} for {live} of {full}");
        check_says(&store);
        assert_eq!(length(&store), short);
        let said = esker(["sqlite", "compact", &store]).text().to_owned();
        assert!(said.starts_with("compacted from ") && said.ends_with("in use\n"), "{said}");
        assert!(length(&store) <= short);
    }
}

#[test]
fn inspection_writes_nothing_and_is_shared() {
    let place = Place::new();
    let (source, connection) = database(&place, "app.db", "", 100);
    drop(connection);
    let (store, back) = (place.db(), place.path("back.db").display().to_string());
    // What is open here may for a moment be open in a child of another test, too: what is judged
    // is a copy.
    let (made, path) = (place.path("made"), place.path("db"));
    let name = made.display().to_string();
    esker(["sqlite", "import", &source, &name]).stdout();
    esker(["sqlite", "pin", &name, "monday"]).stdout();
    let looks = || {
        let metadata = fs::metadata(&path).unwrap();
        (fs::read(&path).unwrap(), metadata.mtime_nsec(), metadata.ctime_nsec())
    };
    let file = StoreFile::open(&made, Missing::Fail, Options::default()).unwrap();
    esker(["sqlite", "stats", &name]).fails(4, &["for writing"]);
    let snapshot = file.store.pin();
    let mut writer = file.store.begin(&snapshot).unwrap();
    writer.write(1, 0, &[0; 1]).unwrap();
    writer.commit(Durability::Full).unwrap();
    // Once closed, and once as a process leaves it that dies.
    let crashed = fs::read(&made).unwrap();
    drop(snapshot);
    file.close().unwrap();
    for bytes in [fs::read(&made).unwrap(), crashed] {
        fs::write(&path, bytes).unwrap();
        let before = looks();
        let reader = StoreFile::open_read_only(&path, Options::default()).unwrap();
        let report = esker(["sqlite", "check", &store, "--json"]).json();
        assert_eq!((&report["ok"], &report["accounted"]), (&json!(true), &json!(true)));
        assert!(esker(["sqlite", "versions", &store]).text().contains("monday"));
        let stats = esker(["sqlite", "stats", &store, "--json"]).json();
        assert_eq!((&stats["syncs"], &stats["versions"]), (&json!(0), &json!(2)));
        for version in [&[][..], &["--version", "monday"]] {
            let export = ["sqlite", "export", &store, &back, "--force"];
            esker(export.iter().chain(version)).stdout();
        }
        assert_eq!(content(&back), content(&source));
        for writes in [["pin", "tuesday"], ["unpin", "monday"]] {
            esker(["sqlite", writes[0], &store, writes[1]])
                .fails(4, &["does not share it", "close it there"]);
        }
        esker(["sqlite", "compact", &store]).fails(4, &["does not share it", "close it there"]);
        assert!(looks() == before, "something was written");
        drop(reader);
    }
    fs::write(&path, "").unwrap();
    esker(["sqlite", "stats", &store]).stdout();
    assert_eq!(length(&store), 0);
}

/// A transaction that took place in its other files has taken place in this one.
#[test]
fn a_transaction_over_several_stores_that_was_cut_off_is_decided() {
    let place = Place::new();
    let (source, connection) = database(&place, "app.db", "", 100);
    connection.execute_batch("CREATE TABLE u(n)").unwrap();
    drop(connection);
    let (store, back) = (place.db(), place.path("back.db").display().to_string());
    let made = place.path("made");
    esker(["sqlite", "import", &source, &made.display().to_string()]).stdout();
    let file = StoreFile::open(&made, Missing::Fail, Options::default()).unwrap();
    let mut writer = file.store.begin(&file.store.pin()).unwrap();
    let (pages, journal) = (writer.pages(), place.path("db-mj1").display().to_string());
    // Pages behind the end of what SQLite counts.
    writer.write(pages, 0, &[7; 1024]).unwrap();
    writer.prepare(journal.as_bytes()).unwrap();
    fs::copy(&made, place.path("db")).unwrap();
    drop((writer, file));
    let exported = || {
        esker(["sqlite", "export", &store, &back, "--force"]).stdout();
        length(&back)
    };
    let bytes = u64::from(pages) * 1024;
    assert_eq!(exported(), bytes + 1024);
    fs::write(&journal, "").unwrap();
    assert_eq!(exported(), bytes);
    esker(["sqlite", "compact", &store]).stdout();
    fs::remove_file(&journal).unwrap();
    assert_eq!(exported(), bytes);
}

#[test]
fn damage_is_named_in_both_ways() {
    let place = Place::new();
    let (source, connection) = database(&place, "app.db", "", 1_000);
    drop(connection);
    let store = place.db();
    esker(["sqlite", "import", &source, &store]).stdout();
    let mut bytes = fs::read(&store).unwrap();
    let name = bytes.windows(8).position(|window| window == b"name 100").unwrap();
    bytes[name] ^= 1;
    fs::write(&store, bytes).unwrap();
    let from = name / 1024 * 1024;
    esker(["sqlite", "check", &store]).fails(3, &[&format!("@{from}:"), "checksum"]);
    let answer = esker(["sqlite", "check", &store, "--json"]);
    assert_eq!(answer.code(), 3);
    let report: serde_json::Value = serde_json::from_slice(&answer.0.stdout).unwrap();
    assert_eq!((&report["ok"], &report["problems"][0]["offset"]), (&json!(false), &json!(from)));
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

/// Another process writes all the time while the commands look at its store.
#[test]
fn commands_work_beside_a_process_that_shares_the_store() {
    let place = Place::new();
    let (source, connection) = database(&place, "app.db", "", 2_000);
    drop(connection);
    let (store, back) = (place.db(), place.path("back.db").display().to_string());
    esker(["sqlite", "import", &source, &store]).stdout();
    let options = Options::default().processes(Processes::Many);
    let file = StoreFile::open(store.as_ref(), Missing::Fail, options).unwrap();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writes = scope.spawn(|| {
            let mut commits = 0;
            while !is_done.load(Ordering::Relaxed) {
                // Of two versions, the command that pins has made one: it begins again.
                let Ok(mut writer) = file.store.begin(&file.store.pin()) else { continue };
                // SQLite counts the changes of a database there.
                let mut count = [0; 4];
                writer.read(0, 24, &mut count).unwrap();
                let count = u32::from_be_bytes(count) + 1;
                writer.write(0, 24, &count.to_be_bytes()).unwrap();
                writer.commit(Durability::Full).unwrap();
                commits += 1;
            }
            commits
        });
        let looks = || {
            esker(["sqlite", "pin", &store, "now"]).stdout();
            let check = esker(["sqlite", "check", &store, "--json"]).json();
            assert_eq!(check["ok"], json!(true));
            let versions = esker(["sqlite", "versions", &store, "--json"]).json();
            let first = versions[0]["version"].as_u64().unwrap();
            esker(["sqlite", "export", &store, &back, "--force"]).stdout();
            assert_eq!(content(&back), content(&source));
            esker(["sqlite", "export", &store, &back, "--version=now", "--force"]).stdout();
            assert_eq!(content(&back), content(&source));
            let stats = esker(["sqlite", "stats", &store, "--json"]).json();
            assert!(stats["newest"]["version"].as_u64().unwrap() > first);
            esker(["sqlite", "unpin", &store, "now"]).stdout();
            esker(["sqlite", "compact", &store]).fails(4, &["other processes"]);
        };
        let looked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(looks));
        is_done.store(true, Ordering::Relaxed);
        assert!(writes.join().unwrap() > 0);
        looked.unwrap();
    });
    file.close().unwrap();
    check_says(&store);
}
