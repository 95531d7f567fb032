//! `put`, `get`, `del`, `keyspaces`, `stats`, `compact`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use serde_json::json;

use crate::support::{Place, esker, esker_reading};

#[test]
fn a_value_comes_back_with_a_line_feed() {
    for place in Place::of_each_kind() {
        let db = place.db();
        assert_eq!(esker(["put", &db, "k", "v"]).text(), "");
        assert_eq!(esker(["get", &db, "k"]).text(), "v\n");
        esker(["put", &db, "k", ""]).stdout();
        assert_eq!(esker(["get", &db, "k"]).text(), "\n");
        esker(["put", &db, "", "of the empty key"]).stdout();
        assert_eq!(esker(["get", &db, ""]).text(), "of the empty key\n");
    }
}

#[test]
fn an_absent_key_is_exit_1_and_silence() {
    for place in Place::of_each_kind() {
        let db = place.load("k\tv\n");
        for key in ["K", "", "kk"] {
            let answer = esker(["get", &db, key]);
            assert_eq!((answer.code(), answer.0.stdout.len(), answer.stderr().len()), (1, 0, 0));
        }
        assert_eq!(esker(["del", &db, "k"]).text(), "");
        assert_eq!(esker(["get", &db, "k"]).code(), 1);
        assert_eq!(esker(["del", &db, "k"]).text(), "");
    }
}

