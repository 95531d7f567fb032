//! `load`: its forms, and every kind of bad line.

use serde_json::Value;

use crate::support::{Place, dump, esker, esker_reading};

#[test]
fn files_and_standard_input_are_read() {
    for place in Place::of_each_kind() {
        let db = place.db();
        let file = place.write("words.tsv", "b\t2\na\t1\n");
        let text = esker(["load", &db, &file]).text().to_owned();
        assert!(text.starts_with("loaded 2 lines (8 B) in "), "{text}");
        assert_eq!(dump(&db), "a\t1\nb\t2\n");
        esker_reading(["load", &db, "-"], b"c\t3").stdout();
        esker_reading(["load", &db], b"d\t4\n").stdout();
        assert_eq!(dump(&db), "a\t1\nb\t2\nc\t3\nd\t4\n");
        esker_reading(["load", &db, "--format", "jsonl"], b"{\"k64\":\"/w==\",\"v\":\"5\"}\n")
            .stdout();
        assert_eq!(dump(&db), "a\t1\nb\t2\nc\t3\nd\t4\n\\xff\t5\n");
    }
}

#[test]
fn a_later_line_with_the_same_key_wins() {
    for place in Place::of_each_kind() {
        let many: String = (0..5000).map(|number| format!("k{}\t{number}\n", number % 7)).collect();
        let db = place.load(many);
        let expected: String =
            (0..7).map(|key| format!("k{key}\t{}\n", 4999 - (4999 - key) % 7)).collect();
        assert_eq!(dump(&db), expected);
    }
}

#[test]
fn nothing_is_stripped() {
    for place in Place::of_each_kind() {
        let db = place.load("a\t1\r\n b \t 2 \nc\tx\ty\n");
        assert_eq!(dump(&db), " b \t 2 \na\t1\\r\nc\tx\\ty\n");
    }
}

#[test]
fn an_empty_input_makes_an_empty_keyspace() {
    for place in Place::of_each_kind() {
        let db = place.load("");
        assert_eq!(dump(&db), "");
        assert_eq!(esker(["keyspaces", &db]).text(), "default\n");
    }
}

#[test]
fn a_bad_line_is_named_and_what_precedes_it_is_stored() {
    for (line, words) in [
        (&b"no tab"[..], "TAB"),
        (b"", "TAB"),
        (b"k\thunter2\\q", "escape at column 10"),
        (b"k\thunter2\\", "escape at column 10"),
        (b"k\\x0\tv", "escape at column 2"),
    ] {
        for place in Place::of_each_kind() {
            let db = place.db();
            let file = place.write("words.tsv", [b"a\t1\nb\t2\n", line, b"\nc\t3\n"].concat());
            let answer = esker(["load", &db, &file]);
            answer.fails(2, &["words.tsv:3: ", words, "up to line 2 is stored"]);
            assert!(!answer.stderr().contains("hunter2"));
            assert_eq!(answer.0.stdout, b"");
            assert_eq!(dump(&db), "a\t1\nb\t2\n");

            let text = esker(["load", &db, &file, "--skip-bad"]).text().to_owned();
            assert!(text.contains("loaded 3 lines"), "{text}");
            assert!(text.contains("skipped 1 bad") && text.contains("words.tsv:3: "), "{text}");
            assert_eq!(dump(&db), "a\t1\nb\t2\nc\t3\n");
        }
    }
}

#[test]
fn bad_json_lines_are_named_too() {
    for line in [
        "",
        "{",
        "[]",
        "{\"k\":\"a\"}",
        "{\"k\":1,\"v\":\"hunter2\"}",
        "{\"k64\":\"-\",\"v\":\"\"}",
    ] {
        for place in Place::of_each_kind() {
            let db = place.db();
            let arguments = ["load", &db, "--format", "jsonl"];
            let input = format!("{{\"k\":\"a\",\"v\":\"\"}}\n{line}\n");
            let answer = esker_reading(arguments, input.as_bytes());
            answer.fails(2, &["stdin:2: ", "up to line 1 is stored"]);
            assert!(!answer.stderr().contains("hunter2"));
        }
    }
}

#[test]
fn entries_beyond_the_limits_are_bad_lines() {
    for place in Place::of_each_kind() {
        let long_key = format!("{}\tv\n", "k".repeat(esker::KEY_BYTES_MAX + 1));
        let long_value = format!("k\t{}\n", "v".repeat(esker_cli::text::VALUE_BYTES_MAX + 1));
        let db = place.db();
        esker_reading(["load", &db], long_key.as_bytes())
            .fails(2, &["stdin:1: ", "65537", "65536"]);
        esker_reading(["load", &db], long_value.as_bytes())
            .fails(2, &["stdin:1: ", "4194305", "4194304"]);
        let input = format!("{long_key}a\t1\n{long_value}");
        let text = esker_reading(["load", &db, "--skip-bad"], input.as_bytes()).text().to_owned();
        assert!(text.contains("skipped 2 bad"), "{text}");
        assert_eq!(dump(&db), "a\t1\n");
    }
}

