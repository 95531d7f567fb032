//! Openings at a path, each of which has the store to itself, or reads it with others.

use std::os::unix::fs::MetadataExt;

use esker_device::forked::{Child, Ended};
use rustix::fs::{FlockOperation, flock, inotify};

use super::*;
use crate::{Durability, Snapshot};

/// Whether the folder of the super-journal is opened, and so synced, when the removal of the
/// super-journal decides.
fn syncs_the_folder(is_there: bool) -> bool {
    let (folder, apart) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = folder.path().join("store");
    let decider = apart.path().join("decider");
    std::fs::write(&decider, b"").unwrap();
    let store = StoreFile::open(&path, Missing::Create, Options::default()).unwrap();
    let mut writer = store.store.begin(&store.store.pin()).unwrap();
    writer.write(0, 0, b"prepared").unwrap();
    writer.prepare(decider.as_os_str().as_bytes()).unwrap();
    drop(writer);
    drop(store);
    if !is_there {
        std::fs::remove_file(&decider).unwrap();
    }
    let store = StoreFile::open(&path, Missing::Fail, Options::default()).unwrap();
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&watch, apart.path(), inotify::WatchFlags::OPEN).unwrap();
    decide_by_file(&store.store, &path).unwrap();
    assert_eq!(store.store.pin().pages(), u32::from(!is_there));
    let mut memory = [std::mem::MaybeUninit::uninit(); 4096];
    inotify::Reader::new(&watch, &mut memory).next().is_ok()
}

#[test]
fn that_a_super_journal_is_gone_is_durable_before_it_decides() {
    assert!(syncs_the_folder(false));
    assert!(!syncs_the_folder(true), "nothing is to be made durable");
    let found = planted::with(Bug::RemovalNotSynced, || !syncs_the_folder(false));
    assert!(found, "a test that cannot fail proves nothing");
}

#[test]
fn one_opening_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let absent = StoreFile::open(&path, Missing::Fail, Options::default());
    assert!(matches!(absent, Err(Error::Device(_))));
    assert!(!path.exists());
    let first = StoreFile::open(&path, Missing::Create, Options::default()).unwrap();
    let second = StoreFile::open(&path, Missing::Create, Options::default());
    assert!(matches!(second, Err(Error::Locked { .. })));
    let reader = StoreFile::open_read_only(&path, Options::default()).unwrap_err();
    assert!(reader.to_string().contains("for writing"), "{reader}");
    first.close().unwrap();
    StoreFile::open(&path, Missing::Fail, Options::default()).unwrap();
}

/// Everything that can be seen of a file from outside.
fn looks(path: &Path) -> (Vec<u8>, i64, i64, usize) {
    let metadata = std::fs::metadata(path).unwrap();
    let siblings = std::fs::read_dir(path.parent().unwrap()).unwrap().count();
    (std::fs::read(path).unwrap(), metadata.mtime_nsec(), metadata.ctime_nsec(), siblings)
}

fn commit(store: &PageStore, byte: u8) {
    let mut writer = store.begin(&store.pin()).unwrap();
    writer.write(0, 0, &[byte; 4096]).unwrap();
    writer.commit(Durability::Full).unwrap();
}

fn first_byte(snapshot: &Snapshot) -> u8 {
    let mut byte = [0];
    snapshot.read(0, 0, &mut byte).unwrap();
    byte[0]
}

#[test]
fn readers_share_a_file_and_leave_it_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let read = || StoreFile::open_read_only(&path, Options::default());
    assert!(matches!(read(), Err(Error::Device(_))) && !path.exists());
    let file = StoreFile::open(&path, Missing::Create, Options::default()).unwrap();
    commit(&file.store, 1);
    // As a process leaves it that dies: the log is there, and no checkpoint of it.
    let crashed = std::fs::read(&path).unwrap();
    file.close().unwrap();
    for bytes in [std::fs::read(&path).unwrap(), crashed] {
        std::fs::write(&path, bytes).unwrap();
        let before = looks(&path);
        let (one, other) = (read().unwrap(), read().unwrap());
        for file in [&one, &other] {
            assert_eq!(first_byte(&file.store.pin()), 1);
            assert!(file.store.check().unwrap().accounted);
            let refused = file.store.begin(&file.store.pin()).unwrap_err();
            assert!(matches!(refused, Error::ReadOnly { .. }), "{refused}");
        }
        let writer = StoreFile::open(&path, Missing::Fail, Options::default());
        assert!(matches!(writer, Err(Error::Locked { .. })));
        one.close().unwrap();
        other.close().unwrap();
        assert!(looks(&path) == before, "something was written");
    }
}

#[test]
fn a_reader_that_is_alone_may_begin_to_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let read = || StoreFile::open_read_only(&path, Options::default());
    File::create(&path).unwrap();
    for byte in 1..4 {
        let (one, other) = (read().unwrap(), read().unwrap());
        let before = one.store.pin();
        let refused = one.make_writable(&path).unwrap_err();
        assert!(matches!(refused, Error::Locked { .. }), "{refused}");
        assert!(one.store.is_read_only() && read().is_ok());
        other.close().unwrap();
        one.make_writable(&path).unwrap();
        commit(&one.store, byte);
        assert!(read().is_err());
        assert_eq!(before.version(), u64::from(byte) - 1);
        assert!(before.pages() == 0 || first_byte(&before) == byte - 1);
        assert_eq!(first_byte(&one.store.pin()), byte);
        drop(before);
        one.close().unwrap();
    }
}

