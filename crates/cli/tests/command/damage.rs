//! Damaged stores: found by `check`, survived by `scan --skip-damaged`, exit 3.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::support::{Place, esker};

/// A store with its entries in the data file, and that file.
fn store(place: &Place) -> (String, PathBuf) {
    let input: String =
        (0..20_000).map(|number| format!("{number:08}\tthe value of {number:08}\n")).collect();
    let db = place.load(input);
    esker(["compact", &db]).stdout();
    let files = fs::read_dir(&db).unwrap().map(|entry| entry.unwrap().path());
    let data = files.max_by_key(|path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name.starts_with("data"), fs::metadata(path).unwrap().len())
    });
    (db, data.unwrap())
}

#[test]
fn a_sound_store_is_ok() {
    for place in Place::of_each_kind() {
        let (db, _) = store(&place);
        assert!(esker(["check", &db]).text().starts_with("ok: "));
        let report = esker(["check", &db, "--json"]).json();
        assert_eq!((&report["ok"], &report["problems"]), (&true.into(), &Value::Array(vec![])));
    }
}

#[test]
fn damage_is_found_named_and_scanned_around() {
    for place in Place::of_each_kind() {
        let (db, data) = store(&place);
        let sound = crate::support::dump(&db);
        let mut bytes = fs::read(&data).unwrap();
        let needle = b"the value of 00010000";
        let at = bytes.windows(needle.len()).position(|window| window == needle).unwrap();
        bytes[at] ^= 0x01;
        fs::write(&data, bytes).unwrap();

        let answer = esker(["check", &db]);
        answer.fails(3, &["found"]);
        let findings = String::from_utf8(answer.0.stdout.clone()).unwrap();
        for line in findings.lines() {
            let (place, what) = line.split_once(": ").unwrap();
            let (file, offset) = place.rsplit_once('@').unwrap();
            assert!(
                !file.is_empty() && !what.is_empty() && offset.parse::<u64>().is_ok(),
                "{line}"
            );
        }
        let answer = esker(["check", &db, "--json"]);
        answer.fails(3, &["found"]);
        let report: Value = serde_json::from_slice(&answer.0.stdout).unwrap();
        assert_eq!(report["ok"], false);
        assert_eq!(report["problems"].as_array().unwrap().len(), findings.lines().count());

        esker(["dump", &db]).fails(3, &["damaged"]);
        for arguments in [["scan", &db, "--skip-damaged"], ["dump", &db, "--skip-damaged"]] {
            let answer = esker(arguments);
            answer.fails(3, &["cannot be read"]);
            let found = String::from_utf8(answer.0.stdout.clone()).unwrap();
            let rest: Vec<&str> = found.lines().collect();
            assert!(rest.len() < 20_000 && rest.len() > 18_000, "{} entries", rest.len());
            let all: std::collections::BTreeSet<&str> = sound.lines().collect();
            assert!(rest.iter().all(|line| all.contains(line)));
        }
    }
}
