//! What happened between versions, and versions with names: `changes`, `diff`, `pin`, `unpin`,
//! `set-history`.

use serde_json::{Value, json};

use crate::support::{Answer, Place, esker, esker_reading};

/// The newest version of a store, and its time.
fn newest(db: &str) -> (u64, String) {
    let versions = esker(["versions", db, "--json"]).json();
    (versions["newest"].as_u64().unwrap(), versions["time"].as_str().unwrap().to_owned())
}

fn lines(answer: &Answer) -> Vec<Value> {
    answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A store whose keyspace has had four states, with their versions and times.
fn shop(place: &Place) -> (String, [(u64, String); 4]) {
    let db = place.db();
    esker_reading(["load", &db, "--history"], b"milk\t1.10\ntea\t3.20\n").stdout();
    let first = newest(&db);
    esker_reading(["load", &db], b"tea\t3.60\ncoffee\t4.10\n").stdout();
    let second = newest(&db);
    esker(["del", &db, "milk"]).stdout();
    let third = newest(&db);
    esker(["put", &db, "tea", "3.20"]).stdout();
    let fourth = newest(&db);
    (db, [first, second, third, fourth])
}

#[test]
fn differences_are_listed() {
    let place = Place::new();
    let (db, versions) = shop(&place);
    let [first, second, third, fourth] = versions.map(|(version, _)| version.to_string());
    let diff = |arguments: &[&str]| esker([&["diff", db.as_str()], arguments].concat());
    let both = "coffee\tadded\t4.10\ntea\tchanged\t3.20\t3.60\n";
    assert_eq!(diff(&[&first, &second]).text(), both);
    let back = "coffee\tremoved\t4.10\ntea\tchanged\t3.60\t3.20\n";
    assert_eq!(diff(&[&second, &first]).text(), back);
    assert_eq!(diff(&[&second, &third]).text(), "milk\tremoved\t1.10\n");
    // Tea costs again what it cost.
    let all = "coffee\tadded\t4.10\nmilk\tremoved\t1.10\n";
    assert_eq!(diff(&[&first]).text(), all);
    assert_eq!(diff(&[&first, &fourth]).text(), all);
    assert_eq!(diff(&[&first, &first]).text(), "");
    assert_eq!(diff(&[&first, "--limit=1"]).text(), "coffee\tadded\t4.10\n");
    assert_eq!(diff(&[&first, "--from=d"]).text(), "milk\tremoved\t1.10\n");
    assert_eq!(diff(&[&first, "--to=d"]).text(), "coffee\tadded\t4.10\n");
    assert_eq!(diff(&[&first, "--prefix=6d", "--key-format=hex"]).text(), "milk\tremoved\t1.10\n");
    let expected = [
        json!({ "k": "coffee", "after": "4.10" }),
        json!({ "k": "tea", "before": "3.20", "after": "3.60" }),
    ];
    assert_eq!(lines(&diff(&[&first, &second, "--json"])), expected);
    assert_eq!(
        lines(&diff(&[&second, &third, "--json"])),
        [json!({ "k": "milk", "before": "1.10" })]
    );

    esker_reading(["load", &db], b"\\xff\\t\t\\x00\\xfe\n").stdout();
    assert_eq!(diff(&[&fourth]).text(), "\\xff\\t\tadded\t\\x00\\xfe\n");
    assert_eq!(diff(&[&fourth, "--json"]).json(), json!({ "k64": "/wk=", "after64": "AP4=" }));
    assert_eq!(esker(["changes", &db, &fourth, "--json"]).json()["k64"], "/wk=");
}

#[test]
fn changes_of_all_keys_are_listed() {
    let place = Place::new();
    let (db, versions) = shop(&place);
    let line = |at: usize, key: &str, what: &str| {
        let (version, time) = &versions[at];
        format!("{key}\t{version}\t{time}\t{what}\n")
    };
    let all = [
        line(1, "coffee", "put\t4.10"),
        line(2, "milk", "removed"),
        line(0, "milk", "put\t1.10"),
        line(3, "tea", "put\t3.20"),
        line(1, "tea", "put\t3.60"),
        line(0, "tea", "put\t3.20"),
    ];
    let changes = |arguments: &[&str]| esker([&["changes", db.as_str()], arguments].concat());
    assert_eq!(changes(&[]).text(), all.concat());
    let [first, second, third, fourth] = [0, 1, 2, 3].map(|at: usize| versions[at].0.to_string());
    assert_eq!(changes(&[&first]).text(), [&*all[0], &all[1], &all[3], &all[4]].concat());
    assert_eq!(changes(&[&first, &second]).text(), [&*all[0], &all[4]].concat());
    assert_eq!(changes(&[&second, &third]).text(), all[1]);
    assert_eq!(changes(&[&fourth]).text(), "");
    assert_eq!(changes(&["--limit=2"]).text(), all[..2].concat());
    assert_eq!(changes(&["--prefix=t"]).text(), all[3..].concat());
    assert_eq!(changes(&["--from=d", "--to=n", &first]).text(), all[1]);
    let json = lines(&changes(&[&first, "--from=m", "--json"]));
    let (version, time) = &versions[2];
    assert_eq!(json[0], json!({ "k": "milk", "version": version, "time": time, "removed": true }));
    assert_eq!(json[1]["v"], "3.20");
    // Merges keep them.
    esker(["compact", &db]).stdout();
    assert_eq!(changes(&[]).text(), all.concat());
}

#[test]
fn versions_have_names() {
    let place = Place::new();
    let (db, versions) = shop(&place);
    let [first, second, ..] = versions.clone().map(|(version, _)| version.to_string());
    esker(["pin", &db, "audit", &first]).stdout();
    esker(["pin", &db, "again", "audit"]).stdout();
    esker(["pin", &db, "now"]).stdout();
    let listed = esker(["versions", &db, "--json"]).json();
    let named = |name: &str, at: usize| {
        let (version, time) = &versions[at];
        json!({ "name": name, "version": version, "time": time })
    };
    assert_eq!(listed["named"], json!([named("again", 0), named("audit", 0), named("now", 3)]));
    let text = esker(["versions", &db]).text().to_owned();
    let line = text.lines().find(|line| line.starts_with("audit ")).unwrap();
    assert!(line.contains(&first) && line.ends_with(&versions[0].1), "{text}");

    let then = "milk\t1.10\ntea\t3.20\n";
    assert_eq!(esker(["dump", &db, "--at=audit"]).text(), then);
    assert_eq!(esker(["scan", &db, "--at=again"]).text(), then);
    assert_eq!(esker(["get", &db, "milk", "--at=audit"]).text(), "1.10\n");
    assert_eq!(esker(["history", &db, "tea", "--at=audit"]).text().lines().count(), 1);
    assert_eq!(esker(["history", &db, "tea", "--at", &second]).text().lines().count(), 2);
    assert_eq!(esker(["history", &db, "coffee", "--at=audit"]).code(), 1);
    let since = "coffee\tadded\t4.10\nmilk\tremoved\t1.10\n";
    assert_eq!(esker(["diff", &db, "audit", "now"]).text(), since);
    let changes = esker(["changes", &db, "audit"]);
    assert_eq!(changes.text(), esker(["changes", &db, &first, "now"]).text());

    esker(["unpin", &db, "again"]).stdout();
    for arguments in [
        &["get", &db, "tea", "--at=again"][..],
        &["diff", &db, "again"],
        &["diff", &db, "audit", "again"],
        &["changes", &db, "again"],
        &["pin", &db, "new", "again"],
    ] {
        esker(arguments).fails(2, &["\"again\"", "esker versions"]);
    }
    esker(["unpin", &db, "again"]).fails(2, &["again"]);
    esker(["pin", &db, "audit"]).fails(2, &["audit", "unpin"]);
    esker(["pin", &db, "7"]).fails(2, &["7", "number"]);
    esker(["pin", &db, "a\nb"]).fails(2, &["control characters"]);
    esker(["pin", &db, "later", "1000000"]).fails(2, &["1000000"]);
    esker(["pin", "/nonexistent", "now"]).fails(2, &["/nonexistent"]);
}

#[test]
fn a_history_begins_and_changes() {
    let place = Place::new();
    let db = place.load("k\t1\n");
    esker(["pin", &db, "before"]).fails(2, &["no keyspace keeps history"]);
    esker(["diff", &db, "1"]).fails(2, &["default", "history"]);
    esker(["changes", &db]).fails(2, &["default", "history"]);
    esker(["set-history", &db, "all"]).stdout();
    esker(["pin", &db, "begun"]).stdout();
    esker(["put", &db, "k", "2"]).stdout();
    assert_eq!(esker(["get", &db, "k", "--at=begun"]).text(), "1\n");
    assert_eq!(esker(["diff", &db, "begun"]).text(), "k\tchanged\t1\t2\n");
    assert_eq!(esker(["changes", &db]).text().lines().count(), 1);
    esker(["put", &db, "k", "2", "--history=30d"]).fails(2, &["default", "All"]);
    esker(["erase", &db, "k", "absent"]).stdout();
    assert_eq!(esker(["get", &db, "k", "--at=begun"]).code(), 1);
    assert_eq!(esker(["changes", &db]).text(), "");
    esker(["erase", &db]).fails(2, &["KEY"]);
    esker(["erase", &db, "zz", "--key-format=hex"]).fails(2, &["hex"]);
    esker(["set-history", &db, "30d"]).stdout();
    esker(["put", &db, "k", "2", "--history=30d"]).stdout();
    esker(["set-history", &db, "1w"]).fails(2, &["30d"]);
    esker(["set-history", &db, "0"]).fails(2, &["at least"]);
    esker(["set-history", &db, "all", "--keyspace=absent"]).fails(2, &["absent"]);
    esker(["set-history", "/nonexistent", "all"]).fails(2, &["/nonexistent"]);
    let other = Place::new();
    esker(["put", &other.db(), "k", "v", "--index=lsm"]).stdout();
    esker(["set-history", &other.db(), "all"]).fails(2, &["fdtree"]);
    esker(["erase", &other.db(), "k"]).fails(2, &["keeps no history"]);
}