/// The lock of a reader is no lock while it becomes a writer's.
#[test]
fn what_others_have_written_is_not_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let file = StoreFile::open(&path, Missing::Create, Options::default()).unwrap();
    commit(&file.store, 1);
    file.close().unwrap();
    let late = StoreFile::open_read_only(&path, Options::default()).unwrap();
    let snapshot = late.store.pin();
    flock(&late.held.lock, FlockOperation::Unlock).unwrap();
    let file = StoreFile::open(&path, Missing::Fail, Options::default()).unwrap();
    commit(&file.store, 2);
    // It has it still.
    let lost = late.make_writable(&path).unwrap_err();
    assert!(lost.to_string().contains("open it again"), "{lost}");
    assert!(snapshot.read(0, 0, &mut [0]).is_err());
    file.close().unwrap();
    // It had it.
    let before = std::fs::read(&path).unwrap();
    let lost = late.make_writable(&path).unwrap_err();
    assert!(matches!(lost, Error::Locked { .. }), "{lost}");
    assert!(late.store.is_read_only() && snapshot.read(0, 0, &mut [0]).is_err());
    late.close().unwrap();
    assert!(std::fs::read(&path).unwrap() == before, "something was written");
}

/// A child by `fork` does nothing to the file of a store of its parent.
#[test]
fn a_child_writes_nothing_and_closes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let file = StoreFile::open(&path, Missing::Create, Options::default()).unwrap();
    commit(&file.store, 1);
    let mut writer = file.store.begin(&file.store.pin()).unwrap();
    writer.write(0, 0, &[2; 4096]).unwrap();
    let before = std::fs::read(&path).unwrap();
    let mut held = Some((file, writer));
    let child = Child::run(20, || {
        let (file, writer) = held.take().unwrap();
        let refused = [
            writer.commit(Durability::Full).map(drop),
            file.store.begin(&file.store.pin()).map(drop),
            file.store.pin_named("name").map(drop),
            file.store.checkpoint(),
            file.store.sync(),
            file.make_writable(&path),
            file.store.clone().close(),
            file.close(),
        ];
        let is_refused = |answer: &Result<()>| matches!(answer, Err(Error::Forked { .. }));
        u8::from(!refused.iter().all(is_refused))
    });
    assert_eq!(child.wait(), Ended::Answer(0));
    assert!(std::fs::read(&path).unwrap() == before, "the child wrote");
    let (file, writer) = held.unwrap();
    writer.commit(Durability::Full).unwrap();
    file.close().unwrap();
    let file = StoreFile::open(&path, Missing::Fail, Options::default()).unwrap();
    assert_eq!(first_byte(&file.store.pin()), 2);
}

#[test]
fn a_file_says_what_became_of_a_prepared_transaction() {
    let folder = tempfile::tempdir().unwrap();
    let (path, journal) = (folder.path().join("store"), folder.path().join("journal"));
    let file = StoreFile::open(&path, Missing::Create, Options::default()).unwrap();
    commit(&file.store, 1);
    let mut writer = file.store.begin(&file.store.pin()).unwrap();
    writer.write(0, 0, &[2; 4096]).unwrap();
    writer.prepare(journal.as_os_str().as_bytes()).unwrap();
    let left = std::fs::read(&path).unwrap();
    writer.abort();
    file.close().unwrap();
    for is_there in [true, false] {
        std::fs::write(&path, &left).unwrap();
        if is_there {
            std::fs::write(&journal, "").unwrap();
        } else {
            std::fs::remove_file(&journal).unwrap();
        }
        let expected = if is_there { 1 } else { 2 };
        for _ in 0..2 {
            let file = StoreFile::open_read_only(&path, Options::default()).unwrap();
            decide_by_file(&file.store, &path).unwrap();
            assert_eq!(first_byte(&file.store.pin()), expected);
            assert!(file.store.check().unwrap().accounted);
        }
        assert!(std::fs::read(&path).unwrap() == left, "something was written");
        // Becoming writable makes the decision durable, whatever happens to the file.
        let file = StoreFile::open_read_only(&path, Options::default()).unwrap();
        decide_by_file(&file.store, &path).unwrap();
        file.make_writable(&path).unwrap();
        let crashed = std::fs::read(&path).unwrap();
        drop(file);
        std::fs::write(&path, crashed).unwrap();
        let file = StoreFile::open(&path, Missing::Fail, Options::default()).unwrap();
        assert_eq!(file.store.prepared(), None);
        assert_eq!(first_byte(&file.store.pin()), expected);
    }
}

#[test]
fn a_database_of_sqlite_is_named_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    let bytes = [&b"SQLite format 3\0"[..], &[0; 4080]].concat();
    std::fs::write(&path, &bytes).unwrap();
    let refused = StoreFile::open(&path, Missing::Create, Options::default()).unwrap_err();
    assert!(matches!(refused, Error::Foreign { .. }), "{refused}");
    assert!(refused.to_string().contains("esker sqlite import"), "{refused}");
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
}
