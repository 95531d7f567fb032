//! A child by `fork` of a process that has a store open: every operation on what it inherits is an
//! error, none waits, and none changes a file.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::fs;
use std::io::{Read, Seek, SeekFrom, Write, pipe};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use esker::{
    Backup, Batch, Db, Error, History, Keyspace, KeyspaceOptions, Merge, Past, Range, Snapshot,
    Transaction, ValueReader, ValueWriter,
};
use esker_device::forked::{Child, Ended};
use esker_device::memory::MemoryDevice;
use esker_device::planted::{self, Bug};
use esker_testkit::counts::budget;

/// Seconds in which a child does everything.
const LONG: u32 = 30;
const TTL: Duration = Duration::from_secs(60);

/// One test at a time: what a child inherits is to be its own test's.
static ALONE: Mutex<()> = Mutex::new(());

/// A store, and one handle of each kind.
struct Handles {
    db: Db,
    things: Keyspace,
    past: Past,
    snapshot: Snapshot,
    transaction: Transaction,
    turn: Transaction,
    batch: Batch,
    /// With entries in it that are in memory already.
    range: Range,
    reader: ValueReader,
    writer: ValueWriter,
    backup: Backup,
}

fn options() -> KeyspaceOptions {
    KeyspaceOptions::default().merge(Merge::Append).inline_bytes_max(1000)
}

impl Handles {
    fn open(folder: &Path) -> Self {
        let db = Db::builder(folder.join("db")).memory_budget(1 << 20).open().unwrap();
        let things = db.keyspace("things", options()).unwrap();
        for number in 0..500_u32 {
            things.insert(format!("key{number:04}"), [7; 100]).unwrap();
        }
        things.insert("large", [7; 100_000]).unwrap();
        db.flush().unwrap();
        things.insert("newest", "1").unwrap();
        db.backup(folder.join("backup")).unwrap();
        let backup = Backup::open(folder.join("backup")).unwrap();
        let mut range = things.iter().unwrap();
        range.next().unwrap().unwrap();
        let mut transaction = db.transaction().unwrap();
        transaction.insert(&things, "mine", "1").unwrap();
        let mut batch = db.batch();
        batch.insert(&things, "batched", "1");
        let mut writer = things.writer("written").unwrap();
        writer.write_all(&[7; 5000]).unwrap();
        let history = KeyspaceOptions::default().history(History::All);
        let versions = db.keyspace("versions", history).unwrap();
        versions.insert("a", "1").unwrap();
        Self {
            past: versions.at(db.version()).unwrap(),
            snapshot: db.snapshot().unwrap(),
            turn: db.write_transaction().unwrap(),
            reader: things.reader("large").unwrap().unwrap(),
            transaction,
            batch,
            range,
            writer,
            backup,
            things,
            db,
        }
    }
}

/// The operations that were tried, and the answers that were wrong.
#[derive(Default)]
struct Tried {
    names: BTreeSet<&'static str>,
    wrong: Vec<String>,
}

impl Tried {
    fn refused<T: Debug>(&mut self, name: &'static str, answer: Result<T, Error>) {
        self.names.insert(name);
        if !matches!(&answer, Err(Error::Forked { .. })) {
            self.wrong.push(format!("{name}: {answer:?}"));
        }
    }

    fn io<T: Debug>(&mut self, name: &'static str, answer: std::io::Result<T>) {
        let answer = answer.map_err(|error| {
            let inner = error.get_ref().and_then(|error| error.downcast_ref::<Error>()).cloned();
            inner.unwrap_or_else(|| Error::NoStore { location: error.to_string() })
        });
        self.refused(name, answer);
    }

    /// Answers nothing that could be wrong, and must end.
    fn ends<T>(&mut self, name: &'static str, _: T) {
        self.names.insert(name);
    }

