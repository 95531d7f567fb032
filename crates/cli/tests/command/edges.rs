//! The edges to the system: locks, folders that are no stores, output that takes no more.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use crate::support::{Answer, Place, Running, command, esker};

#[test]
fn a_store_in_use_is_locked_for_those_that_write() {
    for place in Place::of_each_kind() {
        let db = place.load("k\tv\n");
        let mut holder =
            Running(command(["load", &db, "--json"]).stdin(Stdio::piped()).spawn().unwrap());
        let mut stdin = holder.0.stdin.take().unwrap();
        stdin.write_all(b"l\tw\n").unwrap();
        let mut report = String::new();
        BufReader::new(holder.0.stdout.as_mut().unwrap()).read_line(&mut report).unwrap();

        for arguments in
            [&["put", &db, "k", "x"][..], &["del", &db, "k"], &["load", &db], &["compact", &db]]
        {
            let answer = esker(arguments);
            answer.fails(4, &[&db]);
            assert_eq!(answer.0.stdout, b"");
        }
        // Those that only read follow.
        assert_eq!(esker(["get", &db, "k"]).text(), "v\n");
        for command in ["scan", "dump"] {
            assert!(esker([command, &db]).text().starts_with("k\tv\n"), "{command}");
        }
        assert_eq!(esker(["keyspaces", &db, "--json"]).text().lines().count(), 1);
        assert!(esker(["stats", &db]).text().contains("default"));
        let checked = esker(["check", &db]);
        let checked = checked.text();
        assert!(checked.contains("ok: ") && checked.contains("as of operation"), "{checked}");
        drop(stdin);
        assert!(holder.0.wait().unwrap().success());
        assert_eq!(esker(["dump", &db]).text(), "k\tv\nl\tw\n");
    }
}

#[test]
fn the_lock_of_a_killed_process_is_gone() {
    for place in Place::of_each_kind() {
        let db = place.load("k\tv\n");
        let mut holder =
            Running(command(["load", &db, "--json"]).stdin(Stdio::piped()).spawn().unwrap());
        let mut report = String::new();
        holder.0.stdin.as_mut().unwrap().write_all(b"l\tw\n").unwrap();
        BufReader::new(holder.0.stdout.as_mut().unwrap()).read_line(&mut report).unwrap();
        drop(holder);
        assert_eq!(esker(["get", &db, "k"]).text(), "v\n");
    }
}

#[test]
fn folders_and_files_that_are_no_stores_are_left_alone() {
    let place = Place::new();
    let file = place.write("file", "precious");
    fs::create_dir(place.path("folder")).unwrap();
    place.write("folder/letter.txt", "precious");
    let folder = place.path("folder").into_os_string().into_string().unwrap();
    for db in [&file, &folder] {
        esker(["put", db, "k", "v"]).fails(2, &[db]);
        esker(["get", db, "k"]).fails(2, &[db]);
    }
    assert_eq!(fs::read(&file).unwrap(), b"precious");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error_of_the_system() {
    let place = Place::new();
    fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o555)).unwrap();
    let db = place.db();
    // Permissions do not bind root; nobody makes folders in /proc.
    let bound = File::create(place.path("probe")).is_err();
    let db = if bound { db } else { "/proc/esker-test".to_owned() };
    esker(["put", &db, "k", "v"]).fails(5, &[&db]);
    fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_full_standard_output_is_an_error() {
    let place = Place::new();
    let db = place.load("k\tv\n");
    for arguments in [
        &["get", &db, "k"][..],
        &["scan", &db],
        &["dump", &db],
        &["keyspaces", &db],
        &["stats", &db],
        &["check", &db],
        &["compact", &db],
        &["load", &db],
        &["load", &db, "--json"],
        &["completions", "bash"],
        &["--help"],
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = command(arguments).stdout(full).output().unwrap();
        Answer(output).fails(5, &["standard output", "No space left"]);
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    for place in Place::of_each_kind() {
        let input: String = (0..50_000).map(|number| format!("{number}\tvalue\n")).collect();
        let db = place.load(input);
        for arguments in [&["scan", &db][..], &["dump", &db], &["dump", &db, "--json"]] {
            let mut child = command(arguments).spawn().unwrap();
            let mut stdout = child.stdout.take().unwrap();
            let mut begin = [0; 10];
            stdout.read_exact(&mut begin).unwrap();
            drop(stdout);
            let output = child.wait_with_output().unwrap();
            assert_eq!((output.status.code(), output.stderr), (Some(0), vec![]), "{arguments:?}");
        }
    }
}

#[test]
fn a_load_continues_when_its_progress_is_not_read() {
    for place in Place::of_each_kind() {
        let db = place.db();
        let mut child = command(["load", &db, "--json"]).stdin(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let mut stdin = child.stdin.take().unwrap();
        for number in 0..8 {
            stdin.write_all(format!("{number}\tv\n").as_bytes()).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stderr), (Some(0), vec![]));
        assert_eq!(esker(["scan", &db]).text().lines().count(), 8);
    }
}

#[test]
fn closed_standard_streams_are_survived() {
    for place in Place::of_each_kind() {
        let db = place.load("k\tv\n");
        let run = |script: &str| {
            let output = std::process::Command::new("sh")
                .args(["-c", script, "sh", env!("CARGO_BIN_EXE_esker"), &db])
                .output()
                .unwrap();
            (output.status.code(), output.stderr)
        };
        assert_eq!(run("exec \"$1\" load \"$2\" <&-").0, Some(0));
        assert_eq!(run("exec \"$1\" get \"$2\" k >&-"), (Some(0), vec![]));
        assert_eq!(run("exec \"$1\" get \"$2\" k --frob 2>&-"), (Some(2), vec![]));
        assert_eq!(run("exec \"$1\" get \"$2\" k --frob 2>/dev/full"), (Some(2), vec![]));
    }
}

#[test]
fn awkward_paths_make_stores_and_one_line_errors() {
    let place = Place::new();
    let awkward = place.path("a b\nc").into_os_string().into_string().unwrap();
    esker(["get", &awkward, "k"]).fails(2, &["a b"]);
    esker(["put", &awkward, "k", "v"]).stdout();
    assert_eq!(esker(["get", &awkward, "k"]).text(), "v\n");
    esker(["put", "", "k", "v"]).fails(2, &[]);
    esker(["put", "/dev/null", "k", "v"]).fails(2, &["/dev/null"]);
}
