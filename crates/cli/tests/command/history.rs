//! Keyspaces with history: `--history`, `--at`, `--at-time`, `history`, `versions`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use serde_json::{Value, json};

use crate::support::{Place, esker, esker_reading};

/// The newest version of a store, and its time.
fn newest(db: &str) -> (String, String) {
    let versions = esker(["versions", db, "--json"]).json();
    (versions["newest"].to_string(), versions["time"].as_str().unwrap().to_owned())
}

/// A store whose keyspace has had three states, and the versions and times of those.
fn prices(place: &Place) -> (String, [(String, String); 3]) {
    let db = place.db();
    esker(["put", &db, "tea", "3.20", "--history"]).stdout();
    let first = newest(&db);
    esker_reading(["load", &db, "--history"], b"tea\t3.60\ncoffee\t4.10\n").stdout();
    let second = newest(&db);
    esker(["del", &db, "tea"]).stdout();
    let third = newest(&db);
    (db, [first, second, third])
}

#[test]
fn earlier_versions_are_read() {
    let place = Place::new();
    let (db, versions) = prices(&place);
    let states = ["tea\t3.20\n", "coffee\t4.10\ntea\t3.60\n", "coffee\t4.10\n"];
    for ((version, time), state) in versions.iter().zip(states) {
        for option in [["--at", version.as_str()], ["--at-time", time.as_str()]] {
            let run = |command: &[&str]| esker([command, &option].concat());
            assert_eq!(run(&["dump", &db]).text(), state);
            assert_eq!(run(&["scan", &db]).text(), state);
            assert_eq!(run(&["scan", &db, "--prefix=x"]).text(), "");
            let first = state.split_inclusive('\n').next().unwrap();
            assert_eq!(run(&["scan", &db, "--limit=1"]).text(), first);
            let tea = state.lines().find_map(|line| line.strip_prefix("tea\t"));
            let got = run(&["get", &db, "tea"]);
            match tea {
                Some(value) => assert_eq!(got.text(), format!("{value}\n")),
                None => assert_eq!((got.code(), got.stderr().as_str()), (1, "")),
            }
        }
    }
    assert_eq!(esker(["dump", &db]).text(), states[2]);
    assert_eq!(esker(["dump", &db, "--at-time=9999-01-01"]).text(), states[2]);
    let json = esker(["get", &db, "tea", "--json", "--at", &versions[1].0]).json();
    assert_eq!(json, json!({ "k": "tea", "v": "3.60" }));
    // Merges and backups keep them.
    esker(["compact", &db]).stdout();
    let [backup, restored] = ["backup", "restored"].map(|name| place.path(name));
    let [db, backup, restored] = [OsStr::new(&db), backup.as_os_str(), restored.as_os_str()];
    esker([OsStr::new("backup"), db, backup]).stdout();
    esker([OsStr::new("restore"), backup, restored]).stdout();
    for ((version, _), state) in versions.iter().zip(states) {
        for store in [db, restored] {
            let at = [OsStr::new("--at"), OsStr::new(version)];
            assert_eq!(esker([OsStr::new("dump"), store, at[0], at[1]]).text(), state);
        }
    }
}

#[test]
fn the_changes_of_a_key_are_listed() {
    let place = Place::new();
    let (db, [first, second, third]) = prices(&place);
    let line = |(version, time): &(String, String), what| format!("{version}\t{time}\t{what}\n");
    let lines = [line(&third, "removed"), line(&second, "put\t3.60"), line(&first, "put\t3.20")];
    assert_eq!(esker(["history", &db, "tea"]).text(), lines.concat());
    assert_eq!(esker(["history", &db, "tea", "--limit=2"]).text(), lines[..2].concat());
    assert_eq!(esker(["history", &db, "tea", "--limit=0"]).text(), "");
    let answer = esker(["history", &db, "746561", "--key-format=hex", "--json"]);
    let found: Vec<Value> =
        answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let version = |text: &str| text.parse::<u64>().unwrap();
    let expected = [
        json!({ "version": version(&third.0), "time": third.1, "removed": true }),
        json!({ "version": version(&second.0), "time": second.1, "v": "3.60" }),
        json!({ "version": version(&first.0), "time": first.1, "v": "3.20" }),
    ];
    assert_eq!(found, expected);
    let absent = esker(["history", &db, "milk"]);
    assert_eq!((absent.code(), absent.0.stdout.len(), absent.stderr().len()), (1, 0, 0));

    let value = OsStr::from_bytes(b"\xff\t");
    esker([OsStr::new("put"), OsStr::new(&db), OsStr::new("bytes"), value]).stdout();
    assert!(esker(["history", &db, "bytes"]).text().ends_with("\tput\t\\xff\\t\n"));
    assert_eq!(esker(["history", &db, "bytes", "--json"]).json()["v64"], "/wk=");
}