    fn db(&mut self, db: &Db, folder: &Path) {
        self.refused("Db::keyspace", db.keyspace("things", options()));
        self.refused("Db::keyspace", db.keyspace("new", options()));
        self.refused("Db::open_keyspace", db.open_keyspace("things"));
        self.refused("Db::keyspaces", db.keyspaces());
        self.refused("Db::drop_keyspace", db.drop_keyspace("things"));
        self.refused("Db::batch", db.batch().commit());
        self.refused("Db::snapshot", db.snapshot());
        self.refused("Db::transaction", db.transaction());
        self.refused("Db::write_transaction", db.write_transaction());
        self.refused("Db::try_write_transaction", db.try_write_transaction());
        self.refused("Db::transact", db.transact(|_| Ok::<_, Error>(())));
        self.refused("Db::persist", db.persist());
        self.refused("Db::flush", db.flush());
        self.refused("Db::compact", db.compact());
        self.refused("Db::check", db.check());
        self.refused("Db::pin", db.pin("a", 1));
        self.refused("Db::unpin", db.unpin("a"));
        self.refused("Db::named_versions", db.named_versions());
        let mut progress = |_: &_| ControlFlow::Continue(());
        self.refused("Db::backup", db.backup(folder.join("backup")));
        self.refused("Db::backup", db.backup(folder.join("other")));
        self.refused("Db::backup_with", db.backup_with(folder.join("other"), &mut progress));
        let device = Arc::new(MemoryDevice::new());
        self.refused("Db::backup_on", db.backup_on(device, &mut progress));
        self.refused("Db::stats", db.stats());
        self.ends("Db::durable_seq", db.durable_seq());
        self.ends("Db::visible_seq", db.visible_seq());
        self.ends("Db::version", db.version());
        self.refused("Db::time_of", db.time_of(1));
        self.ends("Db::is_read_only", db.is_read_only());
        self.refused("Db::close", db.clone().close());
    }

    fn keyspace(&mut self, things: &Keyspace) {
        let durability = esker::Durability::Synced;
        self.ends("Keyspace::name", things.name());
        self.refused("Keyspace::at", things.at(1));
        self.refused("Keyspace::at_time", things.at_time(SystemTime::UNIX_EPOCH));
        self.refused("Keyspace::history", things.history("a"));
        self.refused("Keyspace::at_named", things.at_named("a"));
        self.refused("Keyspace::changes", things.changes(..));
        self.refused("Keyspace::diff", things.diff(1, 2));
        self.refused("Keyspace::set_history", things.set_history(History::All));
        self.refused("Keyspace::erase", things.erase(["a"]));
        self.refused("Keyspace::insert", things.insert("a", "1"));
        self.refused("Keyspace::insert", things.insert("a", [1; 5000]));
        self.refused("Keyspace::insert_with", things.insert_with("a", "1", durability));
        self.refused("Keyspace::insert_with_ttl", things.insert_with_ttl("a", "1", TTL));
        self.refused("Keyspace::merge", things.merge("a", "1"));
        self.refused("Keyspace::merge_with", things.merge_with("a", "1", durability));
        self.refused("Keyspace::remove", things.remove("a"));
        self.refused("Keyspace::remove_with", things.remove_with("a", durability));
        self.refused("Keyspace::remove_range", things.remove_range("a".."b"));
        self.refused("Keyspace::remove_range", things.remove_range("b".."a"));
        self.refused("Keyspace::remove_range_with", things.remove_range_with(.."b", durability));
        self.refused("Keyspace::remove_prefix", things.remove_prefix("a"));
        self.refused("Keyspace::get", things.get("newest"));
        self.refused("Keyspace::reader", things.reader("large"));
        self.refused("Keyspace::writer", things.writer("a"));
        self.refused("Keyspace::contains", things.contains("newest"));
        self.refused("Keyspace::multi_get", things.multi_get(["newest"]));
        self.refused("Keyspace::first", things.first());
        self.refused("Keyspace::last", things.last());
        self.refused("Keyspace::iter", things.iter());
        self.refused("Keyspace::range", things.range("a".."b"));
        self.refused("Keyspace::range", things.range("b".."a"));
        self.refused("Keyspace::prefix", things.prefix("a"));
        self.refused("Keyspace::flush", things.flush());
        self.refused("Keyspace::compact", things.compact());
    }

