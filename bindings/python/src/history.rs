//! Keyspaces with history: mappings at earlier versions, and the changes of a key.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyBytes;

use crate::buffer::Buffer;
use crate::diff::Version;
use crate::fork::Kept;
use crate::keyspace::Keyspace;
use crate::reads::{At, Reads};
use crate::store::{Open, detached};
use crate::values::{self, ValueReader};

/// The microseconds from 1970 to a time.
pub(crate) fn microseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// The mapping below `esker.PastKeyspace`.
#[pyclass(frozen, subclass, extends = Reads, module = "esker._esker")]
pub(crate) struct PastKeyspace {
    past: Arc<Kept<esker::Past>>,
    version: u64,
}

#[pymethods]
impl PastKeyspace {
    /// The keyspace at a version, by its number or name, or at a time in microseconds since 1970.
    #[new]
    fn new(
        py: Python<'_>,
        keyspace: PyRef<'_, Keyspace>,
        version: Option<Version>,
        microseconds: u64,
    ) -> PyResult<PyClassInitializer<Self>> {
        let reads = keyspace.as_super();
        reads.open().check(py)?;
        let keyspace = reads.keyspace(py)?;
        let past = detached(py, || match version {
            Some(version) => version.past(keyspace),
            None => {
                let since = Duration::from_micros(microseconds);
                keyspace.at_time(SystemTime::UNIX_EPOCH + since)
            }
        })?;
        let version = past.version();
        let past = Arc::new(Kept::new(past));
        let reads = Reads::new(reads.open(), keyspace.clone(), At::Version(Arc::clone(&past)));
        Ok(PyClassInitializer::from(reads).add_subclass(Self { past, version }))
    }

    /// The version.
    #[getter]
    const fn version(&self) -> u64 {
        self.version
    }

    /// Return the microseconds from 1970 to the commit of the version, or None.
    fn _time(this: PyRef<'_, Self>) -> PyResult<Option<u64>> {
        let past = this.past.get(this.py())?;
        Ok(detached(this.py(), || past.time())?.map(microseconds))
    }

    fn _changes(this: PyRef<'_, Self>, key: &Bound<'_, PyAny>) -> PyResult<Changes> {
        let py = this.py();
        let key = Buffer::key(key)?;
        let (key, past) = (key.as_ref(), this.past.get(py)?);
        let changes = detached(py, || past.history(key))?;
        Ok(Changes::new(this.as_super().open(), changes))
    }

    fn _reader(this: PyRef<'_, Self>, key: &Bound<'_, PyAny>) -> PyResult<ValueReader> {
        values::reader(this.py(), this.as_super(), key)
    }
}

/// The iterator below `esker.Keyspace.history`: versions, times in microseconds since 1970 and
/// values.
#[pyclass(frozen, module = "esker._esker")]
pub(crate) struct Changes {
    changes: Kept<Mutex<esker::Changes>>,
    open: Arc<Open>,
}

/// A change as Python gets it.
type Change<'py> = (u64, Option<u64>, Option<Bound<'py, PyBytes>>);

impl Changes {
    pub(crate) fn new(open: &Arc<Open>, changes: esker::Changes) -> Self {
        Self { changes: Kept::new(Mutex::new(changes)), open: Arc::clone(open) }
    }
}

#[pymethods]
impl Changes {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Change<'py>>> {
        let changes = self.changes.get(py)?;
        let db = self.open.db(py)?;
        let mut changes = changes.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        let changes = &mut *changes;
        let next = detached(py, || {
            let Some(change) = changes.next().transpose()? else { return Ok(None) };
            let time = db.time_of(change.version)?;
            Ok(Some((change, time)))
        })?;
        Ok(next.map(|(change, time)| {
            let value = change.value.map(|value| PyBytes::new(py, &value));
            (change.version, time.map(microseconds), value)
        }))
    }
}
