//! `backup`, `restore`, and `check` of a backup.

use esker::Db;
use serde_json::Value;

use crate::support::{Place, esker, while_written};

fn lines(numbers: std::ops::Range<u32>) -> Vec<u8> {
    numbers.flat_map(|number| format!("key{number:06}\tvalue {number}\n").into_bytes()).collect()
}

fn path(place: &Place, name: &str) -> String {
    place.path(name).into_os_string().into_string().unwrap()
}

#[test]
fn a_restored_store_holds_what_was_backed_up() {
    for place in Place::of_each_kind() {
        let db = place.load(lines(0..5000));
        let (backup, restored) = (path(&place, "backup"), path(&place, "restored"));
        let before = esker(["dump", &db]).stdout().to_vec();
        let first: Value =
            serde_json::from_slice(esker(["backup", &db, &backup, "--json"]).stdout()).unwrap();
        assert_eq!(first["run"], 1);
        assert!(first["bytes_read"].as_u64() >= first["bytes_total"].as_u64());
        esker(["put", &db, "key000001", "another value"]).stdout();

        assert!(esker(["check", &backup]).text().starts_with("ok: "));
        assert!(esker(["restore", &backup, &restored]).text().starts_with("restored "));
        assert!(esker(["dump", &restored]).stdout() == before, "the restored store differs");
        assert!(esker(["check", &restored]).text().starts_with("ok: "));

        let second: Value =
            serde_json::from_slice(esker(["backup", &db, &backup, "--json"]).stdout()).unwrap();
        assert_eq!(second["run"], 2);
        assert!(second["bytes_written"].as_u64() < first["bytes_written"].as_u64());
        let third = esker(["backup", &db, &backup]);
        assert!(third.text().starts_with("backup 2 holds "), "{}", third.text());
    }
}

#[test]
fn folders_that_are_something_else_are_refused() {
    let place = Place::new();
    let db = place.load(lines(0..10));
    let other = path(&place, "other");
    esker(["put", &other, "a", "b"]).stdout();
    let backup = path(&place, "backup");
    esker(["backup", &db, &backup]).stdout();
    let full = path(&place, "full");
    std::fs::create_dir(&full).unwrap();
    std::fs::write(place.path("full/letter.txt"), "dear").unwrap();
    let inside = format!("{db}/backup");
    let refused = [
        (vec!["backup", &db, &db], "is within the store"),
        (vec!["backup", &db, &inside], "is within the store"),
        (vec!["backup", &db, &other], "is a store and not a backup"),
        (vec!["backup", &db, &full], "letter.txt"),
        (vec!["backup", &other, &backup], "a backup of another store"),
        (vec!["restore", &backup, &full], "is not empty"),
        (vec!["restore", &backup, &other], "is not empty"),
        (vec!["restore", &other, &full], "there is no backup at"),
    ];
    for (arguments, reason) in refused {
        let answer = esker(arguments.clone());
        assert_eq!(answer.code(), 2, "{arguments:?}: {}", answer.stderr());
        assert!(answer.stderr().contains(reason), "{arguments:?}: {}", answer.stderr());
    }
    assert!(!place.path("db/backup").exists() && !std::path::Path::new(&inside).exists());
}

#[test]
fn a_damaged_backup_is_named_and_not_restored() {
    for place in Place::of_each_kind() {
        let db = place.load(lines(0..5000));
        let (backup, restored) = (path(&place, "backup"), path(&place, "restored"));
        esker(["backup", &db, &backup]).stdout();
        let file = place.path("backup/blocks");
        let mut bytes = std::fs::read(&file).unwrap();
        bytes[5000] ^= 0x10;
        std::fs::write(&file, bytes).unwrap();
        assert_eq!(esker(["check", &backup]).code(), 3);
        let answer = esker(["restore", &backup, &restored]);
        assert_eq!(answer.code(), 3, "{}", answer.stderr());
        assert!(answer.stderr().contains("blocks is damaged at byte"), "{}", answer.stderr());
        assert_eq!(esker(["get", &restored, "key000001"]).code(), 2);
    }
}

#[test]
fn a_killed_backup_leaves_the_one_before() {
    for place in Place::of_each_kind() {
        let db = place.load(lines(0..20_000));
        let (backup, restored) = (path(&place, "backup"), path(&place, "restored"));
        esker(["backup", &db, &backup]).stdout();
        let before = esker(["dump", &db]).stdout().to_vec();
        esker(["compact", &db]).stdout();
        for millis in 0..12 {
            let mut child = crate::support::command(["backup", &db, &backup]).spawn().unwrap();
            std::thread::sleep(std::time::Duration::from_millis(millis));
            // It may be done already.
            let _ended = child.kill();
            child.wait().unwrap();
            assert!(esker(["check", &backup]).text().starts_with("ok: "));
        }
        esker(["restore", &backup, &restored]).stdout();
        assert!(esker(["dump", &restored]).stdout() == before, "the restored store differs");
    }
}

#[test]
fn a_store_that_a_program_writes_is_copied_as_of_one_moment() {
    for place in Place::of_each_kind() {
        let db = place.db();
        let (backup, restored) = (path(&place, "backup"), path(&place, "restored"));
        while_written(&place, |writer| {
            for run in 1..=3 {
                let before = writer.visible_seq();
                let made = esker(["backup", &db, &backup, "--json"]);
                let made: Value = serde_json::from_slice(made.stdout()).unwrap();
                assert_eq!(made["run"], run);
                let seq = made["seq"].as_u64().unwrap();
                assert!((before..=writer.visible_seq()).contains(&seq), "{before}: {seq}");
                assert!(esker(["check", &backup]).text().starts_with("ok: "));
                esker(["restore", &backup, &restored]).stdout();
                // The writer inserts 0, 1, 2 and so on, with a number each.
                let copy = Db::open(&restored).unwrap();
                let copied = copy.open_keyspace("default").unwrap().unwrap();
                let keys = copied.iter().unwrap().map(|entry| entry.unwrap().0);
                assert!(keys.eq((0..seq).map(u64::to_be_bytes)), "{seq}");
                drop(copied);
                copy.close().unwrap();
                std::fs::remove_dir_all(&restored).unwrap();
            }
        });
    }
}