    fn past(&mut self, past: &Past) {
        self.ends("Past::version", past.version());
        self.refused("Past::time", past.time());
        self.refused("Past::get", past.get("a"));
        self.refused("Past::contains", past.contains("a"));
        self.refused("Past::reader", past.reader("a"));
        self.refused("Past::multi_get", past.multi_get(["a"]));
        self.refused("Past::first", past.first());
        self.refused("Past::last", past.last());
        self.refused("Past::iter", past.iter());
        self.refused("Past::range", past.range("a".."b"));
        self.refused("Past::prefix", past.prefix("a"));
        self.refused("Past::history", past.history("a"));
    }

    fn snapshot(&mut self, snapshot: &Snapshot, things: &Keyspace) {
        let snapshot = snapshot.clone();
        self.ends("Snapshot::seq", snapshot.seq());
        self.refused("Snapshot::get", snapshot.get(things, "newest"));
        self.refused("Snapshot::contains", snapshot.contains(things, "newest"));
        self.refused("Snapshot::reader", snapshot.reader(things, "large"));
        self.refused("Snapshot::multi_get", snapshot.multi_get(things, ["newest"]));
        self.refused("Snapshot::first", snapshot.first(things));
        self.refused("Snapshot::last", snapshot.last(things));
        self.refused("Snapshot::iter", snapshot.iter(things));
        self.refused("Snapshot::range", snapshot.range(things, "a".."b"));
        self.refused("Snapshot::prefix", snapshot.prefix(things, "a"));
    }

    fn transaction(&mut self, mut transaction: Transaction, things: &Keyspace) {
        self.ends("Transaction::seq", transaction.seq());
        self.ends("Transaction::len", transaction.len());
        self.ends("Transaction::is_empty", transaction.is_empty());
        for key in ["mine", "newest"] {
            self.refused("Transaction::get", transaction.get(things, key));
            self.refused("Transaction::contains", transaction.contains(things, key));
        }
        self.refused("Transaction::multi_get", transaction.multi_get(things, ["newest"]));
        self.refused("Transaction::first", transaction.first(things));
        self.refused("Transaction::last", transaction.last(things));
        self.refused("Transaction::iter", transaction.iter(things));
        self.refused("Transaction::range", transaction.range(things, "a".."b"));
        self.refused("Transaction::prefix", transaction.prefix(things, "a"));
        self.refused("Transaction::insert", transaction.insert(things, "a", "1"));
        let expires = transaction.insert_with_ttl(things, "a", "1", TTL);
        self.refused("Transaction::insert_with_ttl", expires);
        self.refused("Transaction::merge", transaction.merge(things, "mine", "1"));
        self.refused("Transaction::remove", transaction.remove(things, "a"));
        self.refused("Transaction::remove_range", transaction.remove_range(things, "a".."b"));
        self.refused("Transaction::commit", transaction.commit());
    }

    /// Everything, on handles of all kinds; those that remain are dropped.
    fn all(&mut self, handles: Handles, folder: &Path) {
        let Handles { db, things, past, snapshot, transaction, turn, mut batch, .. } = handles;
        let Handles { mut range, mut reader, mut writer, backup, .. } = handles;
        self.db(&db, folder);
        self.keyspace(&things);
        self.past(&past);
        self.snapshot(&snapshot, &things);
        self.transaction(transaction, &things);
        self.refused("Transaction::commit_with", turn.commit_with(esker::Durability::Synced));
        batch.insert(&things, "a", "1");
        batch.insert_with_ttl(&things, "a", "1", TTL);
        batch.merge(&things, "a", "1");
        batch.remove(&things, "a");
        batch.remove_range(&things, "a".."b");
        self.ends("Batch::len", (batch.len(), batch.is_empty(), batch.refused().is_some()));
        self.refused("Batch::commit", batch.commit());
        self.refused("Range::next", range.next().transpose());
        self.refused(
            "Range::next_back",
            things.iter().and_then(|mut all| all.next_back().transpose()),
        );
        self.io("ValueReader::read", reader.read(&mut [0; 10]));
        self.ends("ValueReader::seek", reader.seek(SeekFrom::Start(10)).unwrap());
        self.io("ValueReader::read", reader.read(&mut [0; 10]));
        self.io("ValueWriter::write", writer.write(&[7; 10_000]));
        self.refused("ValueWriter::finish", writer.finish());
        self.refused("Backup::check", backup.check());
        self.refused("Backup::restore", backup.restore(folder.join("restored")));
        let again = format!("{:?}", (&db, &snapshot, &things));
        assert!(!again.is_empty());
        drop((db, things, snapshot, range, reader, backup));
    }
}