/// Half a gigabyte without a line feed, read in an address space that could not hold it.
#[test]
fn a_huge_line_is_refused_in_bounded_memory() {
    let place = Place::new();
    let script = "(printf 'a\\t1\\nb\\t'; head -c 536870912 /dev/zero; printf '\\nc\\t3\\n') \
                  | (ulimit -v 450000; exec \"$@\")";
    let run = |options: &[&str]| {
        let db = place.db();
        let command = [env!("CARGO_BIN_EXE_esker"), "load", &db];
        let output = std::process::Command::new("sh")
            .args(["-c", script, "sh"])
            .args(command)
            .args(options)
            .output()
            .unwrap();
        crate::support::Answer(output)
    };
    run(&[]).fails(2, &["stdin:2: ", "17039361 bytes"]);
    assert_eq!(dump(&place.db()), "a\t1\n");
    assert!(run(&["--skip-bad"]).text().contains("skipped 1 bad"));
    assert_eq!(dump(&place.db()), "a\t1\nc\t3\n");
}

#[test]
fn a_missing_file_makes_no_store() {
    let place = Place::new();
    let db = place.db();
    let missing = place.path("missing.tsv").into_os_string().into_string().unwrap();
    esker(["load", &db, &missing]).fails(2, &["missing.tsv", "No such file"]);
    let folder = place.path("").into_os_string().into_string().unwrap();
    esker(["load", &db, &folder]).fails(2, &["folder"]);
    assert!(!place.path("db").exists());
}

#[test]
fn json_progress_ends_with_done() {
    for place in Place::of_each_kind() {
        let input: String = (0..3000).map(|number| format!("{number}\tv\n")).collect();
        let input = input + "bad\n";
        for durability in ["buffered", "synced"] {
            let arguments =
                ["load", &place.db(), "--json", "--skip-bad", "--durability", durability];
            let answer = esker_reading(arguments, input.as_bytes());
            let last: Value = serde_json::from_str(answer.text().lines().last().unwrap()).unwrap();
            assert_eq!(last["done"], true);
            assert_eq!((&last["durable"], &last["lines"]), (&3001.into(), &3001.into()));
            assert_eq!((&last["bad"], &last["bytes"]), (&1.into(), &(input.len()).into()));
        }
    }
}

#[test]
fn a_failed_load_is_not_done() {
    for place in Place::of_each_kind() {
        let answer = esker_reading(["load", &place.db(), "--json"], b"a\t1\nbad\n");
        answer.fails(2, &["stdin:2: "]);
        let report: Value = serde_json::from_slice(&answer.0.stdout).unwrap();
        assert_eq!((&report["done"], &report["durable"]), (&false.into(), &1.into()));
    }
}

#[test]
fn what_is_loaded_can_be_compressed() {
    for place in Place::of_each_kind() {
        let lines: String =
            (0..3000).map(|n| format!("key-{n:06}\t{}\n", "word ".repeat(20))).collect();
        let db = place.load("a\t1\n");
        let index = format!("--index={}", place.kind());
        esker_reading(
            ["load", &db, "--keyspace=text", "--compression=lz4", &index],
            lines.as_bytes(),
        )
        .stdout();
        esker(["compact", &db]).stdout();
        let stats = esker(["stats", &db, "--json"]).json();
        let of = |name: &str| {
            let all = stats["keyspaces"].as_array().unwrap();
            all.iter().find(|keyspace| keyspace["name"] == name).unwrap().clone()
        };
        let text = of("text");
        assert_eq!(of("default")["compression"], "none");
        assert_eq!(text["compression"], "lz4");
        assert!(text["stored_bytes"].as_u64() < text["data_bytes"].as_u64(), "{text}");
        esker(["load", &db, "--compression=snappy"]).fails(2, &["lz4", "zstd"]);
    }
}

#[test]
fn the_kind_of_index_is_chosen_when_a_keyspace_is_created() {
    let place = Place::new();
    let db = place.db();
    esker(["load", &db, "--index=btree"]).fails(2, &["btree", "fdtree, lsm"]);
    assert!(!place.path("db").exists());
    esker_reading(["load", &db, "--index=lsm"], b"a\t1\n").stdout();
    esker(["put", &db, "b", "2", "--index=lsm"]).stdout();
    esker(["put", &db, "c", "3"]).stdout();
    esker(["put", &db, "a", "1", "--keyspace=other", "--index=fdtree"]).stdout();
    for arguments in [
        &["load", &db, "--index=fdtree"][..],
        &["put", &db, "d", "4", "--index=fdtree"],
        &["put", &db, "d", "4", "--index=lsm", "--keyspace=other"],
    ] {
        esker(arguments).fails(2, &["has an index of kind", "and not"]);
    }
    assert_eq!(dump(&db), "a\t1\nb\t2\nc\t3\n");
    let stats = esker(["stats", &db, "--json"]).json();
    let kind = |number: usize| stats["keyspaces"][number]["index"].clone();
    assert_eq!((kind(0), kind(1)), ("lsm".into(), "fdtree".into()));
}