#[test]
fn versions_and_keyspaces_are_listed() {
    let place = Place::new();
    let db = place.db();
    esker(["put", &db, "k", "v", "--keyspace=plain"]).stdout();
    let versions = esker(["versions", &db, "--json"]).json();
    assert!(versions["newest"].is_u64() && versions["time"].is_null(), "{versions}");
    assert_eq!(versions["keyspaces"], json!([]));
    assert_eq!(
        esker(["versions", &db]).text(),
        format!("newest version: {}\n", versions["newest"])
    );

    let before = versions["newest"].as_u64().unwrap();
    esker(["put", &db, "k", "v", "--keyspace=a", "--history"]).stdout();
    let versions = esker(["versions", &db, "--json"]).json();
    assert_eq!(versions["keyspaces"].as_array().unwrap().len(), 1, "{versions}");
    let of = &versions["keyspaces"][0];
    let oldest = of["oldest"].as_u64().unwrap();
    assert_eq!(of["name"], "a");
    assert!((before..versions["newest"].as_u64().unwrap()).contains(&oldest), "{versions}");
    let text = esker(["versions", &db]).text().to_owned();
    assert!(text.contains(versions["time"].as_str().unwrap()), "{text}");
    let last = text.lines().last().unwrap();
    assert!(last.starts_with("a ") && last.contains(&format!(" {oldest} and later ")), "{text}");

    assert_eq!(esker(["keyspaces", &db]).text(), "a\nplain\n");
    assert_eq!(esker(["dump", &db, "--keyspace=a", &format!("--at={oldest}")]).text(), "");
    let stats = esker(["stats", &db, "--json", "--keyspace=a"]).json();
    assert_eq!(stats["keyspaces"][0]["history_from"], oldest);
    let stats = esker(["stats", &db, "--json", "--keyspace=plain"]).json();
    assert_eq!(stats["keyspaces"][0]["history_from"], Value::Null);
    let line = format!("keyspace a has all versions from {oldest} on");
    assert!(esker(["stats", &db]).text().contains(&line));
}

#[test]
fn what_has_no_history_is_refused() {
    for place in Place::of_each_kind() {
        let db = place.load("k\tv\n");
        for arguments in [
            &["get", &db, "k", "--at=1"][..],
            &["scan", &db, "--at-time=2026-11-26"],
            &["dump", &db, "--at=1"],
            &["history", &db, "k"],
        ] {
            esker(arguments).fails(2, &["default", "history"]);
        }
        esker(["put", &db, "k", "v", "--history"]).fails(2, &["default", "history"]);
    }
    let place = Place::new();
    let (db, [(first, time), _, (last, _)]) = prices(&place);
    let later = (last.parse::<u64>().unwrap() + 1).to_string();
    esker(["get", &db, "tea", "--at", &later]).fails(2, &["future", &last]);
    esker(["put", &db, "k", "v", "--keyspace=late", "--history"]).stdout();
    for option in [["--at", &first], ["--at-time", &time], ["--at-time", "1970-01-01"]] {
        let answer = esker([&["get", &db, "k", "--keyspace=late"][..], &option].concat());
        answer.fails(2, &["late is before its history"]);
    }
    // The first keyspace with history was empty then.
    assert_eq!(esker(["dump", &db, "--at-time=1970-01-01"]).text(), "");
    esker(["get", &db, "tea", "--at=x"]).fails(2, &["\"x\"", "esker versions"]);
    esker(["get", &db, "tea", "--at-time=26.11.2026"]).fails(2, &["--at-time", "2026-11-26T"]);
    esker(["dump", &db, "--at", &first, "--at-time=2026-11-26"]).fails(2, &["--at", "--at-time"]);
    let other = place.path("other").into_os_string().into_string().unwrap();
    esker(["put", &other, "k", "v", "--history", "--index=lsm"]).fails(2, &["history"]);
    for arguments in [&["history", &db, "k"][..], &["scan", &db, "--at=1"]] {
        esker([arguments, &["--keyspace=absent"]].concat()).fails(2, &["absent"]);
    }
    for arguments in [&["history", "/nonexistent", "k"][..], &["versions", "/nonexistent"]] {
        esker(arguments).fails(2, &["/nonexistent"]);
    }
}

#[test]
fn histories_of_a_time_or_of_newest_versions_are_chosen() {
    let place = Place::new();
    let db = place.db();
    esker(["put", &db, "k", "v", "--history=1w"]).fails(2, &["30d"]);
    esker(["put", &db, "k", "v", "--history-share=0.5"]).fails(2, &["--history"]);
    esker(["put", &db, "k", "v", "--history", "--history-share=0.9"]).fails(2, &["0.2 to 0.8"]);
    esker(["put", &db, "k", "v", "--keyspace=days", "--history=30d"]).stdout();
    esker(["put", &db, "k", "v", "--keyspace=days", "--history=10"]).fails(2, &["For(2592000s)"]);
    esker(["put", &db, "k", "v", "--keyspace=few", "--history=10", "--history-share=0.2"]).stdout();
    let versions = esker(["versions", &db, "--json"]).json();
    for of in versions["keyspaces"].as_array().unwrap() {
        assert_eq!(of["past_indexes"], json!([]), "{versions}");
    }
    assert_eq!(versions["keyspaces"].as_array().unwrap().len(), 2, "{versions}");
}
