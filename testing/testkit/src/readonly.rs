//! A store opened for reading on a device that cannot be written to answers what it answers when it
//! is opened as ever, whatever a crash has left.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker::{Db, Error, KeyspaceOptions};
use esker_device::{
    Caching, Device, DeviceError, DeviceFile, DeviceLock, Open, Operation, Purpose, ReadRequest,
    Result,
};

use crate::recovery::{Depth, Expectation, examine};
use crate::session::Config;
use crate::verify;
use crate::violation::{Oracle, Verdict, Violation, ensure};

/// Room for what any log of a test holds.
const MEMORY_BUDGET_BYTES: u64 = 64 << 20;

/// A device whose every change is refused, and counted.
#[derive(Debug)]
pub struct Untouchable {
    inner: Arc<dyn Device>,
    touched: Arc<AtomicU64>,
}

#[derive(Debug)]
struct UntouchableFile {
    inner: Arc<dyn DeviceFile>,
    touched: Arc<AtomicU64>,
}

fn refuse<T>(touched: &AtomicU64, operation: Operation, file: &str) -> Result<T> {
    touched.fetch_add(1, Ordering::Relaxed);
    Err(DeviceError::new(operation, file, 0, ErrorKind::ReadOnlyFilesystem))
}

impl Untouchable {
    /// Lets nothing but reading through to `inner`.
    #[must_use]
    pub fn new(inner: &Arc<dyn Device>) -> Self {
        Self { inner: Arc::clone(inner), touched: Arc::default() }
    }

    /// How many changes were tried.
    #[must_use]
    pub fn touched(&self) -> u64 {
        self.touched.load(Ordering::Relaxed)
    }
}

impl Device for Untouchable {
    fn open(&self, name: &str, open: Open, caching: Caching) -> Result<Arc<dyn DeviceFile>> {
        if open == Open::CreateNew {
            return refuse(&self.touched, Operation::Open, name);
        }
        let inner = self.inner.open(name, open, caching)?;
        Ok(Arc::new(UntouchableFile { inner, touched: Arc::clone(&self.touched) }))
    }

    fn list(&self) -> Result<Vec<String>> {
        self.inner.list()
    }

    fn remove(&self, name: &str) -> Result<()> {
        refuse(&self.touched, Operation::Directory, name)
    }

    fn rename(&self, from: &str, _to: &str) -> Result<()> {
        refuse(&self.touched, Operation::Directory, from)
    }

    fn sync_dir(&self) -> Result<()> {
        refuse(&self.touched, Operation::Directory, "")
    }

    fn try_lock(&self) -> Result<Option<DeviceLock>> {
        // It makes a file where there is none.
        refuse(&self.touched, Operation::Lock, "lock")
    }

    fn try_lock_shared(&self) -> Result<Option<DeviceLock>> {
        self.inner.try_lock_shared()
    }

    fn location(&self) -> String {
        self.inner.location()
    }
}

impl DeviceFile for UntouchableFile {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8], purpose: Purpose) -> Result<()> {
        self.inner.read_at(offset, buf, purpose)
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>], purpose: Purpose) -> Vec<Result<()>> {
        self.inner.read_many(requests, purpose)
    }

    fn write_at(&self, _offset: u64, _buf: &[u8], _purpose: Purpose) -> Result<()> {
        refuse(&self.touched, Operation::Write, self.name())
    }

    fn sync(&self, _purpose: Purpose) -> Result<()> {
        refuse(&self.touched, Operation::Sync, self.name())
    }

    fn preallocate(&self, _len: u64, _purpose: Purpose) -> Result<()> {
        refuse(&self.touched, Operation::Resize, self.name())
    }

    fn allocate(&self, _offset: u64, _len: u64, _purpose: Purpose) -> Result<()> {
        refuse(&self.touched, Operation::Resize, self.name())
    }

    fn truncate(&self, _len: u64) -> Result<()> {
        refuse(&self.touched, Operation::Resize, self.name())
    }

    fn discard(&self, _offset: u64, _len: u64) -> Result<()> {
        refuse(&self.touched, Operation::Resize, self.name())
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
    let untouchable = Arc::new(Untouchable::new(device));
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
    ensure(untouchable.touched() == 0, Oracle::ReadingWritesNothing, || {
        format!("{} changes were tried", untouchable.touched())
    })?;
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

/// Whatever writes is told that it cannot.
///
/// # Errors
/// What is not.
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
