//! A store opened for reading on a device that cannot be written to gives the same answers as when
//! it is opened as usual, regardless of what a crash has left.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker::{Db, Error, KeyspaceOptions};
use esker_device::wrap::{Change, Hook, Wrapped};
use esker_device::{Device, DeviceError, DeviceLock, Operation, Result};

use crate::config::Config;
use crate::recovery::{Depth, Expectation, examine};
use crate::verify;
use crate::violation::{Oracle, Verdict, Violation, ensure};

/// Room for what any log of a test holds.
const MEMORY_BUDGET_BYTES: u64 = 64 << 20;

/// Refuses every change, and counts it.
#[derive(Debug, Default)]
pub struct Untouchable {
    touched: AtomicU64,
}

impl Untouchable {
    /// Lets nothing but reading through to `inner`.
    #[must_use]
    pub fn around(inner: &Arc<dyn Device>) -> Arc<Wrapped<Self>> {
        Arc::new(Wrapped::around(Arc::clone(inner), Self::default()))
    }

    /// The number of changes that were tried.
    #[must_use]
    pub fn touched(&self) -> u64 {
        self.touched.load(Ordering::Relaxed)
    }

    fn touch<T>(&self, error: DeviceError) -> Result<T> {
        self.touched.fetch_add(1, Ordering::Relaxed);
        Err(error)
    }
}

impl Hook for Untouchable {
    fn permit(&self, change: Change, name: &str) -> Result<()> {
        self.touch(change.refused(name, ErrorKind::ReadOnlyFilesystem))
    }

    fn try_lock(&self, _device: &dyn Device) -> Result<Option<DeviceLock>> {
        // It makes a file where there is none.
        self.touch(DeviceError::new(Operation::Lock, "lock", 0, ErrorKind::ReadOnlyFilesystem))
    }
}

/// Opens the store on `device` for reading and judges what is there. Answers the last commit that
/// is, or none where there is no store, which an interrupted creation may leave.
///
/// # Errors
/// The first broken promise.
pub fn judge(
    config: &Config,
    device: &Arc<dyn Device>,
    expectation: &Expectation<'_>,
    depth: Depth,
) -> Verdict<Option<u64>> {
    let untouchable = Untouchable::around(device);
    let on: Arc<dyn Device> = Arc::clone(&untouchable) as _;
    let builder = config.builder_at(&on, expectation.model.now());
    let db = match builder.memory_budget(MEMORY_BUDGET_BYTES).read_only(true).open() {
        Ok(db) => db,
        Err(Error::NoStore { .. }) if !expectation.now.exists => return Ok(None),
        Err(error) => {
            return Err(Violation::new(Oracle::Opens, error.to_string()).at("read-only"));
        }
    };
    let seq = look(&db, expectation, depth).map_err(|violation| violation.at("read-only"))?;
    let touched = untouchable.hook().touched();
    ensure(touched == 0, Oracle::ReadingWritesNothing, || format!("{touched} changes were tried"))?;
    Ok(Some(seq))
}

fn look(db: &Db, expectation: &Expectation<'_>, depth: Depth) -> Verdict<u64> {
    let recovered = examine(db, expectation, Depth::Once)?;
    if depth == Depth::Thorough {
        verify::check(db)?;
        refuses_writes(db)?;
        examine(db, expectation, Depth::Once)?;
    }
    db.clone()
        .close()
        .map_err(|error| Violation::new(Oracle::WorksOn, format!("close: {error}")))?;
    Ok(recovered.seq)
}

/// Every call that writes gets an error that says so.
///
/// # Errors
/// The first call that does not.
pub fn refuses_writes(db: &Db) -> Verdict {
    let mut answers = vec![
        ("create", db.keyspace("a new one", KeyspaceOptions::default()).map(drop)),
        ("flush", db.persist()),
        ("write transaction", db.write_transaction().map(drop)),
    ];
    for name in db.keyspaces().unwrap_or_default() {
        let Ok(Some(keyspace)) = db.open_keyspace(&name) else { continue };
        let mut batch = db.batch();
        batch.insert(&keyspace, b"key", b"value");
        answers.extend([
            ("insert", keyspace.insert(b"key", b"value")),
            ("large insert", keyspace.insert(b"key", vec![1; 300 << 10])),
            ("remove", keyspace.remove(b"key")),
            ("remove_range", keyspace.remove_range::<&[u8]>(..)),
            ("batch", batch.commit().map(drop)),
            ("flush", keyspace.flush()),
            ("compact", keyspace.compact()),
            ("drop", db.drop_keyspace(&name).map(drop)),
        ]);
    }
    for (what, answer) in answers {
        ensure(matches!(answer, Err(Error::ReadOnly)), Oracle::ReadingWritesNothing, || {
            format!("{what} answers {answer:?}")
        })?;
    }
    Ok(())
}
