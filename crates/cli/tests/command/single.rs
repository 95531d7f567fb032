//! `put`, `get`, `del`, `keyspaces`, `stats`, `compact`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use serde_json::json;

use crate::support::{Place, esker};

#[test]
fn a_value_comes_back_with_a_line_feed() {
    let place = Place::new();
    let db = place.db();
    assert_eq!(esker(["put", &db, "k", "v"]).text(), "");
    assert_eq!(esker(["get", &db, "k"]).text(), "v\n");
    esker(["put", &db, "k", ""]).stdout();
    assert_eq!(esker(["get", &db, "k"]).text(), "\n");
    esker(["put", &db, "", "of the empty key"]).stdout();
    assert_eq!(esker(["get", &db, ""]).text(), "of the empty key\n");
}

#[test]
fn an_absent_key_is_exit_1_and_silence() {
    let place = Place::new();
    let db = place.load("k\tv\n");
    for key in ["K", "", "kk"] {
        let answer = esker(["get", &db, key]);
        assert_eq!((answer.code(), answer.0.stdout.len(), answer.stderr().len()), (1, 0, 0));
    }
    assert_eq!(esker(["del", &db, "k"]).text(), "");
    assert_eq!(esker(["get", &db, "k"]).code(), 1);
    assert_eq!(esker(["del", &db, "k"]).text(), "");
}

#[test]
fn keys_and_values_are_bytes() {
    let place = Place::new();
    let db = place.db();
    let (key, value) = (OsStr::from_bytes(b"\xff\n\\x00"), OsStr::from_bytes(b"\xc3\x28\t"));
    let db = OsStr::new(&db);
    esker([OsStr::new("put"), db, key, value]).stdout();
    assert_eq!(esker([OsStr::new("get"), db, key]).stdout(), b"\xc3\x28\t\n");
    let answer = esker([OsStr::new("get"), db, key, OsStr::new("--json")]);
    assert_eq!(answer.json(), json!({ "k64": "/wpceDAw", "v64": "wygJ" }));
    let answer = esker([OsStr::new("dump"), db]);
    assert_eq!(answer.text(), "\\xff\\n\\\\x00\t\\xc3(\\t\n");
    esker([OsStr::new("del"), db, key]).stdout();
    assert_eq!(esker([OsStr::new("get"), db, key]).code(), 1);
}

#[test]
fn a_key_may_begin_with_a_dash() {
    let place = Place::new();
    let db = place.db();
    esker(["put", &db, "--", "-k", "--json"]).stdout();
    assert_eq!(esker(["get", &db, "--", "-k"]).text(), "--json\n");
}

#[test]
fn keyspaces_are_separate_and_listed() {
    let place = Place::new();
    let db = place.db();
    esker(["put", &db, "k", "1"]).stdout();
    esker(["put", &db, "k", "2", "--keyspace", "other"]).stdout();
    assert_eq!(esker(["get", &db, "k"]).text(), "1\n");
    assert_eq!(esker(["get", &db, "k", "--keyspace", "other"]).text(), "2\n");
    assert_eq!(esker(["keyspaces", &db]).text(), "default\nother\n");
    assert_eq!(esker(["keyspaces", &db, "--json"]).json(), json!(["default", "other"]));
    esker(["del", &db, "k", "--keyspace", "other"]).stdout();
    assert_eq!(esker(["get", &db, "k"]).text(), "1\n");
}

#[test]
fn a_missing_keyspace_is_named_and_not_made() {
    let place = Place::new();
    let db = place.load("k\tv\n");
    for arguments in [
        &["get", &db, "k"][..],
        &["del", &db, "k"],
        &["scan", &db],
        &["dump", &db],
        &["stats", &db],
        &["compact", &db],
    ] {
        let answer = esker([arguments, &["--keyspace", "absent"]].concat());
        answer.fails(2, &["absent"]);
        assert_eq!(answer.0.stdout, b"");
    }
    assert_eq!(esker(["keyspaces", &db]).text(), "default\n");
}

#[test]
fn a_missing_store_is_refused_and_not_made() {
    let place = Place::new();
    let db = place.db();
    for arguments in [
        &["get", &db, "k"][..],
        &["del", &db, "k"],
        &["scan", &db],
        &["dump", &db],
        &["keyspaces", &db],
        &["stats", &db],
        &["check", &db],
        &["compact", &db],
    ] {
        esker(arguments).fails(2, &[&db]);
        assert!(!place.path("db").exists(), "{arguments:?}");
    }
}

#[test]
fn bounds_of_keys_and_names_are_told() {
    let place = Place::new();
    let db = place.db();
    let longest = "k".repeat(esker::KEY_BYTES_MAX);
    esker(["put", &db, &longest, "v"]).stdout();
    assert_eq!(esker(["get", &db, &longest]).text(), "v\n");
    esker(["put", &db, &format!("{longest}k"), "v"]).fails(2, &["65536"]);
    esker(["put", &db, "k", "v", "--keyspace", ""]).fails(2, &[]);
    esker(["put", &db, "k", "v", "--keyspace", "a\nb"]).fails(2, &[]);
    esker(["put", &db, "k", "v", "--keyspace", &"n".repeat(256)]).fails(2, &["255"]);
}

#[test]
fn stats_and_compact_answer_in_both_forms() {
    let place = Place::new();
    let db = place.load("a\t1\nb\t2\n");
    let text = esker(["stats", &db]).text().to_owned();
    for word in ["default", "data file", "log", "manifest", "memory budget"] {
        assert!(text.contains(word), "{word} is not in\n{text}");
    }
    let stats = esker(["stats", &db, "--json"]).json();
    assert_eq!(stats["keyspaces"][0]["name"], "default");
    assert!(stats["space"]["log_bytes"].is_u64());
    assert!(stats["io"].is_object());

    assert!(esker(["compact", &db]).text().starts_with("compacted from "));
    let report = esker(["compact", &db, "--json"]).json();
    assert!(report["allocated_bytes"].is_u64());
    esker(["compact", &db, "--keyspace", "default"]).stdout();
    assert_eq!(crate::support::dump(&db), "a\t1\nb\t2\n");
}