/// All files below a folder, and what is in them.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.display().to_string();
        if path.is_dir() {
            found.extend(files(&path));
        }
        found.insert(name, fs::read(path).unwrap_or_default());
    }
    found
}

/// The wrong answers that a child got that tries everything, one a line; empty if there are none.
fn tried_in_a_child(handles: &mut Option<Handles>, folder: &Path, bug: Option<Bug>) -> String {
    let (mut told, mut tells) = pipe().unwrap();
    let child = Child::run(LONG, || {
        let mut tried = Tried::default();
        let handles = handles.take().unwrap();
        match bug {
            Some(bug) => planted::with(bug, || tried.all(handles, folder)),
            None => tried.all(handles, folder),
        }
        tells.write_all(tried.wrong.join("\n").as_bytes()).unwrap();
        0
    });
    drop(tells);
    let mut said = String::new();
    told.read_to_string(&mut said).unwrap();
    match child.wait() {
        Ended::Answer(0) => said,
        ended => format!("{ended:?} {said}"),
    }
}

#[test]
fn a_child_is_refused_everything_and_changes_no_file() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let mut handles = Some(Handles::open(folder.path()));
    handles.as_ref().unwrap().db.persist().unwrap();
    let before = files(folder.path());
    assert_eq!(tried_in_a_child(&mut handles, folder.path(), None), "");
    assert!(files(folder.path()) == before, "a file was changed");
    // The parent goes on with all of it.
    let Handles { db, things, transaction, turn, batch, mut range, writer, .. } = handles.unwrap();
    assert_eq!(range.next().unwrap().unwrap().0, b"key0001");
    turn.rollback();
    transaction.commit().unwrap();
    batch.commit().unwrap();
    writer.finish().unwrap();
    for key in ["mine", "batched", "written", "newest"] {
        assert!(things.contains(key).unwrap(), "{key}");
    }
    assert!(db.check().unwrap().problems.is_empty());
    db.close().unwrap();
}

#[test]
fn a_child_that_takes_itself_for_its_parent_is_found() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let mut handles = Some(Handles::open(folder.path()));
    // Its turn is taken by itself, so that it would wait: other handles say enough.
    handles.as_mut().unwrap().turn = handles.as_ref().unwrap().db.transaction().unwrap();
    let said = tried_in_a_child(&mut handles, folder.path(), Some(Bug::ForkNotSeen));
    assert!(said.contains("Keyspace::insert") || said.contains("Signal"), "not found: {said}");
    std::mem::forget(handles);
}

/// This holds for every lock that a thread of the parent holds when it is forked.
#[test]
fn a_child_never_waits_for_a_thread_of_its_parent() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let mut handles = Some(Handles::open(folder.path()));
    // Another process's turn would be waited for by the threads.
    handles.as_mut().unwrap().turn = handles.as_ref().unwrap().db.transaction().unwrap();
    let (db, things) =
        (handles.as_ref().unwrap().db.clone(), handles.as_ref().unwrap().things.clone());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..3_u32 {
            let (db, things, is_over) = (&db, &things, &is_over);
            scope.spawn(move || {
                for turn in 0_u32.. {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    things.insert(format!("busy{number}-{}", turn % 1000), [1; 200]).unwrap();
                    let snapshot = db.snapshot().unwrap();
                    db.transact(|transaction| -> esker::Result<()> {
                        let _old = transaction.get(things, "newest")?;
                        transaction.insert(things, format!("busy{number}"), "1")
                    })
                    .unwrap();
                    assert_eq!(snapshot.iter(things).unwrap().take(10).count(), 10);
                }
            });
        }
        let wrong: Vec<String> = (0..8 * budget())
            .map(|_| tried_in_a_child(&mut handles, folder.path(), None))
            .filter(|said| !said.is_empty())
            .collect();
        is_over.store(true, Ordering::Relaxed);
        assert!(wrong.is_empty(), "{wrong:?}");
    });
    assert!(db.check().unwrap().problems.is_empty());
}

