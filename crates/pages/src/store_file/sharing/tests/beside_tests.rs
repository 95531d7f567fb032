//! The file in which processes meet: its name, its rights, and what else may be at its place.

use super::*;

/// A file in the place of one that is open is another store, and has a meeting of its own.
#[test]
fn a_file_in_the_place_of_an_open_one_is_another_store() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let first = open(&path).unwrap();
    add(&first.store, 1, Durability::Full).unwrap();
    let away = folder.path().join("away");
    fs::rename(&path, &away).unwrap();
    let second = open(&path).unwrap();
    let third = open(&path).unwrap();
    assert_eq!(add(&second.store, 1, Durability::Full).unwrap(), 1);
    assert_eq!(add(&third.store, 1, Durability::Full).unwrap(), 2);
    assert_eq!(add(&first.store, 1, Durability::Full).unwrap(), 2);
    assert!(matches!(
        StoreFile::open(&away, Missing::Fail, many().processes(Processes::One)),
        Err(Error::Locked { .. })
    ));
    first.close().unwrap();
    assert_eq!(add(&third.store, 1, Durability::Full).unwrap(), 3);
    second.close().unwrap();
    third.close().unwrap();
    assert!(!meeting_path(&path).exists());
    check_alone(&path, 3);
    check_alone(&away, 2);
}

/// What is made for the store has its rights, whatever those of this process would be.
#[test]
fn the_meeting_file_has_the_rights_of_the_store() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    open(&path).unwrap().close().unwrap();
    for mode in [0o600, 0o664] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let file = open(&path).unwrap();
        let (store, meeting) = (fs::metadata(&path).unwrap(), fs::metadata(meeting_path(&path)));
        let meeting = meeting.unwrap();
        assert_eq!(meeting.mode() & 0o777, mode);
        assert_eq!((meeting.uid(), meeting.gid()), (store.uid(), store.gid()));
        file.close().unwrap();
    }
}

/// What is left on a medium that cannot be written, or is no file at all, keeps no process from
/// reading.
#[test]
fn what_is_beside_a_store_is_only_looked_at_by_who_does_not_share_it() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    assert_eq!(Other::start(folder.path(), "die", 0).wait(), Some(0));
    fs::set_permissions(meeting_path(&path), fs::Permissions::from_mode(0o444)).unwrap();
    let before = fs::read(meeting_path(&path)).unwrap();
    let read = || StoreFile::open_read_only(&path, Options::default());
    assert_eq!(number_in(&read().unwrap().store.pin(), 0), 1);
    assert!(fs::read(meeting_path(&path)).unwrap() == before);
    for kind in ["folder", "symlink"] {
        fs::remove_file(meeting_path(&path)).unwrap();
        match kind {
            "folder" => fs::create_dir(meeting_path(&path)).unwrap(),
            _ => symlink(folder.path().join("absent"), meeting_path(&path)).unwrap(),
        }
        assert!(!can_be_shared(&path, &many()), "{kind}");
        assert_eq!(number_in(&read().unwrap().store.pin(), 0), 1, "{kind}");
        assert!(open(&path).is_err(), "{kind}");
        if kind == "folder" {
            fs::remove_dir(meeting_path(&path)).unwrap();
            fs::write(meeting_path(&path), "").unwrap();
        }
    }
}
