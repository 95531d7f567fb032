//! `demo` on a small tree; the whole of /usr is what `make run` is for.

use std::fs;

use crate::support::{Place, esker};

#[test]
fn the_demo_checks_what_it_stores() {
    let place = Place::new();
    for folder in ["root/a", "root/b/c", "root/empty"] {
        fs::create_dir_all(place.path(folder)).unwrap();
        for number in 0..40 {
            if folder != "root/empty" {
                place.write(&format!("{folder}/{number}"), "x".repeat(number));
            }
        }
    }
    std::os::unix::fs::symlink("a", place.path("root/link")).unwrap();
    let root = place.path("root").into_os_string().into_string().unwrap();
    let text = esker(["demo", "--root", &root]).text().to_owned();
    for word in ["80 files below", "so few", "p99.9", "per user byte", "answers were right"] {
        assert!(text.contains(word), "{word} is not in\n{text}");
    }
    // It shows what there is; bars are what `bench` is for.
    for word in ["missed", "unknown", "must be"] {
        assert!(!text.contains(word), "{word} is in\n{text}");
    }

    let db = place.db();
    let figures = esker(["demo", "--root", &root, "--store", &db, "--json"]).json();
    assert_eq!((&figures["files"], &figures["few"]), (&80.into(), &true.into()));
    let phases = figures["phases"].as_array().unwrap();
    assert!(phases.iter().any(|phase| phase["phase"] == "check"));
    let dumped = esker(["dump", &db, "--keyspace", "files"]).text().to_owned();
    assert_eq!(dumped.lines().count(), 72);
    assert!(dumped.lines().all(|line| line.starts_with(&root)));
    esker(["demo", "--root", &root, "--store", &db]).fails(2, &["not empty"]);

    let text = esker(["demo", "--root", &root, "--index=lsm"]).text().to_owned();
    assert!(text.contains("answers were right"), "{text}");
}

#[test]
fn a_root_without_files_is_refused() {
    let place = Place::new();
    let root = place.path("").into_os_string().into_string().unwrap();
    esker(["demo", "--root", &root]).fails(2, &["no files"]);
    esker(["demo", "--root", "/nonexistent"]).fails(2, &["/nonexistent"]);
    place.write("file", "");
    esker(["demo", "--root", &root, "--memory-mib", "0"]).fails(2, &["memory"]);
}
