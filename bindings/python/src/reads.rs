//! Reads of a keyspace, as it is, as a snapshot sees it or as it was at a version.

use std::ops::Bound as End;
use std::sync::Arc;

use esker::{Entry, Keyspace, Past, Snapshot, ValueReader};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::buffer::Buffer;
use crate::fork::Kept;
use crate::raised;
use crate::range::{Part, Range, Source};
use crate::snapshot::Moment;
use crate::store::{Open, detached};
use crate::transaction::{Ongoing, Rest};

/// Entries that are counted before Python is asked whether a signal came.
const COUNTED_MAX: usize = 1 << 16;

/// The moment as of which a keyspace is read.
#[derive(Clone)]
pub(crate) enum At {
    Now,
    Then(Arc<Moment>),
    Version(Arc<Kept<Past>>),
    In(Arc<Ongoing>),
}

/// A keyspace as of that moment.
enum View {
    Now(Keyspace),
    Then(Snapshot, Keyspace),
    Version(Past),
    In(Arc<Ongoing>, Keyspace),
}

/// The range between two keys.
type Bounds<'a> = (End<&'a [u8]>, End<&'a [u8]>);

impl View {
    fn get(&self, py: Python<'_>, key: &[u8]) -> PyResult<Option<Vec<u8>>> {
        match self {
            Self::Now(keyspace) => detached(py, || keyspace.get(key)),
            Self::Then(snapshot, keyspace) => detached(py, || snapshot.get(keyspace, key)),
            Self::Version(past) => detached(py, || past.get(key)),
            Self::In(ongoing, keyspace) => {
                ongoing.with(py, |work| work.transaction.get(keyspace, key))
            }
        }
    }

    fn contains(&self, py: Python<'_>, key: &[u8]) -> PyResult<bool> {
        match self {
            Self::Now(keyspace) => detached(py, || keyspace.contains(key)),
            Self::Then(snapshot, keyspace) => detached(py, || snapshot.contains(keyspace, key)),
            Self::Version(past) => detached(py, || past.contains(key)),
            Self::In(ongoing, keyspace) => {
                ongoing.with(py, |work| work.transaction.contains(keyspace, key))
            }
        }
    }

    fn reader(&self, py: Python<'_>, key: &[u8]) -> PyResult<Option<ValueReader>> {
        match self {
            Self::Now(keyspace) => detached(py, || keyspace.reader(key)),
            Self::Then(snapshot, keyspace) => detached(py, || snapshot.reader(keyspace, key)),
            Self::Version(past) => detached(py, || past.reader(key)),
            Self::In(..) => Err(raised::argument(py, "a transaction reads values whole: use get")),
        }
    }

    fn multi_get(&self, py: Python<'_>, keys: &[&[u8]]) -> PyResult<Vec<Option<Vec<u8>>>> {
        match self {
            Self::Now(keyspace) => detached(py, || keyspace.multi_get(keys)),
            Self::Then(snapshot, keyspace) => detached(py, || snapshot.multi_get(keyspace, keys)),
            Self::Version(past) => detached(py, || past.multi_get(keys)),
            Self::In(ongoing, keyspace) => {
                ongoing.with(py, |work| work.transaction.multi_get(keyspace, keys))
            }
        }
    }

    fn end(&self, py: Python<'_>, is_last: bool) -> PyResult<Option<Entry>> {
        match self {
            Self::Now(of) => detached(py, || if is_last { of.last() } else { of.first() }),
            Self::Then(at, of) => detached(py, || if is_last { at.last(of) } else { at.first(of) }),
            Self::Version(past) => {
                detached(py, || if is_last { past.last() } else { past.first() })
            }
            Self::In(ongoing, of) => ongoing.with(py, |work| {
                let at = &work.transaction;
                if is_last { at.last(of) } else { at.first(of) }
            }),
        }
    }

    fn range(self, py: Python<'_>, (start, end): Bounds<'_>) -> PyResult<Source> {
        let range = match self {
            Self::Now(keyspace) => detached(py, || keyspace.range::<&[u8]>((start, end))),
            Self::Then(at, of) => detached(py, || at.range::<&[u8]>(&of, (start, end))),
            Self::Version(past) => detached(py, || past.range::<&[u8]>((start, end))),
            Self::In(ongoing, keyspace) => {
                let (start, end) = (start.map(<[u8]>::to_vec), end.map(<[u8]>::to_vec));
                return Ok(Source::Rest(Rest { ongoing, keyspace, start, end }));
            }
        };
        range.map(|range| Source::Range(Box::new(range)))
    }

    fn prefix(self, py: Python<'_>, prefix: &[u8]) -> PyResult<Source> {
        let range = match &self {
            Self::Now(keyspace) => detached(py, || keyspace.prefix(prefix)),
            Self::Then(snapshot, keyspace) => detached(py, || snapshot.prefix(keyspace, prefix)),
            Self::Version(past) => detached(py, || past.prefix(prefix)),
            Self::In(..) => {
                let end = after(prefix);
                let end = end.as_deref().map_or(End::Unbounded, End::Excluded);
                return self.range(py, (End::Included(prefix), end));
            }
        };
        range.map(|range| Source::Range(Box::new(range)))
    }
}