#[test]
fn keys_and_values_are_bytes() {
    for place in Place::of_each_kind() {
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
}

#[test]
fn a_key_may_begin_with_a_dash() {
    for place in Place::of_each_kind() {
        let db = place.db();
        esker(["put", &db, "--", "-k", "--json"]).stdout();
        assert_eq!(esker(["get", &db, "--", "-k"]).text(), "--json\n");
    }
}

#[test]
fn keyspaces_are_separate_and_listed() {
    for place in Place::of_each_kind() {
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
}

#[test]
fn a_missing_keyspace_is_named_and_not_made() {
    for place in Place::of_each_kind() {
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
fn errors_give_the_bounds_of_keys_and_names() {
    for place in Place::of_each_kind() {
        let db = place.db();
        let longest = "k".repeat(esker::KEY_BYTES_MAX);
        esker(["put", &db, &longest, "v"]).stdout();
        assert_eq!(esker(["get", &db, &longest]).text(), "v\n");
        esker(["put", &db, &format!("{longest}k"), "v"]).fails(2, &["65536"]);
        esker(["put", &db, "k", "v", "--keyspace", ""]).fails(2, &[]);
        esker(["put", &db, "k", "v", "--keyspace", "a\nb"]).fails(2, &[]);
        esker(["put", &db, "k", "v", "--keyspace", &"n".repeat(256)]).fails(2, &["255"]);
    }
}

#[test]
fn stats_and_compact_answer_in_both_forms() {
    for place in Place::of_each_kind() {
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
}

#[test]
fn stats_show_the_levels_and_runs_of_an_lsm_index() {
    let place = Place::new();
    let db = place.db();
    let input: String =
        (0..400_000_u64).map(|n| format!("{:08}\t{n}\n", n * 7919 % 400_000)).collect();
    for _ in 0..4 {
        let answer = esker_reading(["load", &db, "--index=lsm"], input.as_bytes());
        answer.stdout();
    }
    assert!(esker(["check", &db]).text().starts_with("ok: "));
    let stats = esker(["stats", &db, "--json"]).json();
    let of = &stats["keyspaces"][0];
    let (lsm, rank) = (&of["lsm"], &of["levels"][0]["rank"]);
    assert_eq!((&of["index"], rank), (&"lsm".into(), &1.into()));
    let level = lsm["levels"].as_array().unwrap().last().unwrap();
    let number = |name: &str| level[name].as_u64().unwrap();
    assert!(number("blocks") > 0 && number("fence_bytes") > 0, "{lsm}");
    assert_eq!(number("space_bytes") - number("bytes"), number("waste_bytes"));
    assert!((0.5..=1.0).contains(&level["occupancy"].as_f64().unwrap()), "{lsm}");
    assert!(lsm["next_k"].is_string(), "{lsm}");
    for run in lsm["runs"].as_array().unwrap() {
        assert!(run["left_bytes"].as_u64() <= run["bytes"].as_u64(), "{run}");
    }
    let text = esker(["stats", &db]).text().to_owned();
    for word in ["LSM index", "occupied", "waste", "next merge at", "default runs", "default 1"] {
        assert!(text.contains(word), "{word} is not in\n{text}");
    }
    esker(["compact", &db]).stdout();
    let stats = esker(["stats", &db, "--json"]).json();
    assert_eq!(stats["keyspaces"][0]["lsm"]["runs"], json!([]));
    assert!(!esker(["stats", &db]).text().contains("LSM run"));
}

#[test]
fn a_key_that_was_printed_finds_its_entry() {
    for place in Place::of_each_kind() {
        let db = place.load("\\xff\\x00\\n\\\\\tbinary\na\\tb\ttab\nplain\tv\n");
        let printed = esker(["scan", &db]).text().to_owned();
        assert_eq!(printed.lines().count(), 3);
        for line in printed.lines() {
            let (key, value) = line.split_once('\t').unwrap();
            let found = esker(["get", &db, key, "--key-format", "escaped"]);
            assert_eq!(found.text(), format!("{value}\n"));
            let scanned = esker(["scan", &db, "--key-format=escaped", "--from", key, "--limit=1"]);
            assert_eq!(scanned.text(), format!("{line}\n"));
        }
        assert_eq!(esker(["get", &db, "ff000a5c", "--key-format=hex"]).text(), "binary\n");
        assert_eq!(esker(["get", &db, "0xFF000A5C", "--key-format=hex"]).text(), "binary\n");
        let found = esker(["scan", &db, "--prefix=ff", "--key-format=hex"]);
        assert_eq!(found.text(), "\\xff\\x00\\n\\\\\tbinary\n");
        esker(["put", &db, "00ff", "new", "--key-format=hex"]).stdout();
        assert_eq!(esker(["get", &db, "\\x00\\xff", "--key-format=escaped"]).text(), "new\n");
        esker(["del", &db, "\\x00\\xff", "--key-format=escaped"]).stdout();
        assert_eq!(esker(["get", &db, "00ff", "--key-format=hex"]).code(), 1);
        for (key, form) in [("0", "hex"), ("0g", "hex"), ("\\q", "escaped"), ("\\x0", "escaped")] {
            let words = ["--key-format", form];
            esker(["get", &db, key, "--key-format", form]).fails(2, &words);
        }
    }
}

#[test]
fn a_value_comes_from_a_file_and_back_byte_by_byte() {
    for place in Place::of_each_kind() {
        let db = place.db();
        let value: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
        let file = place.write("value", &value);
        esker(["put", &db, "k", "--file", &file]).stdout();
        assert!(esker(["get", &db, "k", "--raw"]).stdout() == value);
        let with_line_feed = [&value[..], b"\n"].concat();
        assert!(esker(["get", &db, "k"]).stdout() == with_line_feed);
        esker_reading(["put", &db, "k", "--file", "-"], b"from \xff\0 stdin").stdout();
        assert_eq!(esker(["get", &db, "k", "--raw"]).stdout(), b"from \xff\0 stdin");
        esker_reading(["put", &db, "k", "--file", "-"], b"").stdout();
        assert_eq!(esker(["get", &db, "k", "--raw"]).stdout(), b"");
        esker(["put", &db, "k"]).fails(2, &["VALUE"]);
        esker(["put", &db, "k", "v", "--file", &file]).fails(2, &["--file"]);
        esker(["put", &db, "k", "--file", "/nonexistent"]).fails(2, &["/nonexistent"]);
        esker(["get", &db, "k", "--raw", "--json"]).fails(2, &["--raw", "--json"]);
    }
}

#[test]
fn check_counts_what_is_in_the_log_alone() {
    for place in Place::of_each_kind() {
        let db = place.load("a\t1\nb\t2\n");
        let report = esker(["check", &db, "--json"]).json();
        assert_eq!(report["log_operations"], 2);
        assert!(report["log_bytes"].as_u64() > Some(0), "{report}");
        assert!(esker(["check", &db]).text().contains("2 operations in the log"));
    }
}
