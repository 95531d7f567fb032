//! `flash kv`, from outside.

use std::fs;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use crate::support::{Answer, Place, command, esker, esker_reading};

/// A place with an empty image of 256 blocks of 32 pages of 512 bytes.
fn created() -> (Place, String) {
    let place = Place::new();
    let image = path(&place);
    kv(&["create", &image, "--blocks", "256"]).stdout();
    (place, image)
}

fn path(place: &Place) -> String {
    place.path("chip.img").into_os_string().into_string().unwrap()
}

fn kv(arguments: &[&str]) -> Answer {
    esker([&["flash", "kv"], arguments].concat())
}

#[test]
fn keys_are_put_read_and_deleted() {
    let (_place, image) = created();
    assert_eq!(kv(&["put", &image, "door", "open"]).text(), "");
    kv(&["put", &image, "window", "shut"]).stdout();
    kv(&["put", &image, "--key-format", "hex", "00ff", "--", "-1"]).stdout();
    assert_eq!(kv(&["get", &image, "door"]).text(), "open\n");
    assert_eq!(kv(&["get", &image, "door", "--raw"]).text(), "open");
    let json = kv(&["get", &image, "--json", "window"]).json();
    assert_eq!((&json["k"], &json["v"]), (&"window".into(), &"shut".into()));
    assert_eq!(kv(&["scan", &image]).text(), "\\x00\\xff\t-1\ndoor\topen\nwindow\tshut\n");
    assert_eq!(kv(&["scan", &image, "--reverse", "--limit", "1"]).text(), "window\tshut\n");
    assert_eq!(kv(&["scan", &image, "--from", "d", "--to", "w"]).text(), "door\topen\n");
    assert_eq!(kv(&["scan", &image, "--prefix", "do", "--json"]).json()["k"], "door");
    kv(&["delete", &image, "door"]).stdout();
    kv(&["del", &image, "absent"]).stdout();
    let absent = kv(&["get", &image, "door"]);
    assert_eq!((absent.code(), absent.stderr().as_str()), (1, ""));
    assert!(kv(&["check", &image]).text().starts_with("ok: "));
}

#[test]
fn many_entries_are_loaded_and_reading_leaves_the_image_as_it_is() {
    let (place, image) = created();
    let lines: String =
        (0..5000).map(|at| format!("sensor{:03}/{at:05}\t{at}\n", at % 20)).collect();
    let file = place.write("lines.tsv", &lines);
    assert_eq!(kv(&["load", &image, &file]).text(), "loaded 5,000 lines\n");
    let before = fs::read(&image).unwrap();
    let mut sorted: Vec<&str> = lines.lines().collect();
    sorted.sort_unstable();
    assert_eq!(kv(&["scan", &image]).text(), sorted.join("\n") + "\n");
    let of_one: Vec<&str> =
        sorted.iter().filter(|line| line.starts_with("sensor007/")).copied().collect();
    let found = kv(&["scan", &image, "--from", "sensor007/", "--to", "sensor0070"]);
    assert_eq!(found.text(), of_one.join("\n") + "\n");
    let checked = kv(&["check", &image, "--json"]).json();
    assert_eq!(checked["ok"], true);
    let stats = kv(&["stats", &image, "--json"]).json();
    let count = |part: &str, name: &str| stats[part][name].as_u64().unwrap();
    assert_eq!((count("chip", "blocks"), count("chip", "page_bytes")), (256, 512));
    assert!(count("chip", "erases") >= 10, "{stats}");
    assert!(count("tree", "leaves") == checked["leaves"].as_u64().unwrap(), "{stats} {checked}");
    assert!(kv(&["stats", &image]).text().contains("greatest key and value"));
    assert_eq!(fs::read(&image).unwrap(), before, "reading changes nothing");
    let jsonl = br#"{"k":"a","v64":"AP8="}"#;
    let load = ["flash", "kv", "load", &image, "--format", "jsonl", "--json"];
    let loaded = esker_reading(load, jsonl).json();
    assert_eq!((&loaded["lines"], &loaded["done"]), (&1.into(), &true.into()));
    assert_eq!(kv(&["get", &image, "a", "--raw"]).stdout(), b"\0\xff");
}

#[test]
fn a_load_that_fails_has_stored_what_it_says() {
    let (_place, image) = created();
    let load = ["flash", "kv", "load", &image];
    esker_reading(load, b"a\t1\nb\t2\nno tab\nc\t3\n")
        .fails(2, &["stdin:3", "TAB", "up to line 2 is stored"]);
    assert_eq!(kv(&["scan", &image]).text(), "a\t1\nb\t2\n");
    let long = format!("c\t{}\n", "x".repeat(200));
    esker_reading(load, long.as_bytes()).fails(2, &["chip.img", "a quarter of a page"]);
    esker_reading(load, b"").stdout();
    kv(&["load", &image, "absent.tsv"]).fails(2, &["absent.tsv"]);
}

#[test]
fn a_full_chip_says_so_and_takes_deletions() {
    let place = Place::new();
    let image = path(&place);
    kv(&["create", &image, "--blocks", "64", "--pages-per-block", "8"]).stdout();
    let lines: String = (0..9000).map(|at| format!("{at:05}\t{}\n", "x".repeat(60))).collect();
    let answer = esker_reading(["flash", "kv", "load", &image], lines.as_bytes());
    answer.fails(5, &["the chip is full", "is stored"]);
    let stored = kv(&["scan", &image]).text().lines().count();
    assert!(answer.stderr().contains(&format!("line {stored} ")), "{stored}: {}", answer.stderr());
    kv(&["delete", &image, "00000"]).stdout();
    assert_eq!(kv(&["get", &image, "00000"]).code(), 1);
}

