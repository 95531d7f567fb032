//! An open store, and what all objects made from it share.

use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use esker::{Db, Durability};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::backup::{Checked, checked};
use crate::fork::Kept;
use crate::history;
use crate::raised;
use crate::stats;

/// Open stores, to be closed when the interpreter ends. Only threads that are attached to the
/// interpreter lock it, so that it is unlocked at a fork.
static STORES: Mutex<Vec<Weak<Open>>> = Mutex::new(Vec::new());

/// An open store.
pub(crate) struct Open {
    db: Kept<Db>,
    path: PathBuf,
    durability: Durability,
    is_closed: AtomicBool,
    turns: Turns,
}

impl Open {
    /// The store.
    ///
    /// # Errors
    /// `ForkError` in a child, `ClosedError`.
    pub(crate) fn db(&self, py: Python<'_>) -> PyResult<&Db> {
        let db = self.db.get(py)?;
        self.check(py)?;
        Ok(db)
    }

    /// Whether it may be used, for what has been read already.
    #[inline]
    pub(crate) fn check(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(raised::of_store(py, &esker::Error::Closed));
        }
        Ok(())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) const fn turns(&self) -> &Turns {
        &self.turns
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let db = self.db.get(py)?.clone();
        self.is_closed.store(true, Ordering::Relaxed);
        match py.detach(|| db.close()) {
            // Closing again is allowed, and waits for a close in progress.
            Ok(()) | Err(esker::Error::Closed) => Ok(()),
            Err(error) => Err(raised::of_store(py, &error)),
        }
    }
}

/// Locks for keys: a thread that changes a key takes the key's turn, so that its read and its write
/// are one step with respect to all changes through Python.
///
/// A key's turn is one of 64, chosen by its hash; a thread that changes several keys takes their
/// turns in ascending order.
pub(crate) struct Turns {
    hasher: RandomState,
    turns: [Mutex<()>; 64],
}

/// Turns of some keys.
#[derive(Clone, Copy, Default)]
pub(crate) struct TurnSet(u64);

impl Turns {
    fn new() -> Self {
        Self { hasher: RandomState::new(), turns: [const { Mutex::new(()) }; 64] }
    }

    fn index(&self, key: &[u8]) -> u32 {
        (self.hasher.hash_one(key) % 64) as u32
    }

    pub(crate) fn with(&self, set: TurnSet, key: &[u8]) -> TurnSet {
        TurnSet(set.0 | 1 << self.index(key))
    }

    /// The turns of all possible keys.
    pub(crate) const fn all() -> TurnSet {
        TurnSet(u64::MAX)
    }

    /// Waits for the turn of one key. Not while attached to the interpreter.
    pub(crate) fn take(&self, key: &[u8]) -> MutexGuard<'_, ()> {
        let [first, ..] = &self.turns;
        let turn = self.turns.get(self.index(key) as usize).unwrap_or(first);
        turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the turns of several keys. Not while attached to the interpreter.
    pub(crate) fn take_all(&self, set: TurnSet) -> Vec<MutexGuard<'_, ()>> {
        let ours = self.turns.iter().enumerate().filter(|(index, _)| set.0 >> index & 1 == 1);
        ours.map(|(_, turn)| turn.lock().unwrap_or_else(PoisonError::into_inner)).collect()
    }
}

/// `"buffered"` or `"synced"`; without a name the durability of the store.
pub(crate) fn durability(open: &Open, name: Option<&Bound<'_, PyAny>>) -> PyResult<Durability> {
    name.map_or(Ok(open.durability), durability_of)
}

fn durability_of(given: &Bound<'_, PyAny>) -> PyResult<Durability> {
    let name = given.extract::<String>();
    match name.as_deref() {
        Ok("buffered") => Ok(Durability::Buffered),
        Ok("synced") => Ok(Durability::Synced),
        _ => {
            let text = format!("durability is 'buffered' or 'synced', not {}", given.repr()?);
            let refused = if name.is_ok() { raised::argument } else { raised::wrong_type };
            Err(refused(given.py(), &text))
        }
    }
}

