//! `scan` and `dump`.

use serde_json::json;

use crate::support::{Place, esker};

fn scan(db: &str, options: &[&str]) -> String {
    esker([&["scan", db][..], options].concat()).text().to_owned()
}

#[test]
fn bounds_prefix_limit_and_order() {
    for place in Place::of_each_kind() {
        let db = place.load("b\t2\na\t1\nba\t3\nc\t5\nbb\t4\n");
        assert_eq!(scan(&db, &[]), "a\t1\nb\t2\nba\t3\nbb\t4\nc\t5\n");
        assert_eq!(scan(&db, &["--from", "b", "--to", "bb"]), "b\t2\nba\t3\n");
        assert_eq!(scan(&db, &["--prefix", "b"]), "b\t2\nba\t3\nbb\t4\n");
        assert_eq!(scan(&db, &["--prefix", "b", "--from", "ba"]), "ba\t3\nbb\t4\n");
        assert_eq!(scan(&db, &["--prefix", "b", "--to", "ba"]), "b\t2\n");
        assert_eq!(scan(&db, &["--reverse", "--limit", "2"]), "c\t5\nbb\t4\n");
        assert_eq!(scan(&db, &["--limit", "1"]), "a\t1\n");
        assert_eq!(scan(&db, &["--limit", "0"]), "");
        assert_eq!(scan(&db, &["--from", "c", "--to", "a"]), "");
        assert_eq!(scan(&db, &["--prefix", ""]), scan(&db, &["--skip-damaged"]));
    }
}

#[test]
fn json_is_a_line_an_entry() {
    for place in Place::of_each_kind() {
        let db = place.load("a\té\n\\xff\t\\x00\n");
        let text = scan(&db, &["--json"]);
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines, [json!({ "k": "a", "v": "é" }), json!({ "k64": "/w==", "v": "\0" })]);
        assert_eq!(esker(["dump", &db, "--json"]).text(), text);
        assert_eq!(esker(["dump", &db, "--format", "jsonl"]).text(), text);
    }
}

#[test]
fn output_is_safe_on_a_terminal() {
    for place in Place::of_each_kind() {
        let db = place.load("\u{1b}[2J\t\u{7}bell\n");
        assert_eq!(scan(&db, &[]), "\\x1b[2J\t\\x07bell\n");
    }
}
