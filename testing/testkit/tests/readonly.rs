//! Opening for reading writes nothing, and the suite sees it if it does.

use std::sync::Arc;

use esker::{Db, Error, KeyspaceOptions};
use esker_device::Device;
use esker_device::memory::MemoryDevice;
use esker_device::wrap::Wrapped;
use esker_substrate::planted::{Bug, with};
use esker_testkit::readonly::{Untouchable, refuses_writes};
use esker_testkit::violation::Oracle;

/// A store with a log of so many entries.
fn store(entries: u32) -> esker::Result<Arc<dyn Device>> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    let db = Db::builder_on(Arc::clone(&device)).open()?;
    let keyspace = db.keyspace("keyspace", KeyspaceOptions::default())?;
    for number in 0..entries {
        keyspace.insert(number.to_be_bytes(), [7; 100])?;
    }
    db.close()?;
    Ok(device)
}

fn open(
    device: &Arc<dyn Device>,
    memory_budget: u64,
) -> esker::Result<(Db, Arc<Wrapped<Untouchable>>)> {
    let untouchable = Untouchable::around(device);
    let on = Arc::clone(&untouchable) as Arc<dyn Device>;
    let db = Db::builder_on(on).read_only(true).memory_budget(memory_budget).open()?;
    Ok((db, untouchable))
}

fn count(db: &Db) -> usize {
    let range = db.open_keyspace("keyspace").map(|found| found.map(|keyspace| keyspace.iter()));
    match range {
        Ok(Some(Ok(range))) => range.filter(Result::is_ok).count(),
        _ => 0,
    }
}

#[test]
fn a_log_is_replayed_into_memory_or_refused() {
    let device = store(20_000).expect("a store");
    let (db, untouchable) = open(&device, 64 << 20).expect("there is memory");
    assert_eq!((count(&db), untouchable.hook().touched(), db.is_read_only()), (20_000, 0, true));
    // Others may read at the same time on devices that know a shared lock; in memory one does.
    drop(db);
    let error = open(&device, 256 << 10).expect_err("the log is larger than that");
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
    assert!(error.to_string().contains("larger memory budget"), "{error}");
    let normally = Db::builder_on(device).memory_budget(256 << 10).open().expect("it opens");
    assert_eq!((count(&normally), normally.is_read_only()), (20_000, false));
}

#[test]
fn a_store_that_would_write_is_found() {
    let device = store(100).expect("a store");
    let (db, _) = open(&device, 64 << 20).expect("there is memory");
    refuses_writes(&db).expect("every write is refused");
    let found = with(Bug::WrittenReadOnly, || refuses_writes(&db)).expect_err("one is tried");
    assert_eq!(found.oracle, Oracle::ReadingWritesNothing, "{found}");
}
