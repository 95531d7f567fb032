//! What is read from a keyspace, as it is or as a snapshot sees it.

use std::ops::Bound as End;
use std::sync::Arc;

use esker::{Keyspace, Snapshot};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::buffer::Buffer;
use crate::fork::Kept;
use crate::range::{Part, Range};
use crate::snapshot::Moment;
use crate::store::{Open, apart};

/// Entries that are counted before Python is asked whether a signal came.
const COUNTED_MAX: usize = 1 << 16;

/// A keyspace at a moment, or always now.
#[derive(Clone)]
pub(crate) enum View {
    Now(Keyspace),
    Then(Snapshot, Keyspace),
}

impl View {
    fn get(&self, key: &[u8]) -> esker::Result<Option<Vec<u8>>> {
        match self {
            Self::Now(keyspace) => keyspace.get(key),
            Self::Then(snapshot, keyspace) => snapshot.get(keyspace, key),
        }
    }

    fn multi_get(&self, keys: &[&[u8]]) -> esker::Result<Vec<Option<Vec<u8>>>> {
        match self {
            Self::Now(keyspace) => keyspace.multi_get(keys),
            Self::Then(snapshot, keyspace) => snapshot.multi_get(keyspace, keys),
        }
    }

    fn end(&self, is_last: bool) -> esker::Result<Option<esker::Entry>> {
        match (self, is_last) {
            (Self::Now(keyspace), false) => keyspace.first(),
            (Self::Now(keyspace), true) => keyspace.last(),
            (Self::Then(snapshot, keyspace), false) => snapshot.first(keyspace),
            (Self::Then(snapshot, keyspace), true) => snapshot.last(keyspace),
        }
    }

    fn range(&self, bounds: (End<&[u8]>, End<&[u8]>)) -> esker::Result<esker::Range> {
        match self {
            Self::Now(keyspace) => keyspace.range::<&[u8]>(bounds),
            Self::Then(snapshot, keyspace) => snapshot.range::<&[u8]>(keyspace, bounds),
        }
    }

    fn prefix(&self, prefix: &[u8]) -> esker::Result<esker::Range> {
        match self {
            Self::Now(keyspace) => keyspace.prefix(prefix),
            Self::Then(snapshot, keyspace) => snapshot.prefix(keyspace, prefix),
        }
    }
}

/// The reading half of a mapping.
#[pyclass(frozen, subclass, module = "esker._esker")]
pub(crate) struct Reads {
    keyspace: Kept<Keyspace>,
    /// Without one, it is read as it is now.
    moment: Option<Arc<Moment>>,
    name: String,
    open: Arc<Open>,
}

impl Reads {
    pub(crate) fn new(open: &Arc<Open>, keyspace: Keyspace, moment: Option<Arc<Moment>>) -> Self {
        let name = keyspace.name().to_owned();
        Self { keyspace: Kept::new(keyspace), moment, name, open: Arc::clone(open) }
    }

    pub(crate) const fn open(&self) -> &Arc<Open> {
        &self.open
    }

    /// The keyspace.
    ///
    /// # Errors
    /// `ForkError` in a child.
    #[inline]
    pub(crate) fn keyspace(&self, py: Python<'_>) -> PyResult<&Keyspace> {
        self.keyspace.get(py)
    }

    fn view(&self, py: Python<'_>) -> PyResult<View> {
        let keyspace = self.keyspace(py)?.clone();
        match &self.moment {
            None => Ok(View::Now(keyspace)),
            Some(moment) => Ok(View::Then(moment.snapshot(py)?, keyspace)),
        }
    }

    #[inline]
    pub(crate) fn found(&self, py: Python<'_>, key: &[u8]) -> PyResult<Option<Vec<u8>>> {
        if self.moment.is_some() {
            let view = self.view(py)?;
            return apart(py, || view.get(key));
        }
        let keyspace = self.keyspace(py)?;
        apart(py, || keyspace.get(key))
    }

    fn end<'py>(
        &self,
        py: Python<'py>,
        is_last: bool,
    ) -> PyResult<Option<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>> {
        let view = self.view(py)?;
        let entry = apart(py, || view.end(is_last))?;
        Ok(entry.map(|(key, value)| (PyBytes::new(py, &key), PyBytes::new(py, &value))))
    }

    fn walk(&self, range: esker::Range, part: Part, reverse: bool) -> Range {
        Range::new(&self.open, &self.name, range, part, reverse)
    }
}