/// Runs an operation of a store while other Python threads run.
pub(crate) fn detached<T: Send>(
    py: Python<'_>,
    run: impl FnOnce() -> esker::Result<T> + Send,
) -> PyResult<T> {
    py.detach(run).map_err(|error| raised::of_store(py, &error))
}

/// Close all stores that this process has open.
#[pyfunction]
pub(crate) fn close_all(py: Python<'_>) -> PyResult<()> {
    let stores = std::mem::take(&mut *STORES.lock().unwrap_or_else(PoisonError::into_inner));
    let ours = stores.iter().filter_map(Weak::upgrade).filter(|open| open.db.is_ours());
    ours.map(|open| open.close(py)).fold(Ok(()), Result::and)
}

/// A store: the native part of `esker.Db`.
#[pyclass(frozen, module = "esker._esker")]
pub(crate) struct Store(Arc<Open>);

impl Store {
    pub(crate) const fn open(&self) -> &Arc<Open> {
        &self.0
    }
}

#[pymethods]
impl Store {
    #[new]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        memory_bytes: u64,
        durability: &Bound<'_, PyAny>,
        create: bool,
        read_only: bool,
        follow: bool,
    ) -> PyResult<Self> {
        let durability = durability_of(durability)?;
        let builder = Db::builder(&path).memory_budget(memory_bytes).durability(durability);
        let builder = builder.create(create).read_only(read_only).follow(follow);
        let db = detached(py, || builder.open())?;
        let (is_closed, turns) = (false.into(), Turns::new());
        let open = Arc::new(Open { db: Kept::new(db), path, durability, is_closed, turns });
        let mut stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
        stores.retain(|store| store.strong_count() > 0);
        stores.push(Arc::downgrade(&open));
        Ok(Self(open))
    }

    /// The folder.
    #[getter]
    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Whether it has been closed.
    #[getter]
    fn closed(&self) -> bool {
        self.0.is_closed.load(Ordering::Relaxed)
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.0.close(py)
    }

    fn keyspaces(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let db = self.0.db(py)?;
        detached(py, || db.keyspaces())
    }

    fn drop_keyspace(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        let db = self.0.db(py)?;
        detached(py, || db.drop_keyspace(name))
    }

    /// The number of the newest commit.
    fn version(&self, py: Python<'_>) -> PyResult<u64> {
        self.0.db(py).map(Db::version)
    }

    /// Return the microseconds from 1970 to the commit of a version, or None.
    fn time_of(&self, py: Python<'_>, version: u64) -> PyResult<Option<u64>> {
        let db = self.0.db(py)?;
        Ok(detached(py, || db.time_of(version))?.map(history::microseconds))
    }

    fn pin(&self, py: Python<'_>, name: &str, version: Option<u64>) -> PyResult<()> {
        let db = self.0.db(py)?;
        detached(py, || db.pin(name, version.unwrap_or_else(|| db.version())))
    }

    fn unpin(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let db = self.0.db(py)?;
        detached(py, || db.unpin(name))
    }

    /// Return the names of versions, and the versions.
    fn named_versions(&self, py: Python<'_>) -> PyResult<Vec<(String, u64)>> {
        let db = self.0.db(py)?;
        let named = detached(py, || db.named_versions())?;
        Ok(named.into_iter().map(|named| (named.name, named.version)).collect())
    }

    /// The number of the newest commit that is seen afterwards.
    fn refresh(&self, py: Python<'_>) -> PyResult<u64> {
        let db = self.0.db(py)?;
        detached(py, || db.refresh())
    }

    fn persist(&self, py: Python<'_>) -> PyResult<()> {
        let db = self.0.db(py)?;
        detached(py, || db.persist())
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let db = self.0.db(py)?;
        detached(py, || db.flush())
    }

    fn compact(&self, py: Python<'_>) -> PyResult<()> {
        let db = self.0.db(py)?;
        detached(py, || db.compact())
    }

    fn check(&self, py: Python<'_>) -> PyResult<Checked> {
        let db = self.0.db(py)?;
        detached(py, || db.check()).map(checked)
    }

    /// Return the contents of `esker.Stats`, as dictionaries.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let db = self.0.db(py)?;
        stats::as_dict(py, &detached(py, || db.stats())?)
    }
}
