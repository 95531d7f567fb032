//! The store as it was at one moment.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::sync::MutexExt;

use crate::fork::Kept;
use crate::keyspace::Keyspace;
use crate::raised;
use crate::reads::{At, Reads};
use crate::store::{Open, Store, detached};
use crate::values::{self, ValueReader};

/// A snapshot that may be closed; its views share it.
pub(crate) struct Moment(Kept<Mutex<Option<esker::Snapshot>>>);

impl Moment {
    pub(crate) fn snapshot(&self, py: Python<'_>) -> PyResult<esker::Snapshot> {
        let held = self.0.get(py)?;
        let held = held.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        held.clone().ok_or_else(|| raised::closed(py, "the snapshot is closed"))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let held = self.0.get(py)?;
        *held.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner) = None;
        Ok(())
    }
}

/// The snapshot below `esker.Snapshot`.
#[pyclass(frozen, subclass, module = "esker._esker")]
pub(crate) struct Snapshot {
    moment: Arc<Moment>,
    seq: u64,
    open: Arc<Open>,
}

#[pymethods]
impl Snapshot {
    #[new]
    fn new(py: Python<'_>, store: &Store) -> PyResult<Self> {
        let open = Arc::clone(store.open());
        let db = open.db(py)?;
        let snapshot = detached(py, || db.snapshot())?;
        let seq = snapshot.seq();
        let moment = Arc::new(Moment(Kept::new(Mutex::new(Some(snapshot)))));
        Ok(Self { moment, seq, open })
    }

    /// The number of the newest visible write.
    #[getter]
    const fn seq(&self) -> u64 {
        self.seq
    }

    /// The folder of the store.
    #[getter]
    fn path(&self) -> &std::path::Path {
        self.open.path()
    }

    /// Raise an exception if it cannot be used.
    fn _check(&self, py: Python<'_>) -> PyResult<()> {
        self.open.check(py)?;
        self.moment.snapshot(py).map(drop)
    }

    /// Release the snapshot, except for data that iterators still read; its views can no longer be
    /// used. May be called repeatedly.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.moment.close(py)
    }
}

/// The view below `esker.KeyspaceView`.
#[pyclass(frozen, subclass, extends = Reads, module = "esker._esker")]
pub(crate) struct KeyspaceView;

#[pymethods]
impl KeyspaceView {
    #[new]
    fn new(
        py: Python<'_>,
        snapshot: &Snapshot,
        keyspace: Named<'_>,
    ) -> PyResult<PyClassInitializer<Self>> {
        // It was closed, or is of another process.
        snapshot.moment.snapshot(py)?;
        let keyspace = keyspace.of(py, &snapshot.open)?;
        let reads = Reads::new(&snapshot.open, keyspace, At::Then(Arc::clone(&snapshot.moment)));
        Ok(PyClassInitializer::from(reads).add_subclass(Self))
    }

    fn _reader(this: PyRef<'_, Self>, key: &Bound<'_, PyAny>) -> PyResult<ValueReader> {
        values::reader(this.py(), this.as_super(), key)
    }
}

/// A keyspace as Python passes it: an object or a name.
#[derive(FromPyObject)]
pub(crate) enum Named<'py> {
    Itself(PyRef<'py, Keyspace>),
    Name(String),
}

impl Named<'_> {
    /// The keyspace of the store `open` that is named so.
    pub(crate) fn of(&self, py: Python<'_>, open: &Arc<Open>) -> PyResult<esker::Keyspace> {
        match self {
            Self::Itself(keyspace) => ours(py, open, keyspace),
            Self::Name(name) => by_name(py, open, name),
        }
    }
}

fn ours(
    py: Python<'_>,
    open: &Arc<Open>,
    keyspace: &PyRef<'_, Keyspace>,
) -> PyResult<esker::Keyspace> {
    let reads = keyspace.as_super();
    let keyspace = reads.keyspace(py)?;
    if Arc::ptr_eq(reads.open(), open) {
        return Ok(keyspace.clone());
    }
    let text = format!("keyspace {} belongs to another store", keyspace.name());
    Err(raised::argument(py, &text))
}

fn by_name(py: Python<'_>, open: &Arc<Open>, name: &str) -> PyResult<esker::Keyspace> {
    let db = open.db(py)?;
    let found = detached(py, || db.open_keyspace(name))?;
    let gone = || esker::Error::NoKeyspace { name: name.to_owned() };
    found.ok_or_else(|| raised::of_store(py, &gone()))
}