#[pymethods]
impl Reads {
    /// The name of the keyspace.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// The folder of the store.
    #[getter]
    fn path(&self) -> &std::path::Path {
        self.open.path()
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        match self.found(py, Buffer::key(key)?.as_ref())? {
            Some(value) => Ok(PyBytes::new(py, &value)),
            None => Err(PyKeyError::new_err(key.clone().unbind())),
        }
    }

    /// The value of `key`, or `default` where there is none. At most one block read a level; none
    /// for what is in memory.
    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let value = self.found(py, Buffer::key(key)?.as_ref())?;
        Ok(value.map(|value| PyBytes::new(py, &value).into_any()).or(default))
    }

    /// The values of `keys`, in their order and as of one moment, None where there is none; blocks
    /// are read in parallel.
    fn get_many<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let keys = keys.try_iter()?.collect::<PyResult<Vec<_>>>()?;
        let keys = keys.iter().map(Buffer::key).collect::<PyResult<Vec<_>>>()?;
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        let view = self.view(py)?;
        let values = apart(py, || view.multi_get(&keys))?;
        let values = values.iter().map(|value| value.as_ref().map(|value| PyBytes::new(py, value)));
        PyList::new(py, values.collect::<Vec<_>>())
    }

    fn __contains__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.found(py, Buffer::key(key)?.as_ref()).map(|value| value.is_some())
    }

    /// Counts by reading all entries.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let view = self.view(py)?;
        let mut range = apart(py, || view.range((End::Unbounded, End::Unbounded)))?;
        let mut all = 0;
        loop {
            let some = range.by_ref().take(COUNTED_MAX);
            let count =
                apart(py, || some.map(|entry| entry.map(|_| 1)).sum::<esker::Result<usize>>())?;
            all += count;
            if count < COUNTED_MAX {
                return Ok(all);
            }
            py.check_signals()?;
        }
    }

    /// Whether there is any entry.
    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.end(py, false)?.is_some())
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Range> {
        self.all(py, "keys", false)
    }

    fn __reversed__(&self, py: Python<'_>) -> PyResult<Range> {
        self.all(py, "keys", true)
    }

    /// All of the keys, values or items (`part`), from either end.
    #[pyo3(name = "_all")]
    fn all(&self, py: Python<'_>, part: &str, reverse: bool) -> PyResult<Range> {
        let part = match part {
            "keys" => Part::Key,
            "values" => Part::Value,
            _ => Part::Both,
        };
        let view = self.view(py)?;
        let range = apart(py, || view.range((End::Unbounded, End::Unbounded)))?;
        Ok(self.walk(range, part, reverse))
    }

    /// The entries with `start <= key < end` as of now, in the order of their keys or, with
    /// `reverse`, against it: an iterator of `(key, value)`. None is no bound. What is written
    /// meanwhile is not seen.
    #[pyo3(signature = (start=None, end=None, *, reverse=false))]
    fn range(
        &self,
        py: Python<'_>,
        start: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
        reverse: bool,
    ) -> PyResult<Range> {
        let (start, end) = (start.map(Buffer::key).transpose()?, end.map(Buffer::key).transpose()?);
        let start = start.as_ref().map_or(End::Unbounded, |key| End::Included(key.as_ref()));
        let end = end.as_ref().map_or(End::Unbounded, |key| End::Excluded(key.as_ref()));
        let view = self.view(py)?;
        let range = apart(py, || view.range((start, end)))?;
        Ok(self.walk(range, Part::Both, reverse))
    }

    /// The entries whose keys begin with `prefix`, as `range` gives them.
    #[pyo3(signature = (prefix, *, reverse=false))]
    fn prefix(&self, py: Python<'_>, prefix: &Bound<'_, PyAny>, reverse: bool) -> PyResult<Range> {
        let prefix = Buffer::key(prefix)?;
        let (view, prefix) = (self.view(py)?, prefix.as_ref());
        let range = apart(py, || view.prefix(prefix))?;
        Ok(self.walk(range, Part::Both, reverse))
    }

    /// The entry with the smallest key; None if there is none.
    fn first<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Option<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>> {
        self.end(py, false)
    }

    /// The entry with the largest key; None if there is none.
    fn last<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Option<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>> {
        self.end(py, true)
    }
}