/// The public operations that the source has are those that were tried.
#[test]
fn everything_that_is_public_is_tried() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let sources = [
        ("Db", include_str!("../src/db.rs")),
        ("Db", include_str!("../src/pins.rs")),
        ("Keyspace", include_str!("../src/keyspace.rs")),
        ("Past", include_str!("../src/past.rs")),
        ("Snapshot", include_str!("../src/snapshot.rs")),
        ("Transaction", include_str!("../src/transaction.rs")),
    ];
    let folder = tempfile::tempdir().unwrap();
    let mut tried = Tried::default();
    // Here nothing is refused, and the names are what counts.
    let mut handles = Handles::open(folder.path());
    handles.turn = handles.db.transaction().unwrap();
    let names = {
        let db = handles.db.clone();
        tried.db(&db, folder.path());
        let things = handles.things;
        tried.keyspace(&things);
        tried.past(&handles.past);
        tried.snapshot(&handles.snapshot, &things);
        tried.transaction(handles.transaction, &things);
        tried.names
    };
    // What makes a store, what needs none, and what is tried on another handle.
    let known = [
        "Db::open",
        "Db::builder",
        "Db::builder_on",
        "Transaction::commit_with",
        "Transaction::rollback",
    ];
    for (kind, source) in sources {
        let inside = source.split(&format!("impl {kind} {{\n")).nth(1).unwrap();
        let inside = inside.split("\n}\n").next().unwrap();
        for line in inside.lines() {
            let line = line.replace("pub const fn", "pub fn");
            let Some(rest) = line.strip_prefix("    pub fn ") else { continue };
            let end = rest.find(['(', '<']).unwrap();
            let name = format!("{kind}::{}", &rest[..end]);
            let is_tried = names.contains(name.as_str()) || known.contains(&name.as_str());
            assert!(is_tried, "{name} is not tried in a child: add it to `Tried`");
        }
    }
}

#[test]
fn a_child_keeps_no_lock_and_loses_nothing() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    // The parent dies; its child is there still, and has been refused.
    let (mut told, mut tells) = pipe().unwrap();
    let parent = Child::run(2 * LONG, || {
        let db = Db::open(&path).unwrap();
        let things = db.keyspace("things", KeyspaceOptions::default()).unwrap();
        things.insert("before", "1").unwrap();
        let child = Child::run(2 * LONG, || {
            let answer = things.insert("child", "1");
            tells.write_all(if answer.is_err() { b"r" } else { b"a" }).unwrap();
            thread::sleep(Duration::from_secs(LONG.into()));
            0
        });
        std::mem::forget(child);
        thread::sleep(Duration::from_millis(100));
        things.insert("after", "1").unwrap();
        tells.write_all(b"p").unwrap();
        thread::sleep(Duration::from_secs(LONG.into()));
        drop(db);
        1
    });
    let mut said = [0; 2];
    told.read_exact(&mut said).unwrap();
    assert!(said.contains(&b'r'), "a child's write was acknowledged");
    parent.kill();
    let db = Db::open(&path).unwrap();
    let things = db.keyspace("things", KeyspaceOptions::default()).unwrap();
    for key in ["before", "after"] {
        assert!(things.contains(key).unwrap(), "{key} is lost");
    }
    assert!(!things.contains("child").unwrap());
    // The parent closes; its child is there still.
    let child = Child::run(2 * LONG, || {
        thread::sleep(Duration::from_secs(LONG.into()));
        0
    });
    db.close().unwrap();
    let db = Db::open(&path).unwrap();
    assert!(db.check().unwrap().problems.is_empty());
    child.kill();
    // A child opens stores of its own.
    let own = folder.path().join("own");
    let child = Child::run(LONG, || {
        assert!(matches!(Db::open(&path), Err(Error::Locked { .. })));
        let db = Db::open(&own).unwrap();
        db.keyspace("things", KeyspaceOptions::default()).unwrap().insert("a", "1").unwrap();
        db.close().unwrap();
        0
    });
    assert_eq!(child.wait(), Ended::Answer(0));
    Db::open(&own).unwrap();
}