#[test]
fn sizes_that_cannot_be_leave_no_file() {
    let place = Place::new();
    let image = path(&place);
    let create = |options: &[&str]| kv(&[&["create", &image], options].concat());
    create(&["--page-bytes", "100"]).fails(2, &["pages of 256 to 32768 bytes"]);
    create(&["--blocks", "0"]).fails(2, &["0 blocks"]);
    create(&["--blocks", "15"]).fails(2, &["chip.img", "at least 16 blocks"]);
    create(&["--levels", "4"]).fails(2, &["1 to 3 levels"]);
    create(&["--levels", "300"]).fails(2, &["--levels"]);
    create(&["--preset", "floppy"]).fails(2, &["floppy", "slc512"]);
    create(&["--memory", "4KiB", "--blocks", "64"]).fails(2, &["4096 bytes", "--memory"]);
    create(&["--memory", "much"]).fails(2, &["much"]);
    create(&["--preset", "mqsim"]).fails(2, &["chip.img", "--memory"]);
    assert!(!place.path("chip.img").exists());
    for levels in ["1", "3"] {
        create(&["--levels", levels, "--blocks", "64", "--page-bytes", "2048"]).stdout();
        kv(&["put", &image, "key", "value"]).stdout();
        assert_eq!(kv(&["get", &image, "key"]).text(), "value\n");
        create(&["--blocks", "64"]).fails(2, &["chip.img exists"]);
        fs::remove_file(&image).unwrap();
    }
}

#[test]
fn what_is_no_image_is_refused_by_every_command() {
    let (place, image) = created();
    kv(&["put", &image, "key", "value"]).stdout();
    let whole = fs::read(&image).unwrap();
    let fails = |bytes: &[u8], code: i32, words: &[&str]| {
        fs::write(&image, bytes).unwrap();
        for arguments in [
            &["put", &image, "k", "v"][..],
            &["get", &image, "key"],
            &["delete", &image, "key"],
            &["scan", &image],
            &["load", &image],
            &["check", &image],
            &["stats", &image],
        ] {
            kv(arguments).fails(code, &[&["chip.img"], words].concat());
        }
        assert_eq!(fs::read(&image).unwrap(), bytes, "it stays as it is");
    };
    fails(b"", 2, &["not the image of a chip"]);
    fails(b"key\tvalue\n", 2, &["not the image of a chip"]);
    let with = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        bytes
    };
    fails(&with(8, 9), 2, &["format 9", "later version"]);
    fails(&with(20, 9), 3, &["damaged at byte 0", "checksum"]);
    fails(&whole[..whole.len() - 1], 3, &["was cut off"]);
    fails(&with(4100, 200), 3, &["damaged at byte 4096"]);
    // No page was ever programmed.
    let mut blank = whole.clone();
    blank[4096..4096 + 256 * 8].fill(0);
    fails(&blank, 2, &["blank"]);
    // All pages are of something else.
    let mut foreign = whole.clone();
    foreign[8192..].fill(0x55);
    fails(&foreign, 2, &["holds no tree"]);
    fs::remove_file(&image).unwrap();
    kv(&["get", &image, "key"]).fails(2, &["cannot open", "chip.img"]);
    kv(&["get", &place.path("").display().to_string(), "key"])
        .fails(2, &["not the image of a chip"]);
}

/// A load that has the image and waits for its input; `None` where it met a reader.
fn waiting_load(image: &str) -> Option<Child> {
    let mut load = command(["flash", "kv", "load", image]);
    let mut load = load.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    while load.try_wait().unwrap().is_none() {
        if kv(&["get", image, "key"]).code() == 4 {
            return Some(load);
        }
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(load.wait().unwrap().code(), Some(4));
    None
}

#[test]
fn an_image_is_open_for_one_writer_or_several_readers() {
    let (_place, image) = created();
    kv(&["put", &image, "key", "value"]).stdout();
    let mut load = (0..100).find_map(|_| waiting_load(&image)).unwrap();
    kv(&["get", &image, "key"]).fails(4, &["chip.img", "another process"]);
    kv(&["put", &image, "key", "v"]).fails(4, &["chip.img", "another process"]);
    drop(load.stdin.take());
    assert!(load.wait().unwrap().success());
    assert_eq!(kv(&["get", &image, "key"]).text(), "value\n");
}

#[test]
fn a_killed_load_leaves_a_prefix_of_its_lines() {
    use std::io::Write;
    let (_place, image) = created();
    let mut load = command(["flash", "kv", "load", &image]);
    let mut load = load.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = load.stdin.take().unwrap();
    for at in 0..20_000 {
        if writeln!(stdin, "{at:06}\t{at}").is_err() {
            break;
        }
    }
    stdin.flush().unwrap();
    load.kill().unwrap();
    load.wait().unwrap();
    let found = kv(&["scan", &image]);
    for (at, line) in found.text().lines().enumerate() {
        assert_eq!(line, format!("{at:06}\t{at}"));
    }
    kv(&["check", &image]).stdout();
    kv(&["put", &image, "after", "it"]).stdout();
    assert_eq!(kv(&["get", &image, "after"]).text(), "it\n");
}
