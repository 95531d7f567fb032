//! Commands that only read change nothing: they work where nothing can be written, and at the same
//! time as others that read.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::support::{Place, Running, command, esker};

/// All files below a folder, with their contents and times of change.
fn contents(folder: &Path) -> BTreeMap<String, (Vec<u8>, std::time::SystemTime)> {
    let entry = |entry: fs::DirEntry| {
        let changed = entry.metadata().unwrap().modified().unwrap();
        let name = entry.file_name().into_string().unwrap();
        (name, (fs::read(entry.path()).unwrap(), changed))
    };
    fs::read_dir(folder).unwrap().map(|found| entry(found.unwrap())).collect()
}

/// Everything that only reads, of a store and of a backup; `restored` is made of the backup.
fn reads(db: &str, backup: &str, restored: &str) {
    assert_eq!(esker(["get", db, "a"]).text(), "1\n");
    assert_eq!(esker(["scan", db, "--reverse", "--limit=1"]).text(), "b\t2\n");
    assert_eq!(esker(["dump", db]).text(), "a\t1\nb\t2\n");
    assert_eq!(esker(["keyspaces", db]).text(), "default\n");
    assert!(esker(["stats", db]).text().contains("default"));
    assert!(esker(["check", db]).text().starts_with("ok: "));
    assert!(esker(["check", backup]).text().starts_with("ok: "));
    esker(["restore", backup, restored]).stdout();
    assert_eq!(esker(["dump", restored]).text(), "a\t1\nb\t2\n");
}

/// A store, and a backup of it.
fn made(place: &Place) -> (String, String) {
    let db = place.load("a\t1\nb\t2\n");
    let backup = place.path("backup").into_os_string().into_string().unwrap();
    esker(["backup", &db, &backup]).stdout();
    (db, backup)
}

#[test]
fn reading_changes_nothing_in_the_folder() {
    for place in Place::of_each_kind() {
        let (db, backup) = made(&place);
        let restored = place.path("restored").into_os_string().into_string().unwrap();
        let before = [contents(Path::new(&db)), contents(Path::new(&backup))];
        reads(&db, &backup, &restored);
        assert!(before == [contents(Path::new(&db)), contents(Path::new(&backup))]);
        // Also where there is no lock to be had.
        for folder in [&db, &backup] {
            fs::remove_file(Path::new(folder).join("lock")).unwrap();
        }
        fs::remove_dir_all(&restored).unwrap();
        reads(&db, &backup, &restored);
        assert!(!Path::new(&db).join("lock").exists() && !Path::new(&backup).join("lock").exists());
    }
}

#[test]
fn several_processes_read_and_writers_are_refused() {
    for place in Place::of_each_kind() {
        let input: String = (0..50_000).map(|number| format!("{number}\tvalue\n")).collect();
        let db = place.load(input);
        // It waits for its reader, with the store open.
        let mut reader = Running(command(["dump", &db]).spawn().unwrap());
        let mut begin = [0; 10];
        reader.0.stdout.as_mut().unwrap().read_exact(&mut begin).unwrap();
        assert_eq!(esker(["get", &db, "7"]).text(), "value\n");
        esker(["put", &db, "7", "new"]).fails(4, &[&db]);
        drop(reader);
        esker(["put", &db, "7", "new"]).stdout();
        assert_eq!(esker(["get", &db, "7"]).text(), "new\n");
    }
}

/// Mounts `source` on `target` so that nothing can be written; false where that is not allowed.
fn mount_read_only(source: &Path, target: &Path) -> bool {
    fs::create_dir(target).unwrap();
    let mount = |arguments: &[&str]| {
        let run = Command::new("mount").args(arguments).arg(target).output();
        run.is_ok_and(|output| output.status.success())
    };
    let source = source.to_str().unwrap();
    mount(&["--bind", source]) && mount(&["-o", "remount,bind,ro"])
}

/// Unmounts when it goes.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _gone = Command::new("umount").arg(self.0).output();
    }
}

#[test]
fn a_medium_that_cannot_be_written_to_is_read() {
    let place = Place::new();
    let (db, backup) = made(&place);
    fs::create_dir(place.path("medium")).unwrap();
    fs::rename(&db, place.path("medium/db")).unwrap();
    fs::rename(&backup, place.path("medium/backup")).unwrap();
    let (source, target) = (place.path("medium"), place.path("mounted"));
    let is_mounted = mount_read_only(&source, &target);
    let mounted = Mounted(&target);
    // Where mounting is not allowed, the right to write is taken away, which does not bind root.
    let root = if is_mounted { &target } else { &source };
    if !is_mounted {
        for folder in ["medium/db", "medium/backup", "medium"] {
            let allowed = fs::Permissions::from_mode(0o555);
            fs::set_permissions(place.path(folder), allowed).unwrap();
        }
    }
    let path = |name: &str| root.join(name).into_os_string().into_string().unwrap();
    let restored = place.path("restored").into_os_string().into_string().unwrap();
    reads(&path("db"), &path("backup"), &restored);
    if is_mounted {
        assert!(fs::write(target.join("db/probe"), "").is_err(), "it can be written to");
        esker(["put", &path("db"), "a", "3"]).fails(5, &["db"]);
        esker(["get", &path("nothing"), "a"]).fails(2, &["no store"]);
    }
    drop(mounted);
    for folder in ["medium", "medium/db", "medium/backup"] {
        let allowed = fs::Permissions::from_mode(0o755);
        fs::set_permissions(place.path(folder), allowed).unwrap();
    }
}

#[test]
fn an_error_names_the_command_for_the_file() {
    let place = Place::new();
    let (db, backup) = made(&place);
    let pages = place.path("app.esker").into_os_string().into_string().unwrap();
    let source = place.path("app.db").into_os_string().into_string().unwrap();
    rusqlite::Connection::open(&source).unwrap().execute_batch("CREATE TABLE t(x);").unwrap();
    esker(["sqlite", "import", &source, &pages]).stdout();
    for arguments in [["get", &pages, "k"], ["put", &pages, "k"], ["scan", &pages, "--reverse"]] {
        let value: &[&str] = if arguments[0] == "put" { &["v"] } else { &[] };
        esker(arguments.iter().chain(value)).fails(2, &[&pages, "esker sqlite"]);
    }
    esker(["check", &pages]).fails(2, &[&pages, "esker sqlite"]);
    esker(["get", &backup, "k"]).fails(2, &["is a backup", "esker restore"]);
    for what in ["check", "stats", "versions", "compact"] {
        esker(["sqlite", what, &db]).fails(2, &[&db, "esker check"]);
    }
    esker(["sqlite", "check", &backup]).fails(2, &["a backup", "esker check"]);
}