/// The keys with `start <= key < end`, where either bound may be missing.
pub(crate) fn between<'a>(
    start: &'a Option<Buffer<'_, '_>>,
    end: &'a Option<Buffer<'_, '_>>,
) -> Bounds<'a> {
    let start = start.as_ref().map_or(End::Unbounded, |key| End::Included(key.as_ref()));
    let end = end.as_ref().map_or(End::Unbounded, |key| End::Excluded(key.as_ref()));
    (start, end)
}

/// The smallest key above all that begin with `prefix`, if there is one.
fn after(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut after = prefix.get(..=last)?.to_vec();
    *after.last_mut()? += 1;
    Some(after)
}

/// The reading half of a mapping.
#[pyclass(frozen, subclass, module = "esker._esker")]
pub(crate) struct Reads {
    keyspace: Kept<Keyspace>,
    at: At,
    name: String,
    open: Arc<Open>,
}

impl Reads {
    pub(crate) fn new(open: &Arc<Open>, keyspace: Keyspace, at: At) -> Self {
        let name = keyspace.name().to_owned();
        Self { keyspace: Kept::new(keyspace), at, name, open: Arc::clone(open) }
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
        Ok(match &self.at {
            At::Now => View::Now(keyspace),
            At::Then(moment) => View::Then(moment.snapshot(py)?, keyspace),
            At::Version(past) => View::Version(past.get(py)?.clone()),
            At::In(ongoing) => View::In(Arc::clone(ongoing), keyspace),
        })
    }

    pub(crate) fn reader(&self, py: Python<'_>, key: &[u8]) -> PyResult<Option<ValueReader>> {
        self.view(py)?.reader(py, key)
    }

    #[inline]
    pub(crate) fn found(&self, py: Python<'_>, key: &[u8]) -> PyResult<Option<Vec<u8>>> {
        if !matches!(self.at, At::Now) {
            return self.view(py)?.get(py, key);
        }
        let keyspace = self.keyspace(py)?;
        detached(py, || keyspace.get(key))
    }

    fn end<'py>(
        &self,
        py: Python<'py>,
        is_last: bool,
    ) -> PyResult<Option<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>> {
        let entry = self.view(py)?.end(py, is_last)?;
        Ok(entry.map(|(key, value)| (PyBytes::new(py, &key), PyBytes::new(py, &value))))
    }

    fn walk(&self, range: Source, part: Part, reverse: bool) -> Range {
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
            None => Err(raised::no_key(key)),
        }
    }

    /// Return the value of `key`, or `default` where there is none. At most one block read for each
    /// level; none for a value that is in memory.
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

    /// Return the values of `keys`, in their order and as of one moment, None where there is none;
    /// blocks are read in parallel.
    fn get_many<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let Ok(keys) = keys.try_iter() else {
            return Err(raised::wrong_type(py, "the keys are an iterable of bytes"));
        };
        let keys = keys.collect::<PyResult<Vec<_>>>()?;
        let keys = keys.iter().map(Buffer::key).collect::<PyResult<Vec<_>>>()?;
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        let values = self.view(py)?.multi_get(py, &keys)?;
        let values = values.iter().map(|value| value.as_ref().map(|value| PyBytes::new(py, value)));
        PyList::new(py, values.collect::<Vec<_>>())
    }

    fn __contains__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.view(py)?.contains(py, Buffer::key(key)?.as_ref())
    }

    /// Count the entries by reading all of them.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let mut range = self.view(py)?.range(py, (End::Unbounded, End::Unbounded))?;
        let (mut all, mut most) = (0, COUNTED_MAX);
        while range.run(py, false, |_| {
            all += 1;
            all < most
        })? {
            py.check_signals()?;
            most += COUNTED_MAX;
        }
        Ok(all)
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

    /// Return all of the keys, values or items (`part`), from either end.
    #[pyo3(name = "_all")]
    fn all(&self, py: Python<'_>, part: &str, reverse: bool) -> PyResult<Range> {
        let part = match part {
            "keys" => Part::Key,
            "values" => Part::Value,
            _ => Part::Both,
        };
        let range = self.view(py)?.range(py, (End::Unbounded, End::Unbounded))?;
        Ok(self.walk(range, part, reverse))
    }

    /// Return the entries with `start <= key < end` as of now, in ascending order of keys or, with
    /// `reverse`, in descending order: an iterator of `(key, value)`. None is no bound. Later
    /// writes are not seen.
    #[pyo3(signature = (start=None, end=None, *, reverse=false))]
    fn range(
        &self,
        py: Python<'_>,
        start: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
        reverse: bool,
    ) -> PyResult<Range> {
        let (start, end) = (start.map(Buffer::key).transpose()?, end.map(Buffer::key).transpose()?);
        let range = self.view(py)?.range(py, between(&start, &end))?;
        Ok(self.walk(range, Part::Both, reverse))
    }

    /// Return the entries whose keys begin with `prefix`, as `range` does.
    #[pyo3(signature = (prefix, *, reverse=false))]
    fn prefix(&self, py: Python<'_>, prefix: &Bound<'_, PyAny>, reverse: bool) -> PyResult<Range> {
        let prefix = Buffer::key(prefix)?;
        let range = self.view(py)?.prefix(py, prefix.as_ref())?;
        Ok(self.walk(range, Part::Both, reverse))
    }

    /// Return the entry with the smallest key, or None if there is none.
    fn first<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Option<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>> {
        self.end(py, false)
    }

    /// Return the entry with the largest key, or None if there is none.
    fn last<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Option<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>> {
        self.end(py, true)
    }
}
